"""FedHK-MVC-Person, Algorithm 4: clusters that mean the same at every site, and a model of its own for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from fedhk._records import Records
from fedhk.data.views import Views, check_views
from fedhk.estimators.choices import SHARE, check_calibration
from fedhk.estimators.efkmvc import SHARED
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.outcome import SiteOutcome
from fedhk.estimators.tensor_centers import TensorCenters
from fedhk.federation.site import aligned, calibrated_rows
from fedhk.federation.state import Plan, ServerState
from fedhk.model.fitted import FittedModel
from fedhk.model.passes import Passes, own_threads
from fedhk.model.rows import Rows
from fedhk.personal.calibration import Calibration
from fedhk.personal.objective import SiteReport, global_objective
from fedhk.personal.personalise import offset_share, personalise
from fedhk.personal.step import Personal, Wanted

# What a site may have of its own, in the order of `personalization_`.
COMPONENTS = ("shift", "spread", "sizes", "centers", "view_weights")

PULL = Interval(Real, 0, None, closed="left")

# Protocols in which sites say where their centres are: without an offset of their own, and so without a calibration.
AVERAGES = ("centers", "factors")


@dataclass(eq=False, repr=False)
class FedHKPerson(TensorCenters):
    """Personalised federated multi-view clustering (FedHK-MVC-Person, Algorithm 4).

    Sites that differ by sensor, person or protocol get a model of their own, in which cluster k still means what it
    means everywhere. First a calibration is chosen: how much of each site's own mean and spread is taken out of its
    rows. In the rounds each site keeps an offset of its own, so that the common centres are learned from rows as if all
    were of one site. At the end each site moves them towards its own rows, as far as held-out rows confirm it.
    What is personal never leaves a site, but for its means and spreads if a calibration is to be chosen.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    decomposition : {"tucker", "parafac2"} or None, default=None
        Low-rank form of the common centres; see `FedHKTucker` and `FedHKParafac2`.
    calibration : "auto", None, float or (float, float), default="auto"
        Shares of a site's own mean and spread that are taken out. "auto" is none, or all of the mean and half of the
        spread: that under which clusters explain most. Where sites differ by which clusters they have and not by how
        they measure, that is none, and then no site has a model of its own unless offsets make clusters clearer. None
        is none, and the models that `personalization` asks for.
    personalization : "auto", float or dict, default="auto"
        lambda: share of a site's own centres in its model, one for all or by site. "auto" learns it on held-out rows,
        and with a decomposition of binding rank one for each of its parts. With the protocol "factors" a number is also
        the share of a site's own factors in its start of a round.
    view_personalization : "auto", float or dict, default="auto"
        rho: the same for view weights, where they are learned.
    center_pull : float or None, default=None
        gamma of R_person: rows by which the common centre pulls each own one, instead of `personalization`. Small sites
        lean on the common model.
    view_pull : float or None, default=None
        eta of R_view: rows by which the common view weights pull each site's own, instead of `view_personalization`;
        used with `view_weights="learned"`.
    protocol : {"auto", "statistics", "cores", "centers", "factors"}, default="auto"
        As in `FedHKTucker`; without a decomposition "auto" is "statistics" or "cores" too. With "centers" (no
        decomposition) and "factors" (with one) sites say where their centres are, averaged by `client_weights`, and
        `calibration` must be None: an offset of a site is kept only where sums are sent.
    rank, precision, refresh_every, aggregation
        As in `FedHKTucker`.
    client_weights : {"mass", "rows", "quality"}, default="mass"
        As in `EFKMVC`. With "quality" sites also count so in `personal_objective_`, else by their rows.
    max_rounds, local_passes, quality_temperature, fraction, min_sites, timeout
        As in `EFKMVC`, and so are all other parameters.

    Attributes
    ----------
    client_models_ : dict of str to HeatKernelMVC
        Each site's own model.
    labels_, memberships_ : dict of str to array
        Of the site's own model; `global_labels_` are those of the common model in the site's frame.
    personalization_ : list of dict
        What each site took of its own rows: site, component ("shift", "spread", "sizes", "centers", "view_weights";
        with a decomposition of binding rank also "core", "cluster_factor", "feature_factors", "view_factor"), value.
        With a calibration, "shift" is the share of the site's offset from the common centres that held-out rows
        confirm. With a decomposition "centers" is what its parts together take.
    personal_objective_ : dict of str to float
        The objective with a model of its own at every site, `eqn:fed_global_obj_personalization`, per row: "objective",
        "center_distance" (R_person), "view_distance" (R_view), and "total", in which they count `center_pull` and
        `view_pull` times (0 where that is None).
    calibration_ : list
        Shares of mean and spread, what units were divided by per view, and whether sites have offsets.
    cluster_centers_, view_weights_, history_, ...
        As in `EFKMVC`.

    Examples
    --------
    >>> from fedhk import FedHKPerson
    >>> from fedhk.datasets import make_sites
    >>> data = make_sites(4, 80, n_clusters=3, shift=1.5, random_state=0)
    >>> model = FedHKPerson(n_clusters=3, random_state=0).fit(data.sites)
    >>> sorted({record["component"] for record in model.personalization_})
    ['centers', 'shift', 'sizes', 'spread', 'view_weights']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = TensorCenters._parameter_constraints | {
        "protocol": [StrOptions({"auto", "cores", "statistics", *AVERAGES})],
        "decomposition": [None, StrOptions({"tucker", "parafac2"})],
        "calibration": [None, StrOptions({"auto"}), SHARE, "array-like"],
        "personalization": [StrOptions({"auto"}), SHARE, dict],
        "view_personalization": [StrOptions({"auto"}), SHARE, dict],
        "center_pull": [None, PULL],
        "view_pull": [None, PULL],
    }
    _stored: ClassVar[tuple[str, ...]] = (
        *TensorCenters._stored,
        "personalization_",
        "personal_objective_",
        "calibration_",
    )

    _: KW_ONLY
    decomposition: str | None = None
    calibration: Any = "auto"
    personalization: Any = "auto"
    view_personalization: Any = "auto"
    center_pull: float | None = None
    view_pull: float | None = None

    def _plan(self, clients: dict[str, Views]) -> Plan:
        for name in ("personalization", "view_personalization"):
            check_shares(name, getattr(self, name), list(clients))
        given = not isinstance(self.init, str)
        calibration = None if given else check_calibration(self.calibration)
        check_protocol(self.protocol, self.decomposition, calibration)
        return replace(super()._plan(clients), calibration=calibration, cluster_summary=True)

    def _kept_names(self) -> tuple[str, ...]:
        """What sites learned stays out of a file where noise or masks hide single sites: it has neither."""
        if self.privacy is None and not self.secure:
            return self._stored
        return (*TensorCenters._stored, "calibration_")

    def _blend(self) -> float:
        """Share of a site's own factors in its start of a round: what is learned stays out of the rounds."""
        return 0.0 if isinstance(self.personalization, str | Mapping) else float(self.personalization)

    def _global_model(self, state: ServerState) -> FittedModel:
        model = replace(super()._global_model(state), cluster_summary=state.cluster_summary)
        self.calibration_ = None if state.calibration is None else state.calibration.to_list()
        return (
            model
            if state.calibration is None
            else replace(model, references=state.calibration.in_units(model.references))
        )

    def _hear(self, reports: Mapping[str, SiteReport]) -> None:
        """What sites learned, and what all of them come to together."""
        super()._hear(reports)
        self.personalization_ = Records(
            {"site": site, "component": name, "value": value}
            for site, report in reports.items()
            for name, value in report.shares.items()
        )
        if not reports:  # noise or masks keep what sites learned at the sites
            self.personal_objective_: dict[str, float] = {}
            return
        self.personal_objective_ = global_objective(
            [report.terms for report in reports.values()],
            temperature=float(self.quality_temperature) if self.client_weights == "quality" else None,
            center_pull=float(self.center_pull or 0.0),
            view_pull=float(self.view_pull or 0.0),
        )

    def site_outcome(self, site: str, views: Views, workers: int = 1) -> SiteOutcome:
        model = self._model
        parameters = model.parameters
        views = aligned(views, model.references, model.view_names, site)
        frame, personal = self._own(site, views, workers)
        with Passes(personal.rows, parameters.n_clusters, workers) as scan:
            memberships, labels, objective = scan.assign(personal.parameters)
        with Passes(frame, parameters.n_clusters, workers) as scan:
            global_labels = scan.assign(parameters)[1]
        values = {name: getattr(personal, name) for name in COMPONENTS} | dict(personal.parts)
        if self.calibration_ is not None and self.calibration_[0] > 0:  # most of the offset is in the frame already
            values["shift"] = offset_share(Rows(views, model.references), parameters, labels)
        return SiteOutcome(
            self._site_model(personal, objective),
            labels,
            memberships,
            global_labels,
            objective,
            personal.center_distance,
            personal.view_distance,
            values,
        )

    def personalize(self, X: Any, name: str = "site") -> HeatKernelMVC:
        """A model for a new site, from this model and the site's own rows alone.

        Parameters
        ----------
        X : list or dict of tables
            The site's views.
        name : str
            What the site is called, where `personalization` is given by site.

        Returns
        -------
        HeatKernelMVC
            Its clusters are those of this model.
        """
        check_is_fitted(self)
        model = self._model
        views = check_views(X, names=model.view_names, widths=model.widths, columns=model.columns, missing_views=True)
        with own_threads() as workers:
            _, personal = self._own(name, views, workers)
            with Passes(personal.rows, self.n_clusters_, workers) as scan:
                objective = scan.statistics(personal.parameters).objective
        return self._site_model(personal, objective)

    def _own(self, site: str, views: Views, workers: int) -> tuple[Rows, Personal]:
        """A site's rows in their frame, and its own parameters."""
        rows, parameters = Rows(views, self._model.references), self._model.parameters
        calibration = None if self.calibration_ is None else Calibration.from_list(self.calibration_)
        if calibration is not None:
            rows = calibrated_rows(views, calibration.before(rows.references), calibration)
        learned = None if share_of(self.personalization, site) is None or self.center_pull is not None else 0.0
        wanted = Wanted(
            shift=learned,
            spread=learned,
            sizes=learned,
            centers=None if self.center_pull is not None else share_of(self.personalization, site),
            view_weights=share_of(self.view_personalization, site),
            center_pull=self.center_pull,
            view_pull=self.view_pull,
        )
        if calibration is not None and not calibration.offsets:  # sites differ by which clusters they have
            wanted = replace(wanted, shift=0.0, centers=0.0, center_pull=None)
        learn = isinstance(self.view_weights, str) and self.view_weights == "learned"
        cluster_summary = self._model.cluster_summary
        return rows, personalise(rows, parameters, wanted, cluster_summary, learn_weights=learn, workers=workers)

    def _site_model(self, personal: Personal, objective: float) -> HeatKernelMVC:
        parameters, references = personal.parameters, personal.rows.references
        model = replace(self._model, parameters=parameters, references=references, cluster_summary=None)
        return HeatKernelMVC.from_model(model, self._dtype, {name: getattr(self, name) for name in SHARED}, objective)


def share_of(given: Any, site: str) -> float | None:
    """A site's share: None where it is learned."""
    if isinstance(given, Mapping):
        given = given.get(site, "auto")
    return None if isinstance(given, str) else float(given)


def check_shares(name: str, given: Any, sites: Sequence[str]) -> None:
    """Refuse shares by site that are not between 0 and 1, or of sites that are not there."""
    if not isinstance(given, Mapping):
        return
    unknown = sorted(str(site) for site in given if site not in sites)
    if unknown:
        raise ValueError(f"{name} has values for sites {unknown[:5]} that are not there; sites are {list(sites)[:10]}.")
    for site, value in given.items():
        fits = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1
        if not fits and value != "auto":
            raise ValueError(f"{name}[{site!r}]={value!r} must be 'auto' or a number from 0 to 1.")


def check_protocol(protocol: str, decomposition: str | None, calibration: Any) -> None:
    """Refuse protocols that average centres where sites have offsets, or centres of another form than they need."""
    if protocol not in AVERAGES:
        return
    if protocol == "centers" and decomposition is not None:
        raise ValueError(
            f"protocol='centers' has no place for decomposition={decomposition!r}: an average of centres has not their "
            "form. Use protocol='factors', or 'statistics'."
        )
    if protocol == "factors" and decomposition is None:
        raise ValueError(
            "protocol='factors' sends factors of a decomposition: give decomposition='tucker' or 'parafac2'."
        )
    if calibration is not None:
        raise ValueError(
            f"protocol={protocol!r} averages where the centres of sites are, and "
            f"calibration={calibration!r} lets sites keep an offset of their own: give calibration=None, or "
            "protocol='statistics' or 'auto'."
        )
