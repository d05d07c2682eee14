"""Random model states for property tests: views, references, parameters, in every combination that must work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from fedhk.data.views import check_views
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows


@dataclass(frozen=True)
class Case:
    rows: Rows
    parameters: Parameters
    views: list[np.ndarray]
    sample_weight: np.ndarray | None


@st.composite
def cases(draw, min_rows=1):
    """A case, all of it from one seed and a few switches, so that it shrinks well."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = draw(st.integers(max(min_rows, 2), 40))
    n_clusters = draw(st.integers(1, 6))
    widths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    size = 10.0 ** draw(st.integers(-20, 20))
    offset = draw(st.sampled_from([0.0, 1.0, 1e3]))
    centers = rng.normal(size=(n_clusters, sum(widths))) * 3
    joint = centers[rng.integers(n_clusters, size=n_rows)] + rng.normal(size=(n_rows, sum(widths)))
    views = [size * (offset + part) for part in np.split(joint, np.cumsum(widths)[:-1], axis=1)]
    if draw(st.booleans()):
        for view in views:
            view[rng.random(view.shape) < 0.2] = np.nan
        views[-1][rng.random(n_rows) < 0.3] = np.nan
    for view in views:  # every feature keeps a value, or there is nothing to scale by
        view[0] = np.where(np.isnan(view[0]), size * offset, view[0])
    weight = rng.integers(0, 3, n_rows) + (np.arange(n_rows) == 0) if draw(st.booleans()) else None
    weight = None if weight is None else weight.astype(float)
    scaling = draw(st.sampled_from(["standard", "minmax", "none", "l2"]))
    heat_coef = draw(st.sampled_from(["uniform", "minmax", "absdev"]))
    checked = check_views(views)
    references = prepare(checked, scaling, heat_coef, weight)
    weights = rng.dirichlet(np.ones(len(widths)))
    parameters = Parameters(
        centers=tuple(rng.normal(size=(n_clusters, width)) / np.sqrt(width) for width in widths),
        view_weights=weights,
        heat_time=10.0 ** draw(st.floats(-4, 1)),
        fuzzifier=draw(st.sampled_from([1.02, 1.08, 1.25, 2.0, 3.0])),
        view_exponent=draw(st.sampled_from([1.2, 2.0, 6.0])),
        view_shares=np.array([reference.share for reference in references]),
    )
    return Case(Rows(checked, references, weight), parameters, views, weight)
