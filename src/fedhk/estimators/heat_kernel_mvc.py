"""The model at one site: an ordinary scikit-learn clusterer for one table or several views."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions

from fedhk._random import check_generator
from fedhk._records import Records
from fedhk._typing import FloatArray, IntArray
from fedhk.agreement.number import choose_number, describe_selection, find_number, points_of_rows
from fedhk.agreement.scalings import choose_scalings
from fedhk.data.folds import Fold, fold_alone, fold_views
from fedhk.data.scaling import AUTO, UnitRows, make_scaling
from fedhk.data.views import Views
from fedhk.estimators.base import UPDATED, HeatKernelModel, LowRankAttributes, unchanged_on_error, warn_of_doubts
from fedhk.estimators.choices import (
    MODEL_CONSTRAINTS,
    RANK_CONSTRAINT,
    WHOLE_FROM_ONE,
    ModelParameters,
    describe_choices,
    is_chosen,
    limit_numbers,
    make_settings,
)
from fedhk.estimators.mistakes import warn_of_codes
from fedhk.estimators.updating import (
    check_updatable,
    check_update,
    describe_update,
    recollect,
    remember_site,
    update_site,
)
from fedhk.federation.entries import FinalParameters, Minimisation, Remembered
from fedhk.model.descent import Progress, minimise
from fedhk.model.fitted import FittedModel
from fedhk.model.passes import Passes, own_threads
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.starts.settings import Settings
from fedhk.summary.model import ONLY_SITE
from fedhk.tensors.low_rank import DECOMPOSITIONS


@dataclass(eq=False, repr=False)
class HeatKernelMVC(
    ModelParameters,
    LowRankAttributes,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    HeatKernelModel,
):
    """Heat-kernel multi-view clustering at one site (E-KMVC, `eqn:E-KMVC`).

    Groups rows that are described by one or several views. A row's distance to a centre is 1 - exp(-t d) per view, with
    d the squared distance in units in which every view weighs alike: near rows count as in k-means, far ones all alike,
    so that outliers pull no centre. Memberships, view weights and centres are updated in turn; the objective never
    rises.

    Parameters
    ----------
    n_clusters : int, "auto", (int, int) or str, default=8
        Number of clusters; as in scikit-learn's KMeans, 8. A pair such as (2, 8), or "2-8", lets it be found among
        these, "auto" among 2 to 100 (`selection_`); where rows show no clusters, it is one.
    heat_coef : {"uniform", "minmax", "absdev", "minmax-local", "absdev-local"}, default="uniform"
        Coefficient of each cell in the distance: 1, its place in the feature's range (`eqn:fed_delta`), or its distance
        from the feature's mean (`eqn:fed_delta_v2`). Uniform did best on real data. Over several sites the last two
        have each site's own range or mean; at one site they are the plain ones.
    heat_time : float, default=0.3
        Bandwidth t of the heat kernel, in units in which a row's mean squared distance to the grand mean is 1 per view.
        Small values approach k-means; from 0.2 to 0.5 real data cluster alike.
    fuzzifier : float or "auto", default="auto"
        m > 1: how much clusters share rows. "auto" is 1.0625 where clusters are apart and less where distances hardly
        differ (text, very wide data), so that memberships do not blur into each other.
    view_weights : {"auto", "uniform", "learned"} or sequence of float, default="auto"
        Weight of each view. "auto" looks once, before the start, how much each view clusters beyond a cloud of the same
        covariance, and lowers the factor of views that do so much less than the best, at most to a third. "learned"
        follows `eqn:diff_V_EFKMVFC` in every iteration, which favours views of few features. Numbers are kept.
    view_exponent : float, default=2.0
        alpha > 1: a view's factor in the objective is its weight to this power. With "learned" weights, larger values
        keep them closer to equal.
    scaling : {"auto", "standard", "minmax", "l2", "none", "root", "histogram", "magnitude", "tfidf"} or Scaling, \
            default="auto"
        Units of features: divided by standard deviation ("standard", z-scores), by range, rows divided by their length
        (text), as they are, roots of the shares of a row (counts), z-scores of these (histograms), z-scores of the
        roots of cells (magnitudes of one kind, such as descriptors of pictures), counts of words weighted by how rare
        the words are. "auto" finds text, histograms and magnitudes; other views have z-scores, unless views agree more
        about the clusters under another scaling (`choices_`). A `fedhk.data.scaling.Scaling` of your own says by what
        each feature is divided.
    init : {"k-means++", "random"}, or sequence or dict of array, default="k-means++"
        How starts are drawn: by greedy k-means++ in the joint space of all views, or at random. Or centres, one
        (n_clusters, d_h) array per view, in input units, of a tensor view also (n_clusters, p, q); nothing is drawn
        then, and "auto" means equal view weights and a fuzzifier of 1.0625.
    n_init : int, default=20
        Starts to compare, on at most 4,096 rows: each gets three passes of k-means and three of the model, the best
        five run to the end, the best of those is run on all rows. Five lost accuracy, 40 gained next to none.
    decomposition : {"tucker", "parafac2", "cp"} or None, default=None
        Low-rank form that the centres have during the whole fit; see `FedHKTucker` and `FedHKParafac2`. Or the name of
        one of your own in `fedhk.tensors.DECOMPOSITIONS`.
    rank : "auto", float, int or sequence of int, default="auto"
        Rank of that form. "auto" is the one with which half of the rows best predict the other half, if that is surely
        better than with free centres, else the full rank; a fraction keeps so much of the energy of the centres at the
        start.
    max_iter : int, default=100
        Most iterations over all rows.
    tol : float, default=1e-5
        Stop when the objective falls by less than this share of itself; 0 runs all iterations.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness; an int makes results repeat.
    verbose : int, default=0
        1 says how each iteration went, on standard error.

    Attributes
    ----------
    labels_ : array of shape (n,)
        Cluster of each row.
    memberships_ : array of shape (n, n_clusters)
        How much each row belongs to each cluster; rows sum to 1.
    cluster_centers_ : list of array of shape (n_clusters, d_h)
        Centres in input units (with "l2", "root", "histogram", "magnitude" and "tfidf", of rows in that form); one
        array if fitted on one table. Those of a tensor view have its shape, (n_clusters, p, q).
    view_weights_ : array of shape (s,)
        Weight of each view; they sum to 1.
    objective_ : float
        J at the end.
    history_ : list of dict
        One record an iteration: iteration, objective, seconds. The seconds of the first one include the search for a
        start and for the number of clusters. It shows itself as a table.
    n_iter_, converged_, stop_reason_ : int, bool, str
        How many iterations, whether `tol` was reached, and why it stopped, in words.
    choices_ : list of dict
        With `scaling="auto"`, one record for each view and scaling that was compared: choice, view, option,
        between_views (agreement of the view's clusters with those of the other views, or of two halves of its features
        if it is the only one: adjusted mutual information), with_sites (of frames over sites), taken, note. It shows
        itself as a table.
    n_clusters_, fuzzifier_ : int, float
        What was used.
    selection_ : list of dict
        Where the number of clusters was found, one record for each number that was tried: n_clusters, gap (share of the
        heat that stays in the last cluster's direction and leaves the next one), agreement (of the views on these
        directions), slowing (how many times faster heat leaves the next one), evidence (how much longer it stays than
        in one normal cloud, in standard deviations), score (gap times agreement, of which the largest is taken), taken,
        note.
    rank_, factors_, core_, cluster_factor_, feature_factors_, view_factor_, reconstruction_error_
        With a decomposition: its rank, its factors (of the centres in model units), and what the form loses.
    n_features_in_ : int
        Features of all views together.
    feature_names_in_ : array of str
        Column names, if fitted on one data frame.
    drift_, updates_
        After `partial_fit`, as in `EFKMVC`.

    Notes
    -----
    A missing cell (NaN) has coefficient 0 and drops out of every sum; so does a view that a row does not have. The
    centre update has the coefficient inside the weight, where the paper divides by it: that makes it a descent step.

    Examples
    --------
    >>> from fedhk import HeatKernelMVC
    >>> from fedhk.datasets import make_two_view_shapes
    >>> data = make_two_view_shapes(400, random_state=0)
    >>> model = HeatKernelMVC(n_clusters=4, random_state=0).fit(data.views)
    >>> model.memberships_.shape
    (400, 4)
    >>> float(model.view_weights_.sum())
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = MODEL_CONSTRAINTS | {
        "decomposition": [None, StrOptions(DECOMPOSITIONS.keys())],
        "rank": RANK_CONSTRAINT,
        "max_iter": [WHOLE_FROM_ONE],
    }
    _stored: ClassVar[tuple[str, ...]] = (*HeatKernelModel._stored, *UPDATED)

    _: KW_ONLY
    decomposition: str | None = None
    rank: Any = "auto"
    max_iter: int = 100

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Find the clusters.

        Parameters
        ----------
        X : list or dict of tables, or one table
            A table per view with the same rows in the same order: 2-D NumPy arrays (also memory-mapped), pandas or
            polars data frames, SciPy sparse matrices. NaN is a missing cell. A dict gives the views names. An array of
            more dimensions, such as n images of p x q, is a tensor view; a single one stands in a list.
        y : ignored
            Present because scikit-learn's pipelines pass it.
        sample_weight : array of shape (n,), optional
            Weight of each row; a row of weight 2 counts as two rows.

        Returns
        -------
        self
            If a fit fails, the estimator stays what it was.
        """
        with unchanged_on_error(self):
            self._fit(X, sample_weight)
        warn_of_doubts(self, [self.labels_], [self.memberships_])
        return self

    def _fit(self, X: Any, sample_weight: Any) -> None:
        """Find the clusters, and set the fitted attributes."""
        views, weights = self._read_training(X, sample_weight)
        warn_of_codes(views)
        numbers = limit_numbers(self.n_clusters, views.n_rows)
        if views.n_rows < numbers[-1]:
            raise ValueError(f"n_samples={views.n_rows} should be >= n_clusters={numbers[-1]}.")
        shapes = [shape or () for shape in views.shapes]
        settings = make_settings(self, views.names, shapes, single_table=self._single_table)
        folds = fold_alone(views, self.scaling, self.heat_coef, weights) if isinstance(settings.init, str) else {}
        came, views = views, fold_views(views, folds)
        rows = self._prepare(views, weights, folds)
        generator = check_generator(self.random_state)
        began = time.perf_counter()
        with own_threads() as workers:
            self.selection_, c = Records(), numbers[-1]
            if is_chosen(self.n_clusters):
                seed = int(generator.integers(2**31))
                points = points_of_rows(rows, numbers[-1], seed)
                tried = find_number(points, numbers[0], numbers[-1], seed, shifted=False)
                self.selection_, (c, why) = describe_selection(tried), choose_number(tried)
                self._say(f"{c} clusters: {why}")
            self._say(f"{c} clusters: looking for a start")
            with Passes(rows, c, workers) as scan:
                progress, history = self._minimise(scan, replace(settings, n_clusters=c), generator, workers)
                history[0]["seconds"] = time.perf_counter() - began - sum(record["seconds"] for record in history[1:])
                self.memberships_, self.labels_, self.objective_ = scan.assign(progress.parameters)
                self._memory, self._pasts = remember_site(scan, progress.parameters, self.labels_)
        self._dtype, self._row_names = views.dtype, {"": views.index}
        model = FittedModel(progress.parameters, rows.references, views.names, views.columns)
        if folds:
            columns = dict(zip(came.names, came.columns, strict=True))
            model = model.unfold(folds, self._wide_means(came, weights, folds), columns)
        self._keep_progress(model, progress, history)
        self.drift_, self.updates_ = Records(), Records()

    def partial_fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        half_life: float | None = None,
        rounds: int = 3,
        level: float = 0.05,
    ) -> Self:
        """Go on with new rows; the first call fits the model.

        Clusters keep their numbers. New ones come behind them where rows fit nowhere or a cluster has come apart. Those
        of which nothing is left, after forgetting, and those that new rows have surely left are gone
        (`gone_clusters_`). `labels_` are those of the new rows, `drift_` says which clusters have moved, `updates_`
        what every call did.

        Parameters
        ----------
        X : list or dict of tables, or one table
            New rows, with the views and columns of the first call.
        y : ignored
            Present because scikit-learn passes it.
        half_life : float or None, default=None
            Calls after which what was learned before counts half as much as new rows; None never forgets.
        rounds : int, default=3
            Most passes over the rows; fewer where centres move by less than the error of a mean.
        level : float, default=0.05
            How likely `drift_` reports anything where nothing has moved.

        Returns
        -------
        self
        """
        keep = check_update(half_life, rounds, level)
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        self._validate_params()
        check_updatable(self)
        model = self._model
        views = self._read_new(X, model.view_names, model.widths, model.columns)
        recalled = recollect(self, {ONLY_SITE: views}, keep=keep, rounds=rounds, level=level)
        with own_threads() as workers:
            settings = make_settings(self, views.names, model.shapes, single_table=self._single_table)
            run, past = update_site(views, self._pasts, recalled, settings, workers)
            parameters = run.board.get(FinalParameters).parameters
            found = replace(model, parameters=parameters)
            with Passes(found.rows(views), parameters.n_clusters, workers) as scan:
                self.memberships_, self.labels_, self.objective_ = scan.assign(parameters)
        self._memory, self._pasts = run.board.get(Remembered).memory, {ONLY_SITE: past}
        self._row_names = {"": views.index}
        self._keep_progress(found, run.board.get(Minimisation).progress, run.history)
        self.drift_, done = describe_update(run, recalled)
        self.updates_ = Records([*self.updates_, done])
        return self

    def _say(self, text: str) -> None:
        """Print the current step, for `verbose`."""
        if self.verbose:
            print(text, file=sys.stderr)  # noqa: T201 - this is its purpose

    def _wide_means(self, views: Views, weights: FloatArray | None, folds: Mapping[str, Fold]) -> dict[str, FloatArray]:
        """Compute the mean of the rows of each cluster in the columns of very wide views, by name."""
        tables, found = dict(zip(views.names, views.tables, strict=True)), {}
        sizes = np.bincount(self.labels_, weights, minlength=self.memberships_.shape[1])
        for name, fold in folds.items():
            sums = fold.sums(tables[name], self.labels_, len(sizes), weights).toarray()
            found[name] = (sums / np.where(sizes > 0, sizes, 1.0)[:, None]).astype(np.float32)
        return found

    def _prepare(self, views: Views, weights: FloatArray | None, folds: Collection[str]) -> Rows:
        """Return rows in model units, and set `choices_`; views in `folds` have their final form already."""
        scaling: Any = self.scaling
        self.choices_ = describe_choices(self.scaling, views.names, ())
        if isinstance(scaling, str) and scaling == AUTO:
            scaling, opinions = choose_scalings(views, weights)
            self.choices_ = describe_choices(self.scaling, views.names, opinions)
        elif folds and make_scaling(scaling).needs_counts:
            scaling = [UnitRows() if name in folds else make_scaling(scaling) for name in views.names]
        return Rows(views, prepare(views, scaling, self.heat_coef, weights), weights)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_clusters_

    @classmethod
    def from_model(cls, model: FittedModel, dtype: np.dtype[Any], params: dict[str, Any], objective: float) -> Self:
        """Make an estimator of a model that was fitted elsewhere."""
        estimator = cls(**params)
        estimator._model, estimator._dtype, estimator._single_table = model, dtype, False
        estimator.n_features_in_ = sum(model.widths)
        estimator.objective_ = objective
        return estimator

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> IntArray:
        """Find the clusters and return each row's; the same as `fit(X).labels_`."""
        return self.fit(X, y, sample_weight).labels_

    def transform(self, X: Any) -> FloatArray:
        """Return the kernel distance of each row to each centre, a weighted sum over views, shape (n, c)."""
        return super().transform(X)  # scikit-learn's `set_output` sees only methods of the class itself

    def _minimise(
        self, scan: Passes, settings: Settings, generator: np.random.Generator, workers: int
    ) -> tuple[Progress, list[dict[str, Any]]]:
        """Fit with one number of clusters; return the result and the history."""
        start = settings.start(scan.rows, np.random.RandomState(generator.integers(2**31)), workers)
        return minimise(
            scan.statistics,
            start,
            learn_weights=settings.learn_weights,
            max_iter=self.max_iter,
            tol=self.tol,
            callback=_report if self.verbose else None,
        )


def _report(record: dict[str, Any]) -> None:
    """Print the objective of an iteration, for `verbose`."""
    text = f"iteration {record['iteration']:3d}  objective {record['objective']:.6g}  {record['seconds']:.3f} s"
    print(text, file=sys.stderr)  # noqa: T201 - this is its purpose


def write_site_model(path: Path, model: FittedModel, dtype: np.dtype[Any], objective: float) -> None:
    """Write a model that was fitted over sites as a `HeatKernelMVC`, which `fedhk.load` reads.

    Parameters
    ----------
    path : Path
        The file.
    model : FittedModel
        The global model, or a site's own.
    dtype : numpy.dtype
        The precision of what it gives back.
    objective : float
        J of the site's rows; NaN where it is not known.
    """
    names = ("n_clusters", "heat_time", "fuzzifier", "view_exponent")
    params = {name: getattr(model.parameters, name) for name in names}
    HeatKernelMVC.from_model(model, dtype, params, objective).save(path)
