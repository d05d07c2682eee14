"""Names of parameters: what the paper's symbols are called here, and what a misspelt name may mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

_BUDGET = "of privacy=fedhk.privacy.DifferentialPrivacy(...) where it is a budget"
_CENTERS = ("init, where a fit starts from, and cluster_centers_ of the fitted model",)
_MEMBERSHIPS = ("memberships_ of the fitted model",)
_SHARE = (
    "centers",
    "blend",
    "personalization of FedHKPerson, in the rounds protocol=fedhk.protocols.Personalized(centers=...)",
)
_STEP = ("step", "personalization of EFKMVC")

# Symbol -> where it is found here. Of several places, the first one counts that begins with a parameter that there is.
# Capitals are other symbols: m is the fuzzifier, M the number of clients.
PAPER_NAMES: dict[str, tuple[str, ...]] = {
    "c": ("n_clusters", "n_components"),
    "s": ("the number of views in X",),
    "M": ("the number of sites in X",),
    "m": ("fuzzifier",),
    "alpha": ("view_exponent",),
    "delta": (f"heat_coef where it is the heat-kernel coefficient, delta {_BUDGET}",),
    "epsilon": (f"tol where it is the threshold of convergence, epsilon {_BUDGET}",),
    "epsilon_A": _STEP,
    "epsilon_V": _STEP,
    "T": ("max_rounds", "max_iter"),
    "T_max": ("max_rounds", "max_iter"),
    "E": ("passes", "protocol=fedhk.protocols.Averaging(passes=...)"),
    "lambda": _SHARE,
    "lambda_": _SHARE,
    "lam": _SHARE,
    "beta": ("step", "protocol=fedhk.protocols.Personalized(step=...)"),
    "rho": ("personalization=fedhk.Personalization(view_weights=...)", "view_weights"),
    "gamma": ("center_pull", "personalization=fedhk.Personalization(center_pull=...)"),
    "eta": ("view_pull", "personalization=fedhk.Personalization(view_pull=...)"),
    "tau": ("temperature", "protocol=fedhk.protocols.Averaging(weights='quality', temperature=...)"),
    "omega": ("weights", "protocol=fedhk.protocols.Averaging(weights=...)"),
    "r": ("rank",),
    "r1": ("rank",),
    "r2": ("rank",),
    "r3": ("rank",),
    "v": ("view_weights",),
    "V": ("view_weights",),
    "A": _CENTERS,
    "a": _CENTERS,
    "U": _MEMBERSHIPS,
    "mu": _MEMBERSHIPS,
    "J": ("objective_ of the fitted model",),
    "G": ("core_ of the fitted model",),
    "P": ("cluster_factor_ of the fitted model",),
    "Q": ("feature_factors_ of the fitted model",),
    "R": ("view_factor_ of the fitted model",),
}

# The same with names of other libraries and of earlier versions.
MEANINGS = PAPER_NAMES | {
    "k": PAPER_NAMES["c"],
    "max_iter": ("max_rounds",),
    "max_rounds": ("max_iter",),
    "seed": ("random_state",),
    "client_weights": PAPER_NAMES["omega"],
    "local_passes": PAPER_NAMES["E"],
    "personalization_step": _STEP,
    "quality_temperature": PAPER_NAMES["tau"],
    "view_personalization": PAPER_NAMES["rho"],
}


def suggest(name: str, known: Collection[str]) -> str:
    """Ask whether the name was meant that is most like a misspelt one; nothing where none is like it.

    Examples
    --------
    >>> from fedhk._names import suggest
    >>> suggest("hospital", ["hospitals", "notes"])
    " Did you mean 'hospitals'?"
    >>> suggest("kfed", ["k-FED", "EFKMVC"])
    " Did you mean 'k-FED'?"
    """
    close = _find_close(name, known)
    return f" Did you mean {close[0]!r}?" if close else ""


def suggest_path(path: Path) -> str:
    """Ask whether the file or folder was meant whose name is most like that of a path that is not there."""
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    return "" if path.exists() else suggest(path.name, beside)


def explain_names(
    unknown: Collection[str],
    known: Collection[str],
    owner: str,
    word: str = "parameter",
    places: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Say that `owner` has no such parameters, what was meant, and which ones there are.

    Parameters
    ----------
    unknown : collection of str
        The names that were given.
    known : collection of str
        The names that there are.
    owner : str
        What has these names, such as a class.
    word : str
        What they are called.
    places : mapping of str to str
        What symbols of the paper are here, where that differs from other classes.

    Examples
    --------
    >>> from fedhk._names import explain_names
    >>> explain_names(["alpha", "m"], ["fuzzifier", "view_exponent"], "It")
    "It has no parameter 'alpha', 'm'; alpha is view_exponent, m is fuzzifier. Parameters are fuzzifier, view_exponent."
    >>> explain_names(["fuzifier"], ["fuzzifier"], "It")
    "It has no parameter 'fuzifier'; did you mean 'fuzzifier'? Parameters are fuzzifier."
    """
    meant = [f"{name} is {places.get(name) or _find_place(name, known)}" for name in unknown if name in MEANINGS]
    close = [_find_close(name, known) for name in unknown if name not in MEANINGS]
    guesses = [repr(found[0]) for found in close if found]
    text = f"{owner} has no {word} {', '.join(map(repr, unknown))}"
    text += f"; {', '.join(meant)}" if meant else ""
    text += f"; did you mean {', '.join(guesses)}?" if guesses else "."
    return f"{text} {word.capitalize()}s are {', '.join(known)}."


def _find_close(name: str, known: Collection[str]) -> list[str]:
    """Return the known name that is most like a misspelt one, if there is one; case and signs do not count."""
    plain = {re.sub(r"[\W_]", "", each).lower(): each for each in known}
    return [plain[close] for close in get_close_matches(re.sub(r"[\W_]", "", name).lower(), plain, n=1)]


def _find_place(name: str, known: Collection[str]) -> str:
    """Return where a symbol of the paper is found, among these parameters if possible."""
    places = MEANINGS[name]
    for place in places:
        if re.split(r"\W", place)[0] in known:
            return place
    return places[-1] if " " in places[-1] else f"{places[-1]} of other classes"


@cache
def _parameters_of(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    return signature(function).parameters


class KnowsNames:
    """Refuses keywords that the constructor does not have, and says what may be meant.

    It looks at `__init__` when an object is made, so that it works for dataclasses and for classes that users derive.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ARG004 - __init__ takes them
        parameters = _parameters_of(cls.__init__)
        unknown = [name for name in kwargs if name not in parameters]
        if unknown and all(parameter.kind is not Parameter.VAR_KEYWORD for parameter in parameters.values()):
            known = [name for name in parameters if name != "self"]
            raise TypeError(explain_names(unknown, known, cls.__name__))
        return super().__new__(cls)
