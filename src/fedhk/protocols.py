"""What a round sends, as values with their own options: for `protocol` of an estimator."""

from fedhk.federation.protocols.averaging import Averaging
from fedhk.federation.protocols.factors import FactorAveraging
from fedhk.federation.protocols.personalized import Personalized
from fedhk.federation.protocols.statistics import Statistics

__all__ = ["Averaging", "FactorAveraging", "Personalized", "Statistics"]
