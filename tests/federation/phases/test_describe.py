"""Sites describe their views and moments; what differs from most, or what no rows can have, is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from federations import (
    TestEngine,
    assert_same_model,
    make_phases,
    make_plan,
    make_settings,
    make_sites,
    read_reply,
    run_sites,
    with_field,
    with_message,
)
from fedhk import datasets
from fedhk.data.moments import Moments
from fedhk.data.views import check_views
from fedhk.errors import DataError, MessageError, QuorumError
from fedhk.federation.board import Board
from fedhk.federation.codec import TREE
from fedhk.federation.entries import Population, References, Schema, Space
from fedhk.federation.phases.describe import (
    Describe,
    DescribeRequest,
    ViewDescription,
    ViewsReply,
    agree_on_views,
    check_descriptions,
)
from fedhk.model.preparation import prepare

LIAR = "oslo"


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(4, 30, n_clusters=3, n_features=(3, 4), random_state=3)
    return dict(zip(["bern", LIAR, "rome", "turin"], data.sites.values(), strict=True))


@pytest.fixture
def tensors():
    rng = np.random.default_rng(0)
    return {
        name: {"ecg": rng.normal(size=(8, 3, 2)), "age": rng.normal(size=(8, 1))} for name in ("bern", LIAR, "rome")
    }


def with_odd_views(sites, odd, max_rounds=2, n_clusters=3, **options):
    """A run in which the liar has other views than `EFKMVC.fit` would let pass."""
    engine = TestEngine(sites, **options)
    engine.states[LIAR] = replace(engine.states[LIAR], views=check_views(odd))
    run, _ = run_sites(make_plan(n_clusters, max_rounds=max_rounds), engine)
    return run, run.history[0]["refused"].get(LIAR)


# ------------------------------------------------------------------------------------------------------------- moments


def describe(sites, **settings):
    phase = Describe(make_settings(**settings))
    request = phase.request(Board())
    return phase, {name: phase.answer(site, request) for name, site in make_sites(sites).items()}


class TestMoments:
    @pytest.mark.parametrize("scaling", ["standard", "l2", "minmax", "none"])
    def test_moments_of_the_sites_are_those_of_all_rows(self, sites, scaling):
        phase, replies = describe(sites, scaling=scaling)
        pooled = [np.vstack(parts) for parts in zip(*sites.values(), strict=True)]
        _, alone = describe({"all": pooled}, scaling=scaling)
        board, expected = phase.combine(Board(), replies), phase.combine(Board(), alone)
        for one, other in zip(board.get(Population).moments, expected.get(Population).moments, strict=True):
            assert_allclose(one.mean, other.mean, atol=1e-12)
            assert_allclose(one.squares, other.squares, rtol=1e-9)
            assert (one.rows, one.total) == (other.rows, other.total)
        for one, other in zip(board.get(References).references, expected.get(References).references, strict=True):
            assert_allclose(one.scale, other.scale, rtol=1e-9)

    @pytest.mark.parametrize(
        ("options", "asked"),
        [
            ({}, False),
            ({"scaling": "minmax"}, True),
            ({"heat_coef": "minmax"}, True),
            ({"heat_coef": "absdev"}, False),
            ({"scaling": "l2"}, False),
        ],
        ids=str,
    )
    def test_ranges_are_told_only_where_they_are_needed(self, sites, options, asked):
        """The least and the largest value of a feature are values of single rows."""
        _, replies = describe(sites, **options)
        for reply in replies.values():
            for moments in reply.moments:
                assert np.isnan(moments.low).all() == np.isnan(moments.high).all() == (not asked)

    def test_a_site_says_nothing_of_a_view_that_it_lacks_but_its_name(self, sites):
        _, replies = describe(sites | {LIAR: [None, sites[LIAR][1]]})
        assert replies[LIAR].views[0] == ViewDescription("view_0", None, None)
        assert len(replies[LIAR].moments) == 1

    def test_nothing_else_leaves_the_site(self, sites):
        _, engine = run_sites(make_phases(max_rounds=1), sites)
        reply = read_reply(engine.received[0][LIAR])
        rows = np.hstack(sites[LIAR])
        for moments in reply.moments:
            for values in (moments.mean, moments.squares, moments.weight):
                assert not np.isin(values, rows).any()

    @given(st.integers(0, 2**16))
    def test_no_row_is_further_from_the_mean_than_the_reach_of_the_space(self, seed):
        rng = np.random.default_rng(seed)
        sites = {f"s{i}": [rng.normal(size=(5, 3)) * 10.0 ** rng.uniform(-3, 3)] for i in range(3)}
        phase, replies = describe(sites)
        board = phase.combine(Board(), replies)
        (reference,), (reach,) = board.get(References).references, board.get(Space).reach
        for (view,) in sites.values():
            assert np.all(np.abs(reference.to_model(view)) <= reach)


LIES = {
    "a shorter mean": with_field("moments.0.mean", lambda a: a[:-1]),
    "huge mean": with_field("moments.0.mean", lambda a: a + 1e200),
    "huge spread": with_field("moments.0.squares", lambda a: a + 1e290),
    "negative spread": with_field("moments.0.squares", lambda a: a - 1e9),
    "NaN": with_field("moments.1.mean", lambda a: a * np.nan),
    "ranges that nobody asked for": with_field("moments.0.low", lambda a: 0 * np.nan_to_num(a)),
    "negative counts": with_field("moments.0.weight", lambda a: a - 1e3),
    "more cells than rows": with_field("moments.0.weight", lambda a: a + 1e3),
    "more rows than there are": with_field("moments.0.rows", lambda a: a + 1e9),
    "rows beyond counting": with_field(
        "moments", lambda m: tuple(replace(part, rows=1e300, total=1e300) for part in m)
    ),
    "moments of one view": with_field("moments", lambda m: m[:1]),
    "moments of one view more": with_field("moments", lambda m: (*m, m[0])),
    "whole numbers": with_field("moments.0.mean", lambda a: a.astype(np.int64)),
    "no views": with_field("views", lambda _: ()),
    "negative width": with_field("views.1.width", lambda _: -2),
    "another width": with_field("views.0.width", lambda _: 9),
    "a name twice": with_field("views.1.name", lambda _: "view_0"),
    "no name": with_field("views.1.name", lambda _: ""),
    "columns of another width": with_field("views.0.columns", lambda _: ("a",)),
    "columns of a view that is not there": with_field("views.0", lambda v: replace(v, width=None, columns=("a",))),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_as_no_answer(sites, lie):
    plan = make_plan(n_init=1, max_rounds=1)

    def tamper(change):
        return lambda site, phase, _, answer: change(answer) if (site, phase) == (LIAR, "describe") else answer

    run, _ = run_sites(plan, sites, tamper=tamper(LIES[lie]))
    away, _ = run_sites(plan, sites, tamper=tamper(lambda _: None))
    assert_same_model(run, away)
    assert list(run.history[0]["refused"]) == [LIAR]
    assert run.history[0]["refused"][LIAR] != away.history[0]["refused"][LIAR]


@pytest.mark.parametrize("change", [lambda e: e[:1], lambda e: -e, lambda e: e * np.nan, lambda e: e.astype(np.int64)])
def test_a_lie_about_energies_is_as_no_answer(sites, change):
    plan = make_plan(n_init=1, max_rounds=1, heat_coef="absdev")
    lie = with_field("values", change)
    run, _ = run_sites(plan, sites, tamper=lambda s, p, _, a: lie(a) if (s, p) == (LIAR, "energy") else a)
    away, _ = run_sites(plan, sites, tamper=lambda s, p, _, a: None if (s, p) == (LIAR, "energy") else a)
    assert_same_model(run, away)
    assert "energies have" in run.history[0]["refused"][LIAR] or "sums have" in run.history[0]["refused"][LIAR]


@pytest.mark.parametrize("heat_coef", ["absdev", "minmax"])
def test_with_energies_units_are_those_of_the_pooled_rows(sites, heat_coef):
    run, _ = run_sites(make_phases(heat_coef=heat_coef, max_rounds=1), sites)
    settings = make_settings(heat_coef=heat_coef)
    pooled = check_views([np.vstack(parts) for parts in zip(*sites.values(), strict=True)])
    expected = prepare(pooled, settings.scaling, heat_coef, None)
    for one, other in zip(run.board.get(References).references, expected, strict=True):
        assert_allclose(one.scale, other.scale, rtol=1e-9)
        assert_allclose(one.shift, other.shift, atol=1e-9)


# -------------------------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize(("shape", "width"), [((3, 2), 6), ((1, 2), 2), ((2, 1, 1), 2), ((1, 1), 1)])
def test_shapes_of_tensors_are_accepted(shape, width):
    check_descriptions((ViewDescription("ecg", width, shape),), "rome")


@pytest.mark.parametrize("shape", [(6,), (4, 2), (-3, -2), (0, 6), (1,) * 70 + (6,)], ids=str)
def test_what_is_no_shape_of_the_width_is_refused(shape):
    with pytest.raises(MessageError, match="'ecg' has a shape that is not its width"):
        check_descriptions((ViewDescription("ecg", 6, shape),), "rome")


@pytest.mark.parametrize("columns", [[3, 2.0], [6, True], [3, "2"], "ab", {"a": 1}, 6], ids=str)
def test_what_is_neither_names_nor_a_shape_is_refused(tensors, columns):

    def lie(message):
        tree = message.values[TREE]
        tree[0][0][2] = [1, columns]
        return replace(message, values={TREE: tree})

    run, _ = run_sites(
        make_phases(n_clusters=2, max_rounds=1),
        tensors,
        tamper=lambda s, p, _, a: with_message(lie)(a) if (s, p) == (LIAR, "describe") else a,
    )
    assert "not what was asked for" in run.history[0]["refused"][LIAR]


def test_a_site_with_another_shape_is_refused_with_both(tensors):
    for shape, text in (((2, 3), "(n, 2, 3)"), ((3, 3), "(n, 3, 3)")):
        odd = {"ecg": np.ones((8, *shape)), "age": np.ones((8, 1))}
        run, reason = with_odd_views(tensors, odd, n_clusters=2)
        assert reason == f"view 'ecg' has shape {text}, other sites have shape (n, 3, 2)"
        assert run.board.get(Population).columns == ((3, 2), None)


def test_a_site_with_flat_rows_agrees_with_any_shape(tensors):
    flat = tensors[LIAR] | {"ecg": tensors[LIAR]["ecg"].reshape(8, 6)}
    run, reason = with_odd_views(tensors, flat, n_clusters=2)
    assert reason is None
    assert run.board.get(Population).columns == ((3, 2), None)


def test_a_late_site_with_another_shape_is_refused_with_both(tensors):
    odd = tensors[LIAR] | {"ecg": tensors[LIAR]["ecg"].transpose(0, 2, 1)}
    run, _ = with_odd_views(tensors, odd, 3, 2, present=lambda n: [site for site in tensors if site != LIAR or n > 3])
    expected = "view 'ecg' has rows of shape (2, 3) here, (3, 2) in the model"
    assert run.history[2]["refused"][LIAR].endswith(expected)


# ---------------------------------------------------------------------------------------------------- views that differ


class TestViewsThatDiffer:
    """Where nobody sees all sites before they describe themselves."""

    def frames(self, sites, names=(list("abc"), list("defg"))):
        return {
            name: [pd.DataFrame(view, columns=columns) for view, columns in zip(views, names, strict=True)]
            for name, views in sites.items()
        }

    def test_another_width_is_listed(self, sites):
        run, reason = with_odd_views(sites, [sites[LIAR][0], sites[LIAR][1][:, :2]])
        assert "view 'view_1' has 2 features, other sites have 4" in reason
        others, _ = run_sites(make_plan(max_rounds=2), {n: v for n, v in sites.items() if n != LIAR})
        assert_same_model(run, others)

    def test_all_differences_are_listed(self, sites):
        _, reason = with_odd_views(sites, [sites[LIAR][0][:, :1], sites[LIAR][1][:, :2]])
        assert "view 'view_0' has 1 features, other sites have 3 features; view 'view_1' has 2 features" in reason

    def test_other_columns_are_listed(self, sites):
        odd = self.frames(sites, (list("abX"), list("defg")))[LIAR]
        _, reason = with_odd_views(self.frames(sites), odd)
        assert "view 'view_0' has other columns than other sites: missing ['c'], unexpected ['X']" in reason

    def test_columns_in_another_order_are_refused(self, sites):
        odd = self.frames(sites, (list("acb"), list("defg")))[LIAR]
        _, reason = with_odd_views(self.frames(sites), odd)
        assert "view 'view_0' has the columns of other sites in another order: column 1 is 'c' instead of 'b'" in reason

    def test_a_site_without_column_names_agrees_with_any(self, sites):
        run, reason = with_odd_views(self.frames(sites), sites[LIAR])
        assert reason is None
        assert run.board.get(Population).columns == (tuple("abc"), tuple("defg"))

    def test_a_refused_site_leaves_no_view_behind(self, sites):
        odd = {"view_0": sites[LIAR][0][:, :1], "secret": sites[LIAR][1]}
        run, reason = with_odd_views(sites, odd)
        assert "view 'view_0' has 1 features" in reason
        assert run.board.get(Schema).names == ("view_0", "view_1")

    def test_a_view_without_a_value_anywhere_is_left_out(self, sites):
        run, reason = with_odd_views(
            sites, {"view_0": sites[LIAR][0], "empty": np.full((len(sites[LIAR][0]), 2), np.nan)}
        )
        assert reason is None
        assert run.board.get(Schema).names == ("view_0", "view_1")

    def test_given_weights_that_do_not_fit_the_views_are_an_error(self, sites):
        with pytest.raises(DataError, match=r"view_weights has 3 numbers.*'view_0', 'view_1'"):
            run_sites(make_plan(view_weights=(1.0, 1.0, 1.0)), sites)

    def test_sites_that_all_differ_are_an_error_that_lists_them(self):
        rng = np.random.default_rng(0)
        widths = {"a": (1, 2, 2), "b": (2, 1, 2), "c": (2, 2, 1)}
        engine = TestEngine({name: [rng.normal(size=(5, w)) for w in (2, 2, 2)] for name in widths})
        for name, own in widths.items():
            views = check_views([rng.normal(size=(5, w)) for w in own])
            engine.states[name] = replace(engine.states[name], views=views)
        with pytest.raises(
            QuorumError, match=r"a: view 'view_0' has 1.*b: view 'view_1' has 1.*c: view 'view_2' has 1"
        ):
            run_sites(make_plan(), engine)

    def test_a_late_site_with_another_width_or_other_columns_is_refused(self, sites):
        frames = self.frames(sites)
        wide = [frames[LIAR][0].assign(X=0.0), frames[LIAR][1]]
        turned = self.frames(sites, (list("acb"), list("defg")))[LIAR]
        for odd, reason in (
            (wide, "view 'view_0' has 4 features here, 3"),
            (turned, "'view_0' has other columns here"),
        ):
            run, _ = with_odd_views(frames, odd, 3, present=lambda n: [s for s in sites if s != LIAR or n > 3])
            assert reason in run.history[2]["refused"][LIAR]

    def test_no_row_at_all_or_fewer_than_clusters_is_an_error(self, sites):
        engine = TestEngine(sites)
        for name, site in engine.states.items():
            engine.states[name] = replace(site, views=check_views([np.full((1, 2), np.nan)], min_rows=0))
        with pytest.raises(DataError, match="No site has a view with an observed value"):
            run_sites(make_plan(), engine)
        few = {name: [view[:1] for view in views] for name, views in sites.items()}
        with pytest.raises(DataError, match=r"n_samples=4, which should be >= n_clusters=5"):
            run_sites(make_plan(5), few)


@given(st.permutations(["bern", "oslo", "rome"]))
def test_most_sites_decide_and_among_equals_the_first(order):
    views = {
        "bern": (ViewDescription("a", 3, None), ViewDescription("b", None, None)),
        "oslo": (ViewDescription("a", 3, ("x", "y", "z")),),
        "rome": (ViewDescription("a", 2, None), ViewDescription("b", 5, None)),
    }
    agreed = agree_on_views([ViewsReply(views[site]) for site in order])
    assert agreed == {"a": (3, ("x", "y", "z")), "b": (5, None)}


def test_the_request_says_what_is_asked_for():
    assert Describe(make_settings(scaling="l2")).request(Board()) == DescribeRequest(unit_rows=True, ranges=False)
    assert_array_equal(Moments.none(3).weight, 0.0)
