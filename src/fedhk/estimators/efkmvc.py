"""E-FKMVC, Algorithm 1: the heat-kernel multi-view model over sites that keep their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from fedhk._records import Records
from fedhk._typing import FloatArray, IntArray
from fedhk.data.checks import check_generator
from fedhk.data.clients import check_clients
from fedhk.data.views import Views, shapes_by_view
from fedhk.errors import CheckpointError
from fedhk.estimators.base import HeatKernelModel
from fedhk.estimators.choices import MODEL_CONSTRAINTS, WHOLE_FROM_ONE, ModelParameters, make_settings
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.outcome import SiteOutcome
from fedhk.estimators.persistence import model_bytes
from fedhk.estimators.progress import show_progress
from fedhk.estimators.trust import privacy_spent, site_states, trusted_plan
from fedhk.federation.checkpoint import load_run, save_run
from fedhk.federation.engines import Engine, RemoteEngine
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.engines.remote import remote_sites
from fedhk.federation.personalization import gradient_step
from fedhk.federation.run import Participation, Run, conduct, resumed
from fedhk.federation.site import aligned
from fedhk.federation.state import Plan, ServerState
from fedhk.model.fitted import FittedModel
from fedhk.model.passes import Passes, own_threads
from fedhk.personal.objective import SiteReport
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.privacy.robust import AGGREGATIONS


@dataclass(eq=False, repr=False)
class EFKMVC(ModelParameters, HeatKernelModel):
    """Federated heat-kernel multi-view clustering (E-FKMVC, Algorithm 1).

    Sites send sums over their rows (`protocol="statistics"`); the server adds them and updates the centres. Any split
    of the rows over sites gives the model that the pooled rows give. What leaves a site: the moments of its features
    once, means of groups of at least two rows once, and one set of sums per round.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    heat_coef, heat_time, fuzzifier, view_weights, view_exponent, scaling, init, n_init, tol, random_state
        As in `HeatKernelMVC`. `init="k-fed"` (the default) and "k-means++" let sites cluster themselves, send weighted
        means, and start from those; "random" draws among those means.
    max_rounds : int, default=100
        Most rounds.
    protocol : {"statistics", "centers"}, default="statistics"
        What a round sends: sums (exact), or each site's own centres after `local_passes` passes, averaged.
    local_passes : int, default=5
        Passes over a site's rows before it answers, with "centers". More means fewer rounds and more drift.
    client_weights : {"mass", "rows", "quality"}, default="mass"
        How centres of sites are averaged, with "centers": by the rows each centre stands for, by the site's rows
        (`eqn:global_A_EFKMVFC`), or by softmax of its mean objective (`eqn:client_weights`). "mass", because a site
        without rows in a cluster should not move it.
    quality_temperature : float, default=10.0
        tau of `eqn:client_weights`.
    personalization_step : float, default=0.0
        beta in [0, 1]: how far each site's own model goes from the global one along its own descent (phase 4 of
        Algorithm 1). 0 gives every site the global model.
    fraction : float, default=1.0
        Share of the sites asked in a round.
    min_sites : int, default=1
        Fewest usable answers for a round to count; with fewer the run stops with an error, and can be resumed.
    timeout : float or None, default=None
        Seconds after which a round goes on without the sites that have not answered.
    checkpoint : path or None, default=None
        Folder that holds the state of the run after every exchange; `fit(sites, resume=True)` goes on from there to the
        same result.
    privacy : fedhk.privacy.DifferentialPrivacy or None, default=None
        A privacy budget for the whole run: sites add noise to all that they send.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only. With `privacy`, sites then share one noise.
    aggregator : {"sum", "robust", "median", "trimmed"}, default="sum"
        How the statistics of sites are brought together. "robust" holds against sites that lie, if they are fewer than
        a quarter; "sum" is exact, and the default because it loses nothing where sites are honest.
    engine : fedhk.federation.engines.RemoteEngine or None, default=None
        The way to sites that are elsewhere, such as `fedhk.flower.FlowerEngine`: then `fit()` takes no rows, and labels
        and own models stay at the sites. None runs all sites in this process.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    labels_, memberships_ : dict of str to array
        Per site, of its own model. `global_labels_` are those of the global model.
    cluster_centers_, view_weights_, objective_, n_iter_, converged_, stop_reason_, n_features_in_
        As in `HeatKernelMVC`, of the global model.
    client_models_ : dict of str to HeatKernelMVC
        Each site's own model.
    history_ : list of dict
        One record a round: round, objective, clients (usable answers), bytes_up, bytes_down, seconds, refused (why, by
        site). Set-up is counted in the first record, the finish in the last. It shows itself as a table.
    privacy_spent_ : (float, float) or None
        (epsilon, delta) of all that left the sites; None where no noise was added, which is no privacy in this sense.

    Examples
    --------
    >>> from fedhk import EFKMVC
    >>> from fedhk.datasets import make_sites
    >>> data = make_sites(3, 60, n_clusters=3, random_state=0)
    >>> model = EFKMVC(n_clusters=3, random_state=0).fit(data.sites)
    >>> sorted(model.labels_) == sorted(data.sites)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = MODEL_CONSTRAINTS | {
        "n_clusters": [WHOLE_FROM_ONE],
        "max_rounds": [WHOLE_FROM_ONE],
        "protocol": [StrOptions({"statistics", "centers"})],
        "local_passes": [WHOLE_FROM_ONE],
        "client_weights": [StrOptions({"mass", "rows", "quality"})],
        "quality_temperature": [Interval(Real, 0, None, closed="left")],
        "personalization_step": [Interval(Real, 0, 1, closed="both")],
        "fraction": [Interval(Real, 0, 1, closed="right")],
        "min_sites": [Interval(Integral, 1, None, closed="left")],
        "timeout": [None, Interval(Real, 0, None, closed="neither")],
        "checkpoint": [None, str, Path],
        "privacy": [None, DifferentialPrivacy],
        "secure": ["boolean", SecureSummation],
        "aggregator": [StrOptions(set(AGGREGATIONS))],
        "engine": [None, HasMethods(["sites", "exchange", "close", "describe", "begin", "deliver"])],
    }

    _: KW_ONLY
    max_rounds: int = 100
    protocol: str = "statistics"
    local_passes: int = 5
    client_weights: str = "mass"
    quality_temperature: float = 10.0
    personalization_step: float = 0.0
    fraction: float = 1.0
    min_sites: int = 1
    timeout: float | None = None
    checkpoint: str | Path | None = None
    privacy: DifferentialPrivacy | None = None
    secure: bool | SecureSummation = False
    aggregator: str = "sum"
    engine: RemoteEngine | None = None

    def fit(self, X: Any = None, y: Any = None, *, resume: bool = False) -> Self:  # noqa: ARG002
        """Find clusters that mean the same at every site.

        Parameters
        ----------
        X : dict or list of sites
            A site is a list or dict of tables; None is a view that it does not have, NaN a missing cell. A view may be
            a tensor, as in `HeatKernelMVC`, of one shape at all sites; a site may also give it flattened (C order).
            Left out where `engine` leads to sites that have their own rows.
        y : ignored
            Present because scikit-learn's pipelines pass it.
        resume : bool, default=False
            Go on from the checkpoint, if there is one.

        Returns
        -------
        self
        """
        self._validate_params()
        clients = check_clients(X) if self.engine is None else remote_sites(self.engine, X)
        plan = trusted_plan(
            self._plan(clients),
            clients,
            privacy=self.privacy,
            secure=self.secure,
            aggregator=self.aggregator,
            fraction=float(self.fraction),
        )
        plan, run = self._checkpointed(plan, resume)
        hooks: list[Callable[[Run], None]] = []
        if self.checkpoint is not None:
            hooks.append(lambda current: save_run(Path(str(self.checkpoint)), plan, current))
        with ExitStack() as stack:
            workers = stack.enter_context(own_threads())
            if self.verbose:
                hooks.append(stack.enter_context(show_progress(self.max_rounds, self.tol)))
            engine = self._engine(clients, plan, workers)
            stack.callback(engine.close)
            participation = Participation(float(self.fraction), int(self.min_sites))
            run = conduct(plan, engine, run, participation=participation, workers=workers, after=hooks)
            self.privacy_spent_ = privacy_spent(plan, run.state)
            single = all(views.dtype == np.float32 for views in clients.values())
            self._take(run, np.dtype(np.float32 if single else np.float64))
            if self.engine is None:
                self._keep({site: self.site_outcome(site, views, workers) for site, views in clients.items()})
            else:
                self._hear(self.engine.deliver(model_bytes(self)))
        return self

    def _engine(self, clients: dict[str, Views], plan: Plan, workers: int) -> Engine:
        """The way to the sites."""
        if self.engine is not None:
            self.engine.begin(plan, self.timeout)
            return self.engine
        folder = None if self.checkpoint is None else Path(self.checkpoint)
        return InProcessEngine(site_states(clients, plan, folder), workers, self.timeout)

    def _plan(self, clients: dict[str, Views]) -> Plan:
        """The plan of the run; what is given per view is in the order in which sites first name the views."""
        shapes = shapes_by_view(clients.values())
        settings = make_settings(self, list(shapes), list(shapes.values()), single_table=False)
        return Plan(
            settings=settings,
            protocol=self.protocol,
            local_passes=int(self.local_passes),
            client_weights=self.client_weights,
            quality_temperature=float(self.quality_temperature),
            max_rounds=int(self.max_rounds),
            tol=float(self.tol),
            seed=int(check_generator(self.random_state).integers(2**31)),
        )

    def _checkpointed(self, plan: Plan, resume: bool) -> tuple[Plan, Run]:
        """The plan and a new run, or the ones that the checkpoint holds."""
        if self.checkpoint is None:
            if resume:
                raise CheckpointError("resume=True needs checkpoint=, the folder of the run to go on with.")
            return plan, Run()
        folder = Path(self.checkpoint)
        if folder.exists() and not folder.is_dir():
            raise CheckpointError(f"checkpoint={str(folder)!r} is a file; it must be a folder, or not exist yet.")
        found = load_run(folder, plan) if resume else None
        if not resume and folder.exists() and any(folder.iterdir()):
            raise CheckpointError(
                f"checkpoint={str(self.checkpoint)!r} is not empty. Pass resume=True to go on with it, or give another."
            )
        return (plan, Run()) if found is None else (found[0], resumed(*found))

    def _take(self, run: Run, dtype: np.dtype[Any]) -> None:
        """Fitted attributes from the finished run."""
        state = run.state
        assert state.progress is not None  # noqa: S101 - a run that is done has parameters
        progress = state.progress
        self._model = self._global_model(state)
        self._dtype = dtype
        self._single_table = False
        self.n_features_in_ = sum(self._model.widths)
        self.objective_ = state.final_objective
        self.history_ = Records(run.history)
        self.n_iter_ = progress.iteration
        self.converged_ = progress.converged
        self.stop_reason_ = progress.stop_reason
        self.labels_: dict[str, IntArray] = {}
        self.global_labels_: dict[str, IntArray] = {}
        self.memberships_: dict[str, FloatArray] = {}
        self.client_models_: dict[str, HeatKernelMVC] = {}

    def _keep(self, outcomes: Mapping[str, SiteOutcome]) -> None:
        """Fitted attributes of sites whose rows are here."""
        for site, outcome in outcomes.items():
            self.labels_[site] = outcome.labels
            self.global_labels_[site] = outcome.global_labels
            self.memberships_[site] = outcome.memberships
            self.client_models_[site] = outcome.model
        self._hear({site: outcome.report for site, outcome in outcomes.items()})

    def _hear(self, reports: Mapping[str, SiteReport]) -> None:
        """Fitted attributes from what sites say of their own models; under noise or masks they say nothing."""
        self.site_reports_ = dict(reports)

    def _global_model(self, state: ServerState) -> FittedModel:
        """The model that all sites have in common."""
        return FittedModel(state.parameters, state.references, state.names, state.columns)

    def _at_site(self, views: Views) -> FittedModel:  # noqa: ARG002
        """The global model as a site with these rows has it, before anything is personal."""
        return self._model

    def site_outcome(self, site: str, views: Views, workers: int = 1) -> SiteOutcome:
        """What a site makes of the fitted model with its own rows: its own model and labels.

        Parameters
        ----------
        site : str
            Its name.
        views : Views
            Its rows.
        workers : int, default=1
            Threads.
        """
        views = aligned(views, self._model.references, self._model.view_names, site)
        model = self._at_site(views)
        rows, parameters = model.rows(views), model.parameters
        learn = isinstance(self.view_weights, str) and self.view_weights == "learned"
        own = gradient_step(rows, parameters, float(self.personalization_step), learn_weights=learn, workers=workers)
        with Passes(rows, parameters.n_clusters, workers) as scan:
            memberships, labels, objective = scan.assign(own)
            global_labels = labels if own is parameters else scan.assign(parameters)[1]
        own_model = HeatKernelMVC.from_model(
            replace(model, parameters=own), self._dtype, {n: getattr(self, n) for n in SHARED}, objective
        )
        return SiteOutcome(own_model, labels, memberships, global_labels, objective)


# Parameters that a site's own model has from the federated one.
SHARED = (
    "n_clusters",
    "heat_coef",
    "heat_time",
    "fuzzifier",
    "view_weights",
    "view_exponent",
    "scaling",
    "n_init",
    "tol",
)
