"""How a site makes the global model its own: the options of estimators, with one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

from fedhk._options import Option
from fedhk.data.views import Views
from fedhk.embedding.embedded import EmbeddedModel
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal.calibration import Calibration
from fedhk.personal.component import Component, Share
from fedhk.personal.factors import choose_centers
from fedhk.personal.gradient_step import take_gradient_step
from fedhk.personal.offset import Shift, measure_offset_share
from fedhk.personal.outcome import SiteOutcome
from fedhk.personal.own_model import fit_own_model
from fedhk.personal.sizes import Sizes
from fedhk.personal.spread import Spread
from fedhk.personal.view_weights import ViewWeights


class Personal(Option, ABC):
    """A way in which a site makes the global model its own."""

    uses_summary: ClassVar[bool]
    """Whether sites must be told how large clusters are and how far rows spread in them, over all sites."""

    def check(self, *, learn_weights: bool) -> None:  # noqa: B027 - most ways have nothing to refuse
        """Refuse settings that have no effect in a run.

        Parameters
        ----------
        learn_weights : bool
            Whether the run learns view weights.
        """

    def check_sites(self, names: Sequence[str]) -> None:  # noqa: B027
        """Refuse settings for sites that are not among `names`."""

    @abstractmethod
    def fit(
        self,
        model: FittedModel,
        calibrations: tuple[Calibration, ...],
        summaries: tuple[ClusterSummary, ...],
        views: Views,
        *,
        site: str,
        learn_weights: bool,
        workers: int = 1,
    ) -> SiteOutcome:
        """Fit a site's own model from the common one and the site's rows.

        Parameters
        ----------
        model : FittedModel
            The global model; where there is a calibration, its references are in the units of the calibrated rows.
        calibrations : tuple of Calibration
            The calibration of the run; () where there is none.
        summaries : tuple of ClusterSummary
            How large clusters are and how far rows spread in them, over all sites; () where that is not known.
        views : Views
            The site's rows, views in the order of the model.
        site : str
            Name of the site.
        learn_weights : bool
            Whether view weights are learned.
        workers : int
            Threads.
        """


@dataclass(frozen=True)
class GradientStep(Personal):
    """One gradient step of each site from the global model (Algorithm 1).

    Parameters
    ----------
    step : float, default=0.0
        beta: how far the site's model goes from the global one (0) to the full update of its own rows (1).
    """

    uses_summary: ClassVar[bool] = False

    step: float = 0.0

    def __post_init__(self) -> None:
        _check_number("step", self.step, 0, 1)

    def fit(
        self,
        model: FittedModel,
        calibrations: tuple[Calibration, ...],
        summaries: tuple[ClusterSummary, ...],  # noqa: ARG002
        views: Views,
        *,
        site: str,  # noqa: ARG002
        learn_weights: bool,
        workers: int = 1,
    ) -> SiteOutcome:
        model = calibrate_model(model, calibrations, views)
        rows, common = model.rows(views), model.parameters
        own = take_gradient_step(rows, common, float(self.step), learn_weights=learn_weights, workers=workers)
        with Passes(rows, common.n_clusters, workers) as scan:
            memberships, labels, objective = scan.assign(own)
            global_labels = labels if own is common else scan.assign(common)[1]
        return SiteOutcome(replace(model, parameters=own), labels, memberships, global_labels, objective)


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

    Examples
    --------
    >>> from fedhk.personal.options import Personalization
    >>> Personalization(centers={"rome": 0.5})
    Personalization(centers={'rome': 0.5}, view_weights='auto', center_pull=None, view_pull=None)
    """

    uses_summary: ClassVar[bool] = True

    centers: Share | dict[str, Share] = "auto"
    view_weights: Share | dict[str, Share] = "auto"
    center_pull: float | None = None
    view_pull: float | None = None

    def __post_init__(self) -> None:
        for name, instead in (("centers", "center_pull"), ("view_weights", "view_pull")):
            _check_shares(name, getattr(self, name))
            pull = getattr(self, instead)
            if pull is None:
                continue
            _check_number(instead, pull, 0, None)
            if getattr(self, name) != "auto":
                raise ValueError(
                    f"{instead}={pull!r} is used instead of {name}={getattr(self, name)!r}, which would then have no "
                    "effect: give one of the two."
                )

    def check(self, *, learn_weights: bool) -> None:
        if learn_weights:
            return
        for name, default in (("view_weights", "auto"), ("view_pull", None)):
            if getattr(self, name) != default:
                raise ValueError(
                    f"Personalization({name}={getattr(self, name)!r}) has no effect where view weights are not "
                    f"learned: give the estimator view_weights='learned', or leave {name} out."
                )

    def check_sites(self, names: Sequence[str]) -> None:
        for name in ("centers", "view_weights"):
            given = getattr(self, name)
            unknown = sorted(site for site in given if site not in names) if isinstance(given, Mapping) else []
            if unknown:
                raise ValueError(
                    f"{name} has values for sites {unknown[:5]} that are not there; sites are {list(names)[:10]}."
                )

    def components(
        self,
        common: Parameters,
        summaries: Sequence[ClusterSummary],
        *,
        site: str,
        learn_weights: bool,
        offsets: bool = True,
    ) -> tuple[tuple[Component[Statistics], ...], tuple[Spread, ...]]:
        """List what a site may have of its own, in the order in which it is learned, and its scale.

        Parameters
        ----------
        common : Parameters
            The global model.
        summaries : sequence of ClusterSummary
            Without one the site's own scale and cluster sizes are not looked at.
        site : str
            Name of the site.
        learn_weights : bool
            Whether view weights take part.
        offsets : bool
            Whether sites differ by how they measure; if not, they have the common centres.
        """
        share, pull = _pulled(_share_at(self.centers, site), self.center_pull)
        view_share, view_pull = _pulled(_share_at(self.view_weights, site), self.view_pull)
        others: Share = "auto" if share == "auto" or self.center_pull is not None else 0.0
        if not offsets:
            share, pull = 0.0, 0.0
        components: tuple[Component[Statistics], ...] = (
            Shift(share=others if offsets else 0.0),
            choose_centers(common, share, pull),
            *(Sizes(share=others, summary=summary) for summary in summaries),
            *((ViewWeights(share=view_share, pull=view_pull),) if learn_weights else ()),
        )
        return components, tuple(Spread(summary=summary) for summary in summaries if others == "auto")

    def fit(
        self,
        model: FittedModel,
        calibrations: tuple[Calibration, ...],
        summaries: tuple[ClusterSummary, ...],
        views: Views,
        *,
        site: str,
        learn_weights: bool,
        workers: int = 1,
    ) -> SiteOutcome:
        if isinstance(model, EmbeddedModel):
            raise TypeError("Personalization() cannot be used with embedded rows: use GradientStep().")
        common, rows = model.parameters, calibrate_model(model, calibrations, views).rows(views)
        offsets = all(calibration.offsets for calibration in calibrations)
        components, spreads = self.components(
            common, summaries, site=site, learn_weights=learn_weights, offsets=offsets
        )
        own = fit_own_model(rows, common, components, spreads, workers=workers)
        with Passes(own.rows, common.n_clusters, workers) as scan:
            memberships, labels, objective = scan.assign(own.parameters)
        with Passes(rows, common.n_clusters, workers) as scan:
            global_labels = scan.assign(common)[1]
        shares = own.shares
        if any(calibration.shift > 0 for calibration in calibrations):  # most of the offset is taken out already
            shares = shares | {Shift.name: measure_offset_share(Rows(views, model.references), common, labels)}
        return SiteOutcome(
            replace(model, parameters=own.parameters, references=own.rows.references),
            labels,
            memberships,
            global_labels,
            objective,
            own.center_distance,
            own.view_distance,
            shares,
        )


def calibrate_model(model: FittedModel, calibrations: Sequence[Calibration], views: Views) -> FittedModel:
    """Give the global model as a site with these rows has it: with the references of the site's calibrated rows."""
    for calibration in calibrations:
        rows = calibration.apply(Rows(views, calibration.before(model.references)))
        model = replace(model, references=rows.references)
    return model


def _share_at(given: Share | Mapping[str, Share], site: str) -> Share:
    return given.get(site, "auto") if isinstance(given, Mapping) else given


def _pulled(share: Share, pull: float | None) -> tuple[Share, float]:
    """The share and the pull of a component: all of what is pulled, or a share of what is not."""
    return (share, 0.0) if pull is None else (1.0, pull)


def _check_shares(name: str, given: Any) -> None:
    if not isinstance(given, Mapping):
        _check_share(name, given)
        return
    for site, value in given.items():
        _check_share(f"{name}[{site!r}]", value)


def _check_share(name: str, value: Any) -> None:
    fits = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1
    if not fits and not (isinstance(value, str) and value == "auto"):
        raise ValueError(f"{name}={value!r} must be 'auto' or a number from 0 to 1.")


def _check_number(name: str, value: Any, least: float, most: float | None) -> None:
    fits = isinstance(value, Real) and not isinstance(value, bool) and float(value) >= least
    if not fits or (most is not None and float(value) > most):
        wanted = f"a number of {least} or more" if most is None else f"a number from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be {wanted}.")
