"""Model files in the safetensors format: arrays with a JSON header. Nothing is ever unpickled."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from numbers import Integral, Real
from typing import Any

import numpy as np
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

from fedhk._files import OWNER_ONLY, read_regular, write_atomically
from fedhk._options import Option
from fedhk._text import printable
from fedhk.errors import ModelFileError, UnknownClassError
from fedhk.federation.codec import Json, pack, unpack
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.drift import SitePast
from fedhk.model.fitted import FittedModel
from fedhk.model.memory import Memory
from fedhk.personal.calibration import Calibration

FORMAT = "fedhk-model"
VERSION = 4
METADATA, DIGEST = "fedhk", "sha256"

# Parameters that say how a fit was run and not what it gave; a loaded model has their defaults.
NOT_STORED = ("engine", "checkpoint", "verbose")

# Types of parameters in a file.
Param = (
    Option | np.ndarray | tuple[np.ndarray, ...] | dict[str, np.ndarray] | tuple[int, ...] | tuple[float, ...] | Json
)


@dataclass(frozen=True)
class ModelFile:
    """Content of a model file: the model for new rows, and the fitted attributes."""

    name: str  # of the estimator's class
    params: dict[str, Param]
    fitted: Json  # fitted attributes, besides the model itself
    feature_names: tuple[str, ...]  # of columns, if fitted on one data frame
    dtype: str  # of what it gives back
    single_table: bool
    model: FittedModel
    summaries: tuple[ClusterSummary, ...] = ()  # what own models of later sites are made with
    calibrations: tuple[Calibration, ...] = ()
    memory: Memory | None = None  # what updates go on from; older files have none
    pasts: dict[str, SitePast] | None = None  # the same of each site


def storable_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Convert parameters for a file; a random state that is no number is left out."""
    generators = (np.random.Generator, np.random.RandomState)
    kept = {name: value for name, value in params.items() if name not in NOT_STORED}
    return {name: _storable(value) for name, value in kept.items() if not isinstance(value, generators)}


def readable_params(params: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Convert parameters of a file for the constructor."""
    read = {name: value for name, value in params.items() if name in known}
    for name, value in read.items():
        if isinstance(value, tuple) and value and all(isinstance(part, np.ndarray) for part in value):
            read[name] = list(value)
    return read


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


def write_model_file(path: str | os.PathLike[str], file: ModelFile, mode: int = OWNER_ONLY) -> None:
    """Write one file that `fedhk.load` reads; `mode` says who else may."""
    values, buffers = pack(replace(file, fitted=_without_nan(file.fitted)), ModelFile, named=True)
    header = {"format": FORMAT, "version": VERSION, "class": file.name, **values}
    signed = header | {DIGEST: _digest(header, buffers)}
    write_atomically(path, to_bytes(buffers, metadata={METADATA: json.dumps(signed)}), mode)


def read_model_file(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model file; raise ModelFileError if it is none, is damaged, or is of another version.

    The digest finds damage. It has no key, so that what was forged is found by the codec and by `check_stored`.
    """
    shown, content = repr(os.fspath(path)), read_regular(path)
    try:
        buffers = from_bytes(content)
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
        header = json.loads(metadata.get(METADATA, "{}"))
    except Exception as error:  # whatever a parser makes of damaged bytes
        raise ModelFileError(f"{shown} is not a FedHK model or is damaged: {printable(str(error)[:200])}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError(f"{shown} is a safetensors file, but not a FedHK model.")
    version = header.get("version")
    if version != VERSION:
        older = isinstance(version, int) and version < VERSION
        remedy = "fit the model again and save it with this version" if older else "upgrade FedHK"
        raise ModelFileError(f"{shown} has model version {repr(version)[:20]}, this FedHK reads {VERSION}: {remedy}.")
    digest = header.pop(DIGEST, None)
    try:
        if digest != _digest(header, buffers):
            raise ValueError("its digest does not fit its content")  # noqa: TRY301
        return unpack(header, buffers, ModelFile)
    except UnknownClassError as error:
        raise ModelFileError(f"{shown}: {explain_class(error.name)}") from error
    except Exception as error:
        raise ModelFileError(f"{shown} is a damaged model: {printable(str(error)[:200])}") from error


def explain_class(name: str) -> str:
    """Say of a file what to do about a class that is not known here."""
    shown = printable(name)
    return f"it needs {shown!r}, which is no class of this FedHK: import the module that defines {shown} first."


def _digest(header: Mapping[str, Any], buffers: Mapping[str, Any]) -> str:
    """Compute the SHA-256 digest of a file's content, whatever the order of its parts."""
    return sha256(json.dumps(header, sort_keys=True).encode() + to_bytes(dict(buffers))).hexdigest()


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, Mapping):
        return {str(name): _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
