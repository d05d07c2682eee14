"""Made-up multi-view data: the predecessor's two-view shapes, sites that differ in stated ways, and six hospitals."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk._random import RandomStateLike, check_generator
from fedhk._typing import FloatArray
from fedhk.data.checks import check_count, check_number
from fedhk.data.dataset import MultiViewData, SiteTruth
from fedhk.data.splits import draw_mix, site_names

__all__ = ["make_hospitals", "make_sites", "make_two_view_shapes"]

# The sites of `make_hospitals`, in the order of the alphabet, in which folders are read.
HOSPITALS = ("athens", "bergen", "cairo", "dublin", "evora", "florence")
MISSING_VIEWS = {"bergen": "lab", "evora": "scan"}
VIEW_WIDTHS = {"ecg": 8, "lab": 6, "scan": 4}
N_DISEASES = 4


def make_two_view_shapes(n_samples: int = 10_000, random_state: RandomStateLike = None) -> MultiViewData:
    """Make four clusters of different shapes in two views of two features.

    Parameters
    ----------
    n_samples : int, default=10_000
        How many rows, at least 4. A remainder of the division by four goes to the first clusters.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None
        What the rows are drawn with.

    Returns
    -------
    MultiViewData
        ``views`` are two arrays of shape (n_samples, 2), rows in random order, ``labels`` are 0 to 3:

        =======  ========================  ============================
        cluster  view 0                    view 1
        =======  ========================  ============================
        0        disc at (-8, -8)          eight-petalled blob, same place
        1        flat ellipse at (12, -8)  ring at (12, 12)
        2        arc at (-8, 12)           cross, same place
        3        trefoil at (12, 12)       heart at (12, -8)
        =======  ========================  ============================

    Notes
    -----
    This is the benchmark of FedHK-MVFC (arXiv 2509.15844), drawn anew from its formulas: within a cluster the two views
    are independent, and angles are uniform where the original takes a grid. The heart is 22 wide, three times any
    other shape, so that the columns need scaling. The data is easy: k-means on standardised columns finds the clusters.

    Examples
    --------
    >>> from fedhk.datasets import make_two_view_shapes
    >>> make_two_view_shapes(100, random_state=0)
    MultiViewData(100 rows, 4 classes, views: view-0 (2), view-1 (2))
    """
    n_samples = check_count(n_samples, "n_samples", minimum=4)
    rng = check_generator(random_state)
    sizes = [n_samples // 4 + (k < n_samples % 4) for k in range(4)]
    shapes = [(_disc, _ellipse, _arc, _trefoil), (_petals, _ring, _cross, _heart)]
    order = rng.permutation(n_samples)
    views = [
        np.vstack([shape(size, rng) for shape, size in zip(clusters, sizes, strict=True)])[order] for clusters in shapes
    ]
    return MultiViewData(views, np.repeat(np.arange(4), sizes)[order], ("view-0", "view-1"))


def _polar(x: float, y: float, angle: FloatArray, radius: FloatArray) -> FloatArray:
    return np.column_stack([x + radius * np.cos(angle), y + radius * np.sin(angle)])


def _angles(size: int, rng: np.random.Generator) -> FloatArray:
    return rng.uniform(0.0, 2 * np.pi, size)


def _disc(size: int, rng: np.random.Generator) -> FloatArray:
    return _polar(-8.0, -8.0, _angles(size, rng), 1.5 * np.sqrt(rng.random(size)))


def _ellipse(size: int, rng: np.random.Generator) -> FloatArray:
    unit_disc = _polar(0.0, 0.0, _angles(size, rng), np.sqrt(rng.random(size)))
    return np.array([12.0, -8.0]) + unit_disc * [3.5, 1.2]


def _arc(size: int, rng: np.random.Generator) -> FloatArray:
    """Draw until enough points lie outside the disc that is cut from the inner side of the arc."""
    kept = np.empty((0, 2))
    while len(kept) < size:
        angle = rng.uniform(-np.pi / 3, np.pi / 3, size) + 0.15 * rng.standard_normal(size)
        points = _polar(-8.0, 12.0, angle, 2.8 + 0.2 * rng.standard_normal(size))
        outside = np.hypot(points[:, 0] + 7.0, points[:, 1] - 12.0) > 1.4
        kept = np.vstack([kept, points[outside]])
    return kept[:size]


def _trefoil(size: int, rng: np.random.Generator) -> FloatArray:
    angle = _angles(size, rng) + 0.08 * rng.standard_normal(size)
    return _polar(12.0, 12.0, angle, 0.8 + 0.6 * np.sin(3 * angle) + 0.15 * rng.standard_normal(size))


def _petals(size: int, rng: np.random.Generator) -> FloatArray:
    angle = _angles(size, rng)
    return _polar(-8.0, -8.0, angle, 1.2 + 0.7 * np.abs(np.cos(4 * angle)) + 0.2 * rng.standard_normal(size))


def _ring(size: int, rng: np.random.Generator) -> FloatArray:
    return _polar(12.0, 12.0, _angles(size, rng), rng.uniform(1.8, 3.2, size))


def _cross(size: int, rng: np.random.Generator) -> FloatArray:
    bars = np.column_stack([4.5 * (rng.random(size) - 0.5), 0.6 * rng.standard_normal(size)])
    bars[size // 2 :] = bars[size // 2 :, ::-1].copy()
    return np.array([-8.0, 12.0]) + bars


def _heart(size: int, rng: np.random.Generator) -> FloatArray:
    t = _angles(size, rng) + 0.15 * rng.standard_normal(size)
    x = 16 * np.sin(t) ** 3
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.array([12.0, -8.0]) + 0.7 * np.column_stack([x, y]) + 0.2 * rng.standard_normal((size, 2))


def make_sites(
    n_sites: int = 5,
    n_samples: int = 200,
    n_clusters: int = 4,
    n_features: int | Iterable[int] = (10, 10),
    *,
    class_mix: float | None = 2.0,
    shift: float = 1.0,
    scale: float = 0.2,
    missing_views: float = 0.0,
    size_spread: float = 0.5,
    separation: float = 5.0,
    random_state: RandomStateLike = None,
) -> MultiViewData:
    """Make Gaussian clusters seen by sites that differ in class mix, offset, spread, views and size.

    Parameters
    ----------
    n_sites : int, default=5
        How many sites.
    n_samples : int, default=200
        Mean number of rows of a site; all sites together have exactly ``n_sites * n_samples``, each at least one.
    n_clusters : int, default=4
        How many clusters.
    n_features : int or iterable of int, default=(10, 10)
        The width of each view.
    class_mix : float or None, default=2.0
        Concentration of the Dirichlet law from which each site draws the shares of its clusters, above 0. At 2 a site's
        rarest of four clusters has about a tenth of its rows; at 0.1 a site holds one or two clusters and a cluster may
        be nowhere; None or ``inf``: equal shares at every site.
    shift : float, default=1.0
        Standard deviation of the offset that a site adds to a feature, in units of its spread within a cluster (1).
    scale : float, default=0.2
        Standard deviation of the logarithm of the factor by which a site multiplies a feature, before the offset.
    missing_views : float, default=0.0
        Probability that a site lacks a view, from 0 to 1. Every site keeps a view and every view a site, even at 1.
    size_spread : float, default=0.5
        Standard deviation of the logarithm of a site's number of rows. 0: all alike.
    separation : float, default=5.0
        Expected root mean square distance between two centres in each view, in units of the spread within a cluster,
        whatever the width of the view. Below 3 clusters overlap much.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None
        What everything is drawn with. With one seed and all else the same, ``shift``, ``scale`` and ``separation`` only
        move rows that are otherwise the same.

    Returns
    -------
    MultiViewData
        With ``sites``, ``site_labels`` and the ``truth``: centres, offsets, factors and shares of each site.

    Notes
    -----
    By default the sites differ enough that one model of all rows is worse than it could be: over 8 seeds, k-means on
    the standardised columns reached a mean ARI of 0.85, and 0.99 once every site's own offset and factor were undone.

    Examples
    --------
    >>> from fedhk.datasets import make_sites
    >>> data = make_sites(n_sites=3, n_samples=100, random_state=0)
    >>> data
    MultiViewData(300 rows, 4 classes, 3 sites, views: view-0 (10), view-1 (10))
    >>> [view.shape for view in data.truth.shift["site-00"]]
    [(10,), (10,)]
    """
    n_sites, n_clusters = check_count(n_sites, "n_sites"), check_count(n_clusters, "n_clusters")
    n_samples, widths = check_count(n_samples, "n_samples"), _check_widths(n_features)
    concentration = check_number(np.inf if class_mix is None else class_mix, "class_mix", open_below=True, finite=False)
    shift, scale = check_number(shift, "shift"), check_number(scale, "scale")
    separation, size_spread = check_number(separation, "separation"), check_number(size_spread, "size_spread")
    if check_number(missing_views, "missing_views") > 1:
        raise ValueError(f"missing_views must be a probability from 0 to 1, got {missing_views!r}.")
    rng = check_generator(random_state)
    names = site_names(n_sites)
    centers = [separation / np.sqrt(2 * d) * rng.standard_normal((n_clusters, d)) for d in widths]
    sizes = _site_sizes(n_sites, n_samples, size_spread, rng)
    truth = SiteTruth(
        centers=centers,
        shift={site: [shift * rng.standard_normal(d) for d in widths] for site in names},
        scale={site: [np.exp(scale * rng.standard_normal(d)) for d in widths] for site in names},
        class_mix={site: draw_mix(n_clusters, concentration, rng) for site in names},
    )
    present = _present_views(n_sites, len(widths), missing_views, rng)
    return _draw_rows(truth, dict(zip(names, sizes, strict=True)), dict(zip(names, present, strict=True)), rng)


def _draw_rows(
    truth: SiteTruth, sizes: dict[str, int], present: dict[str, NDArray[np.bool_]], rng: np.random.Generator
) -> MultiViewData:
    """Draw the rows of every site, in the views that it has."""
    sites: dict[str, list[Any]] = {}
    labels = {}
    for site, size in sizes.items():
        labels[site] = rng.choice(len(truth.class_mix[site]), size=size, p=truth.class_mix[site])
        seen_as = zip(truth.centers, truth.scale[site], truth.shift[site], strict=True)
        views = [
            factor * (centers[labels[site]] + rng.standard_normal((size, factor.size))) + offset
            for centers, factor, offset in seen_as
        ]
        sites[site] = [view if here else None for view, here in zip(views, present[site], strict=True)]
    widths = {f"view-{h}": centers.shape[1] for h, centers in enumerate(truth.centers)}
    return _pool(sites, labels, truth, widths)


def _pool(
    sites: dict[str, list[Any]], labels: dict[str, NDArray[np.intp]], truth: SiteTruth, widths: dict[str, int]
) -> MultiViewData:
    """Stack the rows of all sites, with NaN for the views that a site lacks."""
    views = [
        np.vstack(
            [np.full((len(labels[site]), d), np.nan) if sites[site][h] is None else sites[site][h] for site in sites]
        )
        for h, d in enumerate(widths.values())
    ]
    return MultiViewData(views, np.concatenate(list(labels.values())), tuple(widths), sites, labels, truth)


def _site_sizes(n_sites: int, n_samples: int, size_spread: float, rng: np.random.Generator) -> list[int]:
    """Share out the rows in log-normal proportions: one to each site, then by largest remainder."""
    weights = np.exp(size_spread * rng.standard_normal(n_sites))
    exact = n_sites * (n_samples - 1) * weights / weights.sum()
    sizes = np.floor(exact).astype(np.intp)
    left_over = n_sites * (n_samples - 1) - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:left_over]] += 1
    return [int(size) + 1 for size in sizes]


def _present_views(n_sites: int, n_views: int, missing: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw which site has which view, then give back a view to sites without any and a site to views without any."""
    present = rng.random((n_sites, n_views)) >= missing
    for site in np.flatnonzero(~present.any(axis=1)):
        present[site, rng.integers(n_views)] = True
    for view in np.flatnonzero(~present.any(axis=0)):
        present[rng.integers(n_sites), view] = True
    return present


def _check_widths(n_features: Any) -> list[int]:
    widths = [n_features] if isinstance(n_features, Integral) else list(n_features)
    if not widths:
        raise ValueError(f"n_features must give the width of at least one view, got {n_features!r}.")
    return [check_count(width, f"n_features[{h}]") for h, width in enumerate(widths)]


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
    labels, truth = _rename(drawn.site_labels), drawn.truth
    assert truth is not None  # noqa: S101 - make_sites says how sites differ
    known = SiteTruth(truth.centers, _rename(truth.shift), _rename(truth.scale), _rename(truth.class_mix))
    return _pool(sites, labels, known, VIEW_WIDTHS)


def _rename(by_site: Any) -> dict[str, Any]:
    """Give the sites of `make_sites` the names of hospitals."""
    return dict(zip(HOSPITALS, by_site.values(), strict=True))
