"""How much more than its ledger says a site can be made to tell by whoever chooses all numbers of its requests.

    python benchmarks/attack_gate.py

For every phase that leaves with noise: a search for two neighbouring data sets, and for numbers of the server within a
site's limits, that move the sum furthest, in units of what the noise is sized for. A ratio above 1 is an error of the
bound. Then 5,000 releases of each of the two data sets through the site's gate, a likelihood-ratio test along their
difference, and the lower bound on epsilon that it shows, at the delta charged. That must stay below what the ledger
was charged. It shares no code with `fedhk audit`.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy import stats

from fedhk.data.scaling import Reference
from fedhk.data.views import check_views
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.codec import unpack
from fedhk.federation.entries import Broadcast, References, Schema, Terms
from fedhk.federation.gate import SEALED, answer_message, write_request
from fedhk.federation.messages import decode, encode
from fedhk.federation.phases.base import Nothing
from fedhk.federation.phases.scales import Lengths, Means, MeansRequest, Ranges, RangesRequest, Spreads, SpreadsRequest
from fedhk.federation.phases.sum_rounds import NoisyRoundRequest, NoisyRounds, keeps_bound
from fedhk.federation.phases.sum_start import Cells, CellsRequest, Directions, DirectionsRequest
from fedhk.federation.sealed import SealedGuard, SiteNoise
from fedhk.federation.sealed.masks import MaskedSite, MaskMemory
from fedhk.federation.sealed.messages import Header, NoisySum, Numbers, Reply, request_type
from fedhk.federation.sealed.noise import collect_vector, count_numbers, hold_cells, is_bounded, noise_step
from fedhk.federation.site import Site
from fedhk.model.parameters import Parameters
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.accounting import epsilon_of
from fedhk.privacy.kernel_sensitivity import kernel_reach
from fedhk.privacy.ledger import Ledger, spent_on
from fedhk.privacy.secure_site import SecureSite
from fedhk.starts.cells import Landmarks

RESULTS = Path(os.environ.get("FEDHK_BENCHMARK_RESULTS", Path(__file__).parent / "results"))

# A large budget in one round, so that few thousand releases can show most of what was charged.
BUDGET = DifferentialPrivacy(8.0, 1e-5, "private", rounds=1)
RUN, SITE = "attack", "oslo"
CONFIDENCE = 0.998  # of each bound, so that all of them together hold with 95 %
SHARERS = 3  # sites that share one noise under masks

Tables = list[Any]


@dataclass(frozen=True)
class Case:
    """Two neighbouring data sets, and what the server chose."""

    phase: Any
    request: Any
    references: tuple[Reference, ...]
    one: Tables
    other: Tables


# --------------------------------------------------------------------------------------------------- how far a row goes


def make_site(case: Case, tables: Tables) -> Site:
    """A site with these rows, to which the server has published its scales."""
    names = tuple(f"view_{view}" for view in range(len(tables)))
    board = Board().put(Schema(names, (None,) * len(names)), References(case.references))
    return Site(SITE, check_views(dict(zip(names, tables, strict=True)), missing_views=True, min_rows=0), board)


def vectors(case: Case) -> tuple[Any, Any]:
    """The sums of both data sets without noise, by the site's own code; MessageError where the site refuses."""
    found = []
    for tables in (case.one, case.other):
        site = make_site(case, tables)
        if not all(is_bounded(reference, site.views) for reference in case.references):
            raise MessageError("scales")
        size = count_numbers(site, case.phase, case.request)
        found.append(collect_vector(replace(site, views=hold_cells(site.views)), case.phase, case.request, size))
    return found[0], found[1]


def ratio(case: Case, neighbours: Any) -> float:
    """How far the sum moves, over what noise is sized for; 0 where the site refuses."""
    try:
        one, other = vectors(case)
        sensitivity = case.phase.sensitivity(case.request, one.size, neighbours)
    except MessageError:
        return 0.0
    with np.errstate(all="ignore"):
        moved = float(np.linalg.norm(one - other) / sensitivity)
    return moved if math.isfinite(moved) else math.inf


# ------------------------------------------------------------------------------------------------------------- searches


def plain_reference(width: int, **changes: Any) -> Reference:
    fields = {"unit_rows": False, "shift": np.zeros(width), "scale": np.ones(width), "heat_coef": "uniform"}
    return Reference(**fields | {"low": np.zeros(width), "span": np.ones(width), "share": 1.0} | changes)


def neighbours_of(base: Any, one: Any, other: Any, neighbours: str, forms: str) -> tuple[Any, Any]:
    """Two tables that differ in the last row; with "add-remove" the other one lacks it."""
    rows = np.vstack([base, one]), np.vstack([base, other]) if neighbours == "replace" else np.array(base)
    made: dict[str, Callable[[Any], Any]] = {
        "dense": np.asarray,
        "float32": lambda table: np.clip(table, -1e38, 1e38).astype(np.float32),
        "sparse": lambda table: sp.csr_array(np.nan_to_num(table)),
    }
    return made[forms](rows[0]), made[forms](rows[1])


def propose_ranges(rng: Any, neighbours: Any) -> Case:
    width = int(rng.integers(1, 6))
    sizes = 10.0 ** rng.uniform(-60, 60, size=(2, width)) * rng.choice([-1, 1], size=(2, width))
    rows = np.where(rng.random((2, width)) < 0.1, rng.choice([np.nan, 0.0, 1e-320, 5e-324]), sizes)
    base = rng.normal(size=(int(rng.integers(1, 30)), width))
    one, other = neighbours_of(base, rows[0], rows[1], neighbours, rng.choice(["dense", "float32", "sparse"]))
    return Case(Ranges, RangesRequest((width,)), (plain_reference(width),), [one], [other])


def random_reference(rng: Any, width: int, unit: float = 1.0) -> Reference:
    """Scales anywhere within the limits, mostly such that rows still differ."""
    scale = np.full(width, float(10.0 ** rng.choice([0, 0, 0, -59, -9, 9, 59])))
    shift = scale * unit * rng.normal(size=width) * rng.choice([0, 1, 1e6])
    return plain_reference(width, shift=shift, scale=scale, unit_rows=bool(rng.random() < 0.1))


def to_input(reference: Reference, rows: Any) -> Any:
    return np.asarray(rows) * reference.scale + reference.shift


def propose_cut(rng: Any, neighbours: Any, cosines: tuple[float, ...]) -> tuple[float, Reference, tuple[Any, Any]]:
    """A radius, scales, and neighbours that differ in rows at about the radius and at some angle."""
    width = int(rng.choice([1, 2, 3, 8, 520], p=[0.24, 0.24, 0.24, 0.24, 0.04]))
    radius = float(10.0 ** rng.choice([-9, -8.9, 0, 3, 9]))
    reference = random_reference(rng, width, radius)
    axis, side = rng.normal(size=(2, width))
    axis /= np.linalg.norm(axis)
    side = side - axis * (side @ axis)
    side /= max(np.linalg.norm(side), 1e-300)
    cosine = float(rng.choice([*cosines, rng.uniform(-1, 1)]))
    lengths = radius * rng.choice([1.0, 1.0, 0.5, 1e3, 1e40], size=2)
    one, other = lengths[0] * axis, lengths[1] * (cosine * axis + math.sqrt(1 - cosine**2) * side)
    base = radius * rng.normal(size=(int(rng.integers(1, 30)), width))
    rows = [to_input(reference, part) for part in (base, one, other)]
    return radius, reference, neighbours_of(*rows, neighbours, rng.choice(["dense", "dense", "float32", "sparse"]))


def propose_means(rng: Any, neighbours: Any) -> Case:
    radius, reference, tables = propose_cut(rng, neighbours, (-1.0, -1.0, 0.0))
    return Case(Means, MeansRequest(radius), (reference,), [tables[0]], [tables[1]])


def propose_directions(rng: Any, neighbours: Any) -> Case:
    radius, reference, tables = propose_cut(rng, neighbours, (0.0, 0.0, -0.5, -1.0))
    return Case(Directions, DirectionsRequest(radius, 0), (reference,), [tables[0]], [tables[1]])


def propose_spreads(rng: Any, neighbours: Any) -> Case:
    """Rows at about the radius along one feature of each view, or along any direction."""
    widths = tuple(rng.choice([1, 2, 3, 8], size=int(rng.integers(1, 4))).tolist())
    radius, kind = float(10.0 ** rng.choice([-9, -8.9, 0, 3, 9])), rng.choice(["dense", "dense", "float32", "sparse"])
    along, references, one, other = rng.random() < 0.7, [], [], []
    for width in widths:
        reference = random_reference(rng, width, radius)
        rows = rng.normal(size=(2, width)) / math.sqrt(width)
        if along:  # of another feature, or of nothing where there is one
            rows = np.eye(max(width, 2))[rng.permutation(max(width, 2))[:2], :width]
        rows *= radius * rng.choice([1.0, 1.0, 0.5, 1e3, 1e40], size=(2, 1))
        tables = neighbours_of(*(to_input(reference, part) for part in (np.zeros((1, width)), *rows)), neighbours, kind)
        references.append(reference)
        one.append(tables[0])
        other.append(tables[1])
    return Case(Spreads, SpreadsRequest(widths, radius), tuple(references), one, other)


def propose_lengths(rng: Any, neighbours: Any) -> Case:
    """Rows of any length in each of some views, of which they may lack cells or all."""
    widths = rng.integers(1, 4, size=int(rng.integers(1, 4)))
    references, one, other = [], [], []
    for width in widths:
        reference = random_reference(rng, int(width))
        rows = rng.normal(size=(2, width)) * 10.0 ** rng.uniform(-8, 8, size=(2, 1)) * rng.choice([1.0, 1e50])
        rows = np.where(rng.random((2, width)) < rng.choice([0.0, 0.3]), np.nan, rows)
        base = rng.normal(size=(5, width))
        tables = neighbours_of(*(to_input(reference, part) for part in (base, *rows)), neighbours, "dense")
        references.append(reference)
        one.append(tables[0])
        other.append(tables[1])
    return Case(Lengths, Nothing(), tuple(references), one, other)


def propose_cells(rng: Any, neighbours: Any) -> Case:
    width, axes = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    reference = random_reference(rng, width)
    size = 10.0 ** rng.choice([0, 0, 30, 60, -60])
    axes = min(axes, width)
    landmarks = Landmarks(size * rng.normal(size=(width, axes)), 10.0 ** rng.uniform(-60, 60, (64, axes)))
    if rng.random() < 0.7:
        landmarks = Landmarks(rng.normal(size=(width, axes)), rng.normal(size=(64, axes)))
    parts = [rng.normal(size=(9, width)), *(rng.normal(size=(2, width)) * 10.0 ** rng.choice([0, 1, 50]))]
    rows = [to_input(reference, part) for part in parts]
    tables = neighbours_of(*rows, neighbours, rng.choice(["dense", "float32", "sparse"]))
    return Case(Cells, CellsRequest(landmarks), (reference,), [tables[0]], [tables[1]])


@dataclass(frozen=True)
class RoundShape:
    """What a search for the worst noisy round does not change on its way."""

    widths: tuple[int, ...]
    clusters: int
    base: int
    heat_time: float
    minmax: bool
    forms: str
    missing: Any  # of the two rows
    scale: float


def draw_shape(rng: Any) -> RoundShape:
    widths = tuple(int(width) for width in rng.integers(1, 4, size=int(rng.integers(1, 3))))
    forms = str(rng.choice(["dense", "dense", "float32", "sparse"]))
    missing = rng.random((2, sum(widths))) < rng.choice([0.0, 0.3]) * (forms != "sparse")
    heat_time = float(10.0 ** rng.choice([0, 0, -9, 9, rng.uniform(-9, 9)]))
    minmax = bool(rng.random() < 0.4)
    scale = float(10.0 ** rng.choice([0, 0, -50, 50]))
    return RoundShape(
        widths, int(rng.integers(1, 4)), int(rng.choice([0, 3, 30])), heat_time, minmax, forms, missing, scale
    )


def round_case(numbers: Any, shape: RoundShape, neighbours: Any) -> Case:
    """A noisy round from numbers near 1; places are in units of the kernel, so one search serves all heat times."""
    width, take = sum(shape.widths), iter(np.asarray(numbers))
    unit = 1.0 / math.sqrt(shape.heat_time)

    def draw(*sizes: int) -> Any:
        return np.array([next(take) for _ in range(math.prod(sizes))]).reshape(sizes)

    rows, centers = unit * draw(2, width), unit * draw(shape.clusters, width) * 10.0 ** draw(1)
    base, low, span = unit * draw(shape.base, width), unit * draw(width), unit * np.abs(draw(width)) + 1e-30
    log_count, fuzzy, weight = draw(3)
    rows = np.where(shape.missing, np.nan, rows)
    cuts = np.cumsum(shape.widths)[:-1]
    references, one, other = [], [], []
    for part, some, lows, spans in zip(
        np.split(rows, cuts, axis=1),
        np.split(base, cuts, axis=1),
        np.split(low, cuts),
        np.split(span, cuts),
        strict=True,
    ):
        scale = np.full(part.shape[1], shape.scale)
        kind = {"heat_coef": "minmax", "low": lows, "span": spans} if shape.minmax else {}
        references.append(plain_reference(part.shape[1], scale=scale, **kind))
        tables = neighbours_of(some * scale, part[0] * scale, part[1] * scale, neighbours, shape.forms)
        one.append(tables[0])
        other.append(tables[1])
    n_views = len(shape.widths)
    weights = np.exp(np.clip(weight, -9, 9) * np.arange(n_views)) / n_views
    fuzzifier = 1.0 + float(10.0 ** np.clip(2 * fuzzy - 1, -9, 2.9))
    places = tuple(np.split(centers, cuts, axis=1))
    parameters = Parameters(places, weights, shape.heat_time, fuzzifier, 2.0, np.ones(n_views))
    count = float(np.clip(kernel_reach(shape.heat_time) * 10.0 ** (2 * log_count), 1e-9, 1e9))
    request = NoisyRoundRequest(Broadcast.of(parameters), count)
    if not keeps_bound(request.model):
        raise MessageError("parameters")
    return Case(NoisyRounds, request, tuple(references), one, other)


def climb_round(rng: Any, neighbours: Any, steps: int) -> Iterator[tuple[Case, float]]:
    """A random round, and better ones found by small changes of all its numbers."""
    shape = draw_shape(rng)
    count = (2 + shape.clusters + shape.base + 2) * sum(shape.widths) + 4
    best, numbers, spread = -1.0, rng.normal(size=count), 0.5
    for _ in range(steps):
        tried = numbers + spread * rng.normal(size=count) * (rng.random(count) < 0.5) * (best >= 0)
        try:
            case = round_case(tried, shape, neighbours)
        except MessageError:
            continue
        found = ratio(case, neighbours)
        spread = min(spread * 1.5, 2.0) if found > best else max(spread * 0.93, 1e-4)
        if found > best:
            best, numbers = found, tried
        yield case, found


def made_by_hand(neighbours: Any) -> Iterator[Case]:
    """Rows at the strongest pull on opposite sides, and rows on two centres, at all ends of the limits."""
    for heat_time in (1e-9, 0.3, 1.0, 1e9):
        pull = 1.0 / math.sqrt(2 * heat_time)
        for count in (1e-9, kernel_reach(heat_time), kernel_reach(heat_time) * math.sqrt(4 / 3), 1e9):
            for places, one, other in (
                ([[0.0, 0.0]], [pull, 0.0], [-pull, 0.0]),
                ([[0.0, 0.0], [0.0, 60 * pull]], [0.0, 0.0], [0.0, 60 * pull]),
                # as far from zero as the limits allow, where distances are differences of large numbers
                ([[3.2e4 / math.sqrt(heat_time), 0.0]], [3.2e4 / math.sqrt(heat_time) + pull, 0.0], [0.0, 0.0]),
            ):
                parameters = Parameters((np.array(places),), np.ones(1), heat_time, 2.0, 2.0, np.ones(1))
                request = NoisyRoundRequest(Broadcast.of(parameters), float(np.clip(count, 1e-9, 1e9)))
                for forms in ("dense", "sparse", "float32"):
                    base = np.tile(np.asarray(places[0]), (2000, 1))
                    tables = neighbours_of(base, one, other, neighbours, forms)
                    yield Case(NoisyRounds, request, (plain_reference(2),), [tables[0]], [tables[1]])


PROPOSALS: dict[str, Any] = {
    "ranges": propose_ranges,
    "means": propose_means,
    "lengths": propose_lengths,
    "spreads": propose_spreads,
    "directions": propose_directions,
    "cells": propose_cells,
}
PHASES = (*PROPOSALS, "noisy round")


def find_worst(phase: str, neighbours: Any, trials: int, seed: int = 0) -> tuple[Case, float, int]:
    """The case that moves the sum furthest, its ratio, and how many were tried."""
    rng, tried = np.random.default_rng(seed), 0
    worst: tuple[Case | None, float] = (None, -1.0)

    def cases() -> Iterator[tuple[Case, float]]:
        made = made_by_hand(neighbours) if phase not in PROPOSALS else ()
        drawn = (PROPOSALS[phase](rng, neighbours) for _ in range(trials if phase in PROPOSALS else 0))
        yield from ((case, ratio(case, neighbours)) for case in (*made, *drawn))
        for _ in range(0 if phase in PROPOSALS else max(1, trials // 100)):
            yield from climb_round(rng, neighbours, 100)

    for case, found in cases():
        tried += 1
        if found > worst[1]:
            worst = case, found
    assert worst[0] is not None
    return worst[0], worst[1], tried


# ------------------------------------------------------------------------------------------------------------- releases


def open_release(case: Case, privacy: DifferentialPrivacy) -> tuple[Callable[[Tables], Any], list[Ledger]]:
    """What asks a site for one release through its gate, with a ledger of its own each time."""
    ledgers: list[Ledger] = []
    header = Header(None, NoisySum(0, 1))
    entries = {"Terms": Terms(RUN, privacy=privacy.describe()), "References": References(case.references)}
    names = tuple(f"view_{view}" for view in range(len(case.one)))
    entries["Schema"] = Schema(names, (None,) * len(names))
    types = request_type(case.phase)
    message = decode(encode(write_request(SEALED + case.phase.name, 0, (header, case.request), types, entries)))

    views = {id(tables): make_site(case, tables).views for tables in (case.one, case.other)}

    def release(tables: Tables) -> Any:
        ledgers[:] = [Ledger(None, SITE)]
        guard = SealedGuard(SiteNoise(privacy, ledgers[0]))
        answer = answer_message(Site(SITE, views[id(tables)]), guard, message)[1]
        reply = unpack(answer.values, answer.arrays, Reply)
        assert isinstance(reply, Numbers)
        return reply.values.astype(np.int64)

    return release, ledgers


def shared_release(case: Case, privacy: DifferentialPrivacy) -> tuple[Callable[[Tables], Any], list[Ledger]]:
    """What the server opens under masks: the sum of sites of which each adds a share of the noise."""
    ledgers: list[Ledger] = []
    header = Header(None, NoisySum(0, 1))
    session: Any = SimpleNamespace(terms=SimpleNamespace(threshold=SHARERS))
    masks = MaskedSite(SecureSite(SITE))

    sites = {id(tables): make_site(case, tables) for tables in (case.one, case.other)}
    for site in sites.values():
        site.board = site.board.put(Terms(RUN, privacy=privacy.describe(), secure=True))
        site.memory = site.memory.put(MaskMemory(session))

    def release(tables: Tables) -> Any:
        total: Any = 0
        for part in [case.other] * (SHARERS - 1) + [tables]:
            ledgers[:] = [Ledger(None, SITE)]
            noise = SiteNoise(privacy, ledgers[0])
            total = total + noise.release(replace(sites[id(part)]), case.phase, header, case.request, masks)
        return total

    return release, ledgers


def shown(one: Any, other: Any, delta: float) -> float:
    """Lower bound on epsilon that scores of two worlds show; the threshold is chosen on a fifth of them."""
    cut = len(one) // 5
    best = (0.0, 0.0, 1.0)
    for sign in (1.0, -1.0):
        for level in sign * np.quantile(np.concatenate([one[:cut], other[:cut]]), np.linspace(0.02, 0.98, 97)):
            hits, errors = np.mean(sign * one[:cut] > level), np.mean(sign * other[:cut] > level)
            best = max(best, (float(np.log((hits + 1 / cut) / (errors + 1 / cut))), float(level), sign))
    _, level, sign = best
    hits, errors = (int(np.sum(sign * part[cut:] > level)) for part in (one, other))
    count, tail = len(one) - cut, (1 - CONFIDENCE) / 2
    # Clopper and Pearson 1934
    least = stats.beta.ppf(tail, hits, count - hits + 1) if hits else 0.0
    most = stats.beta.ppf(1 - tail, errors + 1, count - errors) if errors < count else 1.0
    return float(max(np.log(max(least - delta, 1e-300) / most), 0.0))


def shown_if_normal(one: Any, other: Any, delta: float) -> float:
    """The same where noise is known to be normal: from the distance of the means over the spread."""
    spread = math.sqrt((np.var(one) + np.var(other)) / 2)
    error = stats.norm.ppf(CONFIDENCE) * math.sqrt(2 / len(one))
    mu = abs(np.mean(one) - np.mean(other)) / spread
    return epsilon_of(delta, max(mu * (1 - 1 / math.sqrt(len(one))) - error, 0.0))


@dataclass(frozen=True)
class Finding:
    """What the attack on one phase came to."""

    phase: str
    neighbours: str
    masks: bool
    ratio: float
    tried: int
    charged: float
    shown: float
    shown_if_normal: float

    @property
    def holds(self) -> bool:
        """Whether nothing moved further than stated, and nothing was shown beyond what was charged."""
        return self.ratio <= 1 + 1e-6 and max(self.shown, self.shown_if_normal) <= self.charged


def attack(worst: tuple[Case, float, int], phase: str, neighbours: Any, masks: bool, releases: int) -> Finding:
    """Attack one phase with the worst case that was found."""
    privacy = replace(BUDGET, neighbours=neighbours)
    case, moved, tried = worst
    release, ledgers = (shared_release if masks else open_release)(case, privacy)
    one, other = vectors(case)
    step = noise_step(case.phase.sensitivity(case.request, one.size, neighbours))
    along = (one - other) / step
    along = along / np.linalg.norm(along)
    scores = [np.array([release(tables) @ along for _ in range(releases)]) for tables in (case.one, case.other)]
    charged = spent_on(ledgers[0].releases(), privacy.delta, neighbours)
    found = [bound(*scores, privacy.delta) for bound in (shown, shown_if_normal)]
    return Finding(phase, neighbours, masks, moved, tried, charged, *found)


def attack_all(trials: int, releases: int) -> Iterator[Finding]:
    """Attack every phase, for both kinds of neighbours, in the open and with one noise under masks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for phase in PHASES:
            for neighbours in ("replace", "add-remove"):
                worst = find_worst(phase, neighbours, trials)
                for masks in (False, True):
                    yield attack(worst, phase, neighbours, masks, releases)


def main() -> None:
    """Write the table."""
    trials, releases = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (5_000, 5_000)
    text = f"""# A site's gate under attack

`python benchmarks/attack_gate.py {trials} {releases}`: the worst neighbours and the worst numbers of the server that a
search found, then {releases:,} releases of each of the two data sets through the site's gate, at a budget of epsilon
{BUDGET.epsilon:g} and delta {BUDGET.delta:g} for one round. "Moved" is how far the sum moves over what noise is sized
for: it must not exceed 1. "Shown" is the lower bound on epsilon, for any noise and for noise that is normal: both must
stay below what the ledger was charged. All bounds of the table hold together with 95 %.

| phase | neighbours | sent | tried | moved | charged | shown | shown, normal | holds |
|---|---|---|---|---|---|---|---|---|"""
    lines = text.split("\n")
    for found in attack_all(trials, releases):
        way = "one noise under masks" if found.masks else "open"
        figures = f"{found.ratio:.6f} | {found.charged:.3f} | {found.shown:.3f} | {found.shown_if_normal:.3f}"
        holds = "yes" if found.holds else "**no**"
        lines.append(f"| {found.phase} | {found.neighbours} | {way} | {found.tried:,} | {figures} | {holds} |")
        print(lines[-1], flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "attack-gate.md").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
