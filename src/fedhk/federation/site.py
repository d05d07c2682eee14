"""A site: its rows, its copy of the board, and the memory that it keeps between messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from fedhk.data.folds import fold_views
from fedhk.data.views import Views
from fedhk.federation.board import Board, Entry, RowEntry, align_views
from fedhk.federation.entries import Folds, References, Schema
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import localise
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics

T = TypeVar("T")


@dataclass
class Site:
    """One site. Phases read its rows and its board, and keep what they need in its memory. Only replies leave it."""

    name: str
    views: Views  # its rows, in input units
    board: Board = field(default_factory=Board)  # what the server has published
    memory: Board = field(default_factory=Board)  # what the site keeps for itself; it never leaves
    workers: int = 1  # threads for one pass over the rows
    least_group: int = 2  # fewest rows of a group whose mean leaves the site
    _cache: dict[type, tuple[object, Any]] = field(default_factory=dict, repr=False)  # see `derive`

    def keep(self, entry: Entry) -> None:
        """Keep an entry in the site's memory for later messages."""
        self.memory = self.memory.put(entry)

    def rows(self, upto: type[RowEntry] | None = None) -> Rows:
        """Return the rows in model units, after all published row entries, or only those before `upto`."""
        references = self.board.get(References)
        rows = self.derive(references, self._read_rows)
        for entry in self.board.find(RowEntry):
            if type(entry) is upto:
                break
            rows = self.derive(entry, partial(entry.apply_at, self, rows))
        return rows

    def features(self) -> Rows:
        """Return the rows in model units as long as they have their features: before they are embedded."""
        changes = (type(entry) for entry in self.board.find(RowEntry) if not entry.keeps_cells)
        return self.rows(upto=next(changes, None))

    def _read_rows(self) -> Rows:
        views, references = self.aligned_views(), self.board.get(References).references
        return Rows(views, localise(references, views))

    def see(self, parameters: Parameters, *, follow: bool = False) -> Parameters:
        """Return the server's parameters as this site uses them; `follow` is true for those of a new round."""
        for entry in self.board.find(RowEntry):
            parameters = entry.see(self, parameters, follow=follow)
        return parameters

    def collect(self, parameters: Parameters, *, follow: bool = False) -> Statistics:
        """Compute the statistics of the site's rows, expressed at the server's parameters."""
        seen = self.see(parameters, follow=follow)
        with Passes(self.rows(), seen.n_clusters, self.workers) as scan:
            statistics = scan.statistics(seen)
        if seen is parameters:
            return statistics
        parts = zip(statistics.numerators, statistics.weights, seen.centers, parameters.centers, strict=True)
        return replace(statistics, numerators=tuple(n - w * (own - common) for n, w, own, common in parts))

    def derive(self, entry: object, compute: Callable[[], T]) -> T:
        """Return what `compute` gives for an entry, computed once; a newer entry of the same type takes its place."""
        known = self._cache.get(type(entry))
        if known is None or known[0] is not entry:
            self._cache.pop(type(entry), None)  # before the new one is made: both may be as large as the rows
            known = entry, compute()
            self._cache[type(entry)] = known
        return known[1]

    def forget(self, *entries: object) -> None:
        """Free what was derived from these entries."""
        for entry in entries:
            self._cache.pop(type(entry), None)

    def read_views(self) -> Views:
        """Return the site's views, with very wide ones folded once the folds are published."""
        for entry in self.board.find(Folds):
            return self.derive(entry, partial(fold_views, self.views, entry.folds))
        return self.views

    def aligned_views(self) -> Views:
        """Return the site's views in the order of the model."""
        schema = self.board.get(Schema)
        views = align_views(self.read_views(), schema.names, self.board.get(References).widths, self.name)
        schema.check_columns(views, self.name)
        return views
