"""A privacy plan: how much all runs together may spend in a year, and for how many years. Ledgers keep it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

from fedhk._files import read_regular, write_atomically
from fedhk.privacy.accounting import epsilon_of
from fedhk.privacy.ledger import LedgerError, Release
from fedhk.privacy.mechanism import ChoiceError, DifferentialPrivacy
from fedhk.privacy.sensitivity import Neighbours

# The file in a folder of ledgers.
PLAN = "plan.json"

YEAR = timedelta(days=365.25)

# A budget is compared with what rounding makes of it.
ROUNDING = 1e-6


@dataclass(frozen=True)
class PrivacyPlan:
    """At most `epsilon` a year, at `delta` and for these neighbours, for `years` years from a site's first release."""

    epsilon: float
    years: int
    delta: float
    neighbours: Neighbours

    def find_year(self, releases: Sequence[Release], now: float | None = None) -> tuple[datetime, list[Release]] | None:
        """Return when this year of the plan ends, and the releases in it; None if the plan has ended."""
        today = datetime.fromtimestamp(time.time() if now is None else now, UTC)
        times = [datetime.fromisoformat(release.time) for release in releases]
        first = min(times, default=today)
        year = int((today - first) / YEAR)
        if year >= self.years:
            return None
        begins = first + year * YEAR
        return begins + YEAR, [release for release, then in zip(releases, times, strict=True) if then >= begins]

    def refuse(self, releases: Sequence[Release], privacy: DifferentialPrivacy, now: float | None = None) -> str:
        """Return why a run with this budget may not begin after these releases; empty if it may."""
        year = self.find_year(releases, now)
        if year is None:
            return f"its {self.years} years are over"
        before = sum(release.multiplier_for(self.neighbours) ** -2 for release in year[1])
        spent = epsilon_of(self.delta, math.sqrt(before)) if before > 0 else 0.0
        total = epsilon_of(self.delta, math.sqrt(before + privacy.budget_for(self.neighbours)))
        if total <= self.epsilon * (1 + ROUNDING):
            return ""
        return (
            f"in the year that ends on {year[0]:%Y-%m-%d}, {spent:.3g} is spent of epsilon {self.epsilon:g}, and this "
            f"run would make it {total:.3g}"
        )


def keep_plan(privacy: DifferentialPrivacy) -> PrivacyPlan | None:
    """Return the plan of a folder of ledgers, kept there from its first run on; None if there is none."""
    if privacy.ledger is None:
        return None
    file = Path(privacy.ledger) / PLAN
    known = read_plan(file) if file.exists() else None
    if privacy.plan is None:
        return known
    epsilon, years = privacy.plan
    given = PrivacyPlan(epsilon, years, privacy.delta, privacy.neighbours)
    if known is None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(file, json.dumps(asdict(given)).encode())
    elif (known.epsilon, known.years) != (given.epsilon, given.years):
        raise ChoiceError(
            f"plan={privacy.plan!r} is not the one that is kept in {str(file)!r}: epsilon {known.epsilon:g} a year for "
            f"{known.years} years. A plan is kept; leave plan out."
        )
    return known or given


def read_plan(file: Path) -> PrivacyPlan:
    """Read a plan; a LedgerError says if it is damaged."""
    try:
        plan = PrivacyPlan(**json.loads(read_regular(file)))
        fits = type(plan.years) is int and plan.neighbours in get_args(Neighbours)
        if not (fits and 0 < plan.epsilon < math.inf and plan.years >= 1 and 0 < plan.delta < 1):
            raise ValueError("numbers")  # noqa: TRY301
    except (ValueError, TypeError) as error:
        raise LedgerError(f"The privacy plan {str(file)!r} is damaged: restore it from a copy.") from error
    return plan
