"""All methods on one's own sites: a table and a figure for a paper."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedhk import reference
from fedhk._names import explain_names
from fedhk._records import Record, Records
from fedhk._version import __version__
from fedhk.after.tables import PrintedTable
from fedhk.data.clients import check_clients
from fedhk.data.views import Views
from fedhk.errors import DataError
from fedhk.estimators.diffusion import FedHKDiffusion
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.person import FedHKPerson
from fedhk.estimators.tensor_centers import FedHKParafac2, FedHKTucker
from fedhk.evaluation.baselines import (
    NUMBER,
    Found,
    balance,
    balanced_kmeans,
    federated_fcm,
    k_fed,
    spectral,
    standardise,
)
from fedhk.metrics import matched_accuracy
from fedhk.summary.drawing import cluster_colour, draw_grid, page_axes
from fedhk.summary.words import number, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POOLED, ALONE, FEDERATED = "pooled", "alone", "federated"
QUALITY, COST = ("ARI", "NMI", "ACC", "site ARI"), ("rounds", "kB a site", "seconds")

# Spectral clustering of more rows takes minutes.
MOST_SPECTRAL_ROWS = 5_000

BIBTEX = f"""@article{{sinaga2026fedhk,
  author = {{Sinaga, Kristina P.}},
  title = {{Personalized Federated Heat-Kernel Enhanced Multi-View Clustering via Advanced Tensor Decomposition
           Techniques}},
  year = {{2026}}
}}

@software{{fedhk,
  author = {{{{The FedHK developers}}}},
  title = {{{{FedHK: personalized federated multi-view clustering}}}},
  version = {{{__version__}}},
  year = {{2026}}
}}
"""


@dataclass(frozen=True, eq=False)
class Task:
    """Sites to cluster, as users give them and as tables; and with which seed."""

    sites: Mapping[str, Any]
    tables: Mapping[str, Views]
    n_clusters: int
    seed: int

    @cached_property
    def views(self) -> list[NDArray[Any]]:
        """Views of all sites, stacked; a view that a site lacks is missing in its rows."""
        every = list(self.tables.values())
        widths = [max(filter(None, known), default=0) for known in zip(*(own.widths for own in every), strict=True)]
        return [np.concatenate([_dense(own, h, width) for own in every]) for h, width in enumerate(widths)]

    @cached_property
    def joint(self) -> dict[str, NDArray[Any]]:
        """Rows with balanced views, by site."""
        return self.split(balance(self.views))

    def split(self, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Split an array over all rows by site."""
        ends = np.cumsum([own.n_rows for own in self.tables.values()])[:-1]
        return dict(zip(self.tables, np.split(rows, ends), strict=True))


def _dense(own: Views, h: int, width: int) -> NDArray[Any]:
    """Convert a view of a site to a two-dimensional array; NaN if the site lacks it."""
    table = own.tables[h]
    if table is None:
        return np.full((own.n_rows, width), np.nan)
    dense = table.toarray() if hasattr(table, "toarray") else np.asarray(table, float)
    return np.asarray(dense.reshape(own.n_rows, -1))


@dataclass(frozen=True)
class Method:
    """A way to cluster sites; None where it cannot."""

    rows: str  # where rows must be: pooled, alone or federated
    find: Callable[[Task], Found | None]


def ours(estimator: EFKMVC) -> Method:
    """Make the method of a federated estimator; number of clusters and seed are those of the task."""

    def find(task: Task) -> Found:
        model = clone(estimator).set_params(n_clusters=task.n_clusters, random_state=task.seed).fit(task.sites)
        missing = [site for site in task.tables if site not in model.labels_]
        if missing:
            raise DataError(f"site {missing[0]!r} was left out of the model: {model.history_[0]['refused']}.")
        sent = sum(record["bytes_up"] + record["bytes_down"] for record in model.history_)
        return Found(dict(model.labels_), model.n_iter_, sent / len(task.tables))

    return Method(FEDERATED, find)


def _pooled(find: Callable[[NDArray[Any], int, int], NDArray[Any]], most_rows: float = np.inf) -> Method:
    def on_rows(task: Task) -> Found | None:
        rows = np.concatenate(list(task.joint.values()))
        return None if len(rows) > most_rows else Found(task.split(find(rows, task.n_clusters, task.seed)))

    return Method(POOLED, on_rows)


def _heat_kernel(task: Task) -> Found:
    model = HeatKernelMVC(task.n_clusters, random_state=task.seed)
    return Found(task.split(model.fit_predict(task.views)))


def _each_alone(task: Task) -> Found:
    found = {}
    for site, own in task.tables.items():
        known = [_dense(own, h, 0) for h, table in enumerate(own.tables) if table is not None]
        model = HeatKernelMVC(min(task.n_clusters, own.n_rows), random_state=task.seed)
        found[site] = model.fit_predict(known)
    return Found(found)


def _as_printed(algorithm: Callable[..., reference.Outcome]) -> Method:
    """Make the method of an algorithm of the paper to the letter, on z-scores; it has no rule for missing cells."""

    def find(task: Task) -> Found | None:
        views = [standardise(view) for view in task.views]
        if any(np.isnan(view).any() for view in views):
            return None
        parts = [task.split(view) for view in views]
        found = algorithm(
            [[part[site] for part in parts] for site in task.tables], task.n_clusters, random_state=task.seed
        )
        last, rounds = found.history[-1], len(found.history)
        sent = 2 * sum(array.size for array in (*getattr(last, "parts", last.centers), last.view_weights))
        return Found(dict(zip(task.tables, found.labels, strict=True)), rounds, NUMBER * sent * rounds)

    return Method(FEDERATED, find)


METHODS: dict[str, Method] = {
    "balanced k-means": _pooled(balanced_kmeans),
    "spectral clustering": _pooled(spectral, MOST_SPECTRAL_ROWS),
    "HeatKernelMVC": Method(POOLED, _heat_kernel),
    "each site alone": Method(ALONE, _each_alone),
    "k-FED": Method(FEDERATED, lambda task: k_fed(task.joint, task.n_clusters, task.seed)),
    "federated fuzzy c-means": Method(FEDERATED, lambda task: federated_fcm(task.joint, task.n_clusters, task.seed)),
    "the paper's Algorithm 1": _as_printed(reference.efkmvc),
    "the paper's Algorithm 2": _as_printed(reference.fedhk_parafac2),
    "the paper's Algorithm 3": _as_printed(reference.fedhk_tucker),
    "the paper's Algorithm 4": _as_printed(reference.fedhk_person),
    "EFKMVC": ours(EFKMVC()),
    "FedHKTucker": ours(FedHKTucker()),
    "FedHKParafac2": ours(FedHKParafac2()),
    "FedHKPerson": ours(FedHKPerson()),
    "FedHKDiffusion": ours(FedHKDiffusion()),
}

# Our estimators with one thing taken away.
ABLATIONS: dict[str, Method] = {
    "EFKMVC with z-scores": ours(EFKMVC(scaling="standard")),
    "EFKMVC with equal view weights": ours(EFKMVC(view_weights="uniform")),
    "FedHKPerson without calibration": ours(FedHKPerson(calibration=None)),
    "FedHKPerson without own models": ours(FedHKPerson(personalization=0.0)),
    "FedHKDiffusion without calibration": ours(FedHKDiffusion(calibration=None)),
}


@dataclass(frozen=True)
class Bench:
    """Measures of every method and seed; see `bench`."""

    records: Records
    n_rows: int
    n_sites: int

    def summary(self) -> Records:
        """Compute mean and standard deviation over seeds, by method."""
        found = Records()
        for method in dict.fromkeys(record["method"] for record in self.records):
            own = [record for record in self.records if record["method"] == method]
            row: Record = {"method": method, "rows": own[0]["rows"]}
            for name in (*QUALITY, *COST):
                values = [float(record[name]) for record in own]
                row |= {name: float(np.mean(values)), f"{name} ±": float(np.std(values))}
            found.append(row)
        return found

    def table(self) -> PrintedTable:
        """Make the table of a paper: quality with its spread, and costs; `save` writes CSV, LaTeX or HTML."""
        n_seeds = len({record["seed"] for record in self.records})
        rows = [
            (
                str(record["method"]),
                str(record["rows"]),
                *(_show(record[name], record[f"{name} ±"] if n_seeds > 1 else None) for name in QUALITY),
                *("–" if np.isnan(record[name]) else number(record[name], 3) for name in COST),
            )
            for record in self.summary()
        ]
        counts = plural(self.n_rows, "row"), plural(self.n_sites, "site"), plural(n_seeds, "seed")
        title = "Agreement with the classes: {} at {}, {}".format(*counts)
        spread = ["Mean ± standard deviation over seeds."] if n_seeds > 1 else []
        meaning = (
            "ARI, NMI and ACC are over all rows, where a cluster must mean the same everywhere; site ARI is the mean "
            "over sites."
        )
        return PrintedTable(title, ("method", "rows", *QUALITY, *COST), rows, (*spread, meaning))

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw the adjusted Rand index of every method, with its spread."""
        found = [record for record in self.summary() if not np.isnan(record["ARI"])][::-1]
        with page_axes(ax, 40.0 + 20.0 * len(found), (140.0, 12.0, 26.0, 24.0)) as axes:
            colours = [cluster_colour((POOLED, FEDERATED).index(record["rows"])) for record in found]
            places = range(len(found))
            values, spreads = ([record[name] for record in found] for name in ("ARI", "ARI ±"))
            axes.barh(places, values, color=colours, height=0.6, xerr=spreads, ecolor="#555", capsize=2)
            axes.set_yticks(list(places), [record["method"] for record in found])
            draw_grid(axes, "x", "adjusted Rand index (blue: rows are pooled)")
        return axes


def _show(mean: float, spread: float | None) -> str:
    return "–" if np.isnan(mean) else f"{mean:.3f}" if spread is None else f"{mean:.3f} ± {spread:.3f}"


def bench(
    sites: Any,
    labels: Mapping[str, Any],
    n_clusters: int | None = None,
    methods: Sequence[str] | None = None,
    *,
    estimators: Mapping[str, EFKMVC] | None = None,
    ablations: bool = False,
    n_seeds: int = 3,
    random_state: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Cluster the same sites by every method, and compare what it finds with known classes.

    Parameters
    ----------
    sites : dict or list of sites
        As for `fit`.
    labels : dict of str to array
        Classes of the rows of each site, by its name. They are used to measure, and for nothing else. None and NaN are
        rows of an unknown class: they are clustered, and not measured.
    n_clusters : int, optional
        Number of clusters; by default that of the classes.
    methods : sequence of str, optional
        Names of `METHODS` and `ABLATIONS`; by default all of the first.
    estimators : dict of str to estimator, optional
        Federated estimators to compare beside `methods`, by the name that they get in the table: with settings or parts
        of your own, or from `from_paper`. Their `n_clusters` and `random_state` are set here.
    ablations : bool, default=False
        Whether our estimators with one thing taken away are compared, too.
    n_seeds : int, default=3
        Every method is run with so many seeds.
    random_state : int, default=0
        The first seed.
    report : callable, optional
        Gets a line of text when a method begins.

    Returns
    -------
    Bench
        `records`, `summary()`, `table()` and `draw()`.

    Examples
    --------
    >>> from fedhk.datasets import make_sites
    >>> from fedhk.evaluation.bench import bench
    >>> data = make_sites(3, 60, n_clusters=3, random_state=0)
    >>> found = bench(data.sites, data.site_labels, methods=["balanced k-means", "EFKMVC"], n_seeds=1)
    >>> [record["method"] for record in found.summary()]
    ['balanced k-means', 'EFKMVC']
    """
    own = dict(estimators or {})
    known = METHODS | ABLATIONS | {name: ours(_check_estimator(name, each)) for name, each in own.items()}
    wanted = [*(methods if methods is not None else METHODS), *(ABLATIONS if ablations else []), *own]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(explain_names(unknown, list(known), "bench", "method"))
    if n_seeds < 1:
        raise ValueError(f"n_seeds={n_seeds} must be at least 1.")
    tables = check_clients(sites)
    given = sites if isinstance(sites, Mapping) else dict(zip(tables, sites, strict=True))
    truth = _number({site: _read_classes(site, labels, own.n_rows) for site, own in tables.items()})
    n_classes = 1 + max(int(classes.max(initial=-1)) for classes in truth.values())
    k = n_clusters or n_classes
    if n_classes < 2:
        raise DataError(f"labels must have at least 2 classes, got {n_classes}.")
    records = Records()
    for name in dict.fromkeys(wanted):
        for seed in range(random_state, random_state + n_seeds):
            report(f"{name}, seed {seed} ...")
            record = _run(known[name], Task(given, tables, k, seed), truth)
            if record is None:
                report(f"{name} does not take these rows")
                break
            records.append({"method": name, "rows": known[name].rows, "seed": seed} | record)
    return Bench(records, sum(own.n_rows for own in tables.values()), len(tables))


def _check_estimator(name: str, estimator: Any) -> EFKMVC:
    if name in METHODS or name in ABLATIONS:
        raise ValueError(f"estimators[{name!r}] has the name of a method of bench: give it another one.")
    if not isinstance(estimator, EFKMVC):
        raise TypeError(f"estimators[{name!r}] must be a federated estimator such as EFKMVC(), got {estimator!r}.")
    return estimator


def _read_classes(site: str, labels: Mapping[str, Any], n_rows: int) -> NDArray[Any]:
    if site not in labels:
        raise DataError(f"labels lack site {site!r}; they have {', '.join(map(repr, labels))}.")
    classes = np.asarray(labels[site], dtype=object)
    if classes.shape != (n_rows,):
        raise DataError(f"site {site!r}: labels have shape {classes.shape}, but it has {n_rows} rows.")
    return classes


def _number(truth: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Number classes from 0 on; -1 is unknown."""
    names = sorted({str(c) for classes in truth.values() for c in classes if not _is_unknown(c)})
    numbers = {name: i for i, name in enumerate(names)}
    return {
        site: np.array([-1 if _is_unknown(c) else numbers[str(c)] for c in classes], dtype=np.int64)
        for site, classes in truth.items()
    }


def _is_unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and bool(np.isnan(value)))


def _run(method: Method, task: Task, truth: Mapping[str, NDArray[Any]]) -> Record | None:
    """Measure one method with one seed; None where it cannot cluster these sites."""
    began = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of runs that are compared and not used
        found = method.find(task)
    if found is None:
        return None
    seconds = time.perf_counter() - began
    pairs = [(truth[site][truth[site] >= 0], found.labels[site][truth[site] >= 0]) for site in truth]
    own = [adjusted_rand_score(*pair) for pair in pairs if len(pair[0]) > 1]
    true, labels = (np.concatenate(part) for part in zip(*pairs, strict=True))
    measures = (adjusted_rand_score, normalized_mutual_info_score, matched_accuracy)
    together = [np.nan if method.rows == ALONE else float(measure(true, labels)) for measure in measures]
    costs = (found.rounds, found.bytes_a_site / 1000, seconds)
    return dict(zip((*QUALITY, *COST), (*together, float(np.mean(own)) if own else np.nan, *costs), strict=True))
