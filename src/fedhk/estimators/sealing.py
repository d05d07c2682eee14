"""Privacy and secure sums of an estimator: checks with its other parameters, and the guards of its sites."""

from __future__ import annotations

import logging
import math
import secrets
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from fedhk._records import Records
from fedhk.data.clients import check_public
from fedhk.data.deviations import describe_column
from fedhk.data.levels import find_numbers
from fedhk.data.moments import Moments, view_moments
from fedhk.data.scaling import POOLED_COEFS, MinMaxScaling
from fedhk.data.views import Views, shapes_by_view
from fedhk.errors import DataError
from fedhk.estimators.choices import is_chosen
from fedhk.federation.aggregators import Aggregator, SumAggregator
from fedhk.federation.board import Board, Shared
from fedhk.federation.entries import Terms
from fedhk.federation.participation import Participation
from fedhk.federation.phases.scales import MOST_POWER, find_squares, largest_values
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.sealed import UNITS, Noise, SealedGuard, SealedTerms, SiteNoise
from fedhk.privacy._lazy import require_cryptography
from fedhk.privacy.expectation import NoisySetting
from fedhk.privacy.ledger import Ledger, Release, ledger_file, spent_on
from fedhk.privacy.mechanism import ChoiceError, DifferentialPrivacy, SecureSummation, read_bounds
from fedhk.privacy.outside import MOST_OUTSIDE, REMEDY, shares_outside
from fedhk.privacy.plan import keep_plan
from fedhk.privacy.secure_site import SecureSite
from fedhk.starts.settings import Settings

LOG = logging.getLogger("fedhk")

# Below this expected share of the clusters that a run with noise finds, a warning is given.
LITTLE = 0.5

# A column whose variance is less than this share of what it will be taken for is named in a warning, and so many are.
LITTLE_OF_RANGE, MOST_NAMED = 0.25, 5


def make_sealed_terms(
    model: Any,
    clients: Mapping[str, Views],
    settings: Settings,
    aggregator: Aggregator,
    protocol: Protocol,
    *,
    public: Views | None = None,
    rounds: int | None = None,
) -> SealedTerms:
    """Say how the sums of a fit are sealed, by the `privacy` and `secure` of an estimator; open where it has neither.

    An update has so many `rounds` at most; a fit those of the estimator.
    A ValueError says what to change where they do not go with its other parameters, or with the sites.
    """
    privacy: DifferentialPrivacy | None = model.privacy
    masks = _make_masks(model.secure)
    if privacy is None and masks is None:
        return SealedTerms()
    protocol = model.decide_protocol(protocol, settings, clients)
    # a basis comes from the sums that a start is found with
    finds_start = (isinstance(settings.init, str) and public is None) or protocol.in_basis
    most = rounds or int(model.max_rounds)
    noise = None if privacy is None else Noise(privacy, min(most, privacy.rounds), finds_start)
    terms = SealedTerms(noise, masks, public)
    _check_together(terms, settings, aggregator)
    _check_inferred(terms, clients)
    _check_participation(model.participation, terms)
    if masks is not None:
        require_cryptography()
        _check_masks(masks, privacy, clients, settings)
    if noise is not None:
        _check_noise(model, noise, masks, clients, settings)
    return terms


def _check_participation(given: Participation | None, terms: SealedTerms) -> None:
    """Refuse options that ask few sites, or look at single ones."""
    participation = given or Participation()
    if participation.fraction < 1:
        raise ValueError(
            f"fraction={participation.fraction} with {terms.reason}: all sites are asked in every round; use "
            "fraction=1."
        )
    if participation.deviating == "refuse":
        raise ValueError(
            f"deviating='refuse' with {terms.reason}: the server sees no single site, and a warning is all. Leave "
            "deviating out."
        )


def _check_noise(
    model: Any, noise: Noise, masks: SecureSummation | None, clients: Mapping[str, Views], settings: Settings
) -> None:
    """Refuse parameters and sites that do not go with noise; say what a run can be expected to find."""
    if is_chosen(model.n_clusters):
        raise ValueError(
            f"n_clusters={model.n_clusters!r} does not go with privacy: what one row can change on the way to a "
            "number has no bound. Give a number."
        )
    if model.tol not in (0, type(model).tol):
        raise ValueError(
            f"tol={model.tol} has no effect with privacy: noise hides when the objective settles, and all rounds "
            "that share the budget are run. Leave tol out."
        )
    check_budget(noise.privacy, masks, clients)
    if noise.privacy.public:
        _check_bounds(noise.privacy, clients, unit_rows=settings.scaling.unit_rows)
        # remote sites do not report their rows before a run
        weighs = settings.scaling.unit_variance and not settings.scaling.unit_rows
        if weighs and any(views.n_rows for views in clients.values()):
            _warn_of_ranges(noise, masks, clients)
    # given centres may be of any quality
    if any(views.n_rows for views in clients.values()) and isinstance(settings.init, str):
        _say_expectation(noise, masks, clients, settings.n_clusters)


def check_question_options(privacy: Any, secure: Any) -> None:
    """Refuse what is no budget and no kind of masks, as estimators do in `fit`."""
    if not isinstance(privacy, DifferentialPrivacy | None):
        raise TypeError(f"privacy={privacy!r} must be a fedhk.privacy.DifferentialPrivacy or None.")
    if not isinstance(secure, bool | np.bool_ | SecureSummation):
        raise TypeError(f"secure={secure!r} must be True, False or a fedhk.privacy.SecureSummation.")


def make_question_terms(
    model: Any,
    privacy: DifferentialPrivacy | None,
    secure: bool | SecureSummation,
    n_sums: int,
    clients: Mapping[str, Views],
) -> SealedTerms:
    """Say how the sums of a question to the sites of a fitted model are sealed; open where neither is asked for.

    With noise, `n_sums` share the whole budget. A ValueError says what to change where the model or the sites do not
    go with it.
    """
    check_question_options(privacy, secure)
    masks = _make_masks(secure)
    terms = SealedTerms(None if privacy is None else Noise(privacy, n_sums, finds_start=False), masks)
    if masks is not None:
        require_cryptography()
        masks.threshold_of(len(clients))
    if privacy is not None:
        if any(reference.heat_coef not in ("uniform", "minmax") for reference in model._model.references):
            raise ValueError(
                "privacy with a model whose heat_coef depends on all rows of a site: one row would change the clusters "
                "of others. Fit with heat_coef='uniform' or 'minmax'."
            )
        if n_sums > privacy.rounds:
            raise ValueError(
                f"rounds={privacy.rounds} of the budget must be at least {n_sums}, the sums that are asked."
            )
        check_budget(privacy, masks, clients)
    if not terms.is_open:
        _check_inferred(terms, clients)
    return terms


def _make_masks(secure: bool | SecureSummation) -> SecureSummation | None:
    if isinstance(secure, SecureSummation):
        return secure
    return SecureSummation() if secure else None


def _check_together(terms: SealedTerms, settings: Settings, aggregator: Aggregator) -> None:
    """Refuse what would break the bound on what a row can change, or needs what the server cannot see."""
    what = terms.reason
    if not isinstance(aggregator, SumAggregator):
        given = repr(getattr(aggregator, "rule", aggregator))
        reason = f"{what} hides what single sites send, so aggregator={given} cannot compare them."
        raise ValueError(reason)  # noqa: TRY004 - it is an aggregator, but not one for sums
    if terms.noise is not None and settings.heat_coef not in ("uniform", "minmax"):
        why = "with 'absdev' a row far out weighs without bound"
        if settings.heat_coef in POOLED_COEFS:
            why = "with a site's own ranges or means one row changes the coefficients of all others"
        raise ValueError(f"privacy works with heat_coef='uniform' or 'minmax', got {settings.heat_coef!r}: {why}.")
    if terms.noise is not None and isinstance(settings.scaling, MinMaxScaling):
        raise ValueError(
            "scaling='minmax' has no effect with privacy: before any noise, bounds are all that is known of features, "
            "and 'standard' divides by them. Use scaling='standard', 'l2' or 'none'."
        )


def read_public(model: Any, given: Any, clients: Mapping[str, Views], settings: Settings, protocol: Protocol) -> Views:
    """Give public rows with the views and columns of the sites; refuses rows that a run would not start from."""
    public = check_public(given, clients)
    if model.privacy is None:
        raise ValueError("public rows have no effect without privacy: starts are found from the rows of the sites.")
    protocol = model.decide_protocol(protocol, settings, clients)
    if not isinstance(settings.init, str):
        raise ValueError("public rows have no effect where init gives centres: leave one of the two out.")  # noqa: TRY004
    if protocol.in_basis:
        raise ValueError(
            f"public rows do not go with protocol={protocol!r}: its basis comes from the sums that a start is found "
            "with. Use protocol='statistics'."
        )
    if public.n_rows < settings.n_clusters:
        raise ValueError(f"public has {public.n_rows} rows, which should be >= n_clusters={settings.n_clusters}.")
    return public


def _check_inferred(terms: SealedTerms, clients: Mapping[str, Views]) -> None:
    """Refuse categories whose levels were read off rows: one that a single row has would give the row away."""
    for site, views in clients.items():
        if views.inferred:
            raise ValueError(
                f"{terms.reason} with categories whose levels were read off rows: site {site!r}, "
                f"{views.inferred[0]!r}. A level may give a row away. Name the levels: fedhk.from_frame(..., "
                "categories={column: levels}), or pandas.CategoricalDtype(levels)."
            )


def _check_masks(
    masks: SecureSummation, privacy: DifferentialPrivacy | None, clients: Mapping[str, Views], settings: Settings
) -> None:
    """Refuse sites that are too few for masks, and numbers that have no room under them."""
    threshold = masks.threshold_of(len(clients))
    if privacy is not None:
        if privacy.colluders >= threshold:
            raise ValueError(
                f"colluders={privacy.colluders} must be below the threshold={threshold} of sites that a sum needs: "
                "else nobody is left who adds noise. Use fewer colluders or a larger threshold."
            )
    elif not settings.scaling.unit_rows:  # rows of length 1 always have room
        for site, views in clients.items():
            for view, largest in zip(views.names, largest_values(views), strict=True):
                if largest > 2.0**MOST_POWER:
                    raise ValueError(
                        f"site {site!r}: view {view!r} has the value {largest:.3g}: secure sums have room for values "
                        f"up to 2^{MOST_POWER} in size. Rescale the view, or use scaling='l2'."
                    )


def check_budget(privacy: DifferentialPrivacy, masks: SecureSummation | None, clients: Mapping[str, Views]) -> None:
    """Refuse a budget that does not fit the sites."""
    if privacy.plan is not None and privacy.ledger is None:
        raise ValueError(
            f"plan={privacy.plan!r} has no effect without ledger: what was spent before stands in the ledgers of the "
            "sites. Give the folder of all runs on these rows as ledger."
        )
    if privacy.colluders and masks is None:
        raise ValueError(
            f"colluders={privacy.colluders} has no effect without secure=True: every site adds the whole noise by "
            "itself. Leave colluders=0, or use secure=True."
        )
    shares_noise = masks is not None and masks.shared_noise
    UNITS[privacy.unit].check_sites(privacy, len(clients), shares_noise=shares_noise)
    for site, views in clients.items():
        if views.n_rows and privacy.delta >= 1.0 / views.n_rows:
            raise ValueError(
                f"delta={privacy.delta:g} must be below 1 over the number of rows of any site; site {site!r} has "
                f"{views.n_rows} rows: use at most {0.1 / views.n_rows:.1g}."
            )


def _check_bounds(privacy: DifferentialPrivacy, clients: Mapping[str, Views], *, unit_rows: bool) -> None:
    """Refuse public bounds that leave most of a view outside at a site in this process, before any budget is spent."""
    bounds = dict(zip(shapes_by_view(clients.values()), read_bounds(privacy.bounds, _widths(clients)), strict=True))
    many = []
    for site, views in clients.items():
        own = [bounds[name] for name in views.names]
        for outside in shares_outside(views, own, unit_rows=unit_rows):
            text = f"site {site!r}: {outside}"
            if outside.share > MOST_OUTSIDE:
                raise ValueError(f"bounds={privacy.bounds!r}: {text}, so that only noise would be left. {REMEDY}.")
            if outside.is_worth_a_word:
                many.append(text)
    if many:
        warnings.warn(f"bounds={privacy.bounds!r}: {'; '.join(many)}. {REMEDY}.", UserWarning, stacklevel=6)


def _warn_of_ranges(noise: Noise, masks: SecureSummation | None, clients: Mapping[str, Views]) -> None:
    """Warn of columns whose rows fill little of their bounds, where noise will hide how little.

    Such a column counts for less than it does without noise. No budget is spent, and nothing leaves this process.
    """
    setting = _measure_setting(noise, masks, clients, 1)
    names = list(shapes_by_view(clients.values()))
    error = setting.measure_row_noise("spreads") * math.sqrt(len(names))
    bounds, found = read_bounds(noise.privacy.bounds, _widths(clients)), []
    for name, (low, high) in zip(names, bounds, strict=True):
        having = [(views, views.names.index(name)) for views in clients.values() if name in views.names]
        having = [(views, place) for views, place in having if views.widths[place] is not None]
        columns = next((views.columns[place] for views, place in having), None)
        parts = [
            view_moments(views, place, unit_rows=False, sample_weight=None, width=len(low)) for views, place in having
        ]
        moments = reduce(Moments.merge, parts, Moments.none(len(low)))
        varies = find_numbers(columns, len(low)) & (moments.variance > 0)
        filled = moments.variance[varies] / np.square(high - low)[varies]
        filled = filled / max(float(filled.sum()), 1e-300)
        seen = find_squares(filled, error)
        few = filled < LITTLE_OF_RANGE * (filled.mean() if seen is None else seen)
        found += [f"{name}/{describe_column(columns, column)}" for column in np.flatnonzero(varies)[few].tolist()]
    if found:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        warnings.warn(
            f"rows fill little of the bounds of {', '.join(found[:MOST_NAMED])}{more}, and with epsilon="
            f"{noise.privacy.epsilon:g} noise will hide how little: such columns count for less than half of what they "
            "do without noise. What helps: bounds nearer to what is usual, more rows or a larger epsilon.",
            UserWarning,
            stacklevel=6,
        )


def _widths(clients: Mapping[str, Views]) -> list[int]:
    """Return the features of each view, in the order of the bounds: that in which sites name views."""
    return [math.prod(shape) for shape in shapes_by_view(clients.values()).values()]


def _measure_setting(
    noise: Noise, masks: SecureSummation | None, clients: Mapping[str, Views], n_clusters: int
) -> NoisySetting:
    """Return the sizes of a run with noise on rows that are in this process."""
    rows = sum(views.n_rows for views in clients.values())
    releases = 1.0 if masks is not None and masks.shared_noise else float(len(clients))
    weight = noise.unit.weigh(rows / len(clients))
    return NoisySetting(noise.privacy, max(rows, 1), tuple(_widths(clients)), n_clusters, releases, weight)


def _say_expectation(
    noise: Noise, masks: SecureSummation | None, clients: Mapping[str, Views], n_clusters: int
) -> None:
    """Say before a run what it can be expected to find; warn where that is little."""
    privacy, rows = noise.privacy, sum(views.n_rows for views in clients.values())
    shares_noise = masks is not None and masks.shared_noise
    setting = _measure_setting(noise, masks, clients, n_clusters)
    share, luck = setting.expect_share()
    text = (
        f"With epsilon={privacy.epsilon:g}, {rows} rows and {n_clusters} clusters this run can be expected to find "
        f"about {share:.0%} of what a run without noise finds, give or take {luck:.0%}"
    )
    LOG.info("%s.", text)
    if share < LITTLE:
        better = "more rows, a larger epsilon or fewer clusters"
        better += "" if shares_noise else ", or secure=True, with which the sites share one noise"
        warnings.warn(f"{text}: clusters will mean little. What helps: {better}.", UserWarning, stacklevel=6)


def make_guards(
    terms: SealedTerms, sites: Mapping[str, Any], checkpoint: Path | None, run: str = ""
) -> dict[str, SealedGuard]:
    """Make the guard of each site in this process, with a ledger of its own if there is noise.

    A run that a privacy plan does not allow is refused; what the run itself has released before, if it is resumed, is
    part of its budget.
    """
    guards: dict[str, SealedGuard] = {}
    if terms.is_open:
        return guards
    plan = None if terms.noise is None else keep_plan(terms.noise.privacy)
    for site in sites:
        noise = None
        if terms.noise is not None:
            privacy, path = terms.noise.privacy, None
            folder = privacy.ledger
            if folder is None and checkpoint is not None:  # beside it: a checkpoint may be removed, a ledger never
                folder = checkpoint.absolute().with_name(f"{checkpoint.name}.ledger")
            if folder is not None:
                path = ledger_file(folder, site)
            noise = SiteNoise(privacy, Ledger(path, site))
            others = [release for release in noise.ledger.releases() if release.run != run]
            if plan is not None and (why := plan.refuse(others, privacy)):
                raise ChoiceError(
                    f"site {site!r}: the privacy plan does not allow this run: {why}. Use a smaller epsilon, or wait."
                )
        guards[site] = SealedGuard(noise, None if terms.masks is None else SecureSite(site, simulated=True))
    return guards


def announce(terms: SealedTerms) -> list[Shared]:
    """Return the terms for sites in this process before a run with noise or masks; nothing in the open."""
    return [] if terms.is_open else [terms.protect(Terms(secrets.token_hex(8)))]


def list_releases(guards: Mapping[str, Any], board: Board) -> dict[str, Records]:
    """List what each site in this process released in a run, by its ledger; empty without noise."""
    ledgers = {site: guard.noise.ledger for site, guard in guards.items() if getattr(guard, "noise", None) is not None}
    return {site: Records(map(asdict, ledger.releases(board.get(Terms).run))) for site, ledger in ledgers.items()}


def find_total_spent(
    model: Any, terms: SealedTerms, guards: Mapping[str, Any], releases: Mapping[str, Any]
) -> tuple[float, float] | None:
    """Compute (epsilon, delta) of all known releases of any one site: by the ledgers of a folder, else the fit's.

    None without noise.
    """
    if terms.noise is None:
        return None
    privacy = terms.noise.privacy
    if privacy.ledger is not None:
        ledgers = [guard.noise.ledger for guard in guards.values()]
        return max(float(ledger.spent(None, privacy.delta, privacy.neighbours)) for ledger in ledgers), privacy.delta
    fitted = getattr(model, "releases_", {})
    known = ([Release(**line) for line in (*fitted.get(site, ()), *lines)] for site, lines in releases.items())
    return max(spent_on(lines, privacy.delta, privacy.neighbours) for lines in known), privacy.delta


def add_spent(
    model: Any,
    terms: SealedTerms,
    guards: Mapping[str, Any],
    made: dict[str, Records],
    spent: tuple[float, float] | None,
) -> tuple[float, float] | None:
    """Return the budget that a fit and its updates have spent together; `spent` is that of the last one."""
    if made and model.privacy is not None and model.privacy.ledger is not None:
        return find_total_spent(model, terms, guards, made)
    return None if vars(model)["privacy_spent_"] is None else add_budgets(model, spent)


def add_budgets(model: Any, spent: tuple[float, float] | None) -> tuple[float, float] | None:
    """Add what was spent to what the fit of a model has spent, where single releases are not all known here."""
    earlier = getattr(model, "privacy_spent_", None)
    if spent is None or earlier is None:
        return spent
    return earlier[0] + spent[0], earlier[1] + spent[1]


def is_sealed(model: Any) -> bool:
    """Tell whether a model was fitted with noise or masks."""
    return model.privacy is not None or bool(model.secure)


def refuse_new_views(model: Any, new: Sequence[str]) -> None:
    """Refuse views that a model with a budget does not know; a model of one site has none."""
    if new and getattr(model, "privacy", None) is not None:
        raise DataError(
            f"view {new[0]!r} is new, and privacy goes with an update of known views only: nothing bounds what a row "
            "can say of it. Leave it out, or fit anew."
        )
