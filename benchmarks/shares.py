"""How exact limits and quartiles of questions after a fit are: `TAIL_SHARE` of `find_limit`, and bins of `profile`.

    python benchmarks/shares.py [seeds] [first seed]

Limits: 20 columns of one kind in one view; share of fresh sound rows that are beyond a limit at `rare=0.01`, and share
of rows found that have one cell ten spreads from its mean. Quartiles: largest error of the three quartiles of any
cluster, and of all rows, over the interquartile range; three clusters of 3,000 rows, of which the last has 2 % of the
rows and may lie far away.
"""

from __future__ import annotations

import sys

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import numpy as np

import fedhk
from fedhk.after import placement

TAIL_SHARES = (0.05, 0.1, 0.2, 0.4)
KINDS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape) * np.sqrt(3),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "t, 4 degrees": lambda rng, shape: rng.standard_t(4, shape) / np.sqrt(2),
    "lognormal": lambda rng, shape: rng.lognormal(size=shape) / 2.16,
}
COLUMNS, FRESH, RARE = 20, 4000, 0.01


def measure_limits(kind, n_rows, seed):
    """False alarms and wrong cells that are found, for each share."""
    rng = np.random.default_rng(seed)
    rows, fresh = (KINDS[kind](rng, (count, COLUMNS)) for count in (n_rows, FRESH))
    model = fedhk.HeatKernelMVC(2, scaling="standard", random_state=0).fit(rows)
    wrong = fresh[:500].copy()
    place = rng.integers(0, COLUMNS, 500)
    wrong[np.arange(500), place] = rows[:, place].mean(axis=0) + 10 * rows[:, place].std(axis=0)
    found = []
    for placement.TAIL_SHARE in TAIL_SHARES:
        limit = fedhk.find_limit(model, rows, rare=RARE)
        found.append([fedhk.place(model, some, limit=limit).outlier.mean() for some in (fresh, wrong)])
    placement.TAIL_SHARE = 0.1
    return np.array(found)


def measure_quartiles(kind, far, n_rows, seed):
    """The largest errors of the quartiles of each cluster and of all rows, over the interquartile range."""
    rng = np.random.default_rng(seed)
    group = rng.choice(3, n_rows, p=[0.6, 0.38, 0.02])
    later = KINDS[kind](rng, (n_rows, 1)) + np.array([0.0, 1.0, far])[group][:, None]
    sites = {"only": {"rows": 20.0 * group[:, None] + rng.standard_normal((n_rows, 2)), "later": later}}
    init = [20.0 * np.arange(3)[:, None] * np.ones(2)]
    model = fedhk.EFKMVC(3, scaling="none", init=init, random_state=0).fit({"only": {"rows": sites["only"]["rows"]}})
    labels, found = model.labels_["only"], fedhk.profile(model, sites)
    parts = [later[labels == k, 0] for k in range(3)] + [later[:, 0]]
    true = np.array([np.quantile(part, [0.25, 0.5, 0.75], method="hazen") for part in parts]).T
    ours = np.column_stack([found.quartiles[:, :, -1], found.overall_quartiles[:, -1]])
    return (np.abs(ours - true) / (true[2] - true[0])).max(axis=0)


def main(count, first):
    print("| columns | rows | " + " | ".join(f"tail share {share}" for share in TAIL_SHARES) + " |")
    print("|---|---|" + "---|" * len(TAIL_SHARES))
    for kind in KINDS:
        for n_rows in (300, 3000):
            false, found = np.mean([measure_limits(kind, n_rows, first + s) for s in range(count)], axis=0).T
            cells = " | ".join(f"{a:.4f}, {b:.2f}" for a, b in zip(false, found, strict=True))
            print(f"| {kind} | {n_rows} | {cells} |", flush=True)
    print("\n| column | small cluster at | 60 % of rows | 38 % | 2 % | all rows |\n|---|---|---|---|---|---|")
    for kind in ("normal", "lognormal", "t, 4 degrees"):
        for far in (0.0, 8.0, 40.0):
            errors = np.max([measure_quartiles(kind, far, 3000, first + s) for s in range(count)], axis=0)
            print(f"| {kind} | {far:g} | " + " | ".join(f"{100 * one:.1f} %" for one in errors) + " |", flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    main(*(numbers + [3, 81000][len(numbers) :]))
