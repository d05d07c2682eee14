"""Membership inference: telling from a fitted model whether a row was among those it was fitted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import beta, rankdata

from fedhk._random import RandomStateLike, check_generator
from fedhk._typing import BoolArray, FloatArray
from fedhk.data.checks import check_count
from fedhk.data.views import Views, check_views
from fedhk.estimators.efkmvc import SHARED
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC

__all__ = ["AttackStrength", "MembershipAttack", "clopper_pearson", "membership_attack", "strength"]

# An attack is called weak up to this AUC.
WEAK = 0.6

# With few shadows the spread of one row's score is known badly: the spread over all rows counts as this many shadows.
PRIOR_SHADOWS = 4.0

# Distances below this are rows on centres.
SMALLEST = 1e-12


@dataclass(frozen=True)
class AttackStrength:
    """How well an attack tells members from others, with the ends of confidence intervals."""

    # probability that a member has a higher score than another row: 0.5 is guessing, 1 is certainty
    auc: float
    auc_low: float
    auc_high: float
    # True positive minus false positive rate at one threshold, which is chosen on half of the rows and measured on the
    # other half: 0 is guessing.
    advantage: float
    advantage_low: float
    advantage_high: float


@dataclass(frozen=True)
class MembershipAttack:
    """Result of attacks on a model."""

    # how many rows the model was fitted on, and how many it was not
    members: int
    others: int
    # of the attack that takes a row for a member if it is close to a centre
    distance: AttackStrength
    # Of the attack that compares the row's distance with those in models fitted with and without the row, and how many
    # of these there were; None without any.
    likelihood_ratio: AttackStrength | None
    shadows: int
    # of each interval
    confidence: float

    @property
    def strongest(self) -> AttackStrength:
        """The attack with the highest AUC."""
        found = [attack for attack in (self.distance, self.likelihood_ratio) if attack is not None]
        return max(found, key=lambda attack: attack.auc)

    @property
    def verdict(self) -> str:
        """The result in words."""
        attack = self.strongest
        numbers = f"AUC {attack.auc:.2f}, {self.confidence:.0%} interval {attack.auc_low:.2f} to {attack.auc_high:.2f}"
        if attack.auc_low <= 0.5:
            return f"No attack did better than guessing: the strongest has {numbers}."
        if attack.auc <= WEAK:
            return f"The model tells a little of who was among its rows: the strongest attack has {numbers}."
        return f"The model gives its rows away: the strongest attack has {numbers}. Noise, or fewer clusters, helps."

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"verdict": self.verdict}


def membership_attack(
    model: Any,
    members: Any,
    others: Any,
    *,
    shadows: int = 8,
    fit: Callable[[dict[str, Any]], Any] | None = None,
    confidence: float = 0.95,
    random_state: RandomStateLike = None,
    progress: Callable[[int], None] | None = None,
) -> MembershipAttack:
    """Try to tell the rows that a model was fitted on from other rows of the same kind.

    Parameters
    ----------
    model : fitted estimator of FedHK
        The released model: global, or that of a site.
    members, others : views as in `predict`
        Rows that the model was fitted on, and rows that it was not. They should be alike otherwise, best a random
        split: else what is measured is how the two differ.
    shadows : int, default=8
        Models that the attacker fits to random halves of all these rows, to see what a row does to a model; an even
        number, 0 for none. More make the attack a little stronger.
    fit : callable, optional
        Fits one of them: takes views by name, returns a fitted model. By default `HeatKernelMVC` with the model's
        settings, which is right for models without noise.
    confidence : float, default=0.95
        Of each interval.
    random_state : int, generator or None
        What halves are drawn with.
    progress : callable, optional
        Called with the number of shadow models fitted so far.

    Returns
    -------
    MembershipAttack
        How strong the attacks are, and a verdict in words.

    Notes
    -----
    The score of the first attack is minus the kernel distance to the nearest centre. The second is the likelihood-ratio
    attack of Carlini et al. 2022 on the logarithm of that distance, with a spread per row that is drawn towards the
    common one. Intervals are those of DeLong et al. 1988 for the AUC, and of Clopper and Pearson for the two rates.

    Examples
    --------
    >>> import numpy as np
    >>> from fedhk import HeatKernelMVC
    >>> from fedhk.evaluation.audit import membership_attack
    >>> rows = np.random.default_rng(0).normal(size=(400, 3))
    >>> model = HeatKernelMVC(3, random_state=0).fit(rows[:200])
    >>> attack = membership_attack(model, rows[:200], rows[200:], shadows=0)
    >>> 0.4 < attack.distance.auc < 0.6
    True
    """
    if check_count(shadows, "shadows", minimum=0) % 2:
        raise ValueError(f"shadows={shadows} must be an even number: every row is in half of them.")
    check_confidence(confidence)
    generator = check_generator(random_state)
    inside, outside = _checked(model, members, "members"), _checked(model, others, "others")
    tables = _stack(inside, outside)
    member = np.arange(inside.n_rows + outside.n_rows) < inside.n_rows
    scores = measure_closeness(model, tables)
    halves = np.zeros(len(member), bool)  # a random half of the members and of the others
    for rows in (np.flatnonzero(member), np.flatnonzero(~member)):
        halves[generator.permutation(rows)[: len(rows) // 2]] = True
    ratio = None
    if shadows:
        fit = fit or (lambda views: _fit_like(model, views))
        ratios = _ratios(scores, tables, fit, shadows, generator, progress=progress)
        ratio = strength(ratios, member, halves, confidence)
    return MembershipAttack(
        members=inside.n_rows,
        others=outside.n_rows,
        distance=strength(scores, member, halves, confidence),
        likelihood_ratio=ratio,
        shadows=shadows,
        confidence=confidence,
    )


def _checked(model: Any, X: Any, name: str) -> Views:
    """Check views against the model, and return them in its order."""
    fitted = model._model
    try:
        return check_views(
            X, names=fitted.view_names, widths=fitted.widths, columns=fitted.columns, missing_views=True, min_rows=4
        )
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _stack(first: Views, second: Views) -> dict[str, Any]:
    """Stack the rows of both, by view; a view that one of them lacks is missing there."""
    tables: dict[str, Any] = {}
    for name, *parts in zip(first.names, first.tables, second.tables, strict=True):
        known = next((part for part in parts if part is not None), None)
        if known is None:
            continue
        empty = (np.full((views.n_rows, known.shape[1]), np.nan) for views in (first, second))
        filled: list[Any] = [nothing if part is None else part for part, nothing in zip(parts, empty, strict=True)]
        if all(map(sp.issparse, filled)):
            tables[name] = sp.vstack(filled, format="csr")
        else:
            tables[name] = np.vstack([part.toarray() if sp.issparse(part) else part for part in filled])
    return tables


def measure_closeness(model: Any, tables: Mapping[str, Any]) -> FloatArray:
    """Compute minus the logarithm of each row's kernel distance to the nearest centre."""
    views = next(iter(tables.values())) if model._single_table else tables
    nearest = model.transform(views).min(axis=1).astype(np.float64)
    return np.asarray(-np.log(np.maximum(nearest, SMALLEST)))


def _fit_like(model: Any, views: dict[str, Any]) -> Any:
    """Fit a model with the settings of another to other rows."""
    known = model.get_params(deep=False)
    settings = {name: known[name] for name in SHARED if name in known}
    found = {"n_clusters": model.n_clusters_, "fuzzifier": model.fuzzifier_, "view_weights": list(model.view_weights_)}
    return HeatKernelMVC(**settings | found | {"n_init": 4, "random_state": 0}).fit(views)


def _ratios(
    scores: FloatArray,
    tables: dict[str, Any],
    fit: Callable[[dict[str, Any]], Any],
    shadows: int,
    generator: np.random.Generator,
    *,
    progress: Callable[[int], None] | None,
) -> FloatArray:
    """Compute the log-likelihood ratio of each row's score, with against without the row."""
    n = len(scores)
    seen, held = np.zeros((shadows, n)), np.zeros((shadows, n), bool)
    for number in range(shadows):
        # a half, then the other: every row is in half of the models
        held[number] = ~held[number - 1] if number % 2 else generator.permutation(n) < n // 2
        seen[number] = measure_closeness(fit({name: table[held[number]] for name, table in tables.items()}), tables)
        if progress is not None:
            progress(number + 1)
    means = [np.average(seen, axis=0, weights=which) for which in (held, ~held)]
    squares = np.square(seen - np.where(held, means[0], means[1])).sum(axis=0)
    common = squares.sum() / (n * (shadows - 2)) if shadows > 2 else float(np.var(means[0] - means[1]))
    variance = (squares + PRIOR_SHADOWS * common) / (shadows - 2 + PRIOR_SHADOWS)
    gap = np.square(scores - means[1]) - np.square(scores - means[0])
    return np.asarray(gap / (2 * np.maximum(variance, SMALLEST)))


def strength(scores: FloatArray, member: BoolArray, halves: BoolArray, confidence: float) -> AttackStrength:
    """Measure how well scores, higher for likely members, tell members from others.

    The threshold of the advantage is chosen on the rows in `halves` and measured on the others.
    """
    auc, deviation = _auc(scores[member], scores[~member])
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * deviation
    candidates = np.unique(np.quantile(scores[halves], np.linspace(0, 1, 101)))
    above = scores[:, None] > candidates
    gains = above[halves & member].mean(axis=0) - above[halves & ~member].mean(axis=0)
    flagged = above[:, int(np.argmax(gains))]
    counts = [flagged[~halves & who] for who in (member, ~member)]
    (hit_low, hit_high), (alarm_low, alarm_high) = (clopper_pearson(c.sum(), len(c), confidence) for c in counts)
    return AttackStrength(
        auc=auc,
        auc_low=max(auc - reach, 0.0),
        auc_high=min(auc + reach, 1.0),
        advantage=float(counts[0].mean() - counts[1].mean()),
        advantage_low=float(hit_low - alarm_high),
        advantage_high=float(hit_high - alarm_low),
    )


def _auc(positive: FloatArray, negative: FloatArray) -> tuple[float, float]:
    """Compute the area under the ROC curve and its standard deviation (DeLong, DeLong and Clarke-Pearson 1988)."""
    m, n = len(positive), len(negative)
    ranks = rankdata(np.concatenate([positive, negative]))
    # shares of the other kind that each score is above, ties counting half
    above = (ranks[:m] - rankdata(positive)) / n
    below = 1 - (ranks[m:] - rankdata(negative)) / m
    variance = above.var(ddof=1) / m + below.var(ddof=1) / n
    # where the two are apart nothing varies, but the next row may be different
    return float(above.mean()), float(max(np.sqrt(variance), 0.5 / min(m, n)))


def clopper_pearson(successes: Any, trials: int, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Compute the exact confidence interval of a probability; each end is missed with half of the risk.

    `successes` is one count or an array of them; the ends have its shape.
    """
    count = np.asarray(successes, np.float64)
    if trials < 1 or np.any((count < 0) | (count > trials)):
        raise ValueError(f"successes={successes!r} must be from 0 to trials={trials!r}, and trials at least 1.")
    risk = (1 - confidence) / 2
    low = np.where(count > 0, beta.ppf(risk, np.maximum(count, 1), trials - count + 1), 0.0)
    high = np.where(count < trials, beta.ppf(1 - risk, count + 1, np.maximum(trials - count, 1)), 1.0)
    return low, high


def check_confidence(confidence: float) -> None:
    """Raise ValueError where this is no confidence of an interval."""
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence={confidence!r} must be from 0.5 to below 1.")
