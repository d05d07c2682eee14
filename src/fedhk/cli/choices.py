"""Options of an estimator as they stand in a configuration, and as the estimator takes them.

What belongs to one part of a run is a small table: ``participation = { fraction = 0.5, min_sites = 3 }``. A protocol
with options has its short form as "name": ``protocol = { name = "centers", passes = 3 }``.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from fedhk import Diffusion, Participation, Personalization
from fedhk._options import Option
from fedhk.errors import DataError
from fedhk.federation.protocols import PROTOCOLS
from fedhk.privacy import DifferentialPrivacy, SecureSummation

TABLES: dict[str, type[Option]] = {
    "diffusion": Diffusion,
    "participation": Participation,
    "personalization": Personalization,
    "privacy": DifferentialPrivacy,
    "secure": SecureSummation,
}
NAME = "name"


def make_option(parameter: str, value: Any) -> Any:
    """A value of a configuration as the estimator takes it; tables become option objects."""
    if not isinstance(value, dict):
        return value
    try:
        if parameter == "protocol":
            return _make_protocol(value)
        is_share_by_site = parameter == "personalization" and not value.keys() & _names(Personalization)
        return value if parameter not in TABLES or is_share_by_site else TABLES[parameter](**value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{parameter}={value}: {error}") from error


def _make_protocol(value: dict[str, Any]) -> Any:
    named = PROTOCOLS.get(value.get(NAME, ""))
    if named is None:
        raise ValueError(f"{NAME} must be one of {', '.join(PROTOCOLS)}.")
    return replace(named, **{name: part for name, part in value.items() if name != NAME})


def describe_option(value: Any) -> Any:
    """What `make_option` takes: option objects as tables, without what is left at None."""
    if not isinstance(value, Option):
        return value
    parts = {part.name: getattr(value, part.name) for part in fields(value)}
    known = {name: part for name, part in parts.items() if part is not None}
    same = [name for name, protocol in PROTOCOLS.items() if type(protocol) is type(value)]
    return {NAME: same[-1]} | known if same else known


def _names(kind: type[Option]) -> set[str]:
    return {part.name for part in fields(kind)}
