"""`FedHKDiffusion` on a million rows: seconds and memory.

    python benchmarks/million.py                 # 10 sites of 100,000 rows, two views of 24 features, 8 clusters
    python benchmarks/million.py --rows 20000    # another number of rows, printed only

Bars: 90 seconds on two cores, and 2 GB. Memory is the most that the process had, rows included.
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of all sites")
    options = parser.parse_args()

import resource
import time
import warnings

import numpy as np
from sklearn.metrics import adjusted_rand_score

from data import RESULTS
from fedhk import FedHKDiffusion

SITES, CLUSTERS, WIDTHS, ROWS = 10, 8, (24, 24), 1_000_000
JUDGED = 20_000  # rows whose labels are compared with the truth


def make_rows(n_rows: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows of normal clusters whose means are 1.5 spreads apart in each feature, and their clusters."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLUSTERS, size=n_rows)
    means = [1.5 * rng.standard_normal((CLUSTERS, width), dtype=np.float32) for width in WIDTHS]
    views = [part[labels] for part in means]
    for view in views:
        np.add(view, rng.standard_normal(view.shape, dtype=np.float32), out=view)
    return views, labels


def main(options: argparse.Namespace) -> None:
    n_rows = options.rows
    warnings.simplefilter("ignore")
    views, labels = make_rows(n_rows)
    sites = {f"site-{i}": [view[i::SITES] for view in views] for i in range(SITES)}
    began, worked = time.perf_counter(), time.process_time()
    model = FedHKDiffusion(CLUSTERS, random_state=0).fit(sites)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    found = np.empty(n_rows, int)
    for i in range(SITES):
        found[i::SITES] = model.labels_[f"site-{i}"]
    score = adjusted_rand_score(labels[:JUDGED], found[:JUDGED])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    text = (
        f"{n_rows:,} rows of {sum(WIDTHS)} features at {SITES} sites: {seconds:.0f} s on the clock, {worked:.0f} s of "
        f"the processor, at most {memory:,.0f} MB; ARI {score:.3f}.\n"
    )
    print(text)
    if n_rows == ROWS:
        (RESULTS / "million.md").write_text(f"# A million rows\n\n`python benchmarks/million.py`\n\n{text}")


if __name__ == "__main__":
    main(options)
