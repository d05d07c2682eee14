"""What tells sites that measure differently from sites that have other clusters."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fedhk import datasets
from fedhk.data.views import check_views
from fedhk.model.cluster_summary import ClusterSummary, summarise_clusters
from fedhk.model.descent import improve
from fedhk.model.fitted import FittedModel
from fedhk.model.preparation import references_from_moments, site_moments
from fedhk.model.rows import Rows
from fedhk.personal.calibration import measure_frame
from fedhk.personal.frame import (
    EMBEDDING_SHARES,
    MOST_SITE_INFORMATION,
    Search,
    choose_calibration,
    choose_embedding_calibration,
    hold_much,
    measure_information,
)
from fedhk.personal.offset import collect_statistics, follow_centers, shift_centers
from fedhk.personal.options import Personalization
from fedhk.starts.candidates import candidates_per_site, site_candidates
from fedhk.tensors.low_rank import LowRankForm, LowRankParameters
from personal_sites import assign, settings


class Federation:
    """Sites and a server in one process: what a federated run does with the functions of `fedhk.personal`."""

    def __init__(self, data, n_clusters, seed=0, **changes):
        self.data = data
        self.settings = settings(n_clusters, n_init=5, **changes)
        self.views = {site: check_views(list(views)) for site, views in data.sites.items()}
        first = next(iter(self.views.values()))
        widths, self.names = list(first.widths), first.names
        unit_rows = self.settings.scaling.unit_rows
        parts = [site_moments(views, widths, unit_rows=unit_rows) for views in self.views.values()]
        moments = [reduce(lambda a, b: a.merge(b), view) for view in zip(*parts, strict=True)]
        self.references = references_from_moments(moments, self.names, self.settings.scaling, "uniform")
        rows = [Rows(views, self.references) for views in self.views.values()]
        count = candidates_per_site(n_clusters, len(rows))
        found = [site_candidates(r, count, np.random.RandomState(seed + i)) for i, r in enumerate(rows)]
        frames = [measure_frame(views, self.references) for views in self.views.values()]
        self.search = Search(found, frames, self.references, self.names, self.settings, seed)

    def choose(self, shares=None):
        return choose_calibration(self.search, shares)

    def fit(self, rounds=20):
        """The calibration, and the labels of each site's own model."""
        calibration, parameters, _ = self.choose()
        rows = [calibration.apply(Rows(views, self.references)) for views in self.views.values()]
        offsets = [()] * len(rows)
        for _ in range(rounds):
            if calibration.offsets:
                offsets = [follow_centers(r, parameters, o) for r, o in zip(rows, offsets, strict=True)]
            sums = [collect_statistics(r, parameters, o) for r, o in zip(rows, offsets, strict=True)]
            parameters = improve(parameters, reduce(add, sums), learn_weights=False)
        seen = [shift_centers(parameters, offset) for offset in offsets]
        summaries = [summarise_clusters(r, p, assign(r, p)[1]) for r, p in zip(rows, seen, strict=True)]
        total = ClusterSummary.from_array(sum(s.to_array() for s in summaries), parameters.n_clusters)
        model = FittedModel(parameters, calibration.in_units(self.references), self.names, (None,) * len(self.names))
        outcomes = [
            Personalization().fit(model, (calibration,), (total,), views, site=site, learn_weights=False)
            for site, views in self.views.items()
        ]
        return calibration, np.concatenate([outcome.labels for outcome in outcomes])

    @property
    def truth(self):
        return np.concatenate([self.data.site_labels[site] for site in self.views])


@pytest.mark.parametrize("seed", [5, 7])
def test_sites_that_differ_by_offset_scale_and_clusters_are_understood(seed):
    """Their clusters would be sites, and their means say as much about their clusters as about their offset."""
    data = datasets.make_sites(5, 600, n_clusters=4, shift=1.0, scale=0.3, class_mix=1.0, random_state=seed)
    federation = Federation(data, 4, seed)
    calibration, labels = federation.fit()
    assert adjusted_rand_score(federation.truth, labels) > 0.95
    assert calibration.shift == 0  # a site's own mean is not its offset here


def test_sites_that_differ_by_their_clusters_alone_keep_their_means():
    federation = Federation(datasets.make_sites(5, 400, n_clusters=4, class_mix=0.5, random_state=0), 4)
    calibration, labels = federation.fit()
    assert (calibration.shift, calibration.spread) == (0.0, 0.0)
    assert adjusted_rand_score(federation.truth, labels) > 0.95


@pytest.fixture(scope="module")
def shifted():
    return Federation(datasets.make_sites(5, 400, n_clusters=4, shift=1.5, random_state=0), 4)


def test_sites_that_differ_by_offset_alone_lose_it(shifted):
    assert adjusted_rand_score(shifted.truth, shifted.fit()[1]) > 0.95


def test_given_shares_are_kept(shifted):
    assert (shifted.choose((0.4, 0.2))[0].shift, shifted.choose((0.4, 0.2))[0].spread) == (0.4, 0.2)
    unscaled = Federation(shifted.data, 4, scaling="l2")
    assert unscaled.choose((0.4, 0.2))[0].spread == 0.0  # rows of length 1 have no spread to take out


def test_the_start_is_free_and_candidates_have_spread_1(shifted):
    formed = replace(shifted.settings, form=LowRankForm("tucker", "auto"))
    calibration, start, rows = choose_calibration(replace(shifted.search, settings=formed), None)
    assert not isinstance(start, LowRankParameters)
    for view, table in enumerate(rows.views.tables):
        square = np.square(table).sum(axis=1) + rows.spread[:, view]
        assert np.average(square, weights=rows.sample_weight) == pytest.approx(1.0)
    assert len(calibration.factors) == len(shifted.names)


def test_a_site_without_candidates_changes_nothing(shifted):
    found, frames = shifted.search.candidates, shifted.search.frames
    nothing = replace(found[0], points=found[0].points[:0], sizes=np.zeros(0), spreads=found[0].spreads[:0])
    search = replace(shifted.search, candidates=[nothing, *found], frames=[frames[0], *frames])
    calibration, start, _ = choose_calibration(search, None)
    expected, plain, _ = shifted.choose()
    assert calibration == expected
    assert_array_equal(start.centers[0], plain.centers[0])


class TestEmbedding:
    def choose(self, federation, shares=None):
        return choose_embedding_calibration(federation.search, shares)

    def test_sites_that_measure_differently_lose_a_part_of_their_means(self, shifted):
        (calibration,), rows = self.choose(shifted)
        assert (calibration.shift, calibration.spread) == EMBEDDING_SHARES
        assert not calibration.offsets  # they follow round clusters
        assert rows.n_rows == sum(len(found.sizes) for found in shifted.search.candidates)

    def test_sites_that_measure_alike_keep_them(self):
        data = datasets.make_sites(5, 400, n_clusters=4, shift=0, scale=0, class_mix=0.5, random_state=0)
        federation = Federation(data, 4)
        calibrations, rows = self.choose(federation)
        assert calibrations == ()
        assert_allclose(
            np.hstack(rows.views.tables), np.vstack([found.points for found in federation.search.candidates])
        )

    def test_given_shares_are_kept(self, shifted):
        assert self.choose(shifted, (0.3, 0.1))[0][0].shift == 0.3
        assert self.choose(shifted, (0.0, 0.0))[0] == ()


def test_clusters_that_are_sites_tell_all_that_clusters_can_tell_whatever_their_sizes():
    site = np.repeat([0, 1, 2], [90, 5, 5])

    def told(labels, n_clusters):
        table = np.zeros((3, n_clusters))
        np.add.at(table, (site, labels), 1.0)
        return measure_information(table)

    assert told(site, 4) == pytest.approx(1.0)
    assert told(np.zeros_like(site), 4) == 0.0
    assert told((np.arange(len(site)) % 5 == 0).astype(int), 2) < MOST_SITE_INFORMATION


def test_offsets_hold_much_if_they_take_a_tenth_of_the_variance():
    assert hold_much([np.sqrt(0.89)] * 2)
    assert not hold_much([np.sqrt(0.91)] * 2)
