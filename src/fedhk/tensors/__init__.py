"""Low-rank forms of the centres: weighted decompositions that can be warm-started, their ranks and gauges."""

from fedhk.tensors.base import Decomposition
from fedhk.tensors.cp import CP, CPFactors
from fedhk.tensors.factors import Factors
from fedhk.tensors.limits import Limit, check_rank
from fedhk.tensors.low_rank import DECOMPOSITIONS, LowRank, LowRankForm, LowRankParameters
from fedhk.tensors.parafac2 import Parafac2, Parafac2Factors
from fedhk.tensors.problem import weighted_error
from fedhk.tensors.ranks import RankChoice, choose_rank, find_helpful_rank
from fedhk.tensors.tucker import Tucker, TuckerFactors

__all__ = [
    "CP",
    "DECOMPOSITIONS",
    "CPFactors",
    "Decomposition",
    "Factors",
    "Limit",
    "LowRank",
    "LowRankForm",
    "LowRankParameters",
    "Parafac2",
    "Parafac2Factors",
    "RankChoice",
    "Tucker",
    "TuckerFactors",
    "check_rank",
    "choose_rank",
    "find_helpful_rank",
    "weighted_error",
]
