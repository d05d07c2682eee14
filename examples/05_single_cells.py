"""
Single cells
============

Labs have measured RNA and surface proteins of the same cells, in MuData files. They want cell types that mean
the same for every donor, though batches differ.

This needs ``pip install 'fedhk[mudata,plot]'``. The counts here are drawn at random: four cell types, three
donors, each with its own depth of sequencing and its own bias for some genes.
"""

import anndata
import matplotlib.pyplot as plt
import mudata
import numpy as np
import pandas as pd

import fedhk

mudata.set_options(pull_on_update=False)
rng = np.random.default_rng(0)
genes = rng.gamma(0.6, 1.0, (4, 60))  # mean expression of each cell type
proteins = rng.gamma(1.0, 8.0, (4, 12))
pieces, donors, types = {"rna": [], "protein": []}, [], []
for donor in ("D1", "D2", "D3"):
    kinds = rng.choice(4, size=250, p=rng.dirichlet([3, 3, 3, 3]))
    bias = rng.lognormal(0.0, 0.5, 60)  # the batch
    depth = rng.lognormal(0.0, 0.3, (250, 1))  # of each cell
    pieces["rna"].append(rng.poisson(depth * bias * genes[kinds]))
    pieces["protein"].append(rng.poisson(proteins[kinds] * rng.lognormal(0.0, 0.2, (250, 1))))
    donors += [donor] * 250
    types.append(kinds)

# %%
# Do not cluster counts. Normalise each modality first, as for a neighbour graph: here log counts for genes, and
# centred log ratios for proteins.

logs = {name: np.log1p(np.vstack(tables)) for name, tables in pieces.items()}
logs["protein"] -= logs["protein"].mean(axis=1, keepdims=True)
names = pd.DataFrame(index=[f"cell-{i}" for i in range(len(donors))])
parts = {}
for name, table in logs.items():
    columns = pd.DataFrame(index=[f"{name}-{j}" for j in range(table.shape[1])])
    parts[name] = anndata.AnnData(table, obs=names, var=columns)
cells = mudata.MuData(parts)
cells.obs["donor"] = pd.Categorical(donors)

# %%
# Each modality is a view and each donor a site. ``to_anndata`` writes clusters and certainties back.

sites = fedhk.from_anndata(cells, site="donor")
model = fedhk.FedHKPerson(n_clusters=4, random_state=0).fit(sites)
fedhk.to_anndata(model, cells, site="donor")
print(cells.obs[["donor", "fedhk", "fedhk_certainty"]].head(3))
truth = np.concatenate(types)
print(f"cells in the right cluster: {fedhk.metrics.matched_accuracy(truth, cells.obs['fedhk']):.3f}")

# %%
# Each map shows the RNA of one donor. Each donor has its own two directions, but cluster 0 is the same cell
# type in all of them. Donors differ in how many cells of each type they have: this is biology, and it stays.

_, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for ax, donor in zip(axes, sites, strict=True):
    fedhk.plot.view_map(model, sites, view="rna", site=donor, ax=ax)
    ax.set_title(donor, loc="right")
plt.show()

# %%
# The guide on `single-cell data <../guide/single-cell.html>`_ reads files, and says what donors must agree on.
