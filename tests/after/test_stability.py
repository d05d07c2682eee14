"""How sure clusters are: real ones come back, splits of noise do not, and sites that carry a cluster are named."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_info, threadpool_limits

import fedhk
from after.hospitals import make_federation, pooled_labels
from fedhk.after.run import AskedSites, read_sites
from fedhk.after.stability import compare_halves, find_consensus, find_jaccard
from fedhk.privacy import DifferentialPrivacy
from fedhk.report.after import describe_answers


def at_sites(rows):
    return {site: [rows[i::3]] for i, site in enumerate(("a", "b", "c"))}


@pytest.fixture(scope="module")
def ordered():
    """Six clusters whose distances to the nearest one differ, and how sure they are."""
    rng, apart = np.random.default_rng(0), np.array([1.0, 1.3, 1.6, 2.0, 2.5, 3.2])
    corners = np.sqrt(2) * np.diag(apart)
    sites = at_sites(corners[rng.integers(0, 6, 900)] + rng.normal(size=(900, 6)))
    model = fedhk.EFKMVC(6, scaling="none", init=[corners], random_state=0).fit(sites)
    return model, sites, apart, fedhk.stability(model, sites, n_resamples=20)


def test_clusters_are_ordered_by_how_far_apart_they_are(ordered):
    _, _, apart, found = ordered
    assert spearmanr(found.mean_halves, apart).statistic > 0.9
    assert found.verdicts[-2:] == ["stable", "stable"]
    assert np.all(found.mean_jaccard >= found.mean_halves - 0.05)


@pytest.mark.parametrize("width", [5, 10])
def test_clusters_of_noise_are_called_unstable(width):
    sites = at_sites(np.random.default_rng(width).normal(size=(400, width)))
    model = fedhk.EFKMVC(4, scaling="standard", random_state=0).fit(sites)
    found = fedhk.stability(model, sites, n_resamples=20)
    assert found.verdicts == ["unstable"] * 4


def test_halves_of_a_long_cloud_are_no_clusters_though_they_come_back():
    """Its middle is known well, so that both halves split it alike; so are all clouds of this shape."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(900, 2)) * [3.0, 1.0]
    for apart, verdict in ((0.0, "unstable"), (5.0, "stable")):
        sites = at_sites(rows * [1 / 3, 1.0] + [apart, 0.0] * (np.arange(900) // 3 % 2)[:, None] if apart else rows)
        model = fedhk.EFKMVC(2, scaling="none", random_state=0).fit(sites)
        found = fedhk.stability(model, sites, n_resamples=10)
        assert found.verdicts == [verdict] * 2
        assert found.mean_halves.min() > 0.75


def test_two_halves_of_one_cluster_are_said_to_be_often_together():
    rng = np.random.default_rng(0)
    sites = at_sites(np.vstack([rng.normal(size=(200, 5)), rng.normal(size=(100, 5)) + 8]))
    model = fedhk.EFKMVC(3, scaling="none", random_state=0).fit(sites)
    found = fedhk.stability(model, sites, n_resamples=10)
    alone = found.verdicts.index("stable")
    assert found.verdicts.count("stable") == 1
    a, b = sorted({0, 1, 2} - {alone})
    assert f"often together: {a} and {b}" in found.notes[-1]


def test_a_cluster_that_one_site_alone_has_is_gone_without_it():
    rng = np.random.default_rng(0)
    corners = 8 * np.eye(3)
    labels = {"a": rng.integers(0, 2, 120), "b": rng.integers(0, 2, 120), "c": rng.integers(0, 3, 120)}
    sites = {site: [corners[part] + rng.normal(size=(120, 3))] for site, part in labels.items()}
    model = fedhk.EFKMVC(3, scaling="none", init=[corners], random_state=0).fit(sites)
    found = fedhk.stability(model, sites, n_resamples=4)
    assert found.site_jaccard["c"][2] < 0.6
    assert min(found.site_jaccard["a"].min(), found.site_jaccard["b"].min()) > 0.9
    assert found.table().rows[2][-1].endswith("(c)")


def test_masks_change_nothing(ordered):
    model, sites, _, found = ordered
    masked = fedhk.stability(model, sites, n_resamples=20, secure=True)
    assert_allclose(masked.jaccard, found.jaccard, atol=0.02)  # rounding may move a row between two clusters
    assert_allclose(masked.consensus, found.consensus, atol=0.02)


def test_the_same_seed_gives_the_same_answer_and_another_one_a_similar_one(ordered):
    model, sites, _, found = ordered
    assert_allclose(fedhk.stability(model, sites, n_resamples=10).jaccard, found.jaccard[:10], atol=1e-9)
    other = fedhk.stability(model, sites, n_resamples=10, random_state=1)
    assert_allclose(other.mean_jaccard, found.mean_jaccard, atol=0.06)
    assert not np.allclose(other.jaccard, found.jaccard[:10])


def test_all_models_are_refitted_in_few_exchanges(ordered):
    _, _, _, found = ordered
    assert found.answer.exchanges <= 15


def test_certain_rows_stay_in_their_cluster_more_often(ordered):
    _, sites, _, found = ordered
    known = found.certainty_rows >= 20
    assert found.certainty_rows.sum() == sum(len(views[0]) for views in sites.values())
    assert np.all(np.diff(found.certainty_kept[known]) > -0.05)
    assert found.certainty_kept[known][-1] > 0.9 > found.certainty_kept[known][0]


def test_jaccard_of_tables_that_can_be_checked_by_hand():
    table = np.array([[[8.0, 2], [0, 10]]])
    assert_allclose(find_jaccard(table), [[0.8, 10 / 12]])
    empty = np.array([[[0.0, 0], [3, 4]]])
    assert np.isnan(find_jaccard(empty)[0, 0])
    assert_allclose(
        compare_halves(np.array([[[5.0, 0], [0, 5]], [[0, 5.0], [5, 0]]]), np.array([[[1.0, 4], [4, 1]]])),
        [[2 / 3] * 2],
    )
    consensus = find_consensus(np.array([[[4.0, 0], [1, 1]]]))
    assert_allclose(consensus, [[1.0, 0.5], [0.5, 0.0]])


@pytest.mark.parametrize("estimator", [fedhk.FedHKPerson, fedhk.FedHKDiffusion, fedhk.FedHKTucker])
def test_every_estimator_has_a_stability(estimator):
    data = fedhk.datasets.make_sites(3, 80, n_clusters=3, separation=9, shift=1.0, random_state=1)
    model = estimator(3, random_state=0).fit(data.sites)
    found = fedhk.stability(model, data.sites, n_resamples=6)
    assert found.verdicts == ["stable"] * 3
    together = np.concatenate([model.labels_[site] for site in data.sites])
    assert adjusted_rand_score(together, data.labels) > 0.9
    assert_allclose(found.rows, np.bincount(together, minlength=3), atol=6)


def test_one_site_alone_has_halves_and_no_other_sites():
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + 8])
    model = fedhk.HeatKernelMVC(2, random_state=0).fit(rows)
    found = fedhk.stability(model, rows, n_resamples=6)
    assert found.verdicts == ["stable", "stable"]
    assert found.site_jaccard == {}
    assert found.frame()["verdict"].tolist() == ["stable", "stable"]


def test_sites_may_lack_views_and_cells():
    model, sites, _ = make_federation()
    some = sites | {"cairo": {"record": sites["cairo"]["record"], "lab": None}}
    assert isinstance(read_sites(model, some), AskedSites)
    found = fedhk.stability(model, some, n_resamples=4)
    assert np.isfinite(found.consensus).all()


@pytest.mark.parametrize(("value", "text"), [(3, "must be even"), (0, "at least 2"), (2.0, "whole number")])
def test_odd_numbers_of_halves_are_refused(value, text):
    model, sites, _ = make_federation()
    with pytest.raises(ValueError, match=text):
        fedhk.stability(model, sites, n_resamples=value)


def test_there_is_no_stability_with_noise():
    model, sites, _ = make_federation()
    with pytest.raises(TypeError, match="privacy"):
        fedhk.stability(model, sites, privacy=DifferentialPrivacy(1.0, 1e-5, bounds=(0, 1)))


def cluster_weakly(seed):
    """Three clusters that overlap so much that models of two halves hardly agree."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(3, 10))
    centers /= np.linalg.norm(centers - centers.mean(axis=0), axis=1, keepdims=True)
    return centers[rng.integers(3, size=600)] + rng.normal(size=(600, 10))


@pytest.mark.parametrize("rows", [cluster_weakly(0), np.random.default_rng(0).normal(size=(600, 10))])
def test_halves_do_not_agree_because_they_had_one_embedding(rows):
    sites = at_sites(rows)
    model = fedhk.FedHKDiffusion(3, random_state=0).fit(sites)
    found = fedhk.stability(model, sites, n_resamples=4)
    assert found.verdicts == ["unstable"] * 3
    assert found.mean_halves.max() < 0.7


def test_clusters_that_are_not_round_are_found_by_the_embedding_of_each_half():
    rows, labels = make_moons(900, noise=0.07, random_state=0)
    sites = at_sites(rows)
    model = fedhk.FedHKDiffusion(2, random_state=1).fit(sites)
    assert adjusted_rand_score(np.concatenate([labels[i::3] for i in range(3)]), pooled_labels(model)) > 0.95
    found = fedhk.stability(model, sites, n_resamples=4)
    assert found.verdicts == ["stable"] * 2
    masked = fedhk.stability(model, sites, n_resamples=4, secure=True, leave_sites_out=False)
    assert_allclose(masked.mean_halves, found.mean_halves, atol=0.05)


def test_wide_views_are_projected_and_sites_may_lack_views_and_cells_where_rows_are_embedded():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=360)
    wide, narrow = 3 * np.eye(3, 90)[group] + 0.5 * rng.normal(size=(360, 90)), 5 * np.eye(3)[group]
    narrow = narrow + rng.normal(size=narrow.shape)
    narrow[rng.random(narrow.shape) < 0.1] = np.nan
    sites = {site: [wide[i::3], narrow[i::3]] for i, site in enumerate("abc")}
    sites["b"][1] = None
    model = fedhk.FedHKDiffusion(3, scaling="none", random_state=0).fit(sites)
    assert fedhk.stability(model, sites, n_resamples=4).verdicts == ["stable"] * 3


def test_a_cluster_with_all_rows_is_not_called_stable():
    rng = np.random.default_rng(0)
    sites = {site: [rng.normal(size=(60, 3))] for site in ("oslo", "rome")}
    model = fedhk.EFKMVC(1, random_state=0).fit(sites)
    found = fedhk.stability(model, sites, n_resamples=4)
    assert found.verdicts == ["only"]
    section = describe_answers([found])[0]
    assert "Cluster 0 has all rows: nothing can contradict it" in section.content
    assert section.verdict == ""
    assert "the rows" not in str(fedhk.plot.stability(model, found=found).svg)
    page = fedhk.plot.report(model, sites, found=[found, fedhk.profile(model, sites)])
    assert "Cluster 0: all rows." in page.page


def test_the_reference_keeps_blas_to_one_thread(monkeypatch):
    measure = sys.modules["fedhk.after.stability"]
    threads, halve = set(), measure._halve_clouds

    def watch(*given):
        threads.update(info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas")
        return halve(*given)

    monkeypatch.setattr(measure, "_halve_clouds", watch)
    sites = fedhk.datasets.make_sites(2, 30, n_clusters=2, random_state=0).sites
    model = fedhk.EFKMVC(2, random_state=0).fit(sites)
    with threadpool_limits(2, "blas"):
        fedhk.stability(model, sites, n_resamples=2)
    assert threads == {1}
