"""What a run of Algorithms 1 to 4 gives: labels, models and a record of every round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
    def objectives(self) -> list[float]:
        """J_global of every round."""
        return [record.objective for record in self.history]


def read_clients(clients: Clients) -> list[list[FloatArray]]:
    """The views of every client as arrays of floats; what the paper has no rule for is refused."""
    every = clients.values() if isinstance(clients, Mapping) else clients
    found = [[np.asarray(view, dtype=np.float64) for view in views] for views in every]
    if not found:
        raise ValueError("clients is empty: at least one client is needed.")
    widths = [view.shape[1] for view in found[0]]
    for number, views in enumerate(found):
        if [view.shape[1] for view in views] != widths:
            raise ValueError(
                f"client {number} has views of widths {[v.shape[1] for v in views]}, client 0 of widths {widths}."
            )
        if len({len(view) for view in views}) != 1 or not len(views[0]):
            raise ValueError(f"client {number} has views of {[len(v) for v in views]} rows: all need the same, not 0.")
        if not all(np.isfinite(view).all() for view in views):
            raise ValueError(f"client {number} has values that are not finite, for which the paper has no rule.")
    return found
