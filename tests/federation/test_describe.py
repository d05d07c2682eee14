"""Sites whose views are tensors describe their shapes; what differs is refused, at the start and later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federations import TestEngine, make_plan, run_sites
from fedhk.data.views import check_views
from fedhk.errors import MessageError
from fedhk.federation.describe import _read_view


@pytest.fixture
def sites():
    rng = np.random.default_rng(0)
    return {
        name: {"ecg": rng.normal(size=(8, 3, 2)), "age": rng.normal(size=(8, 1))} for name in ("bern", "oslo", "rome")
    }


def with_rome(sites, odd, **options):
    engine = TestEngine(sites, **options)
    engine.engine.states["rome"] = replace(engine.engine.states["rome"], views=check_views(odd))
    run, _ = run_sites(make_plan(n_clusters=2, max_rounds=3), engine)
    return run


@pytest.mark.parametrize(("shape", "width"), [((3, 2), 6), ((1, 2), 2), ((2, 1, 1), 2), ((1, 1), 1)])
def test_shapes_are_read(shape, width):
    assert _read_view(["ecg", width, list(shape)], "rome") == ("ecg", (width, shape))


@pytest.mark.parametrize("shape", [[6], [4, 2], [-3, -2], [3, 2.0], [6, True], [3, "2"], [], [0, 6], [1] * 70 + [6]])
def test_what_is_no_shape_of_the_width_is_refused(shape):
    with pytest.raises(MessageError, match="not described as name, width, and columns or shape"):
        _read_view(["ecg", 6, shape], "rome")


def test_a_site_with_another_shape_is_refused_with_both(sites):
    for shape, text in (((2, 3), "(n, 2, 3)"), ((3, 3), "(n, 3, 3)")):
        run = with_rome(sites, {"ecg": np.ones((8, *shape)), "age": np.ones((8, 1))})
        assert run.history[0]["refused"]["rome"] == f"view 'ecg' has shape {text}, other sites have shape (n, 3, 2)"
        assert run.state.columns == ((3, 2), None)


def test_a_site_with_flat_rows_agrees_with_any_shape(sites):
    run = with_rome(sites, sites["rome"] | {"ecg": sites["rome"]["ecg"].reshape(8, 6)})
    assert run.history[0]["refused"] == {}
    assert run.state.columns == ((3, 2), None)


def test_a_late_site_with_another_shape_is_refused_with_both(sites):
    odd = sites["rome"] | {"ecg": sites["rome"]["ecg"].transpose(0, 2, 1)}
    run = with_rome(sites, odd, present=lambda n: [site for site in sites if site != "rome" or n > 3])
    expected = "view 'ecg' has rows of shape (2, 3) here, (3, 2) in the model"
    assert run.history[2]["refused"]["rome"].endswith(expected)
