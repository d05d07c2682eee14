"""Facts from fitted estimators: what a notebook has in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedhk._version import __version__
from fedhk._typing import FloatArray
from fedhk.data.clients import check_clients
from fedhk.data.views import Columns, is_tensor
from fedhk.errors import DataError
from fedhk.report.facts import Assignment, Facts, Round, Site, View
from fedhk.report.rows import Rows, centers_map, flattened, with_rows

HERE = "this site"


def facts_of_model(model: Any, sites: Any = None, site: str | None = None) -> Facts:
    """The facts of a fitted estimator.

    Parameters
    ----------
    model : estimator
        Any fitted FedHK estimator. One that was loaded from a file has no labels, so that there is less to say.
    sites : dict or list of sites, optional
        The rows that it was fitted to, as for `fit`; without them there are no maps of rows.
    site : str, optional
        Show this site alone. With privacy or secure sums nothing of single sites is shown otherwise.
    """
    private = getattr(model, "privacy_spent_", None) is not None or getattr(model, "privacy", None) is not None
    secure = bool(getattr(model, "secure", False))
    released_only = (private or secure) and site is None
    facts = model_facts(model, model.history_ if hasattr(model, "history_") else [])
    known = _sites(model, facts)
    facts = replace(
        facts,
        title=type(model).__name__,
        algorithm=type(model).__name__,
        n_sites=len(known),
        privacy=getattr(model, "privacy_spent_", None),
        secure=secure,
        released_only=released_only,
        own_page_of=site,
        config=repr(model),
    )
    if site is not None and site not in known:
        raise DataError(f"site={site!r} is not in this model; it has {list(known)[:10]}.")
    shown = {name: part for name, part in known.items() if site in (None, name)}
    if released_only:
        return with_center_maps(replace(facts, sites=tuple(Site(name, ()) for name in shown)))
    facts = replace(facts, sites=tuple(shown.values()), shares=shares_of(model, shown))
    facts = replace(facts, n_rows=sum(len(a.labels) for a in facts.assigned.values()) or None)
    if sites is None:
        return with_center_maps(facts)
    rows, facts = _rows(facts, sites)
    own = {s: _own_models(model)[part.name] for s, part in enumerate(facts.sites)}
    return with_rows(facts, rows, model, own)


def with_center_maps(facts: Facts) -> Facts:
    """The facts with maps of the centres alone."""
    return replace(facts, maps={view.name: centers_map(facts, view) for view in facts.views})


def model_facts(model: Any, history: Iterable[Mapping[str, Any]]) -> Facts:
    """What the global model and the history say."""
    return Facts(
        title="",
        algorithm="",
        views=views_of(model),
        sites=(),
        n_sites=0,
        rounds=tuple(_round(number, record) for number, record in enumerate(history, start=1)),
        objective=float(getattr(model, "objective_", math.nan)),
        converged=getattr(model, "converged_", None),
        stop_reason=str(getattr(model, "stop_reason_", "")),
        fuzzifier=float(model.fuzzifier_),
        unit_rows=any(reference.unit_rows for reference in model._model.references),
        version=__version__,
    )


def _round(number: int, record: Mapping[str, Any]) -> Round:
    """A record of the history; at one site it is an iteration, and in a model file it has no times."""
    objective = record.get("objective")
    return Round(
        number,
        math.nan if objective is None else float(objective),
        float(record.get("seconds") or 0.0),
        record.get("clients"),
        record.get("bytes_up"),
        record.get("bytes_down"),
        dict(record.get("refused", {})),
    )


def views_of(model: Any) -> tuple[View, ...]:
    """The views of a model, with centres in input units and spreads as its units have them."""
    fitted = model._model
    parts = zip(
        fitted.view_names, fitted.columns, fitted.centers(), fitted.references, model.view_weights_, strict=True
    )
    return tuple(
        View(
            name,
            _feature_names(name, columns, reference.width),
            np.asarray(centers, np.float64).reshape(len(centers), -1),
            float(weight),
            reference.shift,
            _model_spread(reference.scale),
        )
        for name, columns, centers, reference, weight in parts
    )


def _model_spread(scale: FloatArray) -> FloatArray:
    """Spread of features as the units of a view have it: with scaling="standard", the standard deviation.

    Units are such that all features of a view together have mean square 1.
    """
    finite = np.isfinite(scale)
    spread: FloatArray = np.where(finite, scale, 0.0) / math.sqrt(max(int(finite.sum()), 1))
    return spread


def _feature_names(view: str, columns: Columns, width: int) -> tuple[str, ...]:
    if columns is None:
        return tuple(f"{view}[{j}]" for j in range(width))
    if is_tensor(columns):
        shape = tuple(int(size) for size in columns)
        return tuple(str(list(map(int, place))) for place in np.ndindex(*shape))
    return tuple(map(str, columns))


def own_site(name: str, views: tuple[str, ...], model: Any, assignment: Assignment | None) -> Site:
    """A site with what its own model says."""
    own = views_of(model)
    return Site(
        name, views, assignment, {view.name: view.centers for view in own}, {view.name: view.weight for view in own}
    )


def shares_of(model: Any, names: Iterable[str]) -> dict[str, dict[str, float]]:
    """What sites took of their own rows, by site and component."""
    shares: dict[str, dict[str, float]] = {}
    for record in getattr(model, "personalization_", None) or []:
        if record["site"] in names:
            shares.setdefault(record["site"], {})[record["component"]] = float(record["value"])
    return shares


def _own_models(model: Any) -> dict[str, Any]:
    return dict(getattr(model, "client_models_", {HERE: model}))


def _sites(model: Any, facts: Facts) -> dict[str, Site]:
    """The sites of a model that was fitted in this process; none of one that was loaded."""
    if not hasattr(model, "labels_"):
        return {}
    names = tuple(view.name for view in facts.views)
    if not isinstance(model.labels_, Mapping):
        assignment = Assignment(model.labels_, model.labels_, model.memberships_.max(axis=1))
        return {HERE: own_site(HERE, names, model, assignment)}
    return {
        name: own_site(
            name,
            names,
            own,
            Assignment(model.labels_[name], model.global_labels_[name], model.memberships_[name].max(axis=1)),
        )
        for name, own in model.client_models_.items()
    }


def _rows(facts: Facts, sites: Any) -> tuple[dict[int, Rows], Facts]:
    """Rows by number of the site, and the facts with the views that sites really have."""
    one = len(facts.sites) == 1 and facts.sites[0].name == HERE
    clients = check_clients({HERE: sites if isinstance(sites, list | dict) else [sites]} if one else sites)
    rows, known = {}, []
    for s, site in enumerate(facts.sites):
        views = clients.get(site.name)
        assert site.assignment is not None  # noqa: S101 - a fitted model has labels
        if views is None or views.n_rows != len(site.assignment.labels):
            found = "no rows" if views is None else f"{views.n_rows} rows"
            raise DataError(
                f"sites has {found} for {site.name!r}; the model was fitted to {len(site.assignment.labels)}."
            )
        names = views.names if not one else tuple(view.name for view in facts.views)
        tables = dict(zip(names, views.tables, strict=True))
        rows[s] = Rows(
            flattened(tables, [view.name for view in facts.views], unit_rows=facts.unit_rows), site.assignment.labels
        )
        known.append(replace(site, views=tuple(name for name, table in rows[s].tables.items() if table is not None)))
    return rows, replace(facts, sites=tuple(known))
