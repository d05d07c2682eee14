"""A site after a fit: its rows, also in views that clustering did not see, and the model that places them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.views import Views, row_blocks
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import align_views
from fedhk.federation.site import Site
from fedhk.model.fitted import FittedModel
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows, take

# The view in which a site has the clusters of another model, where two are compared.
OTHER_CLUSTERS = "other clusters"

# Refusal of a site.
OTHER_VIEW = Rule("this site does not let the question read one of the views that it names")


@dataclass(kw_only=True)
class PlacedSite(Site):
    """A site after a run: its rows, also in views that the model does not know, and the model that places them."""

    model: FittedModel
    readable: tuple[str, ...] | None = None  # views that questions may read; None is all
    # Clusters with fewer rows here, and columns with fewer values in a cluster, are left out of all answers.
    least_rows: int = 1
    # Whether sums are masked: then nothing may be asked of this site that is not asked of all others.
    masked: bool = False
    secret: str = ""  # from which the site draws parts of its rows that nobody else is to know; "" at hand

    def labels(self) -> IntArray:
        """The cluster of each row."""
        return self.derive(self.model, self._place)

    def model_rows(self) -> Rows:
        """The rows in model units, without those of clusters that are too small here to be told of."""
        return self.derive(self.views, self._read_shown)

    def shown(self) -> IntArray:
        """Return the numbers of the rows that `model_rows` has."""
        labels = self.labels()
        counts = np.bincount(labels, minlength=self.model.parameters.n_clusters)
        return np.flatnonzero(counts[labels] >= self.least_rows)

    def view_rows(self) -> Rows:
        """Return the same rows as they are before they are embedded, if the model embeds rows."""
        model = self.model.in_views
        return self.model_rows() if model is self.model else self._read_shown(model)

    def _read_shown(self, model: FittedModel | None = None) -> Rows:
        rows = self._all_rows(model)
        return rows if self.least_rows <= 1 else take(rows, self.shown())

    def _all_rows(self, model: FittedModel | None = None) -> Rows:
        model = self.model if model is None else model
        return model.rows(align_views(self.views, model.view_names, model.widths, self.name))

    def _place(self) -> IntArray:
        model, rows = self.model, self._all_rows()
        with Passes(rows, model.parameters.n_clusters, self.workers) as scan:
            return scan.assign(model.parameters)[1]

    def blocks(self, names: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[IntArray, FloatArray]]:
        """Iterate over labels and cells, some rows at a time, views side by side; NaN in views that the site lacks."""
        if self.readable is not None and not set(names) <= set(self.readable):
            raise MessageError(OTHER_VIEW)
        views, labels = align_views(self.views, tuple(names), widths, self.name), self.labels()
        if self.least_rows <= 1:
            yield from _read_blocks(views, labels, widths)
            return
        few_rows, few_values = self._find_few(views, labels, widths)
        for own, cells in _read_blocks(views, labels, widths):
            shown = ~few_rows[own]
            yield own[shown], np.where(few_values[own[shown]], np.nan, cells[shown])

    def _find_few(self, views: Views, labels: IntArray, widths: Sequence[int]) -> tuple[BoolArray, BoolArray]:
        """Find the clusters with too few rows, (c,), and the columns with too few values in a cluster, (c, columns)."""
        c = self.model.parameters.n_clusters
        known = np.zeros((c, sum(widths)))
        for own, cells in _read_blocks(views, labels, widths):
            known += np.eye(c)[own].T @ ~np.isnan(cells)
        return np.bincount(labels, minlength=c) < self.least_rows, known < self.least_rows


def _read_blocks(views: Views, labels: IntArray, widths: Sequence[int]) -> Iterator[tuple[IntArray, FloatArray]]:
    for rows in row_blocks(views.n_rows, 8 * sum(widths)):
        count = rows.stop - rows.start
        cells = [
            np.full((count, width), np.nan) if table is None else _dense(table[rows])
            for table, width in zip(views.tables, widths, strict=True)
        ]
        yield labels[rows], np.hstack(cells)


def _dense(table: Any) -> FloatArray:
    return np.asarray(table.toarray() if sp.issparse(table) else table, np.float64)
