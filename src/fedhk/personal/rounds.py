"""Own models in the rounds of Algorithm 4: each round, a site blends models, makes passes and learns shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows, take
from fedhk.model.statistics import Statistics
from fedhk.personal.component import Share, Shares
from fedhk.personal.factors import PARTS, blend_factors
from fedhk.personal.outcome import SiteTerms
from fedhk.personal.shares import LEAST_ROWS
from fedhk.personal.view_weights import TRIED_SHARES, fit_view_weights, measure_view_distance
from fedhk.tensors.factors import Factors
from fedhk.tensors.low_rank import LowRankParameters

CENTERS, VIEWS = "centers", "view_weights"

# Where learned shares begin, as in Algorithm 4, and how far one goes in a round where held-out rows cost less there.
FIRST_SHARE, SHARE_STEP = 0.5, 0.1

# How far shares are moved to find how the centres of a form follow them; the error is of the order of its square.
NUDGE = 1e-5


@dataclass(frozen=True)
class OwnRounds:
    """Options for own models in the rounds; `fedhk.protocols.Personalized` explains the fields."""

    passes: int
    shares: dict[str, Share | dict[str, Share]]  # by component, or by component and site
    step: float | None
    held_out: float
    center_pull: float
    tensor_pull: float
    view_pull: float

    def share_at(self, site: str, component: str) -> Share:
        """Return the share of a component at a site; "auto" if it is learned."""
        given = self.shares.get(component, "auto")
        return given.get(site, "auto") if isinstance(given, Mapping) else given


@dataclass(frozen=True, eq=False)
class KeptModel:
    """What a site keeps of one round; it never leaves the site."""

    round: int
    common: Parameters  # the global model of the round
    own: Parameters  # the site's own: the global one and the local one, blended
    local: Parameters  # after the passes of the round, which begin at the own one
    shares: Shares  # of the local model in the own one, by component


@dataclass(frozen=True, eq=False)
class SiteRound:
    """The result of one round at a site: what it keeps, and what it may send."""

    kept: KeptModel
    statistics: Statistics  # of all its rows at the local model
    terms: SiteTerms  # of its own model


def _components_of(common: Parameters, *, learn_weights: bool) -> tuple[str, ...]:
    """List the parts of a model that have a share of their own."""
    parts = PARTS if isinstance(common, LowRankParameters) else (CENTERS,)
    return (*parts, VIEWS) if learn_weights else parts


def run_site_round(
    rows: Rows,
    common: Parameters,
    before: Sequence[KeptModel],
    options: OwnRounds,
    *,
    site: str,
    learn_weights: bool,
    workers: int = 1,
) -> SiteRound:
    """Blend, then pass: phases 5 and 3 of Algorithm 4 at one site.

    The site blends its local model of the round before with the new global one (`eqn:personal_core` to
    `eqn:personal_views`), with shares that are given or learned on rows that no local model has seen. From there it
    passes over the other rows.

    Parameters
    ----------
    rows : Rows
        Of the site.
    common : Parameters
        The new global model.
    before : sequence of KeptModel
        Of earlier rounds, the last one last; empty in the first.
    options : OwnRounds
        How.
    site : str
        Its name, by which shares may be given.
    learn_weights : bool
        Whether view weights are learned.
    workers : int
        Threads.
    """
    names = _components_of(common, learn_weights=learn_weights)
    given = {name: options.share_at(site, name) for name in names}
    learned = tuple(name for name, share in given.items() if isinstance(share, str))
    seen, held_out = _split(rows, options.held_out if learned else 0.0)
    shares = {name: FIRST_SHARE if isinstance(share, str) else share for name, share in given.items()}
    local, last = common, before[-1].round if before else 0
    if before:
        local = before[-1].local
        shares |= {name: before[-1].shares.get(name, FIRST_SHARE) for name in learned}
        with Passes(held_out, common.n_clusters, workers) as scan:
            learn = _step_shares if options.step is None else partial(_descend_shares, step=options.step)
            shares = learn(scan, common, local, shares, learned)
    own = blend_models(common, local, shares)
    with Passes(seen, common.n_clusters, workers) as scan, Passes(held_out, common.n_clusters, workers) as rest:
        scans = [scan] if seen is held_out else [scan, rest]
        at_own = [part.statistics(own) for part in scans]
        local = own
        for number in range(options.passes):
            found = at_own[0] if number == 0 else scan.statistics(local)
            local = _pass_once(local, found, common, options, learn_weights=learn_weights)
        statistics = reduce(add, (part.statistics(local) for part in scans))
    terms = measure_terms(common, own, reduce(add, at_own))
    return SiteRound(KeptModel(last + 1, common, own, local, shares), statistics, terms)


def blend_models(common: Parameters, local: Parameters, shares: Mapping[str, float]) -> Parameters:
    """Mix the global model with shares of a local one, component by component; the gauge is that of the global one."""
    blended = common
    if isinstance(common, LowRankParameters) and isinstance(local, LowRankParameters):
        onto, own = _in_one_gauge(common, local)
        factors = blend_factors(onto, own, np.array([shares[name] for name in PARTS]))
        form = replace(common.form, factors=factors)
        blended = LowRankParameters.of(replace(common.free(), centers=factors.centers()), form)
    else:
        pairs = zip(common.centers, local.centers, strict=True)
        blended = replace(common, centers=tuple(a + shares[CENTERS] * (b - a) for a, b in pairs))
    rho = shares.get(VIEWS, 0.0)
    weights = common.view_weights + rho * (local.view_weights - common.view_weights)
    return replace(blended, view_weights=weights)


def measure_terms(common: Parameters, own: Parameters, statistics: Statistics) -> SiteTerms:
    """Measure what a site adds to `eqn:fed_global_obj_personalization` and `eqn:tensor_fed_global_obj`.

    R_person and R_tensor are in units of the objective, as gamma counts rows: what a row at the common centres, or at
    the common parts of the form, costs more in the site's own model.
    """
    unit = common.heat_time * float(common.view_factors.max())
    pairs = zip(common.centers, own.centers, strict=True)
    centers = unit * sum(float(np.sum((a - b) ** 2)) for a, b in pairs)
    views = measure_view_distance(common, own.view_weights, statistics)
    return SiteTerms(
        statistics.objective, round(statistics.rows), centers, views, unit * _measure_tensor_distance(common, own)
    )


def _measure_tensor_distance(common: Parameters, own: Parameters) -> float:
    """R_tensor: squared distances of core and factors to the global ones, in one gauge; 0 without a form."""
    if not (isinstance(common, LowRankParameters) and isinstance(own, LowRankParameters)):
        return 0.0
    onto, turned = _in_one_gauge(common, own)
    arrays = [(*factors.core_arrays, *factors.basis_arrays) for factors in (onto, turned)]
    return sum(float(np.sum((a - b) ** 2)) for a, b in zip(*arrays, strict=True))


def _in_one_gauge(common: LowRankParameters, local: LowRankParameters) -> tuple[Factors, Factors]:
    form = common.form.decomposition
    onto: Factors = form.canonical(common.form.factors)
    return onto, form.align(form.canonical(local.form.factors), onto)


def _split(rows: Rows, held_out: float) -> tuple[Rows, Rows]:
    """Split rows into those for passes and those for shares; both are all rows if none, or too few, are held out."""
    count = round(held_out * rows.n_rows)
    if count == 0 or rows.n_rows < LEAST_ROWS:
        return rows, rows
    order = np.random.default_rng(0).permutation(rows.n_rows)
    return take(rows, np.sort(order[count:])), take(rows, np.sort(order[:count]))


def _step_shares(scan: Passes, common: Parameters, local: Parameters, shares: Shares, learned: Sequence[str]) -> Shares:
    """Move each learned share by a step up or down, if the rows cost less there; one after the other."""

    def measure(name: str, share: float) -> tuple[float, float]:
        tried = shares | {name: float(np.clip(share, 0.0, 1.0))}
        return scan.statistics(blend_models(common, local, tried)).objective, tried[name]

    for name in learned:
        tried = [measure(name, shares[name] + move) for move in (-SHARE_STEP, 0.0, SHARE_STEP)]
        shares = shares | {name: min(tried)[1]}
    return shares


def _descend_shares(
    scan: Passes, common: Parameters, local: Parameters, shares: Shares, learned: Sequence[str], *, step: float
) -> Shares:
    """Take the clipped gradient step of `eqn:adaptive_lambda` on each learned share of centres; rho has none there."""
    blended = blend_models(common, local, shares)
    found = scan.statistics(blended)
    slopes = [
        2.0 * common.heat_time * factor * (weight * a - numerator)
        for factor, weight, a, numerator in zip(
            blended.view_factors, found.weights, blended.centers, found.numerators, strict=True
        )
    ]

    def slope(name: str) -> float:
        ends = [blend_models(common, local, shares | {name: shares[name] + move}) for move in (-NUDGE, NUDGE)]
        moves = zip(*(end.centers for end in ends), strict=True)
        return sum(float(np.sum(g * (b - a))) for g, (a, b) in zip(slopes, moves, strict=True)) / (2.0 * NUDGE)

    moved = {name: float(np.clip(shares[name] - step * slope(name), 0.0, 1.0)) for name in learned if name != VIEWS}
    return shares | moved


def _pass_once(
    local: Parameters, statistics: Statistics, common: Parameters, options: OwnRounds, *, learn_weights: bool
) -> Parameters:
    """Descend one step in J + gamma R_person (or R_tensor) + eta R_view, from the statistics at `local`."""
    weights = local.view_weights
    if learn_weights:
        weights = improve(local.free(), statistics, learn_weights=True).view_weights
        if options.view_pull > 0:
            weights = fit_view_weights(common, statistics, options.view_pull)
    moved = replace(local, view_weights=weights)
    factors = moved.view_factors
    if options.center_pull > 0:
        pulls = options.center_pull * common.view_factors.max() / np.maximum(factors, 1e-300)
        parts = zip(statistics.numerators, statistics.weights, common.centers, pulls, strict=True)
        pulled = [(n + pull * a, w + pull) for n, w, a, pull in parts]
        statistics = replace(statistics, numerators=tuple(n for n, _ in pulled), weights=tuple(w for _, w in pulled))
    moved = moved.move_centers(statistics)
    if options.tensor_pull > 0 and isinstance(moved, LowRankParameters):
        moved = _pull_form(moved, statistics, common, options.tensor_pull)
    return moved


def _pull_form(local: LowRankParameters, statistics: Statistics, common: Parameters, pull: float) -> LowRankParameters:
    """Go back towards the global factors as far as that lowers the majoriser of J with gamma R_tensor."""
    unit = common.heat_time * common.view_factors.max()

    def measure(tried: Parameters) -> float:
        parts = zip(tried.view_factors, statistics.numerators, statistics.weights, tried.centers, strict=True)
        rows = sum(float(factor * np.sum(w * a**2 - 2.0 * a * n)) for factor, n, w, a in parts)
        return common.heat_time * rows + float(pull * unit) * _measure_tensor_distance(common, tried)

    shares = local.view_weights
    tried = [blend_models(common, local, dict.fromkeys(PARTS, float(share))) for share in TRIED_SHARES[:-1]]
    candidates = [local, *(replace(candidate, view_weights=shares) for candidate in tried)]
    best = min(candidates, key=measure)
    return best if isinstance(best, LowRankParameters) else local


def same_model(first: Parameters, second: Parameters) -> bool:
    """Tell whether two models have exactly the same centres and view weights."""
    arrays: list[tuple[FloatArray, ...]] = [(*m.centers, m.view_weights) for m in (first, second)]
    return all(a.shape == b.shape and bool(np.array_equal(a, b)) for a, b in zip(*arrays, strict=True))
