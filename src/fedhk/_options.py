"""Options that belong to one part of a run, kept together as a value."""

from __future__ import annotations

from dataclasses import dataclass

from fedhk._names import KnowsNames


@dataclass(frozen=True)
class Option(KnowsNames):
    """The options of one part of a run, such as its protocol; estimators take one where a name does not say enough.

    A subclass is a frozen dataclass that checks its values when it is made. Model files keep it with the parameters.
    """
