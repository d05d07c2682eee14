"""
Hospitals that differ
=====================

Several hospitals want to find the same groups of patients. Their devices and protocols differ, and no row may
leave its hospital.

The six hospitals here are made up. They have three views of each patient: an ECG, lab values and a scan. Each
measures on a scale of its own; Bergen has no lab values and Evora no scans.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import numpy as np

import fedhk
from fedhk.datasets import make_hospitals

data = make_hospitals(300, random_state=0)
one = fedhk.EFKMVC(n_clusters=4, random_state=0).fit(data.sites)
own = fedhk.FedHKPerson(n_clusters=4, random_state=0).fit(data.sites)

# %%
# :class:`fedhk.EFKMVC` finds one model for all. :class:`fedhk.FedHKPerson` also gives each hospital a model
# that fits its own devices, in which cluster 2 still means the same everywhere. We know the true groups of this
# data, so we can count the patients in the right cluster. One model for all misses most where a view is
# missing.


def right(model):
    """Share of each hospital's patients in the right cluster."""
    return [fedhk.metrics.matched_accuracy(data.site_labels[name], model.labels_[name]) for name in data.sites]


_, ax = plt.subplots(figsize=(6, 3), layout="constrained")
place = np.arange(len(data.sites))
ax.bar(place - 0.2, right(one), 0.4, label="one model for all")
ax.bar(place + 0.2, right(own), 0.4, label="own models")
ax.set(xticks=place, xticklabels=data.sites, ylabel="in the right cluster", ylim=(0, 1.25), yticks=np.linspace(0, 1, 5))
ax.legend(loc="upper center", ncols=2, frameon=False)

# %%
# Why? Below are the ECGs of all hospitals, and then those of Cairo alone. The large dots are the centres of the
# common model. From each, a line leads to a ring: the centre of Cairo's own model, which is where Cairo's rows
# are.

_, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
fedhk.plot.view_map(own, data.sites, view=0, ax=axes[0])
fedhk.plot.view_map(own, data.sites, view=0, site="cairo", ax=axes[1])

# %%
# Without known groups, the objective says the same: the lower, the nearer are rows to their centres.

_, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
fedhk.plot.gains(own, data.sites, ax=ax)
plt.show()

# %%
# Next: `several sites <../guide/several-sites.html>`_, `sites that differ <../personalization.html>`_.
