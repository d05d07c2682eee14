"""Outcomes: what becomes of rows. They are columns that clustering did not see, each read as a view of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.levels import base_name, name_row, ordered_levels
from fedhk.errors import DataError

# The view of each outcome, of one column.
TIMES, EVENTS, VALUES = "a time", "an event", "a value"
OUTCOMES = {"time": TIMES, "event": EVENTS, "value": VALUES}

# Outcomes are at most so large: the powers of two by which they are counted end above.
LARGEST = 1e30


def refuse_seen(name: str, column: str, columns: Mapping[str, Iterable[str] | None]) -> None:
    """Refuse an outcome that clustering saw: a column of a view that the model was fitted on.

    `name` is a key of `OUTCOMES`, and `columns` are those of the fitted views, by view.
    """
    inside = [
        view
        for view, names in columns.items()
        if column in (ordered_levels(base_name(str(name)))[0] for name in (() if names is None else names))
    ]
    if inside:
        raise DataError(
            f"{name}={column!r} is a column of view {inside[0]!r}, which made the clusters: what clustering saw is no "
            "outcome. Leave it out of the views that are clustered."
        )


def check_outcome(name: str, values: Any, site: str) -> FloatArray:
    """Convert an outcome of one site to numbers; refuse negative times, and events that are not 0 or 1.

    `name` is a key of `OUTCOMES`.
    """
    if getattr(getattr(values, "dtype", None), "kind", "f") in "mMc":
        raise DataError(
            f"Site {site!r}: {name} has values of type {values.dtype}; it must be real numbers. Dates and durations "
            "become numbers by a unit, such as (end - start).dt.days."
        )
    try:  # the missing value of pandas is no number
        numbers = values.to_numpy(np.float64, na_value=np.nan) if hasattr(values, "convert_dtypes") else values
        column = np.asarray(numbers, np.float64)
    except (TypeError, ValueError) as error:
        hint = " For example column == 'yes' makes an event of text." if name == "event" else ""
        kinds = "0 and 1, or true and false" if name == "event" else "numbers"
        raise DataError(
            f"Site {site!r}: {name} must be {kinds}, and missing where it is not known ({error}).{hint}"
        ) from error
    if column.ndim != 1:
        raise DataError(f"Site {site!r}: {name} has shape {column.shape}; it must be one number for each row.")
    if name == "event":
        wrong, allowed = ~np.isnan(column) & (column != 0) & (column != 1), "0 or 1"
    elif name == "time":
        wrong, allowed = (column < 0) | (column > LARGEST), f"from 0 on, at most {LARGEST:.0e}"
    else:
        wrong, allowed = np.abs(column) > LARGEST, f"at most {LARGEST:.0e} in size"
    if wrong.any():
        row = int(wrong.argmax())
        count = int(wrong.sum())
        more = f", and wrong in {count} rows in all" if count > 1 else ""
        raise DataError(
            f"Site {site!r}: {name} is {column[row]:g} in row {name_row(values, row)}{more}; it must be {allowed}, and "
            "missing where it is not known."
        )
    return column
