"""Which sites take part in a run and in its rounds, and how many replies a round needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from fedhk._options import Option

Deviating = Literal["exclude", "warn", "refuse"]

# Sites that are asked for candidates of a start and for neighbours. What one site of 200 has is among them but for a
# chance of e^-10, and if all have but two rows, these are as many as are looked at in a site (`SAMPLE_ROWS`).
SAMPLE_SITES = 2_000


@dataclass(frozen=True)
class Participation(Option):
    """Who takes part in a run.

    Parameters
    ----------
    fraction : float, default=1.0
        Share of the sites asked in a round, drawn anew each time, but at least `min_sites`; set-up and finish ask all.
    min_sites : int or None, default=None
        Fewest usable answers for an exchange to count; with fewer the run stops with an error, and can be resumed. None
        is one answer where all sites are in this process, and more than half of the sites asked where they are
        elsewhere: there a few sites that are wrong must not be all that a model is made of.
    timeout : float or None, default=None
        Seconds after which an exchange goes on without the sites that have not answered. None waits for all sites in
        this process, and ten minutes for sites elsewhere.
    deviating : {"exclude", "warn", "refuse"}, default="exclude"
        What is done with a site whose columns are in another unit, shifted or full of codes for missing values, as far
        as the moments of the other sites tell. "exclude" leaves it out of the model, "warn" keeps it, "refuse" raises a
        DataError. With fewer than three sites that have a view nobody can say which one is right, and sums with noise
        or masks hide single sites: then a warning is all.

    Examples
    --------
    >>> from fedhk import Participation
    >>> Participation(fraction=0.5, min_sites=3)
    Participation(fraction=0.5, min_sites=3, timeout=None, deviating='exclude')
    """

    fraction: float = 1.0
    min_sites: int | None = None
    timeout: float | None = None
    deviating: Deviating = "exclude"

    def __post_init__(self) -> None:
        self._keep_number("fraction", lambda share: 0 < share <= 1, "a number above 0 and at most 1")
        self._keep_whole("min_sites", 1, or_none=True)
        self._keep_number("timeout", lambda seconds: seconds > 0, "a number of seconds above 0", or_none=True)
        self._check_word("deviating", get_args(Deviating))

    def resolve(self, *, in_process: bool) -> Participation:
        """Fill in the fewest replies of a round where it was not given: one, if all sites are in this process."""
        return replace(self, min_sites=1) if in_process and self.min_sites is None else self

    def fewest_answers(self, asked: int) -> int:
        """Return how many sites must reply, of those that are asked."""
        return asked // 2 + 1 if self.min_sites is None else self.min_sites

    def draw(self, sites: Sequence[str], seed: Sequence[int]) -> list[str]:
        """Draw the sites of one round, sorted."""
        return self._draw(sites, seed, round(self.fraction * len(sites)))

    def draw_sample(self, sites: Sequence[str], seed: Sequence[int]) -> list[str]:
        """Draw the sites for a question that a sample of sites answers well enough; all sites where they are few."""
        return self._draw(sites, seed, SAMPLE_SITES)

    def _draw(self, sites: Sequence[str], seed: Sequence[int], wanted: int) -> list[str]:
        names = sorted(sites)
        count = max(1, self.min_sites or 1, wanted)
        if count >= len(names):
            return names
        return sorted(names[i] for i in np.random.default_rng(seed).choice(len(names), count, replace=False))
