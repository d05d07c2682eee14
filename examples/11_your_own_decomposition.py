"""
Your own decomposition
======================

Views are wide, the network is slow, and you have an idea how centres could be written with fewer numbers. FedHK
has Tucker and PARAFAC2. Here is a third: a few directions for each view.

A decomposition is a dataclass of factors and four methods. Everything else, such as starts, rounds, missing
views and bytes on the wire, comes with FedHK.
"""

import warnings
from dataclasses import dataclass, field, replace
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import fedhk
from fedhk.datasets import make_sites
from fedhk.estimators.tensor_centers import LowRankCenters
from fedhk.tensors.base import Decomposition
from fedhk.tensors.factors import BASIS, Factors
from fedhk.tensors.limits import Limit
from fedhk.tensors.low_rank import DECOMPOSITIONS
from fedhk.tensors.solves import orthonormal_columns, procrustes


@dataclass(frozen=True)
class PerViewFactors(Factors):
    """Centres of view h are X_h B_h^T, with orthonormal columns in B_h."""

    table: np.ndarray  # clusters, views, directions
    bases: tuple[np.ndarray, ...] = field(metadata=BASIS)  # sent once; everything else is sent in every round

    @property
    def rank(self):
        return (self.table.shape[2],)

    @property
    def view_bases(self):
        return self.bases

    @property
    def coordinates(self):
        return self.table


class PerView(Decomposition[PerViewFactors]):
    """A few directions for each view."""

    name: ClassVar[str] = "per view"
    factors_class: ClassVar[type[Factors]] = PerViewFactors

    def limits(self, n_clusters, widths, names=None):
        """The largest rank, and why."""
        return (Limit("", min(widths), "the narrowest view"),)

    def start(self, centers, rank, generator):
        """Where a fit begins: singular vectors, or random directions."""
        if generator is None:
            bases = [orthonormal_columns(np.linalg.svd(a, full_matrices=False)[2].T, rank[0]) for a in centers]
        else:
            bases = [np.linalg.qr(generator.standard_normal((a.shape[1], rank[0])))[0] for a in centers]
        table = np.stack([a @ b for a, b in zip(centers, bases, strict=True)], axis=1)
        return [PerViewFactors(table, tuple(bases))]

    def fit_core(self, factors, targets, weights):
        """The best coordinates; clusters without weight stay where they are."""
        return replace(factors, table=np.where(weights[:, :, None] > 0, targets, factors.table))

    def align(self, factors, to):
        """The same centres, with bases turned to those of other factors."""
        turns = [procrustes(a, b) for a, b in zip(factors.bases, to.bases, strict=True)]
        table = np.stack([factors.table[:, h] @ turn for h, turn in enumerate(turns)], axis=1)
        return PerViewFactors(table, tuple(basis @ turn for basis, turn in zip(factors.bases, turns, strict=True)))


# %%
# Register it under a name, and derive an estimator.

DECOMPOSITIONS["per-view"] = PerView()


class FedHKPerView(LowRankCenters):
    """Centres with a few directions per view."""

    decomposition: ClassVar[str] = "per-view"


# %%
# How many directions are enough? Five tell six clusters apart, and a site then sends a seventh of the bytes.
# With too few, FedHK warns that clusters may be merged; we want to see this here.

warnings.filterwarnings("ignore", category=ConvergenceWarning)
data = make_sites(6, 80, n_clusters=6, n_features=(300, 200), shift=0.1, separation=8, random_state=0)


def measure(model):
    """Bytes of a site over the whole run, and agreement with the true groups."""
    model.fit(data.sites)
    sent = sum(record["bytes_up"] + record["bytes_down"] for record in model.history_) / len(data.sites)
    found = np.concatenate([model.labels_[name] for name in data.sites])
    return sent / 1000, adjusted_rand_score(data.labels, found)


ranks = [1, 2, 3, 4, 5, 8]
lines = np.array([measure(FedHKPerView(n_clusters=6, rank=rank, random_state=0)) for rank in ranks])
full = measure(fedhk.EFKMVC(n_clusters=6, random_state=0))

_, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, values, line, name in zip(axes, lines.T, full, ("kilobytes of a site", "adjusted Rand index"), strict=True):
    ax.plot(ranks, values, marker="o", label="FedHKPerView")
    ax.axhline(line, color="tab:gray", linestyle="--", label="EFKMVC, all features")
    ax.set(xlabel="directions per view", ylabel=name, ylim=(0, None))
axes[0].legend()
plt.show()

# %%
# ``fedhk.testing`` has a class of checks for decompositions, with which those of FedHK are tested; derive a
# test from it. `Parts of your own <../extending.html>`_ shows it, and five other kinds of parts.
