"""Reads the input of federated estimators: a name and views for each site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._text import LONGEST_NAME, is_name, is_printable
from fedhk.data.levels import common_columns
from fedhk.data.views import Columns, Views, check_views, find_difference, fit_table, is_tensor, is_view_collection
from fedhk.errors import DataError


def check_clients(clients: Any) -> dict[str, Views]:
    """Check the views of every site, and return them in the order of the sites' names.

    A site is a list or dict of views (see `check_views`); None is a view that it does not have. Sites in a sequence are
    called "site-00", "site-01", and so on. A DataError names the site, the view, what was found and what is allowed.
    """
    if isinstance(clients, np.ndarray) or not isinstance(clients, Mapping | list | tuple):
        raise DataError(
            "sites must be a dict by name or a list of sites, each a list or dict of views, got "
            f"{type(clients).__name__}. fedhk.from_frame(frame, site=...) makes sites of one data frame with a column "
            "that names the site, fedhk.from_anndata(data, site=...) of cells. For the rows of one site use "
            "HeatKernelMVC."
        )
    if not len(clients):
        raise DataError("sites is empty: at least one site is needed.")
    if not isinstance(clients, Mapping):
        clients = name_sites(clients)
    checked: dict[str, Views] = {}
    for key in sorted(clients, key=str):
        name = str(key)
        if not is_name(name):
            raise DataError(
                f"Site {name[:LONGEST_NAME]!r}: the name of a site must be 1 to {LONGEST_NAME} printable characters."
            )
        if name in checked:
            raise DataError(f"Two sites are called {name!r}: names must differ as text.")
        checked[name] = _check_site(clients[key], name)
    if not any(views.n_rows for views in checked.values()):
        raise DataError(f"There are no rows at any of the {len(checked)} sites; at least one row is needed.")
    _check_same_number(clients)
    checked = _fit_columns(checked)
    _check_same_views(checked)
    return checked


def check_public(given: Any, clients: Mapping[str, Views]) -> Views:
    """Check public rows, and return them with the views and columns of the sites, in their order.

    A DataError says which view or column is another than at the sites.
    """
    name, known = "public", dict[str, tuple[str, int, Columns]]()
    for site, views in clients.items():
        for view, width, columns in zip(views.names, views.widths, views.columns, strict=True):
            if width is not None and (view not in known or (known[view][2] is None and columns is not None)):
                known[view] = site, width, columns
    own = _check_site(given, name)
    if set(own.names) != set(known) or any(table is None for table in own.tables):
        held = [view for view, table in zip(own.names, own.tables, strict=True) if table is not None]
        raise DataError(f"public rows have the views {held}, the sites have {list(known)}: give all of these.")
    tables, listed = [], []
    for view, (site, width, expected) in known.items():
        place = own.names.index(view)
        table, columns = fit_table(own.tables[place], own.columns[place], expected, f"view {view!r}")
        whose = f"site {site!r}"
        if difference := find_difference(columns, int(table.shape[1]), expected, width, whose, f"at {whose}"):
            raise DataError(f"public rows: view {view!r} {difference}; they must have the features of the sites.")
        tables.append(table)
        listed.append(columns)
    missing = tuple(own.missing[own.names.index(view)] for view in known)
    return replace(own, names=tuple(known), tables=tuple(tables), columns=tuple(listed), missing=missing)


def name_sites(sites: Any) -> dict[str, Any]:
    """Return the sites by name; sites in a sequence are named by their place."""
    if isinstance(sites, Mapping):
        return {str(name): site for name, site in sites.items()}
    digits = max(2, len(str(len(sites) - 1)))
    return {f"site-{i:0{digits}d}": site for i, site in enumerate(sites)}


def _check_site(site: Any, name: str) -> Views:
    if not is_view_collection(site):
        remedy = "fedhk.from_anndata makes views of it" if hasattr(site, "obs_names") else "Put one table in a list"
        raise DataError(f"Site {name!r} is a {type(site).__name__}; a site is a list or dict of views. {remedy}.")
    try:
        views = check_views(site, missing_views=True, min_rows=0)
    except (TypeError, ValueError) as error:
        raise DataError(f"Site {name!r}: {error}") from error
    for view, columns in zip(views.names, views.columns, strict=True):
        hidden = [c for c in (() if columns is None or is_tensor(columns) else columns) if not is_printable(str(c))]
        if hidden:
            raise DataError(
                f"Site {name!r}: view {view!r}, column {hidden[0]!r}: it has characters that do not show; rename it."
            )
    return views


def _check_same_number(clients: Mapping[Any, Any]) -> None:
    """Refuse lists of views of different lengths: views in lists are identified by their place."""
    counts: dict[int, str] = {}
    for name, site in clients.items():
        if not isinstance(site, Mapping):
            counts.setdefault(len(site), str(name))
    if len(counts) > 1:
        listed = ", ".join(f"site {name!r} has {count}" for count, name in counts.items())
        raise DataError(
            f"Sites must list the same views, but {listed} views; give None for a view that a site does not have."
        )


def _fit_columns(checked: Mapping[str, Views]) -> dict[str, Views]:
    """Bring the columns of data frames into one order, and their categories to the levels of all sites together."""
    named: dict[str, list[Any]] = {}
    for views in checked.values():
        for view, columns in zip(views.names, views.columns, strict=True):
            if columns is not None and not is_tensor(columns):
                named.setdefault(view, []).append(columns)
    common = {view: common_columns(several) for view, several in named.items() if len(set(several)) > 1}
    fitted = {}
    for site, views in checked.items():
        parts = list(zip(views.names, views.tables, views.columns, strict=True))
        try:
            own = [fit_table(table, columns, common.get(view), f"view {view!r}") for view, table, columns in parts]
        except ValueError as error:
            raise DataError(f"Site {site!r}: {error}") from error
        fitted[site] = replace(
            views, tables=tuple(table for table, _ in own), columns=tuple(columns for _, columns in own)
        )
    return fitted


def fit_site(views: Views, known: Mapping[str, tuple[int, Columns]], site: str) -> Views:
    """Bring the columns of a site's views to those of the model, for the views that the model knows."""
    tables, columns, found = list(views.tables), list(views.columns), False
    for place, (name, table) in enumerate(zip(views.names, views.tables, strict=True)):
        if table is None or name not in known:
            continue
        width, wanted = known[name]
        try:
            tables[place], columns[place] = fit_table(table, columns[place], wanted, f"view {name!r}")
        except ValueError as error:
            raise DataError(f"Site {site!r}: {error}") from error
        difference = find_difference(
            columns[place], tables[place].shape[1], wanted, width, "the model", "but the model expects"
        )
        if difference:
            raise DataError(f"Site {site!r}: view {name!r} {difference}.")
        found = True
    if not found:
        raise DataError(f"Site {site!r} has none of the views of the model, which knows {list(known)[:10]}.")
    return replace(views, tables=tuple(tables), columns=tuple(columns))


def _check_same_views(checked: Mapping[str, Views]) -> None:
    """Refuse a view whose columns differ between sites, or that has no value at any site."""
    known: dict[str, tuple[str, int, Columns]] = {}  # the first site with the view that knows its columns, if one does
    observed: dict[str, bool] = {}
    for site, views in checked.items():
        parts = zip(views.names, views.tables, views.missing, views.columns, strict=True)
        for view, table, missing, columns in parts:
            observed.setdefault(view, False)
            if table is None:
                continue
            width = int(table.shape[1])
            other, expected_width, expected = known.setdefault(view, (site, width, columns))
            whose = f"site {other!r}"
            if difference := find_difference(columns, width, expected, expected_width, whose, f"at {whose}"):
                raise DataError(
                    f"Site {site!r}: view {view!r} {difference}; a view must have the same features at every site."
                )
            if expected is None:
                known[view] = site, width, columns
            if views.n_rows and not observed[view]:
                observed[view] = not missing or sp.issparse(table) or not np.isnan(table).all()
    for view, has_value in observed.items():
        if not has_value:
            raise DataError(f"View {view!r} has no observed value at any site: leave the view out.")
