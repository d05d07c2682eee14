"""Starts from sums: under masks as good as the plain one; with noise sized by the rows, and honest if it hides all."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from fedhk import EFKMVC, FedHKPerson
from fedhk.data.views import check_views
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import Population, References
from fedhk.federation.phases import sum_start
from fedhk.federation.phases.scales import BINS, FARTHEST, LENGTHS, Bounds, Lengths, Means, RowSquares, hold_in_bounds
from fedhk.federation.phases.sum_start import (
    ONE_CLUSTER,
    Cells,
    CellsRequest,
    Directions,
    Leading,
    OwnCells,
    OwnGrouping,
)
from fedhk.federation.site import Site
from fedhk.model.rows import Rows
from fedhk.privacy import DifferentialPrivacy
from fedhk.starts.cells import Landmarks, draw_in_ball, read_groups
from sealed_runs import plain_reference, seeded_noise, spied_fit

K, WIDTH = 5, 20


def make_mixture(n_rows=6000, n_sites=4, seed=0):
    """Rows of five Gaussians in 20 dimensions, and the cost of their true means."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(size=(K, WIDTH))
    rows = means[rng.integers(K, size=n_rows)] + rng.normal(size=(n_rows, WIDTH)) * 0.35
    return {f"s{site}": [rows[site::n_sites]] for site in range(n_sites)}, rows, cost(rows, means)


def cost(rows, centers):
    return float(np.square(rows[:, None] - centers[None]).sum(axis=2).min(axis=1).sum())


def budget(epsilon=2.0, bounds=(-2, 3), **changes):
    return DifferentialPrivacy(epsilon, 1e-6, bounds, **changes)


def test_masks_without_noise_cost_nothing():
    sites, rows, best = make_mixture()
    models = [EFKMVC(K, secure=secure, random_state=0).fit(sites) for secure in (False, True)]
    for model in models:
        assert cost(rows, model.cluster_centers_[0]) < 1.005 * best
    assert models[1].fuzzifier_ == pytest.approx(models[0].fuzzifier_, rel=0.02)
    assert models[1].objective_ == pytest.approx(models[0].objective_, rel=0.01)


@pytest.mark.parametrize("kind", [EFKMVC, FedHKPerson])
def test_masked_sums_choose_view_weights_and_fuzzifier_as_the_plain_run_does(kind):
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=600)
    clear = rng.normal(size=(3, 4))[labels] * 3 + rng.normal(size=(600, 4))
    noise = rng.normal(size=(600, 6))
    sites = {f"s{site}": [clear[site::3], noise[site::3]] for site in range(3)}
    plain, masked = (kind(3, secure=secure, random_state=0).fit(sites) for secure in (False, True))
    assert_allclose(masked.view_weights_, plain.view_weights_, atol=0.05)
    assert masked.fuzzifier_ == pytest.approx(plain.fuzzifier_, rel=0.02)


def test_no_sum_under_masks_is_that_of_fewer_than_two_rows(monkeypatch):
    """Points with one row are left out before means of groups are asked for."""
    seen = []

    def watched(*arguments):
        seen.append(read_groups(*arguments))
        return seen[-1]

    monkeypatch.setattr(sum_start, "read_groups", watched)
    sites, _, _ = make_mixture(n_rows=60)
    EFKMVC(2, secure=True, random_state=0).fit(sites)
    assert len(seen) == 3
    assert all(groups.sizes.min() >= 2 for groups in seen)


def test_with_noise_rows_are_counted_one_by_one_whatever_a_server_publishes():
    """What one row changes is then 1; it would have no bound if the site grouped its rows first."""
    joint = np.array([[0.0], [0.1], [0.2], [5.0]])
    rows = Rows(check_views([joint]), (plain_reference(1),))
    landmarks = Landmarks(np.eye(1), np.array([[0.0], [0.15], [0.3]]))
    counts = []
    for count in (1, 2):
        site = Site("rome", rows.views, Board().put(References(rows.references), OwnGrouping(count, 0)))
        site.rows = lambda: rows
        counts.append(Cells.vector(site, CellsRequest(landmarks)))
        assert OwnCells.vector(site, CellsRequest(landmarks)).max() >= 3
    assert_allclose(counts, [landmarks.counts(rows)] * 2)
    with pytest.raises(MessageError, match="no stated sensitivity"):
        OwnCells.sensitivity(CellsRequest(landmarks), 3, "replace")


@pytest.mark.filterwarnings("ignore:With epsilon")
@pytest.mark.parametrize("bounds", [(-2, 3), (-20, 30)])
def test_noise_is_sized_by_the_rows_and_not_by_the_bounds(bounds):
    sites, rows, best = make_mixture()
    model = EFKMVC(K, secure=True, privacy=budget(4.0, bounds), random_state=0).fit(sites)
    one = cost(rows, rows.mean(axis=0)[None])
    assert cost(rows, model.cluster_centers_[0]) - best < 0.15 * (one - best)


@pytest.mark.filterwarnings("ignore:With epsilon")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_centres_never_leave_the_bounds():
    sites, _, _ = make_mixture(n_rows=400)
    model = EFKMVC(K, secure=True, privacy=budget(1.0, (-0.5, 1.5)), random_state=0).fit(sites)
    assert np.all((model.cluster_centers_[0] >= -0.5 - 1e-9) & (model.cluster_centers_[0] <= 1.5 + 1e-9))


@pytest.mark.filterwarnings("ignore:With epsilon")
def test_where_noise_hides_all_one_cluster_is_returned_and_said_and_rounds_are_not_paid_for(monkeypatch):
    seeded_noise(monkeypatch)  # one noise in twenty looks like rows: a test at 5 %
    sites, _, _ = make_mixture(n_rows=200)
    with pytest.warns(ConvergenceWarning, match="one cluster is all that this budget shows"):
        model, spy = spied_fit(monkeypatch, EFKMVC(K, privacy=budget(0.05), random_state=0), sites)
    assert model.stop_reason_ == ONE_CLUSTER
    assert {label for labels in model.labels_.values() for label in labels} == {0}
    assert np.ptp(model.cluster_centers_[0], axis=0).max() == 0
    assert not any(message.kind == "sealed.noisy round" for _, message in spy.requests)
    assert model.privacy_spent_[0] < 0.05


@pytest.mark.filterwarnings("ignore:With epsilon")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("secure", [False, True], ids=["noise at each site", "one noise"])
def test_where_noise_would_hide_a_start_none_is_paid_for_and_the_rounds_have_all_of_the_budget(monkeypatch, secure):
    seeded_noise(monkeypatch)
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [0.0, 3.0], [4.0, 3.0]])
    rows = means[rng.integers(3, size=900)] + 0.4 * rng.normal(size=(900, 2))
    sites = {f"s{site}": [rows[site::3]] for site in range(3)}
    privacy = DifferentialPrivacy(0.06 if secure else 0.1, 1e-4, (-2, 6), "add-remove")
    model = EFKMVC(3, privacy=privacy, secure=secure, random_state=0).fit(sites)
    released = [release["phase"] for release in model.releases_["s0"]]
    assert released == ["means", "lengths", "spreads"] + ["noisy round"] * 6
    assert 0.999 * privacy.epsilon < model.privacy_spent_[0] <= privacy.epsilon
    assert cost(rows, model.cluster_centers_[0]) < 0.7 * cost(rows, rows.mean(axis=0)[None])


def test_starts_from_nowhere_are_all_over_the_unit_and_inside_the_bounds():
    points = draw_in_ball(np.random.default_rng(0), 4000, 3)
    lengths = np.linalg.norm(points, axis=1)
    assert lengths.max() <= 1
    assert np.mean(lengths**3 < 0.5) == pytest.approx(0.5, abs=0.03)  # half of the volume has half of the points
    assert_allclose(points.mean(axis=0), 0.0, atol=0.03)


# ---------------------------------------------------------------------------------------------------------------- units


def make_board(rows=0.0):
    references = (plain_reference(2), plain_reference(3))
    bounds = Bounds(np.full(5, -1.0), np.full(5, 1.0))
    return Board().put(References(references), Population(3, (), (), rows), bounds)


def test_the_middle_is_the_mean_as_far_as_noise_does_not_explain_it():
    board, phase = make_board(), Means()
    radius = phase.request(board).radius
    total = np.concatenate([[radius * 100, 0.0], 100 * np.array([0.3, 0.0, 0.0, 0.0, 0.4])])
    moved = phase.take(board, total, 0.0)
    assert moved.get(Population).rows == pytest.approx(100)
    assert_allclose(np.hstack([r.shift for r in moved.get(References).references]), [0.3, 0, 0, 0, 0.4])
    hidden = phase.take(board, total, 100.0)
    assert_allclose(np.hstack([r.shift for r in hidden.get(References).references]), 0.0)


def test_where_rows_are_longer_than_what_they_are_cut_to_their_mean_is_so_too():
    """As counts, prices and pixels are, most of them near one end of their range."""
    rows = np.tile([1.6, 1.6], (50, 1)) + 0.1 * np.random.default_rng(0).normal(size=(50, 2))
    board = Board().put(References((plain_reference(2),)), Population(3, (), (), 0.0))
    site = Site("rome", check_views([rows]), Board())
    site.rows = lambda: Rows(site.views, (plain_reference(2),))
    phase = Means()
    request = phase.request(board)
    assert request.radius == 1.0
    moved = phase.take(board, Means.vector(site, request), 0.0).get(References).references[0].shift
    assert_allclose(moved, np.minimum(1.0, FARTHEST / 2.26) * rows.mean(axis=0), rtol=0.02)


def test_the_middle_moves_to_the_mean_of_the_rows_and_is_no_direction_of_theirs():
    """The rows differ along the second feature alone, and are all beside the middle along the first."""
    rows = np.column_stack([np.full(200, 0.6), np.tile([-0.3, 0.3], 100)])
    references = (plain_reference(2),)
    site = Site("rome", check_views([rows]), Board())
    site.rows = lambda: Rows(site.views, references)
    board = Board().put(References(references), Population(3, (), (), 200.0), RowSquares((0.45,)))
    phase = Directions(SimpleNamespace(n_clusters=2), 0)
    board = phase.take(board, Directions.vector(site, phase.request(board)), 1e-9)
    assert_allclose(board.get(References).references[0].shift, [0.6, 0.0], atol=1e-6)
    landmarks = board.get(Leading).landmarks
    assert_allclose(np.abs(landmarks.axes.ravel()), [0.0, 1.0], atol=1e-6)
    assert np.abs(landmarks.places).max() > 0.5  # drawn from a Gaussian with the spread of the rows, .3
    # rows that lengths say are longer than what was found were cut: points are further out by as much
    longer = phase.take(board.put(RowSquares((0.9,))), Directions.vector(site, phase.request(board)), 1e-9)
    assert_allclose(longer.get(Leading).landmarks.places, np.sqrt(2) * landmarks.places, rtol=1e-6)


def test_rows_of_length_one_are_cut_to_their_length_and_not_to_that_of_the_range():
    reference = plain_reference(2, unit_rows=True, scale=np.full(2, 4.0))
    assert Means().request(Board().put(References((reference,)))).radius == pytest.approx(0.25)


def test_the_unit_of_a_view_is_what_nine_rows_of_ten_are_no_longer_than():
    board, phase = make_board(100.0), Lengths()
    counts = np.zeros((2, BINS))
    half, eighth = np.searchsorted(LENGTHS, [0.5, 0.125])
    counts[0, half], counts[0, half + 4], counts[1, eighth] = 95, 5, 100
    moved = phase.take(board, counts.ravel(), 0.01)
    units = [
        0.5 * 2 ** (-0.5 * 5 / 95),
        0.125 * 2 ** (-0.5 * 0.1),
    ]  # 90 of 95 rows, and 9 of 10, of a half power of two
    assert [float(r.scale[0]) for r in moved.get(References).references] == pytest.approx(units)
    hidden = phase.take(board, counts.ravel(), 100.0)
    assert [float(r.scale[0]) for r in hidden.get(References).references] == [1.0, 1.0]
    assert_allclose(hold_in_bounds(moved, np.full((1, 5), 9.0)), [1 / np.repeat(units, [2, 3])])
