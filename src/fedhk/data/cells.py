"""AnnData and MuData objects: sites and views from them, and clusters back into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import IntArray
from fedhk.data.frames import ONLY_VIEW, pandas
from fedhk.errors import DataError

__all__ = ["from_anndata", "to_anndata"]


class _SparseFrame(sp.csr_array):  # type: ignore[misc]
    """A sparse matrix with the names of its rows and columns, which `fit` and `predict` read as those of a data frame.

    What is made of it, such as a part of its rows, is a matrix without names.
    """

    index: Any = None
    columns: tuple[str, ...] | None = None


def from_anndata(data: Any, *, site: str | None = None, use: str | Mapping[str, str] | None = None) -> dict[str, Any]:
    """Make sites of an AnnData or MuData object.

    Parameters
    ----------
    data : anndata.AnnData or mudata.MuData
        Cells in rows. Each modality of MuData is a view of its name; AnnData is one view, "table". Cells that a
        modality lacks are missing in it.
    site : str, optional
        The column of ``obs`` that says which site (donor, batch, lab) a cell is of. Without it there is one site, and
        its views are returned: `HeatKernelMVC` takes them.
    use : str or mapping of str to str, optional
        What to cluster: a key of ``obsm``, such as ``"X_pca"``, or a layer; for all modalities or by modality.
        ``X`` where nothing is said.

    Returns
    -------
    dict
        Views by site, as `fit` takes them; without `site` the views. Cells keep their order and their names, and
        features their names: sites, and new cells, may have the features in any order.

    Examples
    --------
    .. code-block:: python

        sites = fedhk.from_anndata(mdata, site="donor", use={"rna": "X_pca"})
        model = fedhk.FedHKPerson(n_clusters=8, random_state=0).fit(sites)
        fedhk.to_anndata(model, mdata, site="donor")
        mdata.obs["fedhk"]  # cluster of each cell
        mdata.obsm["X_fedhk"]  # its memberships
    """
    parts = _modalities(data)
    names = data.obs_names
    if not names.is_unique:
        raise DataError("the names of the cells must differ: data.obs_names_make_unique() mends it.")
    chosen = dict(use) if isinstance(use, Mapping) else dict.fromkeys(parts, use)
    if unknown := sorted(map(str, chosen.keys() - parts.keys())):
        raise DataError(f"use: {unknown[0]!r} is no modality; there are {list(parts)}.")
    tables = {view: _read_part(part, view, chosen.get(view)) for view, part in parts.items()}
    places = {view: part.obs_names.get_indexer(names) for view, part in parts.items()}
    if site is None:
        return {view: _take(tables[view], places[view], names) for view in parts}
    return {
        name: {view: _take(tables[view], places[view][rows], names[rows]) for view in parts}
        for name, rows in _site_rows(data, site).items()
    }


def to_anndata(model: Any, data: Any, *, site: str | None = None, key: str = "fedhk") -> None:
    """Write the clusters of a fitted model into the object that its sites were made of.

    Parameters
    ----------
    model : fitted estimator
        Fitted to what `from_anndata` made of `data`.
    data : anndata.AnnData or mudata.MuData
        It gets ``obs[key]``, the cluster of each cell as a category, ``obs[key + "_certainty"]``, its largest
        membership, and ``obsm["X_" + key]``, the memberships in all clusters.
    site : str, optional
        The column of ``obs`` that `from_anndata` was given.
    key : str, default="fedhk"
        What the columns are called.
    """
    everywhere = {"": np.arange(data.n_obs)} if site is None else _site_rows(data, site)
    if isinstance(model.labels_, Mapping) != (site is not None):
        fault = "one site: leave site out" if site else "several sites: name the column of obs, site=..."
        raise DataError(f"site={site!r}: the model was fitted to {fault}.")
    labels = model.labels_ if site is not None else {"": model.labels_}
    memberships = model.memberships_ if site is not None else {"": model.memberships_}
    clusters = np.empty(data.n_obs, int)
    shares = np.empty((data.n_obs, model.n_clusters_))
    for name, rows in everywhere.items():
        if name not in labels or len(labels[name]) != len(rows):
            found = f"{len(labels[name])} cells" if name in labels else "no cells"
            raise DataError(
                f"site {name!r} has {len(rows)} cells here; the model was fitted to {found} of it. The clusters of "
                "other cells are model.predict(fedhk.from_anndata(data))."
            )
        clusters[rows], shares[rows] = labels[name], memberships[name]
    levels = list(map(str, range(model.n_clusters_)))
    data.obs[key] = pandas().Categorical(list(map(str, clusters)), levels)
    data.obs[f"{key}_certainty"] = shares.max(axis=1)
    data.obsm[f"X_{key}"] = shares


def _modalities(data: Any) -> dict[str, Any]:
    if hasattr(data, "mod"):
        return {str(name): part for name, part in data.mod.items()}
    if hasattr(data, "obs_names") and hasattr(data, "X"):
        return {ONLY_VIEW: data}
    raise DataError(f"data must be an AnnData or MuData object, got {type(data).__name__}.")


def _site_rows(data: Any, site: str) -> dict[str, IntArray]:
    """Find the cells of each site, sites sorted by name."""
    if site not in data.obs:
        raise DataError(f"site={site!r} is no column of obs; its columns are {list(data.obs.columns)[:10]}.")
    column = data.obs[site]
    if column.isna().any():
        cell = data.obs_names[int(np.argmax(column.isna().to_numpy()))]
        raise DataError(f"site={site!r} is missing for {int(column.isna().sum())} cells, the first is {cell!r}.")
    texts = column.astype(str).to_numpy()
    return {str(name): np.flatnonzero(texts == name) for name in np.unique(texts)}


def _read_part(part: Any, view: str, use: str | None) -> tuple[Any, list[str]]:
    """Return the matrix of a modality and the names of its columns."""
    if use is not None and use in part.obsm:
        values = np.asarray(part.obsm[use])
        return values, [f"{use}_{j}" for j in range(values.shape[1])]
    if use is not None and use not in part.layers:
        known = [*part.obsm, *part.layers]
        raise DataError(f"use: {use!r} is neither in obsm nor a layer of {view!r}; there are {known}.")
    if not part.var_names.is_unique:
        raise DataError(f"the names of the features of {view!r} must differ: its var_names_make_unique() mends it.")
    return part.X if use is None else part.layers[use], list(map(str, part.var_names))


def _take(table: tuple[Any, list[str]], places: IntArray, names: Any) -> Any:
    """Take some cells of a matrix; absent ones (place -1) are missing. Sparse matrices stay sparse if possible."""
    values, columns = table
    if sp.issparse(values):
        if (places >= 0).all():
            frame = _SparseFrame(sp.csr_array(values)[places])
            frame.index, frame.columns = names, tuple(columns)
            return frame
        values = values.toarray()
    found = np.asarray(values)[places]
    if (places < 0).any():
        found = np.where((places < 0)[:, None], np.nan, found)
    return pandas().DataFrame(found, index=names, columns=columns)
