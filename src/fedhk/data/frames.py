"""Sites from one long data frame: a column says which site a row is of, and groups of columns are the views."""

from __future__ import annotations

import os
import warnings
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from fedhk._names import suggest
from fedhk._text import listed
from fedhk.data.clients import check_clients
from fedhk.data.dictionary import Dictionary, read_dictionary
from fedhk.data.doubts import doubt_dates, doubt_lone, doubt_meanings, doubt_rows, doubt_sites
from fedhk.data.levels import date_columns, find_faults, is_frame, name_faults, name_row, read_cells, source_columns
from fedhk.data.truths import encode_truths
from fedhk.data.views import Columns, check_views, is_tensor, list_columns, warn_of_extra
from fedhk.errors import DataError, MissingPackageError

__all__ = ["from_frame"]

# What the only view is called where no views are given.
ONLY_VIEW = "table"


def pandas() -> Any:
    """Import pandas, or raise an error that says how to install it."""
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
    dictionary: Dictionary | str | os.PathLike[str] | None = None,
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
    dictionary : Dictionary or path, optional
        A data dictionary (`fedhk.read_dictionary`), in the place of `views` and `categories`: it says what the views
        and their columns are, and what contradicts it is refused. Its levels and ranges are public, so that a run with
        noise or masks may use them. New rows are read by it, too.

    Returns
    -------
    dict of str to (dict of str to pandas.DataFrame)
        The views of each site, as `fit` takes them. Rows keep their index, so that `labels_frame` names them by it:
        ``frame.join(model.labels_frame().set_index("row")["cluster"])`` puts the clusters beside the rows. A frame
        without an index of its own, such as one of polars, has the places of its rows, from 0, in the place of names.

    Warns
    -----
    UserWarning
        Of columns in several views, levels and codes that may mean otherwise than they read, dates where no views are
        given, rows that share a name, and sites whose names differ by capital letters or spaces only.

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
    frame = _as_pandas(frame)
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise DataError(
            "frame has columns with several levels of names; give each one name: frame.columns.map('_'.join)."
        )
    names = list(map(str, frame.columns))
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"frame has several columns called {repeated[:5]}; names must differ.")
    if not isinstance(site, str) or site not in names:
        raise DataError(
            f"site={site!r} is no column of the frame: give the name of one; its columns are {names[:10]}."
            f"{suggest(str(site), names)}"
        )
    if dictionary is not None:
        if views is not None or categories:
            raise DataError("dictionary= says what views and categories are: leave views= and categories= out.")
        known = dictionary if isinstance(dictionary, Dictionary) else read_dictionary(dictionary)
        if not known:
            raise DataError("dictionary= names no column: leave it out, or give each column a table in it.")
        views = {view: list(known.read_columns(view)) for view in known}
    chosen = _check_views(views, names, site)
    _check_owners(frame, site)
    frame = _declare(frame, categories, {column for columns in chosen.values() for column in columns})
    tables = {view: frame[columns] for view, columns in chosen.items()}
    if dictionary is not None:
        tables = _enforce(tables, known)
    elif faults := [fault for view, table in tables.items() for fault in find_faults(table, view)]:
        raise DataError(name_faults(faults))
    owners = frame[site].map(_without_spaces)
    groups = frame.groupby(owners, sort=True, observed=True).indices
    sites = Sites(
        {str(name): {view: table.iloc[groups[name]] for view, table in tables.items()} for name in sorted(groups)}
    )
    doubts = _doubt_names(sites, frame.index)
    if dictionary is None:
        with suppress(ValueError):  # what cannot be read is refused by `fit`
            doubts += doubt_lone({view: _name_lone(table, view) for view, table in tables.items()})
        doubts += _doubt_columns(sites, categories, date_columns(tables[ONLY_VIEW]) if views is None else ())
    _warn_of_doubts(doubts)
    return sites


def _name_lone(table: Any, view: str) -> tuple[str, ...] | None:
    """Return what the only column of a view is called once levels are columns; None where there are several."""
    read = encode_truths({"": check_views({view: table})})[""] if table.shape[1] == 1 else None
    return None if read is None else list_columns([read]).get(view)


def _check_owners(frame: Any, site: str) -> None:
    """Refuse rows without a site."""
    unknown = frame[site].isna() | frame[site].map(_is_blank).astype(bool)
    if unknown.any():
        raise DataError(
            f"site={site!r} is missing in {int(unknown.sum())} rows, the first is row "
            f"{name_row(frame, int(unknown.argmax()))}: every row needs a site."
        )


def _warn_of_doubts(doubts: Sequence[str]) -> None:
    """Give one warning for all doubts."""
    if doubts:
        text = doubts[0] if len(doubts) == 1 else "\n- ".join(["", *doubts])
        warnings.warn(f"from_frame: {text}", UserWarning, stacklevel=3)


def _doubt_names(sites: Mapping[str, Any], index: Any) -> list[str]:
    """List what may be wrong with the names of sites and of rows."""
    repeated = index[index.duplicated()].unique()
    return [*doubt_sites(sites), *([doubt_rows(repeated)] if len(repeated) else [])]


def _doubt_columns(sites: Mapping[str, Mapping[str, Any]], declared: Container[str], dates: Sequence[str]) -> list[str]:
    """List what may mean otherwise than it reads; nothing of columns that are declared or that `fit` will refuse."""
    doubts = [doubt_dates(dates)] if dates else []
    tables = {
        site: {view: table[[name for name in table.columns if name not in declared]] for view, table in views.items()}
        for site, views in sites.items()
    }
    with suppress(DataError):
        read = check_clients({site: {v: t for v, t in own.items() if t.shape[1]} for site, own in tables.items()})
        cells = {site: dict(zip(views.names, views.tables, strict=True)) for site, views in read.items()}
        doubts += doubt_meanings(cells, list_columns(read.values()))
    return doubts


class Sites(dict[str, dict[str, Any]]):
    """Views by site and name."""

    def __missing__(self, site: Any) -> dict[str, Any]:
        if isinstance(site, str):
            raise KeyError(site)
        raise DataError(
            f"sites have names, {listed(self)}, and no number {site}. If you search parameters: GridSearchCV takes "
            "list(sites.values()) and leaves whole sites out; rows of one place are split by fedhk.MultiView; "
            "fedhk.evaluate holds rows out at every site."
        )


def find_views(frame: Any, views: Mapping[str, Columns]) -> Any:
    """Find the views of a model in one data frame, by the names of their columns; further columns are left out.

    What is no data frame comes back as it is, and so does any where a view of the model has columns without names.

    Raises
    ------
    ValueError
        Naming the columns that the frame lacks, by view.
    """
    named = {view: columns for view, columns in views.items() if columns is not None and not is_tensor(columns)}
    frame = frame.to_pandas() if hasattr(frame, "column_names") and hasattr(frame, "to_pandas") else frame
    if not is_frame(frame) or len(named) < len(views):
        return frame
    labels = {str(label): label for label in frame.columns}
    wanted = {view: source_columns(columns, labels) for view, columns in named.items()}
    lacking = {view: [name for name in own if name not in labels] for view, own in wanted.items()}
    if any(lacking.values()):
        which = "; ".join(f"of view {view!r} {listed(names)}" for view, names in lacking.items() if names)
        unsaid = "" if len(views) == 1 else " To leave a view out, give a dict of the others: {view: frame[columns]}."
        raise ValueError(f"X is a data frame that lacks columns of the model: {which}.{unsaid}")
    warn_of_extra([name for name in labels if not any(name in own for own in wanted.values())])
    return {view: frame[[labels[name] for name in own]] for view, own in wanted.items()}


def _without_spaces(name: Any) -> Any:
    """Return a name without spaces around it, as levels and the sites of `fedhk split` are read."""
    return name.strip() if isinstance(name, str) else name


def _is_blank(name: Any) -> bool:
    return isinstance(name, str) and not name.strip()


def _as_pandas(frame: Any) -> Any:
    if hasattr(frame, "partition_by"):  # polars; its own way to pandas needs pyarrow
        frame = pandas().DataFrame({name: frame[name].to_list() for name in frame.columns})
    elif hasattr(frame, "to_pandas"):  # pyarrow
        frame = frame.to_pandas()
    if not (is_frame(frame) and hasattr(frame, "groupby")):
        raise DataError(f"frame must be a pandas, polars or pyarrow table, got {type(frame).__name__}.")
    return frame


def _check_views(views: Any, names: Sequence[str], site: str) -> dict[str, list[str]]:
    if views is None:
        views = {ONLY_VIEW: [name for name in names if name != site]}
    if not isinstance(views, Mapping) or not views:
        raise DataError(f"views={views!r} must be a mapping from the names of views to lists of columns.")
    for view, columns in views.items():
        if isinstance(columns, str) or not len(columns):
            raise DataError(f"views: view {view!r} has {columns!r}; it must be a list of at least one column.")
        if lacking := [column for column in columns if column not in names]:
            meant = suggest(str(lacking[0]), names)
            raise DataError(f"views: view {view!r} has columns that the frame lacks: {lacking[:5]}.{meant}")
        if twice := sorted({column for column in columns if list(columns).count(column) > 1}):
            raise DataError(f"views: view {view!r} has {listed(twice)} more than once: name each column once.")
        if site in columns:
            raise DataError(f"views: view {view!r} has {site!r}, which says whose a row is: leave it out of the views.")
    _warn_of_shared(views)
    return {str(view): list(columns) for view, columns in views.items()}


def _warn_of_shared(views: Mapping[str, Sequence[str]]) -> None:
    """Warn of columns that are in several views."""
    having: dict[str, list[str]] = {}
    for view, columns in views.items():
        for column in columns:
            having.setdefault(column, []).append(view)
    shared = {column: several for column, several in having.items() if len(several) > 1}
    if shared:
        column, several = next(iter(shared.items()))
        more = f", and {len(shared) - 1} more columns are in several views" if len(shared) > 1 else ""
        warnings.warn(
            f"from_frame: column {column!r} is in the views {listed(several)}{more}: it counts in each of them. Leave "
            "it in one, unless you mean that.",
            UserWarning,
            stacklevel=4,
        )


def _enforce(tables: Mapping[str, Any], dictionary: Dictionary) -> dict[str, Any]:
    """Convert the columns of all views to numbers by a data dictionary."""
    try:
        polars, read = import_module("polars"), import_module("fedhk.data.file_columns").read_column
    except ImportError as error:
        raise MissingPackageError("a data dictionary needs the package 'polars': pip install 'fedhk[cli]'") from error
    found, faults = {}, []
    for view, table in tables.items():
        parts: list[Any] = []
        for name, entry in dictionary.read_columns(view).items():
            try:
                values = read(polars.Series(name, read_cells(table[name]), strict=False), "\t", entry).values
            except ValueError as error:
                faults.append(f"view {view!r}, {error}")
                continue
            parts += values.get_columns() if hasattr(values, "get_columns") else [values]
        columns = {part.name: part.cast(polars.Float64).to_numpy() for part in parts}
        found[view] = pandas().DataFrame(columns, index=table.index)
    if faults:
        raise DataError(name_faults(faults))
    return found


def _declare(frame: Any, categories: Any, used: set[str]) -> Any:
    """Make columns of a frame categories with the given levels."""
    given = categories if isinstance(categories, Mapping) else dict.fromkeys(categories)
    for column, levels in given.items():
        if column not in used:
            raise DataError(f"categories: {column!r} is no column of a view.{suggest(str(column), used)}")
        values = frame[column]
        if levels is not None:
            wrong = values.notna() & ~values.isin(list(levels))
            if wrong.any():
                row = int(np.argmax(wrong.to_numpy()))
                raise DataError(
                    f"categories: column {column!r} has {values.iloc[row]!r} in row {name_row(frame, row)}, which is "
                    f"none of its levels {list(levels)[:8]}."
                )
        found = values.astype("category")
        frame = frame.assign(**{column: found if levels is None else found.cat.set_categories(list(levels))})
    return frame
