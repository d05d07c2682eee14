"""The report about drift: quiet where nothing has moved, and right about what has, at which site and how far."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.model.drift import ALL_SITES, COMPARED, SitePast, adjust_holm, report_drift
from fedhk.model.memory import LEAST_ROWS, ClusterSpread, PlacedRows
from sealed_runs import make_parameters

few = settings(max_examples=50, deadline=None)

WIDTH, CLUSTERS = 4, 2
CENTERS = np.array([[0.0, 0, 0, 0], [9.0, 0, 0, 0]])
MODEL = make_parameters([CENTERS])
# unequal, so that there are fewer degrees of freedom than features
SPREADS = np.array([2.0, 1.0, 1.0, 0.5])


def place(away, labels):
    """Rows by where they are from their centres."""
    order = np.argsort(labels, kind="stable")
    return PlacedRows(None, labels[order], away[order], np.ones(WIDTH), CLUSTERS)


def draw(rng, per_cluster=20, move=()):
    """Rows of a site; `move` is added to those of the last cluster."""
    labels = np.repeat(np.arange(CLUSTERS), per_cluster)
    away = rng.normal(size=(len(labels), WIDTH)) * SPREADS
    away[labels == CLUSTERS - 1] += np.array(move) if len(move) else 0.0
    return place(away, labels)


def past_of(placed):
    return SitePast.of(placed, MODEL, MODEL)


def spread_of(parts):
    return ClusterSpread.from_array(sum(part.spread().to_array() for part in parts))


def draw_report(rng, moves, *, per_cluster=20, level=0.05, seen=True):
    """The report of one update at as many sites as there are moves."""
    before = [draw(rng, per_cluster) for _ in moves]
    after = [draw(rng, per_cluster, move) for move in moves]
    pairs = zip(before, after, strict=True)
    compared = {f"s{i}": past_of(old).compare(past_of(new), new.scale) for i, (old, new) in enumerate(pairs)}
    total = sum(compared.values())
    return report_drift(compared if seen else {}, total, spread_of([*before, *after]), WIDTH, level=level)


# ------------------------------------------------------------------------------------------------------ by chance alone


@pytest.fixture(scope="module")
def quiet():
    """Reports of 300 updates without drift."""
    rng = np.random.default_rng(0)
    return [draw_report(rng, [()] * 3) for _ in range(300)]


def at_most(share, n):
    """What a share is below in n draws, but for three standard deviations."""
    return share + 3 * np.sqrt(share * (1 - share) / n)


def test_without_drift_alarms_are_no_more_frequent_than_stated(quiet):
    alarms = np.mean([any(line["moved"] for line in report) for report in quiet])
    assert alarms <= at_most(0.05, len(quiet))


@pytest.mark.parametrize("of_all", [True, False], ids=["all sites", "one site"])
def test_without_drift_p_values_are_about_uniform_or_larger(quiet, of_all):
    p = np.array(
        [line["p"] for report in quiet for line in report if (line["site"] == ALL_SITES) == of_all and line["cluster"]]
    )
    for level in (0.02, 0.05, 0.1, 0.2, 0.5):
        assert np.mean(p <= level) <= at_most(level, 300), level
    assert 0.45 < p.mean() < 0.7  # and not so large that they would say nothing
    assert np.mean(p <= 0.3) > 0.12


def test_by_chance_is_how_far_means_are_apart_where_nothing_has_moved(quiet):
    lines = [line for report in quiet for line in report]
    distances, chances = (np.array([line[name] for line in lines]) for name in ("distance", "by_chance"))
    assert np.sqrt(np.mean(np.square(distances / chances))) == pytest.approx(1.0, abs=0.05)


# --------------------------------------------------------------------------------------------------- what has moved


def test_a_clear_move_is_found_and_only_where_it_is():
    rng = np.random.default_rng(1)
    for _ in range(20):
        report = draw_report(rng, [(), (0, 0, 3.0, 0), ()], per_cluster=30, level=1e-3)
        assert {(line["site"], line["cluster"]) for line in report if line["moved"]} == {("s1", 1), (ALL_SITES, 1)}
        line = next(line for line in report if (line["site"], line["cluster"]) == ("s1", 1))
        assert line["distance"] == pytest.approx(3.0 / np.linalg.norm(SPREADS), abs=0.4)


def test_a_move_that_few_single_sites_show_is_found_over_all():
    rng = np.random.default_rng(2)
    lines = [line for _ in range(20) for line in draw_report(rng, [(0, 0, 0.55, 0.3)] * 40) if line["cluster"] == 1]
    over_all, alone = (
        np.mean([line["p"] < 0.01 for line in lines if (line["site"] == ALL_SITES) == whole]) for whole in (True, False)
    )
    assert over_all > 5 * alone


def test_where_single_sites_are_not_seen_the_report_is_about_all_of_them():
    report = draw_report(np.random.default_rng(3), [(), ()], seen=False)
    assert [(line["site"], line["cluster"]) for line in report] == [(ALL_SITES, 0), (ALL_SITES, 1)]


def test_clusters_that_are_new_have_no_line():
    rng = np.random.default_rng(4)
    old, new = draw(rng), draw(rng)
    total = past_of(old).compare(past_of(new), new.scale)
    wide = ClusterSpread.from_array(np.pad(spread_of([old, new]).to_array(), ((0, 2), (0, 0)), constant_values=7.0))
    assert {line["cluster"] for line in report_drift({}, total, wide, WIDTH, level=0.05)} == {0, 1}


def test_nothing_to_compare_is_an_empty_report():
    assert report_drift({}, np.zeros((2, COMPARED)), ClusterSpread.zero(2), WIDTH, level=0.05) == []


# ------------------------------------------------------------------------------------------- what a site remembers


@few
@given(st.integers(0, 10**6), st.integers(LEAST_ROWS, 15), st.integers(LEAST_ROWS, 15))
def test_means_of_two_batches_are_those_of_all_their_rows(seed, first, second):
    rng = np.random.default_rng(seed)
    one, other = draw(rng, first), draw(rng, second)
    both = place(np.vstack([one.away, other.away]), np.concatenate([one.labels, other.labels]))
    added, pooled = past_of(one).add(past_of(other), 1.0), past_of(both)
    assert_allclose(added.means, pooled.means, rtol=1e-12, atol=1e-12)
    assert_allclose(added.rows, pooled.rows)
    assert_allclose(added.count, pooled.rows)
    assert_allclose(added.freedom, pooled.freedom - 1)  # each batch has its own mean


@few
@given(st.integers(0, 10**6), st.floats(0.05, 1.0))
def test_rows_that_count_less_make_means_less_sure(seed, keep):
    rng = np.random.default_rng(seed)
    one, other = past_of(draw(rng, 12)), past_of(draw(rng, 12))
    faded = one.add(other, keep)
    assert_allclose(faded.means, (keep * one.means + other.means) / (1 + keep), rtol=1e-12, atol=1e-12)
    assert_allclose(faded.count, 12 * (1 + keep) ** 2 / (1 + keep**2))
    assert np.all(faded.count <= 24 + 1e-9)


@few
@given(st.integers(0, 10**6), arrays(float, WIDTH, elements=st.floats(-50, 50)))
def test_a_comparison_does_not_depend_on_where_the_cluster_is(seed, shift):
    rng = np.random.default_rng(seed)
    away, labels = rng.normal(size=(40, WIDTH)), np.repeat([0, 1], 20)
    old, new = np.arange(40) % 2 == 0, np.arange(40) % 2 == 1

    def compare(by):
        return past_of(place(away[old] + by, labels[old])).compare(
            past_of(place(away[new] + by, labels[new])), np.ones(WIDTH)
        )

    assert_allclose(compare(shift), compare(0.0), rtol=1e-7, atol=1e-7)


def test_of_too_few_rows_nothing_is_remembered_and_nothing_compared():
    rng = np.random.default_rng(0)
    small, large = past_of(draw(rng, LEAST_ROWS - 1)), past_of(draw(rng, LEAST_ROWS))
    assert_array_equal(small.rows, 0.0)
    assert_array_equal(small.means, CENTERS)  # and not where these rows are
    for one, other in ((small, large), (large, small), (small, small)):
        assert_array_equal(one.compare(other, np.ones(WIDTH)), 0.0)
    assert np.all(large.compare(large, np.ones(WIDTH))[:, 4] == 1)


def test_equal_rows_are_not_compared():
    """They have no spread, against which any distance would be infinite."""
    same = past_of(place(np.zeros((20, WIDTH)), np.repeat([0, 1], 10)))
    moved = past_of(place(np.ones((20, WIDTH)), np.repeat([0, 1], 10)))
    assert_array_equal(same.compare(moved, np.ones(WIDTH)), 0.0)


def test_what_is_remembered_fits_its_own_model_and_no_other():
    past = past_of(draw(np.random.default_rng(0)))
    assert past.fits(MODEL)
    assert past.fits(make_parameters([CENTERS * (1 + 1e-5)]))
    for other in (CENTERS[::-1], CENTERS + 1, CENTERS[:1], np.hstack([CENTERS, CENTERS])):
        assert not past.fits(make_parameters([other]))


def test_a_site_that_had_no_part_in_an_update_remembers_its_rows_for_the_clusters_after_it():
    past = past_of(draw(np.random.default_rng(0)))
    after = make_parameters([np.vstack([CENTERS + 0.5, np.full(WIDTH, 7.0)])])
    carried = past.carry(after, 0.5)
    assert carried.fits(after)
    assert_allclose(carried.means[:2], past.means)
    assert_allclose(carried.rows, [*(0.5 * past.rows), 0.0])
    assert_allclose(carried.count[:2], past.count)  # all rows fade alike: means are as sure as they were
    wider = past.carry(make_parameters([np.hstack([CENTERS, CENTERS])]), 0.5)
    assert_array_equal(wider.rows, 0.0)


# ----------------------------------------------------------------------------------------------------------------- Holm

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(np.array)


@few
@given(P_VALUES, st.floats(0.001, 0.5))
def test_adjusted_p_values_alarm_where_the_procedure_of_holm_rejects(p, level):
    rejected = np.zeros(len(p), bool)
    for step, place_of in enumerate(np.argsort(p, kind="stable")):
        if not p[place_of] * (len(p) - step) < level:
            break
        rejected[place_of] = True
    assert_array_equal(adjust_holm(p) < level, rejected)


@few
@given(P_VALUES)
def test_adjusted_p_values_keep_their_order_and_are_at_least_the_others(p):
    adjusted = adjust_holm(p)
    assert np.all((adjusted >= p) & (adjusted <= 1))
    assert np.all(np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0)
    assert adjusted.min() == min(1.0, len(p) * p.min())


def test_a_report_adjusts_over_all_of_its_lines():
    report = draw_report(np.random.default_rng(5), [(), (), (1, 1, 1, 1)])
    assert len(report) == CLUSTERS * 4
    assert_allclose(
        [line["p_adjusted"] for line in report], adjust_holm(np.array([line["p"] for line in report])), rtol=1e-12
    )
    assert adjust_holm(np.zeros(0)).size == 0
