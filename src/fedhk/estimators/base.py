"""What every fitted FedHK model can do, however it was fitted: predict, measure distances, be saved."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedhk._typing import FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views, check_views, is_view_collection
from fedhk.estimators.persistence import save_model
from fedhk.model.one_pass import Passes, own_threads
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows

REFERENCE_ARRAYS = ("shift", "scale", "low", "span")


class HeatKernelModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """The use of a fitted model. Subclasses fit, and set `_parameters`, `_references`, `view_names_`, `single_table_`."""

    _parameters: Parameters
    _references: tuple[Reference, ...]
    view_names_: list[str]

    @property
    def cluster_centers_(self) -> FloatArray | list[FloatArray]:
        """Centres in the units of the input, one (c, d_h) array per view; one array if the model was fitted on one table."""
        centers = [
            reference.to_input(values).astype(self._dtype)
            for reference, values in zip(self._references, self._parameters.centers, strict=True)
        ]
        return centers[0] if self._single_table else centers

    @property
    def view_weights_(self) -> FloatArray:
        """Weight of each view; they sum to 1."""
        return self._parameters.view_weights

    @property
    def fuzzifier_(self) -> float:
        """The fuzzifier that was used."""
        return self._parameters.fuzzifier

    @property
    def _n_features_out(self) -> int:
        return self._parameters.n_clusters

    def predict(self, X: Any) -> IntArray:
        """Nearest cluster of each row.

        Parameters
        ----------
        X : list or dict of tables, or one table
            Views as in `fit`. None is a view that is not there, NaN a missing cell; a dict may leave views out.

        Returns
        -------
        labels : array of shape (n,)
        """
        return self._assign(X)[1]

    def predict_proba(self, X: Any) -> FloatArray:
        """Membership of each row in each cluster, shape (n, c); rows sum to 1. `X` is as in `predict`."""
        return self._assign(X)[0]

    def transform(self, X: Any) -> FloatArray:
        """Kernel distance of each row to each centre, summed over views with their weights, shape (n, c)."""
        rows = self._rows(X)
        with own_threads() as workers, Passes(rows, self._parameters.n_clusters, workers) as scan:
            return scan.distances(self._parameters)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002
        """Minus the mean objective of the rows: higher is better. `X` is as in `predict`; `y` is ignored."""
        rows = self._rows(X, sample_weight)
        with own_threads() as workers, Passes(rows, self._parameters.n_clusters, workers) as scan:
            statistics = scan.statistics(self._parameters)
        return -statistics.objective / statistics.rows if statistics.rows > 0 else 0.0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one safetensors file, which `fedhk.load` reads.

        The file holds what is needed to predict, and the history. It does not hold anything of single rows: `labels_` and
        `memberships_` stay behind.
        """
        check_is_fitted(self)
        save_model(self, path)

    def to_state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """What the header of a model file says, and its arrays."""
        parameters = self._parameters
        arrays: dict[str, npt.NDArray[Any]] = {
            "view_weights": parameters.view_weights,
            "view_shares": parameters.view_shares,
        }
        for view, (reference, centers) in enumerate(zip(self._references, parameters.centers, strict=True)):
            arrays[f"{view}.centers"] = centers
            arrays |= {f"{view}.{name}": getattr(reference, name) for name in REFERENCE_ARRAYS}
        header = {
            "params": {name: _as_json(value) for name, value in self.get_params(deep=False).items()},
            "numbers": {name: getattr(parameters, name) for name in ("heat_time", "fuzzifier", "view_exponent")},
            "views": [
                {
                    "name": name,
                    "unit_rows": reference.unit_rows,
                    "heat_coef": reference.heat_coef,
                    "share": reference.share,
                }
                for name, reference in zip(self.view_names_, self._references, strict=True)
            ],
            "fitted": {name: getattr(self, name) for name in self._stored_attributes if hasattr(self, name)},
            "dtype": self._dtype.name,
            "single_table": self._single_table,
        }
        if hasattr(self, "feature_names_in_"):
            header["feature_names"] = self.feature_names_in_.tolist()
        return header, arrays

    _stored_attributes = ("history_", "n_iter_", "converged_", "stop_reason_", "objective_", "n_features_in_")

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """The model again, from what `to_state` gave."""
        known = cls._get_param_names()
        model = cls(**{name: value for name, value in header["params"].items() if name in known and value is not None})
        references, centers = [], []
        for view, described in enumerate(header["views"]):
            values = {name: arrays[f"{view}.{name}"] for name in REFERENCE_ARRAYS}
            references.append(Reference(**values, **{k: v for k, v in described.items() if k != "name"}))
            centers.append(arrays[f"{view}.centers"])
        model._parameters = Parameters(
            tuple(centers), arrays["view_weights"], view_shares=arrays["view_shares"], **header["numbers"]
        )
        model._references = tuple(references)
        model.view_names_ = [described["name"] for described in header["views"]]
        model._dtype = np.dtype(header["dtype"])
        model._single_table = header["single_table"]
        for name, value in header["fitted"].items():
            setattr(model, name, value)
        if "feature_names" in header:
            model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        return model

    _dtype: np.dtype[Any]
    _single_table: bool

    def _assign(self, X: Any) -> tuple[FloatArray, IntArray, float]:
        rows = self._rows(X)
        with own_threads() as workers, Passes(rows, self._parameters.n_clusters, workers) as scan:
            return scan.assign(self._parameters)

    def _rows(self, X: Any, sample_weight: Any = None) -> Rows:
        """New rows, checked against the fitted model."""
        check_is_fitted(self)
        views = self._check(X, reset=False)
        return Rows(views, self._references, check_weights(sample_weight, views))

    def _check(self, X: Any, *, reset: bool) -> Views:
        """Views as given, or one table with all that scikit-learn checks."""
        if reset:
            self._single_table = not is_view_collection(X)
        if self._single_table and not is_view_collection(X):
            X = validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,
                ensure_min_samples=1,
            )
        if reset:
            views = check_views(X)
            self.view_names_ = list(views.names)
            self.n_features_in_ = sum(width or 0 for width in views.widths)
            self._dtype = views.dtype
            return views
        widths = [reference.width for reference in self._references]
        return check_views(X, names=self.view_names_, widths=widths, missing_views=True)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_weights(sample_weight: Any, views: Views) -> FloatArray | None:
    """Row weights as float64, or None; refuses negative ones and wrong lengths."""
    if sample_weight is None:
        return None
    stand_in = np.empty((views.n_rows, 1), np.float64)
    weights: FloatArray = _check_sample_weight(sample_weight, stand_in, dtype=np.float64, ensure_non_negative=True)
    if not weights.sum() > 0:
        raise ValueError("sample_weight is zero for every row; at least one row must have a positive weight.")
    return weights


def _as_json(value: Any) -> Any:
    """A parameter as JSON can hold it; arrays and generators are left out."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return None
