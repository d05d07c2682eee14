"""E-FKMVC, Algorithm 1: the heat-kernel multi-view model over sites that keep their rows.

The other federated estimators derive from it: they have its parameters and its way from sites over a run to a fitted
model, and change the list of phases.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted

from fedhk._options import Option
from fedhk._random import check_generator
from fedhk._records import Records
from fedhk._text import listed
from fedhk.agreement.number import describe_selection, doubt_selection
from fedhk.data.clients import check_clients
from fedhk.data.folds import can_fold, find_wide
from fedhk.data.scaling import AUTO, check_cells, make_scaling
from fedhk.data.truths import doubt_truths, encode_truths
from fedhk.data.views import Columns, Views, is_view_collection, list_columns, shapes_by_view
from fedhk.errors import DataError
from fedhk.estimators.base import OF_ROWS, UPDATED, HeatKernelModel, unchanged_on_error, warn_of_doubts
from fedhk.estimators.choices import (
    MODEL_CONSTRAINTS,
    SHARE,
    WHOLE_FROM_ONE,
    ModelParameters,
    check_together,
    describe_choices,
    is_chosen,
    limit_numbers,
    make_settings,
)
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.mistakes import keep_deviations
from fedhk.estimators.progress import show_progress
from fedhk.estimators.sealing import (
    add_spent,
    announce,
    is_sealed,
    list_releases,
    make_guards,
    make_sealed_terms,
    read_public,
)
from fedhk.estimators.updating import (
    Recollection,
    check_updatable,
    check_update,
    describe_update,
    fit_sites,
    recollect,
    revise_phases,
)
from fedhk.federation.aggregators import Aggregator, SumAggregator, make_aggregator
from fedhk.federation.board import Board, Entry
from fedhk.federation.checkpoint import blame_checkpoint, open_checkpoint, save_run
from fedhk.federation.engines.base import Engine, RemoteEngine
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import (
    FinalParameters,
    Folds,
    Minimisation,
    OwnPast,
    Population,
    Remembered,
    Result,
    Terms,
    fitted_model,
)
from fedhk.federation.participation import Deviating, Participation
from fedhk.federation.phases.agreement import CompareClusters, FindPartitions
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.candidates import ChooseStart, GivenStart
from fedhk.federation.phases.deliver import Deliver, Outcome, Reports, WideMeans
from fedhk.federation.phases.describe import Describe, DescribeViews, Energy
from fedhk.federation.phases.finish import Finish
from fedhk.federation.phases.fold import FoldViews, WideColumns
from fedhk.federation.phases.number import ChosenNumber, FindNumber
from fedhk.federation.phases.publish_frame import GivenShares, PublishFrame, Shares
from fedhk.federation.phases.refine import CompareRefined, FindEffects, FindRefined
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.phases.scalings import CompareNeighbours, CountDocuments, DescribeForms, GivenScalings, Scalings
from fedhk.federation.phases.together import Together
from fedhk.federation.phases.update import FEW_DIGITS
from fedhk.federation.protocols import PROTOCOLS, make_protocol
from fedhk.federation.protocols.base import Protocol, RoundContext
from fedhk.federation.run import Run, conduct
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.model.drift import SitePast
from fedhk.model.passes import own_threads
from fedhk.personal.options import GradientStep, Personal
from fedhk.personal.outcome import SiteOutcome
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.privacy.robust import AGGREGATIONS
from fedhk.starts.settings import Settings

# Parameters of the federated model that own models of sites have too: all but those of the start.
SHARED = tuple(field.name for field in fields(ModelParameters) if field.name not in ("init", "random_state", "verbose"))

# Parameters that do not change the result: a run may be resumed with other values of these.
NOT_COMPARED = ("engine", "checkpoint", "participation", "verbose", "random_state")


@dataclass(frozen=True)
class RunChoices:
    """The choices of an estimator for one run, made before any site is asked."""

    settings: Settings
    protocol: Protocol
    aggregator: Aggregator
    personal: Personal  # what a site's own model may take from its rows
    seed: int  # of everything that is drawn
    workers: int
    numbers: range  # of clusters to choose among; one where it is given
    deviating: Deviating  # what is done with a site that is off by more than what sites differ by
    holders: int = 1  # sites that must have a view for it to count
    wide: dict[str, tuple[int, Columns]] = field(default_factory=dict)  # views that are folded
    recalled: Recollection | None = None  # what an update starts from

    def for_update(self, recalled: Recollection) -> RunChoices:
        """Return the choices of an update: the clusters of the fitted model, and rounds in few digits."""
        return replace(self, settings=recalled.adapt(self.settings), protocol=FEW_DIGITS, recalled=recalled)


@dataclass(eq=False, repr=False)
class EFKMVC(ModelParameters, HeatKernelModel):
    """Federated heat-kernel multi-view clustering (E-FKMVC, Algorithm 1).

    Sites send sums over their rows (`protocol="statistics"`); the server adds them and updates the centres. Any split
    of the rows over sites gives the model that the pooled rows give. What leaves a site: the moments of its features
    once, means of groups of at least two rows once, and one set of sums per round. With `heat_coef="minmax"` or
    `scaling="minmax"` also the smallest and the largest value of each feature, which are values of single rows.

    Parameters
    ----------
    n_clusters : int, "auto", (int, int) or str, default=8
        Number of clusters. A pair such as (2, 8), or "2-8", lets it be found among these, "auto" among 2 to 100
        (`selection_`); where rows show no clusters, it is one.
    heat_coef, heat_time, fuzzifier, view_weights, view_exponent, scaling, init, n_init, tol, random_state
        As in `HeatKernelMVC`. `init="k-means++"` (the default) lets sites cluster themselves, send weighted means, and
        starts from those (k-FED); "random" draws among those means.
    max_rounds : int, default=100
        Most rounds.
    protocol : {"statistics", "auto", "cores", "centers"} or Protocol, default="statistics"
        What a round sends. "statistics": sums in all features, exact, and the default because it loses nothing.
        "cores": sums in a basis of few directions that sites get once, in few bytes. "auto": "cores" where views are
        wide for the number of clusters, else "statistics". "centers": each site's own centres after some passes,
        averaged. An object of `fedhk.protocols` has options.
    participation : fedhk.Participation or None, default=None
        Share of the sites asked in a round, fewest answers for a round to count, and how long to wait; None asks all
        sites and waits, and is content with one answer, or over a network with those of more than half of the sites.
    personalization : float, default=0.0
        Step in [0, 1]: how far each site's own model goes from the global one along its own descent (phase 4 of
        Algorithm 1). 0 gives every site the global model.
    checkpoint : path or None, default=None
        Folder that holds the state of the run after every exchange; `fit(sites, resume=True)` goes on from there. The
        result is that of a run without a stop, but for offsets of sites in this process (`FedHKPerson`), which begin
        anew.
    privacy : fedhk.privacy.DifferentialPrivacy or None, default=None
        A privacy budget for the whole run: sites add noise to all that they send.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only. With `privacy`, sites then share one noise.
    aggregator : {"sum", "robust", "median", "trimmed"} or Aggregator, default="sum"
        How the answers of sites are brought together, in every exchange. "robust" holds against sites that lie, if they
        are fewer than a quarter; "sum" is exact, and the default because it loses nothing where sites are honest.
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
        One record a round: round, objective (at the model that the round began with: that of round 1 is the start's),
        clients (usable answers), bytes_up, bytes_down, seconds, refused (why, by site). Set-up is counted in the first
        record, the finish in the last. It shows itself as a table.
    releases_ : dict of str to list of dict
        What each site released with noise in the run, by its ledger; empty without noise, and of sites elsewhere.
    privacy_spent_ : (float, float) or None
        (epsilon, delta) of all that left the sites; None where no noise was added, which is no privacy in this sense.
    selection_ : list of dict
        Where the number of clusters was found, one record for each number that was tried: n_clusters, gap (share of the
        heat that stays in the last cluster's direction and leaves the next one), agreement (of the views on these
        directions), slowing (how many times faster heat leaves the next one), evidence (how much longer it stays than
        in one normal cloud, in standard deviations), score (gap times agreement, of which the largest is taken), taken,
        note.
    drift_ : list of dict
        After `update`, one record for each cluster and site, and for all sites together: cluster, site, distance
        between the means of the new rows and of those before (in standard deviations of the cluster's rows), by_chance
        (the distance that chance explains), p, p_adjusted (Holm, over all records), moved. It shows itself as a table.
    updates_ : list of dict
        One record for each update: rows, rounds, n_clusters (those that are not gone), new and gone clusters, those
        that moved, keep (by how much earlier rows count), bytes_up, bytes_down.
    deviations_ : list of dict
        Sites that are off by more than what sites differ by: site, view, columns, kind, factor, whether the site was
        excluded, and a sentence. Empty where none is, and in runs with noise or masks, which only warn.

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
        "max_rounds": [WHOLE_FROM_ONE],
        "protocol": [StrOptions(set(PROTOCOLS) - {"factors", "personalized"}), Protocol],
        "participation": [None, Participation],
        "personalization": [SHARE, Personal],
        "checkpoint": [None, str, Path],
        "privacy": [None, DifferentialPrivacy],
        "secure": ["boolean", SecureSummation],
        "aggregator": [StrOptions(set(AGGREGATIONS)), Aggregator],
        "engine": [None, HasMethods(["sites", "exchange", "close", "describe", "begin"])],
    }
    _stored: ClassVar[tuple[str, ...]] = (
        *HeatKernelModel._stored,
        "privacy_spent_",
        "deviations_",
        *UPDATED,
    )
    _left_behind: ClassVar[Mapping[str, str]] = OF_ROWS | {
        "global_labels_": OF_ROWS["labels_"],
        "client_models_": "the file has the common model alone, which predict uses. To keep a site's own model, save "
        "it after the fit: client_models_[site].save(path).",
        "releases_": "files store nothing of single sites.",
        "site_reports_": "files store nothing of single sites.",
    }

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

    keeps_offsets: ClassVar[bool] = False
    """Whether calibrated sites keep an offset from the centres in the rounds."""

    def phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        """Return the phases of a fit, in the order in which they are carried out."""
        return [
            *self.describe_phases(run),
            *self.calibrate_phases(run),
            self.start_phase(run),
            Rounds(run.protocol, RoundContext(run.settings, run.aggregator), int(self.max_rounds), float(self.tol)),
            *self.end_phases(run),
        ]

    def describe_phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        """Return the phases that bring all sites to the same units and find the number of clusters, if not given."""
        fold = [FoldViews(run.wide, None if self.scaling == AUTO else run.settings.scaling)] if run.wide else []
        energy = [] if run.settings.heat_coef == "uniform" else [Energy(run.aggregator)]
        phases = [*fold, *self.scaling_phases(run), *energy]
        if is_chosen(self.n_clusters):
            given = (run.settings, run.protocol, run.aggregator, run.seed, run.workers)
            phases.append(FindNumber(*given, smallest=run.numbers[0], largest=run.numbers[-1]))
        return phases

    def scaling_phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        """Return the phases that collect moments and, if needed, choose the scaling of each view."""
        settings, given = run.settings, run.settings.scaling
        plain = make_scaling(AUTO) if given.needs_counts else given  # counts are described as they come first
        settings = replace(settings, scaling=plain)
        described = Describe(
            settings,
            holders=run.holders,
            deviating=run.deviating,
            aggregator=run.aggregator,
            in_basis=run.protocol.in_basis,
        )
        if isinstance(self.scaling, str) and self.scaling == AUTO:
            choose: Phase[Any, Any] = CompareNeighbours(run.aggregator)
        elif given.needs_counts:
            choose = GivenScalings(given)
        else:
            return [described]
        return [Together((described, CountDocuments())), choose, DescribeForms(settings)]

    def calibrate_phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        """Return the phases that calibrate the sites; none where sites are not calibrated."""
        shares = self.find_calibration(run)
        if shares is None:
            return []
        publish = PublishFrame(run.settings, self.keeps_offsets, run.aggregator)
        if not isinstance(shares, str):
            return [GivenShares(*shares), publish]
        find = FindPartitions(run.settings.n_clusters, run.settings, run.aggregator)
        choose: list[Phase[Any, Any]] = [find, CompareClusters(find)]
        if not self.keeps_offsets:  # else sites measure in the rounds how far they are from centres of their clusters
            refined = FindRefined(run.settings.n_clusters, run.settings, run.aggregator)
            choose += [FindEffects(find), refined, CompareRefined(refined)]
        return [*choose, publish]

    def find_calibration(self, run: RunChoices) -> str | tuple[float, float] | None:  # noqa: ARG002
        """Return the shares of its own mean and spread that a site removes from its rows, "auto", or None."""
        return None

    def start_phase(self, run: RunChoices) -> Phase[Any, Any]:
        """Return the phase that finds a start: from candidates of the sites, or from given centres."""
        if not isinstance(run.settings.init, str):
            return GivenStart(run.settings, run.protocol, run.seed)
        return ChooseStart(run.settings, run.protocol, run.aggregator, run.seed, run.workers)

    def end_phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        """Return the phases that compute the final objective and make own models."""
        recalled = run.recalled
        finish = Finish(run.personal.uses_summary, run.aggregator, memory=recalled is None)
        deliver = Deliver(run.personal, run.settings.learn_weights, keep=0.0 if recalled is None else recalled.keep)
        # both in one exchange, unless own models need the summary of all sites
        return [finish, deliver] if run.personal.uses_summary else [Together((finish, deliver))]

    def update_phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        """Return the phases of an update, which start from the fitted model."""
        recalled, settings = run.recalled, run.settings
        assert recalled is not None  # noqa: S101 - for type checkers
        describe: list[Phase[Any, Any]] = [DescribeViews(settings, run.holders)] if is_sealed(self) else []
        if recalled.new_views:
            describe = self.scaling_phases(run)
        return [
            *describe,
            *revise_phases(recalled, settings, run.aggregator, leaves_out=run.deviating != "warn"),
            *self.end_phases(run),
        ]

    def fit(self, X: Any = None, y: Any = None, *, resume: bool = False, public: Any = None) -> Self:  # noqa: ARG002
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
        public : list or dict of tables, optional
            With `privacy`: rows that need no protection, with the views and columns of the sites. They never leave this
            process. The rounds start from them, and share the budget that a start would cost.

        Returns
        -------
        self
            If a fit fails, the estimator stays what it was.
        """
        self._validate_params()
        with unchanged_on_error(self):
            clients = self._read_sites(X)
            if not is_sealed(self) and self.engine is None:
                clients = encode_truths(clients)
            elif doubt := doubt_truths(clients):
                warnings.warn(f"{type(self).__name__}: {doubt}", UserWarning, stacklevel=2)
            self._run(clients, resume=resume, public=public)
        warn_of_doubts(self, list(self.labels_.values()), list(self.memberships_.values()))
        return self

    def update(
        self,
        X: Any = None,
        y: Any = None,  # noqa: ARG002
        *,
        half_life: float | None = None,
        rounds: int = 3,
        level: float = 0.05,
    ) -> Self:
        """Continue a fitted model with new rows, in few rounds; the rows that it was fitted on are not needed.

        Clusters keep their numbers. New ones come behind them where rows fit nowhere. Those of which nothing is left,
        after forgetting, are gone: their numbers are not used again (`gone_clusters_`). So are those that new rows have
        surely left at the sites that had them, whatever is remembered of them. `drift_` says which clusters have moved
        at which sites, `updates_` what every update did.

        Parameters
        ----------
        X : dict or list of sites
            New rows, as in `fit`: of sites that the model knows or not, with the views that it knows, and perhaps more.
            A view that is new begins with the clusters that the others make. Left out with `engine`.
        y : ignored
            As in `fit`.
        half_life : float or None, default=None
            Updates after which what was learned before counts half as much as new rows; None never forgets.
        rounds : int, default=3
            Most rounds. Fewer are run where centres move by less than the error of a mean; with `privacy` all are run,
            unless the budget is for fewer.
        level : float, default=0.05
            How likely `drift_` reports anything where nothing has moved, over all its lines together.

        Returns
        -------
        self
            As `partial_fit` of scikit-learn does. If an update fails, the model stays what it was.

        Examples
        --------
        >>> from fedhk import EFKMVC
        >>> from fedhk.datasets import make_sites
        >>> january, february = (make_sites(3, 60, n_clusters=3, random_state=0).sites for _ in range(2))
        >>> model = EFKMVC(n_clusters=3, random_state=0).fit(january).update(february, half_life=6)
        >>> len(model.updates_), any(line["moved"] for line in model.drift_)
        (1, False)
        """
        check_is_fitted(self)
        self._validate_params()
        keep = check_update(half_life, rounds, level)
        check_updatable(self)  # before sites are asked
        clients = self._read_sites(X)
        recalled = recollect(self, clients, keep=keep, rounds=rounds, level=level)
        with unchanged_on_error(self):
            self._run(fit_sites(self._model, clients), recalled=recalled)
        return self

    def _read_sites(self, X: Any) -> dict[str, Views]:
        """Read the views of the sites; sites on other machines have views without rows."""
        if self.engine is not None and X is not None:
            raise DataError(
                "engine leads to sites that have their own rows: call fit() without X, or leave engine out."
            )
        return check_clients(X) if self.engine is None else self.engine.describe()

    def _run(
        self,
        clients: dict[str, Views],
        *,
        resume: bool = False,
        public: Any = None,
        recalled: Recollection | None = None,
    ) -> None:
        """Carry out the phases of a fit, or of an update, and set the fitted attributes."""
        participation = (self.participation or Participation()).resolve(in_process=self.engine is None)
        # an update has no checkpoint: it is short, and until it ends the model stays as it is
        folder = None if self.checkpoint is None or recalled is not None else Path(self.checkpoint)
        with ExitStack() as stack:
            workers = stack.enter_context(own_threads())
            choices = self._choose(clients, workers)
            if recalled is not None:
                choices = choices.for_update(recalled)
            settings, protocol = choices.settings, choices.protocol
            known = None if public is None else read_public(self, public, clients, settings, protocol)
            rounds = None if recalled is None else recalled.rounds
            terms = make_sealed_terms(
                self, clients, settings, choices.aggregator, protocol, public=known, rounds=rounds
            )
            run, plan = open_checkpoint(folder, self._plan(choices.seed, known), resume=resume)
            choices = replace(choices, seed=int(plan["seed"]))  # a run that is resumed keeps its seed
            if folder is not None and resume:
                stack.enter_context(blame_checkpoint(folder))
            # settings that do not work together are refused here, before any site is asked
            compose = partial(self._compose, choices, clients, terms)
            phases, then = compose(run.board), None
            hooks = self._hooks(phases, folder, plan)
            if recalled is None and is_chosen(self.n_clusters):  # later phases are made once the number is known
                phases, then = phases[: len(terms.compose(self.describe_phases(choices)))], compose
            engine, run = self._make_engine(clients, workers, terms, participation.timeout, run)
            stack.callback(engine.close)
            if self.verbose:
                hooks[-1](run)  # shows the first phase
            run = conduct(phases, engine, run, seed=choices.seed, participation=participation, after=hooks, then=then)
            here = engine if isinstance(engine, InProcessEngine) else None
            sites, guards = ({}, {}) if here is None else (here.states, here.guards)
            self._keep_model(run, clients)
            self._keep_spent(run.board, terms, guards, adds=recalled is not None)
            self._keep_outcomes(run.board, sites)
            self._keep_memory(run, sites, recalled)
        self.deviations_ = keep_deviations(run.board, clients, terms, unit_rows=settings.scaling.unit_rows)
        self._doubt_number()

    # ------------------------------------------------------------------------------------------------- before the run

    def _choose(self, clients: dict[str, Views], workers: int) -> RunChoices:
        """Make the choices before any site is asked. Parameters per view are in the order in which sites name views."""
        shapes = shapes_by_view(clients.values())
        settings = make_settings(self, list(shapes), list(shapes.values()), single_table=False)
        for site, views in clients.items():
            for name, table in zip(views.names, views.tables, strict=True):
                try:
                    check_cells(settings.scaling, table, name)
                except ValueError as error:
                    raise ValueError(f"site {site!r}: {error}") from error
        personal = self._personal()
        personal.check(learn_weights=settings.learn_weights, n_clusters=settings.n_clusters)
        personal.check_sites(list(clients))
        protocol, aggregator = make_protocol(self.protocol), make_aggregator(self.aggregator)
        check_together(protocol, aggregator, settings)
        protocol.check_sites(list(clients))
        personal = protocol.choose_personal(personal)
        seed = int(check_generator(self.random_state).integers(2**31))
        deviating = (self.participation or Participation()).deviating
        # a view that one site alone has cannot be compared with that of any other site
        holders = max(aggregator.fewest_holders(len(clients)), 1 if self.engine is None else min(2, len(clients)))
        rows = sum(views.n_rows for views in clients.values())  # 0 where sites elsewhere do not say
        numbers = limit_numbers(self.n_clusters, rows, masked=is_sealed(self))
        settings = replace(settings, n_clusters=min(settings.n_clusters, numbers[-1]))
        # sites elsewhere, noise, masks and robust sums have columns as they come
        open_here = self.engine is None and self.privacy is None and not self.secure
        folds = open_here and isinstance(aggregator, SumAggregator) and isinstance(settings.init, str)
        wide = find_wide(clients.values()) if folds and can_fold(self.scaling, settings.heat_coef) else {}
        return RunChoices(settings, protocol, aggregator, personal, seed, workers, numbers, deviating, holders, wide)

    def _compose(
        self, choices: RunChoices, clients: dict[str, Views], terms: SealedTerms, board: Board
    ) -> list[Phase[Any, Any]]:
        """Return the phases of a run, sealed if needed, with the number of clusters that is on the board."""
        for found in board.find(ChosenNumber):
            choices = replace(choices, settings=replace(choices.settings, n_clusters=found.n_clusters))
        if not terms.is_open:
            choices = replace(choices, protocol=self.decide_protocol(choices.protocol, choices.settings, clients))
        return terms.compose(self.phases(choices) if choices.recalled is None else self.update_phases(choices))

    def decide_protocol(self, protocol: Protocol, settings: Settings, clients: dict[str, Views]) -> Protocol:
        """Return the protocol of rounds with noise or masks, decided by the widths of views before the run begins."""
        shapes = shapes_by_view(clients.values())
        return protocol.decide(settings, [math.prod(shape) for shape in shapes.values()], list(shapes))

    def _personal(self) -> Personal:
        """Return how a site makes its own model."""
        given = self.personalization
        return given if isinstance(given, Personal) else GradientStep(float(given))

    def _plan(self, seed: int, public: Views | None) -> dict[str, Any]:
        """Return the settings that a checkpoint must agree with to be resumed, as JSON."""
        params = self.get_params(deep=False).items()
        plan = {name: _describe_value(value) for name, value in params if name not in NOT_COMPARED}
        plan |= {} if public is None else {"public": _describe_value(public.tables)}
        return plan | {"estimator": type(self).__name__, "seed": seed}

    def _make_engine(
        self, clients: dict[str, Views], workers: int, terms: SealedTerms, timeout: float | None, run: Run
    ) -> tuple[Engine, Run]:
        """Return the engine, and the run with the entries that sites must have first."""
        if self.engine is not None:
            columns = list_columns(clients.values())  # in an update, those of the model
            entries = self.engine.begin(timeout)
            protected = [
                terms.protect(replace(one, columns={**one.columns, **columns})) if isinstance(one, Terms) else one
                for one in entries
            ]
            return self.engine, run.with_first(protected)
        pasts = {name: Board().put(*self._site_memory(past)) for name, past in self._pasts.items()}
        sites = {name: Site(name, views, memory=pasts.get(name, Board())) for name, views in clients.items()}
        resumed = next((entry.run for entry in run.board.find(Terms)), "")
        guards = make_guards(terms, sites, None if self.checkpoint is None else Path(self.checkpoint), resumed)
        return InProcessEngine(sites, guards, workers=workers, timeout=timeout), run.with_first(announce(terms))

    def _site_memory(self, past: SitePast) -> list[Entry]:
        """Return what a site of an earlier run has kept of it."""
        return [OwnPast(past)]

    def _hooks(
        self, phases: list[Phase[Any, Any]], folder: Path | None, plan: dict[str, Any]
    ) -> list[Callable[[Run], None]]:
        """Return the functions to call after every exchange: save a checkpoint, show progress."""
        hooks: list[Callable[[Run], None]] = []
        names = [phase.name for phase in phases]
        if folder is not None:

            def save(run: Run) -> None:
                if not run.board.has(Reports):  # own models are in no checkpoint: a resumed run must deliver again
                    save_run(folder, run, plan, names)

            hooks.append(save)
        if self.verbose:
            show = show_progress(self.max_rounds)
            hooks.append(lambda run: show(run, names))
        return hooks

    # -------------------------------------------------------------------------------------------------- after the run

    def _keep_model(self, run: Run, clients: Mapping[str, Views]) -> None:
        """Set the fitted attributes of the global model."""
        board = run.board
        self._dtype, self._single_table = np.result_type(*(views.dtype for views in clients.values())), False
        self._row_names = {site: views.index for site, views in clients.items()}
        model = fitted_model(board, board.get(FinalParameters).parameters, board.get(Population).columns)
        for entry, wide, columns in zip(board.find(Folds), board.find(WideMeans), board.find(WideColumns), strict=True):
            model = model.unfold(entry.folds, wide.means, columns.columns)
        self._keep_progress(model, board.get(Minimisation).progress, run.history)
        self.objective_ = board.get(Result).objective
        chosen, frame = next(board.find(Scalings), Scalings(())), next(board.find(Shares), Shares(0.0, 0.0))
        opinions, sealed = (*chosen.opinions, *frame.opinions), self.privacy is not None
        self.choices_ = describe_choices(self.scaling, model.view_names, opinions, sealed=sealed)
        self.selection_ = next((describe_selection(found.tried) for found in board.find(ChosenNumber)), Records())

    def _doubt_number(self) -> None:
        """Say of the number of clusters that was found that codes for missing values may have made them."""
        if any(one["kind"] == "code" and not one["excluded"] for one in self.deviations_):
            self.selection_ = doubt_selection(self.selection_)

    def _keep_spent(self, board: Board, terms: SealedTerms, guards: Mapping[str, Any], *, adds: bool) -> None:
        """Set what was released with noise; an update adds to earlier releases."""
        made, before = list_releases(guards, board), getattr(self, "releases_", {}) if adds else {}
        spent = terms.spent(board)
        self.privacy_spent_ = add_spent(self, terms, guards, made, spent) if adds else spent
        self.releases_ = {site: Records([*before.get(site, ()), *lines]) for site, lines in made.items()}

    def _keep_memory(self, run: Run, sites: Mapping[str, Site], recalled: Recollection | None) -> None:
        """Set what later updates start from, and the results of this update."""
        board, parameters = run.board, run.board.get(FinalParameters).parameters
        # a model with folded views cannot be updated
        self._memory = None if self._model.folded else next((one.memory for one in board.find(Remembered)), None)
        keep = 0.0 if recalled is None else recalled.keep
        self._pasts = {name: past.carry(parameters, keep) for name, past in self._pasts.items() if keep > 0}
        known = sites if self._memory is not None else {}  # a model that remembers nothing is not updated
        self._pasts |= {name: own.past for name, site in known.items() for own in site.memory.find(OwnPast)}
        for name, own in self.client_models_.items():
            own._pasts = {name: self._pasts[name]} if name in self._pasts else {}
        if recalled is None:
            self.drift_, self.updates_ = Records(), Records()
        else:
            self.drift_, done = describe_update(run, recalled)
            self.updates_ = Records([*self.updates_, done])

    def _storable_pasts(self) -> dict[str, SitePast]:
        """Return no memory of sites with noise or masks: it is in the files of their own models only."""
        return {} if is_sealed(self) else super()._storable_pasts()

    def _keep_outcomes(self, board: Board, sites: Mapping[str, Site]) -> None:
        """Set the fitted attributes of sites in this process, and the reports of the others on their own models."""
        self.labels_, self.global_labels_, self.memberships_ = {}, {}, {}
        self.client_models_: dict[str, HeatKernelMVC] = SiteModels()
        for name, site in sites.items():
            if site.memory.has(Outcome):
                outcome = site.memory.get(Outcome).outcome
                self.labels_[name], self.global_labels_[name] = outcome.labels, outcome.global_labels
                self.memberships_[name] = outcome.memberships
                self.client_models_[name] = self._site_model(outcome)
        self.site_reports_ = dict(board.get(Reports).reports)

    def _site_model(self, outcome: SiteOutcome) -> HeatKernelMVC:
        """Make an estimator of a site's own model."""
        params = {name: getattr(self, name) for name in SHARED} | {"n_clusters": self.n_clusters_}
        return HeatKernelMVC.from_model(outcome.model, self._dtype, params, outcome.objective)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return how well clusters are separated: the mean simplified silhouette of the rows of one or all sites.

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


class SiteModels(dict[str, HeatKernelMVC]):
    """The own models of sites, by name."""

    def __missing__(self, site: str) -> HeatKernelMVC:
        raise KeyError(
            f"{site!r} is none of the sites of the fit, {listed(self)}. Use predict of the common model for its rows; "
            "FedHKPerson has personalize(views), which makes a model of a new site."
        )


def are_sites(X: Any) -> bool:
    """Tell whether `X` is several sites rather than the views of one."""
    parts = list(X.values()) if isinstance(X, Mapping) else X
    return isinstance(parts, list | tuple) and bool(parts) and all(is_view_collection(part) for part in parts)


def _describe_value(value: Any) -> Any:
    """Convert a parameter to JSON; arrays are replaced by a digest."""
    if isinstance(value, Option) and is_dataclass(value):
        return {"option": type(value).__name__} | {name: _describe_value(part) for name, part in vars(value).items()}
    if isinstance(value, Mapping):
        return {str(name): _describe_value(part) for name, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__array__"):
        return sha256(np.asarray(value, np.float64).ravel().data).hexdigest()[:16]
    if isinstance(value, list | tuple):
        return [_describe_value(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
