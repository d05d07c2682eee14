"""What a run of Algorithms 1 to 4 gives: labels, models and a record of every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedhk.reference._arrays import FloatArray

Start: TypeAlias = tuple[Sequence[FloatArray], FloatArray]
"""Global centres (Algorithm 1) or global parts (Algorithms 2 to 4), and global view weights, before the first round."""

Clients: TypeAlias = Sequence[Sequence[FloatArray]] | Mapping[str, Sequence[FloatArray]]
"""The views of every client: in a list, or by the name of the client, as the estimators take their sites."""


@dataclass(frozen=True)
class Round:
    """What the clients and the server have at the end of one round."""

    objective: float
    """J_global."""
    client_objectives: FloatArray
    """J_l of every client, of shape (M,)."""
    client_weights: FloatArray
    """omega_l, of shape (M,)."""
    centers: list[FloatArray]
    """A_global, one array of shape (c, d_h) for each view."""
    view_weights: FloatArray
    """V_global, of shape (s,)."""
    client_centers: list[list[FloatArray]]
    """A_l of every client."""
    client_view_weights: FloatArray
    """V_l of every client, of shape (M, s)."""


@dataclass(frozen=True)
class TensorRound(Round):
    """A round of Algorithms 2 and 3: also the parts, core G and factors P, Q, R, that the centres are made of."""

    parts: list[FloatArray]
    """Global parts."""
    client_parts: list[list[FloatArray]]


@dataclass(frozen=True)
class PersonRound(TensorRound):
    """A round of Algorithm 4: also the weights with which clients blend global and own parts in the next round."""

    personalization: FloatArray
    """lambda_l^core, lambda_l^P, lambda_l^Q, lambda_l^R of every client, of shape (M, 4)."""
    view_personalization: FloatArray
    """rho_l of every client, of shape (M,)."""


@dataclass(frozen=True)
class Outcome:
    """Memberships U* of every client and a record of every round, the last of which is the result."""

    memberships: list[FloatArray]
    history: Sequence[Round]
    names: tuple[str, ...]
    """Names of the clients, in the order of all lists; those that came without names are numbered from 0 on."""

    def __repr__(self) -> str:
        """Say how much there is; the arrays themselves would fill pages."""
        rows = sum(map(len, self.memberships))
        return (
            f"<{type(self).__name__}: {rows} rows of {len(self.memberships)} clients in "
            f"{self.memberships[0].shape[1]} clusters, {len(self.history)} rounds, J {self.objectives[-1]:.6g}>"
        )

    @property
    def labels(self) -> list[NDArray[np.intp]]:
        """The cluster of the largest membership, for the rows of every client."""
        return [mu.argmax(axis=1) for mu in self.memberships]

    @property
    def site_labels(self) -> dict[str, NDArray[np.intp]]:
        """The same by the name of the client, as `labels_` of the estimators."""
        return dict(zip(self.names, self.labels, strict=True))

    @property
    def objectives(self) -> list[float]:
        """J_global of every round."""
        return [record.objective for record in self.history]


def read_clients(clients: Clients, n_clusters: int) -> list[list[FloatArray]]:
    """The views of every client as arrays of floats; what the paper has no rule for is refused."""
    every = list(clients.values() if isinstance(clients, Mapping) else clients)
    if not every:
        raise ValueError("clients is empty: at least one client is needed.")
    found = [_read_views(name, views) for name, views in zip(name_clients(clients), every, strict=True)]
    widths = [view.shape[1] for view in found[0]]
    for name, views in zip(name_clients(clients), found, strict=True):
        if [view.shape[1] for view in views] != widths:
            raise ValueError(
                f"client {name} has views of widths {[v.shape[1] for v in views]}, the first client of widths {widths}."
            )
    rows = sum(len(views[0]) for views in found)
    if not isinstance(n_clusters, Integral) or isinstance(n_clusters, bool) or not 1 <= n_clusters <= rows:
        raise ValueError(f"n_clusters={n_clusters!r} must be a whole number from 1 to the number of rows, {rows}.")
    return found


def name_clients(clients: Clients) -> tuple[str, ...]:
    """The names of clients, by which errors call them; those in a list are numbered from 0 on."""
    return tuple(map(str, clients if isinstance(clients, Mapping) else range(len(clients))))


def _read_views(client: str, given: Sequence[FloatArray | None]) -> list[FloatArray]:
    if isinstance(given, Mapping) or getattr(given, "ndim", 3) < 3:
        raise TypeError(f"client {client} must be a list of views, tables of shape (rows, features): [table, ...].")
    if missing := [h for h, view in enumerate(given) if view is None]:
        raise ValueError(f"client {client} lacks view {missing[0]}: the paper has no rule for missing views.")
    views = [np.asarray(view, dtype=np.float64) for view in given]
    if not views or any(view.ndim != 2 for view in views):
        raise ValueError(f"client {client} has views of shapes {[view.shape for view in views]}, not (rows, features).")
    if len({len(view) for view in views}) != 1 or not len(views[0]):
        raise ValueError(f"client {client} has views of {[len(v) for v in views]} rows: all need the same, not 0.")
    if not all(np.isfinite(view).all() for view in views):
        raise ValueError(f"client {client} has values that are not finite, for which the paper has no rule.")
    return views


def read_start(start: Any, shapes: Sequence[tuple[int, ...]], n_views: int, arrays: str) -> Start:
    """Check a start that is given: a pair of arrays of these shapes, and view weights; `arrays` says what they are."""
    wanted = f"start must be a pair: {arrays} of shapes {list(shapes)}, and {n_views} view weights"
    if not isinstance(start, tuple | list) or len(start) != 2:
        raise ValueError(f"{wanted}.")
    parts, weights = [np.asarray(part, np.float64) for part in start[0]], np.asarray(start[1], np.float64)
    if [part.shape for part in parts] != list(shapes) or weights.shape != (n_views,):
        raise ValueError(f"{wanted}, got shapes {[part.shape for part in parts]} and {weights.shape}.")
    if not all(np.isfinite(array).all() for array in (*parts, weights)):
        raise ValueError(f"{wanted}; some numbers are not finite.")
    return parts, weights
