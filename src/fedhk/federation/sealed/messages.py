"""The requests and replies of sealed phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.federation.board import Entry
from fedhk.privacy.secure_sum import MaskReply, MaskRequest


@dataclass(frozen=True)
class ExactSum:
    """Numbers are whole multiples of `step`, without noise."""

    step: float


@dataclass(frozen=True)
class NoisySum:
    """Numbers have noise: `number` is the sum within the run, `rounds` is how many rounds share the budget.

    Where no start is looked for, because centres were given, rounds share what is kept for one. `bound` is the length
    to which a site cuts its vector, where sites are protected and not rows.
    """

    number: int
    rounds: int
    finds_start: bool = True
    bound: float = 0.0


@dataclass(frozen=True, eq=False)
class Header:
    """Header of the request of a sum: its masks, None in the open, and its noise."""

    masks: MaskRequest | None
    noise: ExactSum | NoisySum


@dataclass(frozen=True, eq=False)
class Numbers:
    """A site's term of a sum in the open: whole numbers of four bytes where they fit, else of eight."""

    values: NDArray[Any]

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Numbers:
        """Store numbers in few bytes. They have noise already, so their size tells no more than they do."""
        narrow = numbers.astype(np.int32)
        return cls(narrow if np.array_equal(narrow, numbers) else numbers)


Reply = Numbers | MaskReply


def request_type(phase: Any) -> Any:
    """Return the type of the request of a sealed phase; while masks are agreed on, it has no request of the phase."""
    return tuple[Header, phase.request_type | None]


@dataclass(frozen=True)
class SumCount(Entry):
    """The number of sums that a run has asked for."""

    number: int = 0  # the sum that is asked for now, counted over the whole run; ledgers of sites name it
    done: int = 0  # sums of this phase that are known
    at_risk: bool = False  # whether sites may have released their numbers, under masks that end with the process


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over sites, the sites in it, and how many of them share one noise; 0 where each adds all of it."""

    numbers: NDArray[np.int64]
    sites: Sequence[str]
    sharers: int
