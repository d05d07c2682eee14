"""FedHK-Diffusion: embed the rows of all sites by heat diffusion over common anchors, and cluster them there."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, cast

from sklearn.utils._param_validation import StrOptions

from fedhk._typing import FloatArray
from fedhk.data.views import Views
from fedhk.embedding.diffusion import EmbeddedModel
from fedhk.embedding.options import SYNTHETIC, Diffusion
from fedhk.estimators.choices import SHARE, check_calibration
from fedhk.estimators.efkmvc import EFKMVC, RunChoices
from fedhk.estimators.sealing import is_sealed
from fedhk.estimators.updating import Recollection, revise_phases
from fedhk.federation.aggregators import SumAggregator
from fedhk.federation.board import Entry
from fedhk.federation.entries import Remembered
from fedhk.federation.phases.anchors import ChooseAnchors, TieRows
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.cluster_means import FinishEmbedded, Limits
from fedhk.federation.phases.deliver import Deliver
from fedhk.federation.phases.describe import DescribeViews
from fedhk.federation.phases.diffuse import TOL, Diffuse
from fedhk.federation.phases.finish import Finish
from fedhk.federation.phases.frame import Frame
from fedhk.federation.phases.kept_embedding import FollowClusters, FoundEmbedding, OwnEmbedding, RecallEmbedding, Roots
from fedhk.federation.phases.mixture import FindDirections, FitMixture
from fedhk.federation.phases.remember import RememberEmbedded
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.phases.together import Together
from fedhk.federation.phases.update import FEW_DIGITS, Found, find_far
from fedhk.federation.phases.within import ChooseAnchorsAgain, FindMetric
from fedhk.federation.protocols.base import Protocol, RoundContext
from fedhk.federation.run import Run
from fedhk.federation.site import Site
from fedhk.model.drift import SitePast
from fedhk.personal.options import GradientStep
from fedhk.starts.seeding import SEEDERS
from fedhk.starts.settings import Settings


@dataclass(eq=False, repr=False)
class FedHKDiffusion(EFKMVC):
    """Federated clustering of rows embedded by heat diffusion: clusters need not be round.

    The sites' weighted means give some hundred anchors, or a mixture that sites fit together from sums gives them.
    Every row is tied to the nearest of them, in each view and in all views together; heat goes from rows to anchors and
    back, and rows between which it goes easily come to lie in one direction. What decides those directions is a sum
    over rows, so that any split of the rows over sites gives, for the same anchors, the embedding of the pooled rows.
    The model of `EFKMVC` is fitted to embedded rows.

    Parameters
    ----------
    n_clusters : int, "auto", (int, int) or str, default=8
        As in `EFKMVC`; a number that is to be found is found before rows are embedded.
    diffusion : fedhk.Diffusion or None, default=None
        How many anchors there are and what they are, how rows are tied to them, and of how many diffusions a consensus
        is taken; None is `Diffusion()`.
    calibration : "auto", None, float or (float, float), default="auto"
        Shares of a site's own mean and spread that are taken out of its rows before they are tied to anchors. "auto" is
        chosen as in `FedHKPerson`; where views agree still more then, the mean and spread are those that clusters leave
        of a site, so that which clusters it has does not count.
    heat_coef, scaling, n_init, random_state
        As in `HeatKernelMVC`; "auto" recognises text.
    tol : float, default=0.0004
        Stop when the objective falls by less than this for each row; 0 runs all rounds. Embedded rows have length 1,
        and the default is the square of the error that they may have: a smaller fall says nothing about them.
    heat_time
        As in `HeatKernelMVC`, for embedded rows.
    fuzzifier : float or "auto", default="auto"
        As in `HeatKernelMVC`, for embedded rows. With "auto", rounds have a value of at most 1.0625, and `memberships_`
        and `predict_proba` one of 1.5: they then say about how often such rows are in the right cluster.
    init : {"k-means++", "random"}, default="k-means++"
        How starts are drawn, among embedded rows that stand in for those of the sites; centres cannot be given.
    view_weights : {"auto", "uniform"}, default="auto"
        Views weigh alike in the embedding, whichever of the two it is.
    personalization : float, default=0.0
        As in `EFKMVC`: how far the centres of embedded rows move towards each site's own.
    max_rounds, protocol, participation, checkpoint, ...
        As in `EFKMVC`, and so are all other parameters, but that aggregators other than "sum" are refused: they would
        protect the rounds, and not the anchors before them.
    privacy : DifferentialPrivacy or None, default=None
        As in `EFKMVC`. Clusters are then put together from parts: noisy rounds find parts of clusters, half of the
        rounds are kept to count the rows between parts, and heat spreads over the parts. `n_clusters` must be given.
    secure : bool or SecureSummation, default=False
        As in `EFKMVC`. Without noise, anchors are then means of groups of the rows of all sites, made of sums.

    Attributes
    ----------
    labels_, memberships_ : dict of str to array
        Per site, of its own model.
    cluster_centers_ : list of array of shape (n_clusters, d_h)
        Mean of the rows of each cluster, by their memberships in the last round, in input units: what a cluster looks
        like. Rows are not placed by how near they are to it.
    cluster_sizes_ : array of shape (n_clusters,)
        Rows of each cluster, by their memberships in the last round.
    n_clusters_ : int
        The number that was used.
    eigenvalues_ : array
        How well heat stays in the first 1, 2, ... directions, one more than there are clusters; a gap after c of them
        speaks for c clusters.
    anchors_ : list of array of shape (p, d_h)
        Anchors of all diffusions in input units (with "l2", of length 1).
    calibration_ : dict or None
        Shares of mean and spread that were taken out ("shift", "spread"), and what units were then divided by per view
        ("factors"); None where sites measure alike.
    client_models_ : dict of str to HeatKernelMVC
        Each site's own model: it embeds new rows with the common anchors and directions, and predicts, saves and loads
        like any other.
    objective_, history_, n_iter_, converged_, stop_reason_
        As in `EFKMVC`; the objective is that of embedded rows.

    Notes
    -----
    The embedding of a row depends on the anchors and the row alone: `predict` of a site's own model gives a training
    row its label. So does `predict` of this model, unless sites are calibrated or have centres of their own: it knows
    no site. A row uses the views that it has; one without any value belongs to all clusters alike.

    What is personal is how a site's rows are read: where sites are calibrated, its own mean and spread are in the
    references of its model. With `personalization` the centres of embedded rows move too. Anchors, directions and
    cluster sizes are common; `FedHKPerson` learns more at each site.

    Examples
    --------
    >>> from fedhk import FedHKDiffusion
    >>> from fedhk.datasets import make_sites
    >>> data = make_sites(3, 60, n_clusters=3, random_state=0)
    >>> model = FedHKDiffusion(n_clusters=3, random_state=0).fit(data.sites)
    >>> [centers.shape for centers in model.cluster_centers_] == [(3, v.shape[1]) for v in data.sites["site-00"]]
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = EFKMVC._parameter_constraints | {
        "diffusion": [None, Diffusion],
        "calibration": [None, StrOptions({"auto"}), SHARE, "array-like"],
        "init": [StrOptions(set(SEEDERS))],
        "view_weights": [StrOptions({"auto", "uniform"})],
        "personalization": [SHARE, GradientStep],
    }
    _stored: ClassVar[tuple[str, ...]] = (*EFKMVC._stored, "calibration_")

    _: KW_ONLY
    tol: float = TOL**2
    diffusion: Diffusion | None = None
    calibration: Any = "auto"

    def phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        diffusion = self.diffusion or Diffusion()
        return [
            *self.describe_phases(run),
            *self.calibrate_phases(run),
            *self._anchor_phases(run, diffusion),
            Diffuse(run.settings, run.protocol, run.seed, run.workers, diffusion.scale),
            Rounds(
                run.protocol,
                RoundContext(run.settings, run.aggregator),
                int(self.max_rounds),
                float(self.tol),
                per_row=True,
            ),
            FinishEmbedded(),
            Together((RememberEmbedded(), Deliver(run.personal, run.settings.learn_weights))),
        ]

    def update_phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        recalled, model = run.recalled, self._embedded
        assert recalled is not None  # noqa: S101 - for type checkers
        describe: list[Phase[Any, Any]] = [DescribeViews(run.settings, run.holders)] if is_sealed(self) else []
        recall, *revise = revise_phases(recalled, run.settings, run.aggregator, leaves_out=run.deviating != "warn")
        deliver = Deliver(run.personal, run.settings.learn_weights, keep=recalled.keep)
        return [
            *describe,
            recall,
            RecallEmbedding(FoundEmbedding.of(model), Roots(model.parents, model.limits)),
            *revise,
            FollowClusters(model.parameters),
            Together((Finish(summary=False, memory=False), deliver)),
        ]

    def _site_memory(self, past: SitePast) -> list[Entry]:
        return [*super()._site_memory(past), OwnEmbedding(FoundEmbedding.of(self._embedded))]

    def _keep_memory(self, run: Run, sites: Mapping[str, Site], recalled: Recollection | None) -> None:
        """Keep no memory of a run with noise: what it remembers is of parts of clusters."""
        board = run.board if run.board.has(Limits) else run.board.drop(Remembered)
        super()._keep_memory(replace(run, board=board), sites, recalled)
        for found in board.find(Found):
            far = {cluster: round(found.strays[cluster]) for cluster in find_far(found)}
            if far:
                warnings.warn(
                    f"Rows are farther from all anchors of their cluster than chance explains, and no gap parts them "
                    f"from it: {', '.join(f'{rows} of cluster {cluster}' for cluster, rows in far.items())}. The "
                    "embedding does not follow a cluster that changes its shape, nor one that moves faster than "
                    "half_life lets it: give a shorter half_life, or fit anew from recent rows.",
                    UserWarning,
                    stacklevel=5,
                )

    def find_calibration(self, run: RunChoices) -> str | tuple[float, float] | None:  # noqa: ARG002
        return check_calibration(self.calibration)

    @staticmethod
    def _anchor_phases(run: RunChoices, diffusion: Diffusion) -> list[Phase[Any, Any]]:
        """Return the phases that make anchors: from candidates of the sites, or from a mixture of their rows."""
        n_clusters = run.settings.n_clusters
        tie = TieRows(diffusion, n_clusters, run.seed)
        if diffusion.anchors == SYNTHETIC:
            return [FindDirections(run.seed), FitMixture(n_clusters, run.seed), tie]
        given = (run.settings, run.protocol, run.aggregator, run.seed, run.workers)
        first = ChooseAnchors(*given, diffusion=diffusion, n_clusters=n_clusters)
        if not diffusion.stretch:
            return [first, tie]
        again = ChooseAnchorsAgain(*given, diffusion=diffusion, n_clusters=n_clusters)
        return [first, FindMetric(tie), again, tie]

    def _choose(self, clients: dict[str, Views], workers: int) -> RunChoices:
        """Make the choices before any site is asked; refuse what would protect the rounds but not the anchors."""
        run = super()._choose(clients, workers)
        if self.view_exponent != EFKMVC.view_exponent:
            raise ValueError(
                f"view_exponent={self.view_exponent} has no effect with {type(self).__name__}: views weigh alike in "
                "the embedding, and rows have one view afterwards. Leave it out."
            )
        if not isinstance(run.aggregator, SumAggregator):
            raise ValueError(  # noqa: TRY004 - a value as any other
                f"aggregator={self.aggregator!r} does not go with {type(self).__name__}: it would protect the rounds, "
                "and not the anchors before them. Use aggregator='sum', or another estimator."
            )
        return replace(run, settings=replace(run.settings, view_weights="uniform"))

    def decide_protocol(self, protocol: Protocol, settings: Settings, clients: dict[str, Views]) -> Protocol:
        """Return the protocol for embedded rows under masks: they have few features, so they need no basis."""
        if protocol == FEW_DIGITS:  # of an update, whose rounds move means in the views
            return super().decide_protocol(protocol, settings, clients)
        if protocol.in_basis:
            raise ValueError(
                f"protocol={protocol!r} has no effect with FedHKDiffusion and secure=True: embedded rows have few "
                "features already. Use protocol='statistics'."
            )
        return protocol.as_sums("secure=True")

    def _keep_model(self, run: Run, clients: Mapping[str, Views]) -> None:
        super()._keep_model(run, clients)
        self._calibrations = tuple(frame.calibration for frame in run.board.find(Frame))
        self.calibration_ = next((found.describe() for found in self._calibrations), None)

    @property
    def cluster_sizes_(self) -> FloatArray:
        """Rows of each cluster, by their memberships in the last round."""
        return self._embedded.sizes

    @property
    def eigenvalues_(self) -> FloatArray:
        """Eigenvalues of the diffusion, largest first."""
        return self._embedded.diffusion.values

    @property
    def anchors_(self) -> list[FloatArray]:
        """Anchors in the units and the shape of the input."""
        model = self._embedded
        parts = zip(model.references, model.carried.graph.anchors, model.shapes, strict=True)
        return [reference.to_input(anchors).reshape(-1, *shape) for reference, anchors, shape in parts]

    @property
    def _embedded(self) -> EmbeddedModel:
        return cast("EmbeddedModel", self._model)
