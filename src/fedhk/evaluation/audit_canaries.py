"""An audit of one's own run: some rows are left out by the toss of a coin, and the model is asked which.

One fit is enough, because every such row, a canary, is a guess of its own (Steinke, Nasr and Jagielski 2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import binom
from sklearn.base import clone

from fedhk._typing import FloatArray
from fedhk.evaluation.attack_sites import Tables, count_rows, pool_rows, take_rows
from fedhk.evaluation.audit_attack import check_confidence, measure_closeness

__all__ = ["CanaryAudit", "audit_run", "bound_epsilon"]

# Fewer canaries can show nothing: ten right guesses of ten happen by chance once in a thousand.
FEWEST_CANARIES = 20

# An epsilon above this promises nothing, and is as far as a bound is looked for.
MOST_EPSILON = 30.0


@dataclass(frozen=True)
class CanaryAudit:
    """Result of an audit of a run."""

    canaries: int
    """Rows that were left out or not, by chance."""
    guesses: int
    """Canaries of which the attacker says whether they were fitted; of the others it says nothing."""
    right: int
    """Guesses that are right."""
    stated: float | None
    """Epsilon that the run states; None without noise."""
    shown: float
    """Epsilon that the run has at least."""
    confidence: float

    @property
    def holds(self) -> bool:
        """Whether the lower bound is at most the stated epsilon."""
        return self.stated is None or self.shown <= self.stated

    @property
    def verdict(self) -> str:
        """Meaning of the result, in a sentence."""
        guessed = f"{self.right} of {self.guesses} guesses were right"
        if self.stated is None:
            return f"{guessed}: without noise nothing is promised, and epsilon >= {self.shown:.2f} is shown."
        end = "consistent" if self.holds else "the promise is broken, please report it"
        return f"{guessed}: epsilon >= {self.shown:.2f} is shown of the stated {self.stated:.2f}: {end}."

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return asdict(self) | {"holds": self.holds, "verdict": self.verdict}


def audit_run(
    model: Any, sites: Mapping[str, Tables], *, canaries: int = 400, confidence: float = 0.95, random_state: int = 0
) -> CanaryAudit:
    """Fit a federated estimator once to rows of which some are left out by chance, and guess which from the model.

    Parameters
    ----------
    model : estimator
        With the parameters of the run; it is not changed. Its ledger is not used: nothing leaves this process.
    sites : dict of dict of NamedTable
        The rows of each site, by view.
    canaries : int, default=400
        Rows that are left out with probability 1/2; half of all rows at most. More can show more, and change the run
        more.
    confidence : float, default=0.95
        Of the bound.
    random_state : int, default=0
        Seed of which rows are canaries, and which of them are left out.

    Returns
    -------
    CanaryAudit
        The guesses are the quarter of the canaries that are nearest to a centre, for their size, and the quarter that
        are furthest.

    Notes
    -----
    To leave a row out is the neighbourhood "add-remove". What is shown is a lower bound for "replace", too, with which
    a run promises no less about rows that are left out.
    """
    check_confidence(confidence)
    rows = {site: count_rows(tables) for site, tables in sites.items()}
    total = sum(rows.values())
    if not FEWEST_CANARIES <= canaries <= total // 2:
        raise ValueError(
            f"canaries={canaries} must be between {FEWEST_CANARIES} and half of the {total} rows, {total // 2}."
        )
    generator = np.random.default_rng(random_state)
    chosen = np.sort(generator.choice(total, canaries, replace=False))
    inside = generator.random(canaries) < 0.5
    kept = np.ones(total, bool)
    kept[chosen[~inside]] = False
    fitted, start = {}, 0
    for site, tables in sites.items():
        fitted[site] = take_rows(tables, np.flatnonzero(kept[start : start + rows[site]]))
        start += rows[site]
    privacy = None if model.privacy is None else replace(model.privacy, ledger=None)
    run = clone(model).set_params(checkpoint=None, privacy=privacy).fit(fitted)
    scores = measure_closeness(run, take_rows(pool_rows(sites), chosen))
    guesses = max(canaries // 4, 1)
    order = np.argsort(scores, kind="stable")
    right = int(inside[order[-guesses:]].sum() + (~inside[order[:guesses]]).sum())
    delta, stated = (0.0, None) if privacy is None else (privacy.delta, privacy.epsilon)
    shown = bound_epsilon(canaries, 2 * guesses, right, delta, confidence)
    return CanaryAudit(canaries, 2 * guesses, right, stated, shown, confidence)


def bound_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Find the largest epsilon that so many right guesses exclude.

    Parameters
    ----------
    canaries : int
        Rows that were left out by chance.
    guesses : int
        Guesses about them.
    right : int
        Right ones.
    delta : float
        Of the run.
    confidence : float
        Of the bound.
    """
    low, high = 0.0, MOST_EPSILON
    if _chance(canaries, guesses, right, low, delta) > 1 - confidence:
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        excluded = _chance(canaries, guesses, right, middle, delta) <= 1 - confidence
        low, high = (middle, high) if excluded else (low, middle)
    return low


def _chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the probability of so many right guesses, or more, in a run with (epsilon, delta).

    Theorem 5.2 of Steinke, Nasr and Jagielski 2023: guesses are right no more often than coins with e^epsilon to 1,
    but for what delta adds, 2 delta per canary times the largest mean chance of a few right guesses less.
    """
    coin = 1.0 / (1.0 + math.exp(-epsilon))
    fewer: FloatArray = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, coin))
    most = float(np.max(fewer / np.arange(1, right + 1), initial=0.0))
    return min(float(binom.sf(right - 1, guesses, coin)) + 2 * canaries * delta * most, 1.0)
