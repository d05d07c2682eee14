"""A site's own low-rank centres: each part of the common form, moved as far as held-out rows confirm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from fedhk._typing import FloatArray
from fedhk.model.parameters import Parameters
from fedhk.model.rows import split_joint
from fedhk.model.statistics import Statistics
from fedhk.personal.calibration import move_rows
from fedhk.personal.centers import Centers
from fedhk.personal.component import OwnModel, Share, Shares
from fedhk.personal.shares import PRIOR_ROWS, Move, confirm_share, measure_share, share_of_all_rows
from fedhk.tensors.factors import Factors
from fedhk.tensors.low_rank import LowRank, LowRankParameters
from fedhk.tensors.solves import polar_factor
from fedhk.tensors.tucker import TuckerFactors

# What a form is made of; PARAFAC2's Q, which its views have in common, is its core, and its B_h are feature factors.
PARTS = ("core", "cluster_factor", "feature_factors", "view_factor")

# Sweeps in which a site's own factors leave the common ones, and steps in which shares are sought. Both start near
# where they end, and what more of them would gain is less than what held-out rows confirm.
LOCAL_SWEEPS, SHARE_STEPS = 5, 20

# The share of a part is lowered by so many standard errors. Fewer than the share of free centres, because a part is
# judged beside all other parts at their best, which leaves less to chance.
PART_STANDARD_ERRORS = 1.5


def choose_centers(common: Parameters, share: Share, pull: float) -> Centers:
    """Choose the component for centres of the form that the common ones have."""
    if not isinstance(common, LowRankParameters):
        return Centers(share=share, pull=pull)
    kind = FullRankCenters if common.form.free else LowRankCenters
    return kind(share=share, pull=pull, form=common.form)


@dataclass(frozen=True, kw_only=True)
class FullRankCenters(Centers):
    """Centres whose form constrains nothing: they move freely, and the form is fitted to them at the end."""

    form: LowRank  # of the common centres

    def finish(self, own: OwnModel) -> OwnModel:
        own = super().finish(own)
        form = self.form.refit(own.parameters.centers)
        return replace(own, parameters=LowRankParameters.of(own.parameters, form))


@dataclass(frozen=True, kw_only=True)
class LowRankCenters(Centers):
    """Centres that keep the form of the common ones: each part of the form moves, with a share of its own."""

    form: LowRank  # of the common centres

    @property
    def parts(self) -> tuple[str, ...]:
        return PARTS

    def confirm(self, own: OwnModel, first: Move, second: Move) -> Shares:  # noqa: ARG002
        return dict(zip(PARTS, learn_part_shares(self.form, first, second).tolist(), strict=True))

    def apply(self, own: OwnModel, part: Statistics, shares: Mapping[str, float]) -> OwnModel:
        asked = self.learn(own, part)
        pull = PRIOR_ROWS if isinstance(self.share, str) else self.pull
        form = blend_form(self.form, asked, np.array([shares[name] for name in PARTS]), pull)
        centers = form.centers()
        step = np.hstack(centers) - np.hstack(own.common.centers)
        return replace(
            own,
            parameters=LowRankParameters.of(replace(own.parameters.free(), centers=centers), form),
            step=step,
            shares=own.shares | {self.name: measure_share(asked, step)},
        )

    def finish(self, own: OwnModel) -> OwnModel:
        """Read rows without the offset: it is the same for all clusters and has no place in the form.

        Heat-kernel coefficients would change with that; where they are not uniform, centres with an offset have no
        form.
        """
        uniform = all(reference.heat_coef == "uniform" for reference in own.rows.references)
        if not uniform and own.offset.any():
            return super().finish(own)
        return replace(own, rows=move_rows(own.rows, own.offset, np.ones_like(own.offset)))


def blend_form(common: LowRank, asked: Move, shares: FloatArray, pull: float) -> LowRank:
    """Give the common form with shares of the `PARTS` that a site's rows ask for; gamma (`pull`) rows pull back.

    Its error is the share of the weighted squared size of the centres that the rows ask for, which the form loses.
    """
    if not shares.any():
        return common
    onto = common.decomposition.canonical(common.factors)
    found = blend_factors(onto, _fit_factors(common, onto, asked, pull), shares)
    step, weight = asked
    target = np.hstack(common.centers()) + step
    whole = float(np.sum(weight * target**2))
    lost = float(np.sum(weight * (target - np.hstack(found.centers())) ** 2))
    return replace(common, factors=found, error=lost / whole if whole > 0 else 0.0)


def learn_part_shares(common: LowRank, first: Move, second: Move) -> FloatArray:
    """Find one share for each part, for all rows: those with the least error of the rows that were held out.

    Notes
    -----
    `eqn:adaptive_lambda` for each part, on held-out rows: bounded quasi-Newton steps on the weighted squared error of
    the centres that the blended parts make. What each part adds to the others is then taken as far as it is surely
    more than chance, as `agreement` does for centres.
    """
    centers: FloatArray = np.hstack(common.centers())
    onto = common.decomposition.canonical(common.factors)
    locals_ = [_fit_factors(common, onto, half, PRIOR_ROWS) for half in (first, second)]
    tests = ((locals_[0], second), (locals_[1], first))

    def move(shares: FloatArray) -> list[FloatArray]:
        return [np.hstack(blend_factors(onto, own, shares).centers()) - centers for own, _ in tests]

    def measure(shares: FloatArray) -> float:
        pairs = zip(move(shares), tests, strict=True)
        return float(sum(np.sum(weight * (asked - step) ** 2) for step, (_, (asked, weight)) in pairs))

    nothing = np.zeros(len(PARTS))
    before = measure(nothing)
    if not before > 0:
        return nothing
    best_shares = minimize(
        lambda shares: measure(shares) / before,
        np.full(len(PARTS), 0.5),
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * len(PARTS),
        options={"maxiter": SHARE_STEPS},
    ).x
    best, sure = move(best_shares), np.zeros(len(PARTS))
    for part in range(len(PARTS)):
        others = move(np.where(np.arange(len(PARTS)) == part, 0.0, best_shares))
        pairs = zip(best, others, tests, strict=True)
        tested = [(a - b, asked - b, weight) for a, b, (_, (asked, weight)) in pairs]
        sure[part] = best_shares[part] * confirm_share(tested, PART_STANDARD_ERRORS)
    return np.array([share_of_all_rows(share) for share in sure]) if measure(sure) < before else nothing


def _fit_factors(common: LowRank, onto: Factors, asked: Move, pull: float) -> Factors:
    """Fit factors to the rows, in a few sweeps from the common ones, in the gauge of `onto`."""
    step, weight = asked
    widths = [len(basis) for basis in common.bases]
    target = np.hstack(common.centers()) + np.divide(
        weight * step, weight + pull, out=np.zeros_like(step), where=weight > 0
    )
    targets, weights = split_joint(target, widths), split_joint(weight + pull, widths)
    form = common.decomposition
    found: Factors = form.step(common.factors, targets, weights, sweeps=LOCAL_SWEEPS)
    aligned: Factors = form.align(form.canonical(found), onto)
    return aligned


def blend_factors(onto: Factors, local: Factors, shares: FloatArray) -> Factors:
    """Blend factors with a share of the local ones in each part (`eqn:personal_core` and the three that follow it)."""
    by_part = dict(zip(PARTS, shares.tolist(), strict=True))
    names = ("core", "cluster_factor") if isinstance(onto, TuckerFactors) else ("cluster_factor", "core")
    parts = zip((*names, "view_factor"), onto.core_arrays, local.core_arrays, strict=True)
    blended = onto.with_arrays(core=[a + by_part[name] * (b - a) for name, a, b in parts])
    share = by_part["feature_factors"]
    if share == 0:
        return blended
    pairs = zip(onto.basis_arrays, local.basis_arrays, strict=True)
    return blended.with_arrays(basis=[polar_factor(a + share * (b - a)) for a, b in pairs])
