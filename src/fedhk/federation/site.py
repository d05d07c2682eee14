"""What a site does with a message from the server: a pure step on its own rows."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.errors import MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import (
    Arrays,
    Columns,
    Values,
    columns_code,
    pack_candidates,
    pack_moments,
    pack_statistics,
    pack_text,
    unpack_parameters,
    unpack_references,
)
from fedhk.model.candidates import site_candidates
from fedhk.model.loop import improve
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import heat_energy, site_moments
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics


@dataclass(frozen=True)
class SiteState:
    """All that a site keeps between messages. Only `client_step` makes new ones; nothing of it leaves but by messages.

    Parameters
    ----------
    name : str
        The site.
    views : Views
        Its rows, as they came.
    rows : Rows or None
        The rows in model units, once the server has sent the references.
    parameters : Parameters or None
        The last parameters from the server.
    """

    name: str
    views: Views
    rows: Rows | None = None
    parameters: Parameters | None = None


def client_step(state: SiteState, request: Message, workers: int = 1) -> tuple[SiteState, Message]:
    """Answer one message of the server.

    Parameters
    ----------
    state : SiteState
        The site before.
    request : Message
        What the server asks: "describe", "energy", "candidates", "round" or "finish".
    workers : int, default=1
        Threads for one pass over the rows.

    Returns
    -------
    state : SiteState
        The site after.
    reply : Message
        What leaves the site: sums over its rows, or means of groups of them.

    Raises
    ------
    MessageError
        If the request is none of these, or comes before what it needs.
    """
    if request.kind == "describe":
        arrays, values = _describe(state, request)
        return state, Message("describe", state.name, request.round, arrays, values)
    if request.kind not in ANSWERS:
        raise MessageError(f"the server asks for {request.kind!r}, which this FedHK does not know", state.name)
    state = _with_references(state, request)
    if "centers" in request.arrays:
        state = replace(state, parameters=unpack_parameters(request, _rows(state).widths))
    arrays, values = ANSWERS[request.kind](state, request, workers)
    return state, Message(request.kind, state.name, request.round, arrays, values)


def _describe(state: SiteState, request: Message) -> tuple[Arrays, Values]:
    """Moments of the features, and what the views are called; a view that the site does not have keeps its place."""
    views = state.views
    moments = site_moments(views, [int(width or 0) for width in views.widths], request.values["scaling"], None)
    present = [view for view, table in zip(moments, views.tables, strict=True) if table is not None]
    described = list(zip(views.names, views.widths, views.columns, strict=True))
    return pack_moments(present) | {"views": pack_text(described)}, {}


def _energy(state: SiteState, request: Message, workers: int) -> tuple[Arrays, Values]:  # noqa: ARG001
    """Heat-weighted squared distance to the grand mean, per view."""
    return {"energy": heat_energy(_rows(state))}, {}


def _candidates(state: SiteState, request: Message, workers: int) -> tuple[Arrays, Values]:  # noqa: ARG001
    """Weighted means of groups of rows."""
    seed = np.random.SeedSequence([int(request.values["seed"]), zlib.crc32(state.name.encode())])
    random_state = np.random.RandomState(np.random.MT19937(seed))
    return pack_candidates(site_candidates(_rows(state), int(request.values["count"]), random_state)), {}


def _round(state: SiteState, request: Message, workers: int) -> tuple[Arrays, Values]:
    """Statistics at the server's parameters; with local passes, centres after those passes and their masses."""
    rows, parameters = _rows(state), _parameters(state)
    passes = int(request.values.get("local_passes", 0))
    with Passes(rows, parameters.n_clusters, workers) as scan:
        statistics = scan.statistics(parameters)
        if not passes:
            full = [view for view, w in enumerate(statistics.weights) if w.shape[1] > 1]
            return pack_statistics(statistics), {"full": full} if full else {}
        learn = bool(request.values.get("learn_weights", False))
        local, latest = parameters, statistics
        for step in range(passes):
            if step:
                latest = scan.statistics(local)
            local = improve(local, latest, learn_weights=learn)
    return _pack_centers(local, latest, statistics), {}


def _pack_centers(local: Parameters, latest: Statistics, first: Statistics) -> Arrays:
    """Local centres with how much of each view's rows they stand for, and the objective at the server's parameters."""
    masses: FloatArray = np.stack([weights.max(axis=1) for weights in latest.weights], axis=1)
    return {
        "centers": np.hstack(local.centers),
        "masses": masses,
        "sums": np.concatenate([local.view_weights, [first.objective, first.rows]]),
    }


def _finish(state: SiteState, request: Message, workers: int) -> tuple[Arrays, Values]:  # noqa: ARG001
    """The objective at the final parameters; labels and the personal model stay at the site."""
    parameters = _parameters(state)
    with Passes(_rows(state), parameters.n_clusters, workers) as scan:
        statistics = scan.statistics(parameters)
    return {"sums": np.array([statistics.objective, statistics.rows])}, {}


ANSWERS: dict[str, Callable[[SiteState, Message, int], tuple[Arrays, Values]]] = {
    "energy": _energy,
    "candidates": _candidates,
    "round": _round,
    "finish": _finish,
}


def _with_references(state: SiteState, request: Message) -> SiteState:
    """The state with rows in model units, if the request says how."""
    if "references" not in request.arrays:
        return state
    references, names, codes = unpack_references(request)
    views = aligned(state.views, references, names, state.name)
    for name, columns, code in zip(names, views.columns, codes, strict=True):
        _check_columns(name, columns, code, state.name)
    return replace(state, rows=Rows(views, references))


def _check_columns(view: str, columns: Columns, code: int | None, site: str) -> None:
    if columns is not None and code is not None and columns_code(columns) != code:
        raise MessageError(f"view {view!r} has other columns here than in the model, or in another order", site)


def aligned(views: Views, references: tuple[Reference, ...], names: tuple[str, ...], site: str) -> Views:
    """A site's views in the order of the model, None where it lacks one."""
    own: dict[str, Any] = {name: view for view, name in enumerate(views.names)}
    order = [own.get(name) for name in names]
    for name, view, reference in zip(names, order, references, strict=True):
        table = None if view is None else views.tables[view]
        if table is not None and table.shape[1] != reference.width:
            raise MessageError(
                f"view {name!r} has {table.shape[1]} features here, {reference.width} in the model", site
            )
    return replace(
        views,
        tables=tuple(None if view is None else views.tables[view] for view in order),
        names=names,
        missing=tuple(view is not None and views.missing[view] for view in order),
        columns=tuple(None if view is None else views.columns[view] for view in order),
    )


def _rows(state: SiteState) -> Rows:
    if state.rows is None:
        raise MessageError("asked for a round before the references came", state.name)
    return state.rows


def _parameters(state: SiteState) -> Parameters:
    if state.parameters is None:
        raise MessageError("asked for a round before parameters came", state.name)
    return state.parameters
