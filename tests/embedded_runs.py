"""Runs on embedded rows for tests: sites, boards with anchors that do not depend on the split, and lists of phases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from federations import frame_phases, make_settings, run_sites
from fedhk.data.views import check_views
from fedhk.embedding.map import DiffusionMap
from fedhk.embedding.options import SYNTHETIC, Diffusion
from fedhk.federation.aggregators import SumAggregator
from fedhk.federation.entries import References, Schema
from fedhk.federation.phases.anchors import Anchors, ChooseAnchors, RowMeans, TieRows
from fedhk.federation.phases.cluster_means import FinishEmbedded
from fedhk.federation.phases.deliver import Deliver
from fedhk.federation.phases.describe import Describe
from fedhk.federation.phases.diffuse import Diffuse, Embedding
from fedhk.federation.phases.mixture import FindDirections, FitMixture
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.protocols.base import RoundContext
from fedhk.federation.protocols.statistics import Statistics
from fedhk.federation.run import Run
from fedhk.federation.site import Site
from fedhk.model.rows import Rows, joint_rows
from fedhk.personal.options import GradientStep
from fedhk.starts.candidates import Candidates, candidate_rows, site_candidates

# A diffusion over means of rows, without groups of anchors.
ONE = Diffusion(anchors="means", groups=False)
SMALL = replace(ONE, n_anchors=40)


def make_views(n=240, *, seed=0, missing=False, apart=5.0):
    """Views of rows in three clusters, and their labels."""
    n_clusters, widths = 3, (4, 3)
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_clusters, size=n)
    views = [apart * rng.normal(size=(n_clusters, width))[labels] + rng.normal(size=(n, width)) for width in widths]
    if missing:
        views[0][rng.random(views[0].shape) < 0.1] = np.nan
        views[1][rng.random(n) < 0.2] = np.nan
    return views, labels


def take_views(views, indices):
    """Some of the rows."""
    return [None if view is None else view[indices] for view in views]


def describe(sites, n_clusters=3):
    """The board of a run whose sites have described themselves."""
    return run_sites([Describe(make_settings(n_clusters))], sites)[0].board


def rows_of(board, views):
    """Rows in the units of a run."""
    return Rows(check_views(views), board.get(References).references)


def start_diffusion(views, n_clusters=3, diffusion=SMALL):
    """The board with anchors made of candidates of all rows: the same however rows are split later."""
    board = describe({"all": views}, n_clusters or 1)
    found = site_candidates(rows_of(board, views), 100, np.random.RandomState(0))
    candidates = candidate_rows([found], board.get(References).references, board.get(Schema).names)
    kept = RowMeans(Candidates(joint_rows(candidates), candidates.sample_weight, candidates.spread))
    return TieRows(diffusion, n_clusters, 0).begin(board.put(kept))


def make_diffuse(n_clusters=3, **options):
    """The phase that embeds rows."""
    return Diffuse(make_settings(n_clusters), Statistics(), 0, **options)


def run_diffusion(board, sites, n_clusters=3, **options):
    """The board once rows are embedded, over encoded messages."""
    return run_sites([make_diffuse(n_clusters, **options)], sites, run=Run(board=board))[0].board


def map_of(board):
    """The embedding that was published."""
    embedding = board.get(Embedding)
    return DiffusionMap(board.get(Anchors).graph, embedding.projection, embedding.values)


def site_with(board, views, name="oslo"):
    """A site that has all that was published."""
    schema, references = board.get(Schema), board.get(References)
    checked = check_views(views, names=schema.names, widths=references.widths, missing_views=True)
    return Site(name, checked, board=board)


def make_phases(
    n_clusters=3, *, diffusion=None, calibration=None, max_rounds=5, tol=0.0, deliver=False, options=None, **changes
):
    """The phases of a run on embedded rows; `options` are those of `Diffuse`."""
    settings, protocol, aggregator = make_settings(n_clusters or 1, **changes), Statistics(), SumAggregator()
    diffusion = diffusion or ONE
    given = {"diffusion": diffusion, "n_clusters": n_clusters}
    anchors = [ChooseAnchors(settings, protocol, aggregator, 0, **given)]
    if diffusion.anchors == SYNTHETIC:
        anchors = [FindDirections(0), FitMixture(n_clusters, 0)]
    frame = [] if calibration is None else frame_phases(settings, calibration, aggregator, offsets=False)
    phases = [
        Describe(settings),
        *frame,
        *anchors,
        TieRows(diffusion, n_clusters, 0),
        Diffuse(settings, protocol, 0, **options or {}),
        Rounds(protocol, RoundContext(settings, aggregator), max_rounds, tol),
        FinishEmbedded(),
    ]
    return [*phases, Deliver(GradientStep(0.0), learn_weights=False)] if deliver else phases


def without_view(views, view):
    """The views of a site that lacks one."""
    return [None if number == view else table for number, table in enumerate(views)]
