"""Fold: the first phase hashes the very many columns of sparse views to few.

Sites say in how many of their rows each word is, for the words that they have. From then on they fold their rows, and
no message is as wide as the view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhk._typing import FloatArray, IntArray
from fedhk.data.folds import Fold, make_fold
from fedhk.data.row_forms import count_documents, has_negative
from fedhk.data.scaling import Scaling
from fedhk.data.views import Columns
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Folds
from fedhk.federation.phases.base import Phase
from fedhk.federation.plausible import MOST_ROWS
from fedhk.federation.site import Site


@dataclass(frozen=True)
class FoldRequest:
    """Ask in how many rows each column of some views is above 0."""

    widths: dict[str, int]


@dataclass(frozen=True, eq=False)
class WordCounts:
    """The number of rows that have each word, for the words of a site; empty where a cell is negative."""

    rows: int
    negative: bool
    words: NDArray[np.int32]
    counts: NDArray[Any]  # in as few bytes as hold them


@dataclass(frozen=True, eq=False)
class FoldReply:
    """Counts of the views that the site has."""

    counts: dict[str, WordCounts]


@dataclass(frozen=True, eq=False)
class WideColumns(Entry):
    """Names of the columns of folded views, as they come in."""

    columns: dict[str, Columns]


@dataclass(frozen=True)
class FoldViews(Phase[FoldRequest, FoldReply]):
    """Choose how rows of very wide views are folded: in the form that the scaling asks for, or weighted like words."""

    name: ClassVar[str] = "fold"

    wide: dict[str, tuple[int, Columns]]  # width and columns of these views
    scaling: Scaling | None  # None: words where no cell is negative, else as rows come

    def request(self, board: Board) -> FoldRequest:
        return FoldRequest({name: width for name, (width, _) in self.wide.items()})

    @staticmethod
    def answer(site: Site, request: FoldRequest) -> FoldReply:
        found = {}
        for name, table in zip(site.views.names, site.views.tables, strict=True):
            if name not in request.widths or table is None:
                continue
            if table.shape[1] != request.widths[name]:
                widths = f"{table.shape[1]} features here, {request.widths[name]} elsewhere"
                raise MessageError(f"view {name!r} has {widths}")
            negative = has_negative(table)
            counts = np.zeros(0) if negative else count_documents(table)
            words = np.flatnonzero(counts).astype(np.int32)
            kind = np.min_scalar_type(int(counts.max(initial=0)))
            found[name] = WordCounts(table.shape[0], negative, words, counts[words].astype(kind))
        return FoldReply(found)

    def check(self, board: Board, reply: FoldReply, site: str) -> None:
        for name, found in reply.counts.items():
            words, counts = found.words, found.counts
            sound = name in self.wide and 0 <= found.rows <= MOST_ROWS
            sound = sound and (words.dtype.str[1:], counts.dtype.kind) == ("i4", "u")
            sound = sound and words.shape == counts.shape == (words.size,)
            if not sound or np.any(np.diff(words) <= 0) or np.any((counts < 1) | (counts > found.rows)):
                raise MessageError("counts of words that no rows can have", site)
            if words.size and not 0 <= words[0] <= words[-1] < self.wide[name][0]:
                raise MessageError("counts of words that the view does not have", site)

    def combine(self, board: Board, replies: Mapping[str, FoldReply]) -> Board:
        folds = {}
        for name, (n_columns, _) in self.wide.items():
            sent = [reply.counts[name] for reply in replies.values() if name in reply.counts]
            documents = np.zeros(n_columns)
            for own in sent:
                documents[own.words] += own.counts
            rows, negative = float(sum(own.rows for own in sent)), any(own.negative for own in sent)
            folds[name] = make_fold(n_columns, self.scaling, documents, rows, negative=negative)
        return board.put(Folds(folds), WideColumns({name: columns for name, (_, columns) in self.wide.items()}))


# ------------------------------------------------------------------------------ what clusters look like, in all columns


@dataclass(frozen=True, eq=False)
class WideSums:
    """Sums of a site's rows by cluster, in all columns of a very wide view: nonzero values and their places."""

    places: NDArray[Any]  # number of the cluster times columns, plus number of the column; in order
    values: FloatArray  # in single precision
    rows: FloatArray  # of each cluster

    @classmethod
    def of(cls, fold: Fold, table: Any, labels: IntArray, n_clusters: int) -> WideSums:
        """Sum up the rows of a table."""
        sums = fold.sums(table, labels, n_clusters)
        sums.sort_indices()
        places = np.repeat(np.arange(n_clusters) * fold.n_columns, np.diff(sums.indptr)) + sums.indices
        kind = np.int32 if n_clusters * fold.n_columns < 2**31 else np.int64
        rows = np.bincount(labels, minlength=n_clusters).astype(np.float64)
        return cls(places.astype(kind), sums.data.astype(np.float32), rows)

    def check(self, n_clusters: int, n_columns: int, site: str) -> None:
        """Refuse what no rows can give."""
        places, values, rows = self.places, self.values, self.rows
        kinds = places.dtype.kind, values.dtype.kind, rows.dtype.kind
        if (
            kinds != ("i", "f", "f")
            or not places.shape == values.shape == (places.size,)
            or rows.shape != (n_clusters,)
        ):
            raise MessageError("sums of rows by cluster of another shape or type", site)
        in_order = np.all(np.diff(places) > 0) and np.all((places >= 0) & (places < n_clusters * n_columns))
        if not (in_order and np.isfinite(values).all() and np.all((rows >= 0) & (rows <= MOST_ROWS))):
            raise MessageError("sums of rows by cluster that no rows can have", site)


def mean_of_sums(sent: Sequence[WideSums], n_clusters: int, n_columns: int) -> FloatArray:
    """Compute the mean of the rows of each cluster, of shape (c, n_columns); 0 for a cluster without rows."""
    total, rows = np.zeros(n_clusters * n_columns), np.zeros(n_clusters)
    for own in sent:
        total[own.places] += own.values
        rows += own.rows
    return np.asarray(total.reshape(n_clusters, n_columns) / np.maximum(rows, 1.0)[:, None], np.float32)
