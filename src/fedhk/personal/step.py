"""One step of a site's own model: how far the statistics of its rows move it from the common one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.joint import split_joint
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal.shares import Asked, agreement
from fedhk.personal.views import learned_view_share, own_view_weights, view_distance

if TYPE_CHECKING:
    from fedhk.tensors.low_rank import LowRank

# Fewest rows of which half can be held out; a smaller site has the global model.
LEAST_ROWS = 10

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
    view_pull : float or None
        eta of R_view: rows by which the global view weights pull the own ones; instead of `view_weights`.
    """

    shift: float | None = None
    spread: float | None = None
    sizes: float | None = None
    centers: float | None = None
    view_weights: float | None = None
    center_pull: float | None = None
    view_pull: float | None = None


@dataclass(frozen=True)
class Personal:
    """A site's own parameters, and how much of its own rows is in them.

    Parameters
    ----------
    parameters : Parameters
        The site's.
    rows : Rows
        The site's rows, with references on the site's own scale; and with its offset, where centres have a form.
    shift, spread, sizes, centers, view_weights : float
        Shares from 0, the global model, to 1, the site's own rows alone.
    parts : dict of str to float
        The same for each part of the low-rank form, where the centres have one that constrains them.
    center_distance, view_distance : float
        R_person and R_view: what a row at the common centres, apart from the offset, or at the common view weights
        costs more in the site's own model.
    """

    parameters: Parameters
    rows: Rows
    shift: float = 0.0
    spread: float = 0.0
    sizes: float = 0.0
    centers: float = 0.0
    view_weights: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    center_distance: float = 0.0
    view_distance: float = 0.0


def personal_step(
    rows: Rows, common: Parameters, halves: Sequence[Statistics], wanted: Wanted, *, learn_weights: bool, free: bool
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
    form: LowRank | None = None
    parts: dict[str, float] = {}
    if free or common.form is None:
        step, share = _free_step(gaps, wanted, held_out)
    else:
        form, parts = _form_step(common.form, gaps, wanted, held_out)
        step = np.hstack(form.centers()) - centers
        share = _share_of(gaps[-1], step)
    rho, weights = 0.0, common.view_weights
    if learn_weights:
        rho, weights = _view_weights(common, halves, whole, wanted, held_out)
    own = split_joint(moved + step, [part.shape[1] for part in common.centers])
    return Personal(
        replace(common, centers=own, view_weights=weights, form=form),
        rows,
        float(shift),
        centers=float(share),
        view_weights=float(rho),
        parts=parts,
        center_distance=common.heat_time * float(common.view_factors.max()) * float(np.sum(step**2)),
        view_distance=view_distance(common, weights, whole),
    )


def _free_step(gaps: Sequence[Asked], wanted: Wanted, held_out: bool) -> tuple[FloatArray, float]:
    """How far each centre goes on its own, and the share of what the rows ask for that this is."""
    share = wanted.centers
    if share is None and wanted.center_pull is None:
        share = agreement(gaps[0], gaps[1]) if held_out else 0.0
    gap, weight = gaps[-1]
    pull = 0.0 if wanted.center_pull is None else wanted.center_pull
    if share is not None:  # the pull that takes this share where the site has most of its weight
        typical = float(np.sum(weight**2) / max(float(weight.sum()), 1e-300))
        pull = typical * (1.0 / share - 1.0) if share > 0 else np.inf
    taken = np.divide(weight, weight + pull, out=np.zeros_like(weight), where=weight > 0)
    if share is None:
        share = float(np.sum(weight * taken) / max(float(weight.sum()), 1e-300))
    return taken * gap, share


def _form_step(
    common: LowRank, gaps: Sequence[Asked], wanted: Wanted, held_out: bool
) -> tuple[LowRank, dict[str, float]]:
    """The site's own low-rank form, and the share of each of its parts."""
    from fedhk.personal.factors import PARTS, own_form  # noqa: PLC0415 - tensor algebra takes a second to import

    found = own_form(common, gaps[:-1] if held_out else (), gaps[-1], wanted.centers, wanted.center_pull)
    return found.form, dict(zip(PARTS, found.shares, strict=True))


def _share_of(gap: Asked, step: FloatArray) -> float:
    """How much of what the rows ask for a step is, from 0 to 1."""
    asked, weight = gap
    size = float(np.sum(weight * asked**2))
    return min(max(float(np.sum(weight * asked * step)) / size, 0.0), 1.0) if size > 0 else 0.0


def _view_weights(
    common: Parameters, halves: Sequence[Statistics], whole: Statistics, wanted: Wanted, held_out: bool
) -> tuple[float, FloatArray]:
    """The site's own view weights, and rho, their share in the result."""
    before = common.view_weights
    away = own_view_weights(common, whole) - before
    if wanted.view_pull is None:
        rho = wanted.view_weights
        if rho is None:
            rho = learned_view_share(common, halves) if held_out else 0.0
        return rho, before + rho * away
    pulled = own_view_weights(common, whole, wanted.view_pull)
    return _share_of((away, np.ones_like(away)), pulled - before), pulled


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
