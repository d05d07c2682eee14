"""What the server does in the diffusion stage: anchors from candidates, eigenvectors from sums over sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import anchor_count, complete_candidates
from fedhk.embedding.diffusion import (
    EXTRA_DIRECTIONS,
    Diffusion,
    DiffusionSettings,
    embedded,
    make_graph,
    rows_of,
    stand_in_affinities,
)
from fedhk.embedding.spectrum import eigengap, gram_ritz, product_sensitivity, ritz, start_directions, unit_columns
from fedhk.errors import DataError, MessageError
from fedhk.federation.diffusion.state import Stage
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.payloads import MOST_ROWS, Arrays, Values
from fedhk.federation.precision import as_sent, pack_rounded
from fedhk.model.joint import split_joint
from fedhk.model.rows import Rows

# Precision of anchors, directions and the embedding on their way to sites: all use them as they are read, so that
# rounding them loses nothing that is exact. Sums from sites are in double precision.
TOLD = "half"
TOLD_BYTES, SUM_BYTES = 2, 8

# Exchanges that eigenvectors usually take, when the bytes of both ways are compared.
USUAL_EXCHANGES = 3

# Most clusters that "auto" looks for.
MOST_CLUSTERS = 10

ROUNDING = 1e-6


def begin(
    candidates: Rows,
    references: tuple[Reference, ...],
    n_clusters: int | None,
    n_rows: float,
    settings: DiffusionSettings,
    *,
    seed: int,
) -> Stage:
    """The stage with anchors and the first question.

    Parameters
    ----------
    candidates : Rows
        Candidates of all sites, in the frame in which sites will have their rows.
    references : tuple of Reference
        The common ones of that frame; where rows have length 1, so have anchors.
    n_clusters : int or None
        Number of clusters; None chooses it by the eigengap.
    n_rows : float
        Rows of all sites.
    settings : DiffusionSettings
        What was chosen.
    seed : int
        Seed of all that is drawn.
    """
    wanted = MOST_CLUSTERS + 1 if n_clusters is None else n_clusters
    complete = complete_candidates(candidates)
    graph = make_graph(complete, references, anchor_count(wanted, n_rows, settings.n_anchors), settings, seed)
    joint = as_sent(np.hstack(graph.anchors), TOLD)
    graph = replace(graph, anchors=split_joint(np.unique(joint, axis=0), candidates.widths))
    if n_clusters is not None and graph.n_columns < n_clusters:
        raise DataError(
            f"n_clusters={n_clusters}, but the sites' rows give {graph.n_anchors} different anchors with "
            f"{graph.n_columns} columns: there are too few different rows."
        )
    wanted = min(wanted, graph.n_columns)
    stand_ins = stand_in_affinities(graph, complete, seed)
    if _gram_is_smaller(graph, wanted):
        directions: FloatArray = np.zeros((graph.n_columns, 0))
    else:  # where rows that stand in for those of the sites say that heat stays longest
        directions = as_sent(start_directions(stand_ins, wanted + EXTRA_DIRECTIONS), TOLD)
    return Stage(settings, wanted, graph, directions, stand_ins=stand_ins)


def _gram_is_smaller(graph: AnchorGraph, n_wanted: int) -> bool:
    """Whether the whole Gram matrix costs a site fewer bytes than products with directions do."""
    columns = graph.n_columns
    one = columns * (n_wanted + EXTRA_DIRECTIONS) * (SUM_BYTES + TOLD_BYTES)
    return columns * (columns + 1) // 2 * SUM_BYTES < USUAL_EXCHANGES * one


def tell(stage: Stage, *, holds: bool) -> tuple[Arrays, Values]:
    """What the server asks next, for a site that has the anchors, or has not."""
    arrays, values = ({}, {}) if holds else _told_graph(stage.graph)
    if not stage.asks_gram:
        arrays |= pack_rounded("directions", stage.directions, TOLD)
    return arrays, values


def _told_graph(graph: AnchorGraph) -> tuple[Arrays, Values]:
    arrays = pack_rounded("anchors", np.hstack(graph.anchors), TOLD)
    return arrays, {"graph": [graph.neighbours, graph.scale, graph.joint_weight]}


def told_diffusion(stage: Stage, *, holds: bool) -> tuple[Arrays, Values]:
    """The embedding, for the first round of a site that has the anchors, or has not."""
    if stage.diffusion is None:
        raise MessageError("the server has no embedding yet")
    arrays, values = ({}, {}) if holds else _told_graph(stage.graph)
    arrays |= pack_rounded("projection", stage.diffusion.projection, TOLD)
    return arrays, values | {"eigenvalues": stage.diffusion.values.tolist()}


def read(stage: Stage, reply: Message) -> FloatArray:
    """A site's sum as a matrix, checked: as many numbers as were asked for, and none that rows cannot have."""
    check_arrays(reply, {"sum": ArraySpec((stage.size,), ("float64",))})
    total = as_matrix(stage, np.asarray(reply.arrays["sum"], np.float64))
    if stage.known:
        rows = float(stage.known[0][1][:, 0].sum())  # of all sites
    else:  # the first direction is 1: these are column sums, and the shares of a row sum to 1
        first = total.sum(axis=1) if stage.asks_gram else total[:, 0]
        rows = float(first.sum())
        if np.any(first < -ROUNDING * max(rows, 1.0)) or rows > MOST_ROWS:
            raise MessageError("sums of affinities below zero, or of more rows than anybody has", reply.site)
    longest = 1.0 if stage.asks_gram else product_sensitivity(stage.directions)
    if float(np.linalg.norm(total)) > (1 + ROUNDING) * max(rows, 0.0) * longest:
        raise MessageError(f"products larger than those of {rows:.6g} rows can be", reply.site)
    return total


def take(stage: Stage, answers: Sequence[FloatArray], n_clusters: int | None) -> Stage:
    """The stage after an exchange: a further question, or the embedding.

    Parameters
    ----------
    stage : Stage
        The stage before.
    answers : sequence of array
        What `read` made of the answers, in the order of site names; or the one total of a sealed sum.
    n_clusters : int or None
        Number of clusters; None chooses it by the eigengap.
    """
    total = reduce(add, answers)
    stage = replace(stage, exchanges=stage.exchanges + 1)
    if stage.asks_gram:
        found = gram_ritz(total, stage.n_wanted)
        ended = True
    else:
        stage = replace(stage, known=(*stage.known, (stage.directions, total)))
        found = ritz(stage.known, stage.n_wanted)
        directions = found.next_directions(stage.n_wanted, stage.settings.tol)
        ended = directions.shape[1] == 0 or stage.exchanges >= stage.settings.max_exchanges
        if not ended:
            return replace(stage, directions=as_sent(directions, TOLD))
    count = eigengap(found.values, 2, MOST_CLUSTERS) if n_clusters is None else min(n_clusters, len(found.values))
    projection = found.projection(count)
    # embedded rows have length 1 whatever the unit, and few digits hold numbers around 1
    projection = as_sent(projection / max(float(np.abs(projection).max(initial=0.0)), 1e-300), TOLD)
    return replace(stage, diffusion=Diffusion(stage.graph, projection, found.values))


def begin_again(stage: Stage) -> Stage:
    """The stage for other sites than those that answered so far: products of other rows do not go together.

    What was found of the eigenvectors is asked again, in one exchange.
    """
    found = ritz(stage.known, stage.n_wanted)
    ones = np.ones((stage.graph.n_columns, 1))
    directions = unit_columns(np.hstack([ones, found.scales[:, None] * found.vectors[:, 1:]]))
    return replace(stage, known=(), directions=as_sent(directions, TOLD), exchanges=stage.exchanges + 1)


def start_rows(stage: Stage) -> Rows:
    """Embedded rows that stand in for those of the sites, on which the start of the rounds is chosen: no bytes."""
    if stage.diffusion is None or stage.stand_ins is None:
        raise MessageError("the server has no embedding yet")
    return rows_of(embedded(stage.stand_ins, stage.diffusion.projection))


def as_matrix(stage: Stage, values: FloatArray) -> FloatArray:
    """The numbers of an answer as a matrix."""
    if not stage.asks_gram:
        return values.reshape(stage.directions.shape)
    size = stage.graph.n_columns
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = values
    return upper + np.triu(upper, 1).T
