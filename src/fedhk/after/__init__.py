"""After a run: what clusters are, what becomes of their rows, how sure they are. Each question is one file."""

from fedhk.after.binary import BinaryOutcome
from fedhk.after.comparison import Comparison, compare
from fedhk.after.continuous import ContinuousOutcome
from fedhk.after.outcomes import outcomes
from fedhk.after.placement import Limit, Placement, find_limit, place
from fedhk.after.profile import Profile, profile
from fedhk.after.stability import Stability, stability
from fedhk.after.survival import Survival
from fedhk.after.tables import PrintedTable

__all__ = [
    "BinaryOutcome",
    "Comparison",
    "ContinuousOutcome",
    "Limit",
    "Placement",
    "PrintedTable",
    "Profile",
    "Stability",
    "Survival",
    "compare",
    "find_limit",
    "outcomes",
    "place",
    "profile",
    "stability",
]
