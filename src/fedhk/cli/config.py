"""The configuration of a run: a TOML file with which the run can be repeated."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fedhk
from fedhk._files import read_toml, toml_lines
from fedhk._names import explain_names
from fedhk._version import __version__
from fedhk.cli.algorithms import ALGORITHMS, describe_option, make_option
from fedhk.cli.console import say
from fedhk.errors import FedHKError

KINDS: dict[str, type] = {
    "fedhk": str,
    "data": str,
    "id": str,
    "ignore": list,
    "algorithm": str,
    "seed": int,
    "parameters": dict,
}


class ConfigError(FedHKError, ValueError):
    """A configuration that cannot be used."""


@dataclass(frozen=True)
class Config:
    """All settings that decide the result of a run."""

    data: Path | None = None  # the federation folder; a coordinator has none
    algorithm: str = "e-fkmvc"  # a key of `ALGORITHMS`
    seed: int | None = None  # None draws one
    parameters: dict[str, Any] = field(default_factory=dict)  # of the estimator
    id: str | None = None  # the column of ids, where it is not the usual one
    ignore: list[str] | None = None  # patterns of names that are passed over

    def updated(self, given: dict[str, Any], **others: Any) -> Config:
        """Replace the settings that the user gave; None is not given."""
        parameters = self.parameters | {name: value for name, value in given.items() if value is not None}
        return replace(self, parameters=parameters, **{k: v for k, v in others.items() if v is not None})

    def with_options(self, parameter: str, **options: Any) -> Config:
        """Replace some options of a parameter that is a table; a word there becomes the name of the table."""
        given = {name: value for name, value in options.items() if value is not None}
        before = self.parameters.get(parameter) or {}
        table = before if isinstance(before, dict) else {"name": before}
        return self.updated({parameter: table | given}) if given else self

    def with_preset(self, algorithm: int) -> Config:
        """Add the settings of one of the paper's algorithms; refuses parameters that contradict it."""
        given = {name: make_option(name, value) for name, value in self.parameters.items()}
        try:
            preset = fedhk.from_paper(algorithm, **given)
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error)) from error
        name = next(name for name, known in ALGORITHMS.items() if known.estimator == type(preset).__name__)
        usual, settings = ALGORITHMS[name].defaults(), preset.get_params(deep=False)
        changed = {key: describe_option(settings[key]) for key, value in usual.items() if settings[key] != value}
        kept = {key: value for key, value in self.parameters.items() if key in usual}  # the rest is in the protocol
        return replace(self, algorithm=name, parameters=changed | kept)

    def complete(self) -> Config:
        """Write out every parameter and draw a seed; refuses parameters that the algorithm cannot take."""
        algorithm = ALGORITHMS[self.algorithm]
        given = dict(self.parameters)
        if "max_rounds" in given:
            given[algorithm.rounds] = given.pop("max_rounds")
        defaults = algorithm.defaults()
        unknown = sorted(given.keys() - defaults.keys())
        if unknown:
            raise ConfigError(explain_names(unknown, sorted(defaults), f"algorithm {self.algorithm!r}"))
        algorithm.make(given)
        seed = secrets.randbelow(2**31) if self.seed is None else self.seed
        return replace(self, parameters=defaults | given, seed=seed)

    def to_toml(self, data: str | None = None) -> str:
        """Write the text of the file; `data` is the folder as it shall stand there."""
        folder = data or (None if self.data is None else str(self.data))
        values: dict[str, Any] = {"fedhk": __version__, "data": folder, "id": self.id, "ignore": self.ignore or None}
        values |= {"algorithm": self.algorithm, "seed": self.seed}
        command = "fedhk fit --out OTHER" if folder is not None else "fedhk flower init APP"
        alike = "with other noise" if self.parameters.get("privacy") else "to the same bits"
        top = f"# `{command} --config THIS-FILE` runs this again, {alike}."
        if folder is None:
            top = f"# What is run. `{command} --config THIS-FILE` makes another app of it."
        try:
            return "\n".join([top, *toml_lines(values), "", "[parameters]", *toml_lines(self.parameters), ""])
        except ValueError as error:
            raise ConfigError(f"the configuration cannot be written: {error}") from error


def read_config(path: Path) -> Config:
    """Read a configuration, or raise ConfigError; a relative data folder is meant from where the file is."""
    content = read_toml(path, "The configuration", tuple(KINDS), ConfigError)
    for name, value in content.items():
        if not isinstance(value, KINDS[name]) or isinstance(value, bool):
            raise ConfigError(
                f"The configuration {str(path)!r} has {name}={value!r}, {KINDS[name].__name__} is needed."
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
