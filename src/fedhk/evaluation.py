"""What personalization gained: the global, the personal and the alone model of every site, on rows none of them saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedhk._typing import FloatArray, IntArray
from fedhk.data.clients import check_clients
from fedhk.data.views import Views
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.federation.site import aligned
from fedhk.metrics import matched_accuracy
from fedhk.model.one_pass import Passes
from fedhk.model.rows import Rows
from fedhk.model.seeding import take

Record = dict[str, Any]

LEAST_TRAINED = 2


def evaluate(
    model: Any,
    sites: Any,
    labels: Mapping[str, Any] | None = None,
    *,
    holdout: float = 0.2,
    random_state: int = 0,
) -> list[Record]:
    """Compare a site's personal model with the global one and with the one it would make alone.

    A part of every site's rows is held out; the estimator is fitted anew on the others, and so are the same without
    anything personal and one `HeatKernelMVC` per site on its rows alone. All are measured on the held-out rows.

    Parameters
    ----------
    model : estimator
        A federated estimator; only its parameters are used, it is not changed.
    sites : dict or list of sites
        As for `fit`.
    labels : dict of str to array, optional
        Classes of the rows of each site, by its name.
    holdout : float, default=0.2
        Share of the rows that is held out, of each site, at least one row and at most all but two. A site of fewer than
        three rows holds out none and is measured on what it has.
    random_state : int, default=0
        Which rows are held out.

    Returns
    -------
    list of dict
        One record per site and kind of model ("global", "personal", "alone"), and with labels one per kind with the
        site "(all)": site, model, rows, objective (mean over rows, with the centres of the model in the units of the
        global one, so that kinds compare), silhouette (of the kernel distances), and with labels ari, nmi, acc.
    """
    if not 0 < holdout < 1:
        raise ValueError(f"holdout={holdout!r} must be between 0 and 1.")
    clients = check_clients(sites)
    known = None if labels is None else _check_labels(labels, clients)
    kept, held = _split(clients, holdout, random_state)
    train = {site: _tables(views, kept[site]) for site, views in clients.items()}
    fitted = clone(model).fit(train)
    common = _common(model, fitted, train)
    records: list[Record] = []
    predicted: dict[str, list[tuple[IntArray, IntArray]]] = {}
    for site, views in clients.items():
        alone = _alone(fitted, train[site])
        kinds = {"global": common, "personal": fitted.client_models_[site], "alone": alone}
        for kind, own in kinds.items():
            if own is None:
                continue
            record, found = _measures(common, own, views, held[site])
            records.append({"site": site, "model": kind, "rows": len(held[site])} | record)
            if known is not None:
                truth = known[site][held[site]]
                records[-1] |= _agreement(truth, found)
                predicted.setdefault(kind, []).append((truth, found))
    for kind, pairs in predicted.items():
        truth, found = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        records.append({"site": "(all)", "model": kind, "rows": len(truth)} | _agreement(truth, found))
    return records


def _common(model: Any, fitted: Any, train: dict[str, Any]) -> Any:
    """The model of all sites without anything personal: the fitted one, unless it was made for personal ones."""
    if "calibration" not in model.get_params():
        return fitted
    return clone(model).set_params(calibration=None, personalization=0.0, view_personalization=0.0).fit(train)


def _check_labels(labels: Mapping[str, Any], clients: dict[str, Views]) -> dict[str, IntArray]:
    known = {}
    for site, views in clients.items():
        if site not in labels:
            raise ValueError(f"labels has no classes for site {site!r}; it has {sorted(map(str, labels))[:10]}.")
        known[site] = np.asarray(labels[site])
        if known[site].shape != (views.n_rows,):
            raise ValueError(f"labels[{site!r}] has shape {known[site].shape}; the site has {views.n_rows} rows.")
    return known


def _split(
    clients: dict[str, Views], holdout: float, random_state: int
) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
    """Rows to fit and rows to measure, per site."""
    kept: dict[str, IntArray] = {}
    held: dict[str, IntArray] = {}
    for number, (site, views) in enumerate(clients.items()):
        order = np.random.default_rng([random_state, number]).permutation(views.n_rows)
        count = min(max(1, round(holdout * views.n_rows)), max(views.n_rows - LEAST_TRAINED, 0))
        kept[site], held[site] = np.sort(order[count:]), np.sort(order[:count] if count else order)
    return kept, held


def _tables(views: Views, rows: IntArray) -> dict[str, Any]:
    return {name: None if table is None else table[rows] for name, table in zip(views.names, views.tables, strict=True)}


def _alone(fitted: Any, tables: dict[str, Any]) -> HeatKernelMVC | None:
    """The model that a site makes of its own rows, or None where it has too few."""
    present = {name: table for name, table in tables.items() if table is not None and not np.all(_missing(table))}
    n_rows = min((table.shape[0] for table in present.values()), default=0)
    if n_rows < fitted.n_clusters_:
        return None
    settings = {name: getattr(fitted, name) for name in ("heat_coef", "heat_time", "scaling", "n_init")}
    return HeatKernelMVC(fitted.n_clusters_, random_state=0, **settings).fit(present)


def _missing(table: Any) -> Any:
    return np.isnan(table.data if hasattr(table, "tocsr") else table)


def _measures(common: Any, own: Any, views: Views, held: IntArray) -> tuple[Record, IntArray]:
    """Objective and silhouette of held-out rows, and their clusters in the own model."""
    tables = _tables(views, held)
    names = set(own.view_names_)
    found = own.predict({name: table for name, table in tables.items() if name in names})
    model = common._model
    site = aligned(views, model.references, model.view_names, "")
    rows = take(Rows(site, model.references), held)
    centers = dict(zip(own._model.view_names, own._model.centers(), strict=True))
    inner: list[FloatArray] = []
    for name, reference, shared in zip(model.view_names, model.references, model.parameters.centers, strict=True):
        flat = centers[name].reshape(len(centers[name]), -1) if name in centers else None
        inner.append(shared if flat is None else np.where(np.isfinite(reference.scale), reference.to_model(flat), 0.0))
    parameters = replace(model.parameters, centers=tuple(inner), form=None, sizes=own._model.parameters.sizes)
    with Passes(rows, parameters.n_clusters, 1) as scan:
        objective = scan.statistics(parameters).objective / max(len(held), 1)
        silhouette = scan.silhouette(parameters) if parameters.n_clusters > 1 and len(held) else float("nan")
    return {"objective": objective, "silhouette": silhouette}, found


def _agreement(truth: IntArray, found: IntArray) -> Record:
    return {
        "ari": float(adjusted_rand_score(truth, found)),
        "nmi": float(normalized_mutual_info_score(truth, found)),
        "acc": float(matched_accuracy(truth, found)),
    }
