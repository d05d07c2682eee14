"""Checks that every aggregator must pass."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.datasets import make_sites
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.federation.aggregators import Aggregator, SumAggregator
from fedhk.federation.participation import Participation
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import site_moments
from fedhk.model.rows import Rows, take
from fedhk.model.statistics import Statistics
from fedhk.starts.candidates import Candidates, site_candidates
from fedhk.testing._values import assert_same, assert_storable, check
from fedhk.testing.components import make_common
from fedhk.testing.hostile import LIES, Lies, lying_sites

N_SITES, SITE_ROWS = 12, 150

# How far a centre may be moved by hostile sites, as a part of the mean distance of a row to the mean of all rows.
MOST_MOVED = 0.5

# What hostile sites may cost the others in a whole fit, in adjusted Rand index. On data like that of the check, four
# seeds, the worst lie cost plain sums 0.8 to 1.0, robust ones without their choice of candidates 0.28 to 0.47, and
# the robust ones of FedHK at most 0.02.
MOST_LOST = 0.1


class AggregatorChecks:
    """Checks of one aggregator.

    Attributes
    ----------
    hostile : int
        How many of 12 sites may lie without bending the result; 0 claims nothing.
    exact_alone : bool
        Whether a site that is alone gives its own statistics.
    """

    hostile: ClassVar[int] = 0
    exact_alone: ClassVar[bool] = True

    @abstractmethod
    def aggregator(self) -> Aggregator:
        """Make the aggregator."""

    def test_the_order_of_sites_changes_nothing_but_rounding(self) -> None:
        sites, parameters = _statistics()
        found, backwards = (self.aggregator().statistics(order, parameters) for order in (sites, sites[::-1]))
        assert_same(backwards, found, rtol=1e-6)
        orders = _candidates(), _candidates()[::-1]
        kept, again = (sum(_mass(part) for part in self.aggregator().candidates(order)) for order in orders)
        assert_allclose(again, kept, rtol=1e-6)

    def test_the_total_has_the_shapes_of_its_parts_and_is_possible(self) -> None:
        one_column, parameters = _statistics()
        for sites in (one_column, [_widen(site) for site in one_column]):
            total = self.aggregator().statistics(sites, parameters)
            for part, expected in zip(total.numerators, sites[0].numerators, strict=True):
                check(part.shape == expected.shape, f"shape {part.shape}, the sites have {expected.shape}")
            for part, expected, full in zip(total.weights, sites[0].weights, sites[0].numerators, strict=True):
                allowed = {expected.shape, full.shape}
                check(part.shape in allowed, f"weights of shape {part.shape}, must be one of {allowed}")
            for part in (*total.numerators, *total.weights):
                check(np.isfinite(part).all(), "numbers that are not finite")
            for name in ("costs", "masses", "objective", "rows"):
                check(np.all(np.asarray(getattr(total, name)) >= 0), f"{name} below 0")
            check(all(np.all(weight >= 0) for weight in total.weights), "weights below 0")

    def test_one_column_of_weights_says_the_same_as_equal_columns(self) -> None:
        sites, parameters = _statistics()
        narrow, wide = (self.aggregator().statistics(s, parameters) for s in (sites, [_widen(site) for site in sites]))
        assert_same(_widen(narrow), _widen(wide), rtol=1e-6)

    def test_a_site_alone_gives_its_own_statistics(self) -> None:
        sites, parameters = _statistics()
        if self.exact_alone:
            alone = self.aggregator().statistics(sites[:1], parameters)
            try:
                assert_same(_widen(alone), _widen(sites[0]), rtol=1e-9)
            except AssertionError as error:
                error.add_note("If it is meant to change the statistics of a single site, say exact_alone = False.")
                raise

    def test_sites_that_are_all_alike_have_the_centres_of_each(self) -> None:
        sites, parameters = _statistics()
        total = self.aggregator().statistics([sites[0]] * N_SITES, parameters)
        for found, expected in zip(_centers(total), _centers(sites[0]), strict=True):
            assert_allclose(found, expected, rtol=1e-6, atol=1e-6)

    def test_few_hostile_sites_move_no_centre_far(self) -> None:
        sites, parameters = _statistics()
        honest = np.hstack(_centers(self.aggregator().statistics(sites, parameters)))
        for factor in (-30.0, 30.0, 1e3):
            lies = list(sites)
            for number, part in enumerate(sites[: self.hostile]):
                moved = tuple(n + factor * w for n, w in zip(part.numerators, part.weights, strict=True))
                lies[number] = replace(part, numerators=moved)
            centers = np.hstack(_centers(self.aggregator().statistics(lies, parameters)))
            furthest = float(np.linalg.norm(centers - honest, axis=1).max())
            check(furthest <= MOST_MOVED, f"{self.hostile} of {N_SITES} sites move a centre by {furthest}")

    def test_few_hostile_sites_move_no_moments_far(self) -> None:
        sites = _moments()
        honest = self.aggregator().moments(sites)
        for factor in (0.0, 1e3, 1e30):
            lies = [replace(m, mean=m.mean + factor, squares=factor * m.squares) for m in sites[: self.hostile]]
            told = self.aggregator().moments([*lies, *sites[self.hostile :]])
            moved = np.abs(told.mean - honest.mean) / np.sqrt(honest.variance)
            wider = np.abs(np.log2(told.variance / honest.variance))
            check(float(moved.max()) <= MOST_MOVED, f"{self.hostile} of {N_SITES} sites move a mean by {moved.max()}")
            check(float(wider.max()) <= 1.0, f"{self.hostile} of {N_SITES} sites double or halve a spread")

    def test_few_hostile_sites_move_no_sum_far(self) -> None:
        rows = [np.array([size, size]) for size in np.linspace(90.0, 110.0, N_SITES)]
        sums = [np.array([0.2, 3.0]) * part for part in rows]
        honest = self.aggregator().sums(sums, rows)
        for factor in (0.0, 1e3, 1e30):
            lies = [factor * part for part in sums[: self.hostile]]
            told = self.aggregator().sums([*lies, *sums[self.hostile :]], rows)
            moved = np.abs(told / honest - 1.0).max()
            check(float(moved) <= MOST_MOVED, f"{self.hostile} of {N_SITES} sites move a sum by {moved} of itself")

    def test_few_hostile_sites_cost_the_others_little_in_a_whole_fit(self) -> None:
        sites, labels = _whole_sites()
        hostile, honest = sorted(sites)[: self.hostile], sorted(sites)[self.hostile :]
        truth = np.concatenate([labels[site] for site in honest])

        def agreement(lies: Lies, names: Collection[str], aggregator: Aggregator) -> float:
            with lying_sites(hostile, lies):
                model = _fit({site: sites[site] for site in names}, aggregator)
            return float(adjusted_rand_score(truth, np.concatenate([model.global_labels_[site] for site in honest])))

        alone = agreement(Lies(), honest, SumAggregator())
        for name, lies in LIES.items() if self.hostile else ():
            lost = alone - agreement(lies, sites, self.aggregator())
            check(lost <= MOST_LOST, f"{self.hostile} of {N_SITES} sites that lie ({name}) cost the others {lost:.2f}")

    def test_a_whole_fit_takes_missing_cells_and_views(self) -> None:
        sites = {name: [np.array(view) for view in views] for name, views in _whole_sites()[0].items()}
        first, second = sorted(sites)[:2]
        sites[first][0][0, 0] = np.nan
        model = _fit({**sites, second: [sites[second][0], None]}, self.aggregator())
        check(all(np.isfinite(view).all() for view in model.cluster_centers_), "centres that are not finite")

    def test_a_whole_fit_takes_a_site_without_rows(self) -> None:
        sites = _whole_sites()[0]
        empty = [np.asarray(view)[:0] for view in next(iter(sites.values()))]
        model = _fit({**sites, "without rows": empty}, self.aggregator())
        check(all(np.isfinite(view).all() for view in model.cluster_centers_), "centres that are not finite")

    def test_candidates_are_those_of_the_sites(self) -> None:
        candidates = _candidates()
        sent = [own for part in candidates for own in part.points]
        for part in self.aggregator().candidates(candidates):
            known = [any(np.array_equal(point, own, equal_nan=True) for own in sent) for point in part.points]
            check(all(known), "a candidate that no site sent")

    def test_what_is_given_is_not_changed(self) -> None:
        (sites, parameters), candidates = _statistics(), _candidates()
        before = copy.deepcopy((sites, candidates))
        self.aggregator().statistics(sites, parameters)
        self.aggregator().candidates(candidates)
        assert_same((sites, candidates), before)

    def test_model_files_and_checkpoints_can_hold_it(self) -> None:
        assert_storable(self.aggregator())


def _whole_sites() -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Draw the rows of twelve sites that are alike, and their clusters."""
    data = make_sites(
        N_SITES, 60, 3, (4, 3), class_mix=None, shift=0.0, scale=0.0, size_spread=0.0, separation=6.0, random_state=0
    )
    return data.sites or {}, data.site_labels or {}


def _fit(sites: Mapping[str, Any], aggregator: Aggregator) -> EFKMVC:
    """Fit with all sites, also those that are off by so much that they would be left out as mistaken."""
    stay = Participation(deviating="warn")
    model = EFKMVC(3, scaling="standard", n_init=2, random_state=0, aggregator=aggregator, participation=stay)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(sites)


def _rows() -> tuple[list[Rows], Parameters]:
    """Draw the rows of twelve sites of the same three clusters, and a model with the centres of these."""
    rows, common, _ = make_common()
    parts = np.random.default_rng(0).permutation(rows.n_rows)[: N_SITES * SITE_ROWS].reshape(N_SITES, -1)
    return [take(rows, np.sort(part)) for part in parts], common


def _moments() -> list[Moments]:
    """Describe one view at each of the twelve sites."""
    views = [rows.views for rows in _rows()[0]]
    return [site_moments(own, [int(width or 0) for width in own.widths], unit_rows=False)[0] for own in views]


def _statistics() -> tuple[list[Statistics], Parameters]:
    sites, common = _rows()
    found = []
    for rows in sites:
        with Passes(rows, common.n_clusters) as scan:
            found.append(scan.statistics(common))
    return found, common


def _widen(statistics: Statistics) -> Statistics:
    """The same with a column of weights for every feature, as where a cell is missing."""
    parts = zip(statistics.weights, statistics.numerators, strict=True)
    return replace(statistics, weights=tuple(np.broadcast_to(w, n.shape).copy() for w, n in parts))


def _candidates() -> list[Candidates]:
    return [site_candidates(rows, 6, np.random.RandomState(seed)) for seed, rows in enumerate(_rows()[0])]


def _centers(statistics: Statistics) -> list[FloatArray]:
    return [n / np.maximum(w, 1e-300) for n, w in zip(statistics.numerators, statistics.weights, strict=True)]


def _mass(candidates: Candidates) -> FloatArray:
    """The summed place and weight of candidates: the same for any order."""
    points = np.nan_to_num(candidates.points)
    return np.append(candidates.sizes @ points, candidates.sizes.sum())
