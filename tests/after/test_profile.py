"""Profiles: federated equals pooled, and what scipy and statsmodels say of the pooled rows."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.oneway import anova_oneway

import fedhk
from after.hospitals import make_federation, make_hospital, pool, pooled_labels
from fedhk.after.columns import (
    BinsRequest,
    ColumnsRequest,
    GivenRanges,
    SumColumns,
    Units,
    describe_columns,
    sum_columns,
)
from fedhk.after.run import read_sites
from fedhk.after.tables import PrintedTable, show_count
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board
from fedhk.federation.placed import PlacedSite
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.ledger import Ledger, ledger_file
from fedhk.summary.words import show_date
from sealed_runs import seeded_noise

ARRAYS = ("rows", "seen", "mean", "spread", "quartiles", "difference", "overall_mean", "overall_spread")
ARRAYS += ("overall_quartiles",)


@pytest.fixture(scope="module")
def found():
    model, _, sites = make_federation()
    return fedhk.profile(model, sites)


def place_of(found, column, level=""):
    return next(i for i, known in enumerate(found.columns) if (known.name, known.level) == (column, level))


def line_of(found, column):
    return next(line for line in found.tests if line["column"] == column)


def test_sites_give_what_pooled_rows_give(found):
    model, _, sites = make_federation()
    pooled = fedhk.profile(model, pool(sites))
    for name in ARRAYS:
        assert_allclose(getattr(found, name), getattr(pooled, name), rtol=1e-9, atol=1e-9, err_msg=name)
    for ours, theirs in zip(found.tests, pooled.tests, strict=True):
        for name in ("statistic", "p", "p_adjusted", "effect_size"):
            assert_allclose(ours[name], theirs[name], rtol=1e-9, atol=1e-9)
    assert np.isnan(pooled.i_squared).all()


@pytest.mark.parametrize("column", ["age", "year", "quality"])
def test_numbers_are_those_of_pandas_scipy_and_statsmodels(found, column):
    model, _, sites = make_federation()
    labels, rows = pooled_labels(model), pool(sites)["all"]
    view = "later" if column == "quality" else "record"
    place, values = place_of(found, column), rows[view][column]
    grouped = values.groupby(labels)
    assert_allclose(found.mean[:, place], grouped.mean(), rtol=1e-9)
    assert_allclose(found.spread[:, place], grouped.std(), rtol=1e-9)
    assert_allclose(found.seen[:, place], grouped.count())
    assert_allclose(found.overall_mean[place], values.mean())
    groups = [part.dropna().to_numpy() for _, part in grouped]
    tested, line = anova_oneway(groups, use_var="unequal", welch_correction=True), line_of(found, column)
    assert_allclose([line["statistic"], line["df_rest"], line["p"]], [tested.statistic, tested.df_denom, tested.pvalue])
    between = sum(len(g) * (g.mean() - values.mean()) ** 2 for g in groups)
    assert_allclose(line["effect_size"], between / ((values - values.mean()) ** 2).sum())
    rest = values[labels != 1]
    spread = np.sqrt((groups[1].var(ddof=1) + rest.var()) / 2)
    assert_allclose(found.difference[1, place], (groups[1].mean() - rest.mean()) / spread)


@pytest.mark.parametrize("column", ["age", "quality"])
def test_quartiles_are_off_by_less_than_a_bin(found, column):
    model, _, sites = make_federation()
    view = "later" if column == "quality" else "record"
    values, place = pool(sites)["all"][view][column], place_of(found, column)
    exact = values.groupby(pooled_labels(model)).quantile([0.25, 0.5, 0.75]).unstack().to_numpy().T
    assert np.abs(found.quartiles[:, :, place] - exact).max() < 0.1 * values.std()
    assert_allclose(found.overall_quartiles[:, place], values.quantile([0.25, 0.5, 0.75]), atol=0.1 * values.std())


def make_skewed(n, rng):
    """Columns with long tails, zeros, whole numbers, and one value that makes the spread huge."""
    group = rng.integers(3, size=n)
    one_far = rng.exponential(50, n)
    one_far[0] = 1e6
    later = {
        "normal": 140 + 4 * rng.normal(size=n) + group,
        "long tail": np.exp(1.5 * rng.normal(size=n) + 0.7 * group),
        "longer tail": np.exp(2.5 * rng.normal(size=n) + group),
        "zeros": np.where(rng.random(n) < 0.4, 0, rng.exponential(30, n) * (1 + group)),
        "one far": one_far,
        "rank": np.minimum(rng.poisson(0.3 + 0.5 * group), 3).astype(float),
        "yes": rng.random(n) < 0.2 + 0.2 * group,
        "years": np.round(45 + 8 * group + 12 * rng.normal(size=n)),
    }
    return {"x": rng.normal(size=(n, 2)) + 8 * np.eye(3)[group][:, :2], "later": pd.DataFrame(later).astype(float)}


@pytest.mark.parametrize("secure", [False, True])
def test_quartiles_of_skewed_columns_are_near_and_those_of_whole_numbers_exact(secure):
    rng = np.random.default_rng(0)
    sites = {site: make_skewed(601, rng) for site in "abc"}
    model = fedhk.EFKMVC(3, random_state=0).fit({site: {"x": views["x"]} for site, views in sites.items()})
    found, pooled = fedhk.profile(model, sites, secure=secure), pool(sites)["all"]["later"]
    exact = pooled.groupby(pooled_labels(model)).quantile([0.25, 0.5, 0.75])
    for column in pooled:
        expected = exact[column].unstack().to_numpy().T
        off = np.abs(found.quartiles[:, :, place_of(found, column)] - expected).max(axis=0)
        assert np.all(off < 0.1 * (expected[2] - expected[0]) + 1e-9), column
    places = [place_of(found, column) for column in ("rank", "yes", "years")]
    assert_allclose(found.quartiles[:, :, places] % 1, 0)
    assert found.quartiles[:, :, places].min() >= 0


def test_a_small_cluster_far_from_all_others_has_quartiles_near_it():
    rng = np.random.default_rng(0)
    far = np.arange(3030)[:, None] >= 3000
    later = rng.normal(size=far.shape) * np.where(far, 20, 1) + 1000 * far
    views = {"x": far + 0.01 * rng.normal(size=far.shape)}
    found = fedhk.profile(fedhk.HeatKernelMVC(2, random_state=0).fit(views), views | {"later": later})
    small = int(np.argmin(found.rows))
    assert found.rows[small] == 30
    assert_allclose(found.quartiles[:, small, 1], np.quantile(later[far], [0.25, 0.5, 0.75]), rtol=0.1)
    assert_allclose(found.quartiles[:, 1 - small, 1], np.quantile(later[~far], [0.25, 0.5, 0.75]), atol=0.05)


@pytest.mark.parametrize("edges", [np.array([[2.0, 1.0, 3.0]] * 2), np.ones((3, 4)), np.full((2, 3), np.nan)])
def test_a_site_refuses_edges_that_are_none(edges):
    with pytest.raises(MessageError):
        BinsRequest(ColumnsRequest(("a",), (2,), np.array([-1, -1])), edges)


@pytest.mark.parametrize(("column", "view"), [("sex", "record"), ("drug", "later")])
def test_categories_are_those_of_scipy(found, column, view):
    model, _, sites = make_federation()
    values = pool(sites)["all"][view][column]
    table = pd.crosstab(pooled_labels(model), values)
    for level in table.columns:
        place = place_of(found, column, level)
        assert_allclose(found.mean[:, place], table[level] / table.sum(axis=1))
    tested, line = stats.chi2_contingency(table, correction=False), line_of(found, column)
    assert_allclose([line["statistic"], line["df"], line["p"]], [tested.statistic, tested.dof, tested.pvalue])
    assert_allclose(line["effect_size"], stats.contingency.association(table, method="cramer"))


@pytest.mark.parametrize("secure", [False, True])
def test_levels_of_ordered_columns_are_counted_in_the_table(secure):
    rng = np.random.default_rng(0)
    order = ["none", "mild", "moderate", "severe", "never seen"]
    sites = {}
    for site in "abc":
        group = rng.integers(2, size=200)
        ranks = np.where(rng.random(200) < 0.1, -1, np.minimum(group + rng.integers(3, size=200), 3))
        severity = pd.Categorical.from_codes(ranks, categories=order, ordered=True)
        sites[site] = {
            "x": rng.normal(size=(200, 2)) + 8 * group[:, None],
            "later": pd.DataFrame({"severity": severity}),
        }
    model = fedhk.EFKMVC(2, random_state=0).fit({site: {"x": views["x"]} for site, views in sites.items()})
    found = fedhk.profile(model, sites, secure=secure)
    counts = pd.crosstab(pooled_labels(model), pool(sites)["all"]["later"]["severity"], dropna=False)[order]
    assert_allclose(found.ranks[2], counts.to_numpy().T, atol=1e-6)
    lines = found.table().rows
    start = next(i for i, line in enumerate(lines) if line[0] == "later: severity")
    assert [line[0].strip() for line in lines[start + 1 : start + 7]] == [*order, "missing"]
    assert lines[start + 2][2].startswith(f"{counts['mild'][0]} (")
    assert set(found.frame()["column"]) == {"0", "1", "severity"}
    assert line_of(found, "severity")["test"] == "Welch"
    assert found.labels[-1] == "severity"
    without = fedhk.profile(model, sites, bins=0)
    assert without.ranks == {}
    assert "later: severity (0 is none, 4 is never seen)" in [line[0] for line in without.table().rows]


def test_two_clusters_are_compared_as_by_welchs_t():
    _, sites, full = make_federation()
    model = fedhk.EFKMVC(2, scaling="standard", random_state=0).fit(sites)
    found, labels = fedhk.profile(model, full), pooled_labels(model)
    values = pool(full)["all"]["later"]["quality"]
    tested = stats.ttest_ind(values[labels == 0], values[labels == 1], equal_var=False)
    assert_allclose(line_of(found, "quality")["p"], tested.pvalue)


def test_heterogeneity_is_that_of_a_meta_analysis_of_sites(found):
    model, _, sites = make_federation()
    for column in ("age", "quality"):
        view = "later" if column == "quality" else "record"
        rows = np.bincount(pooled_labels(model), minlength=3)
        signs = np.array([-rows[0], rows[0] + rows[2], -rows[2]]) / (rows[0] + rows[2])  # cluster 1 less the others
        effects, variances = [], []
        for site, views in sites.items():
            by_cluster = views[view][column].groupby(model.labels_[site])
            effects.append(signs @ by_cluster.mean())
            variances.append(signs**2 @ (by_cluster.var() / by_cluster.count()))
        theirs = combine_effects(np.array(effects), np.array(variances))
        ours = found.i_squared[1, place_of(found, column)]
        assert_allclose(ours, max(theirs.i2, 0.0), rtol=1e-6, atol=1e-9)


def test_another_mix_of_other_clusters_is_no_heterogeneity_and_another_cluster_is():
    """Cluster 0 is 4 below the rest at one site and nearly 20 at another, and is the same at both."""
    rng, sites = np.random.default_rng(0), {}
    for site, counts in enumerate(([60, 130, 10], [60, 10, 130], [40, 80, 80], [80, 60, 60])):
        group = np.repeat(np.arange(3), counts)
        apart = 4.0 * (group > 0) + 16.0 * (group > 1) + np.tile([-1.0, 1.0], 100)
        later = np.column_stack([apart, apart + 3 * site, apart + 5 * ((group == 1) & (site == 2))])
        sites[f"site-{site}"] = {"rows": 10.0 * group[:, None] + rng.normal(size=(200, 2)), "later": later}
    model = fedhk.EFKMVC(3, scaling="none", random_state=0).fit({s: {"rows": v["rows"]} for s, v in sites.items()})
    found = fedhk.profile(model, sites)
    middle = int(np.argsort(found.mean[:, 0])[1])
    same, shifted, other = found.i_squared[:, 2:].T
    assert_allclose(same, 0.0, atol=1e-6)
    assert_allclose(shifted, 0.0, atol=1e-6)
    assert other[middle] > 0.95


@pytest.mark.parametrize("far", [8.0, 40.0])
def test_quartiles_of_a_small_cluster_far_from_all_others_are_right(far):
    """One row in fifty is there: of bins by the number of values it would have two."""
    rng = np.random.default_rng(1)
    group = rng.choice(3, 3000, p=[0.6, 0.38, 0.02])
    later = rng.normal(size=3000) + np.array([0.0, 1.0, far])[group]
    sites = {"a": {"rows": 20.0 * group[:, None] + rng.normal(size=(3000, 2)), "later": later[:, None]}}
    init = [20.0 * np.arange(3)[:, None] * np.ones(2)]
    model = fedhk.EFKMVC(3, scaling="none", init=init, random_state=0).fit({"a": {"rows": sites["a"]["rows"]}})
    found = fedhk.profile(model, sites).quartiles[:, :, -1].T
    for k in range(3):
        true = np.quantile(later[group == k], [0.25, 0.5, 0.75])
        assert_allclose(found[k], true, atol=0.15 * (true[2] - true[0]))


def test_p_values_are_adjusted_among_columns_of_their_kind(found):
    assert [line["circular"] for line in found.tests if line["column"] in ("quality", "drug")] == [False, False]
    for circular in (True, False):
        family = [line for line in found.tests if line["circular"] is circular]
        expected = stats.false_discovery_control([line["p"] for line in family])
        assert_allclose([line["p_adjusted"] for line in family], expected)
    assert any("Circular" in note for note in found.notes)


def test_held_out_columns_without_a_difference_are_rarely_called_different():
    rng = np.random.default_rng(1)
    model, sites, _ = make_federation()
    noise = {site: views | {"noise": rng.normal(size=(len(views["lab"]), 400))} for site, views in sites.items()}
    p = [line["p"] for line in fedhk.profile(model, noise, bins=0).tests if not line["circular"]]
    assert abs(np.mean(np.array(p) < 0.05) - 0.05) < 0.033  # three standard errors


def test_masks_change_nothing(found):
    model, _, sites = make_federation()
    masked = fedhk.profile(model, sites, secure=True)
    for name in ARRAYS:
        assert_allclose(getattr(masked, name), getattr(found, name), rtol=1e-6, atol=1e-6, err_msg=name)
    assert_allclose(masked.i_squared, found.i_squared, atol=1e-4)
    assert_allclose([t["p"] for t in masked.tests], [t["p"] for t in found.tests], rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("secure", [False, True])
def test_with_noise_means_are_near_and_the_ledger_adds_up(secure, tmp_path, monkeypatch):
    seeded_noise(monkeypatch)
    rng = np.random.default_rng(0)
    made = {site: make_hospital(3000, 0.0, rng) for site in ("a", "b", "c")}
    sites = {site: {"record": views["record"]} for site, (views, _) in made.items()}
    ranges = ([0, 0, 0, 1990], [120, 1, 1, 2020])
    budget = DifferentialPrivacy(2.0, 1e-5, bounds=[ranges], ledger=tmp_path / "ledger")
    model = fedhk.EFKMVC(2, scaling="standard", privacy=budget, max_rounds=3, random_state=0).fit(sites)
    plain = fedhk.profile(model, sites)
    with_noise = fedhk.profile(model, sites, privacy=budget, secure=secure, bins=24)
    age, female = place_of(plain, "age"), place_of(plain, "sex", "F")
    assert np.abs(with_noise.mean[:, age] - plain.mean[:, age]).max() < 3
    assert np.abs(with_noise.mean[:, female] - plain.mean[:, female]).max() < 0.05
    assert np.abs(with_noise.quartiles[1, :, age] - plain.quartiles[1, :, age]).max() < 5
    assert 0 < with_noise.noise < 200
    epsilon, delta = with_noise.privacy_spent
    assert 1.999 < epsilon <= 2.0 + 1e-6
    ledger = Ledger(ledger_file(tmp_path / "ledger", "a"), "a")
    assert_allclose(with_noise.privacy_total[0], ledger.spent(None, delta))
    assert epsilon < with_noise.privacy_total[0] < 4.0
    assert [line["phase"] for line in with_noise.answer.releases["a"]] == ["after columns"]


def test_what_is_known_of_the_fit_is_added_without_a_folder():
    rng = np.random.default_rng(0)
    sites = {site: [make_hospital(2000, 0.0, rng)[0]["lab"]] for site in "abc"}
    budget = DifferentialPrivacy(1.0, 1e-5, bounds=(-5, 15))
    model = fedhk.EFKMVC(2, scaling="standard", privacy=budget, max_rounds=2, random_state=0).fit(sites)
    found = fedhk.profile(model, sites, privacy=budget, bins=0)
    assert 1.3 < found.privacy_total[0] < 1.6  # mu adds in squares
    assert np.isnan(found.quartiles).all()


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_no_row_moves_the_sums_by_more_than_is_stated(neighbours):
    model, _, sites = make_federation()
    asked = read_sites(model, sites)
    columns = describe_columns(asked.views)
    phase = SumColumns(columns, 3, 8)
    request = phase.request(GivenRanges(columns, (-1.0, 1.0)).begin(Board()))
    rng, views = np.random.default_rng(0), asked.sites["athens"]
    stated = phase.sensitivity(request, phase.size(Board()), neighbours)
    moved = 0.0
    for _ in range(50):
        rows = [np.array(table[:6], np.float64) for table in views.tables]
        other = [
            np.where(rng.random(part.shape) < 0.8, rng.choice([-9.0, 0, 1, 9], part.shape), np.nan) for part in rows
        ]
        vectors = []
        changed = [np.vstack([a[:-1], b[: neighbours == "replace"]]) for a, b in zip(rows, other, strict=True)]
        for tables in (rows, changed):
            site = PlacedSite("athens", _with_tables(views, tables), model=model._model)
            vectors.append(sum_columns(site, request))
        moved = max(moved, float(np.linalg.norm(vectors[0] - vectors[1])))
    assert 0.3 * stated < moved <= stated
    with pytest.raises(MessageError, match="no sensitivity"):
        phase.sensitivity(phase.request(_units(columns)), 1, neighbours)


def _units(columns):
    return Board().put(Units(np.zeros(columns.width), np.ones(columns.width)))


def _with_tables(views, tables):
    return replace(views, tables=tuple(tables), n_rows=len(tables[0]))


def test_sites_may_lack_views_and_tables_may_be_sparse_or_tensors():
    rng = np.random.default_rng(0)
    k = rng.integers(0, 2, 90)
    image = rng.normal(size=(90, 2, 3)) + 4 * k[:, None, None]
    words = sp.csr_array(np.maximum(rng.normal(size=(90, 5)) + 3 * k[:, None], 0.0))
    sites = {
        "a": {"image": image[:30], "words": words[:30]},
        "b": {"image": image[30:60], "words": words[30:60]},
        "c": {"image": None, "words": words[60:]},
    }
    model = fedhk.EFKMVC(2, scaling="standard", random_state=0).fit(sites)
    found = fedhk.profile(model, sites)
    labels, places = pooled_labels(model), [i for i, column in enumerate(found.columns) if column.view == "words"]
    dense = words.toarray()
    assert_allclose(found.mean[:, places], [dense[labels == k].mean(axis=0) for k in (0, 1)], rtol=1e-9, atol=1e-12)
    assert found.columns[4].name == "1, 1"
    assert_allclose(found.seen[:, 4], np.bincount(labels[:60], minlength=2))
    assert "missing" in str(found)


def test_one_site_alone_has_a_profile():
    rng = np.random.default_rng(0)
    table = np.vstack([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 6])
    model = fedhk.HeatKernelMVC(2, random_state=0).fit(table)
    found = fedhk.profile(model, table)
    assert_allclose(found.mean, [table[model.labels_ == k].mean(axis=0) for k in (0, 1)])
    assert np.isnan(found.i_squared).all()


def test_rows_are_placed_by_the_models_of_their_sites():
    _, sites, _ = make_federation()
    model = fedhk.FedHKPerson(3, random_state=0).fit(sites)
    found = fedhk.profile(model, sites)
    assert_allclose(found.rows, np.bincount(np.concatenate(list(model.labels_.values())), minlength=3))


def test_small_cells_are_not_shown():
    table = np.vstack([np.zeros((40, 1)), np.full((3, 1), 50.0)]) + np.random.default_rng(0).normal(size=(43, 1))
    model = fedhk.HeatKernelMVC(2, random_state=0).fit(table)
    found = fedhk.profile(model, table)
    small = int(np.argmin(found.rows))
    line = found.frame().query("cluster == @small").iloc[0]
    assert found.rows[small] == 3
    assert line[["rows", "mean", "spread", "median", "difference"]].isna().all()
    assert "< 5" in str(found)
    shown = fedhk.profile(model, table, least_rows=1).frame().query("cluster == @small").iloc[0]
    assert shown["rows"] == 3


def test_small_counts_do_not_follow_from_totals():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], [60, 50, 40])
    stage = np.where(group == 0, "mild", "grave")
    stage[[0, 1, 2, 60, 61, 62, 63, 64, 65, 66, 110, 111, 112, 113, 114, 115]] = "none"  # 3, 7 and 6 of a group
    table = pd.DataFrame({"age": 30.0 * group + rng.normal(size=150), "lab": 20.0 * group + rng.normal(size=150)})
    model = fedhk.HeatKernelMVC(3, random_state=0).fit({"lab": table})
    views = {"lab": table, "later": pd.DataFrame({"stage": stage})}
    found = fedhk.profile(model, views)
    lines = {line[0].strip(): line[1:5] for line in found.table().rows}
    total, *cells = lines["none"]
    assert total.startswith("16 ")
    assert {"–", "< 5"} <= set(cells)
    frame = found.frame().query("level == 'none'")
    assert frame["mean"].isna().sum() >= 2
    assert fedhk.profile(model, views, least_rows=1).frame()["mean"].notna().all()


def test_constant_and_huge_columns_are_right():
    rng = np.random.default_rng(0)
    table = np.column_stack([np.full(60, 7.5), 1e12 + rng.normal(size=60), np.r_[rng.normal(size=59), 1e9]])
    model = fedhk.HeatKernelMVC(2, scaling="standard", random_state=0).fit(rng.normal(size=(60, 2)))
    found = fedhk.profile(model, {"view_0": rng.normal(size=(60, 2)), "later": table})
    assert_allclose(found.overall_mean[2:], table.mean(axis=0), rtol=1e-9)
    assert_allclose(found.overall_spread[2:], table.std(axis=0, ddof=1), rtol=1e-3, atol=1e-9)
    assert np.isnan(found.tests[2]["p"])


def test_the_table_is_text_csv_latex_and_a_page(found, tmp_path):
    table = found.table()
    lines = list(csv.reader(io.StringIO(table.to_csv())))
    assert lines[0][:3] == ["", "all", "cluster 0"]
    assert all(len(line) == len(lines[0]) for line in lines)
    latex = table.to_latex()
    assert r"\toprule" in latex
    assert r" \%" in latex
    for suffix in ("csv", "tex", "html"):
        assert table.save(tmp_path / f"table.{suffix}").read_text("utf-8")
    with pytest.raises(ValueError, match="must end in"):
        table.save(tmp_path / "table.docx")
    assert "<table>" in found._repr_html_()
    frame = found.frame()
    assert len(frame) == 3 * len(found.columns)
    assert set(frame.query("column == 'sex'")["level"]) == {"F", "M"}


def test_names_in_tables_are_escaped():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"<b>": rng.normal(size=30), "50%_&": rng.normal(size=30)})
    found = fedhk.profile(fedhk.HeatKernelMVC(2, random_state=0).fit(rows), rows)
    assert "<b>:" not in found._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()
    assert r"50\%\_\&" in found.table().to_latex()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda sites: {s: v | {"later": v["record"][["age"]]} for s, v in sites.items()}, "'age' is in view 'record'"),
        (lambda sites: {s: {"other": v["lab"]} for s, v in sites.items()}, "none of the views"),
        (lambda sites: {s: {"lab": v["lab"][:, :2]} for s, v in sites.items()}, "'lab' has 2 features"),
        (lambda _: {}, "sites is empty"),
    ],
)
def test_rows_that_do_not_fit_are_named(change, text):
    model, sites, _ = make_federation()
    with pytest.raises(DataError, match=text):
        fedhk.profile(model, change(sites))


def test_what_has_no_effect_or_no_room_is_refused():
    model, sites, _ = make_federation()
    with pytest.raises(ValueError, match="bins must be a whole number"):
        fedhk.profile(model, sites, bins=-1)
    with pytest.raises(DataError, match="Use fewer bins"):
        fedhk.profile(model, sites, bins=1_000_000)
    with pytest.raises(ValueError, match="at least 3 sites"):
        fedhk.profile(model, {s: sites[s] for s in ("athens", "cairo")}, secure=True)
    budget = DifferentialPrivacy(1.0, 1e-5, bounds="private")
    with pytest.raises(ValueError, match="bounds='private' does not go with profile"):
        fedhk.profile(model, sites, privacy=budget)
    with pytest.raises(ValueError, match=r"delta=0\.1 must be below"):
        fedhk.profile(model, sites, privacy=DifferentialPrivacy(1.0, 0.1, bounds=(0, 1)))


@pytest.mark.parametrize("named", [True, False])
def test_dates_are_shown_as_dates(named):
    rng = np.random.default_rng(0)
    group = np.arange(80) % 2
    begin = pd.Timestamp("2024-01-01") + pd.to_timedelta(100 * group + rng.integers(0, 9, 80), "D")
    rows = pd.DataFrame({"x": 9.0 * group + rng.normal(size=80), "admitted": begin, "stay": rng.normal(size=80)})
    views = {"record": rows} if named else [rows]
    found = fedhk.profile(fedhk.HeatKernelMVC(2, random_state=0).fit(views), views)
    assert [column.is_date for column in found.columns] == [False, True, False]
    lines = [line for line in found.table().rows if "admitted" in line[0]]
    mean = str(begin.mean().round("D").date())
    assert lines[0][1].startswith(f"{mean} (")
    assert lines[0][1].endswith(" days)")


def test_latex_has_signs_that_every_font_shows_and_indents():
    table = PrintedTable("p < 0.05", ("", "all"), [("    missing", "1 ± 2"), ("", "< 5"), ("a > b", "–")])
    text = table.to_latex()
    assert r"\quad missing & 1 $\pm$ 2" in text
    assert " & $<$ 5" in text
    assert "a $>$ b & --" in text
    assert r"\caption{p $<$ 0.05}" in text


def test_latex_can_be_referred_to_and_has_words_on_the_left(tmp_path):
    table = PrintedTable("Who wins: 3 sets", ("method", "rows", "ARI"), [("a", "pooled", "0.1"), ("b", "–", "–")])
    assert table.to_latex().startswith("% needs \\usepackage{booktabs} and \\usepackage{graphicx}\n")
    lines = table.to_latex().split("\n")
    assert lines[3:5] == [r"\caption{Who wins: 3 sets}", r"\label{tab:who-wins}"]
    assert lines[7:9] == [r"\begin{tabular}{llr}", r"\toprule"]
    assert table.to_latex().endswith("\\end{tabular}}\n\\end{table}\n")  # a line between would be an empty paragraph
    assert r"\label{tab:my-iris}" in table.save(tmp_path / "My iris.tex").read_text("utf-8")


def test_days_that_are_no_date_are_shown_as_numbers():
    assert [show_date(days) for days in (0.4, -1.0, math.nan, 1e9)] == ["1970-01-01", "1969-12-31", "–", "1.00e+09"]


@pytest.mark.parametrize("secure", [False, True])
def test_numbers_that_are_0_or_1_are_counted(secure):
    """True and false are shown as a share; a column that has another whole number anywhere has a mean."""
    rng = np.random.default_rng(0)
    sites = {name: {"v": rng.normal(size=(40, 3)) + 4 * rng.integers(2, size=40)[:, None]} for name in "abc"}
    model = fedhk.EFKMVC(2, random_state=0).fit(sites)
    later = {name: pd.DataFrame({"again": rng.random(40) < 0.3, "twice": rng.integers(2, size=40)}) for name in sites}
    later["b"].loc[7, "twice"] = 2
    found = fedhk.profile(model, {name: views | {"later": later[name]} for name, views in sites.items()}, secure=secure)
    lines = {row[0]: row[1:] for row in found.table().rows}
    assert [found.columns[place].name for place in found.binary] == ["again"]
    count = int(sum(frame["again"].sum() for frame in later.values()))
    assert lines["later: again = 1"][0].startswith(f"{count} (")
    assert "(" in lines["later: twice"][0]
    assert "[" not in "".join(lines["later: again = 1"])


def test_a_column_without_any_value_is_no_column_of_zeros_and_ones():
    model, sites, _ = make_federation()
    columns = {s: {"a": np.full(len(v["lab"]), np.nan), "b": np.arange(len(v["lab"]))} for s, v in sites.items()}
    found = fedhk.profile(model, {s: v | {"later": pd.DataFrame(columns[s])} for s, v in sites.items()})
    assert [found.columns[place].name for place in found.binary] == []
    assert "later: a  " in str(found)


def test_columns_of_numbers_may_have_the_same_name():
    model, sites, _ = make_federation()
    rng = np.random.default_rng(0)
    twice = {
        site: views | {"later": pd.DataFrame(rng.normal([0, 9], 1, (len(views["lab"]), 2)), columns=["a", "a"])}
        for site, views in sites.items()
    }
    found = fedhk.profile(model, twice)
    rows = [row for row in found.table().rows if row[0] == "later: a"]
    assert [row[1].split(".")[0].strip("−") for row in rows] == ["0", "9"]


def test_with_noise_all_rows_have_the_totals_of_each_level():
    rng = np.random.default_rng(0)
    sites = {site: {"record": make_hospital(500, 0.0, rng)[0]["record"]} for site in "abc"}
    model = fedhk.EFKMVC(2, scaling="standard", random_state=0).fit(sites)
    budget = DifferentialPrivacy(1e4, 1e-5, bounds=[([0, 0, 0, 1990], [120, 1, 1, 2020])])
    sexes = {}
    for name, privacy in (("plain", None), ("noisy", budget)):
        rows = fedhk.profile(model, sites, privacy=privacy).table().rows
        sexes[name] = [next(row[1] for row in rows if row[0].strip() == sex) for sex in "FM"]
    assert sexes["noisy"] == sexes["plain"]
    assert sexes["plain"][0] != sexes["plain"][1]


def test_columns_are_named_without_their_view_if_there_is_one_and_csv_has_plain_numbers():
    rng = np.random.default_rng(0)
    views = {"table": pd.DataFrame({"age": 4000 + rng.normal(size=1500), "loss": -3000 + rng.normal(size=1500)})}
    table = fedhk.profile(fedhk.HeatKernelMVC(2, random_state=0).fit(views), views).table()
    assert [row[0] for row in table.rows if row[0]] == ["rows", "age*", "loss*"]
    assert table.rows[0][1] == "1,500"
    lines = list(csv.reader(io.StringIO(table.to_csv())))
    assert lines[1][1] == "1500"
    assert lines[2][1].startswith("4000 (")
    assert lines[4][1].startswith("-3000 (")
    both = fedhk.profile(
        fedhk.HeatKernelMVC(2, random_state=0).fit(views), views | {"later": rng.normal(size=(1500, 1))}
    )
    assert both.table().rows[1][0] == "table: age*"


def test_zero_has_a_bin_of_its_own_and_rounding_is_not_shown():
    """Half of a column is zero, or all of it in one cluster, as in columns of words and of costs."""
    rng = np.random.default_rng(0)
    group = np.arange(900) % 3
    later = pd.DataFrame(
        {
            "cost": np.where(rng.random(900) < 0.5, 0.0, rng.uniform(0.3, 2.3, 900)),
            "word": np.where(group == 0, 0.0, rng.uniform(0.2, 0.5, 900)),
            "debt": np.where(group == 0, 0.0, -rng.uniform(0.2, 0.5, 900)),
        }
    )
    rows = rng.normal(size=(900, 2)) + 8 * group[:, None]
    views = {site: {"x": rows[part : part + 300]} for part, site in ((0, "a"), (300, "b"), (600, "c"))}
    sites = {
        site: own | {"later": later.iloc[part : part + 300]}
        for part, (site, own) in zip((0, 300, 600), views.items(), strict=True)
    }
    model = fedhk.EFKMVC(3, random_state=0).fit(views)
    labels = pooled_labels(model)
    for secure in (False, True):
        found = fedhk.profile(model, sites, secure=secure)
        exact = later.groupby(labels).quantile([0.25, 0.5, 0.75])
        for column in later:
            place, expected = place_of(found, column), exact[column].unstack().to_numpy().T
            assert_allclose(found.quartiles[:, :, place], expected, atol=0.05)
            assert np.array_equal(found.quartiles[:, :, place] == 0, expected == 0)
            assert_allclose(found.mean[:, place] == 0, later.groupby(labels)[column].mean() == 0)
        assert secure or "e−" not in str(found.table())
        assert any("read off histograms" in note for note in found.notes)


def test_no_rows_are_no_share():
    assert show_count(1e-13, 5, 100.0) == show_count(0.0, 5, 100.0) == "0 (0 %)"


def test_ones_of_nearly_all_rows_do_not_tell_the_few_zeros():
    model, sites, _ = make_federation()
    later = {site: pd.DataFrame({"alive": np.ones(len(model.labels_[site]))}) for site in sites}
    first = next(iter(sites))
    later[first].loc[np.flatnonzero(model.labels_[first] == 0)[:2], "alive"] = 0.0
    found = fedhk.profile(model, {site: views | {"later": later[site]} for site, views in sites.items()})
    line = next(row for row in found.table().rows if "alive = 1" in row[0])
    assert line[2] == "–"
    assert found.frame().query("column == 'alive' and cluster == 0")["mean"].isna().all()


def test_a_picture_has_one_line_for_a_category_with_two_levels():
    model, sites, _ = make_federation()
    found = fedhk.profile(model, sites)
    labels = [found.labels[place] for place in found.told_places]
    assert "sex = M" in labels
    assert "sex = F" not in labels
    drawn = fedhk.plot.profile(model, found=found).svg
    assert "sex = M*" in drawn
    assert "sex = F" not in drawn
