"""Who is named as being off: sites with another unit, a shift or codes, and no others."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhk.data.clients import check_clients
from fedhk.data.deviations import compare_sites, compare_with_all, find_codes, find_deviations, find_off
from fedhk.data.moments import Moments
from fedhk.data.scaling import SCALINGS, make_reference
from fedhk.data.views import check_views
from fedhk.datasets import make_sites
from fedhk.model.preparation import site_moments

NAMES = ("age", "area", "dose", "sodium", "weight", "width")


def lab(n_sites=6, n_rows=80, seed=0, **options):
    """Sites with one view of six columns in units of their own, far from zero."""
    data = make_sites(n_sites, n_rows, 3, (6,), random_state=seed, **options)
    units, middle = np.array([1.0, 50.0, 1e-3, 2.0, 10.0, 300.0]), np.array([30.0, 40.0, 20.0, 70.0, 8.0, 25.0])
    return {site: (views[0] + middle) * units for site, views in data.sites.items()}


def found(sites):
    """What is found in tables of the columns above."""
    moments = {site: site_moments(check_views([table]), [6], unit_rows=False)[0] for site, table in sites.items()}
    return find_deviations({site: {"lab": m} for site, m in moments.items()}, {"lab": NAMES})


def changed(sites, change, column=1, site="site-02"):
    """The sites with one column of one of them changed; None changes all columns."""
    table = sites[site].copy()
    if column is None:
        table = change(table)
    else:
        table[:, column] = change(table[:, column])
    return sites | {site: table}


def put(cells, value):
    """A change that writes a value into some cells."""

    def change(column):
        column = column.copy()
        column[cells] = value
        return column

    return change


@pytest.mark.parametrize(
    ("change", "kind", "factor"),
    [
        (lambda x: 1000 * x, "larger", 1000),
        (lambda x: 100 * x, "larger", 100),
        (lambda x: 10 * x, "larger", 10),
        (lambda x: x / 1000, "smaller", 1000),
        (lambda x: x / 10, "smaller", 10),
    ],
)
def test_a_unit_is_named_with_column_and_factor(change, kind, factor):
    (only,) = found(changed(lab(), change))
    assert (only.site, only.view, only.columns, only.kind) == ("site-02", "lab", ("area",), kind)
    assert factor / 1.5 < only.factor < factor * 1.5
    assert only.sentence.startswith("site-02: lab/area is about ")
    assert f"{factor:,} times" in only.sentence or factor == 10
    assert only.is_sure


@pytest.mark.parametrize("factor", [1000.0, 10.0, 1e-3])
def test_a_unit_of_a_whole_view_is_one_finding(factor):
    (only,) = found(changed(lab(), lambda x: factor * x, column=None))
    assert only.kind == ("larger" if factor > 1 else "smaller")
    assert set(only.columns) == set(NAMES)
    assert "(and 5 more columns)" in only.reason


def test_degrees_of_another_scale_are_a_shift():
    spread = max(table[:, 4].std() for table in lab().values())
    (only,) = found(changed(lab(), lambda x: 1.8 * x + 60 * spread, column=4))
    assert (only.columns, only.kind) == (("weight",), "above")
    assert "spreads above elsewhere" in only.sentence


@pytest.mark.parametrize(("cells", "value"), [(slice(20), -9999.0), (slice(1), 1e30), (slice(None), -9999.0)])
def test_codes_and_broken_cells_are_named(cells, value):
    (only,) = found(changed(lab(), put(cells, value), column=3))
    assert only.site == "site-02"
    assert only.columns == ("sodium",)
    assert "a code for missing values" in only.sentence


def test_two_of_nine_sites_with_one_unit_are_both_named():
    sites = changed(changed(lab(9), lambda x: 1000 * x), lambda x: 1000 * x, site="site-05")
    assert [one.site for one in found(sites)] == ["site-02", "site-05"]


def test_a_column_that_is_constant_at_a_site_says_nothing():
    sites = lab()
    middle = float(np.median(sites["site-00"][:, 1]))
    assert not found(changed(sites, lambda x: np.full_like(x, middle)))


def test_ink_at_the_edge_of_a_picture_is_said_and_leaves_no_site_out():
    rng = np.random.default_rng(0)
    sites = {f"site-{number}": [rng.normal(size=(60, 12)) * [1.0] * 12] for number in range(6)}
    for tables in sites.values():
        tables[0][:, 0] *= 1e-4  # hardly any ink
    sites["site-2"][0][7, 0] = 2.0
    (one,) = compare_sites(check_clients(sites))
    assert (one.site, one.columns, one.kind, one.is_usual, one.is_sure) == (
        "site-2",
        ("column 0",),
        "wider",
        True,
        False,
    )
    # no other column varies as much as this one now does
    sites["site-2"][0][7, 0] = 200.0
    (one,) = compare_sites(check_clients(sites))
    assert one.is_sure


def test_one_rare_word_among_many_is_not_off():
    rng = np.random.default_rng(0)
    often = np.exp(rng.normal(-4, 1, size=1500))
    sites = {f"site-{number}": [rng.poisson(often, size=(80, 1500)).astype(float)] for number in range(8)}
    sites["site-3"][0][5, int(np.argmin(often))] = 30.0
    assert not any(one.is_sure for one in compare_sites(check_clients(sites)))


def test_codes_for_missing_values_hide_no_wrong_unit():
    sites = changed(lab(), lambda x: 1000 * x, site="site-01")
    for name in sites:
        sites[name][::20] = -999.0
    kinds = [
        (one.site, one.kind, one.columns) for one in compare_sites(check_clients({n: [x] for n, x in sites.items()}))
    ]
    assert ("site-01", "larger", ("column 1",)) in kinds
    assert sum(kind == "code" for _, kind, _ in kinds) == sum(x.shape[1] for x in sites.values())


def test_of_two_sites_nobody_can_say_which_is_right():
    (only,) = found(changed(lab(2), lambda x: 1e6 * x, site="site-01"))
    assert only.columns == ("area",)
    assert not only.is_sure


def test_a_site_alone_has_nothing_to_be_compared_with():
    assert not found(lab(1))


def test_a_small_site_is_named_too():
    sites = lab()
    sites["site-02"] = sites["site-02"][:1]
    assert not found(sites)
    assert [one.site for one in found(changed(sites, lambda x: 1000 * x))] == ["site-02"]


@given(
    seed=st.integers(0, 10_000),
    n_sites=st.integers(3, 15),
    n_rows=st.sampled_from([8, 30, 100]),
    mix=st.sampled_from([None, 2.0, 0.5, 0.1]),
    differ=st.sampled_from([{"shift": 0.0, "scale": 0.0}, {}, {"shift": 2.0, "scale": 0.5}]),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_sites_that_differ_as_sites_do_are_not_named(seed, n_sites, n_rows, mix, differ):
    data = make_sites(n_sites, n_rows, 4, (8, 3), class_mix=mix, random_state=seed, **differ)
    assert not compare_sites(check_clients(data.sites))


@given(seed=st.integers(0, 1000), units=st.lists(st.floats(-6, 6), min_size=6, max_size=6))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_the_units_of_a_federation_change_nothing(seed, units):
    sites = changed(lab(seed=seed), lambda x: 1000 * x)
    plain, other = found(sites), found({site: table * 10.0 ** np.array(units) for site, table in sites.items()})
    assert [(d.site, d.columns, d.kind) for d in plain] == [(d.site, d.columns, d.kind) for d in other]
    np.testing.assert_allclose([d.factor for d in plain], [d.factor for d in other])


def test_the_order_of_sites_changes_nothing():
    sites = changed(lab(), lambda x: 1000 * x)
    turned = dict(reversed(sites.items()))
    assert found(sites) == found(turned)


def test_a_score_is_off_beyond_twice_what_the_others_differ_by():
    scores = np.array([[0.0], [0.5], [-1.0], [0.0], [9.0]])
    ones = np.ones_like(scores)
    # twice 1, the least 1, 2.5 over 3.5 and 2 over the root of 100 together are 3.914
    for last, off in ((9.0, True), (3.92, True), (3.91, False)):
        scores[-1] = last
        named = find_off(scores, ones > 0, np.array([100.0]), 0 * ones, 1.0)
        assert named.ravel().tolist() == [False] * 4 + [off]


def test_views_without_names_are_named_by_number():
    moments = {f"s{i}": {"image": Moments.none(4)} for i in range(3)}
    assert not find_deviations(moments, {"image": None})
    data = make_sites(5, 60, 3, (4,), random_state=0).sites
    data["site-01"] = [1000 * data["site-01"][0]]
    (only,) = compare_sites(check_clients(data))
    assert only.columns[0].startswith("column ")


class TestCodes:
    def rows(self, value=-9999.0, repeats=5, n=60):
        table = np.random.default_rng(0).normal(140, 3, (n, 3))
        table[:repeats, 1] = value
        return table

    @pytest.mark.parametrize("value", [-9999.0, -999.0, 9999.0])
    def test_an_extreme_value_that_repeats_far_outside_is_a_code(self, value):
        (only,) = find_codes("rome", check_views([self.rows(value)]))
        assert (only.kind, only.factor, only.columns) == ("code", value, ("column 1",))
        assert f"rome: view_0/column 1 has {value:g} again and again" in only.sentence
        assert not only.is_sure

    @pytest.mark.parametrize("value", [-99.0, -999.0, 9999.0])
    def test_nines_are_codes_beside_numbers_of_a_wide_range(self, value):
        table = np.random.default_rng(0).lognormal(5, 1, (200, 2)).clip(0, 6000)  # as of ferritin
        table[:6, 1] = value
        assert [code.factor for code in find_codes("rome", check_views([table]))] == [value]

    def test_nines_among_other_values_are_none(self):
        rng = np.random.default_rng(0)
        table = np.column_stack([rng.integers(90, 100, 300), -rng.integers(90, 100, 300), rng.integers(900, 1000, 300)])
        assert not find_codes("rome", check_views([table.astype(float)]))

    @pytest.mark.parametrize("value", [0.2, 1.0, 12.5, -0.5])
    def test_numbers_that_nobody_writes_for_a_missing_cell_are_no_codes(self, value):
        table = np.random.default_rng(0).normal(0, 0.003, (60, 2))
        table[:5, 1] = value
        assert not find_codes("rome", check_views([table]))
        table[:5, 1] = 99.9
        assert find_codes("rome", check_views([table]))

    def test_once_is_no_code(self):
        assert not find_codes("rome", check_views([self.rows(repeats=1)]))

    def test_flags_counts_and_sparse_views_have_no_codes(self):
        rng = np.random.default_rng(0)
        table = np.column_stack([rng.random(200) < 0.02, rng.poisson(0.5, 200), rng.integers(0, 9, 200)]).astype(float)
        assert not find_codes("rome", check_views([table]))
        assert not find_codes("rome", check_views([sp.csr_array(table)]))

    def test_zeros_that_most_rows_have_are_no_codes_and_few_are(self):
        """A word that most documents lack has weights that are much alike where it is."""
        table = self.rows(value=0.0, repeats=50)
        assert not find_codes("rome", check_views([table]))
        assert [code.factor for code in find_codes("rome", check_views([self.rows(value=0.0)]))] == [0.0]
        assert [code.factor for code in find_codes("rome", check_views([self.rows(repeats=50)]))] == [-9999.0]

    def test_missing_cells_are_left_out(self):
        table = self.rows()
        table[30:40] = np.nan
        assert [code.factor for code in find_codes("rome", check_views([table]))] == [-9999.0]


def test_under_masks_all_other_sites_find_themselves_too_narrow():
    sites = changed(lab(10), lambda x: 1000 * x)
    moments = [site_moments(check_views([table]), [6], unit_rows=False)[0] for table in sites.values()]
    whole = moments[0]
    for part in moments[1:]:
        whole = whole.merge(part)
    reference = make_reference(whole, SCALINGS["standard"], "uniform")
    (text,) = compare_with_all(check_views([sites["site-00"]]), ["view_0"], [reference])
    assert text.startswith("view_0/column 1: rows lie about")
    assert "closer together here than over all sites" in text
    clean = make_reference(moments[0].merge(moments[1]), SCALINGS["standard"], "uniform")
    assert not compare_with_all(check_views([sites["site-00"]]), ["view_0"], [clean])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_shifted_instrument_is_named_where_its_rows_hardly_overlap_those_of_others(sign):
    sites = lab(n_sites=4)
    (only,) = found(changed(sites, lambda x: x + sign * 14 * x.std()))
    assert (only.site, only.columns, only.kind) == ("site-02", ("area",), "above" if sign > 0 else "below")
    assert not only.is_sure  # it may have a group of its own
    assert "another instrument or unit" in only.sentence
    assert not found(changed(sites, lambda x: x + sign * x.std()))


def test_a_site_with_a_cluster_of_its_own_has_no_shifted_instrument():
    """Its clusters are apart from those of others in all columns, and not in one."""
    rng = np.random.default_rng(0)
    sites = {f"site-{i:02d}": 50 + rng.normal(size=(80, 6)) for i in range(4)}
    moves = np.array([12.0, -10.0, 9.0, 11.0, -8.0, 10.0])
    assert not any(one.kind in ("above", "below") for one in found(sites | {"site-02": sites["site-02"] + moves}))
