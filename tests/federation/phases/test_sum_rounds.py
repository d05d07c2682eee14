"""Noisy rounds: what noise explains of moves."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.federation.phases.sum_rounds import damp_moves, noisy_request
from fedhk.federation.sealed.units import UNITS
from sealed_runs import make_parameters


def test_moves_that_noise_explains_are_halved_and_those_far_above_noise_are_left():
    rng, noise = np.random.default_rng(0), np.full((4, 2), 0.1)
    moves = 0.1 * rng.normal(size=(4, 500))
    assert np.linalg.norm(damp_moves(moves, noise, (200, 300), 0.5)) == pytest.approx(
        0.5 * np.linalg.norm(moves), rel=0.1
    )
    np.testing.assert_allclose(damp_moves(1e4 * moves, noise, (200, 300), 0.5), 1e4 * moves, rtol=1e-6)
    np.testing.assert_array_equal(damp_moves(moves, noise, (200, 300), 0.0), moves)
    assert not damp_moves(np.zeros((4, 500)), noise, (200, 300), 0.5).any()


def test_centres_that_have_arrived_end_nearer_if_their_moves_are_damped():
    """Rounds that begin where the clusters are: all moves are noise, and the later half is averaged."""
    rng, width = np.random.default_rng(0), 400
    noise, ends = np.ones((3, 1)), {}
    for damping in (UNITS["row"].damping, UNITS["site"].damping):
        center, trail = np.zeros((3, width)), []
        for _ in range(4):
            moves = rng.normal(size=(3, width)) - center
            center = center + damp_moves(moves, noise, (width,), damping)
            trail.append(center)
        ends[damping] = np.square(np.mean(trail[-2:], axis=0)).mean()
    assert ends[0.5] < 0.8 * ends[0.0]


def test_a_round_that_protects_rows_is_the_same_however_many_a_site_has():
    parameters = make_parameters([np.zeros((3, 5))])
    few, many = (noisy_request(parameters, "replace", UNITS["row"], rows) for rows in (1.0, 50.0))
    assert (few.count_scale, few.cost_scale) == (many.count_scale, many.cost_scale)
    assert few.cost_scale == min(few.count_scale, 1.0)


def test_a_round_that_protects_sites_spends_less_of_their_length_on_costs():
    parameters = make_parameters([np.zeros((3, 5))])
    for_rows, for_sites = (noisy_request(parameters, "replace", UNITS[unit], 50.0) for unit in ("row", "site"))
    assert for_sites.count_scale < for_rows.count_scale
    assert for_sites.cost_scale < 0.5 * for_rows.cost_scale
