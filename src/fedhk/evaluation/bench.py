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
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedhk import reference
from fedhk._names import explain_names
from fedhk._records import Record, Records
from fedhk.after.tables import PrintedTable
from fedhk.data.clients import check_clients
from fedhk.data.views import Views
from fedhk.errors import DataError
from fedhk.estimators.base import doubt_descent
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
from fedhk.evaluation.citations import cite
from fedhk.metrics import matched_accuracy
from fedhk.summary.drawing import cluster_colour, draw_grid, page_axes
from fedhk.summary.words import join_names, number, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POOLED, ALONE, FEDERATED = "pooled", "alone", "federated"
QUALITY, COST = ("ARI", "NMI", "ACC", "site ARI"), ("rounds", "kB a site", "seconds")

# Spectral clustering of more rows takes minutes.
MOST_SPECTRAL_ROWS = 5_000

# What is said of a run whose objective did not settle, where its fit does not say more.
NOT_CONVERGED = "did not converge: the model with the lowest objective is kept"

# Methods that find the same clusters more often than not, and why.
ALIKE = (
    (("EFKMVC", "FedHKTucker", "FedHKParafac2"), "a decomposition of full rank leaves centres as they are"),
    (("the paper's Algorithm 2", "the paper's Algorithm 3"), "the paper prints the same formulas for both"),
)


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
    """A way to cluster sites; it says why where it cannot."""

    rows: str  # where rows must be: pooled, alone or federated
    find: Callable[[Task], Found | str]
    estimator: str = ""  # name of its class, with which warnings of its fit begin


def ours(estimator: EFKMVC) -> Method:
    """Make the method of a federated estimator; number of clusters and seed are those of the task."""

    def find(task: Task) -> Found:
        model = clone(estimator).set_params(n_clusters=task.n_clusters, random_state=task.seed).fit(task.sites)
        missing = [site for site in task.tables if site not in model.labels_]
        if missing:
            raise DataError(f"site {missing[0]!r} was left out of the model: {model.history_[0]['refused']}.")
        sent = sum(record["bytes_up"] + record["bytes_down"] for record in model.history_)
        is_said = model.converged_ or model.tol == 0 or doubt_descent(model)
        return Found(dict(model.labels_), model.n_iter_, sent / len(task.tables), "" if is_said else NOT_CONVERGED)

    return Method(FEDERATED, find, type(estimator).__name__)


def _pooled(find: Callable[[NDArray[Any], int, int], NDArray[Any]], most_rows: float = np.inf) -> Method:
    def on_rows(task: Task) -> Found | str:
        rows = np.concatenate(list(task.joint.values()))
        if len(rows) > most_rows:
            return f"more than {most_rows:,} rows take minutes"
        return Found(task.split(find(rows, task.n_clusters, task.seed)))

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

    def find(task: Task) -> Found | str:
        views = [standardise(view) for view in task.views]
        gaps = task.split(np.column_stack([np.isnan(view).any(axis=1) for view in views]))
        for site, own in gaps.items():
            if own.any():
                view = task.tables[site].names[int(own.any(axis=0).argmax())]
                return f"the paper has no rule for missing cells and views, and site {site!r} has some in view {view!r}"
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
    "HeatKernelMVC": Method(POOLED, _heat_kernel, "HeatKernelMVC"),
    "each site alone": Method(ALONE, _each_alone, "HeatKernelMVC"),
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
    n_clusters: int
    notes: tuple[str, ...] = ()

    def summary(self) -> Records:
        """Compute mean and standard deviation over seeds (divided by their number less 1), by method.

        A method that could not be run has NaN; so has the standard deviation of one seed.
        """
        found = Records()
        for method in dict.fromkeys(record["method"] for record in self.records):
            own = [record for record in self.records if record["method"] == method]
            row: Record = {"method": method, "rows": own[0]["rows"]}
            for name in (*QUALITY, *COST):
                values = [float(record[name]) for record in own]
                spread = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
                row |= {name: float(np.mean(values)), f"{name} ±": spread}
            found.append(row)
        return found

    def cells(self, measure: str = "ARI", digits: int = 3) -> dict[str, str]:
        """Write a measure of each method as `table` does: "0.52 ± 0.04", with one seed "0.52", or "–"."""
        _check_measures([measure], (*QUALITY, *COST), "cells")
        return {
            str(record["method"]): _show(record[measure], record[f"{measure} ±"], digits) for record in self.summary()
        }

    def references(self) -> str:
        """Write what to cite, as BibTeX: FedHK, and the methods of other authors in the table."""
        return cite(dict.fromkeys(str(record["method"]) for record in self.records))

    def table(self, columns: Sequence[str] | None = None, digits: int = 3) -> PrintedTable:
        """Make the table of a paper: quality with its spread, and costs; `save` writes CSV, LaTeX or HTML.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns after that of methods, in this order: "rows" (where these must be), "ARI", "NMI", "ACC",
            "site ARI", "rounds", "kB a site", "seconds". By default all; LaTeX then has the measures of quality only,
            because a page is no wider.
        digits : int, default=3
            Digits after the point of measures of quality.

        Returns
        -------
        PrintedTable
            The best of each measure of quality is bold in LaTeX and HTML; so are others that read the same.
        """
        known, n_seeds = ("rows", *QUALITY, *COST), len({record["seed"] for record in self.records})
        if isinstance(columns, str):
            raise TypeError(f"columns={columns!r} must be a sequence of names, such as [{columns!r}].")
        names = known if columns is None else tuple(columns)
        _check_measures(names, known, "table")
        summary = self.summary()
        rows = [(str(record["method"]), *(_show_cell(name, record, digits) for name in names)) for record in summary]
        counts = (self.n_rows, "row"), (self.n_sites, "site"), (self.n_clusters, "cluster"), (n_seeds, "seed")
        title = "Agreement with the classes: {} at {}, {}, {}".format(*(plural(*count) for count in counts))
        return PrintedTable(
            title,
            ("method", *names),
            rows,
            (*_explain_measures(names, n_seeds), *_say_where(summary), *self.notes),
            bold=_find_best(summary, names, digits),
            for_paper=("method", *QUALITY) if columns is None else (),
        )

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw the adjusted Rand index of every method, with its spread; that of sites, if no method has another."""
        summary = self.summary()[::-1]
        together = any(not np.isnan(record["ARI"]) for record in summary)
        measure, name = (
            ("ARI", "adjusted Rand index") if together else ("site ARI", "adjusted Rand index, mean of sites")
        )
        found = [record for record in summary if not np.isnan(record[measure])]
        with page_axes(ax, 56.0 + 20.0 * len(found), (150.0, 12.0, 42.0, 24.0)) as axes:
            colours = [cluster_colour(0 if record["rows"] == POOLED else 1) for record in found]
            places = range(len(found))
            values, spreads = ([record[key] for record in found] for key in (measure, f"{measure} ±"))
            axes.barh(places, values, color=colours, height=0.6, xerr=np.nan_to_num(spreads), ecolor="#555", capsize=2)
            axes.set_yticks(list(places), [record["method"] for record in found])
            pooled = any(record["rows"] == POOLED for record in found)
            draw_grid(axes, "x", f"{name}\n(blue: rows are pooled)" if pooled else name)
        return axes


def _check_measures(names: Sequence[str], known: Sequence[str], owner: str) -> None:
    if unknown := [name for name in names if name not in known]:
        raise ValueError(explain_names(unknown, list(known), owner, "measure"))


def _explain_measures(names: Sequence[str], n_seeds: int) -> list[str]:
    """Say what the measures in these columns mean."""
    said, overall = [], [name for name in ("ARI", "NMI", "ACC") if name in names]
    if n_seeds > 1:
        said.append(
            "Mean ± sample standard deviation over seeds of the methods; rows are the same each time, so that it says "
            "nothing of other rows."
        )
    if overall:
        verb = "are" if len(overall) > 1 else "is"
        said.append(f"{join_names(overall)} {verb} over all rows, where a cluster must mean the same everywhere.")
    if "site ARI" in names:
        said.append("Site ARI is the mean over sites.")
    return said


def _say_where(summary: Records) -> list[str]:
    """Say which methods pool rows, or leave each site to itself; all others leave rows at their sites."""
    where = {POOLED: "Rows are pooled for", ALONE: "Each site has clusters of its own in"}
    found = {rows: [str(record["method"]) for record in summary if record["rows"] == rows] for rows in where}
    return [f"{where[rows]} {join_names(names, len(names))}." for rows, names in found.items() if names]


def _find_best(summary: Records, names: Sequence[str], digits: int) -> set[tuple[int, int]]:
    """Find the cells with the largest mean of each measure of quality, as it is written; one method alone has none."""
    best = set()
    for column, name in enumerate(names, start=1):
        shown = {line: round(float(record[name]), digits) for line, record in enumerate(summary) if name in QUALITY}
        known = {line: value for line, value in shown.items() if not np.isnan(value)}
        if len(known) > 1:
            best |= {(line, column) for line, value in known.items() if value == max(known.values())}
    return best


def _show_cell(name: str, record: Record, digits: int) -> str:
    """Write a cell; rounds are counts, so that most means of them are whole."""
    if name == "rows":
        return str(record[name])
    if name in QUALITY:
        return _show(record[name], record[f"{name} ±"], digits)
    return f"{record[name]:.3g}" if name == "rounds" and not np.isnan(record[name]) else number(record[name])


def _show(mean: float, spread: float, digits: int = 3) -> str:
    if np.isnan(mean):
        return "–"
    return f"{mean:z.{digits}f}" if np.isnan(spread) else f"{mean:z.{digits}f} ± {spread:.{digits}f}"


def bench(
    sites: Any,
    labels: Mapping[str, Any],
    n_clusters: int | None = None,
    methods: str | Sequence[str] | None = None,
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
    methods : str or sequence of str, optional
        Names of `METHODS` and `ABLATIONS`; by default all of the first: "balanced k-means", "spectral clustering",
        "HeatKernelMVC", "each site alone", "k-FED", "federated fuzzy c-means", "the paper's Algorithm 1" to "4",
        "EFKMVC", "FedHKTucker", "FedHKParafac2", "FedHKPerson" and "FedHKDiffusion".
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
        `records`, `summary()`, `cells()`, `table()`, `draw()`, `references()`; and `notes`: which methods could not be
        run and why, which did not converge, and which rows were not measured. They stand below the table.

    Raises
    ------
    DataError
        If labels do not fit, or if none of the methods can be run on these sites.

    Examples
    --------
    >>> from fedhk.datasets import make_sites
    >>> from fedhk.evaluation.bench import bench
    >>> data = make_sites(3, 60, n_clusters=3, random_state=0)
    >>> found = bench(data.sites, data.site_labels, methods=["balanced k-means", "EFKMVC"], n_seeds=1)
    >>> [record["method"] for record in found.summary()]
    ['balanced k-means', 'EFKMVC']
    """
    own = _check_estimators(estimators)
    known = METHODS | ABLATIONS | {name: ours(each) for name, each in own.items()}
    methods = [methods] if isinstance(methods, str) else methods
    wanted = [*(methods if methods is not None else METHODS), *(ABLATIONS if ablations else []), *own]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(explain_names(unknown, list(known), "bench", "method"))
    if n_seeds < 1:
        raise ValueError(f"n_seeds={n_seeds} must be at least 1.")
    tables = check_clients(sites)
    if not isinstance(labels, Mapping):
        some = ", ".join(map(repr, list(tables)[:3]))
        raise DataError(
            f"labels must be a dict with the classes of each site's rows, by its name ({some}, ...), got "
            f"{type(labels).__name__}."
        )
    given = sites if isinstance(sites, Mapping) else dict(zip(tables, sites, strict=True))
    truth = _number({site: _read_classes(site, labels, own.n_rows) for site, own in tables.items()})
    n_classes = 1 + max(int(classes.max(initial=-1)) for classes in truth.values())
    k = n_clusters or n_classes
    if n_classes < 2:
        raise DataError(f"labels must have at least 2 classes, got {n_classes}.")
    records = Records()
    refused: dict[str, list[str]] = {}
    doubts: dict[tuple[str, str], int] = {}
    seeds = range(random_state, random_state + n_seeds)
    for name in dict.fromkeys(wanted):
        run = {"method": name, "rows": known[name].rows}
        for seed in seeds:
            report(f"{name}, seed {seed} ...")
            found = _run(known[name], Task(given, tables, k, seed), truth)
            if isinstance(found, str):
                report(f"{name} is not run: {found}")
                refused.setdefault(found, []).append(name)
                nothing = dict.fromkeys((*QUALITY, *COST), np.nan)
                records.extend(run | {"seed": each} | nothing for each in seeds)
                break
            record, said = found
            records.append(run | {"seed": seed} | record)
            for doubt in said:
                doubts[name, doubt] = doubts.get((name, doubt), 0) + 1
    if not records or len(records) == n_seeds * sum(map(len, refused.values())):
        why = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in refused.items())
        raise DataError(f"None of the methods can be run on these sites. {why or 'No method was given'}.")
    notes = (
        *_say_unmeasured(truth),
        *(f"Not run: {', '.join(names)}; {reason}." for reason, names in refused.items()),
        *(f"{name}, {count} of {plural(n_seeds, 'seed')}: {doubt}." for (name, doubt), count in doubts.items()),
        *_say_alike(records),
    )
    return Bench(records, sum(own.n_rows for own in tables.values()), len(tables), k, notes)


def _say_unmeasured(truth: Mapping[str, NDArray[Any]]) -> list[str]:
    """Say how many rows are not measured, and at which sites none is."""
    n_rows, n_known = sum(map(len, truth.values())), sum(int((own >= 0).sum()) for own in truth.values())
    if n_known == n_rows:
        return []
    without = [repr(site) for site, own in truth.items() if not (own >= 0).any()]
    none = f"; no row of {'site' if len(without) == 1 else 'sites'} {', '.join(without)} has one" if without else ""
    return [f"Measured on the {n_known:,} of {n_rows:,} rows that have a class{none}."]


def _say_alike(records: Records) -> list[str]:
    """Say which methods have the same measures with every seed, and why they may."""
    notes = []
    for names, why in ALIKE:
        measures: dict[tuple[float, ...], dict[str, None]] = {}
        for name in names:
            own = tuple(float(record[key]) for record in records if record["method"] == name for key in QUALITY)
            if own and not np.isnan(own).all():
                measures.setdefault(own, {})[name] = None
        notes += [f"Same measures: {', '.join(same)}; {why}." for same in measures.values() if len(same) > 1]
    return notes


def _check_estimators(given: Any) -> dict[str, EFKMVC]:
    if given is not None and not isinstance(given, Mapping):
        example = "{'name in the table': EFKMVC()}"
        raise TypeError(f"estimators must be a dict, such as {example}, got {type(given).__name__}.")
    for name, estimator in (given or {}).items():
        if name in METHODS or name in ABLATIONS:
            raise ValueError(f"estimators[{name!r}] has the name of a method of bench: give it another one.")
        if not isinstance(estimator, EFKMVC):
            raise TypeError(f"estimators[{name!r}] must be a federated estimator such as EFKMVC(), got {estimator!r}.")
    return dict(given or {})


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


def _run(method: Method, task: Task, truth: Mapping[str, NDArray[Any]]) -> tuple[Record, list[str]] | str:
    """Measure one method with one seed, and say what its labels are in doubt for; or why it cannot be run."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        found = method.find(task)
    if isinstance(found, str):
        return found
    seconds = time.perf_counter() - began
    pairs = [(truth[site][truth[site] >= 0], found.labels[site][truth[site] >= 0]) for site in truth]
    own = [adjusted_rand_score(*pair) for pair in pairs if len(pair[0]) > 1]
    true, labels = (np.concatenate(part) for part in zip(*pairs, strict=True))
    measures = (adjusted_rand_score, normalized_mutual_info_score, matched_accuracy)
    together = [np.nan if method.rows == ALONE else float(measure(true, labels)) for measure in measures]
    costs = (found.rounds, found.bytes_a_site / 1000, seconds)
    values = (*together, float(np.mean(own)) if own else np.nan, *costs)
    said = [str(warning.message) for warning in caught if issubclass(warning.category, ConvergenceWarning)]
    said = [text.removeprefix(method.estimator).lstrip(": ") for text in said]
    doubts = [text.split(". ")[0].rstrip(".") for text in (*said, found.doubt) if text]
    return dict(zip((*QUALITY, *COST), values, strict=True)), list(dict.fromkeys(doubts))
