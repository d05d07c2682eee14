"""Options of heat diffusion."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedhk._options import Option

# Kinds of anchors, by the name of the option.
SYNTHETIC, MEANS = "synthetic", "means"
AUTO = "auto"


@dataclass(frozen=True)
class Diffusion(Option):
    """Options of heat diffusion: how anchors are made, and how rows are linked to them.

    Parameters
    ----------
    n_anchors : int, default=300
        Anchors; four for a cluster where that is more, and no more than there are rows. Means of rows are at most one
        for three rows, at least two for a cluster.
    neighbours : int, default=9
        Anchors that a row is tied to in each view, and in all views together.
    scale : float, default=3.0
        How fast ties weaken with the distance.
    joint_weight : float, default=0.5
        Share of the distances over all views together; the views divide the rest evenly.
    anchors : {"auto", "means", "synthetic"}, default="auto"
        What anchors are. "means": means of groups of at least two rows of a site, with `secure=True` of all sites
        together. "auto": the same, and where these are fewer than asked for, points drawn around them, so that sites of
        few rows have enough. "synthetic": drawn from a mixture that sites fit together from sums.
    groups : bool, default=True
        Whether heat also passes between anchors that plain k-means puts into one group: much where heat leaves the
        clusters, none where they are apart, whatever their shape. It keeps round clusters whole that chains of rows
        join to others, and costs no byte.
    stretch : bool, default=True
        Whether directions in which rows of the same cluster spread widely count less in distances. Sites sum up the
        covariance of their rows within first clusters, and group their rows once more. Views with missing cells, with
        levels of categories, with rows of length 1 or with more than 600 features keep their units, and so do all views
        with noise and with synthetic anchors.

    Notes
    -----
    The defaults are by measurement, see `benchmarks/results/diffusion-tried.md`.

    Examples
    --------
    >>> from fedhk import Diffusion
    >>> Diffusion(neighbours=5)
    Diffusion(n_anchors=300, neighbours=5, scale=3.0, joint_weight=0.5, anchors='auto', groups=True, stretch=True)
    """

    n_anchors: int = 300
    neighbours: int = 9
    scale: float = 3.0
    joint_weight: float = 0.5
    anchors: str = AUTO
    groups: bool = True
    stretch: bool = True

    def __post_init__(self) -> None:
        self._keep_whole("n_anchors", 2)
        self._keep_whole("neighbours", 1)
        self._keep_number("scale", lambda scale: 0 < scale < math.inf, "a finite number above 0")
        self._keep_number("joint_weight", lambda share: 0 <= share <= 1, "a number from 0 to 1")
        for name in ("groups", "stretch"):
            given = getattr(self, name)
            if given not in (True, False):
                raise ValueError(f"{name}={given!r} must be True or False.")
            self._set(name, bool(given))
        self._check_word("anchors", [AUTO, MEANS, SYNTHETIC])
