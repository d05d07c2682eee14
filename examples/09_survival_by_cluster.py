"""
Survival by cluster
===================

You have clusters of patients, and know what became of them later. Do clusters differ in how long patients live?
The answer should be that of all hospitals together, while rows stay where they are.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedhk
from fedhk.datasets import make_sites

data = make_sites(5, 200, n_clusters=3, random_state=0)
model = fedhk.FedHKPerson(n_clusters=3, random_state=0).fit(data.sites)

# %%
# The follow-up is made up: a patient of the third group lives half as long as one of the first. It took no part
# in the clustering. This matters: testing columns that made the clusters would be circular.

rng = np.random.default_rng(0)
days, died = {}, {}
for name, groups in data.site_labels.items():
    life = rng.exponential(np.array([800, 600, 400])[groups])
    seen = rng.integers(100, 1000, len(groups))  # until then the patient was followed
    days[name], died[name] = np.ceil(np.minimum(life, seen)), life <= seen

found = fedhk.outcomes(model, data.sites, time=days, event=died)
print(found)

# %%
# Kaplan-Meier curves of the clusters with 95 % intervals, and below how many patients are still followed. The
# log-rank test compares patients within each hospital, so that a hospital with sicker patients does not look
# like a cluster.

_, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
fedhk.plot.survival(model, found=found, ax=ax)
plt.show()

# %%
# Profiles, tests, stability and more: `after the labels <../guide/after.html>`_.
