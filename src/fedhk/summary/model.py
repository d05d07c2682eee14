"""Facts from fitted estimators: what is known without any row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.views import Columns, is_tensor
from fedhk.errors import DataError
from fedhk.summary.facts import Assignment, Facts, Round, Site, View

# What the only site of an estimator for one site is called.
ONLY_SITE = "this site"


def read_model(model: Any, site: str | None = None) -> Facts:
    """Read the facts of a fitted estimator.

    Parameters
    ----------
    model : estimator
        Any fitted FedHK estimator. One that was loaded from a file has no labels, so that there is less to say.
    site : str, optional
        Show this site alone. With privacy or secure sums nothing of single sites is shown otherwise.
    """
    known = _read_sites(model)
    if site is not None and site not in known:
        raise DataError(f"site={site!r} is not in this model; it has {list(known)[:10]}.")
    spent, secure = getattr(model, "privacy_spent_", None), bool(getattr(model, "secure", False))
    private = spent is not None or getattr(model, "privacy", None) is not None
    shown = {name: part for name, part in known.items() if site in (None, name)}
    released_only = (private or secure) and site is None
    if released_only:
        shown = {name: Site(name, ()) for name in shown}
    facts = replace(
        read_global_model(model, getattr(model, "history_", [])),
        title=type(model).__name__,
        algorithm=type(model).__name__,
        sites=tuple(shown.values()),
        n_sites=len(known),
        privacy=spent,
        secure=secure,
        released_only=released_only,
        own_page_of=site,
        config=repr(model),
    )
    return replace(facts, n_rows=sum(len(a.labels) for a in facts.assigned.values()) or None)


def read_global_model(model: Any, history: Iterable[Mapping[str, Any]]) -> Facts:
    """Read what the global model and a history say; title, algorithm and sites are left empty."""
    return Facts(
        title="",
        algorithm="",
        views=read_views(model),
        sites=(),
        n_sites=0,
        rounds=tuple(_read_round(number, record) for number, record in enumerate(history, start=1)),
        converged=getattr(model, "converged_", None),
        stop_reason=str(getattr(model, "stop_reason_", "")),
        fuzzifier=float(model.fuzzifier_),
        unit_rows=any(reference.unit_rows for reference in model._model.references),
    )


def _read_round(number: int, record: Mapping[str, Any]) -> Round:
    """Read a record of the history; one of a single site or of a model file has fewer fields."""
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


def read_views(model: Any) -> tuple[View, ...]:
    """Read the views of a model, with centres in input units and spreads as its units have them."""
    fitted = model._model
    return tuple(
        View(
            name,
            _name_features(name, columns, reference.width),
            np.asarray(centers, np.float64).reshape(len(centers), -1),
            float(weight),
            reference.shift,
            _model_spread(reference.scale),
        )
        for name, columns, centers, reference, weight in zip(
            fitted.view_names, fitted.columns, fitted.centers(), fitted.references, model.view_weights_, strict=True
        )
    )


def _model_spread(scale: FloatArray) -> FloatArray:
    """Compute the spread of features from the units of a view: with scaling="standard", the standard deviation.

    Units are such that all features of a view together have mean square 1.
    """
    finite = np.isfinite(scale)
    spread: FloatArray = np.where(finite, scale, 0.0) / math.sqrt(max(int(finite.sum()), 1))
    return spread


def _name_features(view: str, columns: Columns, width: int) -> tuple[str, ...]:
    if columns is None:
        return tuple(f"{view}[{j}]" for j in range(width))
    if is_tensor(columns):
        return tuple(str(list(map(int, place))) for place in np.ndindex(*(int(size) for size in columns)))
    return tuple(map(str, columns))


def _read_sites(model: Any) -> dict[str, Site]:
    """Read the sites of a model that was fitted in this process; one that was loaded has none."""
    if not hasattr(model, "labels_"):
        return {}
    names = tuple(model._model.view_names)
    if not isinstance(model.labels_, Mapping):
        assignment = Assignment(model.labels_, model.labels_, model.memberships_.max(axis=1))
        return {ONLY_SITE: read_site_model(ONLY_SITE, names, model, assignment, {})}
    found, shares = {}, read_shares(model)
    for name, own in model.client_models_.items():
        certainty = model.memberships_[name].max(axis=1)
        assignment = Assignment(model.labels_[name], model.global_labels_[name], certainty)
        found[name] = read_site_model(name, names, own, assignment, shares.get(name, {}))
    return found


def read_site_model(
    name: str, views: tuple[str, ...], model: Any, assignment: Assignment | None, shares: Mapping[str, float]
) -> Site:
    """Read a site's own model; `shares` are what `read_shares` says of it."""
    own = read_views(model)
    centers, weights = {view.name: view.centers for view in own}, {view.name: view.weight for view in own}
    return Site(name, views, assignment, centers, weights, shares)


def read_shares(model: Any) -> dict[str, dict[str, float]]:
    """Read which share of its own each site uses, by site and component."""
    shares: dict[str, dict[str, float]] = {}
    for record in getattr(model, "personalization_", None) or []:
        shares.setdefault(record["site"], {})[record["component"]] = float(record["value"])
    return shares
