"""The algorithms that `fedhk fit` knows, and how an estimator is made from the parameters of a configuration.

What belongs to one part of a run is a small table: ``participation = { fraction = 0.5, min_sites = 3 }``. A protocol
with options has its short form as "name": ``protocol = { name = "centers", passes = 3 }``.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from importlib.util import find_spec
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import fedhk
from fedhk._names import explain_names
from fedhk.data.named import NamedTable, named_views
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk.data.folders import Federation

# Parameters that are tables, and where their classes are; like the estimators, these are loaded when first used.
TABLES = {
    "diffusion": "Diffusion",
    "participation": "Participation",
    "personalization": "Personalization",
    "privacy": "privacy.DifferentialPrivacy",
    "secure": "privacy.SecureSummation",
}

# How a configuration says that a parameter is None whose default is something else: TOML has no word for it.
NONE = "none"

# Parameters that the command line sets itself: the seed stands beside them, the others change no result.
NOT_SETTINGS = ("random_state", "checkpoint", "engine", "verbose")


@dataclass(frozen=True)
class Algorithm:
    """One algorithm."""

    estimator: str  # its class in `fedhk`
    federated: bool = True  # takes several sites, in rounds that can be resumed
    rounds: str = "max_rounds"  # the parameter that the command line calls ``max_rounds``
    noisy_updates: bool = True  # a model that was fitted with a privacy budget can be updated with new rows

    def make(self, parameters: dict[str, Any]) -> Any:
        """Make an estimator from the parameters of a configuration."""
        options = {name: make_option(name, value) for name, value in parameters.items()}
        return getattr(fedhk, self.estimator)(**options)

    def defaults(self) -> dict[str, Any]:
        """List the parameters that decide what a run gives, with their defaults."""
        parameters: dict[str, Any] = self.make({}).get_params(deep=False)
        return {name: value for name, value in parameters.items() if name not in NOT_SETTINGS}


ALGORITHMS = {
    "e-fkmvc": Algorithm("EFKMVC"),
    "fedhk-tucker": Algorithm("FedHKTucker"),
    "fedhk-parafac2": Algorithm("FedHKParafac2"),
    "fedhk-person": Algorithm("FedHKPerson"),
    "fedhk-diffusion": Algorithm("FedHKDiffusion", noisy_updates=False),
    "heat-kernel-mvc": Algorithm("HeatKernelMVC", federated=False, rounds="max_iter"),
}


def list_tables(federation: Federation) -> dict[str, dict[str, NamedTable | None]]:
    """List the tables of every site, with the names of their columns, as estimators take them."""
    return {site.name: named_views(site) for site in federation.sites.values()}


def make_option(parameter: str, value: Any) -> Any:
    """Make what an estimator takes from a value of a configuration: tables become option objects, or a DataError."""
    if parameter == "secure" and value and find_spec("cryptography") is None:
        raise DataError("Secure sums need the package cryptography: pip install 'fedhk[privacy]'")
    if parameter == "calibration" and value == NONE:
        return None
    if not isinstance(value, dict):
        return value
    try:
        if parameter == "protocol":
            return _make_protocol(value)
        if parameter in TABLES:
            return _make_object(attrgetter(TABLES[parameter])(fedhk), value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{parameter}={value}: {error}") from error
    return value


def describe_option(value: Any) -> Any:
    """Write a value as `make_option` reads it: an option object as a table, None as a word, others as they are."""
    from fedhk._options import Option
    from fedhk.federation.protocols import PROTOCOLS

    if not isinstance(value, Option):
        return NONE if value is None else value
    table = {name: part for name, part in vars(value).items() if part is not None}
    names = [name for name, known in PROTOCOLS.items() if type(known) is type(value)]
    return ({"name": names[-1]} if names else {}) | table


def _make_protocol(value: dict[str, Any]) -> Any:
    from fedhk.federation.protocols import PROTOCOLS

    name = value.get("name")
    if name not in PROTOCOLS:
        raise ValueError(f"name must be one of {', '.join(PROTOCOLS)}.")
    options = {option: setting for option, setting in value.items() if option != "name"}
    _check_names(options, PROTOCOLS[name])
    return replace(PROTOCOLS[name], **options)


def _make_object(kind: Any, options: dict[str, Any]) -> Any:
    parts = fields(kind)
    if kind is fedhk.Personalization and not options.keys() & {part.name for part in parts}:
        return options  # shares by site: the keys are names of sites, not of options
    _check_names(options, kind)
    needed = [p.name for p in parts if p.default is MISSING and p.default_factory is MISSING and p.name not in options]
    if needed:
        raise ValueError(f"it needs {', '.join(needed)} too.")
    return kind(**options)


def _check_names(options: dict[str, Any], kind: Any) -> None:
    known = [part.name for part in fields(kind)]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise ValueError(explain_names(unknown, known, "it", "option"))
