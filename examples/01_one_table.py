"""
One table
=========

You have a table and want to know which groups its rows form, how many there are, and what makes them differ.

The table here comes with scikit-learn: chemical measurements of 178 wines. Nobody tells FedHK that they were
made from three grapes.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

import fedhk

table, grapes = load_wine(as_frame=True, return_X_y=True)
model = fedhk.HeatKernelMVC(n_clusters="auto", random_state=0).fit(table)
print(model.n_clusters_, "clusters; agreement with the grapes (adjusted Rand index):")
print(f"{adjusted_rand_score(grapes, model.labels_):.2f}")

# %%
# How many clusters? ``n_clusters="auto"`` tries 2 to 15 and takes the number with the highest score. Here three
# stands out from all others. If no number did, a warning would say so.

_, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
fedhk.plot.selection(model, ax=ax)

# %%
# What makes them differ? On the left, the rows in two dimensions; the large dots are the centres of the
# clusters. On the right, how far each cluster is from all other rows in each column. Cluster 2 has few
# flavanoids and a strong colour, cluster 1 is pale and low in alcohol, and cluster 0 has the most proline.

_, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
fedhk.plot.view_map(model, table, ax=axes[0])
fedhk.plot.profile(model, table, ax=axes[1])
plt.show()

# %%
# Columns need no scaling before, and cells may be missing. New rows go to ``model.predict``. The guide says
# more about `one site <../guide/one-site.html>`_ and `the number of clusters
# <../guide/number-of-clusters.html>`_.
