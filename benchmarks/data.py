"""The data that benchmarks run on: the shared sets where they are, and sets that scikit-learn ships."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from fedhk.datasets import load_multiview_digits, split_by_group, split_dirichlet

SHARED = Path(os.environ.get("FEDHK_BENCHMARK_DATA", Path(__file__).parents[2] / "shared" / "data"))
TEXT = {"bbcsport"}

# Where tables and plots go: those of long runs are kept in results/, those of `make bench` are made for its page.
RESULTS = Path(os.environ.get("FEDHK_BENCHMARK_RESULTS", Path(__file__).parent / "results"))
RESULTS.mkdir(parents=True, exist_ok=True)


def seeds(count: int, first: int = 0) -> range:
    """Seeds of a benchmark that asks for so many; `FEDHK_BENCHMARK_SEEDS` is the most of them that are run."""
    return range(first, first + min(count, int(os.environ.get("FEDHK_BENCHMARK_SEEDS", count))))


@dataclass(frozen=True)
class DataSet:
    name: str
    views: list[np.ndarray]
    labels: np.ndarray
    client: np.ndarray | None = None

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.labels))

    @property
    def scaling(self) -> str:
        return "l2" if self.name in TEXT else "standard"


def site_rows(data: DataSet, seed: int, *, real: bool = True) -> dict[str, np.ndarray]:
    """Rows of each site: the real ones where the data have them and they are wanted, else ten by Dirichlet(0.5)."""
    if real and data.client is not None:
        return split_by_group(data.client)
    return split_dirichlet(data.labels, 10, 0.5, random_state=seed)


def shared_sets() -> list[DataSet]:
    """The benchmark data beside the project; none where the folder is not there."""
    return [_load(path) for path in sorted(SHARED.glob("*.npz"))]


def public_sets() -> list[DataSet]:
    """Data that everybody with scikit-learn has: digits in four views, tables split in halves."""
    digits = load_multiview_digits()
    sets = [DataSet("digits", list(digits.views), digits.labels)]
    for name, load in (("iris", load_iris), ("wine", load_wine), ("breast", load_breast_cancer)):
        table, labels = load(return_X_y=True)
        half = table.shape[1] // 2
        sets.append(DataSet(name, [table[:, :half], table[:, half:]], labels))
    return sets


def _load(path: Path) -> DataSet:
    with np.load(path) as file:
        views = [file[f"view_{i}"] for i in range(sum(key.startswith("view_") for key in file))]
        return DataSet(path.stem, views, file["labels"], file.get("client"))


def scaled_views(data: DataSet) -> list[np.ndarray]:
    """Views as methods without a scaling of their own get them: z-scores, of text rows of length 1."""
    parts = []
    for view in data.views:
        x = view.astype(float)
        if data.scaling == "l2":
            parts.append(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))
        else:
            spread = np.nanstd(x, axis=0)
            parts.append((x - np.nanmean(x, axis=0)) / np.where(spread > 0, spread, 1))
    return parts


def balanced_space(data: DataSet) -> np.ndarray:
    """Scaled views side by side, z-scores divided by the root of their widths; a missing cell is at the mean."""
    views = scaled_views(data)
    if data.scaling != "l2":
        views = [view / np.sqrt(view.shape[1]) for view in views]
    return np.nan_to_num(np.hstack(views))


def balanced_kmeans(data: DataSet, seed: int) -> np.ndarray:
    """What anybody who can pool the data would run."""
    return KMeans(data.n_classes, n_init=10, random_state=seed).fit_predict(balanced_space(data))
