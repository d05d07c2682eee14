"""Models on disk: safetensors, that is arrays with a JSON header. Nothing is ever unpickled."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from fedhk._files import write_atomically
from fedhk._options import Option
from fedhk.errors import MessageError
from fedhk.federation.codec import Json, pack, unpack
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.fitted import FittedModel
from fedhk.personal.calibration import Calibration

FORMAT = "fedhk-model"
VERSION = 2

# Parameters that say how a fit was run and not what it gave; a loaded model has their defaults.
NOT_STORED = ("engine", "checkpoint", "verbose")

# What a parameter may be in a file.
Param = (
    Option | np.ndarray | tuple[np.ndarray, ...] | dict[str, np.ndarray] | tuple[int, ...] | tuple[float, ...] | Json
)


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds.

    Parameters
    ----------
    name : str
        The estimator's class.
    params : dict of str to Param
        Its parameters.
    fitted : dict
        Fitted attributes, besides the model itself, as plain JSON.
    feature_names : tuple of str
        Column names, if fitted on one data frame.
    dtype : str
        The precision of what it gives back.
    single_table : bool
        Whether it was fitted on one table.
    model : FittedModel
        What is needed to place new rows.
    summaries, calibrations : tuple
        What own models of later sites are made with.
    """

    name: str
    params: dict[str, Param]
    fitted: Json
    feature_names: tuple[str, ...]
    dtype: str
    single_table: bool
    model: FittedModel
    summaries: tuple[ClusterSummary, ...] = ()
    calibrations: tuple[Calibration, ...] = ()


class Storable(Protocol):
    """A fitted estimator that can say what it is made of, and be made from it."""

    def to_file(self) -> ModelFile:
        """What a file holds of it."""

    @classmethod
    def from_file(cls, file: ModelFile) -> Any:
        """The estimator again."""


def storable_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as a file can hold them; a source of randomness that is no number is left out."""
    return {name: _storable(value) for name, value in params.items() if not _is_generator(value)}


def readable_params(params: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Parameters of a file as the constructor takes them."""
    return {
        name: list(value) if _is_list_of_arrays(value) else value for name, value in params.items() if name in known
    }


def _storable(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping) and value and all(hasattr(part, "__array__") for part in value.values()):
        return {str(name): np.asarray(part, np.float64) for name, part in value.items()}
    if isinstance(value, list | tuple) and value and all(hasattr(part, "__array__") for part in value):
        return tuple(np.asarray(part, np.float64) for part in value)
    if isinstance(value, tuple) and value and all(isinstance(part, Real) for part in value):
        whole = all(isinstance(part, Integral) for part in value)
        return tuple(int(part) if whole else float(part) for part in value)
    if isinstance(value, range | tuple):
        return list(value)
    return value


def _is_generator(value: Any) -> bool:
    return isinstance(value, np.random.Generator | np.random.RandomState)


def _is_list_of_arrays(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(part, np.ndarray) for part in value)


def save_model(model: Storable, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file."""
    write_model_file(path, model.to_file())


def write_model_file(path: str | os.PathLike[str], file: ModelFile) -> None:
    """Write one file that `load_model` reads."""
    values, buffers = pack(_finite(file), ModelFile, named=True)
    header = {"format": FORMAT, "version": VERSION, "class": file.name, **values}
    write_atomically(path, to_bytes(buffers, metadata={"fedhk": json.dumps(header)}))


def read_model_file(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model file.

    Raises
    ------
    ValueError
        If the file is no FedHK model, is damaged, or was written by another version.
    """
    shown = repr(os.fspath(path))
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("fedhk", "{}"))
            buffers = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError, KeyError) as error:
        raise ValueError(f"{shown} is not a FedHK model or is damaged: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{shown} is a safetensors file, but not a FedHK model.")
    version = header.get("version")
    if version != VERSION:
        older = isinstance(version, int) and version < VERSION
        remedy = "fit the model again" if older else "upgrade FedHK"
        raise ValueError(f"{shown} has model version {version!r}, this FedHK reads {VERSION}: {remedy}.")
    try:
        return unpack(header, buffers, ModelFile)
    except (MessageError, TypeError, ValueError) as error:
        raise ValueError(f"{shown} lacks a part of a {header.get('class')}: {error}") from error


def load_model(path: str | os.PathLike[str], classes: Mapping[str, type[Storable]]) -> Any:
    """Read a model of one of the given classes."""
    file = read_model_file(path)
    known = classes.get(file.name)
    if known is None:
        raise ValueError(f"{os.fspath(path)!r} holds a {file.name!r}; known are {sorted(classes)}.")
    try:
        return known.from_file(file)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ValueError(f"{os.fspath(path)!r} lacks a part of a {file.name}: {error}") from error


def _finite(file: ModelFile) -> ModelFile:
    """The file without numbers that JSON has no words for: None stands for NaN and infinity."""
    return ModelFile(**vars(file) | {"fitted": _without_nan(file.fitted)})


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
