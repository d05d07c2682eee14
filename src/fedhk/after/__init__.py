"""After a run: what clusters are, what becomes of their rows, how sure they are. Each question is one file."""

from fedhk.after.profile import Profile, profile
from fedhk.after.tables import PrintedTable

__all__ = ["PrintedTable", "Profile", "profile"]
