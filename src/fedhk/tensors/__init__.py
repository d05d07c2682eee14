"""Low-rank forms of the centres: weighted decompositions that can be warm-started, their ranks and gauges."""

from typing import Any

from fedhk.tensors.base import Decomposition
from fedhk.tensors.components import ComponentFactors
from fedhk.tensors.cp import CP
from fedhk.tensors.limits import Limit, check_rank
from fedhk.tensors.parafac2 import Parafac2
from fedhk.tensors.problem import weighted_error
from fedhk.tensors.ranks import RankChoice, choose_rank
from fedhk.tensors.tucker import Tucker, TuckerFactors

__all__ = [
    "CP",
    "DECOMPOSITIONS",
    "ComponentFactors",
    "Decomposition",
    "Limit",
    "Parafac2",
    "RankChoice",
    "Tucker",
    "TuckerFactors",
    "check_rank",
    "choose_rank",
    "weighted_error",
]

DECOMPOSITIONS: dict[str, Decomposition[Any]] = {"tucker": Tucker(), "parafac2": Parafac2(), "cp": CP()}
"""The forms by the names that estimators take."""
