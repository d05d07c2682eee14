"""Views of the same rows as one object that can be indexed by row, for tools that split rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedhk.data.views import check_views, is_view_collection
from fedhk.errors import DataError

__all__ = ["MultiView"]


class MultiView(Mapping[str, Any]):
    """Views of the same rows: what scikit-learn's cross-validation and searches split by rows.

    Parameters
    ----------
    views : dict of str to table, or list of tables
        Arrays, data frames or sparse matrices with the same rows; those of a list are called "view_0", "view_1", and
        so on.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from fedhk import HeatKernelMVC, MultiView
    >>> from fedhk.datasets import make_sites
    >>> data = make_sites(1, 150, n_clusters=3, random_state=0)
    >>> views = MultiView(data.views)
    >>> cross_val_score(HeatKernelMVC(3, random_state=0), views, cv=5).shape
    (5,)
    """

    def __init__(self, views: Any) -> None:
        if not is_view_collection(views) or not len(views):
            raise DataError(f"views must be a list or dict of tables, got {type(views).__name__}.")
        if not isinstance(views, Mapping):
            views = {f"view_{number}": table for number, table in enumerate(views)}
        self._views = {str(name): table for name, table in views.items()}
        self.shape = check_views(self._views, missing_views=True).n_rows, len(self._views)

    def __getitem__(self, rows: Any) -> Any:
        """Return the table of a name, or the same rows of all views."""
        if isinstance(rows, str):
            return self._views[rows]
        rows = rows[0] if isinstance(rows, tuple) else rows  # scikit-learn asks for X[rows, ...]
        return MultiView({name: None if table is None else _take(table, rows) for name, table in self._views.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


def _take(table: Any, rows: Any) -> Any:
    if hasattr(table, "iloc"):
        return table.iloc[rows]
    return table[rows] if hasattr(table, "shape") else np.asarray(table)[rows]
