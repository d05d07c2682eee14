"""What a site does in the diffusion stage: sums over its own rows, and nothing else leaves it."""

from __future__ import annotations

import math

import numpy as np

from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.diffusion import Diffusion, embedded, rows_of
from fedhk.embedding.spectrum import gram, products
from fedhk.errors import MessageError
from fedhk.federation.diffusion.state import SiteStage
from fedhk.federation.messages import Message, check_arrays
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.precision import rounded_spec, unpack_rounded
from fedhk.model.joint import split_joint
from fedhk.model.rows import Rows

# A site sends at least so many candidates, if its rows allow: what is rare elsewhere may be here.
LEAST_CANDIDATES = 10


def site_count(n_rows: int, share: float) -> int:
    """Candidates of a site of so many rows, of which `share` are asked for each row."""
    return max(LEAST_CANDIDATES, math.ceil(share * n_rows))


def hear(stage: SiteStage | None, rows: Rows, request: Message) -> SiteStage:
    """The site's stage with the anchors that the server tells, or the one it has.

    Parameters
    ----------
    stage : SiteStage or None
        The stage before.
    rows : Rows
        The site's rows, in the frame that the server asked for.
    request : Message
        With anchors, or without if the site has them.
    """
    if "anchors" not in request.arrays:
        if stage is None:
            raise MessageError("asked to diffuse before anchors came", request.site)
        return stage
    joint = unpack_rounded(request.arrays, "anchors")
    if joint.ndim != 2 or joint.shape[1] != sum(rows.widths) or not np.isfinite(joint).all():
        raise MessageError(f"anchors must be finite numbers of {sum(rows.widths)} features", request.site)
    neighbours, scale, joint_weight = request.values["graph"]
    graph = AnchorGraph(split_joint(joint, rows.widths), int(neighbours), float(scale), float(joint_weight))
    return SiteStage(graph, graph.affinities(rows), rows.sample_weight)


def answer(stage: SiteStage | None, request: Message) -> tuple[Arrays, Values]:
    """The products that the server asks for."""
    return {"sum": sums(stage, request)}, {}


def sums(stage: SiteStage | None, request: Message) -> FloatArray:
    """One vector that is a sum over the site's rows: also what a sealed phase sends."""
    if stage is None or stage.affinities is None:
        raise MessageError("asked to diffuse before anchors came", request.site)
    if "directions" not in request.arrays:
        whole = gram(stage.affinities, stage.sample_weight)
        return np.asarray(whole[np.triu_indices(len(whole))])
    directions = unpack_rounded(request.arrays, "directions")
    if directions.ndim != 2 or len(directions) != stage.graph.n_columns or not np.isfinite(directions).all():
        raise MessageError(f"directions must be finite numbers for {stage.graph.n_columns} columns", request.site)
    return products(stage.affinities, directions, stage.sample_weight).ravel()


def hear_diffusion(stage: SiteStage | None, rows: Rows, request: Message) -> tuple[SiteStage, Diffusion]:
    """The site's stage with the embedding that the server tells with the first round."""
    stage = hear(stage, rows, request)
    if "projection" not in request.arrays:
        if stage.diffusion is None:
            raise MessageError("asked for a round before the embedding came", request.site)
        return stage, stage.diffusion
    held = {name: array for name, array in request.arrays.items() if name.startswith("projection")}
    told = Message(request.kind, request.site, request.round, held)
    check_arrays(told, rounded_spec(told, "projection", (stage.graph.n_columns, None)))
    projection = unpack_rounded(held, "projection")
    values = np.asarray(request.values["eigenvalues"], np.float64)
    diffusion = Diffusion(stage.graph, projection, values)
    affinities = stage.graph.affinities(rows) if stage.affinities is None else stage.affinities
    inner = rows_of(embedded(affinities, projection), rows.sample_weight)
    return SiteStage(stage.graph, None, stage.sample_weight, diffusion, inner), diffusion


def heard(stage: SiteStage | None, rows: Rows, request: Message) -> SiteStage | None:
    """The site's stage with whatever the server tells of the diffusion; None where it has never told anything."""
    if "projection" in request.arrays:
        return hear_diffusion(stage, rows, request)[0]
    return hear(stage, rows, request) if "anchors" in request.arrays else stage


def told_again(stage: SiteStage) -> tuple[Arrays, Values]:
    """What the server told a site, as `heard` takes it: for files at the site."""
    graph = stage.graph
    arrays: Arrays = {"anchors": np.hstack(graph.anchors)}
    values: Values = {"graph": [graph.neighbours, graph.scale, graph.joint_weight]}
    if stage.diffusion is not None:
        arrays["projection"] = stage.diffusion.projection
        values["eigenvalues"] = stage.diffusion.values.tolist()
    return arrays, values
