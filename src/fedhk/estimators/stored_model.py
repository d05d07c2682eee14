"""Checks of model files: parts must fit together, and numbers must be possible. Anybody may have written a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedhk.data.folds import FoldedView
from fedhk.data.scaling import Reference
from fedhk.data.views import is_tensor
from fedhk.embedding.diffusion import EmbeddedModel
from fedhk.estimators.persistence import ModelFile
from fedhk.federation.plausible import MOST_WIDTH
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.tensors.low_rank import LowRankParameters

# Numbers beyond this, and divisors below one over it, have squares that leave float64.
FARTHEST = 1e150

# How far view weights may be from summing to 1: files keep all digits, so this is rounding of many views.
ROUNDING = 1e-6


def check_stored(file: ModelFile, params: Collection[str], fitted: Collection[str]) -> None:
    """Refuse a file whose model no fit can give, with a ValueError that names the part.

    `params` and `fitted` are the parameters and the fitted attributes that its estimator has.
    """
    _check_known(file.params, params, "parameters")
    if not isinstance(file.fitted, dict):
        raise ValueError("fitted attributes are no table")  # noqa: TRY004 - all that is wrong is one kind of error
    _check_known(file.fitted, fitted, "fitted attributes")
    _need(file.dtype in ("float32", "float64"), f"dtype {file.dtype!r}")
    for name, array in _list_numbers(
        {
            "model": file.model,
            "of sites": [file.summaries, file.calibrations],
            "memory": [file.memory, file.pasts or {}],
        }
    ):
        _check_numbers(name, array)
    _check_model(file.model)
    _check_fitted(file)
    clusters, width = file.model.parameters.n_clusters, sum(file.model.widths)
    inner = sum(reference.width for reference in file.model.references)
    for summary in file.summaries:
        shapes = summary.counts.shape, summary.squares.shape, summary.seen.shape
        _need(shapes == ((clusters,), (inner,), (inner,)), "summaries of clusters")
    for calibration in file.calibrations:
        _need(len(calibration.factors) == len(file.model.references), "factors of a calibration")
        _need(calibration.is_possible, "a share")
    _check_memory(file, clusters, width)
    columns = file.model.columns[0]
    if file.single_table:
        _need(len(file.model.view_names) == 1 and not is_tensor(columns), "a single table")
    _need(not file.feature_names or (file.single_table and len(file.feature_names) == width), "names of features")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} cannot be of a fitted model")


def _check_known(found: Collection[str], known: Collection[str], what: str) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise ValueError(f"it has unknown {what} {unknown[:5]}")


def _list_numbers(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All arrays and numbers in dataclasses, tuples and tables, each with the name of its field."""
    if isinstance(value, dict):
        parts = value.items()
    elif is_dataclass(value):
        parts = {f"{type(value).__name__}.{part.name}": getattr(value, part.name) for part in fields(value)}.items()
    elif isinstance(value, list | tuple):
        parts = {f"{name} {number}": part for number, part in enumerate(value)}.items()
    else:
        if isinstance(value, np.ndarray | float):
            yield name, value
        return
    for inner, part in parts:
        yield from _list_numbers(part, inner)


def _check_numbers(name: str, array: Any) -> None:
    """Refuse numbers that are not finite, or whose squares are not; references have reasons for some of them."""
    numbers = np.asarray(array)
    _need(numbers.dtype.kind in "fiub", f"{name} of type {numbers.dtype}")
    allowed = np.abs(numbers.astype(np.float64)) <= FARTHEST  # few bytes do not hold the bound
    if name == f"{Reference.__name__}.shift":
        allowed |= np.isnan(numbers)
    if name == f"{Reference.__name__}.scale":
        allowed |= np.isposinf(numbers)
    _need(bool(np.all(allowed)), f"{name}, which has numbers that are not finite or too large,")


def _check_model(model: FittedModel) -> None:
    parameters, views = model.parameters, len(model.view_names)
    _need(type(parameters) in (Parameters, LowRankParameters), type(parameters).__name__)
    _need(views > 0 and len(set(model.view_names)) == views and all(model.view_names), "names of views")
    _need(len(model.references) == len(model.columns) == views, "references and columns of views")
    for name, reference, columns in zip(model.view_names, model.references, model.columns, strict=True):
        _check_reference(reference)
        width = model.folded[name].fold.n_columns if name in model.folded else reference.width
        size = width if columns is None else math.prod(columns) if is_tensor(columns) else len(columns)
        _need(size == width, "columns of a view")
        if name in model.folded:
            _check_fold(model.folded[name], reference, parameters.n_clusters)
    _need(set(model.folded) <= set(model.view_names), "folded views")
    widths, centers = tuple([r.width for r in model.references]), [part.shape for part in parameters.centers]
    if isinstance(model, EmbeddedModel):
        widths = (model.diffusion.n_components + len(model.parents),)
        means = [(parameters.n_clusters, reference.width) for reference in model.references]
        _need([part.shape for part in model.means] == means, "means of clusters")
        _need(model.sizes.shape == (parameters.n_clusters,), "sizes of clusters")
        _check_starts(model)
    clusters = centers[0][0] if centers and centers[0] else 0
    _need(clusters > 0 and centers == [(clusters, width) for width in widths], "centres")
    _check_parameters(parameters, len(widths))
    if isinstance(parameters, LowRankParameters):
        _need([part.shape for part in parameters.form.centers()] == centers, "the form of centres")


def _check_starts(model: EmbeddedModel) -> None:
    """Refuse a model whose later clusters have no anchors that they could have."""
    later, (known, width) = len(model.parents), model.starts.shape
    inner = sum(reference.width for reference in model.references)
    _need((known, width) == (0, 0) or width == inner, "means of clusters at the fit")
    _need(later == 0 or known > 0, "later clusters")
    _need(known == 0 or known + later == model.parameters.n_clusters, "clusters of the fit")
    _need(all(0 <= parent < known + at for at, parent in enumerate(model.parents)), "later clusters")
    _need(len(model.limits) in (0, known) and bool(np.all(model.limits >= 0)), "limits of clusters")


def _check_fold(view: FoldedView, reference: Reference, n_clusters: int) -> None:
    fold, weights = view.fold, view.fold.form.weights
    _need(0 < fold.width == reference.width < fold.n_columns <= MOST_WIDTH, "a fold")
    _need(weights.shape in ((0,), (fold.n_columns,)) and bool(np.all(weights >= 0)), "weights of words")
    _need(view.means.shape == (n_clusters, fold.n_columns), "means of clusters")


def _check_reference(reference: Reference) -> None:
    width = reference.width
    parts = (reference.shift, reference.scale, reference.low, reference.span)
    _need(width > 0 and all(part.shape == (width,) for part in parts), "a reference")
    _need(min(reference.scale.min(), reference.span.min()) >= 1 / FARTHEST, "a divisor")
    _need(not np.any(np.isnan(reference.shift) & np.isfinite(reference.scale)), "a shift")
    _need(reference.share >= 0, "the share of rows with a view")
    weights = reference.weights
    _need(weights.shape in ((0,), (width,)) and bool(np.all(weights >= 0)), "weights of words")


def _check_parameters(parameters: Parameters, views: int) -> None:
    weights, shares, sizes = parameters.view_weights, parameters.view_shares, parameters.sizes
    _need(weights.shape == shares.shape == (views,), "view weights and shares")
    _need(weights.min() >= 0 and abs(float(weights.sum()) - 1) <= ROUNDING, "view weights")
    _need(shares.min() >= 0, "view shares")
    least = {"heat_time": 0.0, "fuzzifier": 1.0, "view_exponent": 1.0}
    for name, number in least.items():
        _need(getattr(parameters, name) > number, name)
    if sizes is not None:
        _need(sizes.shape == (parameters.n_clusters,) and sizes.min() >= 0 < sizes.max(), "sizes of clusters")


def _check_memory(file: ModelFile, clusters: int, width: int) -> None:
    """Refuse sums over rows that are not those of the model's clusters, or below zero."""
    views = len(file.model.view_names)
    if file.memory is not None:
        spread = file.memory.spread.to_array()
        _need(file.memory.weights.shape == (clusters, views) and len(spread) == clusters, "what a model remembers")
        _need(min(file.memory.weights.min(), spread.min()) >= 0, "what a model remembers")
    for past in (file.pasts or {}).values():
        sums = [past.rows, past.rows_squared, past.squares, past.freedom, past.lengths]
        fit = past.means.shape == (clusters, width) and all(part.shape == (clusters,) for part in sums)
        frame = past.frame.shape in {(2, 0), (2, width)} and bool((past.frame[1] > 0).all())
        _need(fit and frame and min(part.min() for part in sums) >= 0, "what a site remembers")


def _check_fitted(file: ModelFile) -> None:
    for name, value in file.fitted.items():
        _need(FITTED.get(name, _is_table)(value), f"{name}={str(value)[:50]!r}")
    _need(file.fitted.get("n_features_in_") == sum(file.model.widths), "n_features_in_")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_table(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _are_records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(record, dict) for record in value)


def _are_deviations(value: Any) -> bool:
    needed = {"site", "excluded", "text"}  # which pages show
    return _are_records(value) and all(needed <= record.keys() for record in value)


def _are_numbers(value: Any) -> bool:
    kinds: dict[str, Any] = {"n_clusters": int, "taken": bool, "note": str}
    kinds |= dict.fromkeys(("gap", "agreement", "slowing", "evidence", "score"), float | None)
    if not _are_records(value) or not all(_has_fields(record, kinds) for record in value):
        return False
    return bool(sum(record["taken"] for record in value) == bool(value))


def _are_drifts(value: Any) -> bool:
    kinds: dict[str, Any] = {"cluster": int, "site": str, "moved": bool}
    kinds |= dict.fromkeys(("distance", "by_chance", "p", "p_adjusted"), float | int)
    return _are_records(value) and all(_has_fields(record, kinds) for record in value)


def _are_updates(value: Any) -> bool:
    kinds: dict[str, Any] = {"rows": float | int | None, "rounds": int, "n_clusters": int, "keep": float | int}
    kinds |= {"new": list, "gone": list, "moved": list, "bytes_up": int, "bytes_down": int}
    return _are_records(value) and all(_has_fields(record, kinds) for record in value)


def _has_fields(record: dict[str, Any], kinds: dict[str, Any]) -> bool:
    return record.keys() == kinds.keys() and all(isinstance(record[name], kind) for name, kind in kinds.items())


def _is_spent(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)))


# What fitted attributes may be in a file; those that are not listed are tables, or None.
FITTED: dict[str, Callable[[Any], bool]] = {
    "history_": _are_records,
    "personalization_": _are_records,
    "choices_": _are_records,
    "selection_": _are_numbers,
    "deviations_": _are_deviations,
    "drift_": _are_drifts,
    "updates_": _are_updates,
    "n_iter_": _is_count,
    "n_features_in_": _is_count,
    "converged_": lambda value: isinstance(value, bool),
    "stop_reason_": lambda value: isinstance(value, str),
    "objective_": lambda value: value is None or _is_number(value),
    "privacy_spent_": _is_spent,
}
