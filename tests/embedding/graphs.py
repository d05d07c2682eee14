"""Rows and graphs of anchors for the tests of embeddings."""

from __future__ import annotations

import numpy as np

from fedhk.data.views import check_views
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import complete_candidates, make_anchors
from fedhk.embedding.options import Diffusion
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows

SEED = 7


def make_rows(views, scaling="standard"):
    checked = check_views([np.asarray(view, float) for view in views])
    return Rows(checked, prepare(checked, scaling, "uniform", None))


def random_rows(n=90, widths=(3, 2), seed=0):
    rng = np.random.default_rng(seed)
    return make_rows([rng.normal(size=(n, width)) for width in widths])


def make_graph(anchors, **changes):
    """A graph of given anchors with the default ties."""
    options = Diffusion(**changes)
    return AnchorGraph(anchors, options.neighbours, options.scale, options.joint_weight)


def graph_of(rows, n_anchors=20, **changes):
    """A graph of anchors made of the rows."""
    anchors = make_anchors(complete_candidates(rows), n_anchors, rows.references, np.random.RandomState(SEED))
    return make_graph(anchors, **changes)
