"""FedHK-MVC-Person, Algorithm 4: clusters that mean the same at every site, and a model of its own for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

from sklearn.utils._param_validation import StrOptions

from fedhk._records import Records
from fedhk.data.views import Views
from fedhk.estimators.base import LowRankAttributes
from fedhk.estimators.choices import RANK_CONSTRAINT, SHARE, check_calibration
from fedhk.estimators.efkmvc import EFKMVC, RunChoices
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.federation.board import Board
from fedhk.federation.entries import Summary
from fedhk.federation.phases.frame import Frame
from fedhk.federation.protocols import PROTOCOLS, make_protocol
from fedhk.federation.protocols.averaging import Averaging
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.protocols.personalized import Personalized
from fedhk.federation.run import Run
from fedhk.federation.site import Site
from fedhk.model.passes import own_threads
from fedhk.personal.objective import global_objective
from fedhk.personal.options import Personal, Personalization


class WithParts(StrOptions):  # type: ignore[misc]
    """Names of decompositions with the parts that a site may have of its own."""

    def __str__(self) -> str:
        return f"{super().__str__()} (a site's own model moves G, P, Q and R, which other forms do not have)"


@dataclass(eq=False, repr=False)
class FedHKPerson(LowRankAttributes, EFKMVC):
    """Personalised federated multi-view clustering (FedHK-MVC-Person, Algorithm 4).

    Sites that differ by sensor, person or protocol get a model of their own, in which cluster k still means what it
    means everywhere. First a calibration is chosen: how much of each site's own mean and spread is taken out of its
    rows. In the rounds each site keeps an offset of its own, so that the common centres are learned from rows as if all
    were of one site. At the end each site moves them towards its own rows, as far as held-out rows confirm it.
    What is personal never leaves a site.

    Parameters
    ----------
    n_clusters : int, "auto", (int, int) or str, default=8
        Number of clusters, or numbers among which it is found; as in `EFKMVC`.
    decomposition : {"tucker", "parafac2"} or None, default=None
        Low-rank form of the common centres; see `FedHKTucker` and `FedHKParafac2`. No other one can be given, not even
        one of your own: a site's own model moves G, P, Q and R each by a share of its own, and only these forms have
        them.
    calibration : "auto", None, float or (float, float), default="auto"
        Shares of a site's own mean and spread that are taken out. "auto" is none, or all of the mean and half of the
        spread: that under which views agree most about the clusters, and clusters of all sites with those that sites
        find alone (`choices_`). Where sites differ by no more than chance, or by which clusters they have and not by
        how they measure, that is none, and then no site has centres of its own. None is none, and the models that
        `personalization` asks for; so is "auto" with `protocol="personalized"`.
    personalization : "auto", float, dict or fedhk.Personalization, default="auto"
        lambda: share of a site's own centres in its model, one for all or by site. "auto" learns it on held-out rows,
        and with a decomposition of binding rank one for each of its parts. `fedhk.Personalization` has the options:
        view weights of a site's own (rho), and pulls towards the common model instead of shares (gamma, eta).
    protocol : {"auto", "statistics", "cores", "centers", "factors", "personalized"} or Protocol, default="auto"
        As in `FedHKTucker`; without a decomposition "auto" is "statistics" or "cores" too. With "centers" (no
        decomposition) and "factors" (with one) sites say where their centres are, and `calibration` must be None: an
        offset of a site is kept only where sums are sent. "personalized" (`fedhk.protocols.Personalized`) is the
        paper's Algorithm 4: own models that sites keep from round to round; its options take the place of
        `personalization`.
    rank
        As in `FedHKTucker`.
    max_rounds, participation, ...
        As in `EFKMVC`, and so are all other parameters.

    Attributes
    ----------
    client_models_ : dict of str to HeatKernelMVC
        Each site's own model.
    labels_, memberships_ : dict of str to array
        Of the site's own model, whose `predict` gives them again; `global_labels_` are those of the common model in the
        site's frame. `predict` of this model knows no site, and so has no frame.
    personalization_ : list of dict
        What each site took of its own rows: site, component ("shift", "spread", "sizes", "centers", "view_weights";
        with a decomposition of binding rank also "core", "cluster_factor", "feature_factors", "view_factor"), value.
        With a calibration, "shift" is the share of the site's offset from the common centres that held-out rows
        confirm. With a decomposition "centers" is what its parts together take.
    personal_objective_ : dict of str to float
        The objective with a model of its own at every site, `eqn:fed_global_obj_personalization`, per row: "objective",
        "center_distance" (R_person), "view_distance" (R_view), "tensor_distance" (R_tensor, with
        `fedhk.protocols.Personalized` and a decomposition, else 0), and "total", in which they count `center_pull`,
        `view_pull` and `tensor_pull` times (0 where that is None). Sites count by their rows, or with `Personalized`
        and `protocol=Averaging(weights="quality")` by the quality of their models.
    calibration_ : dict or None
        Shares of mean and spread ("shift", "spread"), what units were divided by per view ("factors"), and whether
        sites have "offsets".
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = EFKMVC._parameter_constraints | {
        "protocol": [StrOptions(set(PROTOCOLS)), Protocol],
        "decomposition": [None, WithParts({"tucker", "parafac2"})],
        "rank": RANK_CONSTRAINT,
        "calibration": [None, StrOptions({"auto"}), SHARE, "array-like"],
        "personalization": [StrOptions({"auto"}), SHARE, dict, Personal],
    }
    _stored: ClassVar[tuple[str, ...]] = (
        *EFKMVC._stored,
        "personalization_",
        "personal_objective_",
        "calibration_",
    )

    _: KW_ONLY
    protocol: str | Protocol = "auto"
    decomposition: str | None = None
    rank: Any = "auto"
    calibration: Any = "auto"
    personalization: Any = "auto"

    keeps_offsets: ClassVar[bool] = True

    def find_calibration(self, run: RunChoices) -> str | tuple[float, float] | None:
        shares = check_calibration(self.calibration)
        if not isinstance(run.settings.init, str):
            if not isinstance(self.calibration, str) and shares is not None:
                raise ValueError(
                    f"calibration={self.calibration!r} has no effect where init gives centres: they are those of rows "
                    "as they come. Use calibration=None, or let the start be chosen."
                )
            return None
        if isinstance(run.protocol, Personalized) and isinstance(shares, str):
            return None
        if shares is not None and isinstance(run.protocol, Averaging | Personalized):
            raise ValueError(
                f"protocol={self.protocol!r} brings together where the centres of sites are, and "
                f"calibration={self.calibration!r} lets sites keep an offset of their own: give calibration=None, or "
                "protocol='statistics' or 'auto'."
            )
        return shares

    def _personal(self) -> Personal:
        given = self.personalization
        if isinstance(given, Personal):
            return given
        try:
            return Personalization(centers=given)
        except ValueError as error:
            raise ValueError(f"personalization={given!r}: {error}") from error

    def _keep_model(self, run: Run, clients: Mapping[str, Views]) -> None:
        super()._keep_model(run, clients)
        self._calibrations = tuple(frame.calibration for frame in run.board.find(Frame))
        self._summaries = tuple(entry.summary for entry in run.board.find(Summary))
        self.calibration_ = next((found.describe() for found in self._calibrations), None)

    def _keep_outcomes(self, board: Board, sites: Mapping[str, Site]) -> None:
        """Set what sites have learned, and their joint objective; with noise or masks it stays at the sites."""
        super()._keep_outcomes(board, sites)
        self.personalization_ = Records(
            {"site": site, "component": name, "value": value}
            for site, report in self.site_reports_.items()
            for name, value in report.shares.items()
        )
        self.personal_objective_: dict[str, float] = {}
        if self.site_reports_:
            protocol, personal = make_protocol(self.protocol), self._personal()
            terms = [report.terms for report in self.site_reports_.values()]
            if isinstance(protocol, Personalized):
                self.personal_objective_ = protocol.measure(terms)
                return
            tau = protocol.tau if isinstance(protocol, Averaging) and protocol.weights == "quality" else None
            self.personal_objective_ = global_objective(
                terms,
                temperature=tau,
                center_pull=float(getattr(personal, "center_pull", None) or 0.0),
                view_pull=float(getattr(personal, "view_pull", None) or 0.0),
            )

    def personalize(self, X: Any, name: str = "site") -> HeatKernelMVC:
        """Make a model for a new site, from this model and the site's own rows.

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
        model = self._model
        views = model.fold(self._read_new(X, model.view_names, model.widths, model.columns))
        inner = replace(model, folded={})
        learn = isinstance(self.view_weights, str) and self.view_weights == "learned"
        with own_threads() as workers:
            outcome = self._personal().fit(
                inner, self._calibrations, self._summaries, views, site=name, learn_weights=learn, workers=workers
            )
        own = replace(outcome.model, folded=model.folded, columns=model.columns)
        return self._site_model(replace(outcome, model=own))
