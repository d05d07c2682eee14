"""Robust means robust: few sites that lie in every exchange do not decide what the others find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC, FedHKPerson, Participation
from fedhk.data.views import check_views
from fedhk.datasets import make_sites, split_dirichlet, split_even, split_views
from fedhk.federation.aggregators import RobustAggregator
from fedhk.model.preparation import site_moments
from fedhk.testing.hostile import LIES, Lies, lying_sites

N_SITES, N_HOSTILE = 20, 4

# lies may keep the objective from settling, and hostile sites may end with clusters that have no rows
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:Site.*:UserWarning"),
]

# all sites stay, also those that are off by so much that they would be left out as mistaken
ALL_STAY = Participation(deviating="warn")

ROBUST = RobustAggregator()


@pytest.fixture(scope="module")
def data():
    return make_sites(
        1, 1200, 4, (6, 5), class_mix=None, shift=0.0, scale=0.0, size_spread=0.0, separation=4.0, random_state=0
    )


def split(data, mix):
    """Rows of each of 20 sites: even, or with other shares of the clusters at every site."""
    if mix is None:
        return split_even(data.labels, N_SITES, 0)
    return split_dirichlet(data.labels, N_SITES, mix, min_rows=5, random_state=0)


def honest_agreement(data, rows, lies, hostile, **options):
    """ARI of the rows of the honest sites, in units that do not depend on who is there."""
    given = {"scaling": "standard", "random_state": 0, "n_init": 3, "participation": ALL_STAY}
    with lying_sites(hostile, lies):
        model = EFKMVC(4, **given | options).fit(split_views(list(data.views), rows))
    honest = [site for site in rows if site not in hostile]
    return adjusted_rand_score(
        np.concatenate([data.labels[rows[site]] for site in honest]),
        np.concatenate([model.global_labels_[site] for site in honest]),
    )


@pytest.mark.parametrize(("mix", "most"), [(None, 0.02), (1.0, 0.10)])
@pytest.mark.parametrize("lie", LIES)
def test_four_of_twenty_sites_that_lie_in_every_exchange_cost_the_others_little(data, lie, mix, most):
    """Attack 5, and all other exchanges."""
    rows = split(data, mix)
    hostile = sorted(rows)[:: N_SITES // N_HOSTILE]
    alone = honest_agreement(data, {s: r for s, r in rows.items() if s not in hostile}, Lies(), ())
    assert alone - honest_agreement(data, rows, LIES[lie], hostile, aggregator="robust") < most


def test_the_attack_is_one(data):
    """Attack 5: plain sums take spreads of one site for those of all."""
    rows = split(data, None)
    hostile = sorted(rows)[:1]
    alone = honest_agreement(data, rows, Lies(), hostile, scaling="standard")
    assert alone - honest_agreement(data, rows, LIES["spreads x 1e30"], hostile, scaling="standard") > 0.2


@pytest.mark.parametrize("aggregator", ["median", "trimmed"])
def test_all_robust_aggregators_cover_the_moments(data, aggregator):
    """Attack 5."""
    rows = split(data, None)
    hostile = sorted(rows)[:N_HOSTILE]
    alone = honest_agreement(data, rows, Lies(), hostile)
    assert alone - honest_agreement(data, rows, LIES["spreads x 1e30"], hostile, aggregator=aggregator) < 0.02


@pytest.mark.parametrize("heat_coef", ["minmax", "absdev"])
def test_energies_and_ranges_are_covered(data, heat_coef):
    """Attack 5: coefficients that need the range of features, and one more sum."""
    rows = split(data, None)
    hostile = sorted(rows)[:N_HOSTILE]
    lies = replace(LIES["spreads x 1e30"], sums=LIES["far away, in every exchange"].sums)
    alone = honest_agreement(data, rows, Lies(), hostile, heat_coef=heat_coef)
    assert alone - honest_agreement(data, rows, lies, hostile, heat_coef=heat_coef, aggregator="robust") < 0.05


def test_the_choice_of_a_calibration_is_covered():
    """Sites that lie about their own mean move their candidates after these were compared."""
    data = make_sites(12, 60, 3, (4, 3), class_mix=None, shift=1.0, size_spread=0.0, separation=5.0, random_state=1)
    hostile = sorted(data.sites)[:2]
    honest = [site for site in sorted(data.sites) if site not in hostile]
    truth = np.concatenate([data.site_labels[site] for site in honest])

    def agreement(lies, aggregator):
        model = FedHKPerson(
            3, random_state=0, n_init=2, aggregator=aggregator, protocol="statistics", participation=ALL_STAY
        )
        with lying_sites(hostile, lies):
            model.fit(data.sites)
        return adjusted_rand_score(truth, np.concatenate([model.labels_[site] for site in honest]))

    lies = LIES["far away, in every exchange"]
    assert agreement(Lies(), "sum") - agreement(lies, "robust") < 0.05


# ------------------------------------------------------------------------------------------------- part by part


def moments_of(views, n_sites=20):
    parts = np.array_split(views[0], n_sites)
    return [site_moments(check_views([part]), [part.shape[1]], unit_rows=False)[0] for part in parts]


def test_moments_of_honest_sites_are_nearly_those_of_all_rows(data):
    found = ROBUST.moments(moments_of(data.views))
    assert_allclose(found.mean, data.views[0].mean(axis=0), atol=0.15)
    assert_allclose(found.variance, data.views[0].var(axis=0), rtol=0.15)


@pytest.mark.parametrize("lie", ["mean", "squares", "weight", "total"])
@pytest.mark.parametrize("factor", [0.0, 1e30])
def test_no_quarter_of_the_sites_moves_moments_far(data, lie, factor):
    """Attack 5: any of the numbers, up or down."""
    sites = moments_of(data.views)
    lies = [replace(site, **{lie: getattr(site, lie) * factor}) for site in sites[:4]]
    told, honest = ROBUST.moments([*lies, *sites[4:]]), ROBUST.moments(sites)
    spread = np.sqrt(honest.variance)
    assert np.all(np.abs(told.mean - honest.mean) < 0.3 * spread)
    assert_allclose(told.variance, honest.variance, rtol=0.5)


def test_a_feature_that_few_sites_see_vary_is_kept_and_counts_little():
    rows = np.random.default_rng(0).normal(size=(400, 3))
    rows[:, 2] = 0.0
    rows[:40, 2] = np.tile([0.0, 1.0], 20)  # at one of ten sites
    unknown = np.full(3, np.nan)  # sites tell no ranges where these are not needed
    found = ROBUST.moments([replace(site, low=unknown, high=unknown) for site in moments_of([rows], 10)])
    assert rows[:, 2].var() < found.variance[2] < 1.0


@pytest.mark.parametrize("factor", [0.0, 1e3, 1e30])
def test_no_quarter_of_the_sites_moves_sums_per_row_far(factor):
    generator = np.random.default_rng(0)
    sums = [np.array([100.0, 40.0, 250.0]) * generator.uniform(0.9, 1.1, 3) for _ in range(20)]
    rows = [np.full(3, 100.0)] * 20
    honest = ROBUST.sums(sums, rows)
    lies = [values * factor for values in sums[:4]]
    assert_allclose(ROBUST.sums([*lies, *sums[4:]], rows), honest, rtol=0.05)
    many = [np.full(3, 1e12)] * 4
    assert_allclose(ROBUST.sums([*lies, *sums[4:]], [*many, *rows[4:]]), honest, rtol=0.3)


def test_sums_of_two_sites_are_their_sum():
    """With two sites nobody can tell which one lies."""
    one, other = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    assert_allclose(ROBUST.sums([one, other], [one, other]), [4.0, 7.0])


def test_views_that_a_quarter_of_the_sites_have_made_up_are_left_out(data):
    """Attack 11: hostile sites are each other's second holder."""
    rows = split(data, None)
    sites = {site: dict(zip("ab", views, strict=True)) for site, views in split_views(list(data.views), rows).items()}
    for site in sorted(sites)[:N_HOSTILE]:
        sites[site]["made up"] = np.random.default_rng(0).normal(size=(len(rows[site]), 3)) * 1e9
    with pytest.warns(UserWarning, match="fewer than 6 sites have are left out.*'made up'"):
        model = EFKMVC(4, random_state=0, n_init=2, max_rounds=3, aggregator="robust").fit(sites)
    assert list(model.view_names_) == ["a", "b"]
