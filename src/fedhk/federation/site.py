"""What a site does with a message from the server: a pure step on its own rows."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference, Scaling, same_references
from fedhk.data.views import Columns, Views, is_tensor
from fedhk.errors import MessageError
from fedhk.federation.diffusion.site import answer, heard, site_count
from fedhk.federation.messages import Message
from fedhk.federation.payloads import (
    Arrays,
    ColumnsCode,
    Values,
    columns_code,
    pack_candidates,
    pack_moments,
    pack_text,
    unpack_references,
)
from fedhk.federation.protocols import PROTOCOL_NAMES, RoundProtocol, protocol_named
from fedhk.federation.protocols.base import held_rows
from fedhk.federation.protocols.statistics import final_clusters, final_sums
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import check_spreads, heat_energy, site_moments
from fedhk.model.rows import Rows
from fedhk.personal.calibration import Calibration, calibrated, site_frame
from fedhk.starts.candidates import site_candidates

if TYPE_CHECKING:
    from fedhk.federation.diffusion.state import SiteStage
    from fedhk.privacy.ledger import Ledger
    from fedhk.privacy.mechanism import DifferentialPrivacy
    from fedhk.privacy.secure_site import SecureSite
    from fedhk.privacy.sensitivity import Neighbours
    from fedhk.tensors.low_rank import LowRank


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
    references : tuple of Reference
        The common references, as the server told them.
    calibration : Calibration or None
        With which the rows are in one frame with those of other sites.
    offset : tuple of array of shape (d_h,)
        How far the site's rows are from the centres of their clusters, where the calibration asks for it.
    basis : tuple of array of shape (d_h, q_h)
        The basis from the server, with the protocol "cores".
    form : LowRank or None
        The site's own factors of the last round, with the protocol "factors".
    privacy, ledger :
        The site's privacy budget, and where it writes down what it released.
    secure : SecureSite or None
        The masks that it has agreed on with other sites.
    run : str
        The name of the run that the site takes part in, where there is noise or masks: its budget is for that one.
    stage : SiteStage or None
        The anchors from the server and, once it has told it, the embedding with the site's rows in it.
    """

    name: str
    views: Views
    rows: Rows | None = None
    parameters: Parameters | None = None
    references: tuple[Reference, ...] = ()
    calibration: Calibration | None = None
    offset: tuple[FloatArray, ...] = ()
    basis: tuple[FloatArray, ...] = ()
    form: LowRank | None = None
    privacy: DifferentialPrivacy | None = None
    ledger: Ledger | None = None
    secure: SecureSite | None = None
    run: str = ""
    stage: SiteStage | None = None

    @property
    def is_sealed(self) -> bool:
        """Whether nothing may leave but sums with noise or under masks."""
        return self.privacy is not None or self.secure is not None

    @property
    def neighbours(self) -> Neighbours:
        """What one row more or less means."""
        return "replace" if self.privacy is None else self.privacy.neighbours


def client_step(state: SiteState, request: Message, workers: int = 1) -> tuple[SiteState, Message]:
    """Answer one message of the server.

    Parameters
    ----------
    state : SiteState
        The site before.
    request : Message
        What the server asks: "describe", "energy", "candidates", "diffuse", "round" or "finish".
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
    if bool(request.values.get("sealed") or request.values.get("schema")) != state.is_sealed:
        raise MessageError(
            "the server asks for what this site only gives with noise or masks"
            if state.is_sealed
            else "the server asks for sums with noise or masks, this site was not set up for them",
            state.name,
        )
    if state.is_sealed:
        state = _in_run(state, request)
    if request.kind == "describe":
        arrays, values = _describe(state, request)
        return state, Message("describe", state.name, request.round, arrays, values)
    if state.is_sealed:
        state, arrays, values = _sealed(state, request, workers)
        return state, Message(request.kind, state.name, request.round, arrays, values)
    if request.kind not in (*ANSWERS, "round"):
        raise MessageError(f"the server asks for {request.kind!r}, which this FedHK does not know", state.name)
    state = informed(state, request)
    if request.kind in ("round", "finish"):
        protocol = _protocol(state, request)
        state = protocol.hear(state, request)
        if request.kind == "round":
            state, arrays, values = protocol.answer(state, request, workers)
            return state, Message("round", state.name, request.round, arrays, values)
    arrays, values = ANSWERS[request.kind](state, request, workers)
    return state, Message(request.kind, state.name, request.round, arrays, values)


def informed(state: SiteState, request: Message) -> SiteState:
    """The site with what the server tells once, where the message has it: references, calibration, embedding."""
    return _with_stage(_with_calibration(_with_references(state, request), request), request)


def _with_stage(state: SiteState, request: Message) -> SiteState:
    """The state with what the server tells of the embedding."""
    return state if state.rows is None else replace(state, stage=heard(state.stage, state.rows, request))


def _in_run(state: SiteState, request: Message) -> SiteState:
    """The site in the run that the server names; a second run would have a budget of its own."""
    run = request.values.get("run")
    if not isinstance(run, str) or not run or (state.run and run != state.run):
        known = f", this site takes part in {state.run!r} and no other" if state.run else ""
        raise MessageError(f"the server speaks of run {str(run)[:50]!r}{known}", state.name)
    return replace(state, run=run)


def _sealed(state: SiteState, request: Message, workers: int) -> tuple[SiteState, Arrays, Values]:
    from fedhk.federation.sealed.site import sealed_answer  # noqa: PLC0415 - only runs with noise or masks need it

    state = _with_references(state, request)
    if state.privacy is None:  # with noise, what a row can change is bounded for rows as they are
        state = _with_stage(state, request)
    return sealed_answer(state, request, workers)


def _protocol(state: SiteState, request: Message) -> RoundProtocol:
    name = request.values.get("protocol")
    if name not in PROTOCOL_NAMES:
        raise MessageError(f"the server asks for the protocol {name!r}, which this FedHK does not know", state.name)
    return protocol_named(name)


def _describe(state: SiteState, request: Message) -> tuple[Arrays, Values]:
    """Moments of the features, and what the views are called; a view that the site does not have keeps its place."""
    views = state.views
    described = described_views(views)
    if state.is_sealed:  # not a number of the rows, nor how many there are
        return described, {}
    moments = site_moments(views, [int(width or 0) for width in views.widths], request.values["scaling"], None)
    check_spreads(moments, views.names)
    present = [view for view, table in zip(moments, views.tables, strict=True) if table is not None]
    ranges = bool(request.values["ranges"])
    return pack_moments(present, ranges=ranges) | described, {}


def described_views(views: Views) -> Arrays:
    """What a site's views are called, how wide they are and what their columns are: no number of the rows."""
    return {"views": pack_text(list(zip(views.names, views.widths, views.columns, strict=True)))}


def _energy(state: SiteState, request: Message, workers: int) -> tuple[Arrays, Values]:  # noqa: ARG001
    """Heat-weighted squared distance to the grand mean, per view."""
    return {"energy": heat_energy(held_rows(state))}, {}


def _candidates(state: SiteState, request: Message, workers: int) -> tuple[Arrays, Values]:  # noqa: ARG001
    """Weighted means of groups of rows."""
    random_state = seeded(int(request.values["seed"]), zlib.crc32(state.name.encode()))
    rows, asked = held_rows(state), request.values
    count = site_count(rows.n_rows, float(asked["share"])) if "share" in asked else int(asked["count"])
    found = site_candidates(rows, count, random_state)
    arrays = pack_candidates(found, request.values.get("precision", "double"))
    if request.values.get("frame"):
        arrays["frame"] = own_frame(rows.views, state.references).astype(np.float32)
    return arrays, {}


def own_frame(views: Views, references: tuple[Reference, ...]) -> FloatArray:
    """A site's own mean and spread in model units, as they are sent."""
    scaling: Scaling = "l2" if any(reference.unit_rows for reference in references) else "standard"
    moments = site_moments(views, [reference.width for reference in references], scaling, None)
    return site_frame(moments, references).astype(np.float32).astype(np.float64)


def _with_calibration(state: SiteState, request: Message) -> SiteState:
    """The state with rows in the frame that the server asks for."""
    told = request.values.get("calibration")
    calibration = None if told is None else Calibration.from_list(told)
    if calibration is None or calibration == state.calibration:
        return state
    rows = calibrated_rows(held_rows(replace(state, stage=None)).views, state.references, calibration)
    return replace(state, rows=rows, calibration=calibration, offset=(), stage=None)


def calibrated_rows(views: Views, references: tuple[Reference, ...], calibration: Calibration) -> Rows:
    """A site's rows with references of its own; its views are in the order of the model."""
    frame = own_frame(views, references)
    return Rows(views, calibrated(references, frame, float(views.n_rows), calibration))


def _finish(state: SiteState, request: Message, workers: int) -> tuple[Arrays, Values]:
    """The objective at the final parameters; labels and the personal model stay at the site."""
    sums = {"sums": final_sums(state, workers, cluster_summary=bool(request.values.get("cluster_summary")))}
    if "clusters" in request.values:
        sums["clusters"] = final_clusters(state, request.values["clusters"], workers)
    return sums, {}


def _diffuse(state: SiteState, request: Message, workers: int) -> tuple[Arrays, Values]:  # noqa: ARG001
    """Products of the affinities of the site's rows with directions."""
    return answer(state.stage, request)


ANSWERS: dict[str, Callable[[SiteState, Message, int], tuple[Arrays, Values]]] = {
    "energy": _energy,
    "candidates": _candidates,
    "diffuse": _diffuse,
    "finish": _finish,
}


def _with_references(state: SiteState, request: Message) -> SiteState:
    """The state with rows in model units, if the request says how."""
    if "references" not in request.arrays:
        return state
    references, names, codes = unpack_references(request)
    if state.rows is not None and state.rows.views.names == names and same_references(references, state.references):
        return state  # told again after an interruption: what the site has found since stays
    views = aligned(state.views, references, names, state.name)
    for name, columns, code in zip(names, views.columns, codes, strict=True):
        _check_columns(name, columns, code, state.name)
    if state.privacy is not None:  # what one row can change is bounded to rounding, and float32 rounds too much
        views = replace(views, dtype=np.dtype(np.float64))
    return replace(state, rows=Rows(views, references), references=references, calibration=None, stage=None)


def _check_columns(view: str, columns: Columns, code: ColumnsCode, site: str) -> None:
    if columns is not None and code is not None and columns_code(columns) != code:
        if is_tensor(columns) and isinstance(code, list):
            raise MessageError(f"view {view!r} has rows of shape {columns} here, {tuple(code)} in the model", site)
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
