"""Facts from fitted estimators, as far as they are known without any row, and what estimators show in notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from fedhk._shares import share_out
from fedhk._text import printable
from fedhk._typing import FloatArray
from fedhk.data.levels import level_groups
from fedhk.data.named import ALL_SITES
from fedhk.data.views import Columns, is_tensor
from fedhk.errors import DataError
from fedhk.summary.charts import convergence
from fedhk.summary.drawing import MissingMatplotlibError
from fedhk.summary.facts import Assignment, Facts, Moved, Round, Site, TriedNumber, Update, View
from fedhk.summary.html import frame, tag
from fedhk.summary.narrative import headline

# What the only site of an estimator for one site is called.
ONLY_SITE = "this site"


def model_html(model: Any) -> str:
    """Describe a fitted estimator: the summary of its report and, with matplotlib installed, how it converged."""
    facts, figure = read_model(model), ""
    if len(facts.rounds) > 1:
        with suppress(MissingMatplotlibError):
            figure = convergence(facts.rounds, unit=facts.step_name, noisy=facts.privacy is not None).to_html()
    return frame(tag("h3", facts.title), headline(facts), tag("div", figure, class_="figures"))


def read_model(model: Any, site: str | None = None) -> Facts:
    """Read the facts of a fitted estimator; one that was loaded from a file has no labels, so there is less to say.

    `site` shows that site alone. With privacy or secure sums nothing of single sites is shown otherwise.
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
    facts = read_global_model(
        model,
        getattr(model, "history_", []),
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


def read_global_model(model: Any, history: Iterable[Mapping[str, Any]], **others: Any) -> Facts:
    """Read what the global model and a history say, and add other facts."""
    return Facts(
        views=_read_views(model, noisy=others.get("privacy") is not None),
        deviations=tuple(
            record["text"]
            for record in getattr(model, "deviations_", ())
            if others.get("own_page_of") in (None, record["site"])
        ),
        selection=tuple(_read_number(record) for record in getattr(model, "selection_", ())),
        update=_read_update(model, others.get("own_page_of"), released_only=bool(others.get("released_only"))),
        rounds=tuple(_read_round(number, record) for number, record in enumerate(history, start=1)),
        converged=getattr(model, "converged_", None),
        stop_reason=str(getattr(model, "stop_reason_", "")),
        fuzzifier=float(model.fuzzifier_),
        unit_rows=any(reference.unit_rows for reference in model._model.references),
        **others,
    )


def _read_update(model: Any, site: str | None, *, released_only: bool) -> Update | None:
    """Read what the last update found; of single sites only what the page may show."""
    if not len(getattr(model, "updates_", ())):
        return None
    shown = {ALL_SITES, site}
    moved = tuple(
        Moved(line["cluster"], line["site"], line["distance"], line["by_chance"], line["p_adjusted"])
        for line in model.drift_
        if line["moved"] and (line["site"] in shown or (site is None and not released_only))
    )
    last = model.updates_[-1]
    return Update(tuple(last["new"]), tuple(last["gone"]), moved, compared=len(model.drift_) > 0)


def _read_number(record: Mapping[str, Any]) -> TriedNumber:
    known: dict[str, Any] = {name: math.nan if value is None else value for name, value in record.items()}
    return TriedNumber(**known)


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


def _read_views(model: Any, *, noisy: bool = False) -> tuple[View, ...]:
    """Read the views of a model, with centres in input units and spreads as its units have them.

    Where its numbers are `noisy`, levels of a category are moved to the nearest shares, which add up to 1.
    """
    fitted, views = model._model, []
    for name, columns, centers, reference, weight in zip(
        fitted.view_names, fitted.columns, fitted.centers(), fitted.references, model.view_weights_, strict=True
    ):
        flat: FloatArray = np.asarray(centers, np.float64).reshape(len(centers), -1)
        features = _name_features(name, columns, flat.shape[1])
        if name in fitted.folded:  # columns have no units of their own
            mean = flat.mean(axis=0)
            views.append(View(name, features, flat, float(weight), mean, flat.std(axis=0)))
            continue
        # units are such that all features of a view together have mean square 1; with scaling="standard" this makes
        # the spread the standard deviation
        finite = np.isfinite(reference.scale)
        spread = np.where(finite, reference.scale, 0.0) / math.sqrt(max(int(finite.sum()), 1))
        shift: FloatArray = reference.shift
        if noisy and reference.form.is_plain:
            flat, shift = _as_shares(flat, columns), _as_shares(shift[None], columns)[0]
        views.append(View(name, features, flat, float(weight), shift, spread, reference.form))
    return tuple(views)


def _as_shares(values: FloatArray, columns: Columns) -> FloatArray:
    """Move the levels of each category, in rows of values, to the nearest shares."""
    moved = values.copy()
    for places in [] if columns is None or is_tensor(columns) else level_groups(columns):
        moved[:, places] = share_out(values[:, places], np.ones(len(values)))
    return moved


def _name_features(view: str, columns: Columns, width: int) -> tuple[str, ...]:
    if columns is None:
        return tuple(f"{view}[{j}]" for j in range(width))
    if is_tensor(columns):
        return tuple(str(list(map(int, place))) for place in np.ndindex(*(int(size) for size in columns)))
    return tuple(printable(str(column)) for column in columns)


def _read_sites(model: Any) -> dict[str, Site]:
    """Read the sites of a model that was fitted in this process; one that was loaded has none."""
    if not hasattr(model, "labels_"):
        return {}
    names = tuple(model._model.view_names)
    if not isinstance(model.labels_, Mapping):
        assignment = Assignment(model.labels_, model.labels_, model.memberships_.max(axis=1))
        return {ONLY_SITE: add_own_model(Site(ONLY_SITE, names, assignment), model, {})}
    found, shares = {}, read_shares(model)
    for name, own in model.client_models_.items():
        certainty = model.memberships_[name].max(axis=1)
        assignment = Assignment(model.labels_[name], model.global_labels_[name], certainty)
        found[name] = add_own_model(Site(name, names, assignment), own, shares)
    return found


def add_own_model(site: Site, model: Any, shares: Mapping[str, Mapping[str, float]]) -> Site:
    """Add what a site's own model says; `shares` are those of `read_shares`."""
    own = _read_views(model)
    centers, weights = {view.name: view.centers for view in own}, {view.name: view.weight for view in own}
    return replace(site, centers=centers, weights=weights, shares=shares.get(site.name, {}))


def read_shares(model: Any) -> dict[str, dict[str, float]]:
    """Read which share of its own each site uses, by site and component."""
    shares: dict[str, dict[str, float]] = {}
    for record in getattr(model, "personalization_", None) or []:
        shares.setdefault(record["site"], {})[record["component"]] = float(record["value"])
    return shares
