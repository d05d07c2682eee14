"""Ways to spread rows over sites: evenly, with a class mix that differs by site, or by a column that names the site.

A split is a dict from the name of a site to the numbers of its rows, in rising order. Every row is at exactly one site.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from fedhk._random import RandomStateLike, check_generator
from fedhk.data.checks import check_count, check_labels, check_number

__all__ = ["site_names", "split_by_group", "split_dirichlet", "split_even", "split_views"]

Rows = NDArray[np.intp]

NEARLY_EVEN = 1e9  # a Dirichlet draw this concentrated is even to single precision; far beyond it NumPy's overflows


def site_names(n_sites: int) -> list[str]:
    """Name sites "site-00", "site-01" and so on, with enough zeros that sorting by name keeps their order."""
    width = max(2, len(str(n_sites - 1)))
    return [f"site-{site:0{width}d}" for site in range(n_sites)]


def draw_mix(size: int, concentration: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw shares that sum to one from a symmetric Dirichlet law; an infinite concentration gives equal shares."""
    if concentration > NEARLY_EVEN:
        return np.full(size, 1.0 / size)
    return rng.dirichlet(np.full(size, concentration))


def split_even(labels_or_n: Any, n_sites: int, random_state: RandomStateLike = None) -> dict[str, Rows]:
    """Deal rows to sites at random, as evenly as can be.

    Parameters
    ----------
    labels_or_n : int or sequence of hashable, length n_samples
        The number of rows, or a label for each row. With labels, every class is dealt evenly too: at any two sites the
        rows, and the rows of each class, differ by at most one.
    n_sites : int
        How many sites, at most as many as there are rows.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None
        What the rows are shuffled with.

    Returns
    -------
    dict of str to ndarray of int
        The rows of "site-00", "site-01" and so on, in rising order.

    Examples
    --------
    >>> from fedhk.datasets import split_even
    >>> split = split_even(["a", "a", "b", "b"], n_sites=2, random_state=0)
    >>> [rows.size for rows in split.values()]
    [2, 2]
    """
    if isinstance(labels_or_n, Integral):
        codes = np.zeros(check_count(labels_or_n, "labels_or_n"), dtype=np.intp)
    else:
        codes, _ = check_labels(labels_or_n, "labels_or_n")
    n_sites = _check_sites(n_sites, codes.size)
    rng = check_generator(random_state)
    shuffled_classes = np.lexsort((rng.random(codes.size), codes))
    owner = np.empty(codes.size, dtype=np.intp)
    owner[shuffled_classes] = np.arange(codes.size) % n_sites
    return _rows_of_owners(owner, site_names(n_sites))


def split_dirichlet(
    labels: Any,
    n_sites: int,
    concentration: float = 0.5,
    min_rows: int = 1,
    random_state: RandomStateLike = None,
) -> dict[str, Rows]:
    """Spread the rows of each class over the sites in shares drawn from a Dirichlet law.

    Parameters
    ----------
    labels : sequence of hashable, length n_samples
        The class of each row.
    n_sites : int
        How many sites.
    concentration : float, default=0.5
        Above 0. The smaller, the more a class gathers at few sites (0.1: most sites lack most classes); ``inf`` gives
        every site the same share of every class.
    min_rows : int, default=1
        The fewest rows of a site; 0 allows sites without rows. Sites that get fewer are topped up with
        rows drawn from the largest site, one by one.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None
        What shares and rows are drawn with.

    Returns
    -------
    dict of str to ndarray of int
        The rows of "site-00", "site-01" and so on, in rising order.

    Notes
    -----
    This is the usual benchmark of federated learning on sites that are not alike (Hsu, Qi and Brown, 2019). Where
    others draw again until no site is too small, which may take forever, rows are moved.

    Examples
    --------
    >>> from fedhk.datasets import split_dirichlet
    >>> split = split_dirichlet([0, 1] * 50, n_sites=3, concentration=0.5, min_rows=5, random_state=0)
    >>> list(split), sum(rows.size for rows in split.values())
    (['site-00', 'site-01', 'site-02'], 100)
    """
    codes, classes = check_labels(labels, "labels")
    min_rows = check_count(min_rows, "min_rows", minimum=0)
    n_sites = _check_sites(n_sites, codes.size, min_rows)
    concentration = check_number(concentration, "concentration", open_below=True, finite=False)
    rng = check_generator(random_state)
    owner = np.empty(codes.size, dtype=np.intp)
    for code in range(len(classes)):
        rows = rng.permutation(np.flatnonzero(codes == code))
        ends = np.rint(np.cumsum(draw_mix(n_sites, concentration, rng))[:-1] * rows.size)
        owner[rows] = np.searchsorted(ends, np.arange(rows.size), side="right")
    _top_up(owner, n_sites, min_rows, rng)
    return _rows_of_owners(owner, site_names(n_sites))


def split_by_group(groups: Any) -> dict[str, Rows]:
    """Give every distinct value of a column a site of its own: the person, the clinic, the device of each row.

    Parameters
    ----------
    groups : sequence of hashable, length n_samples
        What each row belongs to.

    Returns
    -------
    dict of str to ndarray of int
        The rows of each group under the name ``str(group)``, groups in sorted order, rows in rising order.

    Examples
    --------
    >>> from fedhk.datasets import split_by_group
    >>> {site: rows.tolist() for site, rows in split_by_group(["rome", "oslo", "rome"]).items()}
    {'oslo': [1], 'rome': [0, 2]}
    """
    codes, values = check_labels(groups, "groups")
    names = [str(value) for value in values]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"groups must differ as strings, since they name the sites; several groups read {twice!r}.")
    return _rows_of_owners(codes, names)


def split_views(views: Any, split: Mapping[str, Any]) -> dict[str, Any]:
    """Cut views into sites, ready for the ``fit`` of a federated estimator.

    Parameters
    ----------
    views : list or dict of array, sparse matrix or data frame with n_samples rows each, or one of those
        The views of all rows, in a list or by name: NumPy arrays (of more than two dimensions too), SciPy sparse
        matrices, pandas or polars frames. A view that is None stays None at every site.
    split : mapping of str to array-like of int
        The rows of each site, as the functions above return them.

    Returns
    -------
    dict of str to list, or to dict
        The views of each site, by name if they came so, of the type they came in; sparse matrices come back in CSR
        format.

    Examples
    --------
    >>> import numpy as np
    >>> from fedhk.datasets import split_even, split_views
    >>> sites = split_views([np.zeros((10, 3)), np.ones((10, 2))], split_even(10, n_sites=2, random_state=0))
    >>> [view.shape for view in sites["site-00"]]
    [(5, 3), (5, 2)]
    """
    if isinstance(views, Mapping):
        parts = split_views(list(views.values()), split)
        return {site: dict(zip(views, part, strict=True)) for site, part in parts.items()}
    view_list = [_indexable(view, h) for h, view in enumerate(views if isinstance(views, list | tuple) else [views])]
    lengths = [view.shape[0] for view in view_list if view is not None]
    if len(set(lengths)) != 1:
        raise ValueError(f"views must be at least one and have as many rows each, got views of {lengths} rows.")
    rows_of = {site: _check_rows(rows, site, lengths[0]) for site, rows in split.items()}
    return {site: [_take(view, rows) for view in view_list] for site, rows in rows_of.items()}


def _check_sites(n_sites: Any, n_samples: int, min_rows: int = 1) -> int:
    """Check that there are enough rows for the sites; even where ``min_rows`` is 0, at least as many rows as sites."""
    count, fewest = check_count(n_sites, "n_sites"), max(min_rows, 1)
    if count * fewest > n_samples:
        raise ValueError(
            f"n_sites={count} with at least {fewest} row(s) each need {count * fewest} rows, got {n_samples}."
        )
    return count


def _rows_of_owners(owner: Rows, names: list[str]) -> dict[str, Rows]:
    """Turn the number of each row's site into the rows of each site."""
    by_site = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=len(names)))[:-1]
    return dict(zip(names, np.split(by_site, ends), strict=True))


def _top_up(owner: Rows, n_sites: int, min_rows: int, rng: np.random.Generator) -> None:
    """Move single rows from the largest site to the smallest, in place, until none has fewer than ``min_rows``."""
    sizes = np.bincount(owner, minlength=n_sites)
    while sizes.min() < min_rows:
        giver, taker = sizes.argmax(), sizes.argmin()
        owner[rng.choice(np.flatnonzero(owner == giver))] = taker
        sizes[giver] -= 1
        sizes[taker] += 1


def _indexable(view: Any, h: int) -> Any:
    """Return a view that has a shape and can be asked for rows."""
    if view is None:
        return None
    if issparse(view):
        return view.tocsr()
    if not hasattr(view, "shape"):
        view = np.asarray(view)
    if len(view.shape) < 2:
        raise ValueError(f"views[{h}] must be at least 2-D, got {type(view).__name__} of shape {tuple(view.shape)}.")
    return view


def _take(view: Any, rows: Rows) -> Any:
    if view is None:
        return None
    return view.iloc[rows] if hasattr(view, "iloc") else view[rows]


def _check_rows(rows: Any, site: str, n_samples: int) -> Rows:
    numbers: NDArray[Any] = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(
            f"split[{site!r}] must be a list of row numbers, got {numbers.dtype} values of shape {numbers.shape}."
        )
    outside = numbers[(numbers < 0) | (numbers >= n_samples)]
    if outside.size:
        raise ValueError(f"split[{site!r}] holds row {outside[0]}, but the views have rows 0 to {n_samples - 1}.")
    return numbers.astype(np.intp)
