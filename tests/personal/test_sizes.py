"""How frequent clusters are at a site."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose

from fedhk.personal.sizes import LEAST_SIZE, Sizes
from fedhk.testing.components import ComponentChecks
from personal_sites import assign, own_model, site_rows


class TestSizes(ComponentChecks):
    def component(self, _common, summary):
        return Sizes(summary=summary)


class TestOwnSizes:
    def personal(self, pool, rows, **given):
        return own_model(rows, pool[1].parameters, pool[3], **given)

    def test_are_those_of_the_site(self, pool):
        data, _, labels, summary = pool
        own = self.personal(pool, site_rows(pool, 1, clusters=[0, 1]))
        assert own.shares["sizes"] > 0.5
        there = np.bincount(labels[np.isin(data.labels, [0, 1])], minlength=4) > 100
        assert there.sum() == 2
        counts = np.bincount(assign(own.rows, own.parameters)[1], minlength=4) / own.rows.n_rows
        asked = 1 + (own.parameters.sizes - 1) / own.shares["sizes"]
        assert_allclose(asked * summary.shares, counts, atol=0.03)
        assert np.all(own.parameters.sizes[there] > 1.3)
        assert np.all(own.parameters.sizes[~there] < 0.6)

    def test_of_a_fuzzy_model_are_the_shares_of_its_memberships(self, pool):
        common = replace(pool[1].parameters, fuzzifier=1.6)
        rows, nothing = site_rows(pool, 1, clusters=[0, 1]), {"shift": 0.0, "spread": 0.0, "centers": 0.0}
        own = own_model(rows, common, pool[3], sizes=1.0, passes=60, **nothing)
        held = np.sum(assign(rows, own.parameters)[0] ** 1.6, axis=0)
        assert_allclose(own.parameters.sizes * pool[3].shares, held / held.sum(), atol=LEAST_SIZE)

    def test_no_cluster_is_ruled_out(self, pool):
        own = self.personal(pool, site_rows(pool, 2, clusters=[3]), sizes=1.0)
        assert own.shares["sizes"] == 1.0
        assert own.parameters.sizes.min() == LEAST_SIZE

    def test_are_the_common_ones_where_sites_are_alike_or_nothing_is_wanted(self, pool):
        assert np.mean([self.personal(pool, site_rows(pool, seed)).shares["sizes"] for seed in range(8)]) <= 0.1
        own = self.personal(pool, site_rows(pool, 1, clusters=[0, 1]), sizes=0.0)
        assert own.shares["sizes"] == 0.0
        assert own.parameters.sizes is None

    def test_a_site_with_one_cluster_keeps_the_others_possible(self, pool):
        own = self.personal(pool, site_rows(pool, 2, clusters=[3]))
        memberships, labels, _ = assign(own.rows, own.parameters)
        assert np.isfinite(memberships).all()
        assert np.mean(labels == np.bincount(labels).argmax()) > 0.95
        # a row of another cluster that comes later still goes there
        others = site_rows(pool, 3, clusters=[0])
        there = assign(replace(others, references=own.rows.references), own.parameters)[1]
        assert np.mean(there != np.bincount(labels).argmax()) > 0.7
