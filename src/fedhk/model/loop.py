"""The one loop: statistics in, better parameters out, until nothing is gained."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.model.updates import learned_view_weights, update_centers


@dataclass(frozen=True)
class Outcome:
    """How a minimisation ended.

    Parameters
    ----------
    parameters : Parameters
        The best parameters, which are also the last.
    history : list of dict
        One record an iteration; `objective` is J at the parameters the iteration started from.
    converged : bool
        Whether the tolerance was reached.
    stop_reason : str
        Why it stopped, and what to try.
    """

    parameters: Parameters
    history: list[dict[str, Any]]
    converged: bool
    stop_reason: str


def improve(parameters: Parameters, statistics: Statistics, *, learn_weights: bool) -> Parameters:
    """Descend one step in view weights and in centres, from the statistics at `parameters`."""
    weights = parameters.view_weights
    if learn_weights:
        weights = learned_view_weights(statistics.costs, parameters.view_shares, parameters.view_exponent)
    return replace(parameters, centers=update_centers(statistics, parameters.centers), view_weights=weights)


def minimise(
    collect: Callable[[Parameters], Statistics],
    start: Parameters,
    *,
    learn_weights: bool,
    max_iter: int,
    tol: float,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Outcome:
    """Alternate until the objective falls by less than `tol` of itself.

    Parameters
    ----------
    collect : callable
        Gives the statistics of all rows at given parameters, with the best memberships for them.
    start : Parameters
        Where to start.
    learn_weights : bool
        Whether view weights follow `eqn:diff_V_EFKMVFC` or stay.
    max_iter : int
        Most iterations.
    tol : float
        Relative fall of the objective below which the loop ends; 0 runs all iterations.
    callback : callable, optional
        Called with every record of the history.
    """
    parameters, history, previous = start, [], float("inf")
    for iteration in range(1, max_iter + 1):
        began = time.perf_counter()
        statistics = collect(parameters)
        objective = statistics.objective
        parameters = improve(parameters, statistics, learn_weights=learn_weights)
        record = {"iteration": iteration, "objective": objective, "seconds": time.perf_counter() - began}
        history.append(record)
        if callback is not None:
            callback(record)
        if tol > 0 and iteration > 1 and previous - objective <= tol * previous:
            reason = f"The objective fell by less than tol={tol:g} of itself in iteration {iteration}."
            return Outcome(parameters, history, True, reason)
        previous = objective
    reason = f"Stopped after max_iter={max_iter} iterations before the objective settled; raise max_iter or tol."
    if tol == 0:
        reason = f"Ran all max_iter={max_iter} iterations, as tol=0 asks."
    return Outcome(parameters, history, False, reason)
