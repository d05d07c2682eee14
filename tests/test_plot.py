"""Figures in notebooks."""

from __future__ import annotations

import inspect
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

import fedhk
from fedhk import plot
from fedhk.datasets import make_sites
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy
from fedhk.report.rows import read_fitted
from report.pages import HOSTILE, Page, dots


@pytest.fixture(scope="module")
def sites():
    return make_sites(3, 60, n_clusters=3, shift=1.5, random_state=0).sites


@pytest.fixture(scope="module")
def model(sites):
    return fedhk.FedHKPerson(3, random_state=0).fit(sites)


NEED_ROWS = {"view_map": {"view": 1}, "gains": {}, "profile": {}}
DRAWN = ("convergence", "traffic", "certainty", "cluster_sizes", "view_weights", "cluster_features", *NEED_ROWS)


def drawn(name, model, sites):
    options = NEED_ROWS[name] | {"sites": sites} if name in NEED_ROWS else {}
    return getattr(plot, name)(model, **options)


@pytest.mark.parametrize("name", DRAWN)
def test_drawings_are_shown_and_saved(model, sites, tmp_path, name):
    figure = drawn(name, model, sites)
    assert figure.svg in figure._repr_html_()
    root = ElementTree.parse(figure.save(tmp_path / "figure.svg")).getroot()  # noqa: S314 - our own file
    assert root.get("class") == "fedhk"
    assert figure.html in figure.save(tmp_path / "figure.html").read_text("utf-8")


def test_a_report_is_saved_as_a_page_only(model, sites, tmp_path):
    page = plot.report(model, sites)
    assert page.ax is page.figure is page.svg is None
    page.save(tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"must end in \.html\."):
        page.save(tmp_path / "page.svg")


@pytest.mark.parametrize("name", DRAWN)
def test_drawings_go_on_given_axes_and_show_their_own(model, sites, tmp_path, name):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    made = getattr(plot, name)(model, sites, ax=right)
    assert made.ax is right
    assert made.figure is figure
    assert right.has_data()
    assert not left.has_data()
    own = getattr(plot, name)(model, sites)
    assert own.figure is not figure
    own.figure.savefig(tmp_path / "figure.png")  # an ordinary figure of matplotlib


def test_all_functions_have_the_same_arguments_first():
    for name in plot.__all__:
        parameters = inspect.signature(getattr(plot, name)).parameters
        if name != "Plot":
            assert list(parameters)[:2] == ["model", "sites"]
            assert [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD] == ["model", "sites"]
            assert "site" in parameters
            assert ("ax" in parameters) == (name in (*DRAWN, "comparison", "selection", "stability", "survival"))


def test_numbers_of_clusters_that_were_tried_are_drawn(model, sites):
    found = fedhk.EFKMVC((2, 5), n_init=2, random_state=0).fit(sites)
    figure = plot.selection(found)
    assert figure.svg.count("clusters: score") == 8
    assert "What speaks for each number" in figure.html
    assert "How many clusters there are" in plot.report(found, sites).page
    with pytest.raises(ValueError, match="its number was given"):
        plot.selection(model)


def widths(axes):
    """The width of each bar, by line and in the order in which they were drawn."""
    lines = {}
    for bar in axes.patches:
        lines.setdefault(round(bar.get_y() + bar.get_height() / 2), []).append(bar.get_width())
    return [lines[line] for line in sorted(lines)]


def test_bars_are_the_shares_of_each_site(model, sites):
    found = widths(plot.cluster_sizes(model).ax)
    counted = [np.bincount(model.labels_[name], minlength=3) for name in sites]
    np.testing.assert_allclose(found, [sizes / sizes.sum() for sizes in counted])
    assert len(widths(plot.cluster_sizes(model, sites, site="site-01").ax)) == 1


def test_of_many_sites_the_largest_are_drawn_and_the_table_has_all():
    rng = np.random.default_rng(0)
    sites = {f"s{i:02}": [rng.normal(size=(10 + i, 2))] for i in range(30)}
    figure = plot.cluster_sizes(fedhk.EFKMVC(2, n_init=2, max_rounds=2, tol=0, random_state=0).fit(sites))
    labels = [label.get_text() for label in figure.ax.get_yticklabels()]
    assert labels == [f"s{i:02}" for i in range(6, 30)]
    assert figure.html.count("<tr>") == 1 + 30


def test_weights_are_drawn_by_view_with_those_of_own_models(model, sites):
    axes = plot.view_weights(model).ax
    np.testing.assert_allclose(np.ravel(widths(axes)), model.view_weights_)
    dots = axes.collections[0].get_offsets()
    assert len(dots) == len(sites) * len(model.view_weights_)


def test_discs_are_how_far_centres_are_from_the_mean(model, sites):
    figure = plot.cluster_features(model, sites, cluster=1)
    view = read_fitted(model, sites, None).views
    away = np.concatenate([part.deviations(part.centers)[1] for part in view])
    drawn_at = figure.ax.collections[0].get_offsets()[:, 0]
    np.testing.assert_allclose(np.abs(drawn_at), np.sort(np.abs(away))[::-1][: len(drawn_at)])


def test_a_map_has_every_row_of_few(model, sites):
    assert dots(plot.view_map(model, sites).svg) == sum(len(views[0]) for views in sites.values())
    assert dots(plot.view_map(model).svg) == 0


def test_a_map_of_a_site_has_its_rows_alone(model, sites):
    assert dots(plot.view_map(model, sites, site="site-01").svg) == len(sites["site-01"][0])


def test_what_cannot_be_drawn_is_refused_by_name(model, sites, tmp_path):
    with pytest.raises(ValueError, match="view='x' is not a view"):
        plot.view_map(model, view="x")
    with pytest.raises(ValueError, match="cluster=3 must be from 0 to 2"):
        plot.cluster_features(model, cluster=3)
    with pytest.raises(DataError, match="site='x' is not in this model"):
        plot.certainty(model, site="x")
    with pytest.raises(DataError, match="the model was fitted to"):
        plot.view_map(model, {name: [view[1:] for view in views] for name, views in sites.items()})
    with pytest.raises(NotFittedError):
        plot.convergence(fedhk.EFKMVC(3))
    model.save(tmp_path / "model.safetensors")
    loaded = fedhk.load(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="no memberships to draw"):
        plot.certainty(loaded)
    assert plot.view_map(loaded, sites).svg  # rows are placed by it
    with pytest.raises(ValueError, match="give sites="):
        plot.gains(model)
    assert plot.convergence(loaded).svg


def test_one_site_needs_no_federation():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    table = fedhk.HeatKernelMVC(2, random_state=0).fit(rows)
    assert plot.report(table, rows).page.count("<figure") == 3  # map, certainty, convergence
    views = fedhk.HeatKernelMVC(2, random_state=0).fit([rows, rows[:, :1]])
    page = plot.report(views, [rows, rows[:, :1]]).page
    assert "the height of a dot means nothing" in page
    with pytest.raises(ValueError, match="no traffic to draw"):
        plot.traffic(table)


def test_a_data_frame_is_drawn_without_a_warning_about_its_names():
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["age", "height", "weight"])
    model = fedhk.HeatKernelMVC(2, random_state=0).fit(table)
    assert plot.view_map(model, table).ax is not None


def test_sparse_text_and_tensors_are_drawn():
    scipy = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    text = scipy.random(50, 30, density=0.3, random_state=1, format="csr")
    images = rng.normal(size=(50, 4, 3))
    model = fedhk.HeatKernelMVC(2, scaling="l2", random_state=0).fit([text, images])
    page = plot.report(model, [text, images]).page
    assert "divided by their length" in page
    assert "[3, 2]" in page or "[0, 0]" in page or "[1, " in page


def test_the_page_says_which_numbers_are_roots():
    rng = np.random.default_rng(0)
    edges, ages = rng.gamma(0.5, size=(60, 20)), 50 + rng.normal(size=(60, 3))
    model = fedhk.HeatKernelMVC(2, scaling="magnitude", n_init=2, random_state=0).fit({"edges": edges, "ages": ages})
    page = plot.report(model, {"edges": edges, "ages": ages}).page
    assert "Numbers of edges and ages are square roots of the cells." in page


def test_each_view_is_drawn_in_the_form_in_which_the_model_sees_it():
    """Centres lie among the rows of their cluster, also where one view is tf-idf and the other as it came."""
    scipy = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 60)
    rates = np.where(group[:, None] == np.arange(120) % 2, 0.12, 0.005) * rng.lognormal(0, 0.7, (120, 1))
    words = scipy.csr_array(rng.poisson(rates))
    numbers = 100.0 + 10 * group[:, None] + rng.normal(size=(120, 3))
    views = {"words": words, "numbers": numbers}
    model = fedhk.HeatKernelMVC(2, random_state=0).fit(views)
    facts = read_fitted(model, views)
    assert [view.form.is_plain for view in facts.views] == [False, True]
    for view in facts.views:
        table = facts.sites[0].rows.tables[view.name]
        means = np.array([table[model.labels_ == k].mean(axis=0) for k in range(2)])
        assert np.abs(view.deviations(means) - view.deviations(view.centers)).max() < 0.2
    given = facts.sites[0].rows.views_of(model)
    assert np.array_equal(model.predict(given), model.labels_)


def test_figures_of_a_private_model_keep_to_what_was_released():
    sites = make_sites(3, 300, n_clusters=2, random_state=0).sites
    budget = DifferentialPrivacy(epsilon=40.0, delta=1e-5, bounds=(-30, 30))
    model = fedhk.EFKMVC(2, privacy=budget, random_state=0).fit(sites)
    for draw in (plot.certainty, plot.cluster_sizes):
        with pytest.raises(ValueError, match="only a site may see its labels"):
            draw(model)
        assert draw(model, site="site-01").html
    assert "Centres only" in plot.view_map(model, sites).html
    own = plot.view_map(model, sites, site="site-01").html
    assert "Centres only" not in own
    assert dots(own) == len(model.labels_["site-01"])


def test_hostile_names_of_a_real_fit_are_text(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    sites = {
        f"{HOSTILE}{s}": {HOSTILE: pandas.DataFrame(rng.normal(size=(40, 2)), columns=[HOSTILE, "b"])} for s in range(2)
    }
    model = fedhk.EFKMVC(2, random_state=0).fit(sites)
    page = Page(plot.report(model, sites).save(tmp_path / "page.html").read_text("utf-8"))
    assert page.count("script") == 2
    assert HOSTILE in page.words
