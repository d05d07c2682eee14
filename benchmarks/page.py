"""docs/benchmarks.md from what the other scripts wrote.

    python benchmarks/page.py

Every table stands with the command that makes it. Where `make bench` made none, because it takes too long, the one of a
longer run that is kept in benchmarks/results is shown, and said to be.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from data import RESULTS

KEPT = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
PLOTS = DOCS / "benchmarks"

HEAD = """# Benchmarks

What FedHK reaches, beside what one would use instead. `make bench` makes this page, with two seeds; tables that would
take too long are kept from longer runs, and say so. Figures are means over seeds, with their spread. Timings compare
two things in one run and are given as a ratio, or for orientation: machines differ. No labels are used but to measure.
Where FedHK loses, the table says so. Data sets that are not part of the project are left out where they are not there
(`FEDHK_BENCHMARK_DATA` names their folder); those of scikit-learn are always there.
"""


@dataclass(frozen=True)
class Chapter:
    title: str
    about: str
    command: str
    files: tuple[str, ...]
    plots: tuple[str, ...] = ()


CHAPTERS = (
    Chapter(
        "Every method on the same sites",
        "Pooled methods see all rows in one place, which is what a federation must do without. Models of sites alone "
        "share no meaning across sites, so that only agreement within a site can be measured. Published figures are "
        "those of their authors, on the same data but not always the same split, and were not run here.",
        "python benchmarks/peers.py public; python benchmarks/peers.py",
        ("peers-public.md", "peers.md"),
        ("peers-public.svg", "peers.svg"),
    ),
    Chapter(
        "One site",
        "Defaults of `HeatKernelMVC` against balanced k-means, rows pooled.",
        "python benchmarks/quality.py",
        ("quality.md",),
    ),
    Chapter(
        "Split over sites: rounds and bytes",
        "`pooled` is the same model on pooled rows; `plain` starts from k-means++ seeds.",
        "python benchmarks/federation.py",
        ("federation.md",),
    ),
    Chapter(
        "Clusters that are not round",
        "`FedHKDiffusion` against pooled balanced k-means, and its bytes beside those of `EFKMVC`.",
        "python benchmarks/diffusion.py",
        ("diffusion.md",),
    ),
    Chapter(
        "Tensor centres: bytes",
        "What low-rank centres and sums in a common basis save.",
        "python benchmarks/tensors.py",
        ("tensors.md",),
        ("tensors.svg",),
    ),
    Chapter(
        "Personalization",
        "Global, own and alone models; own ones must gain where sites differ and lose nothing where they do not.",
        "python benchmarks/personalization.py",
        ("personalization-generated.md", "personalization-shared.md"),
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
        "4 of 20 sites are hostile; the change of ARI against honest sites alone.",
        "python benchmarks/hostile.py",
        ("hostile.md",),
    ),
    Chapter(
        "Speed and memory",
        "One pass and a whole fit, beside scikit-learn, faiss and scikit-fuzzy; how time and bytes grow; what the "
        "engine itself costs.",
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
        if (path := made(plot)) is not None:
            PLOTS.mkdir(exist_ok=True)
            shutil.copyfile(path, PLOTS / plot)
            parts += [f"![{chapter.title}](benchmarks/{plot})", ""]
    for name in chapter.files:
        path = made(name)
        if path is None:
            parts += [f"*{name} was not made.*", ""]
            continue
        if path.parent != RESULTS:
            parts += ["*Kept from a longer run.*", ""]
        parts += [demoted(path.read_text("utf-8")), ""]
    return "\n".join(parts)


def made(name: str) -> Path | None:
    """A file of this run or, where there is none, of a longer one."""
    return next((folder / name for folder in (RESULTS, KEPT) if (folder / name).exists()), None)


def main() -> None:
    text = "\n".join([HEAD, *(chapter_text(chapter) for chapter in CHAPTERS)])
    (DOCS / "benchmarks.md").write_text(text, "utf-8")
    print(f"{DOCS / 'benchmarks.md'}: {len(CHAPTERS)} chapters")


if __name__ == "__main__":
    main()
