"""Pictures of what comes after a fit."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

import fedhk
from after.hospitals import make_federation
from fedhk import plot
from fedhk.privacy import DifferentialPrivacy


@pytest.mark.parametrize("name", ["profile"])
def test_pictures_are_saved_and_go_on_given_axes(name, tmp_path):
    model, sites, _ = make_federation()
    drawn = getattr(plot, name)(model, sites)
    for suffix in ("svg", "html", "png", "pdf"):
        assert drawn.save(tmp_path / f"picture.{suffix}").stat().st_size > 1000
    ax = Figure().add_subplot()
    assert getattr(plot, name)(model, sites, ax=ax).ax is ax
    assert getattr(plot, name)(model, sites, site="cairo").svg != drawn.svg
    with pytest.raises(ValueError, match="give sites="):
        getattr(plot, name)(model)
    with pytest.raises(ValueError, match="site='rome' is not in sites"):
        getattr(plot, name)(model, sites, site="rome")


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
