"""What comes in when there are several sites: a name and views for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedhk.data.views import Views, check_views, is_view_collection
from fedhk.errors import DataError


def check_clients(clients: Any) -> dict[str, Views]:
    """Check every site's views, and name sites that have no names.

    Parameters
    ----------
    clients : dict or sequence of sites
        A site is a list or dict of tables (see `check_views`); None is a view that it does not have. Sites in a
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
    checked = {}
    for name in sorted(clients, key=str):
        site = clients[name]
        if not is_view_collection(site):
            raise DataError(
                f"Site {str(name)!r} is a {type(site).__name__}; a site is a list or dict of views. Put one table in a "
                "list."
            )
        try:
            checked[str(name)] = check_views(site, missing_views=True, min_rows=0)
        except (TypeError, ValueError) as error:
            raise DataError(f"Site {str(name)!r}: {error}") from error
    counts = {len(views.tables) for name, views in checked.items() if not isinstance(clients.get(name), Mapping)}
    if len(counts) > 1:
        raise DataError(f"Sites have {sorted(counts)} views; give None for a view that a site does not have.")
    return checked
