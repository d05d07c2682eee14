"""Options of an estimator, from the tables of a configuration.

What belongs to one part of a run is a small table: ``participation = { fraction = 0.5, min_sites = 3 }``. A protocol
with options has its short form as "name": ``protocol = { name = "centers", passes = 3 }``.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, replace
from importlib.util import find_spec
from typing import Any

from fedhk import Diffusion, Participation, Personalization
from fedhk.errors import DataError
from fedhk.federation.protocols import PROTOCOLS
from fedhk.privacy import DifferentialPrivacy, SecureSummation

NAME = "name"
TABLES: dict[str, type[Any]] = {
    "diffusion": Diffusion,
    "participation": Participation,
    "personalization": Personalization,
    "privacy": DifferentialPrivacy,
    "secure": SecureSummation,
}


def make_option(parameter: str, value: Any) -> Any:
    """Make what an estimator takes from a value of a configuration; tables become option objects.

    Raises
    ------
    DataError
        If a table lacks an option, has an unknown one, or a value is not allowed.
    """
    if parameter == "secure" and value and find_spec("cryptography") is None:
        raise DataError("Secure sums need the package cryptography: pip install 'fedhk[privacy]'")
    if not isinstance(value, dict):
        return value
    try:
        if parameter == "protocol":
            return _make_protocol(value)
        if parameter in TABLES and not _is_share_by_site(parameter, value):
            return _make_object(TABLES[parameter], value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{parameter}={value}: {error}") from error
    return value


def _is_share_by_site(parameter: str, value: dict[str, Any]) -> bool:
    """Whether a table has the names of sites as its keys, and not those of options."""
    return parameter == "personalization" and not value.keys() & {part.name for part in fields(Personalization)}


def _make_protocol(value: dict[str, Any]) -> Any:
    options = dict(value)
    name = options.pop(NAME, None)
    if name not in PROTOCOLS:
        raise ValueError(f"{NAME} must be one of {', '.join(PROTOCOLS)}.")
    _check_names(options, fields(PROTOCOLS[name]))
    return replace(PROTOCOLS[name], **options)


def _make_object(kind: type[Any], options: dict[str, Any]) -> Any:
    parts = fields(kind)
    _check_names(options, parts)
    needed = [p.name for p in parts if p.default is MISSING and p.default_factory is MISSING and p.name not in options]
    if needed:
        raise ValueError(f"it needs {', '.join(needed)} too.")
    return kind(**options)


def _check_names(options: dict[str, Any], parts: tuple[Field[Any], ...]) -> None:
    unknown = sorted(options.keys() - {part.name for part in parts})
    if unknown:
        known = ", ".join(part.name for part in parts)
        raise ValueError(f"there is no option {', '.join(map(repr, unknown))}; options are {known}.")
