"""Models on disk: safetensors, that is arrays with a JSON header. Nothing is ever unpickled."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from fedhk._files import write_atomically

FORMAT = "fedhk-model"
VERSION = 1


class Storable(Protocol):
    """A fitted estimator that can say what it is made of, and be made from it."""

    def to_state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """What the header says, and the arrays."""

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Any:
        """The estimator again."""


def save_model(model: Storable, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file."""
    write_atomically(path, model_bytes(model))


def model_bytes(model: Storable) -> bytes:
    """The content of a model file."""
    header, arrays = model.to_state()
    described = {"format": FORMAT, "version": VERSION, "class": type(model).__name__, **header}
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return to_bytes(contiguous, metadata={"fedhk": json.dumps(described)})


def load_model(path: str | os.PathLike[str], classes: dict[str, type[Storable]]) -> Any:
    """Read a model of one of the given classes.

    Raises
    ------
    ValueError
        If the file is no FedHK model, is damaged, or was written by a later version.
    """
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("fedhk", "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{os.fspath(path)!r} is not a FedHK model or is damaged: {error}") from error
    if header.get("format") != FORMAT:
        raise ValueError(f"{os.fspath(path)!r} is a safetensors file, but not a FedHK model.")
    if header["version"] > VERSION:
        raise ValueError(
            f"{os.fspath(path)!r} has model version {header['version']}, this FedHK reads up to {VERSION}: upgrade it."
        )
    known = classes.get(header["class"])
    if known is None:
        raise ValueError(f"{os.fspath(path)!r} holds a {header['class']!r}; known are {sorted(classes)}.")
    try:
        return known.from_state(header, arrays)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)!r} lacks a part of a {header['class']}: {error}") from error
