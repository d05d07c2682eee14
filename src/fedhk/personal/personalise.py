"""A site's own model: the global centres, moved as far as the site's own rows justify.

The site's centres are s (A_k + b + d_k): the global ones on the site's own scale, with an offset that all clusters of
the site share (another sensor, another person), and what is left per cluster; and its clusters are as frequent as they
are there. How much of each is taken is learned on held-out rows: half of the rows say where the centres should go, the
other half how much of that is worth.

Where the common centres have a low-rank form, what is left per cluster has it too: each part of the form is moved, with
a share of its own (`personal_factors`), and the offset goes into how the site's rows are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.joint import SAMPLE_ROWS, joint_rows, take
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal.shares import agreement
from fedhk.personal.site_spread import known_mean, learned_spread
from fedhk.personal.step import LEAST_ROWS, Personal, Wanted, personal_step

# Passes over the rows; memberships follow the centres, so that one is not enough.
PASSES = 10

# A cluster that a site does not have is still this much as frequent as everywhere: it may come.
LEAST_SIZE = 1e-2


def personalise(
    rows: Rows,
    common: Parameters,
    wanted: Wanted,
    cluster_summary: ClusterSummary | None = None,
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
    cluster_summary : ClusterSummary or None
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
    free = common.form is None or common.form.free
    if rows.n_rows == 0:
        return Personal(common, rows)
    spread = 0.0
    if cluster_summary is not None and wanted.spread is None and rows.n_rows >= LEAST_ROWS and is_scaled(rows):
        rows, spread = learned_spread(rows, common, cluster_summary, seed)
    shares = None if cluster_summary is None else cluster_summary.shares
    order = np.random.default_rng(seed).permutation(rows.n_rows)
    halves = [np.sort(order[::2]), np.sort(order[1::2])]
    found = Personal(common, rows)
    with ExitStack() as stack:
        scans = [
            stack.enter_context(Passes(take(rows, half), common.n_clusters, workers)) for half in halves if len(half)
        ]
        for _ in range(passes):
            halves_sums = [scan.statistics(found.parameters) for scan in scans]
            stepped = personal_step(rows, common, halves_sums, wanted, learn_weights=learn_weights, free=free)
            found = _with_sizes(replace(stepped, spread=spread), found, halves_sums, wanted, shares)
    return _with_form(found, common, free=free)


def _with_form(found: Personal, common: Parameters, *, free: bool) -> Personal:
    """The model with centres of low rank, where the common ones are.

    The offset of a site is the same for all clusters and has no place in the form: rows are read without it instead.
    Heat-kernel coefficients would change with that; where they are not uniform, centres with an offset have no form.
    """
    own, rows = found.parameters, found.rows
    if common.form is None:
        return found
    if free:  # any centres have it
        return replace(found, parameters=replace(own, form=common.form.refitted(own.centers)))
    if own.form is None:
        return found
    inner = own.form.centers()
    offsets = [(seen - formed)[0] for seen, formed in zip(own.centers, inner, strict=True)]
    if found.shift > 0 and any(reference.heat_coef != "uniform" for reference in rows.references):
        return replace(found, parameters=replace(own, form=None))
    pairs = zip(rows.references, offsets, strict=True)
    references = tuple(reference.moved(offset, np.ones_like(offset)) for reference, offset in pairs)
    return replace(found, parameters=replace(own, centers=inner), rows=replace(rows, references=references))


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
    order = np.random.default_rng(seed).permutation(rows.n_rows)[:SAMPLE_ROWS]
    away = joint_rows(take(rows, order), missing=np.nan) - np.hstack(common.centers)[labels[order]]
    return agreement(known_mean(away[::2]), known_mean(away[1::2]))
