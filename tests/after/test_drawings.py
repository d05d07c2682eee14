"""Pictures of what comes after a fit."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import fedhk
from after.hospitals import make_federation
from fedhk import plot
from fedhk.privacy import DifferentialPrivacy


@pytest.fixture(scope="module")
def later():
    """Times and events of all rows, drawn without regard to clusters."""
    model, _, _ = make_federation()
    rng = np.random.default_rng(0)
    sizes = {site: len(labels) for site, labels in model.labels_.items()}
    return {
        "time": {site: rng.integers(1, 100, n) for site, n in sizes.items()},
        "event": {site: rng.integers(0, 2, n) for site, n in sizes.items()},
    }


@pytest.mark.parametrize("name", ["profile", "survival"])
def test_pictures_are_saved_and_go_on_given_axes(name, later, tmp_path):
    model, sites, _ = make_federation()
    options = later if name == "survival" else {}
    drawn = getattr(plot, name)(model, sites, **options)
    for suffix in ("svg", "html", "png", "pdf"):
        assert drawn.save(tmp_path / f"picture.{suffix}").stat().st_size > 1000
    ax = Figure().add_subplot()
    assert getattr(plot, name)(model, sites, ax=ax, **options).ax is ax
    assert getattr(plot, name)(model, sites, site="cairo", **options).svg != drawn.svg
    with pytest.raises(ValueError, match="give sites="):
        getattr(plot, name)(model, **options)
    with pytest.raises(ValueError, match="site='rome' is not in sites"):
        getattr(plot, name)(model, sites, site="rome", **options)


def test_the_name_of_an_axis_beside_long_names_of_columns_is_not_cut():
    model, sites, _ = make_federation()
    profile = fedhk.profile(model, sites)
    columns = [replace(column, name=f"{column.name} of all patients at admission") for column in profile.columns]
    axes = plot.profile(model, found=replace(profile, columns=columns)).ax
    label = axes.xaxis.label.get_window_extent(FigureCanvasAgg(axes.figure).get_renderer())
    assert 0 <= label.x0 < label.x1 <= axes.figure.bbox.x1


def test_drawing_spends_no_budget():
    model, sites, _ = make_federation()
    found = fedhk.profile(model, sites)
    private = fedhk.EFKMVC(3, privacy=DifferentialPrivacy(1.0, 1e-5, bounds=(0, 1)))
    private.__dict__.update(
        {key: value for key, value in vars(model).items() if key.startswith("_") or key.endswith("_")}
    )
    with pytest.raises(ValueError, match="fitted with privacy"):
        plot.profile(private, sites)
    assert plot.profile(private, found=found).svg


def test_what_is_no_survival_is_not_drawn(later):
    model, sites, _ = make_federation()
    found = fedhk.outcomes(model, sites, event=later["event"])
    with pytest.raises(TypeError, match=r"a Survival, which fedhk.outcomes gives with time and .* got BinaryOutcome"):
        plot.survival(model, found=found)


def test_a_consensus_map_shows_every_pair_of_clusters(tmp_path):
    model, sites, _ = make_federation()
    found = fedhk.stability(model, sites, n_resamples=4)
    drawn = plot.stability(model, found=found)
    assert drawn.svg.count("clusters 0 and 2") == 1
    assert drawn.save(tmp_path / "map.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="give sites="):
        plot.stability(model)


def test_every_survival_curve_ends_with_the_number_of_its_cluster(later):
    model, sites, _ = make_federation()
    drawn = plot.survival(model, sites, **later)
    assert set(re.findall(r'class="number[^"]*" data-k="(\d)"', drawn.svg)) == {"0", "1", "2"}


def test_cells_of_a_consensus_map_have_no_colour_of_their_own():
    model, sites, _ = make_federation()
    drawn = plot.stability(model, found=fedhk.stability(model, sites, n_resamples=4, leave_sites_out=False))
    cells = re.search(r'<g class="map">(.*?)</g>', drawn.svg, re.DOTALL)[1]
    opacities = [float(share) for share in re.findall(r'fill-opacity="([\d.]+)"', cells)]
    assert len(opacities) == 9  # the style sheet fills them, so that dark pages stay dark
    assert max(opacities) > 0.9
    assert min(opacities) < 0.1


def test_columns_of_one_name_are_told_apart_by_their_view():
    model, sites, _ = make_federation()
    found = fedhk.profile(model, sites)
    first, *rest = found.columns
    twins = replace(found, columns=[first, replace(first, view="other view"), *rest[1:]])
    assert twins.labels[:2] == [f"{first.view}: {first.label}", f"other view: {first.label}"]
    assert found.labels == [column.label for column in found.columns]


def measure_texts(drawn):
    """The box of each text that a drawing shows, in pixels of the figure."""
    figure = drawn.figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.canvas.draw()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


def find_hidden_texts(drawn):
    """Texts that are cut by the edge of the figure, and pairs of which one hides the other."""
    boxes, frame = measure_texts(drawn), drawn.figure.bbox
    cut = [text for text, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > frame.x1 or box.y1 > frame.y1]
    pairs = itertools.combinations(boxes, 2)
    return cut, [(a, b) for (a, one), (b, other) in pairs if one.shrunk(0.9, 0.6).overlaps(other.shrunk(0.9, 0.6))]


@pytest.mark.parametrize(("rows", "unit"), [(1, 1), (30, 1000), (5000, 1e6)])
def test_numbers_at_risk_are_told_apart_however_many_rows_there_are(later, rows, unit):
    model, sites, _ = make_federation()
    times = {site: unit * values for site, values in later["time"].items()}
    found = fedhk.outcomes(model, sites, time=times, event=later["event"], grid=unit * np.arange(101))
    drawn = plot.survival(model, found=replace(found, at_risk=rows * found.at_risk))
    assert find_hidden_texts(drawn) == ([], [])


def test_names_beside_ribbons_are_told_apart_and_few_ribbons_cross():
    model, sites, _ = make_federation()
    found = fedhk.compare(model, model, sites)
    counts = np.zeros((8, 16))
    counts[0, 3], counts[7, 0] = 4000, 5000
    counts[np.arange(8), np.arange(15, 7, -1)] = 10
    drawn = plot.comparison(model, found=replace(found, counts=counts))
    assert find_hidden_texts(drawn) == ([], [])
    names = sorted((-box.y1, text) for text, box in measure_texts(drawn) if text.startswith("other"))
    rows = [text for _, text in names]
    assert rows.index("other 3") < rows.index("other 14") < rows.index("other 0")


def test_ribbons_that_noise_may_have_made_are_not_drawn():
    model, sites, _ = make_federation()
    found = replace(fedhk.compare(model, model, sites), counts=np.array([[400.0, 19.0], [-7.0, 300.0]]), noise=10.0)
    titles = re.findall(r"cluster \d to other \d: [^<]+", plot.comparison(model, found=found).svg)
    assert titles == ["cluster 0 to other 0: 400 rows", "cluster 1 to other 1: 300 rows"]


def test_numbers_below_a_map_of_many_clusters_are_told_apart():
    model, sites, _ = make_federation()
    found = fedhk.stability(model, sites, n_resamples=2, leave_sites_out=False)
    many = replace(found, consensus=np.eye(24), halves=np.ones((1, 24)), jaccard=np.ones((2, 24)), rows=np.ones(24))
    assert find_hidden_texts(plot.stability(model, found=many)) == ([], [])


@pytest.mark.parametrize("name", ["profile", "survival", "stability", "comparison"])
def test_what_is_no_answer_is_not_drawn(name):
    model, _, _ = make_federation()
    with pytest.raises(TypeError, match=r"found must be a .*, which fedhk.* got int"):
        getattr(plot, name)(model, found=3)


def test_a_report_takes_answers_only():
    model, sites, _ = make_federation()
    with pytest.raises(TypeError, match=r"found has a int; it takes what fedhk\.profile"):
        plot.report(model, sites, found=3)


def test_outcomes_that_nobody_has_are_drawn_and_said_to_be_nothing(later):
    model, sites, _ = make_federation()
    nothing = {site: np.full(len(values), np.nan) for site, values in later["event"].items()}
    none = {site: np.zeros(len(values)) for site, values in later["event"].items()}
    found = [fedhk.outcomes(model, sites, time=nothing, event=none)]
    found += [fedhk.outcomes(model, sites, time=later["time"], event=none), fedhk.outcomes(model, sites, event=none)]
    page = plot.report(model, sites, found=found).page
    assert page.count("cannot be compared with the others: there are too few events, or it is alone at its sites.") == 6
    assert page.count("there is nothing to compare.") >= 3
