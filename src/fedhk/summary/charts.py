"""Charts of a run: convergence, traffic, certainty, and what personalization gained.

Every function draws on matplotlib axes, given or new, and returns them with the words and the table of the figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.summary.drawing import INK, KIND_COLOURS, PAPER, Figure, describe, draw_grid, draw_key, page_axes
from fedhk.summary.facts import Facts, Gain, Round, TriedNumber
from fedhk.summary.words import byte_unit, number, percent, plural, seconds, shorten, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 10

# Share of rows below which a bar has no label: labels of bars side by side would run into each other.
WORTH_A_LABEL = 0.01

# Least share of the objective that its axis spans: the text says differences to 0.1 %, and ticks have five digits then.
LEAST_SPAN = 0.001

# Bars are at least a few pixels wide: more rounds than fit are drawn in groups.
MOST_BARS = 60

# Numbers of clusters that are drawn: so many at least, and so many times the one that is taken. The table has all.
FIRST_NUMBERS, TIMES_TAKEN = 12, 2

# Sites in the figure of gains; its table has all.
MOST_SITES = 24

# How kinds of models are marked: number of the colour, shape, class, and name.
KINDS = {
    "alone": (2, "s", "k2", "the site alone"),
    "global": (0, "o", "k0 ring", "global model"),
    "personal": (1, "o", "k1", "own model"),
}


def convergence(rounds: Sequence[Round], ax: Axes | None = None, unit: str = "round", *, noisy: bool = False) -> Figure:
    """Draw the objective by round, or by iteration at one site; rounds that sites missed are hollow.

    Where it is `noisy`, the words do not say how it changed.
    """
    known = [r for r in rounds if math.isfinite(r.objective)]
    most = max((r.sites or 0) for r in rounds)
    with page_axes(ax) as axes:
        describe(axes.plot([r.number for r in known], [r.objective for r in known], color=KIND_COLOURS[0])[0], "line")
        for css in ("mark", "mark missing"):
            some = [r for r in known if ((r.sites or 0) < most) == ("missing" in css)]
            places = [r.number for r in some], [r.objective for r in some]
            area = 49 if len(known) <= MOST_BARS else 9
            fill = PAPER if "missing" in css else KIND_COLOURS[0]
            marks = axes.scatter(*places, s=area, facecolor=fill, edgecolor=KIND_COLOURS[0], zorder=3)
            describe(marks, css, [f"{unit} {r.number}: {number(r.objective, 6)}{_tell_answers(r)}" for r in some])
        axes.margins(x=0.03, y=0.08)
        _widen(axes, LEAST_SPAN)
        draw_grid(axes, "y", "objective")
        _count_along(axes, unit)
    first, *_, last = [r.objective for r in known] * 2 or [0.0, 0.0]
    change = f"{'fell' if last <= first else 'rose'} by {percent(abs(last - first) / abs(first) if first else 0.0)}"
    note = "How far rows are from their clusters, all together; lower is better. "
    if noisy:
        note += (
            "It was released with noise, which may hide how it changed: rises and falls are noise as well. Rounds of a "
            "fit with noise measure it with a narrower kernel than the model has, and the first ones may have more "
            "centres: compare it with nothing but the rounds beside it. "
        )
    else:
        note += f"After the first {unit} it {change}. " if len(known) > 1 else ""
    note += "The axis does not begin at zero."
    note += " Hollow: not all sites answered." if any((r.sites or 0) < most for r in rounds) else ""
    about = f"The objective went from {number(first, 5)} to {number(last, 5)} in {plural(len(rounds), unit)}."
    columns = (unit, "objective", "sites that answered", "time")
    rows = [(r.number, number(r.objective, 6), "–" if r.sites is None else r.sites, seconds(r.seconds)) for r in rounds]
    return Figure("convergence", "Convergence", note, axes, about, columns, rows)


def _widen(ax: Axes, share: float) -> None:
    """Let the vertical axis span at least a share of what it shows: smaller differences have too many digits."""
    low, high = ax.get_ylim()
    middle, least = (low + high) / 2, share * abs(low + high) / 2
    if high - low < least:
        ax.set_ylim(middle - least / 2, middle + least / 2)


def selection(tried: Sequence[TriedNumber], ax: Axes | None = None) -> Figure:
    """Draw what speaks for each number of clusters: the gap in the heat, and what of it views agree on."""
    chosen = next(one for one in tried if one.taken)
    last = max(FIRST_NUMBERS, TIMES_TAKEN * chosen.n_clusters)
    numbers = [one for one in tried if math.isfinite(one.score) and one.n_clusters <= last]
    places = [one.n_clusters for one in numbers]
    with page_axes(ax) as axes:
        for kind, heights in enumerate(([one.score for one in numbers], [one.gap for one in numbers])):
            describe(axes.plot(places, heights, color=KIND_COLOURS[0], linestyle=("-", ":")[kind])[0], "line")
            fill = PAPER if kind else KIND_COLOURS[0]
            # with one view both are the same: a small disc of the score lies on a ring of the gap
            look: dict[str, Any] = {"s": (25, 81)[kind], "zorder": 4 - kind}
            look |= {"facecolor": fill, "edgecolor": KIND_COLOURS[0]}
            marks = axes.scatter(places, heights, label=("score", "gap")[kind], **look)
            describe(marks, "mark missing" if kind else "mark", [_tell_number(one) for one in numbers])
        if chosen in numbers:
            describe(axes.axvline(chosen.n_clusters, color=INK, linewidth=1, linestyle=":"), "taken")
        axes.margins(x=0.03, y=0.1)
        draw_grid(axes, "y")
        _count_along(axes, "number of clusters")
        draw_key(axes, ("mark", "mark missing"))
    note = "Neighbouring rows exchange heat. With k groups, heat stays in k directions and leaves the next one: the "
    note += "gap is how much more stays. The score is the gap times the agreement of the views, each by itself, on "
    note += "these directions."
    note += " The dotted line is the number taken." if chosen in numbers else ""
    if len(numbers) < sum(math.isfinite(one.score) for one in tried):
        note += f" Numbers above {numbers[-1].n_clusters} are in the table only."
    about = f"{plural(chosen.n_clusters, 'cluster')} taken: {chosen.note}."
    columns = ("clusters", "gap in the heat", "agreement of views", "score", "slowing", "evidence", "taken")
    rows = [
        (
            one.n_clusters,
            *(number(v, 3) for v in (one.gap, one.agreement, one.score, one.slowing, one.evidence)),
            "yes" * one.taken,
        )
        for one in tried
    ]
    return Figure("selection", "What speaks for each number", note, axes, about, columns, rows)


def _tell_number(one: TriedNumber) -> str:
    shown = [number(value, 3) for value in (one.score, one.gap, one.agreement)]
    return f"{plural(one.n_clusters, 'cluster')}: score {shown[0]}, gap {shown[1]}, agreement {shown[2]}"


def _tell_answers(record: Round) -> str:
    return "" if record.sites is None else f", {plural(record.sites, 'site')} answered"


def _count_along(ax: Axes, unit: str) -> None:
    """Write whole numbers along the bottom, and what they count."""
    ax.locator_params("x", integer=True, nbins=8)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_xlabel(unit)


def traffic(rounds: Sequence[Round], ax: Axes | None = None) -> Figure:
    """Draw bytes by round and direction; of very many rounds, means over a few."""
    length = math.ceil(len(rounds) / MOST_BARS)
    starts = range(0, len(rounds), length)
    groups = [rounds[i : i + length] for i in starts]
    numbers = np.array([(group[0].number + group[-1].number) / 2 for group in groups])
    sent = {"from sites": [r.bytes_up or 0 for r in rounds], "to sites": [r.bytes_down or 0 for r in rounds]}
    means = {name: np.add.reduceat(values, starts) // list(map(len, groups)) for name, values in sent.items()}
    unit, factor = byte_unit(max(map(max, means.values())))
    with page_axes(ax) as axes:
        for kind, (name, values) in enumerate(means.items()):
            places, width = numbers + (kind - 0.5) * 0.4 * length, 0.4 * length
            bars = axes.bar(places, values / factor, width, color=KIND_COLOURS[kind], label=name)
            for bar, group, value in zip(bars, groups, values, strict=True):
                describe(bar, f"k{kind}", [f"{_name_rounds(group)}, {name}: {size(value)}"])
        axes.set_xlim(rounds[0].number - 0.6, rounds[-1].number + 0.6)
        draw_grid(axes, "y", unit)
        _count_along(axes, "round")
        draw_key(axes, ("k0", "k1"))
    up, down = (size(sum(values)) for values in sent.values())
    note = f"{up} came from sites, {down} went to them. The first round counts what prepares it too."
    about = f"Bytes by round: {up} from sites and {down} to sites in all."
    rows = [(str(r.number), size(r.bytes_up or 0), size(r.bytes_down or 0)) for r in rounds]
    return Figure("traffic", "Bytes sent", note, axes, about, ("round", *sent), [*rows, ("all", up, down)])


def _name_rounds(group: Sequence[Round]) -> str:
    first, last = group[0].number, group[-1].number
    return f"round {first}" if first == last else f"rounds {first} to {last}"


def count_certainty(certainty: FloatArray) -> IntArray:
    """Count rows by certainty, in ten bins from 0 to 1."""
    return np.bincount(np.minimum((certainty * BINS).astype(np.int64), BINS - 1), minlength=BINS)


def certainty(facts: Facts, ax: Axes | None = None) -> Figure:
    """Draw the share of rows in each bin of certainty."""
    counts = {facts.sites[s].name: count_certainty(a.certainty) for s, a in facts.assigned.items()}
    total = np.sum(list(counts.values()), axis=0)
    shares = total / max(int(total.sum()), 1)
    middles = (np.arange(BINS) + 0.5) / BINS
    with page_axes(ax) as axes:
        bars = axes.bar(middles, shares, 0.094, color=KIND_COLOURS[0])
        for bar, middle, share in zip(bars, middles, shares, strict=True):
            describe(bar, "k0 bin")
            text = percent(share) if share >= WORTH_A_LABEL else " "  # a place for the script to write in
            describe(axes.text(middle, share + 0.02, text, ha="center", fontsize=9, color=INK), "value")
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="certainty (largest membership)")
        draw_grid(axes, "y", "share of rows")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    rows = {"all": total, **(counts if len(counts) > 1 else {})}
    return Figure(
        "certainty",
        "How certain memberships are",
        "1: the row is in one cluster only. Near 0.5: between two.",
        axes,
        f"Certainty of memberships: {percent(shares[-1])} of the rows are above 0.9.",
        ("rows", *(f"{b / BINS:.1f}–{(b + 1) / BINS:.1f}" for b in range(BINS))),
        [(name, *(f"{n:,}" for n in found)) for name, found in rows.items()],
    )


def gains(gains: Sequence[Gain], ax: Axes | None = None, *, held_out: bool) -> Figure:
    """Draw the objective per row under each kind of model, a line per site; of many sites, both ends."""
    ranked, half = sorted(gains, key=_change), MOST_SITES // 2
    shown = ranked if len(ranked) <= MOST_SITES else [*ranked[:half], *ranked[-half:]]
    kinds = {kind: look for kind, look in KINDS.items() if any(kind in gain.objectives for gain in gains)}
    values = {kind: np.array([gain.objectives.get(kind, math.nan) for gain in shown]) for kind in KINDS}
    with page_axes(ax, 64.0 + 19.0 * len(shown), (102.0, 10.0, 26.0, 38.0)) as axes:
        lines = axes.hlines(range(len(shown)), values["global"], values["personal"], color=KIND_COLOURS[2])
        describe(lines, "join")
        for kind, (colour, shape, css, name) in kinds.items():
            there = np.flatnonzero(np.isfinite(values[kind]))
            edge = KIND_COLOURS[colour]
            fill = PAPER if "ring" in css else edge
            look: dict[str, Any] = {"s": 64, "c": fill, "edgecolor": edge, "marker": shape, "zorder": 3}
            marks = axes.scatter(values[kind][there], there, label=name, **look)
            describe(marks, css, [f"{shown[y].site}, {name}: {number(values[kind][y], 4)}" for y in there])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.margins(x=0.06)
        names = ["".join(c if c.isprintable() else "?" for c in gain.site) for gain in shown]  # SVG has no others
        axes.set_yticks(range(len(shown)), [shorten(name, 13) for name in names], parse_math=False)
        for label, gain in zip(axes.get_yticklabels(), shown, strict=True):
            describe(label, title=gain.site)
        draw_grid(axes, "x")
        axes.locator_params("x", nbins=4)
        axes.set_xlabel("objective per row, lower is better")
        draw_key(axes, [css for _, _, css, _ in kinds.values()])
    note = f"Measured on {'rows that no model saw' if held_out else 'the rows that the models were fitted to'}."
    if not held_out:
        note += " Own models must win there; fedhk fit --evaluate measures on held-out rows."
    if len(shown) < len(gains):
        note += f" The {half} largest gains and the {half} least of {len(gains)} sites; the table has all."
    names = [name for *_, name in kinds.values()]
    rows = [(g.site, f"{g.rows:,}", *(number(g.objectives.get(k, math.nan), 4) for k in kinds)) for g in gains]
    about = f"Objective per row by site, for {', '.join(names)}."
    return Figure("gains", "What an own model gains", note, axes, about, ("site", "rows", *names), rows)


def _change(gain: Gain) -> float:
    """How much higher the own model's objective is, as a share; sites without one come last."""
    before, after = (gain.objectives.get(kind, math.nan) for kind in ("global", "personal"))
    change = (after - before) / before if before else 0.0
    return change if math.isfinite(change) else math.inf
