"""A site's own model: the global centres, moved as far as the site's own rows justify.

The site's centres are A_k + b + d_k: the global ones, an offset that all clusters of the site share (another sensor,
another person), and what is left per cluster. How much of each is taken is learned on held-out rows: half of the rows
say where the centres should go, the other half how much of that is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.model.joint import split_joint
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.model.seeding import SEED_ROWS, joint_rows, take
from fedhk.model.statistics import Statistics
from fedhk.model.updates import learned_view_weights

# Fewest rows of which half can be held out; a smaller site has the global model.
LEAST_ROWS = 10

# Passes over the rows; memberships follow the centres, so that one is not enough.
PASSES = 10

# A share is taken only as far as it is surely above what two halves of the same rows agree on by chance.
STANDARD_ERRORS = 1.0

# Weight below this share of the view's is no evidence of where a centre is.
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class Wanted:
    """What a site's model may take from its own rows; None is learned on held-out rows.

    Parameters
    ----------
    shift : float or None
        Share of the offset that all clusters have in common.
    centers : float or None
        Share of what is left per cluster: lambda of `eqn:adaptive_lambda`.
    view_weights : float or None
        rho: share of the site's own view weights; used where view weights are learned.
    center_pull : float or None
        gamma of R_person: rows by which the global centre pulls each own one; instead of `centers`.
    """

    shift: float | None = None
    centers: float | None = None
    view_weights: float | None = None
    center_pull: float | None = None


@dataclass(frozen=True)
class Personal:
    """A site's own parameters, and how much of its own rows is in them.

    Parameters
    ----------
    parameters : Parameters
        The site's.
    shift, centers, view_weights : float
        Shares from 0, the global model, to 1, the site's own rows alone.
    """

    parameters: Parameters
    shift: float = 0.0
    centers: float = 0.0
    view_weights: float = 0.0


def personalise(
    rows: Rows,
    common: Parameters,
    wanted: Wanted,
    *,
    learn_weights: bool,
    seed: int = 0,
    passes: int = PASSES,
    workers: int = 1,
) -> Personal:
    """A site's own model.

    Parameters
    ----------
    rows : Rows
        The site's rows.
    common : Parameters
        The global model.
    wanted : Wanted
        Shares that are fixed.
    learn_weights : bool
        Whether view weights take part.
    seed : int
        Which rows are held out.
    passes : int
        Passes over the rows.
    workers : int
        Threads.

    Notes
    -----
    With t_1, t_2 the centres that two halves of the rows ask for and a the global one, the share that minimises the
    held-out error sum W_2 (t_2 - a - lambda (t_1 - a))^2 is sum W_2 (t_2 - a)(t_1 - a) / sum W_2 (t_1 - a)^2: where
    gradient steps of `eqn:adaptive_lambda` on held-out rows end, clipped to [0, 1]. Learned on the rows themselves it
    always ends at 1. A share lambda of half of the rows is 2 lambda / (1 + lambda) of all.
    """
    common = replace(common, form=None)
    if rows.n_rows == 0:
        return Personal(common)
    order = np.random.default_rng(seed).permutation(rows.n_rows)
    halves = [np.sort(order[::2]), np.sort(order[1::2])]
    found = Personal(common)
    with ExitStack() as stack:
        scans = [
            stack.enter_context(Passes(take(rows, half), common.n_clusters, workers)) for half in halves if len(half)
        ]
        for _ in range(passes):
            found = _step(common, [scan.statistics(found.parameters) for scan in scans], wanted, learn_weights)
    return found


def offset_share(rows: Rows, common: Parameters, labels: IntArray, seed: int = 0) -> float:
    """Share of a site's offset from the common centres that held-out rows confirm: how much the site differs.

    Parameters
    ----------
    rows : Rows
        The site's rows in the units of the common centres, without calibration.
    common : Parameters
        The global model.
    labels : array of shape (n,)
        Cluster of each row in the site's own model.
    seed : int
        Which rows are looked at, and which half of them is held out.
    """
    if rows.n_rows < LEAST_ROWS:
        return 0.0
    order = np.random.default_rng(seed).permutation(rows.n_rows)[:SEED_ROWS]
    away = joint_rows(take(rows, order), missing=np.nan) - np.hstack(common.centers)[labels[order]]
    halves = []
    for half in (away[::2], away[1::2]):
        seen = (~np.isnan(half)).sum(axis=0)
        mean = np.nansum(half, axis=0) / np.maximum(seen, 1)
        halves.append((mean, seen.astype(np.float64)))
    return _agreement(*halves)


def _step(common: Parameters, halves: Sequence[Statistics], wanted: Wanted, learn_weights: bool) -> Personal:
    """The site's model from the statistics of two halves of its rows at its model so far."""
    whole = reduce(add, halves)
    held_out = len(halves) == 2 and whole.rows >= LEAST_ROWS
    centers: FloatArray = np.hstack(common.centers)
    sums = [_joint(half, common) for half in (*halves, whole)]
    offsets = [_offset(part, centers) for part in sums]
    shift = wanted.shift
    if shift is None:
        shift = _agreement(offsets[0], offsets[1]) if held_out else 0.0
    moved = centers + shift * offsets[-1][0]
    gaps = [_gap(part, moved) for part in sums]
    share = wanted.centers
    if share is None and wanted.center_pull is None:
        share = _agreement(gaps[0], gaps[1]) if held_out else 0.0
    weight = gaps[-1][1]
    pull = 0.0 if wanted.center_pull is None else wanted.center_pull
    if share is not None:  # the pull that takes this share where the site has most of its weight
        typical = float(np.sum(weight**2) / max(float(weight.sum()), 1e-300))
        pull = typical * (1.0 / share - 1.0) if share > 0 else np.inf
    taken = np.divide(weight, weight + pull, out=np.zeros_like(weight), where=weight > 0)
    own = moved + taken * gaps[-1][0]
    if share is None:
        share = float(np.sum(weight * taken) / max(float(weight.sum()), 1e-300))
    rho, weights = 0.0, common.view_weights
    if learn_weights:
        rho = wanted.view_weights if wanted.view_weights is not None else _view_share(common, halves, held_out)
        weights = weights + rho * (_own_weights(common, whole) - weights)
    own_centers = split_joint(own, [part.shape[1] for part in common.centers])
    parameters = replace(common, centers=own_centers, view_weights=weights)
    return Personal(parameters, float(shift), float(share), float(rho))


Sums = tuple[FloatArray, FloatArray]


def _joint(statistics: Statistics, common: Parameters) -> Sums:
    """N and W of all views side by side, in rows of the site: multiplied by the view's share of J."""
    factors = common.view_factors / common.view_factors.max()
    numerators = [factor * part for factor, part in zip(factors, statistics.numerators, strict=True)]
    weights = [
        factor * np.broadcast_to(weight, part.shape)
        for factor, weight, part in zip(factors, statistics.weights, statistics.numerators, strict=True)
    ]
    return np.hstack(numerators), np.hstack(weights)


def _offset(sums: Sums, centers: FloatArray) -> Sums:
    """Where all clusters together ask to go, and with how much weight, per feature."""
    numerators, weights = sums
    total = weights.sum(axis=0)
    pulls = (numerators - weights * centers).sum(axis=0)
    return np.divide(pulls, total, out=np.zeros_like(pulls), where=total > 0), total


def _gap(sums: Sums, centers: FloatArray) -> Sums:
    """Where each cluster asks to go, and with how much weight."""
    numerators, weights = sums
    used = weights > LEAST_WEIGHT * weights.max(initial=0.0)
    gaps = np.divide(numerators, weights, out=np.array(centers), where=used) - centers
    return gaps, np.where(used, weights, 0.0)


def _agreement(first: Sums, second: Sums) -> float:
    """The share of what one half of the rows asks for that the other half confirms, for all rows; see `personalise`."""
    agreed: list[FloatArray] = []
    size = 0.0
    for (asked, _), (seen, weight) in ((first, second), (second, first)):
        agreed.append(weight * asked * seen)
        size += float(np.sum(weight * asked**2))
    if not size > 0:
        return 0.0
    both = (agreed[0] + agreed[1]).ravel()
    sure = float(both.sum()) - STANDARD_ERRORS * float(np.sqrt(np.sum(both**2)))
    share = min(max(sure / size, 0.0), 1.0)
    return 2.0 * share / (1.0 + share)


def _own_weights(common: Parameters, statistics: Statistics) -> FloatArray:
    seen = statistics.costs > 0
    weights = np.array(common.view_weights)
    if seen.any():
        own = learned_view_weights(statistics.costs[seen], common.view_shares[seen], common.view_exponent)
        weights[seen] = own * weights[seen].sum()
    return weights


def _view_share(common: Parameters, halves: Sequence[Statistics], held_out: bool) -> float:
    """The rho with the least cost of held-out rows, among tenths."""
    if not held_out:
        return 0.0
    shares = np.linspace(0.0, 1.0, 11)
    costs = np.zeros(len(shares))
    for train, test in ((0, 1), (1, 0)):
        own = _own_weights(common, halves[train])
        for place, share in enumerate(shares):
            weights = common.view_weights + share * (own - common.view_weights)
            factors = replace(common, view_weights=weights).view_factors
            costs[place] += float(factors @ halves[test].costs)
    return float(shares[int(np.argmin(costs))])
