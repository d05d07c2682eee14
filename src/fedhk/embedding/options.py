"""Options of heat diffusion."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

from fedhk._options import Option

# Kinds of anchors, by the name of the option.
SYNTHETIC, MEANS = "synthetic", "means"
ANCHORS = {"both": (SYNTHETIC, MEANS), SYNTHETIC: (SYNTHETIC,), MEANS: (MEANS,)}


@dataclass(frozen=True)
class Diffusion(Option):
    """How rows are tied to anchors, over which heat then spreads.

    Parameters
    ----------
    n_anchors : int, default=300
        Anchors; four for a cluster where that is more. Means of rows are at most one for three rows, at least two for a
        cluster. Where there are several bases, they have from half to four thirds of this number.
    neighbours : int, default=9
        Anchors that a row is tied to in each view, and in all views together; the same holds for bases.
    scale : float, default=3.0
        How fast ties weaken with the distance.
    joint_weight : float, default=0.5
        Share of the distances over all views together; the views divide the rest evenly.
    anchors : {"means", "synthetic", "both"}, default="means"
        What anchors are. "means": means of groups of at least two rows of a site. "synthetic": drawn from a mixture
        that sites fit together from sums; for many sites of few rows each, and what is used with `secure=True` whatever
        is said here. "both": some bases have the one and some the other; only synthetic ones are used where means would
        be fewer than half of the anchors asked for.
    bases : int, default=1
        Partitions of which a consensus is taken, each by a diffusion with other anchors and neighbours. 1, the default,
        takes none: rows are embedded by one diffusion. Ten found no more on data that nobody tuned on, and send more.

    Notes
    -----
    The defaults are by measurement, see `benchmarks/results/diffusion-tried.md`.

    Examples
    --------
    >>> from fedhk import Diffusion
    >>> Diffusion(neighbours=5)
    Diffusion(n_anchors=300, neighbours=5, scale=3.0, joint_weight=0.5, anchors='means', bases=1)
    """

    n_anchors: int = 300
    neighbours: int = 9
    scale: float = 3.0
    joint_weight: float = 0.5
    anchors: str = "means"
    bases: int = 1

    def __post_init__(self) -> None:
        for name, least in (("n_anchors", 2), ("neighbours", 1), ("bases", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number from {least} on.")
            object.__setattr__(self, name, int(value))
        if not _is_number(self.scale) or not 0 < self.scale < float("inf"):
            raise ValueError(f"scale={self.scale!r} must be a finite number above 0.")
        if not _is_number(self.joint_weight) or not 0 <= self.joint_weight <= 1:
            raise ValueError(f"joint_weight={self.joint_weight!r} must be a number from 0 to 1.")
        if self.anchors not in ANCHORS:
            raise ValueError(f"anchors={self.anchors!r} must be one of {list(ANCHORS)}.")
        if self.bases == 1 and len(self.kinds) > 1:
            raise ValueError("anchors='both' has no effect with bases=1: use anchors='synthetic' or 'means'.")
        for name in ("scale", "joint_weight"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of anchors that there are."""
        return ANCHORS[self.anchors]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
