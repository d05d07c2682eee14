"""Where a new row goes: its cluster, how certain, which views and columns say so, and whether it belongs anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.after.columns import RowCount
from fedhk.after.run import Answer, ask_sites, read_sites
from fedhk.after.stability import model_rows
from fedhk.data.checks import check_count, check_number
from fedhk.data.frames import pandas
from fedhk.data.views import Views, is_tensor
from fedhk.embedding.diffusion import EmbeddedModel
from fedhk.errors import DataError
from fedhk.federation.board import Board, Entry
from fedhk.federation.phases.base import Nothing
from fedhk.federation.placed import PlacedSite
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes, own_threads
from fedhk.model.rows import Rows, joint_rows
from fedhk.privacy.mechanism import AFTER, DifferentialPrivacy, SecureSummation

# Distances are counted in steps of their exponent phi, up to where the kernel 1 - exp(-phi) is 1 to the last digit.
STEPS, FARTHEST = 400, 36.0


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

    def size(self, board: Board) -> int:
        return STEPS

    @staticmethod
    def vector(site: PlacedSite, request: Nothing) -> FloatArray:  # type: ignore[override]
        phi, _ = _find_exponents(model_rows(site), site.model.parameters)
        place = np.minimum(phi / FARTHEST * STEPS, STEPS - 1).astype(np.intp)
        return np.bincount(place, minlength=STEPS).astype(np.float64)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        return board.put(DistanceCounts(total, noise))


@dataclass(frozen=True)
class Limit:
    """Limits on the distance from a centre within which a row belongs to a cluster.

    Parameters
    ----------
    distance : float
        The limit, as an exponent of the heat kernel.
    rare : float
        Share of the fitted rows that are farther away.
    answer : Answer
        What was sent, and what it spent.
    """

    distance: float
    rare: float
    answer: Answer


def find_limit(
    model: Any,
    sites: Any,
    *,
    rare: float = 0.001,
    privacy: DifferentialPrivacy | None = None,
    secure: bool | SecureSummation = False,
) -> Limit:
    """Find how far from its centre a row may be: beyond it is what all but a few of the sites' rows are not.

    Parameters
    ----------
    model : estimator
        A fitted clusterer of FedHK.
    sites : dict or list of sites
        As in `fit`.
    rare : float, default=0.001
        Share of the rows of the sites that are farther away.
    privacy : fedhk.privacy.DifferentialPrivacy or None, default=None
        A budget for this question; `bounds` may be any pair.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only.
    """
    if check_number(rare, "rare", open_below=True) >= 1:
        raise ValueError(f"rare={rare!r} must be above 0 and below 1.")
    asked = read_sites(model, sites, used=True)
    answer = ask_sites(model, asked, [CountDistances()], privacy=privacy, secure=secure, common_centers=True)
    counts = answer.board.get(DistanceCounts).counts
    beyond = np.cumsum(counts[::-1])[::-1]  # with noise it goes up and down: the last step that many reach counts
    reached = np.flatnonzero(beyond > rare * counts.sum())
    step = FARTHEST / STEPS
    return Limit(step * (int(reached[-1]) + 1 if len(reached) else 0), rare, answer)


@dataclass(frozen=True, eq=False)
class Placement:
    """Where rows go, and why.

    Parameters
    ----------
    labels, runner_up : array of shape (n,)
        The nearest cluster, and the second nearest.
    certainty : array of shape (n,)
        Largest membership, from 0 to 1.
    distance : array of shape (n,)
        Distance to the nearest centre, as an exponent of the heat kernel; comparable between rows.
    outlier : array of shape (n,)
        Whether a row is farther from all centres than the limit; it belongs nowhere, whatever its label says.
    view_pull : array of shape (n, s)
        How much each view speaks for the nearest cluster rather than the second nearest; negative: against it.
    column_pull : list of array of shape (n, d_h)
        The same for each column of each view: how much nearer it is, in model units, by the weight of its view.
    views : list of str
        Names of the views.
    columns : list of (list of str)
        Names of the columns of each view; of a very wide one, "folded 17" stands for all that are folded there.
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

    def reasons(self, row: int, count: int = 3) -> list[tuple[str, str, float]]:
        """Return the columns that favour a row's cluster most over the second nearest: view, column, amount."""
        pulls = [
            (view, name, float(pull))
            for view, names, part in zip(self.views, self.columns, self.column_pull, strict=True)
            for name, pull in zip(names, part[row], strict=True)
        ]
        return sorted(pulls, key=lambda one: -one[2])[: check_count(count, "count")]

    def frame(self) -> Any:
        """Return a pandas data frame with one line for each row."""
        lines: dict[str, Any] = {"cluster": self.labels, "certainty": self.certainty, "runner_up": self.runner_up}
        lines |= {"outlier": self.outlier, "distance": self.distance}
        lines |= {f"pull of {view}": self.view_pull[:, h] for h, view in enumerate(self.views)}
        words = [", ".join(f"{view}: {column}" for view, column, _ in self.reasons(i)) for i in range(len(self.labels))]
        return pandas().DataFrame(lines | {"reasons": words})


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
        How far a row may be from all centres, from `find_limit`; None calls no row an outlier.

    Examples
    --------
    >>> import fedhk
    >>> sites = fedhk.datasets.make_sites(3, 60, n_clusters=3, random_state=0).sites
    >>> model = fedhk.EFKMVC(n_clusters=3, random_state=0).fit(sites)
    >>> far = [view[:1] + 100 for view in sites["site-00"]]
    >>> bool(fedhk.place(model, far, limit=fedhk.find_limit(model, sites)).outlier[0])
    True
    """
    own = model
    if site is not None:
        known = getattr(model, "client_models_", {})
        if site not in known:
            raise DataError(f"site={site!r} has no model of its own; known are {list(known)[:10]}.")
        own = known[site]
    fitted: FittedModel = own._model
    views = own._read_new(rows, fitted.view_names, fitted.widths, fitted.columns)
    with own_threads():
        ready, parameters = fitted.rows(views), fitted.parameters
        with Passes(ready, parameters.n_clusters) as scan:
            memberships = scan.assign(parameters)[0]
            distances = scan.distances(parameters)
        distance, _ = _find_exponents(ready, parameters)
        order = np.argsort(distances, axis=1)
        labels, runner_up = memberships.argmax(axis=1), order[:, min(1, order.shape[1] - 1)]
        runner_up = np.where(runner_up == labels, order[:, 0], runner_up)
        pull, columns = _find_pulls(fitted, views, labels, runner_up)
    far = np.inf if limit is None else limit.distance if isinstance(limit, Limit) else check_number(limit, "limit")
    return Placement(
        labels=labels,
        runner_up=runner_up,
        certainty=memberships.max(axis=1).astype(np.float64),
        distance=distance,
        outlier=distance > far,
        view_pull=pull,
        column_pull=columns,
        views=list(fitted.view_names),
        columns=_name_columns(fitted),
    )


def _find_pulls(
    model: FittedModel, views: Views, labels: IntArray, others: IntArray
) -> tuple[FloatArray, list[FloatArray]]:
    """Compute how much nearer rows are to one centre than to another, by view (kernel) and by column (squares)."""
    # an embedding has no views: clusters are compared as the views that came in show them
    shown = model._of_means if isinstance(model, EmbeddedModel) else model
    ready, parameters, each = shown.rows(views), shown.parameters, np.arange(len(labels))
    pulls = []
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
            found.append([str(name) for name in names])
    return found
