"""What generators and loaders return: views with known labels, and sites where there are some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk._typing import FloatArray

__all__ = ["MultiViewData", "SiteTruth"]


@dataclass(frozen=True, eq=False)
class SiteTruth:
    """How generated sites differ, which a personalised model should find.

    A clean row z of a cluster is its centre plus standard normal noise; a site sees ``scale * z + shift``.

    Attributes
    ----------
    centers : list of ndarray, shape (n_clusters, n_features_h)
        The centres of the clean rows in every view.
    shift : dict of str to list of ndarray, shape (n_features_h,)
        The offset of every feature at each site, also in views that the site lacks.
    scale : dict of str to list of ndarray, shape (n_features_h,)
        The factor of every feature at each site, also in views that the site lacks.
    class_mix : dict of str to ndarray, shape (n_clusters,)
        The probability of each cluster at each site.
    """

    centers: list[FloatArray]
    shift: dict[str, list[FloatArray]]
    scale: dict[str, list[FloatArray]]
    class_mix: dict[str, FloatArray]


@dataclass(frozen=True, eq=False, repr=False)
class MultiViewData:
    """Views of the same rows, with known labels.

    Attributes
    ----------
    views : list of ndarray, shape (n_samples, n_features_h)
        The rows of all sites, in the order of the sites. Rows of a site that lacks a view are NaN in that view.
    labels : ndarray of int, shape (n_samples,)
        The class of each row.
    view_names : tuple of str
        What the views are called.
    sites : dict of str to list of ndarray or None, or None
        The views of each site, ready for ``estimator.fit(data.sites)``; None in the list is a view that the site lacks.
        None where the data has no sites: make some with `split_views`.
    site_labels : dict of str to ndarray, or None
        The class of each row of each site.
    truth : SiteTruth or None
        How the sites were made to differ, where they were made.
    """

    views: list[FloatArray]
    labels: NDArray[np.intp]
    view_names: tuple[str, ...]
    sites: dict[str, list[Any]] | None = None
    site_labels: dict[str, NDArray[np.intp]] | None = None
    truth: SiteTruth | None = None

    def __repr__(self) -> str:
        widths = ", ".join(f"{name} ({view.shape[1]})" for name, view in zip(self.view_names, self.views, strict=True))
        sites = "" if self.sites is None else f", {len(self.sites)} sites"
        return f"MultiViewData({self.labels.size} rows, {np.unique(self.labels).size} classes{sites}, views: {widths})"
