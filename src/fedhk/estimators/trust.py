"""What privacy, secure sums and robust sums ask of the other parameters, and what they give the sites."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from fedhk.data.views import Views
from fedhk.federation.sealed.rounds import TYPICAL_MOVE, NoisyRound, noisy_rounds
from fedhk.federation.sealed.scales import check_sizes
from fedhk.federation.site import SiteState
from fedhk.federation.state import Plan, ServerState
from fedhk.model.parameters import Parameters
from fedhk.privacy.accounting import spent
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.privacy.robust import AGGREGATIONS
from fedhk.privacy.secure_site import SecureSite
from fedhk.starts.seeding import LEAST_POWER

# Noise above this share of how far apart clusters are leaves nothing of them.
MOST_NOISE = 0.5


def trusted_plan(
    plan: Plan, clients: dict[str, Views], *, privacy: Any, secure: Any, aggregator: str, fraction: float
) -> Plan:
    """The plan with privacy, secure sums and an aggregator, or an error that says what to change.

    Parameters
    ----------
    plan : Plan
        Everything else.
    clients : dict of str to Views
        The sites.
    privacy : DifferentialPrivacy or None
        The budget.
    secure : bool or SecureSummation
        Whether sums are masked.
    aggregator : str
        How statistics are brought together.
    fraction : float
        Share of the sites that is asked in a round.
    """
    if privacy is not None and not isinstance(privacy, DifferentialPrivacy):
        raise TypeError(f"privacy={privacy!r} must be None or a fedhk.privacy.DifferentialPrivacy.")
    masks = SecureSummation() if secure is True else (secure or None)
    if masks is not None and not isinstance(masks, SecureSummation):
        raise TypeError(f"secure={secure!r} must be True, False or a fedhk.privacy.SecureSummation.")
    if aggregator not in AGGREGATIONS:
        raise ValueError(f"aggregator={aggregator!r} must be one of {AGGREGATIONS}.")
    plan = replace(plan, privacy=privacy, secure=masks, aggregator=aggregator)
    if plan.diffusion is not None:
        _refuse_diffusion(plan)
    if aggregator != "sum" and not plan.is_sealed and plan.protocol in ("centers", "factors"):
        raise ValueError(f"aggregator={aggregator!r} works on statistics; protocol={plan.protocol!r} sends centres.")
    return _sealed_plan(plan, clients, fraction) if plan.is_sealed else plan


def _sealed_plan(plan: Plan, clients: dict[str, Views], fraction: float) -> Plan:
    """The plan of a run in which the server sees sums only."""
    what = "privacy" if plan.privacy is not None else "secure=True"
    _refuse(plan, what, fraction)
    if plan.secure is not None:
        _check_masks(plan, clients)
    if plan.privacy is not None:
        _check_delta(plan.privacy, clients)
        if plan.privacy.public:
            plan.privacy.view_bounds(_widths(clients))
        if any(views.n_rows for views in clients.values()):  # sites elsewhere do not say how many rows they have
            _warn_of_noise(plan, clients)
    settings = plan.settings
    # what "auto" would choose from candidates that are not sent here is the plain value
    weights = "uniform" if settings.view_weights == "auto" else settings.view_weights
    fuzzifier = settings.fuzzifier
    if fuzzifier is None and plan.diffusion is None:  # embedded rows have a start that the server makes by itself
        fuzzifier = 1.0 + 1.0 / LEAST_POWER
    return replace(
        plan,
        settings=replace(settings, view_weights=weights, fuzzifier=fuzzifier),
        protocol="statistics",
        precision="double",
        calibration=None,
        cluster_summary=plan.cluster_summary and plan.privacy is None,
    )


def _refuse(plan: Plan, what: str, fraction: float) -> None:
    """Refuse what would break the bound on what a row can change, or needs what the server cannot see."""
    if plan.protocol in ("centers", "factors"):
        raise ValueError(
            f"{what} needs protocol='statistics', got {plan.protocol!r}: after local passes one row can change centres "
            "without bound, and they are not sums."
        )
    if plan.protocol == "cores":
        raise ValueError(f"{what} needs protocol='statistics' or 'auto', got 'cores': sums are sent in features.")
    if plan.client_weights == "quality":
        raise ValueError(f"{what} hides what single sites send, so client_weights='quality' cannot weigh them.")
    if plan.aggregator != "sum":
        raise ValueError(f"{what} hides what single sites send, so aggregator={plan.aggregator!r} cannot compare them.")
    if plan.privacy is not None and plan.settings.heat_coef == "absdev":
        raise ValueError(
            "privacy works with heat_coef='uniform' or 'minmax': with 'absdev' a row far out weighs without bound."
        )
    if plan.calibration not in (None, "auto"):
        raise ValueError(
            f"calibration={plan.calibration} with {what}: a site's own mean and spread let one row change all that the "
            "site sends. Leave calibration='auto' (which is none here) or None."
        )
    if fraction < 1:
        raise ValueError(f"fraction={fraction} with {what}: all sites are asked in every round; use fraction=1.")


def _refuse_diffusion(plan: Plan) -> None:
    """Refuse what does not protect or hold for the anchors and products of a diffusion."""
    if plan.privacy is not None:
        raise ValueError(
            "privacy does not go with FedHKDiffusion: what one row can change in its products is bounded, but not in "
            "the means that its anchors are made from. Use EFKMVC or FedHKPerson with privacy, or secure=True; "
            "docs/diffusion.md says more."
        )
    if plan.aggregator != "sum":
        raise ValueError(
            f"aggregator={plan.aggregator!r} does not go with FedHKDiffusion: it holds for statistics of rounds, and "
            "the embedding before them is made of plain sums. Use aggregator='sum', or EFKMVC."
        )


def _check_masks(plan: Plan, clients: dict[str, Views]) -> None:
    """Refuse sites that are too few for masks, and numbers that have no room under them."""
    assert plan.secure is not None  # noqa: S101 - asked of a run with secure sums only
    threshold = plan.secure.threshold_of(len(clients))
    if plan.privacy is None:
        if plan.settings.scaling != "l2":  # rows of length 1 always have room
            for site, views in clients.items():
                check_sizes(views, site)
    elif plan.privacy.colluders >= threshold:
        raise ValueError(
            f"colluders={plan.privacy.colluders} must be below the threshold={threshold} of sites that a sum needs: "
            "else nobody is left who adds noise. Use fewer colluders or a larger threshold."
        )


def _check_delta(privacy: DifferentialPrivacy, clients: dict[str, Views]) -> None:
    for site, views in clients.items():
        if views.n_rows and privacy.delta >= 1.0 / views.n_rows:
            raise ValueError(
                f"delta={privacy.delta:g} must be below 1 over the number of rows of any site; site {site!r} has "
                f"{views.n_rows} rows: use at most {0.1 / views.n_rows:.1g}."
            )


def _widths(clients: dict[str, Views]) -> list[int]:
    widths: dict[str, int] = {}
    for views in clients.values():
        for name, width in zip(views.names, views.widths, strict=True):
            if width is not None:
                widths.setdefault(name, width)
    return list(widths.values())


def _warn_of_noise(plan: Plan, clients: dict[str, Views]) -> None:
    """Say before a run when its noise will drown the centres."""
    privacy = plan.privacy
    assert privacy is not None  # noqa: S101 - asked of a run with privacy only
    widths, n_clusters = _widths(clients), plan.settings.n_clusters
    rows = sum(views.n_rows for views in clients.values())
    even = Parameters(
        tuple(np.zeros((n_clusters, width)) for width in widths),
        np.ones(len(widths)) / len(widths),
        plan.settings.heat_time,
        2.0,
        plan.settings.view_exponent,
        np.ones(len(widths)),
    )
    sensitivity = NoisyRound().sensitivity({}, even, privacy.neighbours)
    releases = 1.0 if plan.secure is not None else np.sqrt(len(clients))
    noise = privacy.multiplier("round", noisy_rounds(plan)) * sensitivity * releases * np.sqrt(sum(widths))
    # rows between clusters count less, and the mean of the last rounds has less noise
    share = noise / (0.8 * rows / n_clusters) / np.sqrt(max(noisy_rounds(plan) / 2, 1.0))
    if share > MOST_NOISE * TYPICAL_MOVE * 2:
        better = "more rows, a larger epsilon or fewer clusters"
        better += "" if plan.secure is not None else ", or secure=True, with which the sites share one noise"
        warnings.warn(
            f"With epsilon={privacy.epsilon:g}, {rows} rows and {n_clusters} clusters the noise will move each centre "
            f"by about {share:.1g} of the spread of all rows: clusters will mean little. What helps: {better}.",
            UserWarning,
            stacklevel=5,
        )


def site_states(clients: dict[str, Views], plan: Plan, checkpoint: Path | None) -> dict[str, SiteState]:
    """The sites before a run, with what privacy and masks give them."""
    states = {name: SiteState(name, views) for name, views in clients.items()}
    privacy = plan.privacy
    if privacy is not None:
        folder = privacy.ledger if privacy.ledger is not None else checkpoint and checkpoint / "ledger"
        states = {
            name: replace(state, privacy=privacy, ledger=Ledger(_ledger_path(folder, name), name))
            for name, state in states.items()
        }
    if plan.secure is not None:
        states = {name: replace(state, secure=SecureSite(name)) for name, state in states.items()}
    return states


def _ledger_path(folder: Any, site: str) -> Path | None:
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"{quote(site, safe='')}.jsonl"


def privacy_spent(plan: Plan, state: ServerState) -> tuple[float, float] | None:
    """(epsilon, delta) of all that was released in a run; None without noise."""
    if plan.privacy is None or state.sealed is None:
        return None
    return spent(state.sealed.releases, plan.privacy.delta), plan.privacy.delta
