"""How right the expectation before a private run is, and the fit of its coefficients.

    python benchmarks/expectation.py            # 50 settings that it was not fitted on
    python benchmarks/expectation.py --fit 95  # fit anew, on others

A setting is a generated federation: 500 to 20,000 rows at 4 to 10 sites, 2 to 12 clusters, one to three views of 2 to
40 features, clusters 4 to 10 deviations apart, epsilon .2 to 4, one noise on the secure sum or noise at each site, all
drawn at random, rows and epsilon by their logarithms. The expectation, a share of what the plain run finds, is right
where it is within .1 of the ARI: the share times the plain ARI against that of the private run.

What is missing is how far apart clusters are, which nobody knows before a run. Fitted anew to the 150 settings from
seed 5000 on, the rule is right in 35 of the 50 from seed 7000 on, as the present one is. Held out in turn (five parts
of the 150), it is right in 77 of 100 cases, ten other forms of noise, features and clusters in 71 to 75, and with the
separation that the data were made with in 82.

What a start has released does not say it either. With the start that knows its middle better, the rule is right in 34
of 50 settings that nobody had looked at (seeds 8000 to 8049). Refined after the start, before the rounds are paid for,
by the share of directions that stand out of noise, by what the centres explain of the points, by how much counts differ
beyond noise, by empty clusters, or by two or three of these (fitted to the 50 from seed 5000 on), it is right in 32 to
36. Much of the rest is luck: of two private runs of the same generated mixture, 85 in 100 are within .1 of each other.

With first rounds of more centres it is right in 37 of the 50 from seed 9000 on, which nobody had looked at, and in 76
of the 95 that it was fitted on. Fitted anew to these (1.41 and 1.55) it is right in 37 as well; with weights of their
own for the noise in directions, in counts and in centres, or with some of these alone, in 31 to 38. Of the 13 that are
wrong nine find less than expected, eight of them in 23 to 78 features: there the spread within clusters, which nobody
knows before, hides directions.

How much of it luck decides was measured with one plain and three private runs of each of 495 settings (seeds 20000 to
20494, not to be judged on any more). The present rule is right for .679 of the runs; fitted anew .671, with a floor
.662, with the width of views .698, with both .680 (held out in five parts, differences of .03 are near their error);
with the separation that nobody knows .716. Another private run of the same setting would be right for .770 of them,
and the mean of two others for .806 of the first 160: a rule that is judged on single runs cannot be much better than
the bar of 40 in 50. Where it is wrong, wide views with clusters that are little apart find less, and starts under
heavy noise, which are drawn from the whole range, find more.
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=int, nargs="?", default=50, help="how many to judge by")
    parser.add_argument("--fit", type=int, default=0, help="so many settings to fit to")
    given = parser.parse_args()

import warnings
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from data import RESULTS
from fedhk import EFKMVC
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.expectation import NoisySetting, expect_share
from tables import table

FIRST_SHOWN, FIRST_FITTED = 6000, 5000


def run_setting(seed: int) -> tuple[NoisySetting, float, float, str]:
    """A random setting, the ARI of the plain and of the private run, and the setting in words."""
    rng = np.random.default_rng(seed)
    n_sites, c = int(rng.integers(4, 11)), int(rng.integers(2, 13))
    rows = int(np.exp(rng.uniform(np.log(500), np.log(20_000))))
    widths = tuple(int(width) for width in np.exp(rng.uniform(np.log(2), np.log(40), rng.integers(1, 4))))
    separation, epsilon = float(rng.uniform(4, 10)), float(np.exp(rng.uniform(np.log(0.2), np.log(4))))
    secure = bool(rng.random() < 0.6)
    options: dict[str, Any] = {"shift": 0, "scale": 0, "class_mix": None, "size_spread": 0, "separation": separation}
    data = make_sites(n_sites, max(rows // n_sites, 20), n_clusters=c, n_features=widths, random_state=seed, **options)
    bounds = [(float(np.floor(view.min())), float(np.ceil(view.max()))) for view in data.views]
    privacy = DifferentialPrivacy(epsilon, 1e-6, bounds)
    truth, found = np.concatenate(list(data.site_labels.values())), []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in ({}, {"privacy": privacy, "secure": secure}):
            model = EFKMVC(c, scaling="standard", random_state=seed, **given).fit(data.sites)
            labels = np.concatenate([model.labels_[site] for site in data.site_labels])
            found.append(float(adjusted_rand_score(truth, labels)))
    setting = NoisySetting(privacy, len(truth), sum(widths), c, 1.0 if secure else n_sites)
    words = f"{len(truth)} rows, {n_sites} sites, {c} clusters, {'+'.join(map(str, widths))} features"
    return setting, *found, f"{words}, epsilon {epsilon:.2g}, {'one noise' if secure else 'noise at each site'}"


def fit(seeds: range) -> None:
    """Print coefficients that fit what runs find."""
    found = []
    for seed in seeds:
        found.append(run_setting(seed))
        print(seed, *found[-1][1:], flush=True)
    noise = np.sqrt([np.prod(setting.measure_noise()[:2]) for setting, *_ in found])
    plain, private = (np.array([line[place] for line in found]) for place in (1, 2))

    def errors(weights: Any) -> Any:
        return plain * np.exp(-((noise / np.exp(weights[0])) ** weights[1])) - private

    found_at = least_squares(errors, [0.0, 1.5], loss="cauchy", f_scale=0.05).x
    print("NOISE_SCALE, STEEPNESS =", [np.exp(found_at[0]), found_at[1]])


def show(seeds: range) -> list[str]:
    """Expected and found, setting by setting."""
    lines, right = [], 0
    for seed in seeds:
        setting, plain, private, words = run_setting(seed)
        expected = expect_share(setting) * plain
        right += abs(expected - private) <= 0.1
        lines.append((words, f"{plain:.2f}", f"{expected:.2f}", f"{private:.2f}"))
    head = ["setting", "ARI without noise", "expected with noise", "found"]
    return table(f"Expectation before a run: right within .1 in {right} of {len(seeds)} settings", head, lines)


def main(given: argparse.Namespace) -> None:
    if given.fit:
        fit(range(FIRST_FITTED, FIRST_FITTED + given.fit))
        return
    report = "\n".join(show(range(FIRST_SHOWN, FIRST_SHOWN + given.settings)))
    print(report)
    (RESULTS / "privacy-expectation.md").write_text(report)


if __name__ == "__main__":
    main(given)
