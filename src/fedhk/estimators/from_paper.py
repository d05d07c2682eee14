"""Estimators with the settings of the paper's Algorithms 1 to 4."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from fedhk._names import explain_names
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.estimators.person import FedHKPerson
from fedhk.estimators.tensor_centers import FedHKParafac2, FedHKTucker
from fedhk.federation.protocols import PROTOCOLS, make_protocol
from fedhk.federation.protocols.averaging import Averaging
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.protocols.factors import FactorAveraging
from fedhk.federation.protocols.personalized import Personalized

# Options of protocols that a line of an algorithm says; the others are inputs, or not in the paper.
FIXED_OPTIONS = ("weights", "aggregation", "held_out")

# What the paper does not say: m and alpha are above 1, and 2 is what fuzzy c-means usually has. Rows come as they are.
OPEN_SETTINGS = {"fuzzifier": 2.0, "view_exponent": 2.0, "scaling": "none"}

# What a line of every algorithm says: random start (phase 1), view weights learned in every pass.
FIXED_SETTINGS: dict[str, tuple[Any, ...]] = {"init": ("random",), "n_init": (1,), "view_weights": ("learned",)}


@dataclass(frozen=True)
class Preset:
    """One algorithm of the paper."""

    name: str
    estimator: type[EFKMVC]
    fixed: dict[str, tuple[Any, ...]]  # what a line of the algorithm says: the values it allows, the usual one first
    open: dict[str, Any]  # what is left to its user: a value to begin with
    symbols: dict[str, str]  # inputs in the paper's letters, beyond those that all estimators have: what they are here

    def settings(self) -> dict[str, Any]:
        """Return all settings, with the defaults for those that the user does not give."""
        return self.open | {name: values[0] for name, values in self.fixed.items()}


# Letters of the paper that are inputs of some of the algorithms only, or of none.
LETTERS = ("E", "tau", "lambda", "lambda_", "lam", "beta", "rho", "gamma", "eta", "epsilon_A", "epsilon_V", "omega")
NO_INPUT = "no input of this algorithm"

_FACTORS = FactorAveraging(weights="quality", aggregation="factors", blend=0.5)
_OF_FACTORS = {"E": "passes", "tau": "temperature"} | dict.fromkeys(("lambda", "lambda_", "lam"), "blend")

PRESETS = {
    1: Preset(
        "E-FKMVC",
        EFKMVC,
        FIXED_SETTINGS
        | {"heat_coef": ("minmax-local", "absdev-local", "minmax", "absdev"), "protocol": (Averaging(weights="rows"),)},
        OPEN_SETTINGS | {"personalization": 0.1},
        {"E": "passes", "epsilon_A": "personalization", "epsilon_V": "personalization"},
    ),
    2: Preset(
        "FedHK-PARAFAC2",
        FedHKParafac2,
        FIXED_SETTINGS | {"heat_coef": ("minmax-local", "minmax"), "protocol": (_FACTORS,)},
        OPEN_SETTINGS,
        _OF_FACTORS,
    ),
    3: Preset(
        "FedHK-Tucker",
        FedHKTucker,
        FIXED_SETTINGS | {"heat_coef": ("minmax-local", "minmax"), "protocol": (_FACTORS,)},
        OPEN_SETTINGS,
        _OF_FACTORS,
    ),
    4: Preset(
        "FedHK-MVC-Person",
        FedHKPerson,
        FIXED_SETTINGS
        | {
            "heat_coef": ("minmax-local", "minmax"),
            "decomposition": ("parafac2", "tucker"),
            "calibration": (None,),
            "protocol": (Personalized(step=0.01, held_out=0.0, center_pull=0.0),),
        },
        OPEN_SETTINGS,
        {"E": "passes", "tau": "temperature", "beta": "step", "gamma": "center_pull", "eta": "view_pull"}
        | dict.fromkeys(("lambda", "lambda_", "lam"), "core, cluster_factor, feature_factors and view_factor")
        | {"rho": "protocol=dataclasses.replace(fedhk.from_paper(4).protocol, view_weights=...)"},
    ),
}


def from_paper(algorithm: int, n_clusters: int = 8, **settings: Any) -> EFKMVC:
    """Make an estimator with the settings of one of the paper's algorithms.

    The estimator is FedHK's, with its corrections; `fedhk.reference` has the algorithms to the letter.

    Parameters
    ----------
    algorithm : {1, 2, 3, 4}
        1 is E-FKMVC (`EFKMVC`), 2 is FedHK-PARAFAC2 (`FedHKParafac2`), 3 is FedHK-Tucker (`FedHKTucker`), 4 is
        FedHK-MVC-Person (`FedHKPerson`).
    n_clusters : int, default=8
        c: number of clusters.
    **settings
        Parameters of the estimator. What the paper asks for as an input of its algorithms can be given: `fuzzifier`
        (m), `view_exponent` (alpha), `max_rounds` (T), `tol` (epsilon), `rank`; and options of the preset's protocol:
        `passes` (E), with Algorithms 2 to 4 `temperature` (tau), with 2 and 3 `blend` (lambda), with 4 `step` (beta),
        `center_pull` (gamma) and `view_pull` (eta). What a line of the algorithm says cannot be changed. With Algorithm
        4 `decomposition` may be "tucker", and `step` must be a number.

        A protocol that is given as a whole, `protocol=...`, takes the place of the preset's: options that it does not
        name have their own defaults, not those of the preset. To begin with these, use
        ``dataclasses.replace(fedhk.from_paper(4).protocol, view_weights=0.5)``.

    Returns
    -------
    EFKMVC
        An estimator that is not fitted yet.

    Raises
    ------
    ValueError
        Where a setting contradicts the algorithm, or there is no such algorithm.

    Examples
    --------
    >>> import fedhk
    >>> model = fedhk.from_paper(1, n_clusters=3)
    >>> model.fuzzifier, model.view_weights, model.protocol
    (2.0, 'learned', Averaging(passes=5, weights='rows', temperature=None))
    >>> fedhk.from_paper(1, n_clusters=3, passes=2).protocol
    Averaging(passes=2, weights='rows', temperature=None)
    >>> fedhk.from_paper(1, n_clusters=3, view_weights="uniform")
    Traceback (most recent call last):
    ...
    ValueError: Algorithm 1 (E-FKMVC) has view_weights='learned', got 'uniform': leave it out, or use EFKMVC(...).
    """
    if isinstance(algorithm, bool) or not isinstance(algorithm, int) or algorithm not in PRESETS:
        known = ", ".join(f"{number} ({preset.name})" for number, preset in PRESETS.items())
        raise ValueError(f"algorithm={algorithm!r} must be one of the paper's algorithms: {known}.")
    preset = PRESETS[algorithm]
    settings = _set_options(preset, algorithm, settings)
    for name, values in preset.fixed.items():
        if name in settings and not any(_agrees(settings[name], value) for value in values):
            wanted = " or ".join(map(_describe, values))
            raise ValueError(
                f"Algorithm {algorithm} ({preset.name}) has {name}={wanted}, got {settings[name]!r}: leave it out, or "
                f"use {preset.estimator.__name__}(...)."
            )
    return preset.estimator(n_clusters, **preset.settings() | settings)


def _set_options(preset: Preset, algorithm: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with options of the preset's protocol put into it; names that nothing has are refused."""
    protocol, parameters = preset.settings()["protocol"], preset.estimator._get_param_names()
    has_temperature = getattr(protocol, "weights", "quality") == "quality"
    known = [option.name for option in fields(protocol) if option.name not in parameters]
    known = [name for name in known if name != "temperature" or has_temperature]
    options = {name: value for name, value in settings.items() if name in known}
    unknown = [name for name in settings if name not in (*known, *parameters)]
    if unknown:
        allowed = [*parameters, *(name for name in known if name not in FIXED_OPTIONS)]
        places = dict.fromkeys(LETTERS, NO_INPUT) | preset.symbols
        raise TypeError(explain_names(unknown, allowed, f"Algorithm {algorithm} ({preset.name})", places=places))
    if not options:
        return settings
    if "protocol" in settings:
        raise ValueError(f"{', '.join(options)} and protocol are given: give {', '.join(options)} to the protocol.")
    others = {name: value for name, value in settings.items() if name not in known}
    return others | {"protocol": replace(protocol, **options)}


def _agrees(given: Any, wanted: Any) -> bool:
    """Tell whether a setting agrees with that of an algorithm; given centres always do."""
    if isinstance(wanted, Protocol):
        protocol = make_protocol(given) if isinstance(given, str) and given in PROTOCOLS else given
        return type(protocol) is type(wanted) and _fixed_options(protocol) == _fixed_options(wanted)
    if wanted == "random" and not isinstance(given, str):
        return True
    return type(given) in (type(wanted), int, float) and bool(given == wanted)


def _fixed_options(protocol: Protocol) -> dict[str, Any]:
    """Return the protocol options that an algorithm fixes, with a default step: lambda is learned by steps."""
    found = {name: getattr(protocol, name) for name in FIXED_OPTIONS if hasattr(protocol, name)}
    return found | {name: None for name in ("step",) if getattr(protocol, name, 0.0) is None}


def _describe(wanted: Any) -> str:
    if not isinstance(wanted, Protocol):
        return repr(wanted)
    return (
        f"{type(wanted).__name__}({', '.join(f'{name}={value!r}' for name, value in _fixed_options(wanted).items())})"
    )
