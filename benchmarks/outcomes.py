"""Survival curves with noise: how far from the true ones, and how often their intervals hold.

    python benchmarks/outcomes.py [seeds] [first seed]

15,000 rows at ten sites, three clusters well apart, exponential lives with means of 1.5, 3 and 4.5 years, observed for
one to six years; epsilon 1, delta 1e-5. Errors and coverage are those at all times at which a curve is shown.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys

import numpy as np

import fedhk
from fedhk.privacy import DifferentialPrivacy

MEANS = np.array([1.5, 3.0, 4.5])


def make(seed):
    rng = np.random.default_rng(seed)
    sites, time, event = {}, {}, {}
    for site in (f"site-{i}" for i in range(10)):
        labels = rng.integers(0, 3, 1500)
        sites[site] = [rng.normal(0, 1, (1500, 2)) + 12 * np.eye(3)[labels][:, :2]]
        life, seen_to = rng.exponential(MEANS[labels]), rng.uniform(1, 6, 1500)
        time[site], event[site] = np.minimum(life, seen_to), (life <= seen_to) * 1.0
    corners = 12 * np.eye(3)[:, :2]
    model = fedhk.EFKMVC(3, init=[corners], scaling="standard", random_state=0).fit(sites)
    return model, sites, time, event


def main(seeds, first):
    print("| noise | largest error, mean over runs | worst run | runs within .05 | coverage | share of times shown |")
    print("|---|---|---|---|---|---|")
    for name, options in {
        "none": {"grid": np.linspace(0, 6, 13)},
        "each site": {"privacy": DifferentialPrivacy(1.0, 1e-5, bounds=(0, 6))},
        "shared under masks": {"privacy": DifferentialPrivacy(1.0, 1e-5, bounds=(0, 6)), "secure": True},
    }.items():
        errors, covered, shown = [], [], []
        for seed in range(first, first + seeds):
            model, sites, time, event = make(seed)
            found = fedhk.outcomes(model, sites, time=time, event=event, **options)
            true = np.exp(-found.times / MEANS[:, None])
            known = ~np.isnan(found.curves)
            errors.append(np.abs(found.curves - true)[known].max())
            covered.append(((found.lower <= true + 1e-12) & (true <= found.upper + 1e-12))[known].mean())
            shown.append(known.mean())
        within = np.mean(np.array(errors) < 0.05)
        row = (
            f"{np.mean(errors):.3f} | {max(errors):.3f} | {within:.2f} | {np.mean(covered):.3f} | {np.mean(shown):.2f}"
        )
        print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [20, 0][len(numbers) :]))
