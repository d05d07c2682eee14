"""What every fitted FedHK model can do, however it was fitted: predict, measure distances, be saved."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedhk._records import Records
from fedhk._typing import FloatArray, IntArray
from fedhk.data.views import Views, check_views, is_view_collection
from fedhk.embedding.embedded import read_model
from fedhk.estimators.persistence import save_model
from fedhk.model.fitted import FittedModel
from fedhk.model.passes import Passes, own_threads
from fedhk.model.rows import Rows

if TYPE_CHECKING:
    from fedhk.tensors.low_rank import LowRank


class HeatKernelModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """The use of a fitted model. A subclass fits: it sets `_model`, `_dtype`, `_single_table` and what it reports."""

    _model: FittedModel
    _dtype: np.dtype[Any]
    _single_table: bool

    # Fitted attributes that a model file keeps, besides the model itself.
    _stored: ClassVar[tuple[str, ...]] = (
        "history_",
        "n_iter_",
        "converged_",
        "stop_reason_",
        "objective_",
        "n_features_in_",
    )

    # Those of them that are records, which show themselves as a table.
    _tables: ClassVar[tuple[str, ...]] = ("history_", "personalization_")

    @property
    def cluster_centers_(self) -> FloatArray | list[FloatArray]:
        """Centres in the units of the input: one (c, d_h) array per view, or one array after a fit on one table.

        Those of a tensor view have its shape, (c, p, q).
        """
        centers = [array.astype(self._dtype) for array in self._model.centers()]
        return centers[0] if self._single_table else centers

    @property
    def view_weights_(self) -> FloatArray:
        """Weight of each view; they sum to 1."""
        return self._model.view_weights

    @property
    def view_names_(self) -> list[str]:
        """Name of each view."""
        return list(self._model.view_names)

    @property
    def fuzzifier_(self) -> float:
        """The fuzzifier that was used."""
        return self._model.parameters.fuzzifier

    @property
    def n_clusters_(self) -> int:
        """The number of clusters that was used."""
        return self._model.parameters.n_clusters

    @property
    def rank_(self) -> tuple[int, ...]:
        """Rank of each mode of the centres; only with a decomposition."""
        return self._form.rank

    @property
    def reconstruction_error_(self) -> float:
        """Share of the weighted squared size of unconstrained centres that the form loses (`lem:tensor_approximation`).

        Measured where both were last known: at the last step that saw full statistics, or those of the candidates.
        """
        return self._form.error

    @property
    def cluster_factor_(self) -> FloatArray:
        """P, of shape (c, r1) or (c, r), of the centres in model units, in the decomposition's canonical gauge."""
        return np.asarray(self._factors.cluster_factor)

    @property
    def feature_factors_(self) -> tuple[FloatArray, ...]:
        """Q_h of Tucker, of shape (d_h, r2), or the loadings B_h Q of PARAFAC2, of shape (d_h, r), per view."""
        return tuple(self._factors.feature_factors)

    @property
    def view_factor_(self) -> FloatArray:
        """R, of shape (s, r3) or (s, r)."""
        return np.asarray(self._factors.view_factor)

    @property
    def core_(self) -> FloatArray:
        """G of Tucker, of shape (r1, r2, r3); the Q of PARAFAC2, of shape (r, r), which its views have in common."""
        factors = self._factors
        return np.asarray(factors.core if hasattr(factors, "core") else factors.feature_factor)

    @property
    def _form(self) -> LowRank:
        form = self._model.parameters.form
        if form is None:
            raise AttributeError(f"this {type(self).__name__} was fitted without a decomposition of its centres")
        return form

    @property
    def _factors(self) -> Any:
        form = self._form
        return form.decomposition.canonical(form.factors)

    @property
    def _n_features_out(self) -> int:
        return self.n_clusters_

    def predict(self, X: Any) -> IntArray:
        """Nearest cluster of each row.

        Parameters
        ----------
        X : list or dict of tables, or one table
            Views as in `fit`. None is a view that is not there, NaN a missing cell; a dict may leave views out. A
            tensor must have the shape that was fitted; a 2-D array has none to compare, and is taken as flattened rows
            (C order).

        Returns
        -------
        labels : array of shape (n,)
            A row without any observed value belongs to all clusters alike and gets the first.
        """
        return self._assign(X)[1]

    def predict_proba(self, X: Any) -> FloatArray:
        """Membership of each row in each cluster, shape (n, c); rows sum to 1. `X` is as in `predict`."""
        return self._assign(X)[0]

    def transform(self, X: Any) -> FloatArray:
        """Kernel distance of each row to each centre, summed over views with their weights, shape (n, c)."""
        rows = self._rows(X)
        with own_threads() as workers, Passes(rows, self.n_clusters_, workers) as scan:
            return scan.distances(self._model.parameters)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002
        """Minus the mean objective of the rows: higher is better. `X` is as in `predict`; `y` is ignored."""
        rows = self._rows(X, sample_weight)
        with own_threads() as workers, Passes(rows, self.n_clusters_, workers) as scan:
            statistics = scan.statistics(self._model.parameters)
        return -statistics.objective / statistics.rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one safetensors file, which `fedhk.load` reads.

        The file holds what is needed to predict, and the history. It does not hold anything of single rows: `labels_`
        and `memberships_` stay behind.
        """
        check_is_fitted(self)
        save_model(self, path)

    def to_state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """What the header of a model file says, and its arrays."""
        described, arrays = self._model.to_state()
        header = {
            "model": described,
            "params": {name: _as_json(value) for name, value in self.get_params(deep=False).items()},
            "fitted": {name: getattr(self, name) for name in self._kept_names() if hasattr(self, name)},
            "feature_names": [str(name) for name in getattr(self, "feature_names_in_", ())],
            "dtype": self._dtype.name,
            "single_table": self._single_table,
        }
        return header, arrays

    def _kept_names(self) -> tuple[str, ...]:
        """Fitted attributes that a file of this model keeps."""
        return self._stored

    def _repr_html_inner(self) -> str:
        """What a notebook shows: once fitted what was found, and the parameters."""
        parameters = str(super()._repr_html_inner())
        if not self.__sklearn_is_fitted__():
            return parameters
        from fedhk.report.notebook import model_html  # noqa: PLC0415 - only notebooks need it

        return model_html(self) + parameters

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The same for notebooks that ask for a bundle."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """The model again, from what `to_state` gave."""
        known = cls._get_param_names()
        model = cls(**{name: value for name, value in header["params"].items() if name in known and value is not None})
        model._model = read_model(header["model"], arrays)
        model._dtype = np.dtype(header["dtype"])
        model._single_table = bool(header["single_table"])
        for name in cls._stored:
            if name in header["fitted"]:
                value = header["fitted"][name]
                setattr(model, name, Records(value) if name in cls._tables else value)
        if header["feature_names"]:
            model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        return model

    def _assign(self, X: Any) -> tuple[FloatArray, IntArray, float]:
        rows = self._rows(X)
        with own_threads() as workers, Passes(rows, self.n_clusters_, workers) as scan:
            return scan.assign(self._model.parameters)

    def _rows(self, X: Any, sample_weight: Any = None) -> Rows:
        """New rows, checked against the fitted model."""
        check_is_fitted(self)
        model = self._model
        views = check_views(
            self._as_table(X, reset=False) if self._single_table else X,
            names=model.view_names,
            widths=model.widths,
            columns=model.columns,
            missing_views=True,
        )
        return model.rows(views, check_weights(sample_weight, views))

    def _as_table(self, X: Any, *, reset: bool) -> Any:
        return as_table(self, X, reset=reset, ensure_all_finite=False)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Tags:
        return with_missing_and_sparse(super().__sklearn_tags__())


def as_table(estimator: Any, X: Any, *, reset: bool, **options: Any) -> Any:
    """One table, with all that scikit-learn checks of it; several views go through `check_views` instead."""
    if is_view_collection(X):
        return X
    if getattr(X, "ndim", 2) > 2:
        raise ValueError(
            f"Found array with dim {X.ndim}, shape {X.shape}; {type(estimator).__name__} expected <= 2 for a table. "
            "If X is one tensor view, wrap it in a list: [X]."
        )
    return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], **options)


def with_missing_and_sparse(tags: Tags) -> Tags:
    """What scikit-learn is told of whatever reads views: missing cells, sparse matrices and float32 are welcome."""
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
    return weights


def _as_json(value: Any) -> Any:
    """A parameter as JSON can hold it; arrays and generators are left out."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list) and all(isinstance(number, int | float) for number in value):
        return list(value)
    if isinstance(value, dict):  # by site or by view
        return {str(name): _as_json(part) for name, part in value.items()}
    return value if isinstance(value, bool | int | float | str) else None
