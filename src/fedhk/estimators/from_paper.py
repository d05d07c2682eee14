"""Estimators with the settings of the paper's Algorithms 1 to 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

    def settings(self) -> dict[str, Any]:
        """Return all settings, with the defaults for those that the user does not give."""
        return self.open | {name: values[0] for name, values in self.fixed.items()}


_FACTORS = FactorAveraging(weights="quality", aggregation="factors", blend=0.5)

PRESETS = {
    1: Preset(
        "E-FKMVC",
        EFKMVC,
        FIXED_SETTINGS
        | {"heat_coef": ("minmax-local", "absdev-local", "minmax", "absdev"), "protocol": (Averaging(weights="rows"),)},
        OPEN_SETTINGS | {"personalization": 0.1},
    ),
    2: Preset(
        "FedHK-PARAFAC2",
        FedHKParafac2,
        FIXED_SETTINGS | {"heat_coef": ("minmax-local", "minmax"), "protocol": (_FACTORS,)},
        OPEN_SETTINGS,
    ),
    3: Preset(
        "FedHK-Tucker",
        FedHKTucker,
        FIXED_SETTINGS | {"heat_coef": ("minmax-local", "minmax"), "protocol": (_FACTORS,)},
        OPEN_SETTINGS,
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
        (m), `view_exponent` (alpha), `max_rounds` (T), `tol` (epsilon), `rank`, options of the protocol such as
        `passes` (E). What a line of the algorithm says cannot be changed. With Algorithm 4 `decomposition` may be
        "tucker", and `step` (beta) must be a number.

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
    >>> fedhk.from_paper(1, n_clusters=3, view_weights="uniform")
    Traceback (most recent call last):
    ...
    ValueError: Algorithm 1 (E-FKMVC) has view_weights='learned', got 'uniform': leave it out, or use EFKMVC(...).
    """
    if isinstance(algorithm, bool) or not isinstance(algorithm, int) or algorithm not in PRESETS:
        known = ", ".join(f"{number} ({preset.name})" for number, preset in PRESETS.items())
        raise ValueError(f"algorithm={algorithm!r} must be one of the paper's algorithms: {known}.")
    preset = PRESETS[algorithm]
    for name, values in preset.fixed.items():
        if name in settings and not any(_agrees(settings[name], value) for value in values):
            wanted = " or ".join(map(_describe, values))
            raise ValueError(
                f"Algorithm {algorithm} ({preset.name}) has {name}={wanted}, got {settings[name]!r}: leave it out, or "
                f"use {preset.estimator.__name__}(...)."
            )
    return preset.estimator(n_clusters, **preset.settings() | settings)


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
