"""Sites from one long data frame: a column says which site a row is of, and groups of columns are the views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from fedhk.data.levels import is_frame
from fedhk.errors import DataError, MissingPackageError

__all__ = ["from_frame"]

# What the only view is called where no views are given.
ONLY_VIEW = "table"


def pandas() -> Any:
    """The package, or one sentence that says how to install it."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise MissingPackageError("data frames need the package 'pandas': pip install 'fedhk[frames]'") from error


def from_frame(
    frame: Any,
    *,
    site: str,
    views: Mapping[str, Sequence[str]] | None = None,
    categories: Mapping[str, Sequence[Any] | None] | Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Make sites of one data frame.

    Parameters
    ----------
    frame : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        One row per sample. Text and categories are clustered by their levels, dates by their day; empty cells are
        missing.
    site : str
        The column that says which site a row is of.
    views : mapping of str to (sequence of str), optional
        Names of the views and their columns. Columns in no view are left out. Without it, all columns but `site` are
        one view.
    categories : mapping of str to (sequence or None), or sequence of str, default=()
        Columns that are categories though they look like numbers, such as codes; with their levels where these are
        known. A value that is none of the levels is refused.

    Returns
    -------
    dict of str to (dict of str to pandas.DataFrame)
        The views of each site, as `fit` takes them. Rows keep their index, so that `labels_frame` names them by it.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedhk import EFKMVC, from_frame
    >>> frame = pd.DataFrame({"hospital": ["rome", "oslo"] * 4, "age": [30, 33, 34, 31, 71, 68, 69, 73]})
    >>> frame["sex"] = ["F"] * 4 + ["M"] * 4
    >>> sites = from_frame(frame, site="hospital", views={"record": ["age", "sex"]})
    >>> EFKMVC(n_clusters=2, random_state=0).fit(sites).labels_frame().groupby("cluster").size().tolist()
    [4, 4]
    """
    if hasattr(frame, "partition_by"):  # polars; its own way to pandas needs pyarrow
        frame = pandas().DataFrame({name: frame[name].to_list() for name in frame.columns})
    elif hasattr(frame, "to_pandas"):  # pyarrow
        frame = frame.to_pandas()
    if not (is_frame(frame) and hasattr(frame, "groupby")):
        raise DataError(f"frame must be a pandas, polars or pyarrow table, got {type(frame).__name__}.")
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise DataError(
            "frame has columns with several levels of names; give each one name: frame.columns.map('_'.join)."
        )
    names = list(map(str, frame.columns))
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"frame has several columns called {repeated[:5]}; names must differ.")
    if site not in names:
        raise DataError(f"site={site!r} is no column of the frame; its columns are {names[:10]}.")
    chosen = _check_views(views, names, site)
    unknown = frame[site].isna()
    if unknown.any():
        raise DataError(
            f"site={site!r} is missing in {int(unknown.sum())} rows, the first is row "
            f"{frame.index[unknown.argmax()]!r}: every row needs a site."
        )
    frame = _declare(frame, categories, {column for columns in chosen.values() for column in columns})
    return {
        str(name): {view: part[list(columns)] for view, columns in chosen.items()}
        for name, part in frame.groupby(site, sort=True, observed=True)
    }


def _check_views(views: Any, names: Sequence[str], site: str) -> dict[str, list[str]]:
    if views is None:
        views = {ONLY_VIEW: [name for name in names if name != site]}
    if not isinstance(views, Mapping) or not views:
        raise DataError(f"views={views!r} must be a mapping from the names of views to lists of columns.")
    for view, columns in views.items():
        if isinstance(columns, str) or not len(columns):
            raise DataError(f"views: view {view!r} has {columns!r}; it must be a list of at least one column.")
        if lacking := [column for column in columns if column not in names]:
            raise DataError(f"views: view {view!r} has columns that the frame lacks: {lacking[:5]}.")
        if site in columns:
            raise DataError(f"views: view {view!r} has {site!r}, which says whose a row is: leave it out of the views.")
    return {str(view): list(columns) for view, columns in views.items()}


def _declare(frame: Any, categories: Any, used: set[str]) -> Any:
    """The frame with columns made categories, of the levels that were given."""
    given = categories if isinstance(categories, Mapping) else dict.fromkeys(categories)
    for column, levels in given.items():
        if column not in used:
            raise DataError(f"categories: {column!r} is no column of a view.")
        values = frame[column]
        if levels is not None:
            wrong = values.notna() & ~values.isin(list(levels))
            if wrong.any():
                row = int(np.argmax(wrong.to_numpy()))
                raise DataError(
                    f"categories: column {column!r} has {values.iloc[row]!r} in row {frame.index[row]!r}, which is "
                    f"none of its levels {list(levels)[:8]}."
                )
        found = values.astype("category")
        frame = frame.assign(**{column: found if levels is None else found.cat.set_categories(list(levels))})
    return frame
