"""Pictures of what comes after a fit."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
    with pytest.raises(TypeError, match="with time and event, a Survival, got BinaryOutcome"):
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
