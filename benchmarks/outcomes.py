"""Survival curves with noise: how far from the true ones, and how often their intervals hold.

    python benchmarks/outcomes.py [seeds] [first seed] [--ratios]

15,000 rows at ten sites, three clusters well apart, exponential lives with means of 1.5, 3 and 4.5 years, observed for
one to six years; epsilon 1, delta 1e-5. Errors and coverage are those at all times at which a curve is shown.

With --ratios: the hazard ratio of the smaller of two clusters, three in ten of 9,000 rows at six sites, exponential
lives.
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


def make_pair(ratio, seed):
    rng = np.random.default_rng(seed)
    sites, time, event = {}, {}, {}
    for site in (f"site-{i}" for i in range(6)):
        labels = (rng.random(1500) > 0.3).astype(int)
        sites[site] = [rng.normal(0, 1, (1500, 2)) + 12 * labels[:, None]]
        life, seen_to = rng.exponential(3 / np.where(labels == 0, ratio, 1.0)), rng.uniform(1, 6, 1500)
        time[site], event[site] = np.minimum(life, seen_to), (life <= seen_to) * 1.0
    corners = np.array([[0.0, 0.0], [12.0, 12.0]])
    model = fedhk.EFKMVC(2, init=[corners], scaling="standard", random_state=0).fit(sites)
    return model, sites, {"time": time, "event": event}


def main_ratios(seeds, first):
    print("| hazard ratio | noise | found, geometric mean | 95 % intervals that have it |\n|---|---|---|---|")
    private = {"privacy": DifferentialPrivacy(1.0, 1e-5, bounds=(0, 6)), "secure": True}
    for ratio in (0.2, 0.5, 1.0, 2.0, 5.0):
        for name, options in {"none": {}, "shared under masks": private}.items():
            found, covered = [], []
            for seed in range(first, first + seeds):
                model, sites, outcome = make_pair(ratio, seed)
                one = fedhk.outcomes(model, sites, **outcome, **options)
                found.append(np.log(one.hazard_ratio[0]))
                covered.append(one.hazard_lower[0] <= ratio <= one.hazard_upper[0])
            print(f"| {ratio} | {name} | {np.exp(np.mean(found)):.2f} | {np.mean(covered):.2f} |", flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    numbers += [20, 0][len(numbers) :]
    if "--ratios" in sys.argv:
        main_ratios(*numbers)
    else:
        main(*numbers)
