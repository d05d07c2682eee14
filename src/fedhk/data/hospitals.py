"""Made-up patients of six hospitals: the data of `fedhk demo`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhk._random import RandomStateLike
from fedhk.data.dataset import MultiViewData, SiteTruth
from fedhk.data.generators import make_sites

__all__ = ["make_hospitals"]

# Names in the order of the alphabet, in which folders are read.
HOSPITALS = ("athens", "bergen", "cairo", "dublin", "evora", "florence")
MISSING_VIEWS = {"bergen": "lab", "evora": "scan"}
VIEW_WIDTHS = {"ecg": 8, "lab": 6, "scan": 4}
N_DISEASES = 4


def make_hospitals(n_samples: int = 1250, random_state: RandomStateLike = 0) -> MultiViewData:
    """Make patients of six hospitals that differ in size, in class mix and in how they measure; two lack a view.

    Parameters
    ----------
    n_samples : int, default=1250
        Mean number of rows of a hospital.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None, default=0
        What everything is drawn with. `fedhk demo` shows the first draw, 0, not the best.

    Returns
    -------
    MultiViewData
        Four diseases in the views "ecg" (8 features), "lab" (6) and "scan" (4). "bergen" has no "lab" and "evora" no
        "scan". Rows come in no order.

    Examples
    --------
    >>> from fedhk.datasets import make_hospitals
    >>> data = make_hospitals(100)
    >>> data
    MultiViewData(600 rows, 4 classes, 6 sites, views: ecg (8), lab (6), scan (4))
    >>> [view is None for view in data.sites["bergen"]]
    [False, True, False]
    """
    drawn = make_sites(
        len(HOSPITALS), n_samples, N_DISEASES, VIEW_WIDTHS.values(), shift=1.2, class_mix=1.5, random_state=random_state
    )
    sites: dict[str, list[Any]] = _rename(drawn.sites)
    for name, view in MISSING_VIEWS.items():
        sites[name][list(VIEW_WIDTHS).index(view)] = None
    labels = _rename(drawn.site_labels)
    stacked = [
        np.vstack(
            [
                np.full((len(labels[name]), width), np.nan) if views[h] is None else views[h]
                for name, views in sites.items()
            ]
        )
        for h, width in enumerate(VIEW_WIDTHS.values())
    ]
    truth = drawn.truth
    assert truth is not None  # noqa: S101 - make_sites says how sites differ
    known = SiteTruth(truth.centers, _rename(truth.shift), _rename(truth.scale), _rename(truth.class_mix))
    return MultiViewData(stacked, drawn.labels, tuple(VIEW_WIDTHS), sites, labels, known)


def _rename(by_site: Any) -> dict[str, Any]:
    """Give the sites of `make_sites` the names of hospitals."""
    return dict(zip(HOSPITALS, by_site.values(), strict=True))
