"""What all federated estimators share: their parameters, and the way from sites over a run to a fitted model."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import HasMethods, StrOptions

from fedhk._options import Option
from fedhk._random import check_generator
from fedhk._records import Records
from fedhk.data.clients import check_clients
from fedhk.data.views import Views, is_view_collection, shapes_by_view
from fedhk.errors import DataError
from fedhk.estimators.base import HeatKernelModel, warn_of_doubts
from fedhk.estimators.choices import MODEL_CONSTRAINTS, SHARE, WHOLE_FROM_ONE, ModelParameters, make_settings
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.progress import show_progress
from fedhk.estimators.sealing import make_guards, make_sealed_terms
from fedhk.federation.aggregators import Aggregator, SumAggregator, make_aggregator
from fedhk.federation.board import Board, Shared
from fedhk.federation.checkpoint import open_checkpoint, resume_phase, save_run
from fedhk.federation.engines.base import Engine, RemoteEngine
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import FinalParameters, Minimisation, Population, Result, Terms, fitted_model
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.deliver import Outcome, Reports
from fedhk.federation.protocols import PROTOCOLS, make_protocol
from fedhk.federation.protocols.averaging import Averaging
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.protocols.factors import FactorAveraging
from fedhk.federation.run import Run, conduct
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.model.passes import own_threads
from fedhk.personal.options import GradientStep, Personal
from fedhk.personal.outcome import SiteOutcome
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.privacy.robust import AGGREGATIONS
from fedhk.starts.settings import Settings
from fedhk.tensors.low_rank import LowRankForm

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

# Parameters that change nothing of what a run gives: a run may be resumed with other values of these.
NOT_COMPARED = ("engine", "checkpoint", "participation", "verbose", "random_state")


@dataclass(frozen=True)
class RunChoices:
    """What an estimator has chosen for one run, before any site is asked.

    Parameters
    ----------
    settings : Settings
        The model.
    protocol : Protocol
        What a round sends.
    aggregator : Aggregator
        How answers of sites are brought together.
    personal : Personal
        What a site's own model may take from its rows.
    seed : int
        Of everything that is drawn.
    workers : int
        Threads.
    """

    settings: Settings
    protocol: Protocol
    aggregator: Aggregator
    personal: Personal
    seed: int
    workers: int


@dataclass(eq=False, repr=False)
class FederatedModel(ModelParameters, HeatKernelModel):
    """The parameters of all federated estimators, and `fit`; a subclass lists its phases. `EFKMVC` describes them."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = MODEL_CONSTRAINTS | {
        "n_clusters": [WHOLE_FROM_ONE],
        "max_rounds": [WHOLE_FROM_ONE],
        "protocol": [StrOptions(set(PROTOCOLS) - {"factors"}), Protocol],
        "participation": [None, Participation],
        "personalization": [SHARE, Personal],
        "checkpoint": [None, str, Path],
        "privacy": [None, DifferentialPrivacy],
        "secure": ["boolean", SecureSummation],
        "aggregator": [StrOptions(set(AGGREGATIONS)), Aggregator],
        "engine": [None, HasMethods(["sites", "exchange", "close", "describe", "begin"])],
    }
    _stored: ClassVar[tuple[str, ...]] = (*HeatKernelModel._stored, "privacy_spent_")

    _: KW_ONLY
    max_rounds: int = 100
    protocol: str | Protocol = "statistics"
    participation: Participation | None = None
    personalization: Any = 0.0
    checkpoint: str | Path | None = None
    privacy: DifferentialPrivacy | None = None
    secure: bool | SecureSummation = False
    aggregator: str | Aggregator = "sum"
    engine: RemoteEngine | None = None

    def phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        """The phases of a run in the open, in their order."""
        raise NotImplementedError

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
        clients = check_clients(X) if self.engine is None else describe_remote(self.engine, X)
        with ExitStack() as stack:
            workers = stack.enter_context(own_threads())
            choices = self._choose(clients, workers)
            terms = make_sealed_terms(
                self.privacy,
                self.secure,
                clients=clients,
                settings=choices.settings,
                aggregator=choices.aggregator,
                participation=self.participation or Participation(),
                max_rounds=int(self.max_rounds),
                tol=float(self.tol),
            )
            run, choices = self._open(choices, resume=resume)
            phases = terms.compose(self.phases(choices))
            run = resume_phase(run, phases)
            engine, entries = self._make_engine(clients, workers, terms)
            stack.callback(engine.close)
            run = conduct(
                phases,
                engine,
                replace(run, board=run.board.put(*(e for e in entries if not run.board.has(type(e))))),
                seed=choices.seed,
                participation=self.participation or Participation(),
                after=self._hooks(phases, choices),
            )
            single = all(views.dtype == np.float32 for views in clients.values())
            self._keep_model(run, np.dtype(np.float32 if single else np.float64))
            self.privacy_spent_ = terms.spent(run.board)
            self._keep_outcomes(run.board, _outcomes(engine))
        warn_of_doubts(self, list(self.labels_.values()), list(self.memberships_.values()))
        return self

    # ------------------------------------------------------------------------------------------------- before the run

    def _choose(self, clients: dict[str, Views], workers: int) -> RunChoices:
        """What is chosen before any site is asked; what is given per view is in the order in which sites name views."""
        shapes = shapes_by_view(clients.values())
        settings = make_settings(self, list(shapes), list(shapes.values()), single_table=False)
        personal = self._personal()
        personal.check(learn_weights=settings.learn_weights)
        personal.check_sites(list(clients))
        protocol, aggregator = make_protocol(self.protocol), make_aggregator(self.aggregator)
        check_together(protocol, aggregator, settings)
        seed = int(check_generator(self.random_state).integers(2**31))
        return RunChoices(settings, protocol, aggregator, personal, seed, workers)

    def _personal(self) -> Personal:
        """What a site's own model may take from its rows."""
        given = self.personalization
        return given if isinstance(given, Personal) else GradientStep(float(given))

    def _open(self, choices: RunChoices, *, resume: bool) -> tuple[Run, RunChoices]:
        """A new run, or the one that the checkpoint holds, with its seed."""
        if self.checkpoint is None and not resume:
            return Run(), choices
        folder = None if self.checkpoint is None else Path(self.checkpoint)
        run, plan = open_checkpoint(folder, self._plan(choices), resume=resume)
        return run, replace(choices, seed=int(plan["seed"]))

    def _plan(self, choices: RunChoices) -> dict[str, Any]:
        """What a checkpoint must agree with to be gone on with, as JSON."""
        params = self.get_params(deep=False).items()
        plan = {name: describe_value(value) for name, value in params if name not in NOT_COMPARED}
        return plan | {"estimator": type(self).__name__, "seed": choices.seed}

    def _make_engine(self, clients: dict[str, Views], workers: int, terms: SealedTerms) -> tuple[Engine, list[Shared]]:
        """The way to the sites, and what they must be told first."""
        timeout = None if self.participation is None else self.participation.timeout
        if self.engine is not None:
            entries = self.engine.begin(timeout)
            return self.engine, [terms.protect(entry) if isinstance(entry, Terms) else entry for entry in entries]
        sites = {name: Site(name, views) for name, views in clients.items()}
        guards = make_guards(terms, sites, None if self.checkpoint is None else Path(self.checkpoint))
        engine = InProcessEngine(sites, guards, workers=workers, timeout=timeout)
        return engine, [] if terms.is_open else [terms.protect(Terms(secrets.token_hex(8)))]

    def _hooks(self, phases: list[Phase[Any, Any]], choices: RunChoices) -> list[Callable[[Run], None]]:
        """What is done after every exchange."""
        hooks: list[Callable[[Run], None]] = []
        if self.checkpoint is not None:
            folder, plan = Path(self.checkpoint), self._plan(choices)

            def save(run: Run) -> None:
                if run.phase < len(phases):  # own models are in no checkpoint: a resumed run must deliver again
                    save_run(folder, run, plan)

            hooks.append(save)
        if self.verbose:
            hooks.append(show_progress([phase.name for phase in phases], self.max_rounds))
        return hooks

    # -------------------------------------------------------------------------------------------------- after the run

    def _keep_model(self, run: Run, dtype: np.dtype[Any]) -> None:
        """Fitted attributes from the finished run."""
        board = run.board
        progress = board.get(Minimisation).progress
        self._model = fitted_model(board, board.get(FinalParameters).parameters, board.get(Population).columns)
        self._dtype, self._single_table = dtype, False
        self.n_features_in_ = sum(self._model.widths)
        self.objective_ = board.get(Result).objective
        self.history_ = Records(run.history)
        self.n_iter_ = progress.iteration
        self.converged_ = progress.converged
        self.stop_reason_ = progress.stop_reason

    def _keep_outcomes(self, board: Board, outcomes: Mapping[str, SiteOutcome]) -> None:
        """Fitted attributes of sites whose rows are here, and what the others report of their own models."""
        params = {name: getattr(self, name) for name in SHARED}
        self.labels_ = {site: outcome.labels for site, outcome in outcomes.items()}
        self.global_labels_ = {site: outcome.global_labels for site, outcome in outcomes.items()}
        self.memberships_ = {site: outcome.memberships for site, outcome in outcomes.items()}
        self.client_models_ = {
            site: HeatKernelMVC.from_model(outcome.model, self._dtype, params, outcome.objective)
            for site, outcome in outcomes.items()
        }
        self.site_reports_ = dict(board.get(Reports).reports)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """How well apart the clusters are: the mean simplified silhouette of the rows of one site, or of all sites.

        Parameters
        ----------
        X : list or dict of tables, or dict or list of sites
            The views of one site as in `predict`, or sites as in `fit`: a grid search over a list of sites leaves whole
            sites out.
        y : ignored
            Present because scikit-learn passes it.
        sample_weight : array of shape (n,), optional
            Weight of each row, for one site.
        """
        if not are_sites(X):
            return float(super().score(X, y, sample_weight))
        sites = list(X.values() if isinstance(X, Mapping) else X)
        rows = [self._rows(site).n_rows for site in sites]
        scores = [HeatKernelModel.score(self, site) for site in sites]
        return float(np.average(scores, weights=rows)) if sum(rows) else 0.0


def describe_remote(engine: RemoteEngine, X: Any) -> dict[str, Views]:
    """The views, without rows, of the sites that an engine leads to."""
    if X is not None:
        raise DataError("engine leads to sites that have their own rows: call fit() without X, or leave engine out.")
    return engine.describe()


def are_sites(X: Any) -> bool:
    """Whether `X` is several sites rather than the views of one."""
    parts = list(X.values()) if isinstance(X, Mapping) else X
    return isinstance(parts, list | tuple) and bool(parts) and all(is_view_collection(part) for part in parts)


def check_together(protocol: Protocol, aggregator: Aggregator, settings: Settings) -> None:
    """Refuse parts that do not go together, by name."""
    averages = isinstance(protocol, Averaging)
    if averages and not isinstance(aggregator, SumAggregator):
        raise ValueError(f"aggregator={aggregator!r} works on statistics; protocol={protocol!r} sends centres.")
    constrained = isinstance(settings.form, LowRankForm)
    if isinstance(protocol, FactorAveraging):
        if not constrained:
            raise ValueError(
                "protocol='factors' sends factors of a decomposition: give decomposition='tucker' or 'parafac2'."
            )
    elif averages and constrained:
        raise ValueError(
            f"protocol={protocol!r} has no place for a decomposition: an average of centres has not its form. Use "
            "protocol='factors', or 'statistics'."
        )


def describe_value(value: Any) -> Any:
    """A parameter as JSON; given centres stand as a digest."""
    if isinstance(value, Option) and is_dataclass(value):
        return {"option": type(value).__name__} | {name: describe_value(part) for name, part in vars(value).items()}
    if isinstance(value, Mapping):
        return {str(name): describe_value(part) for name, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__array__"):
        return sha256(np.asarray(value, np.float64).tobytes()).hexdigest()[:16]
    if isinstance(value, list | tuple):
        return [describe_value(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _outcomes(engine: Engine) -> dict[str, SiteOutcome]:
    """Own models and labels of the sites whose rows are in this process."""
    sites = engine.states if isinstance(engine, InProcessEngine) else {}
    return {name: site.memory.get(Outcome).outcome for name, site in sites.items() if site.memory.has(Outcome)}
