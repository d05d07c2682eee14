"""Scores of personalization: global, personal and alone model of every site, on rows that none of them saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedhk._records import Record, Records
from fedhk._typing import IntArray
from fedhk.data.clients import check_clients
from fedhk.data.views import Views
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.federation.board import align_views
from fedhk.metrics import matched_accuracy
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows, take
from fedhk.privacy.mechanism import refuse_budget

# Fewest rows of a site that models are fitted to.
LEAST_TRAINED = 2

# What stands for the site in measures of all rows together.
EVERYWHERE = "(all)"


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
        A federated estimator, or a `HeatKernelMVC` for a single site; only its parameters are used, it is not changed.
    sites : dict or list of sites
        As for `fit`.
    labels : dict of str to array, optional
        Classes of the rows of each site, by its name. A site that has none is measured without.
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
        global one, so that kinds compare), silhouette (of the kernel distances), and with labels ari, nmi, acc. A site
        with fewer rows than clusters has no alone model; the silhouette of one cluster, and all measures of a site
        without rows, are NaN. A `HeatKernelMVC` is its site's alone model, and there is no other.

    Raises
    ------
    ValueError
        If `holdout` or the labels of a site cannot be used; it names the site and the value.
    """
    if not (isinstance(holdout, Real) and 0 < holdout < 1):
        raise ValueError(f"holdout={holdout!r} must be between 0 and 1.")
    refuse_budget(model, "evaluate fits the model anew, which spends its privacy budget again: set privacy=None first.")
    clients = check_clients(sites)
    known = {} if labels is None else _check_labels(labels, clients)
    kept, held = _split(clients, holdout, random_state)
    common, models = _models(model, {site: _tables(views, kept[site]) for site, views in clients.items()})
    records, found = measure_models(common, models, clients, held)
    truth = {site: classes[held[site]] for site, classes in known.items()}
    for record in records:
        site, kind = record["site"], record["model"]
        if site in truth:
            record.update(_agreement(truth[site], found[kind][site]))
    for kind, clusters in found.items():
        pairs = [(truth[site], own) for site, own in clusters.items() if site in truth]
        if pairs:
            true, own = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
            records.append({"site": EVERYWHERE, "model": kind, "rows": len(true)} | _agreement(true, own))
    return records


def site_means(records: Sequence[Record]) -> list[Record]:
    """Average over sites what `evaluate` measured, one record per kind of model; sites without a value are left out.

    "pooled_ari" and "pooled_nmi" are of all rows together, where there are labels.
    """
    means = Records()
    for kind in dict.fromkeys(record["model"] for record in records):
        own = [r for r in records if r["model"] == kind and r["site"] != EVERYWHERE]
        found: Record = {"model": kind, "sites": len(own)}
        for measure in ("objective", "silhouette", "ari", "nmi", "acc"):
            values = [r[measure] for r in own if np.isfinite(r.get(measure, np.nan))]
            if values:
                found[measure] = float(np.mean(values))
        for record in records:
            if record["site"] == EVERYWHERE and record["model"] == kind:
                found |= {f"pooled_{measure}": record[measure] for measure in ("ari", "nmi")}
        means.append(found)
    return means


def _models(model: Any, train: dict[str, Any]) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Return a model whose units all are measured in, and the models of each site by kind."""
    fresh = clone(model)
    if "checkpoint" in fresh.get_params():
        fresh.set_params(checkpoint=None)
    if isinstance(model, HeatKernelMVC):
        if len(train) > 1:
            raise ValueError(
                f"HeatKernelMVC clusters one site, but there are {len(train)}: {list(train)[:5]}. Evaluate a federated "
                "estimator."
            )
        site, tables = next(iter(train.items()))
        alone = fresh.fit(_present(tables))
        return alone, {site: {"alone": alone}}
    fitted = common = fresh.fit(train)
    if "calibration" in fresh.get_params():  # it was made for personal models
        common = clone(fresh).set_params(calibration=None, personalization=0.0).fit(train)
    models = {site: {"global": common, "personal": fitted.client_models_[site]} for site in train}
    settings = {name: getattr(fitted, name) for name in ("heat_coef", "heat_time", "scaling", "n_init")}
    for site, tables in train.items():
        present = _present(tables)
        if min((table.shape[0] for table in present.values()), default=0) >= fitted.n_clusters_:
            models[site]["alone"] = HeatKernelMVC(fitted.n_clusters_, random_state=0, **settings).fit(present)
    return common, models


def _check_labels(labels: Mapping[str, Any], clients: dict[str, Views]) -> dict[str, IntArray]:
    """Return the classes of the rows of the sites that have some."""
    unknown = sorted(str(site) for site in labels if site not in clients)
    if unknown:
        raise ValueError(
            f"labels has classes for sites {unknown[:5]} that are not there; sites are {list(clients)[:10]}."
        )
    known = {site: np.asarray(found) for site, found in labels.items() if found is not None}
    if not known:
        raise ValueError(f"labels has classes for none of the sites {list(clients)[:10]}; leave it out.")
    for site, found in known.items():
        if found.shape != (clients[site].n_rows,):
            raise ValueError(f"labels[{site!r}] has shape {found.shape}; the site has {clients[site].n_rows} rows.")
    return known


def _split(
    clients: dict[str, Views], holdout: float, random_state: int
) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
    """Split rows into those to fit and those to measure, per site."""
    kept: dict[str, IntArray] = {}
    held: dict[str, IntArray] = {}
    for number, (site, views) in enumerate(clients.items()):
        order = np.random.default_rng([random_state, number]).permutation(views.n_rows)
        count = min(max(1, round(holdout * views.n_rows)), max(views.n_rows - LEAST_TRAINED, 0))
        kept[site], held[site] = np.sort(order[count:]), np.sort(order[:count] if count else order)
    return kept, held


def _tables(views: Views, rows: IntArray) -> dict[str, Any]:
    return {name: None if table is None else table[rows] for name, table in zip(views.names, views.tables, strict=True)}


def _present(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the views that a site has values of."""
    return {
        name: table
        for name, table in tables.items()
        if table is not None and not np.isnan(table.data if sp.issparse(table) else table).all()
    }


def measure_models(
    common: Any, models: Mapping[str, Mapping[str, Any]], clients: Mapping[str, Views], held: Mapping[str, IntArray]
) -> tuple[Records, dict[str, dict[str, IntArray]]]:
    """Measure the models of each site, by kind, on its held-out rows; also give the clusters by kind and site."""
    records = Records()
    found: dict[str, dict[str, IntArray]] = {}
    for site, views in clients.items():
        for kind, own in models[site].items():
            record, clusters = measure_rows(common, own, views, held[site])
            records.append({"site": site, "model": kind, "rows": len(held[site])} | record)
            found.setdefault(kind, {})[site] = clusters
    return records, found


def measure_rows(common: Any, own: Any, views: Views, held: IntArray) -> tuple[Record, IntArray]:
    """Compute objective and silhouette of held-out rows, and their clusters in the own model."""
    if len(held) == 0:
        return {"objective": float("nan"), "silhouette": float("nan")}, np.zeros(0, np.int64)
    tables = _tables(views, held)
    names = set(own.view_names_)
    found = own.predict({name: table for name, table in tables.items() if name in names})
    model = common._model
    site = align_views(views, model.view_names, model.widths, "")
    rows, parameters = model.seen(own._model, take(Rows(site, model.references), held).views)
    with Passes(rows, parameters.n_clusters, 1) as scan:
        objective = scan.statistics(parameters).objective / len(held)
        silhouette = scan.silhouette(parameters) if parameters.n_clusters > 1 else float("nan")
    return {"objective": objective, "silhouette": silhouette}, found


def _agreement(truth: IntArray, found: IntArray) -> Record:
    if len(truth) == 0:
        return dict.fromkeys(("ari", "nmi", "acc"), float("nan"))
    return {
        "ari": float(adjusted_rand_score(truth, found)),
        "nmi": float(normalized_mutual_info_score(truth, found)),
        "acc": float(matched_accuracy(truth, found)),
    }
