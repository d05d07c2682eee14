"""What the in-process engine costs per site and round, with many small sites.

    python benchmarks/engine.py

Every message is really encoded, checked and decoded. The bar is 1 ms per site and round at 1,000 sites of 50 rows,
passes over the rows included. The cost of encoding and decoding alone stands beside it.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import time

import numpy as np

from data import RESULTS
from fedhk import EFKMVC
from fedhk.datasets import make_sites
from fedhk.federation.messages import Message, decode, encode
from tables import spread, table


def per_site_and_round(n_sites: int, n_rows: int, rounds: int) -> tuple[np.ndarray, float]:
    """Milliseconds per site in each round but the first and the last, and seconds for the whole fit."""
    data = make_sites(n_sites, n_rows, n_clusters=5, n_features=(10, 10), size_spread=0.0, random_state=0)
    assert data.sites is not None
    init = [view[:5] for view in data.views]
    model = EFKMVC(5, init=init, max_rounds=rounds, tol=0)
    began = time.perf_counter()
    model.fit(data.sites)
    whole = time.perf_counter() - began
    return np.array([1e3 * record["seconds"] / n_sites for record in model.history_[1:-1]]), whole


def envelope() -> float:
    """Milliseconds for one answer to be encoded and decoded."""
    rng = np.random.default_rng(0)
    message = Message("round", "site-0000", 3, {"numerators": rng.random((5, 20)), "weights": rng.random((5, 2))})
    began = time.perf_counter()
    for _ in range(2000):
        decode(encode(message))
    return (time.perf_counter() - began) / 2


def main() -> None:
    rows = []
    for n_sites, n_rows, rounds in ((10, 50, 20), (100, 50, 20), (1000, 50, 10), (10_000, 50, 4)):
        costs, whole = per_site_and_round(n_sites, n_rows, rounds)
        rows.append((f"{n_sites:,}", n_rows, f"{np.median(costs):.2f}", spread(costs, 2), f"{whole:.1f}", rounds))
    names = ("sites", "rows each", "ms per site and round, median", "mean over rounds", "whole fit, s", "rounds")
    lines = table("Engine: cost per site and round", names, rows)
    lines += [f"Encoding and decoding one answer: {envelope():.2f} ms.", ""]
    report = "\n".join(lines)
    print(report)
    (RESULTS / "engine.md").write_text(report)


if __name__ == "__main__":
    main()
