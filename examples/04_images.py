"""
Images
======

Three archives have scanned digits and want to group them by what they show. The scans stay in the archives.

Pixels are one view. Three simple descriptions of the same image are the others; for photographs, take the last
layers of trained networks instead. The images come with scikit-learn.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import adjusted_rand_score

import fedhk
from fedhk.datasets import load_multiview_digits, split_even, split_views

digits = load_multiview_digits()
print(digits)

# %%
# Rows are dealt to three archives. :class:`fedhk.FedHKDiffusion` also finds clusters that are not round, such
# as digits that are written in several ways.

rows = split_even(len(digits.labels), 3, random_state=0)
sites = split_views(digits.views, rows)
model = fedhk.FedHKDiffusion(n_clusters=10, random_state=0).fit(sites)
truth = np.concatenate([digits.labels[chosen] for chosen in rows.values()])
found = np.concatenate([model.labels_[name] for name in rows])
print(f"adjusted Rand index: {adjusted_rand_score(truth, found):.2f}")

# %%
# Mean images of the clusters, over all archives. Each cluster is mostly one digit.

pixels = np.concatenate([digits.views[0][chosen] for chosen in rows.values()])
_, axes = plt.subplots(1, 10, figsize=(10, 1.4), layout="constrained")
for k, ax in enumerate(axes):
    ax.imshow(pixels[found == k].mean(axis=0).reshape(8, 8), cmap="gray_r")
    ax.set(title=f"{k}", xticks=[], yticks=[])

# %%
# Which digits are where? A row of this table is a digit, a column a cluster, sorted so that the largest counts
# are on the diagonal as far as possible.

counts = np.zeros((10, 10), dtype=int)
np.add.at(counts, (truth, found), 1)
order = np.argsort(counts.argmax(axis=0), kind="stable")
_, ax = plt.subplots(figsize=(4.4, 4), layout="constrained")
ax.imshow(counts[:, order], cmap="Blues")
for digit, k in zip(*np.nonzero(counts[:, order] >= 5), strict=True):
    count = counts[digit, order[k]]
    ax.text(k, digit, count, ha="center", va="center", color="white" if count > 90 else "black", fontsize=8)
ax.set(xlabel="cluster", ylabel="digit", xticks=range(10), xticklabels=order, yticks=range(10))
plt.show()

# %%
# The guide on `images <../guide/images.html>`_ says when pixels are enough.
