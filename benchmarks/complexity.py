"""How time and bytes grow, as exponents fitted to measurements, beside what the paper's theorems state.

    python benchmarks/complexity.py

One core, about two minutes. Times are of the processor (all threads of the process), the best of several runs taken in
turn, so that a busy machine disturbs little. An exponent is the slope of log(time) over log(size), by least squares;
beside that of the best times stand mean and spread of those of single turns. Bytes are those of encoded messages.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from data import RESULTS
from fedhk import EFKMVC, FedHKTucker
from fedhk.data.views import check_views
from fedhk.datasets import make_sites
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.protocols import FactorAveraging, Statistics
from fedhk.reference import center_message_size, tensor_message_size
from fedhk.tensors.low_rank import LowRankForm
from tables import grid, spread, table

REPEATS = 7
NUMBER = 8  # bytes of one


@dataclass(frozen=True)
class Growth:
    """One quantity measured at several sizes of one thing."""

    what: str
    over: str
    rest: str
    sizes: Sequence[int]
    turns: np.ndarray
    """Seconds, a row for each turn."""
    stated: str

    @property
    def best(self) -> np.ndarray:
        return self.turns.min(axis=0)

    def exponent(self, seconds: np.ndarray) -> float:
        """Slope of the logarithms."""
        return float(np.polyfit(np.log(self.sizes), np.log(seconds), 1)[0])


def in_turn(functions: Sequence[Callable[[], object]], repeats: int = REPEATS) -> np.ndarray:
    """Processor seconds (turn, function), each function once in a turn."""
    for function in functions:
        function()
    found = np.zeros((repeats, len(functions)))
    for turn, i in np.ndindex(found.shape):
        began = time.process_time()
        functions[i]()
        found[turn, i] = time.process_time() - began
    return found


def make_rows(n_rows: int, widths: Sequence[int], n_clusters: int) -> tuple[Rows, Parameters]:
    """Rows of Gaussian clusters, and parameters near them."""
    rng = np.random.default_rng(0)
    which = rng.integers(n_clusters, size=n_rows)
    centers = [2 * rng.standard_normal((n_clusters, width)) for width in widths]
    views = check_views([center[which] + rng.standard_normal((n_rows, center.shape[1])) for center in centers])
    rows = Rows(views, prepare(views, "standard", "uniform", None))
    starts = tuple(reference.to_model(center) for reference, center in zip(rows.references, centers, strict=True))
    shares = np.ones(len(widths))
    return rows, Parameters(starts, shares / len(widths), 0.3, 1.0625, 2.0, shares)


def pass_of(n_rows: int, widths: Sequence[int], n_clusters: int) -> Callable[[], object]:
    """One read of the rows: distances, memberships, statistics."""
    rows, parameters = make_rows(n_rows, widths, n_clusters)
    scan = Passes(rows, n_clusters, 1)
    return lambda: scan.statistics(parameters)


def tucker_step_of(
    n_rows: int, widths: Sequence[int], n_clusters: int, rank: tuple[int, int, int]
) -> Callable[[], object]:
    """One centre step of a Tucker form, from the statistics of so many rows."""
    rows, parameters = make_rows(n_rows, widths, n_clusters)
    with Passes(rows, n_clusters, 1) as scan:
        statistics = scan.statistics(parameters)
        names = [f"view-{h}" for h in range(len(widths))]
        held = LowRankForm("tucker", rank).constrain(parameters, names, lambda: statistics)
        at_held = scan.statistics(held)
    return lambda: held.form.step(at_held, held.centers, held.view_factors)


def passes() -> tuple[list[Growth], list[str]]:
    """Seconds of a pass, and how well two formulas explain all of them."""
    shapes = {
        ("rows n", "20 clusters, D = 128, 2 views"): [(n, (64, 64), 20) for n in (12_500, 25_000, 50_000, 100_000)],
        ("clusters c", "10,000 rows, D = 512, 2 views"): [(10_000, (256, 256), c) for c in (10, 20, 40, 80, 160)],
        ("features D", "10,000 rows, 20 clusters, 2 views"): [(10_000, (d, d), 20) for d in (64, 128, 256, 512, 1024)],
        ("views s, same D", "10,000 rows, 20 clusters, D = 512"): [
            (10_000, (512 // s,) * s, 20) for s in (1, 2, 4, 8, 16)
        ],
    }
    found, cases, seconds = [], [], []
    for (over, rest), shape in shapes.items():
        measured = in_turn([pass_of(*case) for case in shape])
        grown = {"r": [n for n, _, _ in shape], "c": [c for *_, c in shape], "f": [sum(w) for _, w, _ in shape]}
        sizes = grown.get(over[0], [len(w) for _, w, _ in shape])
        found.append(Growth("pass", over, rest, sizes, measured, "1"))
        cases += shape
        seconds += list(found[-1].best)
    return found, explained(cases, seconds)


def explained(cases: Sequence[tuple[int, tuple[int, ...], int]], seconds: Sequence[float]) -> list[str]:
    """Table of formulas, with coefficients by relative least squares over all passes, and how far off they are."""
    n, c = (np.array([case[i] for case in cases], dtype=float) for i in (0, 2))
    d, s = (np.array([kind(case[1]) for case in cases], dtype=float) for kind in (sum, len))
    took = np.array(seconds)
    formulas = {
        "a n c s D (the theorem)": [n * c * s * d],
        "a n c D + b n c s": [n * c * d, n * c * s],
        "a n c D + b n c s + e n D": [n * c * d, n * c * s, n * d],
    }
    rows = []
    for formula, terms in formulas.items():
        design = np.stack(terms, axis=1)
        coefficients = np.linalg.lstsq(design / took[:, None], np.ones(len(took)), rcond=None)[0]
        error = np.abs(design @ coefficients / took - 1)
        values = ", ".join(f"{name} = {1e12 * value:.0f}" for name, value in zip("abe", coefficients, strict=False))
        rows.append((formula, values, f"{100 * error.max():.0f} %", f"{100 * error.mean():.0f} %"))
    return grid(("formula", "picoseconds", "largest error", "mean error"), rows)


def steps() -> list[Growth]:
    """Seconds of a centre step with Tucker centres, which the theorem has run over rows."""
    few, held = (1_000, 4_000, 16_000, 64_000), "20 clusters, 64+48 features, rank 10 x "
    step = in_turn([tucker_step_of(n, (64, 48), 20, (10, 12, 2)) for n in few])
    found = [Growth("Tucker step", "rows n", held + "12 x 2", few, step, "1")]
    ranks = (4, 8, 16, 32)
    step = in_turn([tucker_step_of(2_000, (64, 48), 20, (10, r, 2)) for r in ranks])
    return [*found, Growth("Tucker step", "rank r2", held + "r2 x 2", ranks, step, "1")]


def rounds() -> list[Growth]:
    """Seconds of a whole round in one process, messages included."""
    sites = (5, 10, 20, 40, 80)
    alike = np.stack([round_of(m, 200) for m in sites], axis=1)
    split = np.stack([round_of(m, 16_000 // m) for m in sites], axis=1)
    held = "5 clusters, 20+20 features"
    return [
        Growth("round", "sites M", f"200 rows each, {held}", sites, alike, "not stated"),
        Growth("round", "sites M, same rows", f"16,000 rows in all, {held}", sites, split, "not stated"),
    ]


def round_of(n_sites: int, n_rows: int) -> np.ndarray:
    """Processor seconds of a round in each turn: what twelve rounds take more than two."""
    data = make_sites(n_sites, n_rows, 5, (20, 20), size_spread=0.0, random_state=0)
    init = [view[:5] for view in data.views]
    few, many = (EFKMVC(5, init=init, max_rounds=rounds, tol=0) for rounds in (2, 12))
    short, long = in_turn([lambda: few.fit(data.sites), lambda: many.fit(data.sites)], 3).T
    return (long - short) / 10


@dataclass(frozen=True)
class Sent:
    """Bytes of one round of one site, each way, beside two counts of numbers."""

    estimator: str
    protocol: str
    shape: str
    ours: int
    paper: float
    up: float
    down: float


def one_round(model: EFKMVC, data: object) -> tuple[float, float]:
    """Bytes that one site sends and hears in a round between the first and the last, and the model fitted."""
    sites = data.sites  # type: ignore[attr-defined]
    model.fit(sites)
    record = model.history_[-2]
    return record["bytes_up"] / len(sites), record["bytes_down"] / len(sites)


def messages() -> list[Sent]:
    """Bytes of rounds, for growing clusters, features and ranks."""
    found = []
    for c, widths in (
        (5, (50, 50)),
        (10, (50, 50)),
        (20, (50, 50)),
        (10, (100, 100)),
        (10, (200, 200)),
        (10, (25,) * 4),
    ):
        data = make_sites(3, 120, c, widths, size_spread=0.0, class_mix=None, random_state=0)
        shape = f"c={c}, D={sum(widths)}, s={len(widths)}"
        s, d = len(widths), sum(widths)
        for heat_coef in ("uniform", "minmax"):  # the weights of other coefficients differ between features
            model = EFKMVC(c, heat_coef=heat_coef, n_init=2, max_rounds=4, tol=0, random_state=0)
            weights = c * s if heat_coef == "uniform" else c * d
            up, down = one_round(model, data)
            ours, stated = c * d + weights + s + c + 2, center_message_size(c, widths)
            found.append(Sent(f"EFKMVC, {heat_coef}", "statistics", shape, ours, stated, up, down))
    data = make_sites(3, 120, 10, (200, 200), size_spread=0.0, class_mix=None, random_state=0)
    for rank in ((10, 2, 2), (10, 4, 2), (10, 8, 2)):
        shape = f"c=10, D=400, s=2, rank {'x'.join(map(str, rank))}"
        stated = tensor_message_size(10, 200, 2, feature_rank=rank[1], view_rank=rank[2])
        protocols = {"factors": FactorAveraging(), "cores": Statistics(basis=True, precision="double")}
        for name, protocol in protocols.items():
            model = FedHKTucker(10, rank=rank, protocol=protocol, n_init=2, max_rounds=4, tol=0, random_state=0)
            up, down = one_round(model, data)
            r1, r2, r3 = model.rank_
            if name == "factors":
                ours = r1 * r2 * r3 + 10 * r1 + 400 * r2 + 2 * r3 + 10 * 2 + 2 + 2
            else:  # the basis of a view has the r2 directions of the form, and as many in which it can turn
                ours = 10 * 2 * (2 * r2) + 10 * 2 + 2 + 10 + 2
            found.append(Sent("FedHKTucker", name, shape, ours, stated, up, down))
    return found


def growth_table(found: Sequence[Growth]) -> list[str]:
    rows = []
    for growth in found:
        sizes = ", ".join(f"{size:,}" for size in growth.sizes)
        best = ", ".join(f"{1e3 * value:.3g}" for value in growth.best)
        by_turn = spread([growth.exponent(turn) for turn in growth.turns], 2)
        exponent = f"{round(growth.exponent(growth.best), 2) + 0:.2f}"
        rows.append((growth.what, growth.over, growth.rest, sizes, best, exponent, by_turn, growth.stated))
    return table("Time", ("what", "grows", "held", "sizes", "best, ms", "exponent", "by turn", "stated"), rows)


def sent_table(found: Sequence[Sent]) -> list[str]:
    columns = ("estimator", "protocol", "shape", "numbers", "bytes up", "besides", "paper", "times", "bytes down")
    rows = []
    for sent in found:
        besides, times = sent.up - NUMBER * sent.ours, sent.up / NUMBER / sent.paper
        up = (f"{sent.ours:,}", f"{sent.up:,.0f}", f"{besides:,.0f}", f"{sent.paper:,.0f}", f"{times:.2f}")
        rows.append((sent.estimator, sent.protocol, sent.shape, *up, f"{sent.down:,.0f}"))
    return grid(columns, rows)


def main() -> None:
    began = time.perf_counter()
    with threadpool_limits(1):
        grown, formulas = passes()
        grown += [*steps(), *rounds()]
        sent = messages()
    lines = [
        "# How time and bytes grow",
        "",
        "Processor time, one thread for passes and steps. An exponent is the slope of log(time) over log(size), of the",
        "best times and, with its spread, of single turns; `stated` is what `thm:complexity` and",
        "`thm:tensor_complexity` say.",
        "",
        *growth_table(grown),
        "All passes of the table by one formula:",
        "",
        *formulas,
        "",
        "## Bytes of one site in one round",
        "",
        "Double precision. `numbers` is our count of what a site sends, `besides` the bytes a message has beyond 8 for",
        "each of these (header, names, digest), `paper` the count of its proposition or of",
        "`thm:tensor_communication`, `times` how many times that much was sent.",
        "",
        *sent_table(sent),
        "",
    ]
    (RESULTS / "complexity.md").write_text("\n".join(lines))
    print("\n".join(lines))
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
