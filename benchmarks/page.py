"""docs/benchmarks.md from what the other scripts wrote.

    python benchmarks/page.py

Every table stands with the command that makes it. Where `make bench` made none, because it takes too long or because
data are not there, the one of a longer run that is kept in benchmarks/results is shown, and said to be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from data import RESULTS
from methods import METHODS, OURS
from peers import OUR_FEDERATED, PUBLISHED, Results, best_of, mean_of, mean_over_sets, published_above
from tables import grid, spread

KEPT = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"

# Differences in ARI below this are called level.
LEVEL = 0.01

HEAD = """# Benchmarks

What FedHK reaches, beside what one would use instead. `make bench` makes this page; a table that would take too long is
kept from a longer run, and says so. Figures are means over seeds ± their standard deviation. Timings compare things in
one run: their ratios count, for machines differ. Pictures are of the longer runs. Labels are used to measure and for
nothing else. Data sets that are not part of the project are left out where they are not there (`FEDHK_BENCHMARK_DATA`
names their folder); those of scikit-learn are always there.
"""


@dataclass(frozen=True)
class Chapter:
    title: str
    about: str
    command: str
    files: tuple[str, ...]
    plots: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    """Files of benchmarks/results that have more of it."""


CHAPTERS = (
    Chapter(
        "Every method on the same sites",
        "Sites are the real ones of heart4, heart4_nan, watch7 and wisdm6, else ten by Dirichlet(0.5). Pooled methods "
        "see all rows in one place, which is what a federation must do without; the best federated figure is bold. "
        "Models of sites alone share no meaning across sites, so that only agreement within a site can be measured. "
        "Bytes of methods that are not ours are counted: eight for each number that must be told. mvlearn's k-means "
        "takes two views, its spectral clustering is run up to 1,700 rows (it takes minutes for more), and neither "
        "they nor the paper take missing cells. Published figures are those of their "
        "authors, on the same data but not always the same split, and were not run here.",
        "python benchmarks/peers.py",
        ("peers.md", "peers-public.md"),
        ("peers.svg", "peers-public.svg"),
        ("quality.md", "quality-tried.md", "quality-coefficients.md", "diffusion.md", "diffusion-tried.md"),
    ),
    Chapter(
        "Tables of numbers and categories",
        "Generated tables look like two well-known ones: census records (2,000 people, six numbers of which two are "
        "skewed, six categories of 2 to 14 levels, three groups) and heart patients (900 rows, six numbers, six "
        "categories of 2 to 4 levels, two groups). How much a column differs between groups is drawn anew with every "
        "seed; 5 % of the cells are missing; four sites have other shares of the groups. Others see all rows pooled "
        "with gaps filled, but for Gower's distance, which leaves missing cells out. heart4 and heart4_nan have their "
        "categorical columns declared. In one view, EFKMVC is ahead of the best of the others on the generated tables "
        "(by .09 and .04, where seeds differ by .2) and on heart4; as plain numbers, with a column for each level of "
        "chest pain, heart4 comes out better (.331 above).",
        "python benchmarks/mixed.py",
        ("mixed.md",),
        more=("mixed-tried.md", "large.md"),
    ),
    Chapter(
        "The paper to the letter, and what its corrections bring",
        "The four algorithms as they are printed (`fedhk.reference`), each above the estimator that is its corrected "
        "form, and the corrected ones with one correction taken back at a time. What the paper leaves open is as "
        "`fedhk.reference` has it by default: standard normal starts, m = alpha = 2, ranks (c, min(c, D), s), five "
        "rounds. It has no rule for missing cells. Algorithms 2 and 3 are the same formulas, and so are their figures.",
        "python benchmarks/literal.py; python benchmarks/ablation.py",
        ("literal.md", "ablation.md"),
    ),
    Chapter(
        "Split over sites: rounds and bytes",
        "`EFKMVC`. `k-means` is balanced k-means on pooled rows, `pooled` the same model on pooled rows, `statistics` "
        "and `centers` what sites send. `rounds` is the first round within 1e-4 of the last objective, `plain rounds` "
        "what the plain map needs from random rows: what seeding saves.",
        "python benchmarks/federation.py",
        ("federation.md",),
    ),
    Chapter(
        "Personalization",
        "Global, own and alone models; own ones must gain where sites differ and lose nothing where they do not. The "
        "objective is better when it is lower. A model that a site makes alone may agree as well with its classes, but "
        "its clusters mean nothing at other sites: its agreement over all rows is that of chance.",
        "python benchmarks/personalization.py",
        ("personalization-shared.md", "personalization-generated.md"),
        more=("personalization-decompositions.md",),
    ),
    Chapter(
        "Tensor centres: bytes",
        "What low-rank centres and sums in a common basis save.",
        "python benchmarks/tensors.py",
        ("tensors.md",),
        ("tensors.svg",),
        ("tensors-ranks.md",),
    ),
    Chapter(
        "Privacy",
        "Agreement with the classes at a given epsilon, beside diffprivlib's k-means on pooled rows.",
        "python benchmarks/privacy.py",
        ("privacy.md",),
        ("privacy.svg",),
    ),
    Chapter(
        "Sites that lie",
        "4 of 20 sites are hostile and agree on a lie; the change of ARI against honest sites alone, by how the server "
        'adds up: plain sums, `aggregator="robust"`, medians and trimmed means of coordinates. ALIE moves centres by '
        "a little less than what would stand out; concentration puts all of a site's mass into one cluster. "
        "Candidates are what sites propose for the start; `trusted` leaves out those that no other site is near.",
        "python benchmarks/hostile.py",
        ("hostile.md",),
        ("hostile.svg",),
        ("hostile-every-exchange.md", "hostile-tried.md"),
    ),
    Chapter(
        "Speed and memory",
        "One pass and a whole fit, beside scikit-learn, faiss and scikit-fuzzy; how time and bytes grow; what the "
        "engine itself costs. Products are the bare matrix products that a pass cannot do without; a weighted pass "
        "has a coefficient for every cell, and lifted products are those that it cannot do without. Things are timed "
        "in turns: `by turn` is the mean over turns with its spread.",
        "python benchmarks/speed.py --quick; python benchmarks/complexity.py; python benchmarks/engine.py",
        ("speed.md", "complexity.md", "engine.md"),
    ),
    Chapter(
        "Runs that are killed",
        "Processes that end by SIGKILL at random moments of a run, and go on from its checkpoint.",
        "python benchmarks/kills.py 20",
        ("kills.md",),
    ),
)


def made(name: str) -> Path | None:
    """A file of this run or, where there is none, of a longer one."""
    return next((folder / name for folder in (RESULTS, KEPT) if (folder / name).exists()), None)


def in_short() -> list[str]:
    """Where each estimator stands against what one would do with pooled rows, and what beats all of ours."""
    results: Results = {}
    for name in ("peers.json", "peers-public.json"):
        if (path := made(name)) is not None:
            results |= json.loads(path.read_text("utf-8"))
    names = ("estimator", "rows", "mean ARI", "ahead", "level", "behind", "largest gain", "largest loss")
    rows = []
    for method in ("balanced k-means", *OURS):
        shown = (method, METHODS[method][0], spread(mean_over_sets(results, method, "ARI")))
        if method not in OURS:
            rows.append((*shown, "", "", "", "", ""))
            continue
        gains = {
            data: mean_ari(results, data, method) - mean_ari(results, data, "balanced k-means") for data in results
        }
        counts = [sum(gain > LEVEL for gain in gains.values()), sum(gain < -LEVEL for gain in gains.values())]
        best, worst = max(gains, key=lambda data: gains[data]), min(gains, key=lambda data: gains[data])
        extremes = (f"{gains[best]:+.3f}, {best}", f"{gains[worst]:+.3f}, {worst}")
        rows.append((*shown, counts[0], len(gains) - sum(counts), counts[1], *extremes))
    lines = [
        "## In short",
        "",
        f"On {len(results)} data sets, against balanced k-means on pooled rows, which is what anybody who may pool "
        f"them would run; level is within {LEVEL}:",
        "",
        *grid(names, rows),
        "",
    ]
    return [*lines, *beaten(results), *published_ahead(results)]


def mean_ari(results: Results, data: str, method: str) -> float:
    return mean_of(results, data, method, "ARI")


def beaten(results: Results) -> list[str]:
    """Sets on which something else is better than all of our federated estimators."""
    lines = []
    for data in results:
        best = best_of(results, data, OUR_FEDERATED, "ARI")
        reached = mean_ari(results, data, best)
        others = {method: mean_ari(results, data, method) for method in METHODS if method not in OUR_FEDERATED}
        above = {method: ari for method, ari in others.items() if ari > reached + LEVEL}
        if above:
            shown = ", ".join(f"{method} ({METHODS[method][0]}) {ari:.3f}" for method, ari in above.items())
            lines.append(f"- {data}: {shown}; our best, {best}, {reached:.3f}")
    if not lines:
        return ["No method, pooled or not, was ahead of the best of our federated estimators by more than that.", ""]
    return ["Ahead of the best of our federated estimators by more than that:", "", *lines, ""]


def published_ahead(results: Results) -> list[str]:
    """Published figures with a higher ACC than the best of our federated estimators."""
    lines = []
    for data in filter(results.__contains__, PUBLISHED):
        best, above = published_above(results, data)
        if above:
            figures = {name: text.partition("/")[0] for methods in PUBLISHED[data] for name, text in methods.items()}
            shown = ", ".join(f"{name} {figures[name]}" for name in above)
            lines.append(f"- {data}: {shown}; our best, {best}, {100 * mean_of(results, data, best, 'ACC'):.0f}")
    return ["Published with a higher ACC (in percent; pooled or not, not run here):", "", *lines, ""] if lines else []


def contents() -> list[str]:
    """Where what is."""
    anchors = {
        chapter.title: "".join(c for c in chapter.title.lower() if c.isalnum() or c in " -") for chapter in CHAPTERS
    }
    return [*(f"- [{title}](#{anchor.replace(' ', '-')})" for title, anchor in anchors.items()), ""]


def demoted(text: str) -> str:
    """Tables with headings that fit under those of the page."""
    lines = []
    for line in text.strip().splitlines():
        title = line.lstrip("#").strip()
        lines.append(f"### {title}" if line.startswith("#") else line)
    return "\n".join(lines)


def chapter_text(chapter: Chapter) -> str:
    parts = [f"## {chapter.title}", "", chapter.about, "", f"`{chapter.command}`", ""]
    for plot in chapter.plots:
        parts += [f"![{chapter.title}](../benchmarks/results/{plot})", ""]
    for name in chapter.files:
        path = made(name)
        if path is None:
            parts += [f"*{name} was not made.*", ""]
            continue
        if path.parent != RESULTS:
            parts += ["*Kept from a longer run.*", ""]
        parts += [demoted(path.read_text("utf-8")), ""]
    if chapter.more:
        links = ", ".join(f"[{name.removesuffix('.md')}](../benchmarks/results/{name})" for name in chapter.more)
        parts += [f"More: {links}.", ""]
    return "\n".join(parts)


def main() -> None:
    text = "\n".join([HEAD, *contents(), *in_short(), *(chapter_text(chapter) for chapter in CHAPTERS)])
    unbroken = text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")  # a figure stays on one line
    (DOCS / "benchmarks.md").write_text(unbroken, "utf-8")
    print(f"{DOCS / 'benchmarks.md'}: {len(CHAPTERS)} chapters")


if __name__ == "__main__":
    main()
