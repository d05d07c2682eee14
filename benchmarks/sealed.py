"""Compressed and sealed: bytes and quality of rounds in a basis under masks, and what noise costs in it.

    python benchmarks/sealed.py

Under masks, ten sites with classes spread by Dirichlet(0.5), three seeds. "kB" is what one site sends and hears over
the whole run, set-up included, in units of 1000 bytes. "orl-like" are made here: 40 clusters of ten rows in views of
4096, 3304 and 6750 features, as of faces: 60 components that fade, in which clusters differ and rows too, and noise in
every feature. With noise, generated clusters of 15,000 rows at ten sites, six seeds, one noise on the secure sum,
bounds the range of each view rounded outwards, "replace", delta 1e-6. Noise has a seed here, so that both ways begin at
the same start, and what differs is what their rounds make of it.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest import mock

import numpy as np
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import fedhk
from data import RESULTS, DataSet, seeds, shared_sets
from fedhk.datasets import make_sites
from fedhk.federation.sealed import noise
from fedhk.privacy import DifferentialPrivacy
from tables import size, spread, table
from tensors import fit, mean, of, shown_ranks

SEEDS = seeds(3)
REAL = ("msrcv1_5v", "bbcsport")
STATISTICS = ("EFKMVC", {"protocol": "statistics"})
WAYS = (
    ("EFKMVC, full sums", *STATISTICS),
    ("EFKMVC, basis", "EFKMVC", {"protocol": "cores"}),
    ("FedHKTucker", "FedHKTucker", {}),
)
EPSILONS = (0.5, 1.0)
NOISY_SEEDS = seeds(6)
NOISY = (
    # clusters, widths, separation
    (5, (100, 100), 8.0),
    (5, (120, 100, 80), 8.0),
    (4, (150, 150), 5.0),
    (8, (120, 120), 10.0),
    (5, (300,), 8.0),
    (5, (300, 300), 12.0),
)


def orl_like_wide() -> DataSet:
    """40 clusters of ten rows in three views as wide as those of faces, with components that fade and noise."""
    rng = np.random.default_rng(0)
    n_clusters, n_components = 40, 60
    labels = np.repeat(np.arange(n_clusters), 10)
    fading = 1 / np.sqrt(1 + np.arange(n_components))
    views = []
    for width in (4096, 3304, 6750):
        components = rng.normal(size=(n_components, width))
        centers = rng.normal(size=(n_clusters, n_components)) * fading
        scores = centers[labels] + 0.7 * rng.normal(size=(labels.size, n_components)) * fading
        views.append(scores @ components + rng.normal(size=(labels.size, width)))
    return DataSet("orl-like, wide", views, labels)


def sums_table(sets: Sequence[DataSet], *, secure: bool) -> list[str]:
    """Bytes and quality of every way to send sums, under masks or in the open, against full sums of `EFKMVC`."""
    options = {"secure": True} if secure else {}
    jobs = [(data, seed, name, given | options) for data in sets for _, name, given in WAYS for seed in SEEDS]
    results, rows = iter([fit(*job) for job in jobs]), []
    for data in sets:
        base = None
        for shown, _, _ in WAYS:
            runs = [next(results) for _ in SEEDS]
            base = runs if base is None else base
            gap = f"{mean(runs, 'ARI') - mean(base, 'ARI'):+.3f}" if runs is not base else ""
            fewer = f"{mean(base, 'kB') / mean(runs, 'kB'):.1f}"
            sent = size([run["kB"] for run in runs])
            rows.append((data.name, shown, of(runs, "ARI"), gap, of(runs, "rounds", 1), sent, fewer, shown_ranks(runs)))
    columns = ("data", "sent", "ARI", "against full sums", "rounds", "kB a site", "times fewer bytes", "rank")
    title = ("Under masks" if secure else "In the open") + ": " + ", ".join(data.name for data in sets)
    return table(f"{title} ({len(SEEDS)} seeds)", columns, rows)


@contextmanager
def seeded_noise(seed: int) -> Iterator[None]:
    """Noise that is the same in every run with this seed, draw by draw."""
    draws = count()

    def draw(sigma: float, size: int) -> np.ndarray:
        generator = np.random.default_rng([seed, next(draws)])
        return np.rint(sigma * generator.standard_normal(size)).astype(np.int64)

    with mock.patch.object(noise, "discrete_gaussian", draw):
        yield


def noisy_fit(n_clusters: int, widths: tuple[int, ...], separation: float, seed: int) -> list[float]:
    """ARI of full sums and of the basis, for every epsilon."""
    data = make_sites(
        10,
        1500,
        n_clusters=n_clusters,
        n_features=widths,
        shift=0,
        scale=0,
        class_mix=None,
        size_spread=0,
        separation=separation,
        random_state=seed,
    )
    bounds = [(float(np.floor(view.min())), float(np.ceil(view.max()))) for view in data.views]
    truth, found = np.concatenate([data.site_labels[site] for site in sorted(data.sites)]), []
    for epsilon in EPSILONS:
        for protocol in ("statistics", "cores"):
            budget = DifferentialPrivacy(epsilon, 1e-6, bounds)
            options: dict[str, Any] = {"protocol": protocol, "privacy": budget, "secure": True}
            with threadpool_limits(1), seeded_noise(seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = fedhk.EFKMVC(n_clusters, random_state=seed, **options).fit(data.sites)
            labels = np.concatenate([model.labels_[site] for site in sorted(data.sites)])
            found.append(float(adjusted_rand_score(truth, labels)))
    return found


def noisy_table() -> list[str]:
    """What clusters are worth at a budget, with full sums and in the basis."""
    rows = []
    for n_clusters, widths, separation in NOISY:
        runs = [noisy_fit(n_clusters, widths, separation, seed) for seed in NOISY_SEEDS]
        parts = [spread(values, 3) for values in zip(*runs, strict=True)]
        rows.append((n_clusters, " + ".join(map(str, widths)), f"{separation:g}", *parts))
    columns = ["clusters", "features", "separation"]
    for epsilon in EPSILONS:
        columns += [f"epsilon {epsilon:g}, full sums", f"epsilon {epsilon:g}, basis"]
    return table(f"With noise, 15,000 rows, ARI ({len(NOISY_SEEDS)} seeds)", tuple(columns), rows)


def main() -> None:
    """Run all and write the tables."""
    real = [data for data in shared_sets() if data.name in REAL]
    real = sorted(real, key=lambda data: REAL.index(data.name))
    lines: list[str] = []
    for part in (
        lambda: sums_table(real, secure=True),
        noisy_table,
        lambda: sums_table(real, secure=False),
        lambda: sums_table([orl_like_wide()], secure=True),
    ):
        lines += part()
        (RESULTS / "sealed.md").write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
