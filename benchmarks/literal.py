"""The paper's four algorithms to the letter, each beside the estimator that is its corrected form.

    python benchmarks/literal.py             # benchmarks/results/literal.md, some minutes

Sites are the real ones, or ten by Dirichlet(0.5); generated sites differ in nothing, in which clusters they have, or in
an offset of each site's own. The literal algorithms get z-scored views (text: rows of length 1) and take what the paper
leaves open from the defaults of `fedhk.reference`; they do not take missing cells.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

from collections.abc import Sequence

import numpy as np
from joblib import Parallel, delayed

from data import RESULTS, DataSet, seeds, shared_sets
from fedhk.datasets import make_sites
from methods import PAPER
from peers import Record, run
from tables import spread, table

SEEDS = seeds(2)
MEASURES = ("ARI", "site ARI")


def generated_sets() -> list[DataSet]:
    """Ten sites of 200 rows, five clusters, views of 40, 25 and 10 features."""
    same = {"class_mix": None, "shift": 0.0, "scale": 0.0, "size_spread": 0.0, "random_state": 0}
    kinds = {"alike": {}, "other clusters": {"class_mix": 0.5}, "offsets": {"shift": 1.0}}
    sets = []
    for name, options in kinds.items():
        data = make_sites(10, 200, 5, (40, 25, 10), **same | options)
        owner = np.concatenate([np.full(len(rows), site) for site, rows in data.site_labels.items()])
        sets.append(DataSet(f"generated, {name}", list(data.views), data.labels, owner))
    return sets


def measure(sets: Sequence[DataSet]) -> dict[tuple[str, str], list[Record | None]]:
    """What `peers.run` measures, of every algorithm and estimator on every set, by seed."""
    names = [name for pair in PAPER.items() for name in pair]
    jobs = [(data, name, seed) for data in sets for name in names for seed in SEEDS]
    records = Parallel(n_jobs=-1)(delayed(run)(*job) for job in jobs)
    found: dict[tuple[str, str], list[Record | None]] = {}
    for (data, name, _), record in zip(jobs, records, strict=True):
        found.setdefault((data.name, name), []).append(record)
    return found


def tables(title: str, sets: Sequence[DataSet], found: dict[tuple[str, str], list[Record | None]]) -> list[str]:
    """One table per measure: an algorithm, below it its corrected form."""
    lines = []
    for measure_name in MEASURES:
        rows = []
        for literal, corrected in PAPER.items():
            taken = [all(found[data.name, literal]) for data in sets]
            for name in (literal, corrected):
                per_set = [[record[measure_name] for record in found[data.name, name] if record] for data in sets]
                mean = np.mean([values for values, both in zip(per_set, taken, strict=True) if both], axis=0)
                rows.append((name if name == literal else f"**{name}**", *map(spread, (*per_set, mean))))
        lines += table(
            f"{title}: {measure_name} ({len(SEEDS)} seeds)",
            ("method", *(data.name for data in sets), "mean where both run"),
            rows,
        )
    return lines


def main() -> None:
    lines = []
    for title, sets in (("Shared data", shared_sets()), ("Generated data", generated_sets())):
        if sets:
            lines += tables(title, sets, measure(sets))
    text = "\n".join(lines)
    print(text)
    (RESULTS / "literal.md").write_text(text)


if __name__ == "__main__":
    main()
