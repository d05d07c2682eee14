"""What messages carry: moments, references, candidates, parameters and statistics as a few flat arrays each.

Views stand side by side in one array, because every array of a message costs some bytes of its own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.data.views import LARGEST_VALUE, Columns, is_tensor
from fedhk.errors import MessageError
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.precision import at_least_half, pack_rounded, rounded_spec, unpack_rounded
from fedhk.model.joint import split_joint
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.personal.calibration import LEAST_RATIO, MOST_RATIO
from fedhk.starts.candidates import Candidates

Arrays = dict[str, npt.NDArray[Any]]
Values = dict[str, Any]
ColumnsCode = int | list[int] | None

# Counts above this are not counts of rows.
MOST_ROWS = 2.0**53


def pack_text(value: Any) -> npt.NDArray[np.uint8]:
    """Any JSON value as an array: for texts that may be long, because the header of a message may not."""
    return np.frombuffer(json.dumps(value, separators=(",", ":")).encode(), np.uint8)


def unpack_text(array: npt.NDArray[Any] | None, site: str | None) -> Any:
    """The value that `pack_text` packed."""
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        raise MessageError("a text of the message is missing or is not one", site)
    try:
        return json.loads(array.tobytes())
    except (ValueError, RecursionError) as error:
        raise MessageError("a text of the message cannot be read", site) from error


# ---------------------------------------------------------------------------------------------------------- moments


def pack_moments(moments: Sequence[Moments], *, ranges: bool) -> Arrays:
    """Moments of a site's views: counts of cells only where some are missing, ranges only where they are wanted."""
    arrays = {
        "rows": np.array([[view.rows, view.total] for view in moments]).reshape(-1, 2),
        "moments": _side_by_side([np.stack([view.mean, view.squares]) for view in moments], 2),
    }
    if any(np.any(view.weight != view.rows) for view in moments):
        arrays["cells"] = _side_by_side([view.weight[None] for view in moments], 1)
    if ranges:
        held = [np.where(view.weight > 0, [view.low, view.high], 0.0) for view in moments]
        arrays["ranges"] = _side_by_side(held, 2)
    return arrays


def _side_by_side(parts: Sequence[FloatArray], n_rows: int) -> FloatArray:
    """Views side by side; there may be none."""
    return np.hstack([np.zeros((n_rows, 0)), *parts])


def unpack_moments(message: Message, widths: Sequence[int]) -> tuple[Moments, ...]:
    """Moments that a site sent, checked."""
    optional = {"cells": ArraySpec((1, sum(widths)), non_negative=True), "ranges": ArraySpec((2, sum(widths)))}
    check_arrays(
        message,
        {
            "rows": ArraySpec((len(widths), 2), non_negative=True),
            "moments": ArraySpec((2, sum(widths))),
        }
        | {name: spec for name, spec in optional.items() if name in message.arrays},
    )
    arrays = {name: np.asarray(array, np.float64) for name, array in message.arrays.items()}
    counts = arrays["rows"]
    cells = arrays.get("cells", np.repeat(counts[:, 0], widths)[None])
    ranges = arrays.get("ranges", np.full((2, sum(widths)), np.nan))
    result = []
    by_view = (split_joint(part, widths) for part in (cells, arrays["moments"], ranges))
    for (rows, total), *parts in zip(counts, *by_view, strict=True):
        (weight,), (mean, squares), (low, high) = parts
        view = Moments(float(rows), float(total), weight, mean, squares, low, high)
        if not _possible(view):
            raise MessageError(
                "moments that no rows can have: impossible counts or spreads, or a range inside out", message.site
            )
        seen = (weight > 0) | np.isnan(low)
        result.append(replace(view, low=np.where(seen, low, np.inf), high=np.where(seen, high, -np.inf)))
    return tuple(result)


def _possible(view: Moments) -> bool:
    """Whether rows can have these moments; a range that is NaN was not told."""
    most, low, high = min(view.total, MOST_ROWS) * (1 + 1e-9), view.low, view.high
    counted = 0 <= view.rows <= most and np.all((view.weight >= 0) & (view.weight <= most))
    if not counted or np.any(view.squares < 0):
        return False
    if np.any(np.abs([view.mean, low, high]) > LARGEST_VALUE) or np.any((low > high) & (view.weight > 0)):
        return False
    widest = np.square(high - low) + 1e-9 * np.square(np.maximum(np.abs(low), np.abs(high)))
    widest = np.where(np.isnan(widest), (2 * LARGEST_VALUE) ** 2, widest)
    return not np.any(view.squares > view.weight * widest)


# ------------------------------------------------------------------------------------------------------- references


def columns_code(columns: Columns) -> ColumnsCode:
    """By what a site sees whether its columns are the model's: a number for names, which are many; a tensor's shape."""
    if is_tensor(columns):
        return list(columns)
    return None if columns is None else zlib.crc32(json.dumps(columns).encode())


def pack_references(
    references: Sequence[Reference], names: Sequence[str], columns: Sequence[Columns]
) -> tuple[Arrays, Values]:
    """References for the sites: how rows become model units.

    A constant feature has scale 0 on the wire; a view whose features have one scale sends it once.
    """
    ranges = any(reference.heat_coef == "minmax" for reference in references)
    joint = [np.stack([r.shift, *([r.low, r.span] if ranges else [])]) for r in references]
    finite = [np.where(np.isfinite(reference.scale), reference.scale, 0.0) for reference in references]
    scales = [scale[:1] if (scale == scale[0]).all() else scale for scale in finite]
    described = [
        [name, r.width, r.unit_rows, r.heat_coef, r.share, len(scale), columns_code(c)]
        for name, r, scale, c in zip(names, references, scales, columns, strict=True)
    ]
    return {"references": np.hstack(joint), "scales": np.concatenate(scales)}, {"views": described}


def unpack_references(message: Message) -> tuple[tuple[Reference, ...], tuple[str, ...], tuple[ColumnsCode, ...]]:
    """References, view names and codes of their columns from the server."""
    described = message.values["views"]
    widths = [int(width) for _, width, *_ in described]
    parts = split_joint(message.arrays["references"], widths)
    ends = np.cumsum([int(count) for *_, count, _ in described])[:-1]
    scales = np.split(np.asarray(message.arrays["scales"], np.float64), ends)
    references = []
    for (_, width, unit_rows, heat_coef, share, *_), (shift, *ranges), scale in zip(
        described, parts, scales, strict=True
    ):
        finite = np.resize(np.where(scale > 0, scale, np.inf), int(width))
        low, span = ranges or (np.zeros_like(shift), np.ones_like(shift))
        references.append(Reference(bool(unit_rows), shift, finite, heat_coef, low, span, float(share)))
    return tuple(references), tuple(name for name, *_ in described), tuple(code for *_, code in described)


# ------------------------------------------------------------------------------------------------------- parameters


def pack_parameters(parameters: Parameters, precision: str = "double") -> tuple[Arrays, Values]:
    """Parameters of a round."""
    arrays = pack_rounded("centers", np.hstack(parameters.centers), at_least_half(precision)) | {
        "view_weights": np.stack([parameters.view_weights, parameters.view_shares]),
    }
    return arrays, {"numbers": [parameters.heat_time, parameters.fuzzifier, parameters.view_exponent]}


def unpack_parameters(
    message: Message, widths: Sequence[int], centers: tuple[FloatArray, ...] | None = None
) -> Parameters:
    """Parameters from the server; `centers` are given where they do not stand in the message as they are."""
    heat_time, fuzzifier, view_exponent = (float(number) for number in message.values["numbers"])
    weights, shares = np.asarray(message.arrays["view_weights"], np.float64)
    if centers is None:
        centers = split_joint(message.arrays["centers"], widths)
    return Parameters(centers, weights, heat_time, fuzzifier, view_exponent, shares)


# ------------------------------------------------------------------------------------------------------- statistics


def pack_statistics(statistics: Statistics, precision: str = "double") -> tuple[Arrays, Values]:
    """Statistics of a site's rows. In lower precision means are sent instead of sums: their size is known."""
    if precision == "double":
        sums = {"numerators": np.hstack(statistics.numerators)}
    else:
        means = [
            np.divide(n, w, out=np.zeros(n.shape), where=np.broadcast_to(w > 0, n.shape))
            for n, w in zip(statistics.numerators, statistics.weights, strict=True)
        ]
        sums = pack_rounded("means", np.hstack(means), precision)
    full = [view for view, weight in enumerate(statistics.weights) if weight.shape[1] > 1]
    return sums | {
        "weights": np.hstack(statistics.weights),
        "sums": pack_sums(statistics),
    }, ({"full": full} if full else {})


def pack_sums(statistics: Statistics) -> FloatArray:
    """Costs, masses, the objective and the rows in one array."""
    costs = np.maximum(statistics.costs, 0.0)  # in float32 that of rows on centres may round to just below zero
    return np.concatenate([costs, statistics.masses, [statistics.objective, statistics.rows]])


def unpack_sums(sums: npt.NDArray[Any], n_views: int) -> tuple[FloatArray, FloatArray, float, float]:
    """What `pack_sums` packed: the last four parts of `Statistics`."""
    values = np.asarray(sums, np.float64)
    return values[:n_views], values[n_views:-2], float(values[-2]), float(values[-1])


def unpack_statistics(message: Message, n_clusters: int, widths: Sequence[int]) -> Statistics:
    """Statistics that a site sent, checked."""
    n_views = len(widths)
    sent = "means" if "means" in message.arrays else "numerators"
    check_arrays(
        message,
        {
            **rounded_spec(message, sent, (n_clusters, sum(widths))),
            "weights": ArraySpec((n_clusters, None), non_negative=True),
            "sums": ArraySpec((n_views + n_clusters + 2,), non_negative=True),
        },
    )
    weights = message.arrays["weights"]
    columns = weight_columns(message, widths, weights.shape[1])
    parts = split_joint(unpack_rounded(message.arrays, sent), widths)
    per_view = split_joint(weights, columns)
    numerators = parts if sent == "numerators" else tuple(m * w for m, w in zip(parts, per_view, strict=True))
    return Statistics(numerators, per_view, *unpack_sums(message.arrays["sums"], n_views))


def weight_columns(message: Message, widths: Sequence[int], found: int) -> list[int]:
    """Columns of each view's weights: one, or one per feature where the message says so."""
    full = message.values.get("full", [])
    if not isinstance(full, list) or any(type(view) is not int or not 0 <= view < len(widths) for view in full):
        raise MessageError(f"message names views {full!r} that are not among 0 to {len(widths) - 1}", message.site)
    columns = [width if view in full else 1 for view, width in enumerate(widths)]
    if sum(columns) != found:
        raise MessageError(f"array 'weights' has {found} columns, expected {sum(columns)}", message.site)
    return columns


# ------------------------------------------------------------------------------------------------------- candidates


def pack_candidates(candidates: Candidates, precision: str = "double") -> Arrays:
    """Candidates of a site."""
    return pack_rounded("candidates", candidates.points, precision) | {
        "weights": np.column_stack([candidates.sizes, candidates.spreads]),
    }


def read_frame(frame: npt.NDArray[Any] | None, width: int, site: str) -> FloatArray:
    """A site's own mean and spread, checked."""
    if frame is None or frame.shape != (2, width) or frame.dtype.kind != "f" or not np.isfinite(frame).all():
        raise MessageError(f"its own mean and spread are missing, or are not 2 x {width} finite numbers", site)
    values = np.asarray(frame, np.float64)
    if np.any(values[1] < LEAST_RATIO * 0.99) or np.any(values[1] > MOST_RATIO * 1.01):
        raise MessageError(f"its spread is not between {LEAST_RATIO} and {MOST_RATIO} of the common one", site)
    return values


def unpack_candidates(message: Message, widths: Sequence[int], most: int) -> Candidates:
    """Weighted candidates of a site, at most `most`, checked."""
    check_arrays(
        message,
        {
            **rounded_spec(message, "candidates", (None, sum(widths)), finite=False),
            "weights": ArraySpec((None, 1 + len(widths)), non_negative=True),
        },
    )
    points = unpack_rounded(message.arrays, "candidates")
    weights = np.asarray(message.arrays["weights"], np.float64)
    sizes = weights[:, 0]
    if len(points) != len(sizes):
        raise MessageError(f"{len(points)} candidates with {len(sizes)} weights", message.site)
    if len(points) > most:
        raise MessageError(f"{len(points)} candidates, at most {most} were asked for", message.site)
    if np.any(sizes <= 0) or sizes.sum() > MOST_ROWS:
        raise MessageError("candidates with weights that no rows can have", message.site)
    return Candidates(points, sizes, weights[:, 1:])
