"""
How it works: Algorithm 4, step by step
=======================================

You want to see what happens between ``fit`` and ``labels_``. This page follows the paper's Algorithm 4,
"FedHK-MVC-Person", from random centres to a model for each site, in pictures.

Three sites have two views of their rows. The same three groups are everywhere, but Oslo and Pisa measure with
an offset. We draw the first view only; the second looks alike.
"""

# sphinx_gallery_thumbnail_number = 4

import matplotlib.pyplot as plt
import numpy as np

import fedhk

rng = np.random.default_rng(0)
GROUPS = {"first": np.array([[0, 0], [4, 0], [2, 3.5]]), "second": np.array([[0, 0], [0, 4], [3.5, 2]])}
OFFSETS = {"rome": (0, 0), "oslo": (1.5, -1), "pisa": (-1, 1.2)}
sites = {}
for name, offset in OFFSETS.items():
    group = rng.integers(3, size=80)
    sites[name] = {view: at[group] + offset + rng.normal(0, 0.6, (80, 2)) for view, at in GROUPS.items()}
start = [np.array([[1, 1], [2, 1], [1.5, 2]]), np.array([[1, 1], [1, 2], [2, 1.5]])]

COLOURS = np.array(["tab:blue", "tab:orange", "tab:green"])


def draw_sites(axes, labels=None, centers=None, own=None):
    """The first view of each site, with centres of the common model (crosses) and of its own (rings)."""
    for ax, (name, views) in zip(axes, sites.items(), strict=True):
        colours = "silver" if labels is None else COLOURS[labels[name]]
        ax.scatter(*views["first"].T, s=8, color=colours, alpha=0.6)
        if centers is not None:
            ax.scatter(*centers.T, s=90, marker="X", color=COLOURS, edgecolor="black", zorder=3)
        if own is not None:
            ax.scatter(
                *own[name].cluster_centers_[0].T, s=110, facecolor="none", edgecolor="black", linewidth=1.8, zorder=4
            )
        ax.set(title=name, xlim=(-3, 8), ylim=(-4, 7), aspect="equal", xticks=[], yticks=[])


# %%
# Phase 1 and 2: a start that everybody gets
# ------------------------------------------
# The server draws centres (crosses) and sends them to all sites. It has seen no row.

_, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
draw_sites(axes, centers=start[0])

# %%
# Phase 3: each site works on its own rows
# ----------------------------------------
# A site measures how far its rows are from each centre. The distance is that of a heat kernel, 1 - exp(-d²): it
# grows with the squared distance d² at first and never exceeds 1. A row that is far from everything therefore
# pulls no centre away.

_, ax = plt.subplots(figsize=(4.5, 2.6), layout="constrained")
d = np.linspace(0, 3, 100)
ax.plot(d, d**2, color="tab:gray", linestyle="--", label="d², as in k-means")
ax.plot(d, 1 - np.exp(-(d**2)), label="1 - exp(-d²)")
ax.set(xlabel="d", ylabel="distance", ylim=(0, 2))
ax.legend()

# %%
# From the distances follow memberships: how much each row belongs to each cluster. From these follow new
# centres and view weights. What a site sends are sums over its rows at these memberships, and its objective: no
# row, no label.
#
# Phase 4: the server joins what the sites send
# ---------------------------------------------
# It weighs sites by how well they fit and makes common centres from the sums. Here is one round; colours are
# clusters.


def fit(rounds):
    """The paper's Algorithm 4, corrected, stopped after so many rounds."""
    model = fedhk.from_paper(
        4, n_clusters=3, fuzzifier=1.3, scaling="standard", init=start, max_rounds=rounds, tol=0, random_state=0
    )
    return model.fit(sites)


_, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
one = fit(1)
draw_sites(axes, one.labels_, one.cluster_centers_[0], one.client_models_)

# %%
# One round has moved the crosses to the groups. The rings are the centres of each site's own model: a blend of
# the common model and of what fits its own rows. At first both count half.
#
# Phase 5: how much is a site's own?
# ----------------------------------
# The share of its own is called lambda. Each site changes its own lambda in every round by a small step in the
# direction that fits its rows better. After twenty rounds, the rings of Oslo and Pisa are where their rows are,
# while Rome, which measures as most rows do, stays near the common model.

_, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
many = fit(20)
draw_sites(axes, many.labels_, many.cluster_centers_[0], many.client_models_)

# %%
# The lambdas say the same in numbers. Algorithm 4 has one for each part of its tensor form of the centres.

_, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
PARTS = ("core", "cluster_factor", "feature_factors", "view_factor")
for place, part in enumerate(PARTS):
    shares = {record["site"]: record["value"] for record in many.personalization_ if record["component"] == part}
    ax.bar(np.arange(3) + 0.2 * (place - 1.5), [shares[name] for name in sites], 0.2, label=part)
ax.set(xticks=range(3), xticklabels=sites, ylabel="lambda", ylim=(0, 1.4), yticks=[0, 0.5, 1])
ax.legend(ncols=2, frameon=False, loc="upper center")

# %%
# What FedHK does by default
# --------------------------
# :class:`fedhk.FedHKPerson` has the same aim and fewer knobs. It finds out before the first round how much of a
# site's offset is measurement, adds up sums instead of weighing sites, and learns shares once, on rows that
# were held out. The fuzzifier, the units and the start are chosen by themselves. Every ring is in the middle of
# its rows. The numbers, and so the colours, of clusters differ from those above because the start does.

usual = fedhk.FedHKPerson(n_clusters=3, random_state=0).fit(sites)
print(len(usual.history_), "rounds:", usual.stop_reason_)
_, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
draw_sites(axes, usual.labels_, usual.cluster_centers_[0], usual.client_models_)

# %%
# The objective falls in every round until nothing changes.

_, ax = plt.subplots(figsize=(5, 2.6), layout="constrained")
fedhk.plot.convergence(usual, ax=ax)
plt.show()

# %%
# `From the paper <../from-the-paper.html>`_ has every line of the four algorithms beside ours, `theory
# <../theory.html>`_ the proofs.
