"""
A new site, a year later
========================

The model is in use. A year later there are new rows, a hospital has a new device, and a hospital joins that was
not there. Nobody wants to begin anew, and the old rows may be gone.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fedhk
from fedhk.datasets import make_sites

data = make_sites(5, 400, n_clusters=3, n_features=(6, 4), shift=0.3, random_state=0)
first = {name: [view[::2] for view in views] for name, views in data.sites.items() if name != "site-04"}
model = fedhk.EFKMVC(n_clusters=3, random_state=0).fit(first)
path = Path(tempfile.mkdtemp()) / "model.safetensors"
model.save(path)

# %%
# A year later. The first view of ``site-02`` has moved; ``site-04`` is new.

later = {name: [view[1::2].copy() for view in views] for name, views in data.sites.items()}
later["site-02"][0] += 1.0

model = fedhk.load(path)
before = model.predict(later["site-04"])  # a site may use the model before it takes part
model.update(later, half_life=2)  # after two updates, earlier rows count half
print(f"{np.mean(before == model.labels_['site-04']):.0%} of the new site's rows keep their cluster")

# %%
# Clusters keep their numbers. What has moved? Each dot is a cluster at a site: how far the mean of its new rows
# is from the mean that the site remembers, in standard deviations. Filled dots are more than chance explains.

drift = [line for line in model.drift_ if line["site"] in later]
_, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for line in drift:
    place = line["distance"], line["site"]
    ax.scatter(*place, facecolor="tab:red" if line["moved"] else "none", edgecolor="tab:red")
    ax.annotate(line["cluster"], place, (0, 7), textcoords="offset points", ha="center")
ax.set(xlabel="distance between the means, in standard deviations", xlim=(0, None))
ax.margins(y=0.3)
plt.show()

# %%
# More: `over the years <../guide/years.html>`_, `a new site <../guide/new-site.html>`_.
