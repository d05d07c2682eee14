"""A site's own low-rank centres: each part of the common form, moved as far as held-out rows confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from fedhk._typing import FloatArray
from fedhk.model.joint import split_joint
from fedhk.personal.shares import Asked, confirmed, of_all_rows
from fedhk.tensors.low_rank import LowRank
from fedhk.tensors.solves import polar_factor

# What a form is made of; PARAFAC2's Q, which its views have in common, is its core, and its B_h are feature factors.
PARTS = ("core", "cluster_factor", "feature_factors", "view_factor")

# Sweeps in which a site's own factors leave the common ones, and steps in which shares are sought.
LOCAL_SWEEPS, SHARE_STEPS = 5, 20

# Rows by which a common centre pulls each own one where shares are learned: a cluster that the site hardly has stays.
PULL_ROWS = 5.0

# How sure a part's move must be: more than that of free centres, because several parts are tried.
STANDARD_ERRORS = 1.5


@dataclass(frozen=True)
class OwnForm:
    """A site's own form.

    Parameters
    ----------
    form : LowRank
        In the gauge of the common form.
    shares : tuple of float
        How much of each of `PARTS` is the site's own, from 0 to 1.
    """

    form: LowRank
    shares: tuple[float, ...]


def own_form(
    common: LowRank, halves: Sequence[Asked], whole: Asked, share: float | None, pull: float | None
) -> OwnForm:
    """A site's own form from where its rows ask the common centres to go.

    Parameters
    ----------
    common : LowRank
        The form of the common centres.
    halves : sequence of Asked
        Moves of the centres, shape (c, d), that two halves of the rows ask for, with weights; empty where the site has
        too few rows to hold out any, and then nothing is learned.
    whole : Asked
        The same of all rows.
    share : float or None
        Share of every part; None learns one for each.
    pull : float or None
        gamma: rows by which the common centres pull, instead of shares.
    """
    shares: FloatArray = np.ones(len(PARTS)) if pull is not None else np.full(len(PARTS), share or 0.0)
    if pull is None and share is None and halves:
        shares = _learned(common, halves)
    rows = pull if pull is not None else PULL_ROWS if share is None else 0.0
    if not shares.any():
        return OwnForm(common, tuple(shares.tolist()))
    onto = common.decomposition.canonical(common.factors)
    found = _blended(common, onto, _local(common, onto, whole, rows), shares)
    form = replace(common, factors=found)
    return OwnForm(replace(form, error=_error(common, form, whole)), tuple(shares.tolist()))


def _local(common: LowRank, onto: Any, asked: Asked, pull: float) -> Any:
    """Factors that follow the rows, from a few sweeps that begin at the common ones, in the gauge of `onto`."""
    move, weight = asked
    widths = [len(basis) for basis in common.bases]
    target = np.hstack(common.centers()) + np.divide(
        weight * move, weight + pull, out=np.zeros_like(move), where=weight > 0
    )
    targets, weights = split_joint(target, widths), split_joint(weight + pull, widths)
    form = common.decomposition
    found = form.step(common.factors, targets, weights, sweeps=LOCAL_SWEEPS)
    return form.align(form.canonical(found), onto)


def _blended(common: LowRank, onto: Any, local: Any, shares: FloatArray) -> Any:
    """Factors with a share of the local ones in each part (`eqn:personal_core` and the three that follow it)."""
    form, by_part = common.decomposition, dict(zip(PARTS, shares.tolist(), strict=True))
    names = ("core", "cluster_factor", "view_factor")
    if not hasattr(onto, "core"):
        names = ("cluster_factor", "core", "view_factor")
    core = [a + by_part[name] * (b - a) for name, a, b in zip(names, form.core(onto), form.core(local), strict=True)]
    basis, share = form.basis(onto), by_part["feature_factors"]
    if share > 0:
        pairs = zip(basis, form.basis(local), strict=True)
        basis = tuple(polar_factor(a + share * (b - a)) for a, b in pairs)
    return form.assemble(basis, core, [len(part) for part in form.view_bases(onto)])


def _learned(common: LowRank, halves: Sequence[Asked]) -> FloatArray:
    """One share for each part, for all rows: those with the least error of the rows that were held out.

    Notes
    -----
    `eqn:adaptive_lambda` for each part, on held-out rows: bounded quasi-Newton steps on the weighted squared error of
    the centres that the blended parts make. What each part adds to the others is then taken as far as it is surely
    more than chance, as `agreement` does for centres.
    """
    form, centers = common.decomposition, np.hstack(common.centers())
    onto = form.canonical(common.factors)
    first, second = (_local(common, onto, half, PULL_ROWS) for half in halves)
    tests = ((first, halves[1]), (second, halves[0]))

    def moves(shares: FloatArray) -> list[FloatArray]:
        return [np.hstack(form.reconstruct(_blended(common, onto, own, shares))) - centers for own, _ in tests]

    def error(shares: FloatArray) -> float:
        pairs = zip(moves(shares), tests, strict=True)
        return float(sum(np.sum(weight * (asked - move) ** 2) for move, (_, (asked, weight)) in pairs))

    nothing = np.zeros(len(PARTS))
    before = error(nothing)
    if not before > 0:
        return nothing
    found = minimize(
        lambda shares: error(shares) / before,
        np.full(len(PARTS), 0.5),
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * len(PARTS),
        options={"maxiter": SHARE_STEPS},
    ).x
    best, sure = moves(found), np.zeros(len(PARTS))
    for part in range(len(PARTS)):
        others = moves(np.where(np.arange(len(PARTS)) == part, 0.0, found))
        pairs = zip(best, others, tests, strict=True)
        tested = [(a - b, asked - b, weight) for a, b, (_, (asked, weight)) in pairs]
        sure[part] = found[part] * confirmed(tested, STANDARD_ERRORS)
    return np.array([of_all_rows(share) for share in sure]) if error(sure) < before else nothing


def _error(common: LowRank, form: LowRank, asked: Asked) -> float:
    """Share of the weighted squared size of the centres that the rows ask for, which the form loses."""
    move, weight = asked
    target = np.hstack(common.centers()) + move
    whole = float(np.sum(weight * target**2))
    return float(np.sum(weight * (target - np.hstack(form.centers())) ** 2)) / whole if whole > 0 else 0.0
