"""Algorithms 2 and 3 at several clients: FedHK-PARAFAC2 and FedHK-Tucker.

The paper prints what a client does with global parts, and no loop around it. The loop here is the server's half of
Algorithm 4: the clients' parts are averaged by `eqn:fed_global_core` to `eqn:fed_global_R` after every round.
"""

from __future__ import annotations

import numpy as np

from fedhk.reference._checks import read_options
from fedhk.reference.algorithm_tensor_local import tensor_local_clustering
from fedhk.reference.outcome import Clients, Outcome, Start, TensorRound, name_clients, read_clients
from fedhk.reference.tensor_federation import FederationOptions, aggregate, start_parts


def fedhk_parafac2(
    clients: Clients,
    n_clusters: int,
    options: FederationOptions | None = None,
    random_state: np.random.Generator | int | None = None,
    *,
    start: Start | None = None,
) -> Outcome:
    """Run Algorithm 2 at every client, in rounds with an average of the parts (`alg:tensor_fed_local`).

    Parameters
    ----------
    clients : sequence, or dict by name, of M sequences of s arrays of shape (n(l), d_h)
    n_clusters : int
    options : FederationOptions, optional
    random_state : numpy.random.Generator or int, optional
        Draws the start: standard normal parts, as the paper only says "randomly".
    start : global parts and view weights, optional
        Taken instead of random ones.

    Returns
    -------
    Outcome
        Its history has a `TensorRound` for each round.

    Notes
    -----
    A client's previous parts before its first round are not defined in the algorithm; they are the global ones.
    """
    options = read_options(options, FederationOptions, "fedhk_parafac2 and fedhk_tucker")
    views = read_clients(clients, n_clusters)
    widths = [view.shape[1] for view in views[0]]
    parts, _ = start_parts(n_clusters, widths, options, random_state, start)
    previous, history = [parts] * len(views), list[TensorRound]()
    for _ in range(options.rounds):
        states = [
            tensor_local_clustering(x, parts, before, options.personalization, options=options.local)
            for x, before in zip(views, previous, strict=True)
        ]
        history.append(aggregate(states, widths, options))
        parts, previous = history[-1].parts, [state.parts for state in states]
    return Outcome([state.memberships for state in states], history, name_clients(clients))


def fedhk_tucker(
    clients: Clients,
    n_clusters: int,
    options: FederationOptions | None = None,
    random_state: np.random.Generator | int | None = None,
    *,
    start: Start | None = None,
) -> Outcome:
    """Run Algorithm 3 at every client (`alg:tensor_fed_local_tucker`): `fedhk_parafac2` with U, V, W for P, Q, R.

    The two algorithms of the paper are the same formulas, and so give the same numbers.
    """
    return fedhk_parafac2(clients, n_clusters, options, random_state, start=start)
