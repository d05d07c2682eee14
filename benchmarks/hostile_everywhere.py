"""Hostile sites that lie in every exchange: what 4 of 20 of them cost the others, from the first message to the last.

    python benchmarks/hostile_everywhere.py

`hostile.py` lies in the rounds, from an honest start. Here whole fits are attacked: means and spreads of features,
candidates, rounds, and the sums at the end. Figures are by how much the ARI of the rows of the 16 honest sites
differs from that of a fit of these 16 alone with plain sums.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import adjusted_rand_score

from data import RESULTS, seeds
from fedhk import EFKMVC, Participation
from fedhk.datasets import split_dirichlet, split_even, split_views
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.testing.hostile import LIES, Lies, StatisticsLie, lying_sites
from hostile import ATTACKS, made
from tables import spread, table

# other seeds than those by which the robust sums were written, which were 0 to 2
SEEDS, N_SITES, N_HOSTILE = seeds(5, first=10), 20, 4
WAYS = ("sum", "robust")

# also sites that are off by so much that they would be left out as mistaken
ALL_STAY = Participation(deviating="warn")

SPLITS = {"even split": np.inf, "Dirichlet(1)": 1.0}

Source = Callable[[int], tuple[list[np.ndarray], np.ndarray]]


def digits(_: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The upper and the lower half of the pictures."""
    data = load_digits()
    return [data.data[:, :32], data.data[:, 32:]], data.target


def cancer(_: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Mean, error and worst value of ten features."""
    data = load_breast_cancer()
    return np.split(data.data, 3, axis=1), data.target


SOURCES: dict[str, Source] = {"generated": made, "breast cancer": cancer, "digits": digits}


def in_rounds(name: str) -> StatisticsLie:
    """A lie of `hostile.py`, told by one site."""

    def lie(own: Statistics, honest: list[Statistics], parameters: Parameters) -> Statistics:
        return ATTACKS[name]([own], honest, parameters)[0]

    return lie


PLAUSIBLE = LIES["just plausible, in every exchange"]
TOLD = {"nobody lies": Lies()} | LIES
TOLD |= {
    f"just plausible, {name} in rounds": replace(PLAUSIBLE, statistics=in_rounds(name))
    for name in ("ALIE", "concentration")
}


def agreements(source: str, mix: float, seed: int) -> dict[tuple[str, str], float]:
    """By lie and way to bring answers together, how the honest sites' agreement differs."""
    views, labels = SOURCES[source](seed)
    rows = (
        split_even(labels, N_SITES, seed)
        if np.isinf(mix)
        else split_dirichlet(labels, N_SITES, mix, min_rows=3, random_state=seed)
    )
    hostile = set(np.random.default_rng(1000 + seed).choice(sorted(rows), N_HOSTILE, replace=False).tolist())
    honest = [site for site in sorted(rows) if site not in hostile]
    truth, sites = np.concatenate([labels[rows[site]] for site in honest]), split_views(views, rows)

    def agreement(told: Lies, way: str, taking_part: list[str]) -> float:
        model = EFKMVC(len(np.unique(labels)), aggregator=way, participation=ALL_STAY, random_state=seed)
        with warnings.catch_warnings(), lying_sites(hostile, told):
            warnings.simplefilter("ignore")
            model.fit({site: sites[site] for site in taking_part})
        return float(adjusted_rand_score(truth, np.concatenate([model.labels_[site] for site in honest])))

    alone = agreement(Lies(), "sum", honest)
    found = {(lie, way): agreement(told, way, sorted(rows)) - alone for lie, told in TOLD.items() for way in WAYS}
    return found | {("alone", "sum"): alone}


def main() -> None:
    jobs = [(source, kind, seed) for source in SOURCES for kind in SPLITS for seed in SEEDS]
    done = Parallel(n_jobs=-1)(delayed(agreements)(source, SPLITS[kind], seed) for source, kind, seed in jobs)
    lines = []
    for source in SOURCES:
        for kind in SPLITS:
            parts = [found for job, found in zip(jobs, done, strict=True) if job[:2] == (source, kind)]
            title = f"{source}, {kind}: honest sites alone {spread([part['alone', 'sum'] for part in parts])}"
            shown = [(lie, *(spread([part[lie, way] for part in parts], sign="+") for way in WAYS)) for lie in TOLD]
            lines += table(title, ("", *WAYS), shown)
    report = "\n".join(lines)
    print(report)
    (RESULTS / "hostile-every-exchange.md").write_text(report)


if __name__ == "__main__":
    main()
