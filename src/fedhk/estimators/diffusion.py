"""FedHK-Diffusion: rows of all sites are embedded by heat diffusion over common anchors, and clustered there."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, cast

from sklearn.utils._param_validation import StrOptions

from fedhk._typing import FloatArray
from fedhk.data.views import Views
from fedhk.embedding.embedded import EmbeddedModel
from fedhk.estimators.choices import DIFFUSION_CONSTRAINTS, SHARE, WHOLE_FROM_ONE, check_calibration, make_diffusion
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.federation.site import calibrated_rows
from fedhk.federation.state import Plan, ServerState
from fedhk.model.fitted import FittedModel
from fedhk.personal.calibration import Calibration
from fedhk.starts.seeding import SEEDERS


@dataclass(eq=False, repr=False)
class FedHKDiffusion(EFKMVC):
    """Federated clustering of rows embedded by heat diffusion: clusters need not be round.

    The sites' weighted means give some hundred anchors. Every row is tied to the nearest of them, in each view and in
    all views together; heat goes from rows to anchors and back, and rows between which it goes easily come to lie in
    one direction. What decides those directions is a sum over rows, so that any split of the rows over sites gives, for
    the same anchors, the embedding of the pooled rows. The model of `EFKMVC` is then fitted to embedded rows.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto" is the number from 2 to 10 after which the eigenvalues of the diffusion fall most.
    n_anchors : int, default=300
        Anchors; four for a cluster where that is more, at most one for three rows, at least two for a cluster.
    neighbours : int, default=9
        Anchors that a row is tied to in each view, and in all views together.
    scale : float, default=3.0
        How fast ties weaken with the distance.
    joint_weight : float, default=0.5
        Share of the distances over all views together; the views divide the rest evenly.
    calibration : "auto", None, float or (float, float), default="auto"
        Shares of a site's own mean and spread that are taken out of its rows before they are tied to anchors. "auto" is
        0.75 of both where that makes clusters clearer (sites that measure differently), else none, by the rule of
        `FedHKPerson`. For this, sites send their means and spreads once.
    heat_coef, scaling, n_init, tol, random_state
        As in `HeatKernelMVC`; `scaling="l2"` for text.
    heat_time, fuzzifier
        As in `HeatKernelMVC`, for embedded rows.
    init : {"k-fed", "k-means++", "random"}, default="k-fed"
        How starts are drawn, among embedded rows that stand in for those of the sites; centres cannot be given.
    view_weights : {"auto", "uniform"}, default="auto"
        Views weigh alike in the embedding, whichever of the two it is.
    max_rounds, protocol, local_passes, client_weights, personalization_step, fraction, min_sites, timeout, checkpoint
        As in `EFKMVC`, and so are all other parameters, but that `privacy` and aggregators other than "sum" are
        refused: they would protect the rounds, and not the anchors before them.
    secure : bool or SecureSummation, default=False
        As in `EFKMVC`. Anchors are then made from sums over all sites too, which takes more exchanges and bytes, and
        sites are not calibrated.

    Attributes
    ----------
    labels_, memberships_ : dict of str to array
        Per site, of its own model.
    cluster_centers_ : list of array of shape (n_clusters, d_h)
        Mean of the rows of each cluster, by membership, in input units: what a cluster looks like. Rows are not placed
        by how near they are to it.
    cluster_sizes_ : array of shape (n_clusters,)
        Rows of each cluster, by membership.
    n_clusters_ : int
        The number that was used.
    eigenvalues_ : array
        How well heat stays in the first 1, 2, ... directions; a gap after c of them speaks for c clusters.
    anchors_ : list of array of shape (p, d_h)
        Anchors in input units (with "l2", of length 1).
    calibration_ : list or None
        Shares of mean and spread that were taken out, and what units were then divided by per view.
    client_models_ : dict of str to HeatKernelMVC
        Each site's own model: it embeds new rows with the common anchors and directions, and predicts, saves and loads
        like any other.
    objective_, history_, n_iter_, converged_, stop_reason_
        As in `EFKMVC`; the objective is that of embedded rows.

    Notes
    -----
    The embedding of a row depends on the anchors and the row alone: `predict` of a training row gives its label. A row
    uses the views that it has; one without any value belongs to all clusters alike.

    What is personal is how a site's rows are read: where sites are calibrated, its own mean and spread are in the
    references of its model. With `personalization_step` the centres of embedded rows move too. Anchors, directions and
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
        "n_clusters": [WHOLE_FROM_ONE, StrOptions({"auto"})],
        **DIFFUSION_CONSTRAINTS,
        "calibration": [None, StrOptions({"auto"}), SHARE, "array-like"],
        "init": [StrOptions(set(SEEDERS))],
        "view_weights": [StrOptions({"auto", "uniform"})],
    }
    _stored: ClassVar[tuple[str, ...]] = (*EFKMVC._stored, "calibration_")

    _: KW_ONLY
    n_anchors: int = 300
    neighbours: int = 9
    scale: float = 3.0
    joint_weight: float = 0.5
    calibration: Any = "auto"

    @property
    def cluster_sizes_(self) -> FloatArray:
        """Rows of each cluster, by membership."""
        return self._embedded.sizes

    @property
    def eigenvalues_(self) -> FloatArray:
        """Eigenvalues of the diffusion, largest first."""
        return self._embedded.diffusion.values

    @property
    def anchors_(self) -> list[FloatArray]:
        """Anchors in the units and the shape of the input."""
        model = self._embedded
        parts = zip(model.references, model.diffusion.graph.anchors, model.shapes, strict=True)
        return [reference.to_input(anchors).reshape(-1, *shape) for reference, anchors, shape in parts]

    @property
    def _embedded(self) -> EmbeddedModel:
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"This {type(self).__name__} is not fitted yet.")
        return cast("EmbeddedModel", self._model)

    def _plan(self, clients: dict[str, Views]) -> Plan:
        plan = super()._plan(clients)
        chosen = make_diffusion(self, count_clusters=isinstance(self.n_clusters, str))
        settings = replace(plan.settings, view_weights="uniform")
        return replace(plan, settings=settings, diffusion=chosen, calibration=check_calibration(self.calibration))

    def _global_model(self, state: ServerState) -> FittedModel:
        stage, calibration = state.stage, state.calibration
        assert stage is not None  # noqa: S101 - a run that is done has embedded its rows
        assert stage.diffusion is not None  # noqa: S101
        assert stage.sizes is not None  # noqa: S101
        self.calibration_ = None if calibration is None else calibration.to_list()
        means, references = stage.means, state.references
        if calibration is not None:  # means are of rows before they are calibrated, in common units
            means = tuple(values / factor for values, factor in zip(means, calibration.factors, strict=True))
            references = calibration.in_units(references)
        return EmbeddedModel(
            state.parameters,
            references,
            state.names,
            state.columns,
            diffusion=stage.diffusion,
            means=means,
            sizes=stage.sizes,
        )

    def _at_site(self, views: Views) -> FittedModel:
        """The model with the references of the site's own frame."""
        if self.calibration_ is None:
            return self._model
        calibration = Calibration.from_list(self.calibration_)
        rows = calibrated_rows(views, calibration.before(self._model.references), calibration)
        return replace(self._model, references=rows.references)
