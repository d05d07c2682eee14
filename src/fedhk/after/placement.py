"""Where a new row goes: its cluster, how certain, which views and columns say so, and whether it belongs anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.after.columns import MOST_NUMBERS, RowCount
from fedhk.after.run import Answer, Answered, ask_sites, check_model, find_sites
from fedhk.after.tables import PrintedTable
from fedhk.data.checks import check_count, check_number
from fedhk.data.frames import pandas
from fedhk.data.levels import ordered_levels
from fedhk.data.views import is_tensor, row_blocks, warn_of_empty
from fedhk.errors import DataError
from fedhk.federation.board import Board, Entry, align_views
from fedhk.federation.engines.base import RemoteEngine
from fedhk.federation.phases.base import Nothing
from fedhk.federation.placed import PlacedSite
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes, own_threads
from fedhk.model.rows import Rows, joint_rows, take, view_sums
from fedhk.privacy.mechanism import AFTER, DifferentialPrivacy, SecureSummation
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity
from fedhk.summary.words import number

# Distances are counted in steps of their exponent phi, up to where the kernel 1 - exp(-phi) is 1 to the last digit.
STEPS, FARTHEST = 400, 36.0

# Cells are counted by how far they are above and below their centre, in quarters of an octave between these powers of
# two; the unit is about the spread of a column. Nearer and farther ones count at the ends.
PARTS, LEAST_POWER, MOST_POWER = 4, -10, 12
SIDE = PARTS * (MOST_POWER - LEAST_POWER)

# Share of the cells on one side of the centre that show how fast a tail falls. On generated columns (20 of them, 300 to
# 3,000 rows) fewer cells than asked for were then beyond the limit: normal, uniform, exponential, t with 4 degrees of
# freedom; of lognormal ones up to twice as many. With .05 there were too many of t, with .2 and .4 fewer wrong cells
# were found (benchmarks/results/shares.md).
TAIL_SHARE = 0.1


def _find_exponents(rows: Rows, parameters: Parameters) -> tuple[FloatArray, IntArray]:
    """Compute the distance of each row from its nearest centre, and which that is.

    The distance is the exponent phi of a heat kernel 1 - exp(-phi) that is the mean over views of the row's own.
    """
    with Passes(rows, parameters.n_clusters) as scan:
        distances = scan.distances(replace(parameters, sizes=None))
    share = distances.min(axis=1).astype(np.float64) / parameters.view_factors.sum()
    phi = -np.log1p(-np.clip(share, 0.0, 1.0 - np.exp(-FARTHEST)))
    return phi, distances.argmin(axis=1)


@dataclass(frozen=True, eq=False)
class DistanceCounts(Entry):
    """Rows by the distance to their centre, (steps,), and the standard deviation of the noise in each number."""

    counts: FloatArray
    noise: float


@dataclass(frozen=True)
class CountDistances(RowCount[Nothing]):
    """Count rows of all sites by the distance to their centre."""

    name: ClassVar[str] = AFTER + "distances"
    questions: ClassVar[tuple[str, ...]] = ("limits",)

    def size(self, board: Board) -> int:
        return STEPS

    @staticmethod
    def vector(site: PlacedSite, request: Nothing) -> FloatArray:  # type: ignore[override]
        phi, _ = _find_exponents(site.model_rows(), site.model.parameters)
        place = np.minimum(phi / FARTHEST * STEPS, STEPS - 1).astype(np.intp)
        return np.bincount(place, minlength=STEPS).astype(np.float64)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        return board.put(DistanceCounts(total, noise))


def _measure_parts(rows: Rows, parameters: Parameters, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """Compute how far cells are from the centre of their row, (n, d), and views (root of the mean square), (n, s).

    Unlike the heat kernel these distances have no end. NaN is missing. They are in units in which columns of a view
    have a mean square of about 1.
    """
    widths = np.array(rows.widths)
    apart = joint_rows(rows, missing=np.nan).astype(np.float64) - np.hstack(parameters.centers)[labels]
    apart *= np.sqrt(np.repeat(widths, widths))
    known = view_sums((~np.isnan(apart)).astype(np.float64), rows.widths)
    with np.errstate(divide="ignore", invalid="ignore"):
        return apart, np.sqrt(view_sums(np.square(np.nan_to_num(apart)), rows.widths) / known)


@dataclass(frozen=True, eq=False)
class PartCounts(Entry):
    """Cells by how far they are below and above their centre, (columns and then views, 2, steps); noise as above."""

    counts: FloatArray
    noise: float


@dataclass(frozen=True)
class CountParts(RowCount[Nothing]):
    """Count cells of all sites, and rows in each view, by the distance to their centre."""

    name: ClassVar[str] = AFTER + "parts"
    questions: ClassVar[tuple[str, ...]] = ("limits",)

    widths: tuple[int, ...]  # of the views, folded

    def size(self, board: Board) -> int:
        return _count_parts(self.widths) * 2 * SIDE

    @staticmethod
    def vector(site: PlacedSite, request: Nothing) -> FloatArray:  # type: ignore[override]
        model, labels, shown = site.model.in_views, site.labels(), site.shown()
        rows = model.rows(align_views(site.views, model.view_names, model.widths, site.name))
        parts = _count_parts(rows.widths)
        counts = np.zeros(parts * 2 * SIDE)
        for block in row_blocks(len(shown), 8 * sum(rows.widths)):
            own = shown[block]
            found = np.hstack(_measure_parts(take(rows, own), model.parameters, labels[own]))[:, -parts:]
            with np.errstate(divide="ignore"):
                step = np.clip((np.log2(np.abs(found)) - LEAST_POWER) * PARTS, 0, SIDE - 1)
            place = np.nan_to_num(step).astype(np.intp) + SIDE * (found > 0) + 2 * SIDE * np.arange(parts)
            counts += np.bincount(place[~np.isnan(found)], minlength=counts.size)
        return counts

    @staticmethod
    def sensitivity(request: Any, size: int, neighbours: Neighbours) -> float:
        # one row adds at most 1 to one number of each column and view
        return sum_sensitivity(np.sqrt(size / (2 * SIDE)), neighbours, nonnegative=True)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        return board.put(PartCounts(total.reshape(-1, 2, SIDE), noise))


def _count_parts(widths: Sequence[int]) -> int:
    """Return how many columns and views are counted: of very wide tables views alone."""
    parts = sum(widths) + len(widths)
    return parts if parts * 2 * SIDE <= MOST_NUMBERS else len(widths)


def _find_tails(found: PartCounts, rare: float) -> FloatArray:
    """Find how far below and above its centre a cell is with a chance of `rare`, (columns and then views, 2).

    That is beyond most rows there are: a Pareto tail goes on from the farthest tenth of each side (Hill's estimate).
    Most columns have lighter tails, so that fewer cells are beyond. Where no count is above the noise, nothing is.
    """
    # no noise is expected above this in any of the numbers
    counts = np.where(found.counts > found.noise * np.sqrt(2 * np.log(found.counts.size)), found.counts, 0.0)
    rows = counts.sum(axis=(1, 2))[:, None]
    beyond = np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1]
    whole = beyond[..., 0]
    start = np.maximum((beyond >= np.maximum(TAIL_SHARE * whole, 1.0)[..., None]).sum(axis=-1) - 1, 0)
    steps = np.arange(SIDE)
    in_tail = np.where(steps >= start[..., None], counts, 0.0)
    tail = in_tail.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = (in_tail * (steps + 0.5 - start[..., None])).sum(axis=-1) / tail
        reach = start + excess * np.maximum(np.log(tail / rows / rare), 0.0)
    # what several rows have is not beyond, whatever the tail says
    seen = (beyond > np.maximum(rare * rows, 1.0)[..., None]).sum(axis=-1)
    limits = np.where(whole > 0, 2.0 ** (LEAST_POWER + np.maximum(reach, seen) / PARTS), np.nan)
    limits = np.where(np.isnan(limits), limits[:, ::-1], limits)  # nothing on one side: as on the other
    return np.where(np.isnan(limits), np.inf, limits)


@dataclass(frozen=True, eq=False)
class Limit(Answered):
    """Limits on the distance from a centre within which a row belongs to a cluster.

    Parameters
    ----------
    distance : float
        The limit on the whole row, as an exponent of the heat kernel.
    rare : float
        Share of sound rows that are beyond one of the limits.
    answer : Answer
        What was sent, and what it spent.
    views : array of shape (s,)
        The limit on each view: root of the mean square over its columns, whose unit is about their spread.
    columns : array of shape (d, 2) or None
        How far a cell of each column may be below and above the centre, views side by side, in the same unit; None
        of very wide tables.
    names : dict of str to list of str
        The columns of each view.
    noise : float
        Standard deviation of the noise in counts; 0 without noise.
    """

    tests_noise: ClassVar[bool] = False

    distance: float
    rare: float
    answer: Answer = field(repr=False)
    views: FloatArray
    columns: FloatArray | None
    names: dict[str, list[str]] = field(default_factory=dict)
    noise: float = 0.0

    def facts(self) -> dict[str, Any]:
        columns = {} if self.columns is None else {view: part.tolist() for view, part in self._by_view(self.columns)}
        views = dict(zip(self.names, self.views.tolist(), strict=True))
        return {"distance": self.distance, "rare": self.rare, "views": views, "columns": columns}

    def _by_view(self, columns: FloatArray) -> Iterator[tuple[str, FloatArray]]:
        ends = np.cumsum([len(names) for names in self.names.values()])[:-1]
        return zip(self.names, np.split(columns, ends), strict=True)

    def table(self) -> PrintedTable:
        """Make a table with one line for each view and column."""
        rows = [["whole row", "", number(self.distance, 2)]]
        parts = {} if self.columns is None else dict(self._by_view(self.columns))
        for (view, names), limit in zip(self.names.items(), self.views, strict=True):
            rows.append([f"view {view}", "", number(limit, 2)])
            pairs = zip(names, parts.get(view, ()), strict=False)
            rows += [[f"    {name}", number(below, 2), number(above, 2)] for name, (below, above) in pairs]
        return PrintedTable("How far from its centre a row may be", ["", "below", "above"], rows, self.notes)

    @property
    def notes(self) -> list[str]:
        """Notes below the table."""
        return [
            f"At most about {number(self.rare, 2)} of sound rows are beyond one of the limits.",
            "The limit of the whole row is an exponent of the heat kernel. Those of views and columns are in units in "
            "which a column of the view has a mean square of about 1.",
            *self._noise_notes(),
        ]


def find_limit(
    model: Any,
    sites: Any = None,
    *,
    engine: RemoteEngine | None = None,
    rare: float = 0.001,
    privacy: DifferentialPrivacy | None = None,
    secure: bool | SecureSummation = False,
) -> Limit:
    """Find how far from its centre a row may be: as a whole, in each view, and in each column.

    The heat kernel is 1 for all that is far, so that one impossible cell among sound ones hardly adds to the distance
    of a row. Views and columns therefore have limits of their own, on distances without an end.

    Parameters
    ----------
    model : estimator
        A fitted clusterer of FedHK.
    sites : dict or list of sites
        As in `fit`. Left out with `engine`.
    engine : fedhk.federation.engines.RemoteEngine or None, default=None
        What leads to sites that have their own rows, as in `fit`.
    rare : float, default=0.001
        Share of sound rows that may be called outliers by mistake. Half of it is for the whole row; all columns, below
        and above, and all views share the other half.
    privacy : fedhk.privacy.DifferentialPrivacy or None, default=None
        A budget for this question; `bounds` may be any pair.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only.
    """
    if check_number(rare, "rare", open_below=True) >= 1:
        raise ValueError(f"rare={rare!r} must be above 0 and below 1.")
    asked = find_sites(model, sites, engine, "limits")
    widths = tuple(reference.width for reference in model._model.references)
    phases = [CountDistances(), CountParts(widths)]
    answer = ask_sites(model, asked, phases, privacy=privacy, secure=secure)
    counts, parts = answer.board.get(DistanceCounts).counts, answer.board.get(PartCounts)
    beyond = np.cumsum(counts[::-1])[::-1]  # with noise it goes up and down: the last step that many reach counts
    reached = np.flatnonzero(beyond > rare / 2 * counts.sum())
    step = FARTHEST / STEPS
    distance = step * (int(reached[-1]) + 1 if len(reached) else 0)
    n_views, n_columns = len(widths), len(parts.counts) - len(widths)
    tails = _find_tails(parts, rare / 2 / (2 * n_columns + n_views))
    names = dict(zip(model._model.view_names, _name_columns(model._model), strict=True))
    columns = tails[:n_columns] if n_columns else None
    return Limit(distance, rare, answer, tails[n_columns:, 1], columns, names, parts.noise)


@dataclass(frozen=True, eq=False)
class Placement:
    """Where rows go, and why.

    Parameters
    ----------
    labels, runner_up : array of shape (n,)
        The nearest cluster, and the second nearest; of a model with one cluster the same.
    certainty : array of shape (n,)
        Largest membership, from 0 to 1.
    distance : array of shape (n,)
        Distance to the nearest centre, as an exponent of the heat kernel; comparable between rows.
    outlier : array of shape (n,)
        Whether a row is beyond a limit, as a whole, in a view or in a column; it belongs nowhere, whatever its label
        says.
    view_pull : array of shape (n, s)
        How much each view speaks for the nearest cluster rather than the second nearest; negative: against it.
    column_pull : list of array of shape (n, d_h)
        The same for each column of each view: how much nearer it is, in model units, by the weight of its view.
    views : list of str
        Names of the views.
    columns : list of (list of str)
        Names of the columns of each view; of a very wide one, "folded 17" stands for all that are folded there.
    view_excess : array of shape (n, s)
        How far each view is from the centre, in multiples of its limit; 0 without limits.
    column_excess : list of array of shape (n, d_h)
        The same of each column: above 1 is what hardly any row has.
    """

    labels: IntArray
    runner_up: IntArray
    certainty: FloatArray
    distance: FloatArray
    outlier: BoolArray
    view_pull: FloatArray
    column_pull: list[FloatArray]
    views: list[str]
    columns: list[list[str]]
    view_excess: FloatArray
    column_excess: list[FloatArray]

    def beyond(self, row: int) -> list[tuple[str, str, float]]:
        """Return where a row is beyond a limit: view, column, multiple of the limit; the farthest first.

        A view that is beyond its limit while none of its columns is has "" as column. A row can also be an outlier as
        a whole, without any of these.
        """
        found = []
        for h, (view, names) in enumerate(zip(self.views, self.columns, strict=True)):
            cells = [(view, name, float(e)) for name, e in zip(names, self.column_excess[h][row], strict=True) if e > 1]
            found += cells or [(view, "", float(e)) for e in self.view_excess[row, [h]] if e > 1]
        return sorted(found, key=lambda one: -one[2])

    def reasons(self, row: int, count: int = 3) -> list[tuple[str, str, float]]:
        """Return the columns that favour a row's cluster most over the second nearest: view, column, amount."""
        pulls = [
            (view, name, float(pull))
            for view, names, part in zip(self.views, self.columns, self.column_pull, strict=True)
            for name, pull in zip(names, part[row], strict=True)
        ]
        # where there is one cluster, nothing favours it
        return sorted((one for one in pulls if one[2] != 0), key=lambda one: -one[2])[: check_count(count, "count")]

    def frame(self) -> Any:
        """Return a pandas data frame with one line for each row."""
        lines: dict[str, Any] = {"cluster": self.labels, "certainty": self.certainty, "runner_up": self.runner_up}
        lines |= {"outlier": self.outlier, "distance": self.distance}
        lines |= {f"pull of {view}": self.view_pull[:, h] for h, view in enumerate(self.views)}
        words = {"reasons": list(map(self._name_reasons, range(len(self.labels))))}
        return pandas().DataFrame(lines | words | {"beyond": list(map(self._name_beyond, range(len(self.labels))))})

    def _name_reasons(self, row: int) -> str:
        return ", ".join(f"{view}: {column}" for view, column, _ in self.reasons(row))

    def _name_beyond(self, row: int) -> str:
        return ", ".join(f"{view}: {column}" if column else view for view, column, _ in self.beyond(row))

    def table(self, names: Sequence[str] = ()) -> PrintedTable:
        """Make a table with one line for each row; `names` are those of the rows, by default their numbers."""
        rows = []
        for i, (label, next_one) in enumerate(zip(self.labels, self.runner_up, strict=True)):
            other = "–" if next_one == label else str(next_one)
            cells = [str(label), number(self.certainty[i], 2), other, self._name_reasons(i)]
            far = self._name_beyond(i) or "as a whole"
            rows.append([names[i] if names else str(i), *cells, far if self.outlier[i] else ""])
        head = ["row", "cluster", "certainty", "next cluster", "reasons", "too far"]
        return PrintedTable("Where rows go", head, rows, self.notes)

    @property
    def notes(self) -> list[str]:
        """Notes below the table."""
        return [
            "Reasons are the columns that favour a row's cluster most over the next one.",
            "What is too far is farther from its centre than nearly all rows of the sites: such a row belongs nowhere, "
            "whatever its cluster says.",
        ]


def place(model: Any, rows: Any, *, site: str | None = None, limit: Limit | float | None = None) -> Placement:
    """Say where new rows go, how certain that is, which views and columns say so, and which rows belong nowhere.

    Parameters
    ----------
    model : estimator
        A fitted clusterer of FedHK.
    rows : list or dict of tables, or one table
        New rows, as for `predict`.
    site : str, optional
        The site that they are of: its own model places them.
    limit : Limit, float or None, default=None
        How far a row may be from its centre, from `find_limit`; a number limits the whole row only, and None calls no
        row an outlier. `beyond` says which views and columns of an outlier are too far.

    Examples
    --------
    >>> import fedhk
    >>> sites = fedhk.datasets.make_sites(3, 60, n_clusters=3, random_state=0).sites
    >>> model = fedhk.EFKMVC(n_clusters=3, random_state=0).fit(sites)
    >>> far = [view[:1] + 100 for view in sites["site-00"]]
    >>> bool(fedhk.place(model, far, limit=fedhk.find_limit(model, sites)).outlier[0])
    True
    """
    check_model(model)
    own = model
    if site is not None:
        known = getattr(model, "client_models_", {})
        if site not in known:
            raise DataError(f"site={site!r} has no model of its own; known are {list(known)[:10]}.")
        own = known[site]
    fitted: FittedModel = own._model
    views = own._read_new(rows, fitted.view_names, fitted.widths, fitted.columns)
    warn_of_empty(views)
    with own_threads():
        ready, parameters = fitted.rows(views), fitted.parameters
        with Passes(ready, parameters.n_clusters) as scan:
            memberships = scan.assign(parameters)[0]
            distances = scan.distances(parameters)
        distance, _ = _find_exponents(ready, parameters)
        order = np.argsort(distances, axis=1)
        labels, runner_up = memberships.argmax(axis=1), order[:, min(1, order.shape[1] - 1)]
        runner_up = np.where(runner_up == labels, order[:, 0], runner_up)
        shown = fitted.in_views
        seen = shown.rows(views)
        pull, columns = _find_pulls(seen, shown.parameters, labels, runner_up)
        by_view, by_column = _find_excess(seen, shown.parameters, labels, limit)
    far = np.inf if limit is None else limit.distance if isinstance(limit, Limit) else check_number(limit, "limit")
    return Placement(
        labels=labels,
        runner_up=runner_up,
        certainty=memberships.max(axis=1).astype(np.float64),
        distance=distance,
        outlier=(distance > far) | (by_view > 1).any(axis=1) | (by_column > 1).any(axis=1),
        view_pull=pull,
        column_pull=columns,
        views=list(fitted.view_names),
        columns=_name_columns(fitted),
        view_excess=by_view,
        column_excess=np.split(by_column, np.cumsum(seen.widths)[:-1], axis=1),
    )


def _find_excess(
    rows: Rows, parameters: Parameters, labels: IntArray, limit: Limit | float | None
) -> tuple[FloatArray, FloatArray]:
    """Compute how far views and cells are from their centre, in multiples of their limits; 0 where there is none."""
    if not isinstance(limit, Limit):
        return np.zeros((rows.n_rows, len(rows.widths))), np.zeros((rows.n_rows, sum(rows.widths)))
    by_column, by_view = map(np.nan_to_num, _measure_parts(rows, parameters, labels))
    below, above = (np.inf, np.inf) if limit.columns is None else limit.columns.T
    return by_view / limit.views, np.where(by_column > 0, by_column / above, -by_column / below)


def _find_pulls(
    ready: Rows, parameters: Parameters, labels: IntArray, others: IntArray
) -> tuple[FloatArray, list[FloatArray]]:
    """Compute how much nearer rows are to one centre than to another, by view (kernel) and by column (squares)."""
    pulls, each = [], np.arange(len(labels))
    for h in range(len(parameters.centers)):
        alone = np.zeros(len(parameters.centers))
        alone[h] = 1.0
        with Passes(ready, parameters.n_clusters) as scan:
            found = scan.distances(replace(parameters.free(), view_weights=alone, sizes=None))
        pulls.append(
            (found[each, others] - found[each, labels]) * parameters.view_weights[h] ** parameters.view_exponent
        )
    joint, centers = joint_rows(ready, missing=np.nan), np.hstack(parameters.centers)
    nearer = np.square(joint - centers[others]) - np.square(joint - centers[labels])
    widths = [part.shape[1] for part in parameters.centers]
    nearer = nearer * np.repeat(parameters.view_factors, widths)  # so that columns of different views compare
    ends = np.cumsum(widths)[:-1]
    return np.stack(pulls, axis=1).astype(np.float64), np.split(np.nan_to_num(nearer).astype(np.float64), ends, axis=1)


def _name_columns(model: FittedModel) -> list[list[str]]:
    """Return the names of the columns of each view; folded columns of a very wide view are numbered."""
    found = []
    for view, names, reference in zip(model.view_names, model.columns, model.references, strict=True):
        if view in model.folded:
            found.append([f"folded {place}" for place in range(reference.width)])
        elif names is None or is_tensor(names):
            found.append([str(place) for place in range(reference.width)])
        else:
            found.append([ordered_levels(str(name))[0] for name in names])
    return found
