"""The one loop: statistics in, better parameters out, until nothing is gained."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.model.updates import learned_view_weights


@dataclass(frozen=True)
class Progress:
    """Where a minimisation stands; at one site and over many.

    Parameters
    ----------
    parameters : Parameters
        The best parameters so far, which are also the last.
    iteration : int
        Iterations done.
    objective : float
        J at the parameters that the last iteration started from.
    converged : bool
        Whether the tolerance was reached.
    stop_reason : str
        Why it stopped, and what to try; empty while it goes on.
    """

    parameters: Parameters
    iteration: int = 0
    objective: float = float("inf")
    converged: bool = False
    stop_reason: str = ""

    def advance(self, parameters: Parameters, objective: float, *, max_iter: int, tol: float) -> Progress:
        """The state after one more iteration that found `objective` at the old parameters and made new ones."""
        iteration = self.iteration + 1
        reason, converged = "", False
        if tol > 0 and iteration > 1 and self.objective - objective <= tol * self.objective:
            reason = f"The objective fell by less than tol={tol:g} of itself in iteration {iteration}."
            converged = True
        elif iteration >= max_iter:
            reason = f"Stopped after {max_iter} iterations before the objective settled; allow more, or raise tol."
            if tol == 0:
                reason = f"Ran all {max_iter} iterations, as tol=0 asks."
        return Progress(parameters, iteration, objective, converged, reason)


def improve(parameters: Parameters, statistics: Statistics, *, learn_weights: bool) -> Parameters:
    """Descend one step in view weights and in centres, from the statistics at `parameters`.

    Notes
    -----
    A view that the rows do not have costs nothing, so `eqn:diff_V_EFKMVFC` would give it all the weight. It keeps the
    weight it had and the others share the rest: the exact minimiser of J over their weights.
    """
    weights = parameters.view_weights
    seen = np.array([bool(view.any()) for view in statistics.weights]) | (statistics.costs != 0)
    if learn_weights and seen.any():
        learned = learned_view_weights(statistics.costs[seen], parameters.view_shares[seen], parameters.view_exponent)
        weights = weights.copy()
        weights[seen] = learned if seen.all() else learned * weights[seen].sum()
    return replace(parameters, view_weights=weights).move_centers(statistics)


def minimise(
    collect: Callable[[Parameters], Statistics],
    start: Parameters,
    *,
    learn_weights: bool,
    max_iter: int,
    tol: float,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[Progress, list[dict[str, Any]]]:
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

    Returns
    -------
    progress : Progress
        How it ended.
    history : list of dict
        One record an iteration; `objective` is J at the parameters the iteration started from.
    """
    progress, history = Progress(start), []
    while not progress.stop_reason:
        began = time.perf_counter()
        statistics = collect(progress.parameters)
        better = improve(progress.parameters, statistics, learn_weights=learn_weights)
        progress = progress.advance(better, statistics.objective, max_iter=max_iter, tol=tol)
        record = {
            "iteration": progress.iteration,
            "objective": progress.objective,
            "seconds": time.perf_counter() - began,
        }
        history.append(record)
        if callback is not None:
            callback(record)
    return progress, history
