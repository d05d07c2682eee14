"""Base classes of estimators: reading input, and predicting, scoring and saving with a fitted model."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import chain
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedhk._names import KnowsNames, explain_names
from fedhk._records import Record, Records
from fedhk._typing import FloatArray, IntArray
from fedhk.agreement.number import NOT_CLEAR, ONE
from fedhk.agreement.scalings import STRANGER
from fedhk.data.frames import find_views, pandas
from fedhk.data.levels import is_frame, is_level, needs_encoding, take_columns
from fedhk.data.truths import encode_truths
from fedhk.data.views import (
    Columns,
    Views,
    check_views,
    is_tensor,
    is_view_collection,
    refuse_other_forms,
    warn_of_empty,
    warn_of_extra,
)
from fedhk.estimators.choices import read_numbers
from fedhk.estimators.frames import make_centers_frame, make_labels_frame
from fedhk.estimators.persistence import ModelFile, readable_params, storable_params, write_model_file
from fedhk.federation.phases.sum_start import ONE_CLUSTER
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.descent import START_KEPT, Progress
from fedhk.model.drift import SitePast
from fedhk.model.fitted import FittedModel
from fedhk.model.memory import Memory
from fedhk.model.passes import Passes, own_threads
from fedhk.model.rows import Rows
from fedhk.personal.calibration import Calibration
from fedhk.summary.model import model_html
from fedhk.summary.words import join_names
from fedhk.tensors.factors import Factors
from fedhk.tensors.low_rank import LowRank, LowRankParameters

# Largest memberships that are on average no more than this above 1 over the number of clusters are all alike.
ALIKE = 1e-3

# Fuzzifiers that a user is told to try where memberships are alike with a larger one.
USUAL_FUZZIFIERS = 1.05, 1.25

# Weight of all other views below which one view has all the weight: it is shown with three digits, and reads as 1.000.
UNSEEN_WEIGHT = 5e-4

# Fitted attributes that are tables, and are empty where a file does not have them.
TABLES = ("deviations_", "choices_", "selection_", "drift_", "updates_")

# The ending of a model file.
ENDING = ".safetensors"

# Fitted attributes that updates set.
UPDATED = ("drift_", "updates_")

# Fitted attributes with a value for each row, which no file has, and what to do instead.
OF_ROWS = dict.fromkeys(("labels_", "memberships_"), "files store nothing of single rows. Call predict with the rows.")

# What some estimators have, and what the others say of it.
ELSEWHERE = {
    "personalize": (
        ": FedHKPerson makes models of new sites. Without one, predict places their rows by the common model, and "
        "update goes on with them."
    ),
    "client_models_": ": only estimators over sites have a model for each site.",
}

# Loss above which a low rank gets a warning: it loses more than it keeps.
MOST_LOST = 0.5


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Give an estimator its attributes back if the block raises: a fit that fails changes nothing."""
    attributes = vars(estimator)
    before = dict(attributes)
    try:
        yield
    except BaseException:
        attributes.clear()
        attributes.update(before)
        raise


class ReadsViews(KnowsNames):
    """Reads the input `X` of an estimator. Once fitted, an estimator has `_model`.

    It stands before scikit-learn's mixins among the bases, so that its tags are the last word.
    """

    _single_table: bool
    _least_rows: ClassVar[int] = 1
    _left_behind: ClassVar[Mapping[str, str]] = {}  # fitted attributes that no file has, and what to do instead

    def _read_training(self, X: Any, sample_weight: Any) -> tuple[Views, FloatArray | None]:
        """Check the parameters, then read the views and row weights to fit."""
        self._validate_params()
        self._single_table = not is_view_collection(X)
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        views = check_views(X if not self._single_table else self._as_table(X, is_new=False))
        views = encode_truths({"": views})[""]
        return views, _check_weights(sample_weight, views)

    def _read_new(self, X: Any, names: Sequence[str], widths: Sequence[int], columns: Sequence[Columns]) -> Views:
        """Read new rows, and check them against the views of the fitted model."""
        check_is_fitted(self)
        if getattr(X, "ndim", 2) == 1 and hasattr(X, "index"):
            raise ValueError("X is one row or column of a data frame: give a data frame, such as frame.iloc[[0]].")
        if is_view_collection(X):
            found = X
        elif self._single_table:
            found = self._as_table(X, columns[0], is_new=True)
        else:
            found = find_views(X, dict(zip(names, columns, strict=True)))
        return check_views(found, names=names, widths=widths, columns=columns, missing_views=True)

    def _as_table(self, X: Any, known: Columns = None, *, is_new: bool) -> Any:
        """Check one table as scikit-learn does; infinities are refused by `check_views`.

        `known` are the columns of the fitted model, where there is one and they have names.
        """
        refuse_other_forms(X, "X")
        if getattr(X, "ndim", 2) > 2:
            raise ValueError(
                f"Found array with dim {X.ndim}, shape {X.shape}; {type(self).__name__} expected <= 2 for a table. "
                "If X is one tensor view, wrap it in a list: [X]."
            )
        if is_frame(X) and known is not None:
            X, extra = take_columns(X, known)
            warn_of_extra(extra)
        if needs_encoding(X) or any(map(is_level, known or ())):  # scikit-learn has no check for text and categories
            return X
        table = validate_data(
            self,
            X,
            reset=not is_new,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=1 if is_new else self._least_rows,
        )
        return X if is_frame(X) else table  # columns keep their names

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, as scikit-learn does; `get_params` lists them."""
        known = type(self)._get_param_names()  # type: ignore[attr-defined]
        unknown = [name for name in params if name.partition("__")[0] not in known]
        if unknown:
            raise ValueError(explain_names(unknown, known, type(self).__name__))
        super().set_params(**params)  # type: ignore[misc]
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in vars(self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(type(self), name, None)
        if isinstance(found, property) and found.fget is not None:  # it has failed: its own error says why
            return found.fget(self)
        fitted = name == "_model" or (name.endswith("_") and not name.startswith("_"))
        if fitted and not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first.")
        if name in self._left_behind:
            raise AttributeError(
                f"This {type(self).__name__} has no {name!r}: it was read from a file, and {self._left_behind[name]}"
            )
        hint = ELSEWHERE.get(name, "")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def __sklearn_tags__(self) -> Tags:
        """Declare that missing cells, sparse matrices and float32 are supported."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class HeatKernelModel(ReadsViews, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Methods of a fitted model. A subclass fits it: it sets `_model`, `_dtype`, `_single_table` and attributes."""

    _model: FittedModel
    _dtype: np.dtype[Any]

    # Names of the fitted rows by site, where their data frames have some; of the only site, by "".
    _row_names: Mapping[str, Any] = MappingProxyType({})

    # What `personalize` needs to make the model of a new site.
    _summaries: tuple[ClusterSummary, ...] = ()
    _calibrations: tuple[Calibration, ...] = ()

    # What updates start from: sums over the rows so far, of all sites and of each known site.
    _memory: Memory | None = None
    _pasts: Mapping[str, SitePast] = MappingProxyType({})

    # Fitted attributes that a model file keeps, besides the model itself.
    _stored: ClassVar[tuple[str, ...]] = (
        "history_",
        "n_iter_",
        "converged_",
        "stop_reason_",
        "objective_",
        "n_features_in_",
        "choices_",
        "selection_",
    )
    _left_behind: ClassVar[Mapping[str, str]] = OF_ROWS

    def _validate_params(self) -> None:
        """Check the parameters; what is wrong with a number of clusters is said in FedHK's own words."""
        read_numbers(self.n_clusters)
        super()._validate_params()

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
    def view_widths_(self) -> list[int]:
        """Number of features of each view."""
        return list(self._model.widths)

    @property
    def view_columns_(self) -> dict[str, tuple[str, ...] | None]:
        """Names of the columns of each view, by its name; None where they have no names."""
        named = zip(self._model.view_names, self._model.columns, strict=True)
        return {view: None if is_tensor(columns) else columns for view, columns in named}  # type: ignore[misc]

    @property
    def fuzzifier_(self) -> float:
        """The fuzzifier that was used."""
        return self._model.parameters.fuzzifier

    @property
    def n_clusters_(self) -> int:
        """The number of clusters that was used."""
        return self._model.parameters.n_clusters

    @property
    def gone_clusters_(self) -> list[int]:
        """Clusters that no row is placed in any more, after updates; the others keep their numbers."""
        return list(self._model.parameters.gone)

    def predict(self, X: Any) -> IntArray:
        """Return the nearest cluster of each row.

        Parameters
        ----------
        X : list or dict of tables, or one table
            Views as in `fit`. None is a view that is not there, NaN a missing cell; a dict may leave views out. One
            data frame is taken apart by the names of its columns. Columns that the model does not know are passed over,
            and a warning names them. A tensor must have the shape that was fitted; a 2-D array has none to compare, and
            is taken as flattened rows (C order).

        Returns
        -------
        labels : array of shape (n,)
            A row without any observed value belongs to all clusters alike and gets the first; a warning names it.
        """
        rows = self._rows(X)
        warn_of_empty(rows.views)
        return self._assign(rows)[1]

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the membership of each row in each cluster, shape (n, c); rows sum to 1. `X` is as in `predict`."""
        return self._assign(self._rows(X))[0]

    def transform(self, X: Any) -> FloatArray:
        """Return the kernel distance of each row to each centre, a weighted sum over views, shape (n, c)."""
        rows = self._rows(X)
        with own_threads() as workers, Passes(rows, self.n_clusters_, workers) as scan:
            return scan.distances(self._model.parameters)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002
        """Return how well the clusters of these rows are separated: the mean simplified silhouette, from -1 to 1.

        For every row, (b - a) / max(a, b) with the kernel distances a to its own centre and b to the nearest other one.
        It has no unit, so that models of another scaling, heat time or number of clusters can be compared by it; with
        one cluster it is 0. `X` is as in `predict`; `y` is ignored.
        """
        rows = self._rows(X, sample_weight)
        if self.n_clusters_ == 1 or not rows.n_rows:
            return 0.0
        with own_threads() as workers, Passes(rows, self.n_clusters_, workers) as scan:
            return float(scan.silhouette(self._model.parameters))

    def labels_frame(self) -> Any:
        """Return the clusters of the fitted rows as a pandas data frame: site, row, cluster, certainty.

        Rows are grouped by site. A row is named by the index of its data frame: of a frame that `fedhk.from_frame` took
        apart, by its index there, which is its place if nothing else was said. A row of an array is named by its number
        at its site. ``frame.join(model.labels_frame().set_index("row")["cluster"])`` puts clusters beside the rows of a
        frame. After a fit of one site there is no column for the site. Certainty is the largest membership.
        """
        check_is_fitted(self)
        labels, memberships = self.labels_, self.memberships_
        if isinstance(labels, Mapping):
            return make_labels_frame(labels, memberships, self._row_names)
        return make_labels_frame({"": labels}, {"": memberships}, self._row_names).drop(columns="site")

    def centers_frame(self) -> Any:
        """Return the centres as a pandas data frame in input units: cluster, view, column, level, center.

        A line is one column of one cluster. The centre of a level is the share of the cluster's rows that have it.
        """
        check_is_fitted(self)
        return make_centers_frame(self._model.centers(), self.view_names_, self._model.columns)

    def history_frame(self) -> Any:
        """Return `history_` as a pandas data frame, one line per round or iteration."""
        check_is_fitted(self)
        return pandas().DataFrame(list(self.history_))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one safetensors file, which `fedhk.load` reads.

        The file holds what is needed to predict, and the history. It does not hold anything of single rows: `labels_`
        and `memberships_` stay behind. Its name ends in ``.safetensors``, or has no ending.
        """
        check_is_fitted(self)
        if Path(path).suffix not in ("", ENDING):
            raise ValueError(f"path={str(path)!r} must end in {ENDING!r}: that is what the file is, and nothing else.")
        write_model_file(path, self.to_file())

    def to_file(self) -> ModelFile:
        """Return the content of this model's file; fitted attributes that are empty are left out."""
        known = {name: getattr(self, name) for name in self._stored if hasattr(self, name)}
        return ModelFile(
            name=type(self).__name__,
            params=storable_params(self.get_params(deep=False)),
            fitted={name: value for name, value in known.items() if value not in ([], {})},
            feature_names=tuple(str(name) for name in getattr(self, "feature_names_in_", ())),
            dtype=self._dtype.name,
            single_table=self._single_table,
            model=self._model,
            summaries=self._summaries,
            calibrations=self._calibrations,
            memory=self._memory,
            pasts=self._storable_pasts(),
        )

    def _storable_pasts(self) -> dict[str, SitePast]:
        """Return the memory of sites that may be in the file."""
        return dict(self._pasts)

    @classmethod
    def from_file(cls, file: ModelFile) -> Self:
        """Make the estimator that a file holds."""
        model = cls(**readable_params(file.params, cls._get_param_names()))
        model._model, model._dtype, model._single_table = file.model, np.dtype(file.dtype), file.single_table
        for name in cls._stored:
            if name in file.fitted:
                setattr(model, name, _read_fitted(name, file.fitted[name]))
            elif name in TABLES:  # no site is off, nothing was chosen, there was no update
                setattr(model, name, Records())
        model._summaries, model._calibrations = file.summaries, file.calibrations
        model._memory, model._pasts = file.memory, file.pasts or {}
        if file.feature_names:
            model.feature_names_in_ = np.array(file.feature_names, dtype=object)
        model._validate_params()
        model._check_parts()
        return model

    def _check_parts(self) -> None:
        """Refuse a model whose parts do not fit together: it must be able to place a row."""
        model = self._model
        tables = {name: np.zeros((1, *shape)) for name, shape in zip(model.view_names, model.shapes, strict=True)}
        views = check_views(tables, names=model.view_names, widths=model.widths, columns=model.columns)
        with np.errstate(all="ignore"), Passes(model.rows(views), self.n_clusters_) as scan:
            memberships = scan.assign(model.parameters)[0]
            model.centers()
        if not np.isfinite(memberships).all():
            raise ValueError("a row has no memberships in it")

    def _repr_html_inner(self) -> str:
        """Show the parameters in a notebook, and once fitted the results."""
        parameters = str(super()._repr_html_inner())
        if not self.__sklearn_is_fitted__():
            return parameters
        return model_html(self) + parameters

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Show the same in notebooks that ask for a bundle."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def _keep_progress(self, model: FittedModel, progress: Progress, history: Iterable[Record]) -> None:
        """Set the fitted attributes of the model and of the course of the fit."""
        self._model = model
        self.n_features_in_ = sum(model.widths)
        self.history_ = Records(history)
        self.n_iter_ = progress.iteration
        self.converged_ = progress.converged
        self.stop_reason_ = progress.stop_reason

    def drift_frame(self) -> Any:
        """Return `drift_` as a pandas data frame, one line per cluster and site."""
        check_is_fitted(self)
        return pandas().DataFrame(list(self.drift_))

    def _assign(self, rows: Rows) -> tuple[FloatArray, IntArray, float]:
        with own_threads() as workers, Passes(rows, self.n_clusters_, workers) as scan:
            return scan.assign(self._model.parameters)

    def _rows(self, X: Any, sample_weight: Any = None) -> Rows:
        """New rows, checked against the fitted model."""
        model = self._model
        views = self._read_new(X, model.view_names, model.widths, model.columns)
        return model.rows(views, _check_weights(sample_weight, views))


class LowRankAttributes:
    """Attributes of estimators whose centres may have a low-rank form."""

    _model: FittedModel

    @property
    def rank_(self) -> tuple[int, ...]:
        """Rank of each mode of the centres; only with a decomposition."""
        return self._form.rank

    @property
    def reconstruction_error_(self) -> float:
        """Share of what tells free centres apart that the form loses (`lem:tensor_approximation`), from 0 to 1.

        It is the larger of two: how much nearer a centre is to the others (harmonic mean of squared distances) than the
        free centre was from which the fit started, and what centres lack of those that the last sums ask for.
        """
        return self._form.error

    @property
    def cluster_factor_(self) -> FloatArray:
        """P, of shape (c, r1) or (c, r), of the centres in model units, in the decomposition's canonical gauge."""
        return np.asarray(self._factor("cluster_factor_", "cluster_factor"))

    @property
    def feature_factors_(self) -> tuple[FloatArray, ...]:
        """Q_h of Tucker, of shape (d_h, r2), or the loadings B_h Q of PARAFAC2, of shape (d_h, r), per view."""
        return tuple(self._factor("feature_factors_", "feature_factors"))

    @property
    def view_factor_(self) -> FloatArray:
        """R, of shape (s, r3) or (s, r)."""
        return np.asarray(self._factor("view_factor_", "view_factor"))

    @property
    def core_(self) -> FloatArray:
        """G of Tucker, of shape (r1, r2, r3); the Q of PARAFAC2, of shape (r, r), which its views have in common."""
        return np.asarray(self._factor("core_", "core", "feature_factor"))

    @property
    def factors_(self) -> Factors:
        """All factors as one object, in the decomposition's canonical gauge: a `fedhk.tensors` class, or one's own.

        Its `centers()` are `cluster_centers_` in model units. These are the units after scaling: with
        `scaling="standard"` a feature less its mean, over its standard deviation and the root of the view's width.
        """
        form = self._form
        factors: Factors = form.decomposition.canonical(form.factors)
        return factors

    @property
    def _form(self) -> LowRank:
        parameters = self._model.parameters
        if not isinstance(parameters, LowRankParameters):
            text = f"this {type(self).__name__} was fitted without a decomposition of its centres"
            raise AttributeError(text)  # noqa: TRY004 - hasattr must say no
        return parameters.form

    def _factor(self, name: str, *fields_of_factors: str) -> Any:
        """Return the first of these fields that the factors have; `name` is what the attribute is called."""
        factors = self.factors_
        for field_name in fields_of_factors:
            if hasattr(factors, field_name):
                return getattr(factors, field_name)
        names = ", ".join(part.name for part in fields(factors))
        form = self._form.decomposition.name
        raise AttributeError(f"the form {form!r} has no {name}: factors_ has its parts, {names}")


def warn_of_doubts(model: Any, labels: Sequence[IntArray], memberships: Sequence[FloatArray]) -> None:
    """Warn, as scikit-learn does, of a fit that did not converge or found fewer clusters, and of views without use.

    Labels and memberships are those of the rows that it was fitted on; there are none where rows are elsewhere.
    """
    name = type(model).__name__
    for doubt in (*_doubt_views(model), *_doubt_number(model)):
        warnings.warn(f"{name}: {doubt}", UserWarning, stacklevel=3)
    descent = [doubt] if (doubt := doubt_descent(model)) else []
    doubts = descent, _doubt_rank(model), _doubt_labels(model, labels, memberships)
    for doubt in [f": {ONE_CLUSTER}"] if model.stop_reason_ == ONE_CLUSTER else chain(*doubts):
        warnings.warn(f"{name}{doubt}", ConvergenceWarning, stacklevel=3)


def _doubt_number(model: Any) -> Iterator[str]:
    """Give a sentence if rows show one cluster, or no clear number of clusters."""
    note = next((line["note"] for line in model.selection_ if line["taken"]), "")
    asked = f"n_clusters={model.n_clusters!r}"
    if note.startswith(NOT_CLEAR):
        taken = f"{model.n_clusters_} was taken, but there is {note}"
        yield f"{asked}: {taken}. Look at selection_, or give n_clusters a number."
    elif note and model.n_clusters_ == 1:
        hint = (
            " If columns come from different sources, name these as views, which confirm each other. Leave out columns "
            "that say nothing of a group, such as dates and outcomes."
        )
        alone = len(model.view_names_) == 1
        yield f"{asked}: the rows show {ONE}. Give n_clusters a number if you need more.{hint * alone}"


def doubt_descent(model: Any) -> str:
    """Say of a fit, after its name, that it found nothing better than its start, or was stopped before it converged."""
    if START_KEPT in model.stop_reason_:
        return (
            f" gives back its start: none of its rounds lowered the objective. {model.stop_reason_} With these "
            "settings a round may raise it; with protocol='statistics' and aggregator='sum' none does. Or begin "
            "elsewhere, with init=[centres in each view]: centres that are drawn are improved before the rounds."
        )
    if not model.converged_ and model.tol > 0 and "before the objective settled" in model.stop_reason_:
        limit = "max_rounds" if hasattr(model, "max_rounds") else "max_iter"
        return f" did not converge within {limit}={getattr(model, limit)}. {model.stop_reason_}"
    return ""


def _doubt_rank(model: Any) -> Iterator[str]:
    """Say of a fit, after its name, that its rank is too small."""
    # not of a rank found by "auto": held-out rows show that it leaves out noise
    if not isinstance(getattr(model, "rank", "auto"), str) and getattr(model, "reconstruction_error_", 0.0) > MOST_LOST:
        lost = f"{model.reconstruction_error_:.0%} of what tells free centres apart"
        merged = f"centres of rank {model.rank_} lose {lost}, so clusters may be merged"
        yield f": {merged}. Use a larger rank, or rank='auto'."


def _doubt_labels(model: Any, labels: Sequence[IntArray], memberships: Sequence[FloatArray]) -> Iterator[str]:
    """Say of a fit, after its name, that all rows are alike to it, or that clusters have no rows."""
    n_clusters, rows = model.n_clusters_, sum(map(len, labels))
    largest = sum(float(own.max(axis=1).sum()) for own in memberships)
    used = {label for own in labels for label in np.unique(own).tolist()}
    # noise can leave fewer than were asked for
    asked = int(model.n_clusters) if isinstance(model.n_clusters, Integral) else n_clusters
    if n_clusters > 1 and rows and largest / rows < 1.0 / n_clusters + ALIKE:
        yield (
            ": all rows belong to all clusters almost alike, so that labels rest on small differences. The largest "
            f"membership is {largest / rows:.4f} on average, {1 / n_clusters:.4f} would be no difference. Rows are "
            f"alike, or the fuzzifier {model.fuzzifier_:g} is too large: {_advise_fuzzifier(model)}."
        )
    elif 0 < len(used) < asked:
        yield (
            f" found {len(used)} clusters that have rows, n_clusters={asked} were asked for: rows may be alike, or "
            "fewer clusters suit them."
        )


def _advise_fuzzifier(model: Any) -> str:
    """Say which fuzzifier to use instead of one that is too large; it is always smaller than that."""
    least, most = USUAL_FUZZIFIERS
    half = f"a smaller one, such as {1 + (model.fuzzifier_ - 1) / 2:g}"
    smaller = f"{least:g} to {most:g}" if model.fuzzifier_ > most else half
    return f"use {smaller}" if isinstance(model.fuzzifier, str) else f"use {smaller}, or fuzzifier='auto'"


def _doubt_views(model: Any) -> Iterator[str]:
    """Give a sentence for views with one value per column, that no other view agrees with, or that have all the weight.

    A view that is constant at some sites alone is none of these. Where no view varies, rows are alike, and that is said
    in another warning.
    """
    varies = [bool(np.isfinite(reference.scale).any()) for reference in model._model.references]
    names = model.view_names_
    constant = [view for view, own in zip(names, varies, strict=True) if not own]
    if constant and any(varies):
        where = ", at every site that has it" if hasattr(model, "client_models_") else ""
        yield (
            f"all rows have the same values in {_list_views(constant)}{where}. Clusters come from the other views: "
            "look whether the view was read as it should be, or leave it out."
        )
    lonely = [choice["view"] for choice in model.choices_ if choice["note"] == STRANGER]
    lonely = [view for view in lonely if view not in constant]
    if lonely and sum(varies) > 1:
        yield (
            f"{_list_views(lonely)} {'have' if len(lonely) > 1 else 'has'} {STRANGER}. Are the rows of all views in "
            "the same order? If they are, such a view does not show the groups that others show: leave it out."
        )

    weights = model.view_weights_
    if isinstance(model.view_weights, str) and sum(varies) > 1 and 1.0 - weights.max() < UNSEEN_WEIGHT:
        yield (
            f"view {names[int(weights.argmax())]!r} has all the weight, so that clusters come from it alone. Is it a "
            "class, or another column with few values? Leave it out, or have equal weights: view_weights='uniform'."
        )


def _list_views(names: Sequence[str]) -> str:
    return f"view{'s' * (len(names) > 1)} {join_names([repr(name) for name in names])}"


def _check_weights(sample_weight: Any, views: Views) -> FloatArray | None:
    """Convert row weights to float64, or None; refuse negative ones and wrong lengths."""
    if sample_weight is None:
        return None
    stand_in = np.empty((views.n_rows, 1), np.float64)
    weights: FloatArray = _check_sample_weight(sample_weight, stand_in, dtype=np.float64, ensure_non_negative=True)
    return weights


def _read_fitted(name: str, value: Any) -> Any:
    """Convert a fitted attribute from a file, where JSON has no tuples, records or NaN."""
    if name == "objective_" and value is None:
        return math.nan
    if name == "privacy_spent_" and value is not None:
        return tuple(value)
    return Records(value) if name in ("history_", "personalization_", *TABLES) else value
