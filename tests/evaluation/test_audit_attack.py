"""Attacks must find what a model gives away, and no more; their intervals must cover the truth."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from fedhk import EFKMVC, HeatKernelMVC
from fedhk.evaluation.audit_attack import clopper_pearson, membership_attack, strength
from fedhk.privacy import DifferentialPrivacy
from sealed_runs import seeded_noise


class TestStrength:
    @pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
    @pytest.mark.parametrize("trials", [1, 7, 5000])
    def test_clopper_pearson_equals_scipy(self, trials, confidence):
        counts = np.unique([0, 1, trials // 3, trials - 1, trials])
        low, high = clopper_pearson(counts, trials, confidence)
        exact = [binomtest(int(k), trials).proportion_ci(confidence, method="exact") for k in counts]
        np.testing.assert_allclose(low, [interval.low for interval in exact], atol=1e-12)
        np.testing.assert_allclose(high, [interval.high for interval in exact], atol=1e-12)

    @pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5), (0, 0)])
    def test_clopper_pearson_refuses_impossible_counts(self, successes, trials):
        with pytest.raises(ValueError, match="successes"):
            clopper_pearson(successes, trials)

    def test_auc_equals_scikit_learn_also_with_ties(self):
        generator = np.random.default_rng(0)
        member = generator.random(300) < 0.4
        for scores in (generator.normal(size=300) + member, np.round(generator.normal(size=300) + member)):
            found = strength(scores, member, generator.random(300) < 0.5, 0.95)
            assert found.auc == pytest.approx(roc_auc_score(member, scores))
            assert found.auc_low < found.auc < found.auc_high

    def test_interval_of_the_auc_covers(self):
        generator = np.random.default_rng(1)
        member = np.arange(200) < 100
        found = [strength(generator.normal(size=200), member, np.arange(200) % 2 == 0, 0.95) for _ in range(300)]
        assert 0.91 <= np.mean([a.auc_low <= 0.5 <= a.auc_high for a in found]) <= 0.985
        assert np.mean([a.advantage_low <= 0 <= a.advantage_high for a in found]) >= 0.95


def blobs(n_rows, seed=0):
    """Three clusters in two views."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=n_rows)
    return [generator.normal(size=(n_rows, width)) + 6 * np.eye(3, width)[labels] for width in (3, 4)]


def halves(views):
    return [[table[rows] for table in views] for rows in (slice(None, None, 2), slice(1, None, 2))]


class TestMembership:
    def test_a_model_that_generalises_gives_nothing_away(self):
        members, others = halves(blobs(6000))
        model = HeatKernelMVC(3, n_init=2, random_state=0).fit(members)
        found = membership_attack(model, members, others, shadows=4, random_state=0)
        assert (found.members, found.others, found.shadows) == (3000, 3000, 4)
        for attack in (found.distance, found.likelihood_ratio):
            assert abs(attack.auc - 0.5) < 0.03
            assert abs(attack.advantage) < 0.06

    def test_a_model_with_nearly_a_cluster_per_row_gives_rows_away(self):
        members, others = halves(blobs(160))
        model = HeatKernelMVC(60, n_init=1, random_state=0).fit(members)
        found = membership_attack(model, members, others, shadows=2, random_state=0)
        assert found.distance.auc > 0.9
        assert found.distance.advantage_low > 0.3
        assert "gives its rows away" in found.verdict

    def test_the_likelihood_ratio_sees_what_distances_do_not(self):
        found = []
        for seed in range(8):  # in one draw of 300 rows the other may be ahead by chance
            members, others = halves(blobs(600, seed))
            model = HeatKernelMVC(10, n_init=1, random_state=0).fit(members)
            found.append(membership_attack(model, members, others, shadows=8, random_state=0))
        assert np.mean([one.likelihood_ratio.auc - one.distance.auc for one in found]) > 0.01
        assert all(one.strongest.auc == max(one.likelihood_ratio.auc, one.distance.auc) for one in found)

    @pytest.mark.filterwarnings("ignore:.*clusters that have rows:sklearn.exceptions.ConvergenceWarning")
    def test_noise_protects_rows_that_a_model_gives_away(self, monkeypatch):
        seeded_noise(monkeypatch)  # 1 of 100 draws is above the limit by chance
        members, others = halves(blobs(400))
        open_model = EFKMVC(20, n_init=1, random_state=0).fit([members])
        assert membership_attack(open_model, members, others, shadows=0).distance.auc_low > 0.55
        noisy = EFKMVC(20, privacy=DifferentialPrivacy(4.0, 1e-4, bounds=(-10, 10)), random_state=0)
        noisy.fit([members])
        assert membership_attack(noisy, members, others, shadows=0).distance.auc_low < 0.55

    def test_tables_may_be_one_sparse_missing_or_named(self):
        views = blobs(200)
        one = HeatKernelMVC(3, n_init=1, random_state=0).fit(views[0][:100])
        dense = membership_attack(one, views[0][:100], views[0][100:], shadows=2, random_state=0)
        sparse = membership_attack(one, *(sp.csr_array(x) for x in np.split(views[0], 2)), shadows=2, random_state=0)
        assert sparse.distance.auc == pytest.approx(dense.distance.auc)
        members, others = halves(views)
        model = HeatKernelMVC(3, n_init=1, random_state=0).fit(members)
        missing = membership_attack(model, members, [others[0], None], shadows=2, random_state=0)
        assert abs(missing.distance.auc - 0.5) > 0.2  # rows with one view are not alike: nearer, for one

    def test_bad_input(self):
        members, others = halves(blobs(100))
        model = HeatKernelMVC(3, n_init=1, random_state=0).fit(members)
        with pytest.raises(ValueError, match="shadows=3 must be an even number"):
            membership_attack(model, members, others, shadows=3)
        with pytest.raises(ValueError, match="confidence"):
            membership_attack(model, members, others, confidence=95)
        with pytest.raises(ValueError, match="others: "):
            membership_attack(model, members, [others[1], others[0]])
        with pytest.raises(ValueError, match="members: "):
            membership_attack(model, [table[:2] for table in members], others)
