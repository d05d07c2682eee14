"""Privacy options of estimators: a privacy budget for the whole run, and secure sums."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from fedhk._options import Option
from fedhk._typing import FloatArray
from fedhk.errors import FedHKError
from fedhk.privacy.accounting import noise_multiplier
from fedhk.privacy.secure_sum import default_threshold
from fedhk.privacy.sensitivity import Neighbours

__all__ = ["DifferentialPrivacy", "SecureSummation"]

# Shares of the budget (of mu^2, which adds up over releases) for what comes before the rounds: ranges of the features
# where they are not public, the mean of all rows, their lengths, spreads of columns, and what a start is found with.
# The rounds share the rest. Found on generated mixtures (docs/privacy.md), where all splits near this one were equally
# good.
SETUP_SHARES = {"ranges": 0.1, "means": 0.05, "lengths": 0.05, "spreads": 0.05, "directions": 0.2, "cells": 0.2}
START_PHASES = ("directions", "cells")

# The same where whole sites are protected. Sums in which the rows of a site add up, such as counts and lengths, need
# little: noise hides them far less than directions and rounds, where rows pull in all directions. Found on the mixture
# of benchmarks/privacy.py: directions with .36 were no better than with .3.
SITE_SHARES = {"ranges": 0.05, "means": 0.02, "lengths": 0.02, "spreads": 0.02, "directions": 0.3, "cells": 0.06}

# The names of sums that are asked for after a fit begin so. They have a budget of their own, and share all of it.
AFTER = "after "

# The names of sums of an update begin so. It starts from a model, so that its rounds share the whole budget.
UPDATE = "update "

# The names of sums that find how long the vectors of another sum are begin so, and the share of the budget of each.
LENGTH_OF = "length of "
LENGTH_SHARE = 0.02

# What is protected: one row at one site, or all that a site has.
Unit: TypeAlias = Literal["row", "site"]
SHARES: dict[Unit, dict[str, float]] = {"row": SETUP_SHARES, "site": SITE_SHARES}

# With two sites, each can tell the other's numbers from the sum.
FEWEST_SITES = 3


class ChoiceError(FedHKError, ValueError):
    """A privacy budget or a threshold does not fit the sites."""


@dataclass(frozen=True)
class DifferentialPrivacy(Option):
    """Differential privacy: noise hides any one row at any one site in all that leaves the sites in a run.

    Parameters
    ----------
    epsilon : float
        The budget of the whole run; above 0. Smaller is more private.
    delta : float
        Probability with which the bound may fail; below 1 over the number of rows of any site.
    bounds : (low, high), list of pairs of arrays per view, or "private"
        Range of the features, known without looking at the rows: one pair of numbers for all features, or one pair of
        numbers or of arrays per view. "private" spends a tenth of the budget to find them.
    neighbours : {"replace", "add-remove"}, default="replace"
        What one row more or less means: another row in its place, or no row. "add-remove" needs less noise; with it
        the number of rows of a site is secret too, and with "replace" it is not told either.
    rounds : int, default=6
        Noisy rounds; `max_rounds` of the estimator may be smaller. More rounds share the same budget.
    colluders : int, default=0
        With secure sums: sites that may tell the server their own noise. The others add more for it.
    unit : {"row", "site"}, default="row"
        What is protected. "site" is all that a site has, for federations of many small sites such as phones: each
        cuts what it sends to a length that most do not reach. Then `neighbours` are federations in which one site has
        other rows, or none, and `delta` must be below 1 over the number of sites. It takes hundreds of sites.
    ledger : path or None, default=None
        Folder in which each site writes down what it released before it sends it; that of all runs on the same rows.
        None keeps it in memory, or where there is a checkpoint in the folder beside it, "<checkpoint>.ledger".
    plan : (float, int) or None, default=None
        At most so much epsilon in a year, for so many years: (1.0, 5). The folder of `ledger` keeps it from the first
        run on, and a run that would exceed it at any site is refused before it begins.

    Examples
    --------
    >>> from fedhk.privacy import DifferentialPrivacy
    >>> DifferentialPrivacy(epsilon=1.0, delta=1e-5, bounds=(-4, 4)).multiplier("round") > 10
    True
    """

    epsilon: float
    delta: float
    bounds: Any
    neighbours: Neighbours = "replace"
    rounds: int = 6
    colluders: int = 0
    unit: Unit = "row"
    ledger: Any = None
    plan: Any = None

    def __post_init__(self) -> None:
        self._set("bounds", _plain(self.bounds))
        self._set("ledger", None if self.ledger is None else os.fspath(self.ledger))
        self._keep_number("epsilon", lambda epsilon: 0 < epsilon < math.inf, "a finite number above 0")
        self._keep_number(
            "delta", lambda delta: 0 < delta < 1, "between 0 and 1, and below 1 over the rows of any site"
        )
        self._set("plan", _read_plan(self.plan))
        self._check_word("neighbours", get_args(Neighbours))
        self._check_word("unit", get_args(Unit))
        self._keep_whole("rounds", 1)
        self._keep_whole("colluders", 0)
        if self.bounds is None:
            raise ValueError(
                "bounds=None: noise is sized by the range of the features, which must be known without looking at the "
                "rows. Give bounds=(low, high), one pair per view, or bounds='private' to spend budget on them."
            )
        if isinstance(self.bounds, str):
            if self.bounds != "private":
                raise ValueError(f"bounds={self.bounds!r} must be pairs of numbers or 'private'.")
        elif not isinstance(self.bounds, tuple) or not self.bounds:
            raise ValueError(
                f"bounds={self.bounds!r} must be a pair (low, high), a pair per view, or 'private'. Ranges by column "
                "are in a data dictionary: fedhk.read_dictionary('dictionary.toml').bounds() gives them."
            )
        else:
            read_bounds(self.bounds)

    @property
    def public(self) -> bool:
        """Whether bounds were given."""
        return not isinstance(self.bounds, str)

    @property
    def budget(self) -> float:
        """mu^2 of the whole run: the squares of 1 over the multipliers of all releases add up to it."""
        return _whole_multiplier(self.epsilon, self.delta) ** -2

    def budget_for(self, neighbours: Neighbours) -> float:
        """The same for neighbours of either kind, as a ledger counts its releases (`Release.multiplier_for`)."""
        return self.budget * (4.0 if (self.neighbours, neighbours) == ("add-remove", "replace") else 1.0)

    def multiplier(self, phase: str, rounds: int | None = None, *, finds_start: bool = True) -> float:
        """Standard deviation of the noise of one release, in units of what one row can change.

        Parameters
        ----------
        phase : str
            What is released: "ranges", "means", "lengths", "spreads", "directions" or "cells"; names that begin with
            "after " are sums after a fit, with "update " rounds of an update; those that begin with "length of " come
            before others with ``unit="site"``; any other name is that of a round.
        rounds : int, optional
            Rounds of the run; `rounds` of this object by default.
        finds_start : bool, default=True
            Whether the run looks for a start; where centres were given, rounds share what that would cost.
        """
        rounds, kind = rounds or self.rounds, phase.removeprefix(LENGTH_OF)
        after, update = kind.startswith(AFTER), kind.startswith(UPDATE)
        needless = (*(["ranges"] if self.public else []), *([] if finds_start else START_PHASES))
        shares = {} if after or update else SHARES[self.unit]
        setup = {name: share for name, share in shares.items() if name not in needless}
        # with a length before each sum, but for rounds, which share one
        lengths = LENGTH_SHARE * (rounds if after else len(setup) + 1) if self.unit == "site" else 0.0
        share = setup.get(phase, (1.0 - sum(setup.values()) - lengths) / rounds)
        share = LENGTH_SHARE if phase.startswith(LENGTH_OF) else share
        return _whole_multiplier(self.epsilon, self.delta) / math.sqrt(share)

    def describe(self) -> dict[str, Any]:
        """Return the budget as JSON, for checkpoints and messages."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "bounds": json.loads(json.dumps(self.bounds)),
            "neighbours": self.neighbours,
            "rounds": self.rounds,
            "colluders": self.colluders,
            "unit": self.unit,
        }


def _read_plan(plan: Any) -> tuple[float, int] | None:
    """Check a plan, and return it as a pair."""
    if plan is None:
        return None
    parts = list(plan) if isinstance(plan, Sequence) and not isinstance(plan, str) else []
    fits = len(parts) == 2 and all(isinstance(part, Real) and not isinstance(part, bool) for part in parts)
    if not fits or not (math.isfinite(parts[0]) and parts[0] > 0 and parts[1] >= 1 and int(parts[1]) == parts[1]):
        raise ValueError(f"plan={plan!r} must be epsilon a year, above 0, and a whole number of years: (1.0, 5).")
    return float(parts[0]), int(parts[1])


@lru_cache
def _whole_multiplier(epsilon: float, delta: float) -> float:
    """Compute the noise multiplier of one release that spends the whole budget."""
    return noise_multiplier(epsilon, delta)


def _plain(bounds: Any) -> Any:
    """Convert bounds to lists, as files hold them."""
    if hasattr(bounds, "tolist"):
        return _plain(bounds.tolist())
    return tuple(map(_plain, bounds)) if isinstance(bounds, list | tuple) else bounds


def read_bounds(bounds: Any, widths: Sequence[int] | None = None) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Return the lowest and highest value of each feature, per view.

    Parameters
    ----------
    bounds : (low, high) or list of pairs
        One pair of numbers for all features, or one pair of numbers or of arrays per view.
    widths : sequence of int, optional
        Features of each view; without it, the bounds alone are looked at.
    """
    pairs = list(bounds) if np.ndim(bounds[0]) else [bounds] * (1 if widths is None else len(widths))
    if widths is not None and len(pairs) != len(widths):
        raise ValueError(f"bounds has {len(pairs)} pairs, the sites have {len(widths)} views.")
    result = []
    for view, pair in enumerate(pairs):
        if np.ndim(pair) == 0 or len(pair) != 2:
            raise ValueError(f"bounds of view number {view} must be a pair (low, high), got {pair!r}.")
        low, high = (np.asarray(end, np.float64) for end in pair)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError(f"bounds of view number {view} must be finite, got {pair!r}.")
        if not np.all(low < high):
            raise ValueError(f"bounds of view number {view} must have low < high in every feature, got {pair!r}.")
        if widths is not None:
            width = widths[view]
            if (low.ndim and low.shape != (width,)) or (high.ndim and high.shape != (width,)):
                raise ValueError(
                    f"bounds of view number {view} have shapes {low.shape} and {high.shape}; the view has {width} "
                    "features."
                )
            low, high = np.broadcast_to(low, width), np.broadcast_to(high, width)
        result.append((np.array(low), np.array(high)))
    return tuple(result)


def refuse_budget(estimator: Any, reason: str) -> None:
    """Refuse an estimator with a privacy budget, where it would be spent again or not protect all that is sent."""
    if getattr(estimator, "privacy", None) is not None:
        raise ValueError(reason)


@dataclass(frozen=True)
class SecureSummation(Option):
    """Sums of which the server sees only the total.

    Parameters
    ----------
    threshold : int or None, default=None
        How many sites must answer each time: more than half of them. None is more than two thirds.
    shared_noise : bool, default=True
        With `privacy`: whether the sites share one noise, so that a total has the noise of one site. A site whose
        policy lists no keys of the others cannot know that they are real, and asks for False: then every site adds all
        of the noise itself.
    """

    threshold: int | None = None
    shared_noise: bool = True

    def __post_init__(self) -> None:
        self._keep_whole("threshold", 2, or_none=True)

    def threshold_of(self, n_sites: int) -> int:
        """Return how many of so many sites must reply; refuse too few sites, and a threshold that does not fit."""
        if n_sites < FEWEST_SITES:
            raise ChoiceError(
                f"secure=True needs at least {FEWEST_SITES} sites, got {n_sites}: with two, each can tell the other's "
                "numbers from the sum."
            )
        threshold = default_threshold(n_sites) if self.threshold is None else self.threshold
        if not n_sites / 2 < threshold <= n_sites:
            raise ChoiceError(
                f"threshold={threshold} must be more than half of the {n_sites} sites, and no more than all."
            )
        return threshold
