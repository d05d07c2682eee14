"""A sparse view with very many columns over sites: seconds, memory and bytes against what the rows themselves cost.

    python benchmarks/wide.py                    # 200,000 columns, 10 sites of 2,000 rows of 50 words
    python benchmarks/wide.py --columns 50000

Rows are generated documents of eight topics: 35 words of the topic, 15 of the common language, both by Zipf's law.
Agreement with the topics stands beside that of k-means on all rows in one place with all columns (tf-idf).
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=200_000, help="of the view")
    parser.add_argument("--rows", type=int, default=2000, help="rows of a site")
    given = parser.parse_args()

import resource
import time

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import adjusted_rand_score

import fedhk
from data import RESULTS
from tables import table

SITES, TOPICS, WORDS, OWN = 10, 8, 50, 35
FRESH_MEGABYTES = 1024.0  # ru_maxrss is in kilobytes


def make_documents(n_rows: int, n_columns: int, seed: int) -> tuple[sp.csr_array, np.ndarray]:
    """Documents and their topics."""
    rng = np.random.default_rng(seed)
    language = 1 / np.arange(1, n_columns + 1) ** 1.05
    topics = rng.integers(TOPICS, size=n_rows)
    words = np.empty((n_rows, WORDS), np.int32)
    words[:, OWN:] = draw(language, (n_rows, WORDS - OWN), rng)
    for topic in range(TOPICS):
        rows = np.flatnonzero(topics == topic)
        spoken = language * np.exp(1.5 * rng.standard_normal(n_columns))
        words[rows, :OWN] = draw(spoken, (len(rows), OWN), rng)
    starts = np.arange(0, words.size + 1, WORDS, dtype=np.int32)
    found = sp.csr_array((np.ones(words.size), words.ravel(), starts), (n_rows, n_columns))
    found.sum_duplicates()
    return found, topics


def draw(shares: np.ndarray, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    return np.searchsorted(np.cumsum(shares) / shares.sum(), rng.random(shape)).clip(max=len(shares) - 1)


def run(estimator: str, rows: sp.csr_array, topics: np.ndarray) -> list[str]:
    """One line of the table."""
    per_site = rows.shape[0] // SITES
    sites = {f"site-{i}": {"text": rows[i * per_site : (i + 1) * per_site]} for i in range(SITES)}
    began, worked = time.perf_counter(), time.process_time()
    model = getattr(fedhk, estimator)(n_clusters=TOPICS, random_state=0).fit(sites)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    labels = np.concatenate([model.labels_[site] for site in sites])
    up, down = (sum(r[name] for r in model.history_) / SITES / 1e6 for name in ("bytes_up", "bytes_down"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / FRESH_MEGABYTES
    numbers = [f"{seconds:.0f}", f"{worked:.0f}", f"{peak:.0f}", f"{up:.2f}", f"{down:.2f}", str(model.n_iter_)]
    return [estimator, *numbers, f"{adjusted_rand_score(topics, labels):.3f}"]


def main(given: argparse.Namespace) -> None:
    rows, topics = make_documents(SITES * given.rows, given.columns, seed=0)
    lines = [run(estimator, rows, topics) for estimator in ("EFKMVC", "FedHKPerson", "FedHKDiffusion")]
    weighed = TfidfTransformer().fit_transform(sp.csr_matrix(rows))
    found = KMeans(TOPICS, n_init=3, random_state=0).fit_predict(weighed)
    lines.append(["k-means, pooled, all columns", *[""] * 6, f"{adjusted_rand_score(topics, found):.3f}"])
    own = rows.nnz / SITES * 12 / 1e6
    rows_text = f"{SITES} sites of {given.rows:,} rows of {WORDS} words: {own:.1f} MB of cells a site"
    title = f"{given.columns:,} columns, {rows_text}"
    header = ["what", "s", "processor s", "peak so far, MB", "up, MB a site", "down, MB a site", "rounds", "ARI"]
    report = "\n".join(table(title, header, lines))
    print(report)
    (RESULTS / "wide.md").write_text(f"# A very wide sparse view\n\n`python benchmarks/wide.py`\n{report}")


if __name__ == "__main__":
    main(given)
