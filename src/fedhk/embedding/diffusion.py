"""The options of heat diffusion: what a user chooses about how rows are embedded."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

from fedhk._options import Option


@dataclass(frozen=True)
class Diffusion(Option):
    """How rows are tied to anchors, over which heat then spreads.

    Parameters
    ----------
    n_anchors : int, default=300
        Anchors; four for a cluster where that is more, at most one for three rows, at least two for a cluster.
    neighbours : int, default=9
        Anchors that a row is tied to in each view, and in all views together.
    scale : float, default=3.0
        How fast ties weaken with the distance.
    joint_weight : float, default=0.5
        Share of the distances over all views together; the views divide the rest evenly.

    Notes
    -----
    The defaults are by measurement, see `benchmarks/results/diffusion-tried.md`.

    Examples
    --------
    >>> from fedhk import Diffusion
    >>> Diffusion(neighbours=5)
    Diffusion(n_anchors=300, neighbours=5, scale=3.0, joint_weight=0.5)
    """

    n_anchors: int = 300
    neighbours: int = 9
    scale: float = 3.0
    joint_weight: float = 0.5

    def __post_init__(self) -> None:
        for name, least in (("n_anchors", 2), ("neighbours", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number from {least} on.")
            object.__setattr__(self, name, int(value))
        if not _is_number(self.scale) or not 0 < self.scale < float("inf"):
            raise ValueError(f"scale={self.scale!r} must be a finite number above 0.")
        if not _is_number(self.joint_weight) or not 0 <= self.joint_weight <= 1:
            raise ValueError(f"joint_weight={self.joint_weight!r} must be a number from 0 to 1.")
        for name in ("scale", "joint_weight"):
            object.__setattr__(self, name, float(getattr(self, name)))


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
