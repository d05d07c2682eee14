"""The scale on which a site measures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.model.cluster_summary import summarise_clusters
from fedhk.model.rows import Rows, joint_rows
from fedhk.personal.component import OwnModel
from fedhk.personal.spread import (
    LEAST_SEEN,
    MOST_FACTOR,
    LabelledRows,
    Spread,
    compare_distances,
    find_log_scale,
    split_by_clusters,
)
from fedhk.testing.components import ComponentChecks, Evidence
from personal_sites import assign, fit_model, own_model, site_rows


class TestSpread(ComponentChecks):
    def component(self, _common, summary):
        return Spread(summary=summary)

    def collect(self, own):
        labels = assign(own.rows, own.common)[1]
        whole = LabelledRows(joint_rows(own.rows), np.hstack(own.common.centers)[labels])
        halves = [LabelledRows(*(part[half] for part in whole)) for half in split_by_clusters(labels)]
        return Evidence(own, halves, whole)


def found_factors(pool, rows):
    """By how much the site's references are wider than the common ones, and the share."""
    own = Spread(summary=pool[3]).fit_rows(OwnModel.start(rows, pool[1].parameters))
    pairs = zip(own.rows.references, rows.references, strict=True)
    return np.concatenate([a.scale / b.scale for a, b in pairs]), own.shares["spread"]


class TestScales:
    FACTORS = np.exp(np.linspace(-0.6, 0.6, 9))[[3, 7, 0, 5, 1, 8, 2, 6, 4]]

    def test_finds_the_factors(self, pool):
        for seed in range(4):
            found, share = found_factors(pool, site_rows(pool, seed, factors=self.FACTORS))
            assert share > 0.6
            assert_allclose(np.log(found) / share, np.log(self.FACTORS), atol=0.12)

    def test_levels_of_a_category_have_none(self, pool):
        rows = site_rows(pool, 0, factors=self.FACTORS)
        named = tuple(f"kind = {i}" for i in range(5))
        found, share = found_factors(pool, replace(rows, views=replace(rows.views, columns=(named, None))))
        assert share > 0.6
        assert np.all(found[:5] == 1.0)
        assert np.all(found[5:] != 1.0)

    def test_is_about_nothing_where_sites_are_alike(self, pool):
        assert np.mean([found_factors(pool, site_rows(pool, seed))[1] for seed in range(10)]) <= 0.1

    def test_does_not_take_a_class_mix_for_a_scale(self, pool):
        rows = [site_rows(pool, seed, clusters=[seed % 4, (seed + 1) % 4]) for seed in range(8)]
        plain = [np.nanstd(joint_rows(r), axis=0) / np.std(joint_rows(site_rows(pool, 0, 2000)), axis=0) for r in rows]
        assert np.abs(np.log(plain)).max() > 0.3  # what the site's own spread would say
        for r in rows:
            assert_allclose(np.log(found_factors(pool, r)[0]), 0, atol=0.15)

    def test_finds_them_in_a_class_mix(self, pool):
        found, share = found_factors(pool, site_rows(pool, 1, factors=self.FACTORS, clusters=[0, 2]))
        assert share > 0.6
        assert_allclose(np.log(found) / share, np.log(self.FACTORS), atol=0.15)

    def test_finds_them_where_cells_are_missing(self, pool):
        def with_holes(joint, rng):
            joint[rng.random(joint.shape) < 0.3] = np.nan

        found, share = found_factors(pool, site_rows(pool, 1, factors=self.FACTORS, change=with_holes))
        assert share > 0.6
        assert_allclose(np.log(found) / share, np.log(self.FACTORS), atol=0.2)

    def test_leaves_features_alone_of_which_it_sees_nothing(self, pool):
        def poor(joint, rng):
            joint[:, 0] = 1.5  # constant
            joint[:, 1] = np.nan  # missing
            joint[LEAST_SEEN - 1 :, 2] = np.nan  # nearly so

        found, share = found_factors(pool, site_rows(pool, 1, factors=self.FACTORS, change=poor))
        assert share > 0.3
        assert_array_equal(found[:3], 1.0)
        assert_allclose(np.log(found[3:]) / share, np.log(self.FACTORS[3:]), atol=0.2)

    def test_no_factor_is_believed_beyond_a_limit(self, pool):
        found, _ = found_factors(pool, site_rows(pool, 1, factors=np.where(np.arange(9) % 3, 1.0, 9.0)))
        assert 2 < found.max() <= MOST_FACTOR * (1 + 1e-12)

    def test_centres_that_lie_on_each_other_tell_no_scale(self, pool):
        """Those of a large fuzzifier do: rows given their clusters then spread as all rows of the site do."""
        parameters = pool[1].parameters
        together = tuple(own.mean(axis=0) + 0.05 * (own - own.mean(axis=0)) for own in parameters.centers)
        rows = site_rows(pool, 0, 300, self.FACTORS)
        assert Spread(summary=pool[3]).fit_rows(OwnModel.start(rows, parameters)).shares["spread"] > 0.6
        own = OwnModel.start(rows, replace(parameters, centers=together))
        assert Spread(summary=pool[3]).fit_rows(own) is own

    def test_a_feature_that_is_constant_everywhere_stays_out(self):
        rng = np.random.default_rng(0)
        views = [np.column_stack([rng.normal(size=(60, 3)), np.full(60, 7.0)])]
        model, labels = fit_model(views, 2)
        rows = Rows(check_views(views), model.references)
        summary = summarise_clusters(rows, model.parameters, labels)
        scaled = Spread(summary=summary).fit_rows(OwnModel.start(rows, model.parameters)).rows
        assert np.isinf(scaled.references[0].scale[3])
        assert np.isfinite(joint_rows(scaled)).all()

    def test_small_sites_and_given_shares_have_the_common_scale(self, pool):
        _, model, _, summary = pool
        few = own_model(site_rows(pool, 0, 9, self.FACTORS), model.parameters, summary)
        assert (few.shares["spread"], few.shares["sizes"]) == (0.0, 0.0)
        rows = site_rows(pool, 0, 300, self.FACTORS)
        fixed = own_model(rows, model.parameters, summary, spread=0.0)
        assert fixed.shares["spread"] == 0.0
        assert fixed.rows.references is rows.references
        assert own_model(rows, model.parameters, summary).shares["spread"] > 0.6

    def test_rows_of_length_1_have_no_scale(self, pool):
        rows = site_rows(pool, 0, 300, self.FACTORS)
        rows = replace(rows, references=tuple(replace(r, unit_rows=True) for r in rows.references))
        own = OwnModel.start(rows, pool[1].parameters)
        assert Spread(summary=pool[3]).fit_rows(own) is own


def test_the_most_likely_scale_by_search():
    """The formula against the likelihood itself, on a grid."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(200, 1))
    rows = 0.3 + 1.7 * (centers + 0.5 * rng.normal(size=(200, 1)))
    x, a = rows - rows.mean(), centers - centers.mean()
    grid = np.exp(np.linspace(-1.5, 1.5, 3001))
    likelihood = [-200 * np.log(s) - np.sum((x / s - a) ** 2) / (2 * 0.25) for s in grid]
    found = np.exp(find_log_scale(rows, centers, np.array([0.25])))
    assert found[0] == pytest.approx(grid[int(np.argmax(likelihood))], rel=2e-3)


def test_distances_of_rows_are_compared_with_those_of_their_centres():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(400, 5))
    rows = 3 + 1.7 * (centers + 0.2 * rng.normal(size=(400, 5)))
    rows[rng.random(rows.shape) < 0.2] = np.nan
    assert compare_distances(rows, centers) == pytest.approx(1.7, rel=0.03)
    assert compare_distances(rows, centers / 20) == pytest.approx(34, rel=0.03)
    assert compare_distances(rows, np.zeros((400, 5))) == 0.0


def test_parts_have_no_cluster_in_common_and_are_about_as_large():
    labels = np.repeat([0, 1, 2, 3], [40, 30, 20, 10])
    first, second = split_by_clusters(labels)
    assert not set(labels[first]) & set(labels[second])
    assert len(first) == len(second) == 50
    alone, nothing = split_by_clusters(np.zeros(7, int))
    assert (len(alone), len(nothing)) == (7, 0)
