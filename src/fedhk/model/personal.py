"""A site's own model: the global centres, moved as far as the site's own rows justify.

The site's centres are s (A_k + b + d_k): the global ones on the site's own scale, with an offset that all clusters of
the site share (another sensor, another person), and what is left per cluster; and its clusters are as frequent as they
are there. How much of each is taken is learned on held-out rows: half of the rows say where the centres should go, the
other half how much of that is worth.
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
from fedhk.model.makeup import Makeup
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.model.seeding import SEED_ROWS, joint_rows, take
from fedhk.model.shares import Asked, agreement
from fedhk.model.site_spread import learned_spread
from fedhk.model.statistics import Statistics
from fedhk.model.updates import learned_view_weights

# Fewest rows of which half can be held out; a smaller site has the global model.
LEAST_ROWS = 10

# Passes over the rows; memberships follow the centres, so that one is not enough.
PASSES = 10

# A cluster that a site does not have is still this much as frequent as everywhere: it may come.
LEAST_SIZE = 1e-2

# Weight below this share of the view's is no evidence of where a centre is.
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class Wanted:
    """What a site's model may take from its own rows; None is learned on held-out rows.

    Parameters
    ----------
    shift : float or None
        Share of the offset that all clusters have in common.
    spread : float or None
        Share of the site's own scale of each feature; a number but None is taken for 0.
    sizes : float or None
        Share of how frequent clusters are at the site.
    centers : float or None
        Share of what is left per cluster: lambda of `eqn:adaptive_lambda`.
    view_weights : float or None
        rho: share of the site's own view weights; used where view weights are learned.
    center_pull : float or None
        gamma of R_person: rows by which the global centre pulls each own one; instead of `centers`.
    """

    shift: float | None = None
    spread: float | None = None
    sizes: float | None = None
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
    rows : Rows
        The site's rows, with references on the site's own scale.
    shift, spread, sizes, centers, view_weights : float
        Shares from 0, the global model, to 1, the site's own rows alone.
    """

    parameters: Parameters
    rows: Rows
    shift: float = 0.0
    spread: float = 0.0
    sizes: float = 0.0
    centers: float = 0.0
    view_weights: float = 0.0


def personalise(
    rows: Rows,
    common: Parameters,
    wanted: Wanted,
    makeup: Makeup | None = None,
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
    makeup : Makeup or None
        How large clusters are and how far rows spread in them, over all sites; without it the site's own scale and
        cluster sizes are not looked at.
    learn_weights : bool
        Whether view weights take part.
    seed : int
        Which rows are held out.
    passes : int
        Passes over the rows.
    workers : int
        Threads.
    """
    common = replace(common, form=None)
    if rows.n_rows == 0:
        return Personal(common, rows)
    spread = 0.0
    if makeup is not None and wanted.spread is None and rows.n_rows >= LEAST_ROWS and is_scaled(rows):
        rows, spread = learned_spread(rows, common, makeup, seed)
    shares = None if makeup is None else makeup.shares
    order = np.random.default_rng(seed).permutation(rows.n_rows)
    halves = [np.sort(order[::2]), np.sort(order[1::2])]
    found = Personal(common, rows)
    with ExitStack() as stack:
        scans = [
            stack.enter_context(Passes(take(rows, half), common.n_clusters, workers)) for half in halves if len(half)
        ]
        for _ in range(passes):
            halves_sums = [scan.statistics(found.parameters) for scan in scans]
            stepped = _step(rows, common, halves_sums, wanted, learn_weights)
            found = _with_sizes(replace(stepped, spread=spread), found, halves_sums, wanted, shares)
    return found


def is_scaled(rows: Rows) -> bool:
    """Whether features have scales of their own: not where rows are divided by their length."""
    return not any(reference.unit_rows for reference in rows.references)


def _with_sizes(
    found: Personal, before: Personal, halves: Sequence[Statistics], wanted: Wanted, shares: FloatArray | None
) -> Personal:
    """The model with clusters as frequent as they are at the site, as far as two halves of its rows agree."""
    if shares is None or wanted.sizes == 0.0:
        return found
    factors = before.parameters.cluster_factors
    counts = [half.masses if factors is None else half.masses / factors for half in (*halves, reduce(add, halves))]
    ratios = [_ratios(count, shares) for count in counts]
    taken = wanted.sizes
    if taken is None:
        held_out = len(halves) == 2 and sum(half.rows for half in halves) >= LEAST_ROWS
        taken = agreement((ratios[0], shares), (ratios[1], shares)) if held_out else 0.0
    sizes = np.maximum(1.0 + taken * ratios[-1], LEAST_SIZE) if taken > 0 else None
    return replace(found, parameters=replace(found.parameters, sizes=sizes), sizes=float(taken))


def _ratios(counts: FloatArray, shares: FloatArray) -> FloatArray:
    """How much more frequent each cluster is than everywhere: 0 is alike."""
    own = counts / max(float(counts.sum()), 1e-300)
    return np.asarray(np.divide(own, shares, out=np.ones_like(own), where=shares > 0) - 1.0)


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
    return agreement(*halves)


def _step(
    rows: Rows, common: Parameters, halves: Sequence[Statistics], wanted: Wanted, learn_weights: bool
) -> Personal:
    """The site's model from the statistics of two halves of its rows at its model so far."""
    whole = reduce(add, halves)
    held_out = len(halves) == 2 and whole.rows >= LEAST_ROWS
    centers: FloatArray = np.hstack(common.centers)
    sums = [_joint(half, common) for half in (*halves, whole)]
    offsets = [_offset(part, centers) for part in sums]
    shift = wanted.shift
    if shift is None:
        shift = agreement(offsets[0], offsets[1]) if held_out else 0.0
    moved = centers + shift * offsets[-1][0]
    gaps = [_gap(part, moved) for part in sums]
    share = wanted.centers
    if share is None and wanted.center_pull is None:
        share = agreement(gaps[0], gaps[1]) if held_out else 0.0
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
    return Personal(parameters, rows, float(shift), centers=float(share), view_weights=float(rho))


def _joint(statistics: Statistics, common: Parameters) -> Asked:
    """N and W of all views side by side, in rows of the site: multiplied by the view's share of J."""
    factors = common.view_factors / common.view_factors.max()
    numerators = [factor * part for factor, part in zip(factors, statistics.numerators, strict=True)]
    weights = [
        factor * np.broadcast_to(weight, part.shape)
        for factor, weight, part in zip(factors, statistics.weights, statistics.numerators, strict=True)
    ]
    return np.hstack(numerators), np.hstack(weights)


def _offset(sums: Asked, centers: FloatArray) -> Asked:
    """Where all clusters together ask to go, and with how much weight, per feature."""
    numerators, weights = sums
    total = weights.sum(axis=0)
    pulls = (numerators - weights * centers).sum(axis=0)
    return np.divide(pulls, total, out=np.zeros_like(pulls), where=total > 0), total


def _gap(sums: Asked, centers: FloatArray) -> Asked:
    """Where each cluster asks to go, and with how much weight."""
    numerators, weights = sums
    used = weights > LEAST_WEIGHT * weights.max(initial=0.0)
    gaps = np.divide(numerators, weights, out=np.array(centers), where=used) - centers
    return gaps, np.where(used, weights, 0.0)


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
