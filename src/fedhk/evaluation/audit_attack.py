"""Membership inference: telling from a fitted model whether a row was among those it was fitted on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._random import RandomStateLike, check_generator
from fedhk._typing import BoolArray, FloatArray
from fedhk.data.checks import check_count
from fedhk.data.views import Views, check_views
from fedhk.estimators.federated import SHARED
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.evaluation.audit_bounds import AttackStrength, strength

__all__ = ["MembershipAttack", "membership_attack"]

# An attack is called weak up to this AUC.
WEAK = 0.6

# With few shadows the spread of one row's score is known badly: the spread over all rows counts as this many shadows.
PRIOR_SHADOWS = 4.0

# Distances below this are rows on centres.
SMALLEST = 1e-12


@dataclass(frozen=True)
class MembershipAttack:
    """What attacks on a model showed.

    Parameters
    ----------
    members, others : int
        Rows that the model was fitted on, and that it was not.
    distance : AttackStrength
        Of the attack that takes a row for a member if it is close to a centre.
    likelihood_ratio : AttackStrength or None
        Of the attack that compares the row's distance with those in models fitted with and without the row; None
        where no such models were fitted.
    shadows : int
        How many of those models there were.
    confidence : float
        Of each interval.
    """

    members: int
    others: int
    distance: AttackStrength
    likelihood_ratio: AttackStrength | None
    shadows: int
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
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence={confidence!r} must be from 0.5 to below 1.")
    generator = check_generator(random_state)
    inside, outside = _checked(model, members, "members"), _checked(model, others, "others")
    tables = _stacked(inside, outside)
    member = np.arange(inside.n_rows + outside.n_rows) < inside.n_rows
    scores = _closeness(model, tables)
    halves = _split(member, generator)
    ratio = None
    if shadows:
        fit = fit or (lambda views: _like(model, views))
        ratios = _ratios(scores, tables, fit, shadows, generator, progress=progress)
        ratio = strength(ratios, member, halves, confidence)
    return MembershipAttack(
        members=int(member.sum()),
        others=int((~member).sum()),
        distance=strength(scores, member, halves, confidence),
        likelihood_ratio=ratio,
        shadows=shadows,
        confidence=confidence,
    )


def _split(member: BoolArray, generator: np.random.Generator) -> BoolArray:
    """A random half of the members and of the others."""
    chosen = np.zeros(len(member), bool)
    for who in (member, ~member):
        rows = np.flatnonzero(who)
        chosen[generator.permutation(rows)[: len(rows) // 2]] = True
    return chosen


def _ratios(
    scores: FloatArray,
    tables: dict[str, Any],
    fit: Callable[[dict[str, Any]], Any],
    shadows: int,
    generator: np.random.Generator,
    *,
    progress: Callable[[int], None] | None,
) -> FloatArray:
    """Log-likelihood ratio of each row's score, with against without the row."""
    n = len(scores)
    seen, held = np.zeros((shadows, n)), np.zeros((shadows, n), bool)
    for number in range(shadows):
        # a half, then the other: every row is in half of the models
        held[number] = ~held[number - 1] if number % 2 else generator.permutation(n) < n // 2
        seen[number] = _closeness(fit({name: table[held[number]] for name, table in tables.items()}), tables)
        if progress is not None:
            progress(number + 1)
    means = [np.average(seen, axis=0, weights=which) for which in (held, ~held)]
    squares = np.square(seen - np.where(held, means[0], means[1])).sum(axis=0)
    common = squares.sum() / max(n * (shadows - 2), 1) if shadows > 2 else float(np.var(means[0] - means[1]))
    variance = (squares + PRIOR_SHADOWS * common) / (shadows - 2 + PRIOR_SHADOWS)
    gap = np.square(scores - means[1]) - np.square(scores - means[0])
    return np.asarray(gap / (2 * np.maximum(variance, SMALLEST)))


def _closeness(model: Any, tables: dict[str, Any]) -> FloatArray:
    """Minus the logarithm of each row's kernel distance to the nearest centre."""
    views = next(iter(tables.values())) if model._single_table else tables
    nearest = model.transform(views).min(axis=1).astype(np.float64)
    return np.asarray(-np.log(np.maximum(nearest, SMALLEST)))


def _like(model: Any, views: dict[str, Any]) -> Any:
    """A model with the settings of another, fitted to other rows."""
    known = model.get_params(deep=False)
    settings = {name: known[name] for name in SHARED if name in known}
    found = {"n_clusters": model.n_clusters_, "fuzzifier": model.fuzzifier_, "view_weights": list(model.view_weights_)}
    return HeatKernelMVC(**settings | found | {"n_init": 4, "random_state": 0}).fit(views)


def _checked(model: Any, X: Any, name: str) -> Views:
    """Views, checked against the model and in its order."""
    fitted = model._model
    try:
        return check_views(
            X, names=fitted.view_names, widths=fitted.widths, columns=fitted.columns, missing_views=True, min_rows=4
        )
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _stacked(first: Views, second: Views) -> dict[str, Any]:
    """The rows of both, by view; a view that one of them lacks is missing there."""
    tables = {}
    for name, parts in zip(first.names, zip(first.tables, second.tables, strict=True), strict=True):
        width = next((part.shape[1] for part in parts if part is not None), None)
        if width is None:
            continue
        filled = [
            np.full((views.n_rows, width), np.nan) if part is None else part
            for part, views in zip(parts, (first, second), strict=True)
        ]
        tables[name] = sp.vstack(filled, format="csr") if all(map(sp.issparse, filled)) else _dense(filled)
    return tables


def _dense(parts: list[Any]) -> FloatArray:
    return np.vstack([part.toarray() if sp.issparse(part) else part for part in parts])
