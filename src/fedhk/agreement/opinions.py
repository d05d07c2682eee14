"""Scores of the options of a choice."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Opinion:
    """Scores of one scaling of one view, or of one calibration."""

    view: int  # -1 for a frame
    option: str
    agreement: float  # between views: of a view with the others under what is taken of them, or of all pairs
    taken: bool
    alone: float = math.nan  # with what sites find alone; of frames only
    note: str = ""  # what else speaks for or against it
