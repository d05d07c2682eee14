"""Facts from a fitted estimator and the rows that it was fitted to: what a notebook has in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedhk.data.clients import check_clients
from fedhk.errors import DataError
from fedhk.report.projection import project_rows
from fedhk.report.rows import Rows, make_rows, measure
from fedhk.summary.facts import Facts
from fedhk.summary.model import ONLY_SITE, read_model


def read_fitted(model: Any, sites: Any = None, site: str | None = None) -> Facts:
    """Read the facts of a fitted estimator.

    Parameters
    ----------
    model : estimator
        Any fitted FedHK estimator.
    sites : dict or list of sites, optional
        The rows that it was fitted to, as for `fit`; without them there are no maps of rows.
    site : str, optional
        Show this site alone. With privacy or secure sums nothing of single sites is shown otherwise.
    """
    facts = read_model(model, site)
    if sites is None or facts.released_only:
        return facts
    if not facts.sites:
        raise DataError("sites cannot be drawn: the model was loaded from a file, which holds no labels.")
    rows = _match_rows(facts, sites)
    known = (
        replace(part, views=tuple(name for name, table in rows[s].tables.items() if table is not None))
        for s, part in enumerate(facts.sites)
    )
    facts = replace(facts, sites=tuple(known))
    own = getattr(model, "client_models_", {ONLY_SITE: model})
    return add_rows(facts, rows, model, {s: own[part.name] for s, part in enumerate(facts.sites)})


def add_rows(facts: Facts, rows: dict[int, Rows], model: Any, own_models: dict[int, Any]) -> Facts:
    """Add to the facts what rows tell, and maps of them."""
    facts = measure(facts, rows, model, own_models)
    return replace(facts, maps={view.name: project_rows(facts, view, rows) for view in facts.views})


def _match_rows(facts: Facts, sites: Any) -> dict[int, Rows]:
    """Find the rows of each site, by its number; refuses rows that the model was not fitted to."""
    names = [view.name for view in facts.views]
    one = [part.name for part in facts.sites] == [ONLY_SITE]
    clients = check_clients({ONLY_SITE: sites if isinstance(sites, list | dict) else [sites]} if one else sites)
    rows = {}
    for s, (part, assignment) in enumerate(zip(facts.sites, facts.assigned.values(), strict=True)):
        views, expected = clients.get(part.name), len(assignment.labels)
        if views is None or views.n_rows != expected:
            found = "no rows" if views is None else f"{views.n_rows} rows"
            raise DataError(f"sites has {found} for {part.name!r}; the model was fitted to {expected}.")
        tables = dict(zip(names if one else views.names, views.tables, strict=True))
        rows[s] = make_rows(tables, names, assignment.labels, unit_rows=facts.unit_rows)
    return rows
