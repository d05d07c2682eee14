"""FedHKPerson against the global model and against each site alone.

    python benchmarks/personalization.py [seeds] [generated] [shared] [decompositions] [rounds]

Generated sites that differ by offset, by spread, by which clusters they have, by all of these and by none; and the
shared data with their real sites, or ten Dirichlet(0.5) ones where they have none. On generated sites a fifth of every
site's rows is held out (`fedhk.evaluate`). "site ARI" is the mean over sites of the agreement within a site, "pooled
ARI" that over all rows: a cluster must mean the same everywhere. "rounds" has Algorithm 4, whose own models live
through the rounds, beside the default: with shares learned on held-out rows, the same without a pull, with the paper's
gradient steps on the rows themselves, and as the preset of the paper.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
import warnings
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from threadpoolctl import threadpool_limits

import fedhk
from data import RESULTS, DataSet, seeds, shared_sets, site_rows
from fedhk import EFKMVC, FedHKPerson
from fedhk.datasets import make_sites, split_views
from fedhk.metrics import matched_accuracy
from fedhk.model.passes import Passes
from fedhk.protocols import Personalized
from tables import spread, table

KINDS = {
    "alike": {"shift": 0.0, "scale": 0.0, "class_mix": None},
    "shift": {"shift": 1.0, "scale": 0.0, "class_mix": None},
    "scale": {"shift": 0.0, "scale": 0.3, "class_mix": None},
    "class mix": {"shift": 0.0, "scale": 0.0, "class_mix": 1.0},
    "all three": {"shift": 1.0, "scale": 0.3, "class_mix": 1.0},
}
PARTS = ("shift", "spread", "sizes", "centers")
MORE = ("site ACC", "pooled ARI", "pooled NMI")
ROUNDS = 20
SIZES = ((5, 1000), (20, 100), (100, 30))


def generated(kind: str, n_sites: int, n_rows: int, seed: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Sites, their classes, and the number of classes."""
    data = make_sites(n_sites, n_rows, n_clusters=4, random_state=seed, **KINDS[kind])
    return data.sites, data.site_labels, 4


def shared(data: DataSet, seed: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """A shared data set with its sites, or with ten that have different shares of the classes."""
    split = site_rows(data, seed)
    return split_views(data.views, split), {site: data.labels[rows] for site, rows in split.items()}, data.n_classes


def run(source: tuple[Any, ...], seed: int) -> dict[str, dict[str, float]]:
    """Measures of the three models on held-out rows."""
    sites, labels, n_clusters = source
    with threadpool_limits(1):
        model = FedHKPerson(n_clusters, random_state=seed).fit(sites)
        found = fedhk.evaluate(FedHKPerson(n_clusters, random_state=seed), sites, labels, random_state=seed)
    kinds = ("global", "personal", "alone")
    return {kind: means([r for r in found if r["model"] == kind]) for kind in kinds} | {"learned": learned(model)}


def means(records: list[dict[str, Any]]) -> dict[str, float]:
    """Means over sites, and what holds of all rows."""
    pooled = next(record for record in records if record["site"] == "(all)")
    sites = [record for record in records if record["site"] != "(all)" and record["rows"] > 1]
    return {
        "objective": float(np.mean([record["objective"] for record in sites])),
        "site ARI": float(np.mean([record["ari"] for record in sites])),
        "site ACC": float(np.mean([record["acc"] for record in sites])),
        "pooled ARI": pooled["ari"],
        "pooled NMI": pooled["nmi"],
    }


def measures(models: dict[str, Any], test: dict[str, Any], truth: dict[str, Any]) -> dict[str, float]:
    """Objective, and agreement within sites and over all."""
    predicted = {site: models[site].predict(views) for site, views in test.items()}
    pooled_truth, pooled = np.concatenate(list(truth.values())), np.concatenate(list(predicted.values()))
    several = [site for site in test if len(truth[site]) > 1]
    return {
        "objective": float(np.mean([mean_objective(models[site], views) for site, views in test.items()])),
        "site ARI": float(np.mean([adjusted_rand_score(truth[site], predicted[site]) for site in several])),
        "site ACC": float(np.mean([matched_accuracy(truth[site], predicted[site]) for site in several])),
        "pooled ARI": float(adjusted_rand_score(pooled_truth, pooled)),
        "pooled NMI": float(normalized_mutual_info_score(pooled_truth, pooled)),
    }


def mean_objective(model: Any, views: list[np.ndarray]) -> float:
    """The objective of a model on rows, for each of them."""
    rows = model._rows(views)
    with Passes(rows, model.n_clusters_, 1) as scan:
        return scan.statistics(model._model.parameters).objective / rows.n_rows


def learned(model: FedHKPerson) -> dict[str, float]:
    """Mean share of each component."""
    return {p: float(np.mean([r["value"] for r in model.personalization_ if r["component"] == p])) for p in PARTS}


def fitted(data: DataSet, seed: int, decomposition: str | None) -> dict[str, dict[str, float]]:
    """Measures on all rows of a shared data set."""
    sites, labels, n_clusters = shared(data, seed)
    with threadpool_limits(1):
        scaling = data.scaling
        model = FedHKPerson(n_clusters, scaling=scaling, decomposition=decomposition, random_state=seed).fit(sites)
        common = EFKMVC(n_clusters, scaling=scaling, random_state=seed).fit(sites)
    models = {"global": dict.fromkeys(sites, common), "personal": model.client_models_}
    return {k: measures(v, sites, labels) for k, v in models.items()} | {"learned": learned(model)}


def in_rounds(data: DataSet, seed: int) -> dict[str, dict[str, float]]:
    """Agreement of the default and of Algorithm 4 on all rows of a shared data set."""
    sites, labels, n_clusters = shared(data, seed)
    usual = {"scaling": data.scaling, "random_state": seed}
    rounds = usual | {"calibration": None, "max_rounds": ROUNDS}
    printed = Personalized(step=0.01, held_out=0.0, center_pull=0.0)
    preset = {"fuzzifier": 1.1, "max_rounds": ROUNDS, "random_state": seed}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few rounds, and of clusters that mean nothing
        models = {
            "common": EFKMVC(n_clusters, **usual).fit(sites),
            "default": FedHKPerson(n_clusters, **usual).fit(sites),
            "Algorithm 4": FedHKPerson(n_clusters, protocol=Personalized(), **rounds).fit(sites),
            "without a pull": FedHKPerson(n_clusters, protocol=Personalized(center_pull=0.0), **rounds).fit(sites),
            "paper's steps": FedHKPerson(n_clusters, protocol=printed, **rounds).fit(sites),
            "preset": fedhk.from_paper(4, n_clusters, **preset).fit(sites),
        }
    found = {}
    for name, model in models.items():
        own = model.client_models_ if name != "common" else dict.fromkeys(sites, model)
        found[name] = {m: v for m, v in measures(own, sites, labels).items() if m.endswith("ARI")}
        found[name]["rounds"] = float(model.n_iter_)
    return found


def rounds_table(chosen: range) -> list[str]:
    """Algorithm 4 beside the default."""
    rows, means = [], []
    for data in sorted(shared_sets(), key=lambda data: data.client is None):
        results = Parallel(n_jobs=-1)(delayed(in_rounds)(data, seed) for seed in chosen)
        cells = [(name, m) for m in ("site ARI", "pooled ARI") for name in results[0]]
        means.append([float(np.mean([r[name][m] for r in results])) for name, m in cells])
        sites = "ten Dirichlet(0.5) sites" if data.client is None else "real sites"
        rows.append((f"{data.name}, {sites}", *(spread([r[name][m] for r in results], 3) for name, m in cells)))
        print(rows[-1], flush=True)
    rows.append(("**mean**", *(f"{value:.3f}" for value in np.mean(means, axis=0))))
    title = f"Own models at the end and in the rounds, all rows, {len(chosen)} seeds"
    return table(title, ("", *(f"{m}, {name}" for name, m in cells)), rows)


def tables(title: str, cases: dict[str, list[dict[str, dict[str, float]]]], names: tuple[str, ...]) -> list[str]:
    """Mean and spread over seeds: what is to be gained, what else was measured, and what was learned."""
    lines = []
    for about, measured in (("objective and agreement within sites", ("objective", "site ARI")), ("more", MORE)):
        rows = []
        for case, results in cases.items():
            found = [(m, [r[name][m] for r in results]) for m in measured for name in names]
            rows.append((case, *(spread(values, 4 if m == "objective" else 3) for m, values in found)))
        lines += table(f"{title}: {about}", ("", *(f"{m}, {name}" for m in measured for name in names)), rows)
    rows = [(case, *(spread([r["learned"][p] for r in results], 2) for p in PARTS)) for case, results in cases.items()]
    return lines + table(f"{title}: mean share of what is a site's own", ("", *PARTS), rows)


def generated_table(chosen: range) -> list[str]:
    jobs = [(kind, m, n, seed) for kind in KINDS for m, n in SIZES for seed in chosen]
    results = Parallel(n_jobs=-1)(delayed(run)(generated(kind, m, n, seed), seed) for kind, m, n, seed in jobs)
    cases: dict[str, list[Any]] = {}
    for (kind, m, n, _), result in zip(jobs, results, strict=True):
        cases.setdefault(f"{kind}, {m} sites of {n} rows", []).append(result)
    return tables(f"Generated sites, held-out rows, {len(chosen)} seeds", cases, ("global", "personal", "alone"))


def shared_table(chosen: range, decompositions: tuple[str | None, ...] = (None,)) -> list[str]:
    cases: dict[str, list[Any]] = {}
    for data in sorted(shared_sets(), key=lambda data: data.client is None):
        for decomposition in decompositions:
            found = Parallel(n_jobs=-1)(delayed(fitted)(data, seed, decomposition) for seed in chosen)
            sites = "ten Dirichlet(0.5) sites" if data.client is None else "real sites"
            cases[f"{data.name}, {sites}" + (f", {decomposition}" if decomposition else "")] = found
    return tables(f"Shared data, all rows, {len(chosen)} seeds", cases, ("global", "personal")) if cases else []


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    count = numbers[0] if numbers else 10
    wanted = [word for word in sys.argv[1:] if not word.isdigit()] or ["generated", "shared", "decompositions"]
    few = seeds(min(count, 5))
    makers = {
        "generated": lambda: generated_table(seeds(count)),
        "shared": lambda: shared_table(few),
        "decompositions": lambda: shared_table(few, ("tucker", "parafac2")),
        "rounds": lambda: rounds_table(few),
    }
    for name in wanted:
        report = "\n".join(makers[name]())
        print(report)
        (RESULTS / f"personalization-{name}.md").write_text(report)


if __name__ == "__main__":
    main()
