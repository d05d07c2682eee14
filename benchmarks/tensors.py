"""Low-rank centres: bytes and quality against EFKMVC, the price of every protocol and rank, and the cost of a step.

    python benchmarks/tensors.py

Sites are the real ones where the data have them, else ten with classes spread by Dirichlet(0.5). "kB" is what one site
sends and hears over the whole run, set-up included, in units of 1000 bytes. "times the time" is processor time of one
fit on one thread, as a multiple of that of EFKMVC on the same data; the median over seeds.

"orl-like" are made here: 40 clusters of ten rows in 4 views of 216 features with noise of standard deviation 1, around
standard normal centres of full rank, or of rank 10. "shared" are made here, too: clusters of few rows in 4 views of 216
features with more noise, around centres that share some components; anew for every seed. results/tensors.svg shows the
tables of every protocol and rank.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import time
import warnings
from collections.abc import Sequence
from html import escape
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import fedhk
from data import RESULTS, DataSet, seeds, shared_sets, site_rows
from fedhk.data.views import check_views
from fedhk.datasets import split_views
from fedhk.model.descent import improve
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.protocols import FactorAveraging, Statistics
from fedhk.reference import center_message_size, tensor_message_size
from tables import size, spread, table

SEEDS = seeds(5)
TENSORS = ("FedHKTucker", "FedHKParafac2")
RANKS = (0.8, 0.9, 0.95, 0.99, "auto")
Result = dict[str, Any]


def orl_like(rank: int | None) -> DataSet:
    """40 clusters of ten rows in 4 views of 216 features, around centres of a rank, or of full rank."""
    return make_shared(rank, 40, 10, 1.0, name="orl-like, full rank" if rank is None else f"orl-like, rank {rank}")


def make_shared(rank: int | None, n_clusters: int, rows: int, noise: float, *, name: str, seed: int = 0) -> DataSet:
    """Clusters of so many rows in 4 views of 216 features, around centres that share `rank` components, or none."""
    rng = np.random.default_rng(seed)
    widths = [216] * 4
    if rank is None:
        centers = [rng.normal(size=(n_clusters, width)) for width in widths]
    else:
        shared = rng.normal(size=(n_clusters, rank)) / np.sqrt(rank)
        centers = [shared @ rng.normal(size=(rank, width)) for width in widths]
    labels = np.repeat(np.arange(n_clusters), rows)
    views = [center[labels] + noise * rng.normal(size=(labels.size, center.shape[1])) for center in centers]
    return DataSet(name, views, labels)


def fit(data: DataSet, seed: int, name: str, options: dict[str, Any]) -> Result:
    """One run: agreement with the classes, rounds, bytes and rank."""
    split = site_rows(data, seed)
    sites = split_views(data.views, split)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # some ranks are too low, and the tables say so
        began = time.process_time()
        model = getattr(fedhk, name)(data.n_classes, scaling=data.scaling, random_state=seed, **options).fit(sites)
        seconds = time.process_time() - began
    truth = np.concatenate([data.labels[split[site]] for site in sorted(split)])
    found = np.concatenate([model.labels_[site] for site in sorted(split)])
    up, down = ([record[way] / len(sites) / 1e3 for record in model.history_] for way in ("bytes_up", "bytes_down"))
    return {
        "ARI": float(adjusted_rand_score(truth, found)),
        "rounds": model.n_iter_,
        "seconds": seconds,
        "lost": getattr(model, "reconstruction_error_", 0.0),
        "kB": sum(up) + sum(down),
        "up": float(np.median(up[1:-1] or up)),
        "down": float(np.median(down[1:-1] or down)),
        "rank": getattr(model, "rank_", None),
    }


def fit_all(jobs: Sequence[tuple[DataSet, int, str, dict[str, Any]]]) -> list[Result]:
    """All jobs on all cores."""
    return list(Parallel(n_jobs=-1)(delayed(fit)(*job) for job in jobs))


def shown_ranks(results: Sequence[Result]) -> str:
    """Ranks of several runs, mode by mode: one number, or the least and the largest."""
    modes = zip(*(result["rank"] or () for result in results), strict=True)
    return " x ".join(str(min(m)) if min(m) == max(m) else f"{min(m)}-{max(m)}" for m in modes) or "-"


def mean(results: Sequence[Result], name: str) -> float:
    """Mean of a figure over runs."""
    return float(np.mean([result[name] for result in results]))


def of(results: Sequence[Result], name: str, places: int = 3) -> str:
    """Mean and spread of a figure over runs."""
    return spread([result[name] for result in results], places)


def kilobytes(number: float) -> str:
    """A number of kB with three digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


# ----------------------------------------------------------------------------------------------------- default settings


def defaults_table(sets: Sequence[DataSet]) -> list[str]:
    """Bytes and quality with default settings."""
    names = ("EFKMVC", *TENSORS)
    jobs = [(data, seed, name, {}) for data in sets for name in names for seed in SEEDS]
    results = fit_all(jobs)
    rows = []
    for data in sets:
        own = {n: [r for (d, _, m, _), r in zip(jobs, results, strict=True) if d is data and m == n] for n in names}
        base = own["EFKMVC"]
        for name, runs in own.items():
            compared = ("", "", "")
            if name != "EFKMVC":
                gap = mean(runs, "ARI") - mean(base, "ARI")
                slower = np.median([r["seconds"] for r in runs]) / np.median([r["seconds"] for r in base])
                compared = (f"{gap:+.3f}", f"{mean(base, 'kB') / mean(runs, 'kB'):.1f}", f"{slower:.2f}")
            figures = (of(runs, "ARI"), compared[0], of(runs, "rounds", 1))
            rows.append((data.name, name, *figures, size([r["kB"] for r in runs]), *compared[1:], shown_ranks(runs)))
    columns = ("data", "estimator", "ARI", "against EFKMVC", "rounds", "kB a site")
    columns += ("times fewer bytes", "times the time", "rank chosen")
    return table(f"Bytes and quality, default settings ({len(SEEDS)} seeds)", columns, rows)


CONTROLS = (
    ("EFKMVC: full sums in double", "EFKMVC", {}),
    ("full sums in bytes", "FedHKTucker", {"protocol": Statistics(precision="byte")}),
    ("basis, in double", "FedHKTucker", {"protocol": Statistics(basis=True, precision="double")}),
    ("basis, in bytes", "FedHKTucker", {"protocol": Statistics(basis=True, precision="byte")}),
)


def control_table(sets: Sequence[DataSet]) -> list[str]:
    """What saves the bytes: rounding, or the basis; with the difference to EFKMVC of each seed."""
    jobs = [(data, seed, name, options) for data in sets for _, name, options in CONTROLS for seed in SEEDS]
    results = iter(fit_all(jobs))
    rows = []
    for data in sets:
        runs = {shown: [next(results) for _ in SEEDS] for shown, _, _ in CONTROLS}
        base = runs[CONTROLS[0][0]]
        for shown, own in runs.items():
            gaps = [mine["ARI"] - theirs["ARI"] for mine, theirs in zip(own, base, strict=True)]
            by_seed = ", ".join(f"{gap:+.3f}" for gap in gaps) if own is not base else ""
            fewer = f"{mean(base, 'kB') / mean(own, 'kB'):.1f}"
            sent = size([r["kB"] for r in own])
            rows.append((data.name, shown, shown_ranks(own), of(own, "ARI"), by_seed, sent, fewer))
    columns = ("data", "sent", "rank", "ARI", "against EFKMVC, by seed", "kB a site", "times fewer bytes")
    return table(f'What saves the bytes, at rank "auto" ({len(SEEDS)} seeds)', columns, rows)


# --------------------------------------------------------------------------------------------------- ranks that bind

SHARED = (
    ("5 of 30 clusters of 20 rows, noise 2", 5, 30, 20, 2.0),
    ("6 of 40 clusters of 10 rows, noise 2", 6, 40, 10, 2.0),
)
SHARED += (("10 of 40 clusters of 10 rows, noise 1.5", 10, 40, 10, 1.5),)
WAYS = (
    ("EFKMVC", "EFKMVC", {}),
    ("EFKMVC in a basis, in bytes", "EFKMVC", {"protocol": "cores"}),
    ("FedHKTucker", "FedHKTucker", {}),
    ("FedHKParafac2", "FedHKParafac2", {}),
)


def shared_table() -> list[str]:
    """What a rank that is chosen gains where centres share components and clusters have few rows."""
    made = [[make_shared(*sizes, name=name, seed=seed) for seed in SEEDS] for name, *sizes in SHARED]
    jobs = [
        (data, s, n, options) for sets in made for _, n, options in WAYS for s, data in zip(SEEDS, sets, strict=True)
    ]
    results = iter(fit_all(jobs))
    rows = []
    for sets in made:
        base: list[Result] = []
        for shown, _, _ in WAYS:
            runs = [next(results) for _ in SEEDS]
            base = base or runs
            gaps = (
                ", ".join(f"{r['ARI'] - b['ARI']:+.3f}" for r, b in zip(runs, base, strict=True))
                if runs is not base
                else ""
            )
            rows.append((sets[0].name, shown, of(runs, "ARI"), gaps, size([r["kB"] for r in runs]), shown_ranks(runs)))
    columns = ("components", "estimator", "ARI", "against EFKMVC, by seed", "kB a site", "rank chosen")
    return table(f'Centres that share components, rank "auto" ({len(SEEDS)} seeds)', columns, rows)


def real_ranks_table(sets: Sequence[DataSet]) -> list[str]:
    """What ranks that bind cost on real data: full sums in double, so that only the rank differs."""
    shares = (0.75, 0.5)
    jobs = []
    for data in sets:
        ranks = [max(1, round(share * data.n_classes)) for share in shares]
        ways = [("EFKMVC", {})] + [("FedHKTucker", {"rank": rank, "protocol": "statistics"}) for rank in ranks]
        jobs += [(data, seed, name, options) for name, options in ways for seed in SEEDS]
    results = iter(fit_all(jobs))
    rows = []
    for data in sets:
        base, *low = ([next(results) for _ in SEEDS] for _ in (1.0, *shares))
        for runs in low:
            gaps = ", ".join(f"{r['ARI'] - b['ARI']:+.3f}" for r, b in zip(runs, base, strict=True))
            rows.append((data.name, of(base, "ARI"), shown_ranks(runs), of(runs, "ARI"), gaps, of(runs, "lost", 2)))
    columns = ("data", "ARI of EFKMVC", "rank of Tucker", "ARI", "against EFKMVC, by seed", "reconstruction error")
    return table(f"Ranks that bind on real data ({len(SEEDS)} seeds)", columns, rows)


# --------------------------------------------------------------------------------------------------------------- curves


def ways() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Protocol as it is shown, estimator, precision as it is shown, and the options of the estimator."""
    found = [("EFKMVC", "EFKMVC", "double", {})]
    for name, rank in product(TENSORS, RANKS):
        chosen = [("cores", p, Statistics(basis=True, precision=p)) for p in ("byte", "half", "double")]
        chosen += [
            (f"factors, average of {averaged}", "double", FactorAveraging(aggregation=averaged))
            for averaged in ("centers", "factors")
        ]
        chosen.append(("statistics", "double", Statistics()))
        found += [(shown, name, precision, {"protocol": p, "rank": rank}) for shown, precision, p in chosen]
    return found


def curves(sets: Sequence[tuple[DataSet, int]]) -> tuple[list[str], str]:
    """ARI against bytes for every protocol and rank, each set with so many seeds: the tables, and the plot."""
    jobs = [(data, seed, name, options) for data, n in sets for _, name, _, options in ways() for seed in range(n)]
    results = iter(fit_all(jobs))
    lines: list[str] = []
    panels = []
    for data, n_seeds in sets:
        rows, points = [], []
        for protocol, name, precision, options in ways():
            runs = [next(results) for _ in range(n_seeds)]
            ari, sent = mean(runs, "ARI"), mean(runs, "kB")
            figures = (of(runs, "ARI"), of(runs, "rounds", 1), size([r["kB"] for r in runs]))
            rows.append((protocol, name, options.get("rank", "-"), shown_ranks(runs), precision, *figures))
            points.append((protocol, name, sent, ari))
        columns = ("protocol", "estimator", "rank asked", "rank", "precision", "ARI", "rounds", "kB a site")
        lines += table(
            f"Every protocol and rank on {data.name} ({n_seeds} seed{'s' if n_seeds > 1 else ''})", columns, rows
        )
        panels.append((data.name, points))
    return lines, plot(panels)


COLORS = {
    "EFKMVC": "#000000",
    "statistics": "#0072b2",
    "factors, average of centers": "#e69f00",
    "factors, average of factors": "#cc79a7",
    "cores": "#009e73",
}
WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 300, 60, 40, 70


def plot(panels: Sequence[tuple[str, list[tuple[str, str, float, float]]]]) -> str:
    """Scatters of ARI over kB, side by side, as SVG; kB on a logarithmic axis."""
    total = LEFT + len(panels) * (WIDTH + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {TOP + HEIGHT + 110}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, points) in enumerate(panels):
        parts += panel(LEFT + number * (WIDTH + GAP), title, points)
    x, y = LEFT, TOP + HEIGHT + 75
    for name, color in COLORS.items():
        parts += [f'<circle cx="{x}" cy="{y}" r="5" fill="{color}"/>', text(x + 10, y + 4, name, "start")]
        x += 40 + 7 * len(name)
    y += 20
    for name, at in ((TENSORS[0], LEFT), (TENSORS[1], LEFT + 127)):
        parts += [mark(name, at, y, "#777777"), text(at + 10, y + 4, name, "start")]
    return "\n".join([*parts, "</svg>", ""])


def panel(left: float, title: str, points: list[tuple[str, str, float, float]]) -> list[str]:
    """One scatter."""
    logs, heights = np.log10([p[2] for p in points]), np.array([p[3] for p in points])
    low, high = logs.min() - 0.1, logs.max() + 0.1
    bottom, top = max(0.0, np.floor(20 * heights.min() - 0.2) / 20), min(1.0, np.ceil(20 * heights.max() + 0.2) / 20)
    bottom = min(bottom, top - 0.1)
    pad = 0.03 * (top - bottom)

    def across(log: float) -> float:
        return left + WIDTH * (log - low) / (high - low)

    def down(value: float) -> float:
        return TOP + HEIGHT * (top + pad - value) / (top - bottom + 2 * pad)

    parts = [
        text(left + WIDTH / 2, TOP - 15, title, "middle"),
        f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999999"/>',
        text(left + WIDTH / 2, TOP + HEIGHT + 40, "kB a site, whole run", "middle"),
    ]
    for tick in (t * 10**power for power in range(5) for t in (1, 2, 5)):
        if low <= np.log10(tick) <= high:
            at = across(np.log10(tick))
            parts.append(f'<path d="M{at:.1f} {TOP}v{HEIGHT}" stroke="#e5e5e5"/>')
            parts.append(text(at, TOP + HEIGHT + 18, f"{tick:,}", "middle"))
    for tick in np.linspace(bottom, top, 6):
        parts.append(f'<path d="M{left} {down(tick):.1f}h{WIDTH}" stroke="#e5e5e5"/>')
        parts.append(text(left - 6, down(tick) + 4, f"{tick:.2f}", "end"))
    parts.append(text(left, TOP - 15, "ARI", "end"))
    for protocol, name, sent, ari in points:
        parts.append(mark(name, across(np.log10(sent)), down(ari), COLORS[protocol]))
    return parts


def mark(name: str, x: float, y: float, color: str) -> str:
    """A point: a square for PARAFAC2, a circle for Tucker, a larger one for EFKMVC."""
    if name == "FedHKParafac2":
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{color}" fill-opacity="0.7"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if name == "EFKMVC" else 4.5}" fill="{color}" fill-opacity="0.7"/>'


def text(x: float, y: float, words: str, anchor: str) -> str:
    """A label."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


# ------------------------------------------------------------------------------------------------------- cost of a step


def step_table() -> list[str]:
    """Time of the centre step on statistics of a thousand and of a million rows, taken in turn."""
    sizes, widths, n_clusters, repeats = (10**3, 10**6), (64, 48, 16), 20, 200
    rng = np.random.default_rng(0)
    centers = [rng.normal(size=(n_clusters, width)).astype(np.float32) for width in widths]
    tables = []
    for n_rows in sizes:
        labels = rng.integers(n_clusters, size=n_rows)
        tables.append([c[labels] + rng.standard_normal((n_rows, c.shape[1]), dtype=np.float32) for c in centers])
    rows = []
    for decomposition, rank in (("tucker", (10, 12, 2)), ("parafac2", 10)):
        form = {"decomposition": decomposition, "rank": rank, "n_init": 1, "max_iter": 1, "random_state": 0}
        model = fedhk.HeatKernelMVC(n_clusters, **form).fit(tables[0])._model
        statistics, passes = [], []
        for views in tables:
            with Passes(Rows(check_views(views), model.references), n_clusters, 1) as scan:
                began = time.process_time()
                statistics.append(scan.statistics(model.parameters))
                passes.append(time.process_time() - began)
        times: list[list[float]] = [[], []]
        for _ in range(repeats):
            for found, taken in zip(statistics, times, strict=True):
                began = time.process_time()
                improve(model.parameters, found, learn_weights=False)
                taken.append(time.process_time() - began)
        medians = [1e3 * float(np.median(taken)) for taken in times]
        shown = (*(f"{m:.2f}" for m in medians), f"{medians[1] / medians[0]:.3f}", *(f"{1e3 * p:,.1f}" for p in passes))
        rows.append((decomposition, rank, *shown))
    columns = (
        "form",
        "rank",
        "step at 10^3 rows, ms",
        "step at 10^6 rows, ms",
        "ratio",
        "pass over 10^3, ms",
        "pass over 10^6, ms",
    )
    title = (
        f"The centre step does not depend on the rows ({n_clusters} clusters, {'+'.join(map(str, widths))} features)"
    )
    return table(title, columns, rows)


# --------------------------------------------------------------------------------------------- the formula of the paper


def formula_table(data: DataSet) -> list[str]:
    """Bytes of a round as `thm:tensor_communication` counts them, eight to a number, beside what was sent."""
    widths, n_clusters = [view.shape[1] for view in data.views], data.n_classes
    cases = [("EFKMVC", {"protocol": protocol}) for protocol in ("statistics", "centers")]
    cases += [(name, {"protocol": p, "rank": r}) for name in TENSORS for p in ("factors", "cores") for r in (0.8, 0.95)]
    ten = {"max_rounds": 10, "tol": 0}
    results = fit_all([(data, 0, name, options | ten) for name, options in cases])
    rows = []
    for (name, options), result in zip(cases, results, strict=True):
        rank = result["rank"]
        if rank is None:
            counted = center_message_size(n_clusters, widths)
        else:
            second, third = rank[1:] if len(rank) == 3 else rank * 2
            counted = tensor_message_size(n_clusters, max(widths), len(widths), feature_rank=second, view_rank=third)
        once = result["kB"] - result["rounds"] * (result["up"] + result["down"])
        figures = (8 * counted / 1e3, result["up"], result["down"], once, result["kB"])
        used = shown_ranks([result])
        rows.append((name, options["protocol"], used, f"{counted:,.0f}", *(kilobytes(figure) for figure in figures)))
    columns = (
        *("estimator", "protocol", "rank", "numbers, paper", "kB of these", "kB up a round", "kB down a round"),
        *("kB once", "kB of the run"),
    )
    return table(f"The paper's count beside what was sent: {data.name}, one site, ten rounds", columns, rows)


def main() -> None:
    lines = step_table()
    real = shared_sets()
    full, low = orl_like(None), orl_like(10)
    defaults = defaults_table([*real, full, low])
    shared = [*shared_table(), *real_ranks_table(real)]
    controls = control_table([*(data for data in real if data.name in ("msrcv1_5v", "bbcsport")), low])
    wide = [data for data in real if data.name == "msrcv1_5v"]
    curve, picture = curves([*((data, len(seeds(3))) for data in wide), (low, 1)])  # three seeds would take too long
    for data in wide:
        lines += formula_table(data)
    for name, part in (("tensors", [*defaults, *shared, *controls, *lines]), ("tensors-ranks", curve)):
        report = "\n".join(part)
        print(report)
        (RESULTS / f"{name}.md").write_text(report)
    (RESULTS / "tensors.svg").write_text(picture)


if __name__ == "__main__":
    main()
