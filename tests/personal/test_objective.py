"""The objective with own models: of a fit, and of the starts that are compared."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedhk.model.parameters import Parameters
from fedhk.model.rows import take
from fedhk.personal import objective as judges
from fedhk.personal.objective import global_objective, personal_objective
from fedhk.personal.outcome import SiteTerms
from fedhk.starts.candidates import Candidates, candidate_rows
from fedhk.starts.seeding import SEEDERS, best_starts
from personal_sites import plain_rows, scan, two_clusters

# Two sites at y = FAR and y = -FAR, each with rows at x = -1 and x = 1: by y clusters are tighter, by x they mean more.
FAR = 1.05


@pytest.fixture(scope="module")
def crossed():
    rng = np.random.default_rng(0)
    corners = np.array([[-1, FAR], [1, FAR], [-1, -FAR], [1, -FAR]])
    points = np.repeat(corners, 15, axis=0) + rng.normal(scale=0.05, size=(60, 2))
    found = Candidates(points, np.full(60, 2.0), np.zeros((60, 1)))
    rows = candidate_rows([found], plain_rows([points]).references, ("only",))
    return rows, [take(rows, np.arange(0, 30)), take(rows, np.arange(30, 60))]


class TestJudge:
    BY_X = two_clusters([-1.0, 0.0], [1.0, 0.0], 1.0625)
    BY_Y = two_clusters([0.0, -FAR], [0.0, FAR], 1.0625)

    def test_prefers_what_sites_can_make_their_own(self, crossed):
        rows, sites = crossed
        assert scan(rows, self.BY_Y).objective < scan(rows, self.BY_X).objective
        assert personal_objective(sites, self.BY_X) < 0.5 * personal_objective(sites, self.BY_Y)

    def test_decides_between_starts(self, crossed):
        rows, sites = crossed
        template = replace(self.BY_X, centers=(np.zeros((2, 2)),))
        options = {"n_init": 10, "choose_weights": False, "choose_fuzzifier": False, "workers": 1}

        def start(judge):
            random_state = np.random.RandomState(0)
            seeder = SEEDERS["k-means++"]
            found = best_starts(rows, template, seeder, random_state=random_state, judge=judge, **options)
            return found[0].centers[0]

        plain, judged = start(None), start(partial(personal_objective, sites))
        assert np.argmax(np.abs(plain[0] - plain[1])) == 1
        assert np.argmax(np.abs(judged[0] - judged[1])) == 0

    def test_is_the_plain_objective_where_centres_cannot_move(self, crossed, monkeypatch):
        monkeypatch.setattr(judges, "PRIOR_ROWS", 1e12)
        wide = [replace(r, spread=np.full((30, 1), 0.3)) for r in crossed[1]]
        plain = sum(scan(r, self.BY_X).objective for r in wide)
        assert personal_objective(wide, self.BY_X) == pytest.approx(plain, rel=1e-6)

    def test_costs_what_the_move_costs(self, monkeypatch):
        """One row at distance 1 from the only centre, which five rows hold back."""
        monkeypatch.setattr(judges, "OWN_PASSES", 2)
        rows = candidate_rows(
            [Candidates(np.array([[1.0]]), np.ones(1), np.zeros((1, 1)))], plain_rows([[[1.0]]]).references, ("v",)
        )
        one = Parameters((np.zeros((1, 1)),), np.ones(1), 0.3, 1.25, 2.0, np.ones(1))
        kernel = np.exp(-0.3)
        moved = kernel / (kernel + 5)
        expected = 1 - np.exp(-0.3 * (1 - moved) ** 2) + 0.3 * 5 * moved**2
        assert personal_objective([rows], one) == pytest.approx(expected)


class TestGlobalObjective:
    def test_by_hand(self):
        sites = [SiteTerms(2.0, 10, 1.0, 0.0), SiteTerms(9.0, 30, 0.0, 6.0), SiteTerms(0.0, 0, 0.0, 0.0)]
        found = global_objective(sites, temperature=None, center_pull=4.0, view_pull=2.0)
        assert found["objective"] == pytest.approx(11 / 40)
        assert found["center_distance"] == pytest.approx(1 / 40)
        assert found["view_distance"] == pytest.approx(6 / 40)
        assert found["total"] == pytest.approx((11 + 4 * 1 + 2 * 6) / 40)

    def test_quality_weighs_by_the_mean_objective(self):
        sites = [SiteTerms(2.0, 10, 0.0, 0.0), SiteTerms(900.0, 3000, 0.0, 0.0)]
        weight = 1 / (1 + np.exp(-10 * 0.1))
        found = global_objective(sites, temperature=10.0, center_pull=0.0, view_pull=0.0)
        assert found["objective"] == pytest.approx(weight * 0.2 + (1 - weight) * 0.3)
