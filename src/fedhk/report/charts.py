"""Charts of a run: convergence, traffic, certainty, and what personalization gained."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.report.facts import Facts, Gain, Round
from fedhk.report.svg import (
    WIDTH,
    Figure,
    Scale,
    Table,
    drawing,
    escape,
    label,
    round_axis,
    tag,
    tick_text,
    ticks,
    tooltip,
    value_axis,
)
from fedhk.report.words import counted, number, percent, seconds, shortened, size

LEFT, RIGHT = 54.0, WIDTH - 10.0
TOP, BOTTOM, HEIGHT = 26.0, 186.0, 222.0
BINS = 10
# Share of rows below which a bar has no label: labels of bars side by side would run into each other.
WORTH_A_LABEL = 0.01

# Bars are at least this wide, in pixels: more rounds than fit are drawn in groups.
MOST_BARS = 60

# Sites in the figure of gains; its table has all.
MOST_SITES = 24

# How kinds of models are marked: class of the mark, its shape, and what it is called.
KINDS = {
    "alone": ("k2", "square", "the site alone"),
    "global": ("k0", "ring", "global model"),
    "personal": ("k1", "dot", "own model"),
}


def convergence(rounds: Sequence[Round], unit: str = "round") -> Figure:
    """The objective by round, or by iteration at one site."""
    x = Scale(rounds[0].number, rounds[-1].number, LEFT + 8, RIGHT - 8)
    values = [r.objective for r in rounds if math.isfinite(r.objective)] or [0.0]
    margin = 0.08 * (max(values) - min(values)) or abs(values[0]) * 0.05 or 1.0
    y = Scale(min(values) - margin, max(values) + margin, BOTTOM, TOP)
    known = [r for r in rounds if math.isfinite(r.objective)]
    path = " ".join(f"{x(r.number):.1f},{y(r.objective):.1f}" for r in known)
    most = max((r.sites or 0) for r in rounds)
    marks = "".join(
        tag(
            "circle",
            tooltip(f"{unit} {r.number}: {number(r.objective, 6)}" + _answered(r)),
            cx=x(r.number),
            cy=y(r.objective),
            r=3.5 if len(known) <= MOST_BARS else 1.5,
            class_="mark" if (r.sites or 0) == most else "mark missing",
        )
        for r in known
    )
    content = (
        value_axis(y, LEFT, RIGHT)
        + label(2, 12, "objective", class_="axis")
        + tag("polyline", points=path, class_="line")
        + marks
        + round_axis(x, BOTTOM, unit)
    )
    about = (
        f"The objective went from {number(values[0], 5)} to {number(values[-1], 5)} in {counted(len(rounds), unit)}."
    )
    fell = f"After the first {unit} it {_change(values[0], values[-1])}. " if len(values) > 1 else ""
    note = (
        f"How far rows are from their clusters, all together; lower is better. {fell}The axis does not begin at zero."
    )
    if any((r.sites or 0) < most for r in rounds):
        note += " Hollow: not all sites answered."
    rows = [(r.number, number(r.objective, 6), "–" if r.sites is None else r.sites, seconds(r.seconds)) for r in rounds]
    table = Table((unit, "objective", "sites that answered", "time"), rows)
    return Figure("convergence", "Convergence", drawing(HEIGHT, content, about), note, table)


def _change(before: float, after: float) -> str:
    """In words, from one value to another."""
    share = abs(after - before) / abs(before) if before else 0.0
    return f"{'fell' if after <= before else 'rose'} by {percent(share)}"


def _answered(record: Round) -> str:
    return "" if record.sites is None else f", {counted(record.sites, 'site')} answered"


def traffic(rounds: Sequence[Round]) -> Figure:
    """Bytes by round and direction."""
    groups = _groups(rounds)
    most = max(max(up, down) for _, _, up, down in groups) or 1
    unit, factor = next(((u, f) for u, f in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if most >= f), ("B", 1.0))
    y = Scale(0, most / factor * 1.05, BOTTOM, TOP)
    step = (RIGHT - LEFT) / len(groups)
    bars = []
    for place, (first, last, up, down) in enumerate(groups):
        for side, (name, value) in enumerate((("from sites", up), ("to sites", down))):
            top = y(value / factor)
            width = min(step * 0.4, 24.0)
            start = LEFT + (place + 0.5) * step + (side - 1) * width
            said = f"round {first}" if first == last else f"rounds {first} to {last}"
            bars.append(
                tag(
                    "rect",
                    tooltip(f"{said}, {name}: {size(value)}"),
                    x=start,
                    y=top,
                    width=width,
                    height=BOTTOM - top,
                    class_=f"k{side}",
                )
            )
    x = Scale(rounds[0].number - 0.5, rounds[-1].number + 0.5, LEFT, RIGHT)
    up, down = sum(r.bytes_up or 0 for r in rounds), sum(r.bytes_down or 0 for r in rounds)
    content = (
        value_axis(y, LEFT, RIGHT)
        + label(2, 12, unit, class_="axis")
        + _key(110, (("k0", "square", "from sites"), ("k1", "square", "to sites")))
        + "".join(bars)
        + round_axis(x, BOTTOM, "round")
    )
    rows: list[tuple[object, ...]] = [(r.number, size(r.bytes_up or 0), size(r.bytes_down or 0)) for r in rounds]
    table = Table(("round", "from sites", "to sites"), [*rows, ("all", size(up), size(down))])
    note = f"{size(up)} came from sites, {size(down)} went to them. The first round counts what prepares it too."
    about = f"Bytes by round: {size(up)} from sites and {size(down)} to sites in all."
    return Figure("traffic", "Bytes sent", drawing(HEIGHT, content, about), note, table)


def _groups(rounds: Sequence[Round]) -> list[tuple[int, int, int, int]]:
    """First and last round of each bar, and bytes up and down: means over the rounds of a group."""
    per_bar = math.ceil(len(rounds) / MOST_BARS)
    parts = [rounds[i : i + per_bar] for i in range(0, len(rounds), per_bar)]
    return [
        (
            part[0].number,
            part[-1].number,
            sum(r.bytes_up or 0 for r in part) // len(part),
            sum(r.bytes_down or 0 for r in part) // len(part),
        )
        for part in parts
    ]


def _key(x: float, entries: Sequence[tuple[str, str, str]]) -> str:
    """What marks mean: class, shape and words, in one line."""
    parts = []
    for class_, shape, text in entries:
        parts.append(_mark(shape, x, 8.0, class_) + label(x + 8, 12, text))
        x += 26 + 6.2 * len(text)
    return "".join(parts)


def _mark(shape: str, x: float, y: float, class_: str, title: str = "") -> str:
    content = tooltip(title) if title else ""
    if shape == "square":
        return tag("rect", content, x=x - 4, y=y - 4, width=8.0, height=8.0, class_=class_)
    return tag("circle", content, cx=x, cy=y, r=4.5, class_=f"{class_} {shape}")


def histogram(certainty: FloatArray) -> IntArray:
    """Rows by certainty, in ten bins from 0 to 1."""
    return np.bincount(np.minimum((certainty * BINS).astype(np.int64), BINS - 1), minlength=BINS)


def certainty_chart(facts: Facts) -> Figure:
    """How certain memberships are."""
    by_site = {s: histogram(a.certainty) for s, a in facts.assigned.items()}
    counts = np.sum(list(by_site.values()), axis=0)
    shares = counts / max(int(counts.sum()), 1)
    y = Scale(0, 1, BOTTOM, TOP)
    step = (RIGHT - LEFT) / BINS
    bars = []
    for place, share in enumerate(shares):
        start, top = LEFT + place * step, y(float(share))
        bars.append(tag("rect", x=start + 1, y=top, width=step - 2, height=BOTTOM - top, class_="k0"))
        said = percent(float(share)) if share >= WORTH_A_LABEL else ""
        bars.append(label(start + step / 2, top - 4, said, "middle", class_="value"))
    edges = "".join(
        label(LEFT + place * step, BOTTOM + 14, number(place / BINS, 1), "middle") for place in range(0, BINS + 1, 2)
    )
    content = (
        value_axis(Scale(0, 100, BOTTOM, TOP), LEFT, RIGHT, " %")
        + label(2, 12, "share of rows", class_="axis")
        + tag("g", "".join(bars), id="histogram", data_top=TOP, data_bottom=BOTTOM, data_least=WORTH_A_LABEL)
        + edges
        + label((LEFT + RIGHT) / 2, BOTTOM + 29, "certainty (largest membership)", "middle", class_="axis")
    )
    names = ["all", *(facts.sites[s].name for s in by_site)] if len(by_site) > 1 else ["all"]
    columns = [counts, *by_site.values()] if len(by_site) > 1 else [counts]
    rows = [(name, *(f"{n:,}" for n in found)) for name, found in zip(names, columns, strict=True)]
    table = Table(("rows", *(f"{b / BINS:.1f}–{(b + 1) / BINS:.1f}" for b in range(BINS))), rows)
    about = f"Certainty of memberships: {percent(float(shares[-1]))} of the rows are above 0.9."
    note = "1: the row is in one cluster only. Near 0.5: between two."
    return Figure("certainty", "How certain memberships are", drawing(HEIGHT, content, about), note, table)


def gains_chart(gains: Sequence[Gain], *, held_out: bool) -> Figure:
    """Objective per row under the global and the own model, by site."""
    kinds = [kind for kind in KINDS if any(kind in gain.objectives for gain in gains)]
    ranked = sorted(gains, key=_won)
    half = MOST_SITES // 2
    shown = ranked if len(ranked) <= MOST_SITES else [*ranked[:half], *ranked[-half:]]
    values = [v for gain in shown for v in gain.objectives.values() if math.isfinite(v)] or [0.0]
    margin = 0.06 * (max(values) - min(values)) or abs(values[0]) * 0.05 or 1.0
    left, row = 102.0, 19.0
    x = Scale(min(values) - margin, max(values) + margin, left, RIGHT)
    bottom = TOP + row * len(shown) + 4
    marks = []
    for place, gain in enumerate(shown):
        y = TOP + row * (place + 0.5)
        known = {kind: v for kind in kinds if math.isfinite(v := gain.objectives.get(kind, math.nan))}
        name = tooltip(gain.site) + escape(shortened(gain.site, 13))
        marks.append(tag("text", name, x=left - 6, y=y + 3.5, text_anchor="end"))
        if "global" in known and "personal" in known:
            ends = x(known["global"]), x(known["personal"])
            marks.append(tag("line", x1=ends[0], x2=ends[1], y1=y, y2=y, class_="join"))
        for kind, value in known.items():
            said = f"{gain.site}, {KINDS[kind][2]}: {number(value, 4)}"
            marks.append(_mark(KINDS[kind][1], x(value), y, KINDS[kind][0], said))
    content = (
        _upright(x, bottom)
        + _key(8, [KINDS[kind] for kind in kinds])
        + "".join(marks)
        + label((left + RIGHT) / 2, bottom + 29, "objective per row, lower is better", "middle", class_="axis")
    )
    where = "rows that no model saw" if held_out else "the rows that the models were fitted to"
    note = f"Measured on {where}."
    if not held_out:
        note += " Own models must win there; fedhk fit --evaluate measures on held-out rows."
    if len(shown) < len(gains):
        note += f" The {half} largest gains and the {half} least of {len(gains)} sites; the table has all."
    rows = [(g.site, f"{g.rows:,}", *(number(g.objectives.get(k, math.nan), 4) for k in kinds)) for g in gains]
    table = Table(("site", "rows", *(KINDS[kind][2] for kind in kinds)), rows)
    about = f"Objective per row by site, for {', '.join(KINDS[kind][2] for kind in kinds)}."
    return Figure("gains", "What an own model gains", drawing(bottom + 36, content, about), note, table)


def _won(gain: Gain) -> float:
    """How much lower the own model's objective is, as a share; largest gains first."""
    before, after = (gain.objectives.get(kind, math.nan) for kind in ("global", "personal"))
    change = (after - before) / before if before else 0.0
    return change if math.isfinite(change) else math.inf


def _upright(scale: Scale, bottom: float) -> str:
    """Vertical lines at round values with numbers below."""
    values = ticks(scale.low, scale.high, 3)
    step = values[1] - values[0] if len(values) > 1 else abs(values[0]) / 100
    return "".join(
        tag("line", x1=scale(v), x2=scale(v), y1=TOP, y2=bottom, class_="grid")
        + label(scale(v), bottom + 14, tick_text(v, step), "middle")
        for v in values
    )
