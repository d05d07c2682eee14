"""Numbers and names as people read them."""

from __future__ import annotations

import datetime
import math
from decimal import ROUND_HALF_UP, Decimal


def number(value: float, digits: int = 3) -> str:
    """Write a number with a few significant digits, separated thousands and a real minus sign."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    large_or_small = size >= 9 or size < -4
    text = f"{value:.{digits - 1}e}" if large_or_small else f"{value:,.{max(digits - 1 - size, 0)}f}"
    return text.replace("-", "−")


def number_above(value: float, digits: int = 2) -> str:
    """Write the upper end of a promise with a few significant digits, so that the number shown is not below it."""
    if not math.isfinite(value) or value <= 0:
        return number(value, digits)
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    # a value that is a number of steps but for rounding stays as it is
    return number(math.ceil(value / step * (1.0 - 1e-12)) * step, digits)


def show_date(days: float) -> str:
    """Write days since 1970 as a date."""
    try:
        return str(datetime.date(1970, 1, 1) + datetime.timedelta(round(days)))
    except (ValueError, OverflowError):  # missing, or beyond the calendar
        return number(days)


def describe_no_drift(*, compared: bool) -> str:
    """Say of an update that no cluster has moved, or that rows were not compared with earlier ones."""
    if compared:
        return "No cluster has moved by more than chance explains."
    return "New rows were not compared with earlier ones, so it is not known whether clusters have moved."


def two_digits(value: float) -> str:
    """Write a number with two digits behind the point, for columns that are compared at a glance."""
    return f"{value:.2f}".replace("-", "−") if math.isfinite(value) else "–"


def brief(value: float) -> str:
    """Write a number that somebody chose: 4 rather than 4.00, and 1e−05 with a minus sign, after which no line ends."""
    return f"{value:.3g}".replace("-", "−")


def percent(share: float) -> str:
    """Write a share in per cent: one digit behind the point below ten, none above. Only zero reads as zero."""
    if not math.isfinite(share):
        return "–"
    value = 100 * share
    if 0 < value < 0.05:
        return "under 0.1 %"
    if 99.5 <= value < 100:
        return "over 99 %"
    digits = Decimal("0.1") if abs(value) < 9.95 else Decimal(1)
    text = str(Decimal(value).quantize(digits, ROUND_HALF_UP))  # as the script of the page rounds
    return f"{text.removesuffix('.0')} %"


def plural(count: int, what: str) -> str:
    """Count things: "1 site", "2 sites"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def byte_unit(n_bytes: float) -> tuple[str, float]:
    """Find the unit in which a number of bytes is read best, and its bytes."""
    return next((unit for unit in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if n_bytes >= unit[1]), ("B", 1.0))


def size(n_bytes: float) -> str:
    """Write a number of bytes with a unit."""
    unit, factor = byte_unit(n_bytes)
    return f"{n_bytes:.0f} B" if unit == "B" else f"{number(n_bytes / factor)} {unit}"


def seconds(value: float) -> str:
    """Write a time with a unit."""
    if 0 < value < 0.1:
        return f"{number(1000 * value, 2)} ms"
    return f"{number(value / 60)} minutes" if value >= 120 else f"{number(value, 2)} s"


def join_names(parts: list[str], most: int = 4) -> str:
    """List several things in a sentence; of many, the first."""
    if len(parts) > most:
        return f"{', '.join(parts[:most])} and {len(parts) - most} more"
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def shorten(text: str, most: int) -> str:
    """Cut a long name in its middle, since both of its ends may tell it from others."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
