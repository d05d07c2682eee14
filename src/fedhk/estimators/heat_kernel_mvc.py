"""The model at one site: an ordinary scikit-learn clusterer for one table or several views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from rich.console import Console
from sklearn.utils._param_validation import Interval, StrOptions

from fedhk._typing import FloatArray, IntArray
from fedhk.data.checks import check_generator
from fedhk.data.scaling import HEAT_COEFS, SCALINGS, HeatCoef, Scaling
from fedhk.data.views import check_views, is_view_collection
from fedhk.estimators.base import HeatKernelModel, check_weights
from fedhk.model.fitted import FittedModel
from fedhk.model.loop import Outcome, minimise
from fedhk.model.one_pass import Passes, own_threads
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.model.seeding import LEAST_POWER, SEEDERS, best_start

# What n_clusters="auto" chooses among.
AUTO_CLUSTERS = range(2, 11)


class HeatKernelMVC(HeatKernelModel):
    """Heat-kernel multi-view clustering (E-KMVC, `eqn:E-KMVC`).

    DOC
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"}), "array-like", range],
        "heat_coef": [StrOptions(set(HEAT_COEFS))],
        "heat_time": [Interval(Real, 0, None, closed="neither")],
        "fuzzifier": [StrOptions({"auto"}), Interval(Real, 1, None, closed="neither")],
        "view_weights": [StrOptions({"auto", "uniform", "learned"}), "array-like"],
        "view_exponent": [Interval(Real, 1, None, closed="neither")],
        "scaling": [StrOptions(set(SCALINGS))],
        "init": [StrOptions(set(SEEDERS)), "array-like", dict],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state", np.random.Generator],
        "verbose": ["verbose"],
    }
    _stored = (*HeatKernelModel._stored, "selection_")

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        heat_coef: HeatCoef = "uniform",
        heat_time: float = 0.3,
        fuzzifier: float | str = "auto",
        view_weights: Any = "auto",
        view_exponent: float = 2.0,
        scaling: Scaling = "standard",
        init: Any = "k-fed",
        n_init: int = 20,
        max_iter: int = 100,
        tol: float = 1e-5,
        random_state: Any = None,
        verbose: int | bool = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.heat_coef = heat_coef
        self.heat_time = heat_time
        self.fuzzifier = fuzzifier
        self.view_weights = view_weights
        self.view_exponent = view_exponent
        self.scaling = scaling
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Find the clusters.

        Parameters
        ----------
        X : list or dict of tables, or one table
            A table per view with the same rows in the same order: 2-D NumPy arrays (also memory-mapped), pandas or
            polars data frames, SciPy sparse matrices. NaN is a missing cell. A dict gives the views names.
        y : ignored
            Present because scikit-learn's pipelines pass it.
        sample_weight : array of shape (n,), optional
            Weight of each row; a row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        self._validate_params()
        self._single_table = not is_view_collection(X)
        views = check_views(self._as_table(X, reset=True))
        weights = check_weights(sample_weight, views)
        choices = self._cluster_numbers(views.n_rows)
        rows = Rows(views, prepare(views, self.scaling, self.heat_coef, weights), weights)
        generator = check_generator(self.random_state)
        with own_threads() as workers:
            results = [self._fit_rows(rows, views.names, n_clusters, generator, workers) for n_clusters in choices]
            best = max(range(len(choices)), key=lambda i: results[i][1])
            outcome = results[best][0]
            with Passes(rows, outcome.parameters.n_clusters, workers) as scan:
                self.memberships_, self.labels_, self.objective_ = scan.assign(outcome.parameters)
        self._model = FittedModel(outcome.parameters, rows.references, views.names, views.columns)
        self._dtype = views.dtype
        self.n_features_in_ = sum(rows.widths)
        self.history_ = outcome.history
        self.n_iter_ = len(outcome.history)
        self.converged_ = outcome.converged
        self.stop_reason_ = outcome.stop_reason
        self.selection_ = [
            {"n_clusters": n_clusters, "silhouette": silhouette}
            for n_clusters, (_, silhouette) in zip(choices, results, strict=True)
        ]
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> IntArray:
        """Find the clusters and return each row's; the same as `fit(X).labels_`."""
        return self.fit(X, y, sample_weight).labels_

    def _fit_rows(
        self, rows: Rows, names: Sequence[str], n_clusters: int, generator: np.random.Generator, workers: int
    ) -> tuple[Outcome, float]:
        """Fit with one number of clusters; how it ended, and how well separated the clusters are."""
        start = self._start(rows, names, n_clusters, generator, workers)
        with Passes(rows, n_clusters, workers) as scan:
            outcome = minimise(
                scan.statistics,
                start,
                learn_weights=isinstance(self.view_weights, str) and self.view_weights == "learned",
                max_iter=self.max_iter,
                tol=self.tol,
                callback=self._report if self.verbose else None,
            )
            silhouette = scan.silhouette(outcome.parameters) if n_clusters > 1 else 0.0
        return outcome, silhouette

    def _start(
        self, rows: Rows, names: Sequence[str], n_clusters: int, generator: np.random.Generator, workers: int
    ) -> Parameters:
        """The parameters of the first iteration."""
        template = Parameters(
            centers=tuple(np.zeros((n_clusters, width)) for width in rows.widths),
            view_weights=self._view_weights(len(names)),
            heat_time=float(self.heat_time),
            fuzzifier=1.0 + 1.0 / LEAST_POWER if self.fuzzifier == "auto" else float(self.fuzzifier),
            view_exponent=float(self.view_exponent),
            view_shares=self._view_shares(rows),
        )
        if not isinstance(self.init, str):
            return replace(template, centers=self._given_centers(rows, names, n_clusters))
        random_state = np.random.RandomState(generator.integers(2**31))
        return best_start(
            rows,
            template,
            SEEDERS[self.init],
            n_init=self.n_init,
            choose_weights=isinstance(self.view_weights, str) and self.view_weights == "auto",
            choose_fuzzifier=self.fuzzifier == "auto",
            random_state=random_state,
            workers=workers,
        )

    def _cluster_numbers(self, n_rows: int) -> list[int]:
        """The numbers of clusters to choose among; most often one."""
        if isinstance(self.n_clusters, str):
            return [c for c in AUTO_CLUSTERS if c < n_rows] or [1]
        choices = [self.n_clusters] if isinstance(self.n_clusters, Integral) else list(self.n_clusters)
        if not choices or any(not isinstance(c, Integral) or c < 1 for c in choices):
            raise ValueError(f"n_clusters={self.n_clusters!r} must be whole numbers of at least 1, or 'auto'.")
        numbers = [int(c) for c in choices]
        if n_rows < max(numbers):
            raise ValueError(f"n_samples={n_rows} should be >= n_clusters={max(numbers)}.")
        return numbers

    def _view_weights(self, n_views: int) -> FloatArray:
        """The view weights of the start."""
        if isinstance(self.view_weights, str):
            return np.full(n_views, 1.0 / n_views)
        weights = np.asarray(self.view_weights, dtype=np.float64)
        if weights.shape != (n_views,) or not np.all(np.isfinite(weights)) or weights.min() < 0 or weights.sum() <= 0:
            raise ValueError(
                f"view_weights={self.view_weights!r} must be {n_views} finite non-negative numbers, one per view, "
                "not all of them 0."
            )
        return np.asarray(weights / weights.sum())

    def _view_shares(self, rows: Rows) -> FloatArray:
        """By what a view's cost is divided: only learned weights must know that a view is rare."""
        learned = isinstance(self.view_weights, str) and self.view_weights == "learned"
        return np.array([reference.share if learned else 1.0 for reference in rows.references])

    def _given_centers(self, rows: Rows, names: Sequence[str], n_clusters: int) -> tuple[FloatArray, ...]:
        """Centres given as `init`, in model units."""
        given = self.init
        if isinstance(given, Mapping):
            given = [given.get(name) for name in names]
        elif self._single_table and not is_view_collection(given):
            given = [given]
        if len(given) != len(names):
            raise ValueError(f"init has {len(given)} arrays of centres, but X has {len(names)} views.")
        centers = []
        for name, reference, values in zip(names, rows.references, given, strict=True):
            array = np.asarray(values, dtype=np.float64)
            wanted = (n_clusters, reference.width)
            if array.shape != wanted or not np.all(np.isfinite(array)):
                raise ValueError(
                    f"init for view {name!r} has shape {array.shape}; it must be finite with shape "
                    f"(n_clusters, n_features)={wanted}."
                )
            centers.append(reference.to_model(array))
        return tuple(centers)

    def _report(self, record: dict[str, Any]) -> None:
        """Say how an iteration went, for `verbose`."""
        Console(stderr=True, highlight=False).print(
            f"iteration {record['iteration']:3d}  objective {record['objective']:.6g}  {record['seconds']:.3f} s"
        )
