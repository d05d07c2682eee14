"""
A private run, and what epsilon costs
=====================================

Hospitals may share results only with a promise: nobody can tell from them whether one patient was there. The
smaller epsilon is, the stronger is the promise, and the more noise is in the clusters. How small can it be for your
data?

``secure=True`` hides each site's numbers from the server. ``privacy=`` adds noise to their sum. Both together need
``pip install 'fedhk[privacy,plot]'``.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import adjusted_rand_score

import fedhk
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy

# a small budget warns that little will be found; we want to see this
warnings.filterwarnings("ignore", category=UserWarning)


def agreement(data, epsilon):
    """Fit with a budget; agreement with the true groups (adjusted Rand index)."""
    # bounds are what values can be, known without looking at the rows
    budget = DifferentialPrivacy(epsilon=epsilon, delta=1e-5, bounds=(-12, 12))
    model = fedhk.EFKMVC(n_clusters=3, privacy=budget, secure=True, random_state=0).fit(data.sites)
    labels = np.concatenate([model.client_models_[name].predict(views) for name, views in data.sites.items()])
    return adjusted_rand_score(data.labels, labels)


# %%
# The same clusters, with few and with many patients. 1 means that the true groups are found, 0 is chance. Noise is
# drawn anew in each run, so each setting is run three times: a line is the mean, a band the range.

EPSILONS = [0.1, 0.25, 0.5, 1, 2, 4]
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for patients in (100, 500, 2500):
    data = make_sites(5, patients, n_clusters=3, n_features=(4, 4), shift=0.2, random_state=0)
    found = np.array([[agreement(data, epsilon) for epsilon in EPSILONS] for _ in range(3)])
    ax.plot(EPSILONS, found.mean(axis=0), marker="o", label=f"{5 * patients:,} patients")
    ax.fill_between(EPSILONS, found.min(axis=0), found.max(axis=0), alpha=0.2)
ax.set(xscale="log", xticks=EPSILONS, xticklabels=EPSILONS, xlabel="epsilon of the whole run", ylabel="agreement")
ax.legend()
plt.show()

# %%
# Read it from right to left. With many patients a strong promise costs little. With few, the clusters are lost as
# soon as the promise is strong. What counts is how many rows a cluster has and how many columns there are, so plan
# with your own numbers: `privacy <../guide/privacy.html>`_.
