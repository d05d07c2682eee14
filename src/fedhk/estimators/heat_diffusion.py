"""Heat diffusion at one site, as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fedhk._random import check_generator
from fedhk._typing import FloatArray
from fedhk.agreement.scalings import choose_scalings
from fedhk.data.scaling import AUTO, HeatCoef, Reference, Scaling
from fedhk.embedding.diffusion import fit_diffusion
from fedhk.embedding.options import Diffusion
from fedhk.embedding.spectrum import embed_affinities
from fedhk.estimators.base import ReadsViews, unchanged_on_error
from fedhk.estimators.choices import MODEL_CONSTRAINTS, WHOLE_FROM_ONE, describe_choices
from fedhk.model.passes import own_threads
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows


@dataclass(eq=False, repr=False)
class HeatDiffusion(ReadsViews, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Embeds rows by heat diffusion over anchors: clusters that are not round become directions.

    Rows are tied to the nearest of some hundred anchors, in every view and in all views together; heat goes from rows
    to anchors and back. Rows between which it goes easily come to lie in one direction, however their cluster winds. A
    clusterer such as `HeatKernelMVC` or scikit-learn's KMeans then has round clusters before it.

    Parameters
    ----------
    n_components : int, default=8
        Dimensions of the embedding: as many as there are clusters.
    diffusion : fedhk.Diffusion or None, default=None
        How many anchors there are and what they are, how rows are tied to them, and of how many diffusions a consensus
        is taken; None is `Diffusion()`.
    scaling : {"auto", "standard", "minmax", "l2", "none", "root", "histogram", "magnitude", "tfidf"} or Scaling, \
            default="auto"
        Units of features, as in `HeatKernelMVC`; "auto" compares partitions into `n_components` clusters.
    heat_coef : {"uniform", "minmax", "absdev"}, default="uniform"
        Coefficient of each cell in the distance, as in `HeatKernelMVC`.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness; an int makes results repeat.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        How well heat stays in the first 1, 2, ... directions; a gap after c of them speaks for c clusters.
    n_components_ : int
        Dimensions of the embedding; fewer than asked for where rows are few or alike.
    anchors_ : list of array of shape (p, d_h)
        Anchors in input units (with "l2", of length 1); one array if fitted on one table.
    choices_ : list of dict
        What `scaling="auto"` compared and took, as in `HeatKernelMVC`.
    n_features_in_ : int
        Features of all views together.

    Notes
    -----
    The embedding of a row depends on the anchors and the row alone, so that `transform` of training rows gives what
    `fit_transform` gave. A missing cell drops out of the distances; a row uses the views that it has; one without any
    value is embedded at 0.

    Examples
    --------
    >>> from fedhk import HeatDiffusion
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import make_circles
    >>> from sklearn.pipeline import make_pipeline
    >>> rows, circle = make_circles(600, factor=0.3, noise=0.03, random_state=0)
    >>> found = make_pipeline(HeatDiffusion(2, random_state=0), KMeans(2, n_init=5, random_state=0)).fit_predict(rows)
    >>> bool((found == circle).all() or (found != circle).all())
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [WHOLE_FROM_ONE],
        "diffusion": [None, Diffusion],
        **{name: MODEL_CONSTRAINTS[name] for name in ("scaling", "heat_coef", "random_state")},
    }

    n_components: int = 8
    _: KW_ONLY
    diffusion: Diffusion | None = None
    scaling: str | Scaling = AUTO
    heat_coef: HeatCoef = "uniform"
    random_state: Any = None

    _least_rows: ClassVar[int] = 2

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find anchors and directions; `X` is as in `HeatKernelMVC.fit`, `y` is ignored."""
        self.fit_transform(X, y, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> FloatArray:  # noqa: ARG002
        """Find anchors and directions, and embed the rows; the same as `fit(X).transform(X)`."""
        with unchanged_on_error(self):
            return self._fit_transform(X, sample_weight)

    def _fit_transform(self, X: Any, sample_weight: Any) -> FloatArray:
        """Embed the rows, and set the fitted attributes."""
        views, weights = self._read_training(X, sample_weight)
        scaling: Any = self.scaling
        self.choices_ = describe_choices(self.scaling, views.names, ())
        if isinstance(scaling, str) and scaling == AUTO:
            scaling, opinions = choose_scalings(views, weights)
            self.choices_ = describe_choices(self.scaling, views.names, opinions)
        self._references: tuple[Reference, ...] = prepare(views, scaling, self.heat_coef, weights)
        self._names, self._columns = views.names, views.columns
        seed = int(check_generator(self.random_state).integers(2**31))
        rows = Rows(views, self._references, weights)
        options = self.diffusion or Diffusion()
        with own_threads():
            self._model, affinities = fit_diffusion(rows, int(self.n_components), options, seed)
        self.n_features_in_ = sum(rows.widths)
        return embed_affinities(affinities, self._model.projection).astype(views.dtype, copy=False)

    def transform(self, X: Any) -> FloatArray:
        """Rows in the directions that heat distinguishes, of length 1, shape `(n, n_components_)`."""
        check_is_fitted(self)
        widths = [reference.width for reference in self._references]
        views = self._read_new(X, self._names, widths, self._columns)
        with own_threads():
            return self._model.embed(Rows(views, self._references)).astype(views.dtype, copy=False)

    @property
    def eigenvalues_(self) -> FloatArray:
        """Eigenvalues of the diffusion, largest first."""
        return self._model.values

    @property
    def n_components_(self) -> int:
        """Dimensions of the embedding."""
        return self._model.n_components

    @property
    def anchors_(self) -> FloatArray | list[FloatArray]:
        """Anchors in the units of the input."""
        centers = [r.to_input(a) for r, a in zip(self._references, self._model.graph.anchors, strict=True)]
        return centers[0] if self._single_table else centers

    @property
    def _n_features_out(self) -> int:
        return self.n_components_
