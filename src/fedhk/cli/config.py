"""The configuration of a run, as a TOML file that gives the same run again."""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedhk._files import read_toml
from fedhk._version import __version__
from fedhk.cli.algorithms import ALGORITHMS
from fedhk.cli.console import say
from fedhk.errors import FedHKError

KEYS = ("fedhk", "data", "algorithm", "seed", "parameters")


class ConfigError(FedHKError, ValueError):
    """A configuration that cannot be used."""


@dataclass(frozen=True)
class Part:
    """Some options of a parameter that is a table: what else the table has stays.

    Parameters
    ----------
    parts : dict
        The options that were given.
    name : str
        What the table is called where it was a word before, or nothing: the short form of a protocol.
    """

    parts: dict[str, Any]
    name: str = ""

    def of(self, before: Any) -> dict[str, Any]:
        """The table before these options."""
        return {"name": before or self.name} if self.name else {}


@dataclass(frozen=True)
class Config:
    """All that decides what a run gives.

    Parameters
    ----------
    data : Path or None
        The federation folder.
    algorithm : str
        A key of `ALGORITHMS`.
    seed : int or None
        The random state; None draws one.
    parameters : dict
        Parameters of the estimator.
    """

    data: Path | None = None
    algorithm: str = "e-fkmvc"
    seed: int | None = None
    parameters: dict[str, Any] | None = None

    def updated(self, given: dict[str, Any], **others: Any) -> Config:
        """The same with what the user gave; None is not given."""
        parameters = dict(self.parameters or {})
        for name, value in given.items():
            before = parameters.get(name)
            if isinstance(value, Part):
                parameters[name] = (before if isinstance(before, dict) else value.of(before)) | value.parts
            elif value is not None:
                parameters[name] = value
        return replace(self, parameters=parameters, **{k: v for k, v in others.items() if v is not None})

    def complete(self) -> Config:
        """With every parameter written out, and with a seed."""
        algorithm = ALGORITHMS[self.algorithm]
        given = dict(self.parameters or {})
        if "max_rounds" in given:
            given[algorithm.rounds] = given.pop("max_rounds")
        defaults = algorithm.defaults()
        unknown = sorted(given.keys() - defaults.keys())
        if unknown:
            raise ConfigError(
                f"Algorithm {self.algorithm!r} has no parameter {', '.join(map(repr, unknown))}; it has "
                f"{', '.join(sorted(defaults))}."
            )
        seed = secrets.randbelow(2**31) if self.seed is None else self.seed
        return replace(self, parameters=defaults | given, seed=seed)

    def to_toml(self, data: str | None = None) -> str:
        """The text of the file; `data` is the folder as it shall stand there."""
        folder = data or (None if self.data is None else str(self.data))  # a coordinator has none
        values = {"fedhk": __version__, "data": folder, "algorithm": self.algorithm, "seed": self.seed}
        lines = ["# `fedhk fit --config THIS-FILE --out OTHER` runs this again and gives the same bits."]
        lines += [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]
        lines += ["", "[parameters]"]
        lines += [f"{name} = {_toml(v)}" for name, v in (self.parameters or {}).items() if v is not None]
        return "\n".join(lines) + "\n"


def read_config(path: Path) -> Config:
    """Read a configuration; a relative data folder is meant from where the file is.

    Raises
    ------
    ConfigError
        If the file is not there, is no TOML, or has what a configuration has not.
    """
    content = read_toml(path, "The configuration", KEYS, ConfigError)
    kinds: dict[str, type] = {"fedhk": str, "data": str, "algorithm": str, "seed": int, "parameters": dict}
    for name, value in content.items():
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise ConfigError(
                f"The configuration {str(path)!r} has {name}={value!r}, {kinds[name].__name__} is needed."
            )
    if content.get("algorithm", "e-fkmvc") not in ALGORITHMS:
        raise ConfigError(
            f"algorithm={content['algorithm']!r} in {str(path)!r} must be one of {', '.join(ALGORITHMS)}."
        )
    version = content.pop("fedhk", __version__)
    if version != __version__:
        say(f"Note: the configuration is of fedhk {version}, this is {__version__}; results may differ.")
    if "data" in content:
        content["data"] = path.parent / content["data"]
    return Config(**content)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(part) for part in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(part)}' for name, part in value.items())} }}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    raise ConfigError(f"{value!r} has no place in a configuration.")
