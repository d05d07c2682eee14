"""Models, sites and own models for the tests of what a site may have of its own; no estimator is needed for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhk import datasets
from fedhk.data.scaling import make_scaling
from fedhk.data.views import check_views
from fedhk.model.descent import minimise
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.personal.component import PASSES, OwnModel, fit_components
from fedhk.personal.factors import choose_centers
from fedhk.personal.offset import Shift
from fedhk.personal.sizes import Sizes
from fedhk.personal.spread import Spread
from fedhk.personal.view_weights import ViewWeights
from fedhk.starts.settings import Settings


def scan(rows, parameters):
    with Passes(rows, parameters.n_clusters) as passes:
        return passes.statistics(parameters)


def assign(rows, parameters):
    with Passes(rows, parameters.n_clusters) as passes:
        return passes.assign(parameters)


def settings(n_clusters, **changes):
    defaults = {
        "heat_coef": "uniform", "scaling": "standard", "heat_time": 0.3, "fuzzifier": None, "view_weights": "auto",
        "view_exponent": 2.0, "init": "k-means++", "n_init": 20,
    }  # fmt: skip
    chosen = defaults | changes
    return Settings(n_clusters, **chosen | {"scaling": make_scaling(chosen["scaling"])})


def fit_model(views, n_clusters):
    """A model of rows, as `HeatKernelMVC(n_clusters, random_state=0)` fits it, and the cluster of each row."""
    checked = check_views(views)
    rows = Rows(checked, prepare(checked, "standard", "uniform", None))
    seed = np.random.default_rng(0).integers(2**31)
    start = settings(n_clusters).start(rows, np.random.RandomState(seed), 1)
    with Passes(rows, n_clusters) as passes:
        progress, _ = minimise(passes.statistics, start, learn_weights=False, max_iter=100, tol=1e-5)
    model = FittedModel(progress.parameters, rows.references, checked.names, checked.columns)
    return model, assign(rows, progress.parameters)[1]


def plain_rows(views):
    """Rows that are in model units as they are."""
    checked = check_views([np.asarray(view, dtype=float) for view in views])
    references = prepare(checked, "none", "uniform", None)
    plain = [replace(r, shift=np.zeros(r.width), scale=np.ones(r.width)) for r in references]
    return Rows(checked, tuple(plain))


def two_clusters(first, second, fuzzifier=1.25):
    centers = np.array([np.atleast_1d(first), np.atleast_1d(second)], dtype=float)
    return Parameters((centers,), np.ones(1), 0.3, fuzzifier, 2.0, np.ones(1))


def moved_site(seed, n=200, shift=0.0):
    """Rows of the clusters of `three_clusters`, all moved by `shift` in every feature."""
    data = three_clusters()
    rows = np.random.default_rng(seed).choice(600, n, replace=False)
    noise = np.random.default_rng(seed).normal(scale=0.5, size=(n, 10))
    return [view[rows] + part + shift for view, part in zip(data.views, np.split(noise, [6], axis=1), strict=True)]


def three_clusters():
    return datasets.make_sites(1, 600, n_clusters=3, n_features=(6, 4), shift=0, scale=0, random_state=0)


def own_model(
    rows, common, summary=None, *, shift="auto", spread="auto", sizes="auto", centers="auto", center_pull=None,
    view_weights="auto", view_pull=None, learn_weights=False, passes=PASSES,
):  # fmt: skip
    """A site's own model with given shares and pulls."""
    pulled = (centers, 0.0) if center_pull is None else (1.0, center_pull)
    components = [Shift(share=shift), choose_centers(common, *pulled)]
    if summary is not None:
        components.append(Sizes(share=sizes, summary=summary))
    if learn_weights:
        share, pull = (view_weights, 0.0) if view_pull is None else (1.0, view_pull)
        components.append(ViewWeights(share=share, pull=pull))
    own = OwnModel.start(rows, common)
    if summary is not None and spread == "auto":
        own = Spread(summary=summary).fit_rows(own)
    return fit_components(own, components, passes=passes)


def own_of(model, views, **given):
    """A site's own model from its views, and its rows."""
    rows = Rows(check_views(views, min_rows=0), model.references)
    return own_model(rows, model.parameters, **given), rows


def site_rows(pool, seed, n=300, factors=None, *, clusters=None, change=None):
    """Some rows of the fixture `pool`, features multiplied by factors and moved."""
    data, model, _, _ = pool
    rng = np.random.default_rng(seed)
    allowed = np.flatnonzero(np.isin(data.labels, clusters)) if clusters else np.arange(len(data.labels))
    chosen = rng.choice(allowed, n, replace=False)
    joint = np.hstack(data.views)[chosen]
    if factors is not None:
        joint = joint * factors + 0.5
    if change is not None:
        change(joint, rng)
    return Rows(check_views([joint[:, :5], joint[:, 5:]]), model.references)
