"""Options of estimators that say how a site makes its own model from the global one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from fedhk._options import Option
from fedhk._typing import FloatArray
from fedhk.data.views import Views
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.descent import improve
from fedhk.model.fitted import FittedModel
from fedhk.model.passes import Assignment, Passes
from fedhk.model.preparation import localise
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal.calibration import Calibration
from fedhk.personal.clusters import Clusters
from fedhk.personal.component import REPORTED, Component, OwnModel, Share, fit_components, keep_clusters
from fedhk.personal.factors import choose_centers
from fedhk.personal.offset import Shift, measure_offset_share
from fedhk.personal.outcome import SiteOutcome
from fedhk.personal.rounds import KeptModel, OwnRounds, measure_terms, run_site_round, same_model
from fedhk.personal.sizes import Sizes
from fedhk.personal.spread import Spread
from fedhk.personal.view_weights import ViewWeights


@dataclass(frozen=True)
class SiteInputs:
    """What a site's own model is learned from; model and rows are calibrated."""

    model: FittedModel  # the global one
    rows: Rows
    calibrations: Sequence[Calibration]  # that of the run; () where there is none
    summaries: Sequence[ClusterSummary]  # clusters over all sites: how large, how far rows spread; () if not known
    site: str
    learn_weights: bool
    workers: int
    kept: Sequence[KeptModel] = ()  # what the site has kept of the rounds


class Personal(Option, ABC):
    """How a site makes its own model from the global one."""

    uses_summary: ClassVar[bool]
    """Whether sites need the sizes and spreads of clusters over all sites."""

    uses_form: ClassVar[bool] = False
    """Whether sites need the low-rank form of the centres, if they have one."""

    def check(self, *, learn_weights: bool, n_clusters: int) -> None:
        """Refuse settings that have no effect or no meaning in a run with so many clusters."""

    def check_sites(self, names: Sequence[str]) -> None:
        """Refuse settings for sites that are not among `names`."""

    @abstractmethod
    def fit_rows(self, inputs: SiteInputs) -> OwnModel:
        """Fit the own model of a site."""

    def fit(
        self,
        model: FittedModel,
        calibrations: Sequence[Calibration],
        summaries: Sequence[ClusterSummary],
        views: Views,
        *,
        site: str,
        learn_weights: bool,
        workers: int = 1,
        kept: Sequence[KeptModel] = (),
        assigned: Assignment | None = None,
        taken_out: Sequence[FloatArray] = (),
    ) -> SiteOutcome:
        """Fit a site's own model from the global one and the site's rows; `SiteInputs` explains the arguments.

        `assigned` are the memberships, labels and objective of the rows in the global model, if they are known.
        `taken_out` is what each calibration took out of the rows of the site; it is measured if it is not given.
        Where there is a calibration, the references of the model are in the units of the calibrated rows.
        """
        common, local = model.parameters, replace(model, references=localise(model.references, views))
        for calibration, measured in zip_longest(calibrations, taken_out):
            calibrated = calibration.apply(Rows(views, calibration.before(local.references)), measured)
            local = replace(local, references=calibrated.references)
        rows = local.rows(views)
        own = self.fit_rows(SiteInputs(local, rows, calibrations, summaries, site, learn_weights, workers, kept))
        if assigned is None:
            with Passes(rows, common.n_clusters, workers) as scan:
                assigned = scan.assign(common)
        memberships, labels, objective = assigned
        if own.parameters is not common or own.rows is not rows:
            with Passes(own.rows, common.n_clusters, workers) as scan:
                memberships, labels, objective = scan.assign(own.parameters)
        shares = dict(own.shares)
        if Shift.name in shares and any(calibration.shift > 0 for calibration in calibrations):
            # calibration has removed most of the offset already: the share that is reported is of the whole difference
            shares[Shift.name] = measure_offset_share(Rows(views, model.references), common, labels)
        found = replace(local, parameters=own.parameters)
        if own.rows is not rows:  # the site reads its rows on a scale of its own
            found = replace(found, references=own.rows.references)
        terms = objective, own.center_distance, own.view_distance
        return SiteOutcome(found, labels, memberships, assigned[1], *terms, shares, own.tensor_distance)


@dataclass(frozen=True)
class GradientStep(Personal):
    """One gradient step of each site from the global model (Algorithm 1).

    Parameters
    ----------
    step : float, default=0.0
        beta: how far the site's model goes from the global one (0) to the full update of its own rows (1).

    Notes
    -----
    The gradient 2 t v^alpha (W a - N) is divided by its curvature 2 t v^alpha W: the paper's bare gradient grows with
    the rows and the heat time, so that no one step size suits two sites. In this form the site's own objective cannot
    rise for any step in [0, 1], and view weights stay on the simplex without a projection. Centres of low rank lose
    their form: a site's own are as free as its rows ask.
    """

    uses_summary: ClassVar[bool] = False

    step: float = 0.0

    def __post_init__(self) -> None:
        self._keep_number("step", lambda step: 0 <= step <= 1, "a number from 0 to 1")

    def fit_rows(self, inputs: SiteInputs) -> OwnModel:
        """Take the step in centres (`eqn:personalized_A_EFKMVFC`) and view weights (`eqn:personalized_V_EFKMVFC`)."""
        own = replace(OwnModel.start(inputs.rows, inputs.model.parameters), shares={})
        if self.step == 0 or inputs.rows.n_rows == 0:
            return own
        common = own.common.free()
        with Passes(inputs.rows, common.n_clusters, inputs.workers) as scan:
            local = improve(common, scan.statistics(common), learn_weights=inputs.learn_weights)
        centers = tuple(a + self.step * (b - a) for a, b in zip(common.centers, local.centers, strict=True))
        weights = common.view_weights + self.step * (local.view_weights - common.view_weights)
        return replace(own, parameters=replace(common, centers=centers, view_weights=weights))


@dataclass(frozen=True)
class Personalization(Personal):
    """A model for each site that takes from its own rows what held-out rows confirm (Algorithm 4).

    With everything "auto" a site may have an offset of its own that all its clusters share, its own scale of each
    feature, its own cluster sizes and centres, and its own view weights where view weights are learned. Of each it
    takes the share that the other half of its rows confirms: sites that are like all others take next to nothing.

    Parameters
    ----------
    centers : "auto", float or dict, default="auto"
        lambda: share of a site's own centres in its model, from 0, the global centres, to 1, those of its own rows; one
        for all sites, or by site. "auto", and a site that the dict does not name, learns it on held-out rows, and with
        a low-rank form that binds one share for each part of the form. With a number the centres are all that a site
        has of its own: no offset, scale or cluster sizes are learned.
    view_weights : "auto", float or dict, default="auto"
        rho: the same for view weights, where they are learned.
    center_pull : float or None, default=None
        gamma of R_person: rows by which the global centre pulls each own one, instead of `centers`. A cluster with as
        many rows at the site goes half of the way; small sites lean on the global model.
    view_pull : float or None, default=None
        eta of R_view: rows by which the global view weights pull each site's own, instead of `view_weights`.
    components : tuple of str or None, default=None
        What a site may have of its own, and nothing else: some of "shift", "spread", "sizes", "centers",
        "view_weights". With ("centers",) and `center_pull` a site minimises J + gamma R_person and nothing beside it.
        None is all that fits the other options.
    clusters : dict of str to int, default={}
        c(l): clusters of single sites, at most as many as there are. A site's own model has the common clusters that
        most of its rows are in; sites that are not named have all.

    Examples
    --------
    >>> from fedhk.personal.options import Personalization
    >>> Personalization(centers={"rome": 0.5}, clusters={"rome": 3}).clusters
    {'rome': 3}
    """

    uses_summary: ClassVar[bool] = True
    uses_form: ClassVar[bool] = True

    centers: Share | dict[str, Share] = "auto"
    view_weights: Share | dict[str, Share] = "auto"
    center_pull: float | None = None
    view_pull: float | None = None
    components: tuple[str, ...] | None = None
    clusters: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._set("clusters", _check_clusters(self.clusters))
        if self.components is not None:
            self._set("components", _check_components(self.components))
        for name, instead in (("centers", "center_pull"), ("view_weights", "view_pull")):
            given, pull = getattr(self, name), getattr(self, instead)
            if isinstance(given, Mapping):
                checked = {str(site): check_share(f"{name}[{site!r}]", share) for site, share in given.items()}
                self._set(name, checked)
            else:
                self._set(name, check_share(name, given))
            if given != "auto" and not self._has(name):
                raise ValueError(f"{name}={given!r} has no effect with components={self.components!r}: add {name!r}.")
            if pull is None:
                continue
            self._keep_number(instead, lambda rows: rows >= 0, "a number of 0 or more")
            if not self._has(name):
                raise ValueError(f"{instead}={pull!r} has no effect with components={self.components!r}: add {name!r}.")
            if given != "auto":
                raise ValueError(
                    f"{instead}={pull!r} is used instead of {name}={given!r}, which would then have no effect: give "
                    "one of the two."
                )

    def check(self, *, learn_weights: bool, n_clusters: int) -> None:
        for site, number in self.clusters.items():
            if number > n_clusters:
                raise ValueError(
                    f"clusters[{site!r}]={number} must be at most n_clusters={n_clusters}: the clusters of a site are "
                    "some of the common ones."
                )
        if learn_weights:
            return
        for name, default in (("view_weights", "auto"), ("view_pull", None)):
            if getattr(self, name) != default:
                raise ValueError(
                    f"Personalization({name}={getattr(self, name)!r}) has no effect where view weights are not "
                    f"learned: give the estimator view_weights='learned', or leave {name} out."
                )

    def check_sites(self, names: Sequence[str]) -> None:
        check_site_names({name: getattr(self, name) for name in ("centers", "view_weights", "clusters")}, names)

    def fit_rows(self, inputs: SiteInputs) -> OwnModel:
        if inputs.rows.references is not inputs.model.references:
            raise TypeError("Personalization() cannot be used with embedded rows: use GradientStep().")
        components, spreads = self.list_components(inputs)
        own = OwnModel.start(inputs.rows, inputs.model.parameters)
        for spread in spreads:
            own = spread.fit_rows(own)
        made = fit_components(own, components, workers=inputs.workers)
        shares = {component.share for component in components}
        is_learned = "auto" in shares and shares <= {"auto", 0.0}  # what was given is kept as it is
        return keep_clusters(own, made, inputs.workers) if is_learned else made

    def _has(self, component: str) -> bool:
        return self.components is None or component in self.components

    def list_components(self, inputs: SiteInputs) -> tuple[list[Component[Statistics]], list[Spread]]:
        """List what a site may have of its own, in the order in which it is learned; its scale stands apart.

        Without a summary the site's own scale and cluster sizes are not looked at. Where the calibration says that
        sites do not differ by how they measure, they have the common centres.
        """
        share, pull = _share_at(inputs.site, self.centers, self.center_pull)
        all_fit = share == "auto" or self.center_pull is not None or self.components is not None
        others: Share = "auto" if all_fit else 0.0
        shift = others
        if not all(calibration.offsets for calibration in inputs.calibrations):
            shift, share, pull = 0.0, 0.0, 0.0
        components: list[Component[Statistics]] = [
            Shift(share=shift),
            choose_centers(inputs.model.parameters, share, pull),
            *(Sizes(share=others, summary=summary) for summary in inputs.summaries),
        ]
        if inputs.learn_weights:
            share, pull = _share_at(inputs.site, self.view_weights, self.view_pull)
            components.append(ViewWeights(share=share, pull=pull))
        components = [component for component in components if self._has(component.name)]
        if inputs.site in self.clusters:
            components.append(Clusters(number=self.clusters[inputs.site]))
        scaled = others == "auto" and self._has(Spread.name)
        return components, [Spread(summary=summary) for summary in inputs.summaries if scaled]


@dataclass(frozen=True)
class RoundModel(Personal):
    """The own model that a site kept of the rounds of `fedhk.protocols.Personalized`.

    A site that has not seen the final model, because it missed the round or is new, makes its own from it.
    """

    uses_summary: ClassVar[bool] = False

    options: OwnRounds

    def fit_rows(self, inputs: SiteInputs) -> OwnModel:
        common, kept = inputs.model.parameters, list(inputs.kept)
        own = OwnModel.start(inputs.rows, common)
        if not inputs.rows.n_rows:
            return own
        found = next((model for model in kept if same_model(model.common, common)), None)
        rounds = 0 if found is not None else 1 if kept else 2  # a new site has no local model to blend yet
        for _ in range(rounds):
            made = run_site_round(
                inputs.rows,
                common,
                kept[-1:],
                self.options,
                site=inputs.site,
                learn_weights=inputs.learn_weights,
                workers=inputs.workers,
            )
            found, kept = made.kept, [made.kept]
        return own if found is None else self._keep(own, found, inputs.workers)

    def _keep(self, own: OwnModel, found: KeptModel, workers: int) -> OwnModel:
        with Passes(own.rows, own.common.n_clusters, workers) as scan:
            terms = measure_terms(own.common, found.own, scan.statistics(found.own))
        return replace(
            own,
            parameters=found.own,
            step=np.hstack(found.own.centers) - np.hstack(own.common.centers),
            shares=found.shares,
            view_distance=terms.view_distance,
            tensor_distance=terms.tensor_distance,
        )


def _check_components(given: Any) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, list | tuple) else (given,)
    unknown = [name for name in names if name not in REPORTED]
    if unknown or not names:
        raise ValueError(f"components={given!r} must be None, or some of {REPORTED}; {unknown[:5]} are not.")
    return names


def _check_clusters(given: Any) -> dict[str, int]:
    if not isinstance(given, Mapping):
        raise ValueError(f"clusters={given!r} must say how many clusters each site has, as in {{'rome': 3}}.")  # noqa: TRY004
    for site, number in given.items():
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
            raise ValueError(f"clusters[{site!r}]={number!r} must be a whole number from 1 on.")
    return {str(site): int(number) for site, number in given.items()}


def is_default(personal: Personal) -> bool:
    """Tell whether these are the default options of an estimator."""
    return personal in (GradientStep(), Personalization())


def check_site_names(given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse values by site for sites that are not among `names`; other values are for all sites."""
    for name, values in given.items():
        unknown = sorted(site for site in values if site not in names) if isinstance(values, Mapping) else []
        if unknown:
            raise ValueError(
                f"{name} has values for sites {unknown[:5]} that are not there; sites are {list(names)[:10]}."
            )


def _share_at(site: str, given: Share | Mapping[str, Share], pull: float | None) -> tuple[Share, float]:
    """Return the share and the pull of a component: with a pull the share is 1, without it as given."""
    if pull is not None:
        return 1.0, pull
    return given.get(site, "auto") if isinstance(given, Mapping) else given, 0.0


def check_share(name: str, value: Any) -> Share:
    """Read a share, or "auto"."""
    if isinstance(value, str) and value == "auto":
        return "auto"
    if isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1:
        return float(value)
    raise ValueError(f"{name}={value!r} must be 'auto' or a number from 0 to 1.")
