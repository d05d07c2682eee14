"""The model at one site: an ordinary scikit-learn clusterer for one table or several views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from fedhk._typing import FloatArray, IntArray
from fedhk.data.checks import check_generator
from fedhk.data.scaling import HEAT_COEFS, SCALINGS
from fedhk.data.views import is_view_collection
from fedhk.estimators.base import HeatKernelModel, check_weights
from fedhk.model.loop import minimise
from fedhk.model.one_pass import Passes, own_threads
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.model.seeding import SEEDERS, best_start


class HeatKernelMVC(HeatKernelModel):
    """Heat-kernel multi-view clustering (E-KMVC, `eqn:E-KMVC`).

    DOC
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "heat_coef": [StrOptions(set(HEAT_COEFS))],
        "heat_time": [Interval(Real, 0, None, closed="neither")],
        "fuzzifier": [StrOptions({"auto"}), Interval(Real, 1, None, closed="neither")],
        "view_weights": [StrOptions({"uniform", "learned"}), "array-like"],
        "view_exponent": [Interval(Real, 1, None, closed="neither")],
        "scaling": [StrOptions(set(SCALINGS))],
        "init": [StrOptions(set(SEEDERS)), "array-like", dict],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state", np.random.Generator],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        heat_coef: str = "uniform",
        heat_time: float = 0.1,
        fuzzifier: float | str = "auto",
        view_weights: Any = "uniform",
        view_exponent: float = 2.0,
        scaling: str = "standard",
        init: Any = "k-fed",
        n_init: int = 10,
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
            A table per view with the same rows in the same order: 2-D NumPy arrays (also memory-mapped), pandas or polars
            data frames, SciPy sparse matrices. NaN is a missing cell. A dict gives the views names.
        y : ignored
            Present because scikit-learn's pipelines pass it.
        sample_weight : array of shape (n,), optional
            Weight of each row; a row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        self._validate_params()
        views = self._check(X, reset=True)
        if views.n_rows < self.n_clusters:
            raise ValueError(f"n_samples={views.n_rows} should be >= n_clusters={self.n_clusters}.")
        weights = check_weights(sample_weight, views)
        self._references = prepare(views, self.scaling, self.heat_coef, weights)
        rows = Rows(views, self._references, weights)
        with own_threads() as workers:
            start = self._start(rows, workers)
            with Passes(rows, self.n_clusters, workers) as scan:
                outcome = minimise(
                    scan.statistics,
                    start,
                    learn_weights=isinstance(self.view_weights, str) and self.view_weights == "learned",
                    max_iter=self.max_iter,
                    tol=self.tol,
                )
                self._parameters = outcome.parameters
                self.memberships_, self.labels_, self.objective_ = scan.assign(outcome.parameters)
        self.history_ = outcome.history
        self.n_iter_ = len(outcome.history)
        self.converged_ = outcome.converged
        self.stop_reason_ = outcome.stop_reason
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> IntArray:
        """Find the clusters and return each row's; the same as `fit(X).labels_`."""
        return self.fit(X, y, sample_weight).labels_

    def _start(self, rows: Rows, workers: int) -> Parameters:
        """The parameters of the first iteration."""
        n_views = len(self._references)
        template = Parameters(
            centers=tuple(np.zeros((self.n_clusters, width)) for width in rows.widths),
            view_weights=self._view_weights(n_views),
            heat_time=float(self.heat_time),
            fuzzifier=1.08 if self.fuzzifier == "auto" else float(self.fuzzifier),
            view_exponent=float(self.view_exponent),
            view_shares=np.array([reference.share for reference in self._references]),
        )
        if not isinstance(self.init, str):
            return replace(template, centers=self._given_centers())
        random_state = np.random.RandomState(check_generator(self.random_state).integers(2**31))
        return best_start(
            rows,
            template,
            SEEDERS[self.init],
            n_init=self.n_init,
            passes=10,
            random_state=random_state,
            workers=workers,
        )

    def _view_weights(self, n_views: int) -> FloatArray:
        if isinstance(self.view_weights, str):
            return np.full(n_views, 1.0 / n_views)
        weights = np.asarray(self.view_weights, dtype=np.float64)
        if weights.shape != (n_views,) or not np.all(np.isfinite(weights)) or weights.min() < 0 or weights.sum() <= 0:
            raise ValueError(
                f"view_weights={self.view_weights!r} must be {n_views} finite non-negative numbers, one per view, not all 0."
            )
        return np.asarray(weights / weights.sum())

    def _given_centers(self) -> tuple[FloatArray, ...]:
        """Centres given as `init`, in model units."""
        given = self.init
        if isinstance(given, Mapping):
            given = [given.get(name) for name in self.view_names_]
        elif self._single_table and not is_view_collection(given):
            given = [given]
        if len(given) != len(self._references):
            raise ValueError(f"init has {len(given)} arrays of centres, but X has {len(self._references)} views.")
        centers = []
        for name, reference, values in zip(self.view_names_, self._references, given, strict=True):
            array = np.asarray(values, dtype=np.float64)
            wanted = (self.n_clusters, reference.width)
            if array.shape != wanted or not np.all(np.isfinite(array)):
                raise ValueError(
                    f"init for view {name!r} has shape {array.shape}; it must be finite with shape "
                    f"(n_clusters, n_features)={wanted}."
                )
            centers.append(reference.to_model(array))
        return tuple(centers)
