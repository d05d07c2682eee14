"""Models that are updated every month against models that are fitted anew from all rows so far, and false alarms.

Ten sites, a year. Clusters move, split, vanish, appear, or all of it; the model of the first month is updated with the
rows of each month. Beside it a model is fitted anew from all rows so far, with the number of clusters that there were.
Both are judged on the rows of the month: adjusted Rand index with the true clusters. Bytes are those of real messages,
up and down, of all updates over those of all new fits.

False alarms: the drift report of the first update and of the third, where nothing moves.

    python benchmarks/update.py drift --seeds 3
    python benchmarks/update.py drift --estimator FedHKDiffusion --kinds moving moons
    python benchmarks/update.py alarms --runs 200
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["drift", "alarms"])
    estimators = ("EFKMVC", "FedHKDiffusion")
    parser.add_argument("--estimator", default="EFKMVC", choices=estimators)
    parser.add_argument("--seeds", type=int, default=3, help="years of each kind of drift")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first year; the others follow")
    parser.add_argument("--runs", type=int, default=200, help="runs without drift")
    parser.add_argument("--separation", type=float, nargs="+", help="of centres, per feature, in standard deviations")
    parser.add_argument("--rows", type=int, default=100, help="rows of a site in a month")
    parser.add_argument("--half-life", type=float, default=1.0, help="of updates, in months; 0 never forgets")
    parser.add_argument("--rounds", type=int, default=3, help="most rounds of an update")
    kinds = ("moving", "splitting", "vanishing", "new", "all", "none", "moons")
    parser.add_argument("--kinds", nargs="+", default=kinds[:-1], choices=kinds)
    parser.add_argument("--verbose", action="store_true", help="also show every month")
    given = parser.parse_args()

import warnings

import numpy as np
from sklearn.metrics import adjusted_rand_score

import fedhk

SITES, MONTHS, CLUSTERS, WIDTHS = 10, 12, 6, (20, 20)
KINDS = ("moving", "splitting", "vanishing", "new", "all", "none", "moons")

# Standard deviations that a cluster moves in a month, and in all from month 2 to 12 each half of one that splits.
SPEED = 0.5


class Year:
    """Where clusters are in each month, and how many of the rows they have."""

    def __init__(self, kind: str, seed: int, *, separation: float = 0.8, shift: float = 0.15) -> None:
        self.rng = np.random.default_rng([seed, KINDS.index(kind)])
        width = sum(WIDTHS)
        self.kind, self.shift = kind, shift
        self.centers = separation * self.rng.normal(size=(CLUSTERS + 2, width))
        self.ways = self.rng.normal(size=(CLUSTERS + 2, width))
        self.ways /= np.linalg.norm(self.ways, axis=1, keepdims=True)
        self.offsets = {f"site-{i}": shift * self.rng.normal(size=width) for i in range(SITES)}
        self.mix = {site: self.rng.dirichlet(np.full(CLUSTERS + 2, 5.0)) for site in self.offsets}

    def at(self, month: int) -> tuple[np.ndarray, np.ndarray]:
        """Centres and shares of the clusters in a month; the last two are the new one and a half of the first."""
        has = {name: self.kind in (name, "all") for name in ("moving", "splitting", "vanishing", "new")}
        centers, shares = self.centers.copy(), np.ones(CLUSTERS + 2)
        if has["moving"]:
            centers[1:4] += SPEED * month * self.ways[1:4]
        shares[-2:] = 0.0
        if has["splitting"]:
            apart = SPEED * max(month - 1, 0) * self.ways[0]
            centers[-1], centers[0] = self.centers[0] - apart, self.centers[0] + apart
            shares[[0, -1]] = (0.5, 0.5) if month > 1 else (1.0, 0.0)
        if has["vanishing"]:
            shares[4] = max(1.0 - month / 5, 0.0)
        if has["new"] and month >= 5:
            shares[-2] = 1.0
        return centers, shares

    def rows(self, month: int, per_site: int) -> tuple[dict, dict]:
        """The rows of a month by site, and their clusters."""
        centers, shares = self.at(month)
        sites, labels = {}, {}
        for site, offset in self.offsets.items():
            mix = shares * self.mix[site]
            labels[site] = self.rng.choice(len(mix), per_site, p=mix / mix.sum())
            rows = centers[labels[site]] + offset + self.rng.normal(size=(per_site, sum(WIDTHS)))
            sites[site] = np.split(rows, np.cumsum(WIDTHS)[:-1], axis=1)
        return sites, labels


class Moons(Year):
    """Two half moons in each of two views; the last third of one bends away, by more each month."""

    def at(self, month: int) -> np.ndarray:
        """How far the end of the first moon has moved."""
        return np.array([-0.08, 0.04]) * month

    def rows(self, month: int, per_site: int) -> tuple[dict, dict]:
        sites, labels = {}, {}
        for site, offset in self.offsets.items():
            found = self.rng.random(per_site) < self.mix[site][0] / self.mix[site][:2].sum()
            labels[site], sites[site] = found.astype(int), []
            angle = np.pi * self.rng.random(per_site)  # the same in both views
            for view in range(2):
                upper = np.column_stack([np.cos(angle), np.sin(angle)])
                lower = np.column_stack([1 - np.cos(angle), 0.5 - np.sin(angle)])
                rows = np.where(found[:, None], lower, upper)
                bent = np.where(found, 0.0, np.maximum(angle / np.pi - 2 / 3, 0.0) * 3)
                rows += bent[:, None] * self.at(month)
                noise = 0.1 * self.rng.normal(size=rows.shape)
                sites[site].append(rows + noise + 0.1 * offset[2 * view : 2 * view + 2])
        return sites, labels


def make_year(kind: str, seed: int, **settings) -> Year:
    return (Moons if kind == "moons" else Year)(kind, seed, **settings)


def score(found, labels):
    return adjusted_rand_score(np.concatenate(list(labels.values())), np.concatenate([found[s] for s in labels]))


def total_bytes(records):
    return sum(record["bytes_up"] + record["bytes_down"] for record in records)


def follow(year: Year, estimator, per_site: int, half_life: float | None, rounds: int):
    """ARI of the updated and of the new model in each month, the bytes of both, and what updates said."""
    sites, labels = year.rows(0, per_site)
    first = np.concatenate(list(labels.values()))
    model = estimator(len(set(first.tolist())), random_state=0).fit(sites)
    so_far, seen, scores, sent = sites, set(first.tolist()), [], [0, 0]
    for month in range(1, MONTHS + 1):
        sites, labels = year.rows(month, per_site)
        model.update(sites, half_life=half_life, rounds=rounds)
        so_far = {s: [np.vstack(pair) for pair in zip(so_far[s], sites[s], strict=True)] for s in sites}
        seen |= set(np.concatenate(list(labels.values())).tolist())
        anew = estimator(len(seen), random_state=0).fit(so_far)
        now = {s: anew.labels_[s][-per_site:] for s in sites}
        scores.append((score(model.labels_, labels), score(now, labels)))
        sent[0] += model.updates_[-1]["bytes_up"] + model.updates_[-1]["bytes_down"]
        sent[1] += total_bytes(anew.history_)
    return np.array(scores), sent, model.updates_


def show_drift(given: argparse.Namespace) -> None:
    print("| drift | ARI updated | ARI anew | ratio | worst month | bytes | clusters at the end, new, gone |")
    print("|---|---|---|---|---|---|---|")
    (apart,) = given.separation or [0.8]
    estimator = getattr(fedhk, given.estimator)
    for kind in given.kinds:
        found = [
            follow(
                make_year(kind, seed, separation=apart), estimator, given.rows, given.half_life or None, given.rounds
            )
            for seed in range(given.first_seed, given.first_seed + given.seeds)
        ]
        scores = np.stack([scores for scores, _, _ in found])
        if given.verbose:
            print(np.round(scores.mean(axis=0).T, 3))
        updated, anew = scores.mean(axis=(0, 1))
        worst = (scores.mean(axis=0)[:, 0] / scores.mean(axis=0)[:, 1]).min()
        share = sum(sent[0] for _, sent, _ in found) / sum(sent[1] for _, sent, _ in found)
        ends = [
            (updates[-1]["n_clusters"], sum(len(u["new"]) for u in updates), sum(len(u["gone"]) for u in updates))
            for _, _, updates in found
        ]
        print(
            f"| {kind} | {updated:.3f} | {anew:.3f} | {updated / anew:.3f} | {worst:.3f} | {share:.3f} | {ends} |",
            flush=True,
        )


def show_alarms(estimator, runs: int, per_site: int, separations: list[float]) -> None:
    """Share of runs without drift in which a report has any line that says moved."""
    print("| separation | runs | first update | third update |\n|---|---|---|---|")
    for separation in separations:
        alarms = np.zeros(2)
        for seed in range(runs):
            year = Year("none", seed, separation=separation, shift=0.5)
            model = estimator(CLUSTERS, random_state=0, n_init=3, scaling="standard").fit(year.rows(0, per_site)[0])
            for update in range(3):
                model.update(year.rows(0, per_site)[0], half_life=6)
                if update != 1:
                    alarms[update // 2] += any(line["moved"] for line in model.drift_)
        print(f"| {separation} | {runs} | {alarms[0] / runs:.3f} | {alarms[1] / runs:.3f} |", flush=True)


def main(given: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    if given.what == "alarms":
        show_alarms(getattr(fedhk, given.estimator), given.runs, given.rows, given.separation or [0.6, 1.6])
    else:
        show_drift(given)


if __name__ == "__main__":
    main(given)
