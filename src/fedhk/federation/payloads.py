"""What messages carry: moments, references, candidates, parameters and statistics as a few flat arrays each.

Views stand side by side in one array, because every array of a message costs some bytes of its own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.data.views import LARGEST_VALUE
from fedhk.errors import MessageError
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.model.candidates import Candidates
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics

Arrays = dict[str, npt.NDArray[Any]]
Values = dict[str, Any]
Columns = tuple[str, ...] | None

# Counts above this are not counts of rows.
MOST_ROWS = 2.0**53


def split(joint: FloatArray, widths: Sequence[int]) -> tuple[FloatArray, ...]:
    """Columns of views that stand side by side."""
    return tuple(np.split(joint, np.cumsum(widths)[:-1], axis=1))


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


def pack_moments(moments: Sequence[Moments]) -> Arrays:
    """Moments of a site's views."""
    return {
        "rows": np.array([[view.rows, view.total] for view in moments]).reshape(-1, 2),
        "moments": np.hstack(
            [
                np.zeros((5, 0)),
                *(
                    np.stack([v.weight, v.mean, v.squares, *np.where(v.weight > 0, [v.low, v.high], 0.0)])
                    for v in moments
                ),
            ]
        ),
    }


def unpack_moments(message: Message, widths: Sequence[int]) -> tuple[Moments, ...]:
    """Moments that a site sent, checked."""
    check_arrays(
        message,
        {
            "rows": ArraySpec((len(widths), 2), non_negative=True),
            "moments": ArraySpec((5, sum(widths))),
        },
    )
    result = []
    for (rows, total), part in zip(message.arrays["rows"], split(message.arrays["moments"], widths), strict=True):
        weight, mean, squares, low, high = np.asarray(part, np.float64)
        seen = weight > 0
        most = min(total, MOST_ROWS) * (1 + 1e-9)
        counted = 0 <= rows <= most and np.all((weight >= 0) & (weight <= most))
        ranged = np.all(np.abs([mean, low, high]) <= LARGEST_VALUE) and not np.any((low > high) & seen)
        widest = np.square(high - low) + 1e-9 * np.square(np.maximum(np.abs(low), np.abs(high)))
        if not counted or not ranged or np.any(squares < 0) or np.any(squares > weight * widest):
            raise MessageError(
                "moments that no rows can have: impossible counts or spreads, or a range inside out", message.site
            )
        result.append(
            Moments(
                float(rows),
                float(total),
                weight,
                mean,
                squares,
                np.where(seen, low, np.inf),
                np.where(seen, high, -np.inf),
            )
        )
    return tuple(result)


# ------------------------------------------------------------------------------------------------------- references


def columns_code(columns: Columns) -> int | None:
    """A number by which a site sees whether its columns are those of the model, without a list of them."""
    return None if columns is None else zlib.crc32(json.dumps(columns).encode())


def pack_references(
    references: Sequence[Reference], names: Sequence[str], columns: Sequence[Columns]
) -> tuple[Arrays, Values]:
    """References for the sites: how rows become model units. A constant feature has scale 0 on the wire."""
    joint = [np.stack([r.shift, np.where(np.isfinite(r.scale), r.scale, 0.0), r.low, r.span]) for r in references]
    described = [
        [name, r.width, r.unit_rows, r.heat_coef, r.share, columns_code(c)]
        for name, r, c in zip(names, references, columns, strict=True)
    ]
    return {"references": np.hstack(joint)}, {"views": described}


def unpack_references(message: Message) -> tuple[tuple[Reference, ...], tuple[str, ...], tuple[int | None, ...]]:
    """References, view names and codes of their columns from the server."""
    described = message.values["views"]
    widths = [int(width) for _, width, *_ in described]
    parts = split(np.asarray(message.arrays["references"], np.float64), widths)
    references = []
    for (_, _, unit_rows, heat_coef, share, _), (shift, scale, low, span) in zip(described, parts, strict=True):
        finite = np.where(scale > 0, scale, np.inf)
        references.append(Reference(bool(unit_rows), shift, finite, heat_coef, low, span, float(share)))
    return tuple(references), tuple(name for name, *_ in described), tuple(code for *_, code in described)


# ------------------------------------------------------------------------------------------------------- parameters


def pack_parameters(parameters: Parameters) -> tuple[Arrays, Values]:
    """Parameters of a round."""
    arrays = {
        "centers": np.hstack(parameters.centers),
        "view_weights": np.stack([parameters.view_weights, parameters.view_shares]),
    }
    return arrays, {"numbers": [parameters.heat_time, parameters.fuzzifier, parameters.view_exponent]}


def unpack_parameters(message: Message, widths: Sequence[int]) -> Parameters:
    """Parameters from the server."""
    heat_time, fuzzifier, view_exponent = (float(number) for number in message.values["numbers"])
    weights, shares = np.asarray(message.arrays["view_weights"], np.float64)
    centers = split(np.asarray(message.arrays["centers"], np.float64), widths)
    return Parameters(centers, weights, heat_time, fuzzifier, view_exponent, shares)


# ------------------------------------------------------------------------------------------------------- statistics


def pack_statistics(statistics: Statistics) -> Arrays:
    """Statistics of a site's rows."""
    return {
        "numerators": np.hstack(statistics.numerators),
        "weights": np.hstack(statistics.weights),
        # in float32 the cost of rows on centres may round to just below zero
        "sums": np.concatenate(
            [np.maximum(statistics.costs, 0.0), statistics.masses, [statistics.objective, statistics.rows]]
        ),
    }


def unpack_statistics(message: Message, n_clusters: int, widths: Sequence[int]) -> Statistics:
    """Statistics that a site sent, checked."""
    n_views = len(widths)
    check_arrays(
        message,
        {
            "numerators": ArraySpec((n_clusters, sum(widths))),
            "weights": ArraySpec((n_clusters, None), non_negative=True),
            "sums": ArraySpec((n_views + n_clusters + 2,), non_negative=True),
        },
    )
    weights, sums = message.arrays["weights"], message.arrays["sums"]
    columns = weight_columns(message, widths, weights.shape[1])
    return Statistics(
        split(np.asarray(message.arrays["numerators"], np.float64), widths),
        split(np.asarray(weights, np.float64), columns),
        np.asarray(sums[:n_views], np.float64),
        np.asarray(sums[n_views:-2], np.float64),
        float(sums[-2]),
        float(sums[-1]),
    )


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


def pack_candidates(candidates: Candidates) -> Arrays:
    """Candidates of a site."""
    return {
        "candidates": candidates.points,
        "weights": np.column_stack([candidates.sizes, candidates.spreads]),
    }


def unpack_candidates(message: Message, widths: Sequence[int], most: int) -> Candidates:
    """Weighted candidates of a site, at most `most`, checked."""
    check_arrays(
        message,
        {
            "candidates": ArraySpec((None, sum(widths)), finite=False),
            "weights": ArraySpec((None, 1 + len(widths)), non_negative=True),
        },
    )
    points = np.asarray(message.arrays["candidates"], np.float64)
    weights = np.asarray(message.arrays["weights"], np.float64)
    sizes = weights[:, 0]
    if len(points) != len(sizes):
        raise MessageError(f"{len(points)} candidates with {len(sizes)} weights", message.site)
    if len(points) > most:
        raise MessageError(f"{len(points)} candidates, at most {most} were asked for", message.site)
    if np.any(sizes <= 0) or sizes.sum() > MOST_ROWS:
        raise MessageError("candidates with weights that no rows can have", message.site)
    return Candidates(points, sizes, weights[:, 1:])
