"""What comes in when there are several sites: a name and views for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk.data.views import Columns, Views, check_views, is_tensor, is_view_collection, other_names, size_text
from fedhk.errors import DataError

# Longer names do not fit the header of a message.
LONGEST_NAME = 200


def check_clients(clients: Any) -> dict[str, Views]:
    """Check every site's views, and name sites that have no names.

    Parameters
    ----------
    clients : dict or sequence of sites
        A site is a list or dict of views (see `check_views`); None is a view that it does not have. Sites in a
        sequence are called "site-00", "site-01", and so on.

    Returns
    -------
    dict of str to Views
        In the order of the names.

    Raises
    ------
    DataError
        Naming the site, the view, what was found and what is allowed.
    """
    if isinstance(clients, np.ndarray) or not isinstance(clients, Mapping | list | tuple):
        raise DataError(
            "sites must be a dict by name or a list of sites, each a list or dict of views, got "
            f"{type(clients).__name__}. For the rows of one site use HeatKernelMVC."
        )
    if not len(clients):
        raise DataError("sites is empty: at least one site is needed.")
    if not isinstance(clients, Mapping):
        digits = max(2, len(str(len(clients) - 1)))
        clients = {f"site-{i:0{digits}d}": site for i, site in enumerate(clients)}
    checked: dict[str, Views] = {}
    for key in sorted(clients, key=str):
        name = _checked_name(key, checked)
        checked[name] = _checked_site(clients[key], name)
    _check_same_number({str(key): site for key, site in clients.items()})
    _check_same_views(checked)
    return checked


def _checked_name(key: Any, known: Mapping[str, Views]) -> str:
    name = str(key)
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise DataError(
            f"Site {name[:LONGEST_NAME]!r}: the name of a site must be 1 to {LONGEST_NAME} printable characters."
        )
    if name in known:
        raise DataError(f"Two sites are called {name!r}: names must differ as text.")
    return name


def _checked_site(site: Any, name: str) -> Views:
    if not is_view_collection(site):
        raise DataError(
            f"Site {name!r} is a {type(site).__name__}; a site is a list or dict of views. Put one table in a list."
        )
    try:
        return check_views(site, missing_views=True, min_rows=0)
    except (TypeError, ValueError) as error:
        raise DataError(f"Site {name!r}: {error}") from error


def _check_same_number(clients: Mapping[str, Any]) -> None:
    """Views in lists are told apart by their place, so that every site must list them all."""
    counts: dict[int, str] = {}
    for name, site in clients.items():
        if not isinstance(site, Mapping):
            counts.setdefault(len(site), name)
    if len(counts) > 1:
        listed = ", ".join(f"site {name!r} has {count}" for count, name in counts.items())
        raise DataError(
            f"Sites must list the same views, but {listed} views; give None for a view that a site does not have."
        )


def _check_same_views(checked: Mapping[str, Views]) -> None:
    """Refuse a view that is not the same table everywhere, or that nobody has a value of."""
    known: dict[str, tuple[str, int, Columns]] = {}  # the first site with the view that knows its columns, if one does
    for site, views in checked.items():
        for view, width, columns in zip(views.names, views.widths, views.columns, strict=True):
            if width is None:
                continue
            other, expected_width, expected = known.setdefault(view, (site, width, columns))
            if difference := _difference(view, width, columns, other, expected_width, expected):
                raise DataError(f"Site {site!r}: {difference}")
            if expected is None:
                known[view] = site, width, columns
    for view in {name: None for views in checked.values() for name in views.names}:
        if not any(_has_value(views, view) for views in checked.values()):
            raise DataError(f"View {view!r} has no observed value at any site: leave the view out.")


def _difference(  # noqa: PLR0917
    view: str, width: int, columns: Columns, other: str, expected_width: int, expected: Columns
) -> str:
    """How a view differs from the same at another site; empty if it does not."""
    if width == expected_width and (columns is None or expected is None or columns == expected):
        return ""
    if width != expected_width or is_tensor(columns) or is_tensor(expected):
        return (
            f"view {view!r} has {size_text(columns, width)}, at site {other!r} {size_text(expected, expected_width)}; "
            "a view must have the same features at every site."
        )
    missing, extra = other_names(columns, expected)
    if not missing and not extra:
        return f"view {view!r} has the columns of site {other!r} in another order; order them alike."
    return f"view {view!r} has other columns than at site {other!r}: missing {missing[:5]}, unexpected {extra[:5]}."


def _has_value(views: Views, view: str) -> bool:
    if view not in views.names or not views.n_rows:
        return False
    place = views.names.index(view)
    table = views.tables[place]
    if table is None:
        return False
    return not views.missing[place] or sp.issparse(table) or not bool(np.isnan(table).all())
