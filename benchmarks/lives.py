"""Survival curves from counts with noise, for lives of several kinds: how near they are, and whether intervals hold.

    python benchmarks/lives.py [draws] [first seed]

Three clusters of 5,000 rows, or of 3,000, observed for one to six years, in 12 intervals; the noise in a count is that
of epsilon 1, delta 1e-5 at ten sites, each with its own (16.7), or shared under masks (6.3). Scales of lives are 1.5, 3
and 4.5 years; of those that are long, 7.5, 9 and 12. The error is the largest of the three curves, where they are
shown.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys

import numpy as np

from fedhk.after.run import Answer
from fedhk.after.survival import NOISY_KINDS, SurvivalCounts, SurvivalRequest, read_survival
from fedhk.federation.board import Board

GRID, SHORT, LONG = np.linspace(0.0, 6.0, 13), (1.5, 3.0, 4.5), (7.5, 9.0, 12.0)
KINDS = {
    "exponential": (1.0, 0.0, SHORT),
    "hazard that rises (Weibull, 2)": (2.0, 0.0, SHORT),
    "hazard that falls (Weibull, 1/2)": (0.5, 0.0, SHORT),
    "none for a year, then exponential": (1.0, 1.0, SHORT),
    "long, exponential": (1.0, 0.0, LONG),
    "long, hazard that rises (Weibull, 2)": (2.0, 0.0, LONG),
}


def draw_counts(shape, begin, scale, rows, rng):
    life, seen_to = begin + scale * rng.weibull(shape, rows), rng.uniform(1, 6, rows)
    values = np.column_stack([np.minimum(life, seen_to), life <= seen_to])
    asked = SurvivalRequest(1, GRID, NOISY_KINDS)
    counts = np.bincount(asked.find_places(values), minlength=asked.n_places)[:-1]
    return np.pad(counts.reshape(-1, NOISY_KINDS).astype(float), ((asked.first, 0), (0, 0)))


def measure(lives, rows, noise, seed):
    shape, begin, scales = lives
    rng = np.random.default_rng(seed)
    counts = np.array([draw_counts(shape, begin, scale, rows, rng) for scale in scales])
    counts[:, 1:] += noise * rng.standard_normal(counts[:, 1:].shape)
    board = Board().put(SurvivalCounts(GRID, counts, np.zeros(3), noise))
    found = read_survival(Answer(board, None, None, {}, 0, 0, 0), None, 5)
    true = np.exp(-((np.maximum(GRID - begin, 0) / np.array(scales)[:, None]) ** shape))
    known = ~np.isnan(found.curves)
    held = (found.lower <= true + 1e-12) & (true <= found.upper + 1e-12)
    return np.abs(found.curves - true)[known].max(), held[known].mean()


def main(draws, first):
    print("| lives | rows of a cluster | noise in a count | error, mean | 95 of 100 below | within .05 | coverage |")
    print("|---|---|---|---|---|---|---|")
    for name, lives in KINDS.items():
        for rows in (5000, 3000):
            for noise in (16.7, 6.3):
                seeds = range(first, first + draws)
                error, held = np.array([measure(lives, rows, noise, seed) for seed in seeds]).T
                cells = f"{error.mean():.3f} | {np.quantile(error, 0.95):.3f} | {np.mean(error < 0.05):.2f}"
                print(f"| {name} | {rows:,} | {noise} | {cells} | {held.mean():.3f} |", flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [80, 12000][len(numbers) :]))
