"""Scalings: the units of each view, chosen by how much the clusters of views agree under them.

Three exchanges. Sites cluster each view by itself under each scaling that it can have, and send weighted means of rows;
the server makes common centres of these. Sites count how many of their rows fall together in the clusters of two views;
the server adds the tables and chooses. Where rows are brought to another form by that (length 1, roots, weights of
words), sites describe them once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.agreement import (
    MEANS_PER_CLUSTER,
    SEED,
    Opinion,
    Witness,
    choose_sample,
    count_columns,
    count_together,
    find_centers,
    find_means,
    find_nearest,
    find_options,
    keep_complete,
    keep_standard,
    list_pairs,
    list_witnesses,
    read_choice,
    read_points,
)
from fedhk.data.moments import Moments
from fedhk.data.row_forms import RowForm, count_documents, has_negative
from fedhk.data.scaling import SCALINGS, Scaling
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board, Entry, Shared
from fedhk.federation.entries import Population, References, Schema, Space
from fedhk.federation.phases.base import Nothing, Phase, ServerPhase
from fedhk.federation.phases.describe import check_moments
from fedhk.federation.plausible import MOST_ROWS, limits_from_moments
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.federation.table import Table, check_array
from fedhk.model.preparation import check_spreads, references_from_moments, site_moments
from fedhk.starts.settings import Settings

# Means and centres travel in this precision: what is compared are partitions, which it hardly changes.
PRECISION = "byte"


@dataclass(frozen=True, eq=False)
class Documents(Entry):
    """In how many rows of all sites each feature is above 0, by view; no view in which a cell is negative is there."""

    counts: dict[str, FloatArray]


@dataclass(frozen=True, eq=False)
class Words(Shared):
    """The same for the views that may be text, published; empty for the others."""

    rows: float  # of all sites
    documents: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class Scalings(Entry):
    """The scaling of each view, and what was said for it and for the others."""

    scalings: tuple[Scaling, ...]
    opinions: tuple[Opinion, ...] = ()


@dataclass(frozen=True, eq=False)
class Partitions(Entry):
    """Centres of each view under each scaling, of which one partition of all rows is made."""

    witnesses: tuple[Witness, ...]
    centers: tuple[FloatArray, ...]


def scaling_of(board: Board, settings: Settings) -> Scaling:
    """The scaling that says what a run may do with spreads: that of all views, or one of those that is not z-scores."""
    chosen = next(board.find(Scalings), None)
    if chosen is None:
        return settings.scaling
    return next((own for own in chosen.scalings if not own.unit_variance), chosen.scalings[0])


class OpenPhase(Phase[Any, Any]):
    """A phase that is left out of runs with noise or masks: these keep z-scores."""

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:  # noqa: ARG002
        return []


# ------------------------------------------------------------------------------------------------------ counts of words


@dataclass(frozen=True, eq=False)
class DocumentsReply:
    """In how many rows of a site each feature is above 0, by view; empty for a view that has a negative cell."""

    counts: dict[str, FloatArray]


@dataclass(frozen=True)
class CountDocuments(OpenPhase):
    """In how many rows of all sites each feature is above 0."""

    name: ClassVar[str] = "documents"
    request_type: ClassVar[Any] = Nothing
    reply_type: ClassVar[Any] = DocumentsReply

    def request(self, board: Board) -> Nothing:  # noqa: ARG002
        return Nothing()

    @staticmethod
    def answer(site: Site, request: Nothing) -> DocumentsReply:  # noqa: ARG004
        counts = {}
        for name, table in zip(site.views.names, site.views.tables, strict=True):
            if table is not None:
                found = np.zeros(0) if has_negative(table) else count_documents(table)
                counts[name] = found.astype(np.float32)
        return DocumentsReply(counts)

    def check(self, board: Board, reply: DocumentsReply, site: str) -> None:  # noqa: ARG002
        for counts in reply.counts.values():
            check_array(counts, (None,), site, "rows with each feature", non_negative=True)
            if np.any(counts > MOST_ROWS):
                raise MessageError("more rows with a feature than any site has", site)

    def combine(self, board: Board, replies: Mapping[str, DocumentsReply]) -> Board:
        total = dict[str, FloatArray]()
        for name, moments in zip(board.get(Schema).names, board.get(Population).moments, strict=True):
            parts = [np.asarray(reply.counts[name], np.float64) for reply in replies.values() if name in reply.counts]
            if parts and all(part.shape == moments.mean.shape for part in parts):
                total[name] = np.sum(parts, axis=0)
        return board.put(Documents(total))


# ------------------------------------------------------------------------------------------------- partitions of views


@dataclass(frozen=True, eq=False)
class WitnessesRequest:
    """Ask for means of rows of each view under each scaling."""

    n_clusters: int
    witnesses: tuple[Witness, ...]


@dataclass(frozen=True, eq=False)
class MeansReply:
    """Means of groups of rows for each witness, none where the site lacks the view, and the weights of the groups."""

    means: tuple[Table, ...]
    sizes: tuple[FloatArray, ...]


def _points(site: Site, request: Any) -> list[FloatArray | None]:
    """The site's rows as each witness sees them; None where the site lacks the view."""
    views, references, words = site.aligned_views(), site.board.get(References).references, site.board.get(Words)
    sample = choose_sample(views.n_rows, request.n_clusters)
    found: list[FloatArray | None] = []
    for witness in request.witnesses:
        if not 0 <= witness.view < len(references) or witness.option not in SCALINGS or witness.half not in (-1, 0, 1):
            raise MessageError("a partition of a view or under a scaling that is not known")
        table = views.tables[witness.view]
        if table is None or not views.n_rows:
            found.append(None)
            continue
        if SCALINGS[witness.option].needs_counts and has_negative(table):
            raise MessageError("counts are asked for where cells are negative")
        documents, reference = words.documents[witness.view], references[witness.view]
        if SCALINGS[witness.option].weighs_words and documents.shape != (reference.width,):
            raise MessageError("weights of words are missing")
        found.append(read_points(table[sample], reference, witness, documents, words.rows))
    return found


@dataclass(frozen=True)
class FindPartitions(OpenPhase):
    """Means of rows of each view under each scaling, and the centres that follow."""

    name: ClassVar[str] = "partitions"
    request_type: ClassVar[Any] = WitnessesRequest
    reply_type: ClassVar[Any] = MeansReply

    n_clusters: int

    def begin(self, board: Board) -> Board:
        known, nothing = board.get(Documents).counts, np.zeros(0, np.float32)
        named = zip(board.get(Schema).names, self._options(board), strict=True)
        counts = tuple([known[name].astype(np.float32) if "tfidf" in own else nothing for name, own in named])
        return board.put(Words(board.get(Population).rows, counts))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or self.n_clusters < 2 or all(len(own) == 1 for own in self._options(board))

    def request(self, board: Board) -> WitnessesRequest:
        return WitnessesRequest(self.n_clusters, list_witnesses(self._options(board)))

    @staticmethod
    def answer(site: Site, request: WitnessesRequest) -> MeansReply:
        means, sizes = list[Table](), list[FloatArray]()
        for points in _points(site, request):
            found: tuple[FloatArray, FloatArray] = np.zeros((0, 0)), np.zeros(0)
            if points is not None:
                weight = np.ones(len(points))
                random_state = np.random.RandomState(SEED)
                found = find_means(points, weight, request.n_clusters, random_state, site.least_group)
            means.append(Table.of(found[0], PRECISION))
            sizes.append(found[1].astype(np.float32))
        return MeansReply(tuple(means), tuple(sizes))

    def check(self, board: Board, reply: MeansReply, site: str) -> None:
        wanted = self.request(board).witnesses
        if len(reply.means) != len(wanted) or len(reply.sizes) != len(wanted):
            raise MessageError(f"means for {len(reply.means)} partitions, expected {len(wanted)}", site)
        widths = board.get(References).widths
        for witness, means, sizes in zip(wanted, reply.means, reply.sizes, strict=True):
            count, width = len(means.values), count_columns(widths[witness.view], witness.half)
            means.check((None, width if count else None), site, "means")
            check_array(sizes, (count,), site, "weights of means", non_negative=True)
            if count > MEANS_PER_CLUSTER * self.n_clusters or np.any(sizes <= 0) or sizes.sum() > MOST_ROWS:
                raise MessageError("more means than were asked for, or weights that no rows can have", site)

    def combine(self, board: Board, replies: Mapping[str, MeansReply]) -> Board:
        witnesses, centers = [], dict[Witness, FloatArray]()
        for place, witness in enumerate(self.request(board).witnesses):
            parts = [reply for reply in replies.values() if len(reply.sizes[place])]
            if not parts:
                continue
            means = np.vstack([reply.means[place].read() for reply in parts])
            sizes = np.concatenate([np.asarray(reply.sizes[place], np.float64) for reply in parts])
            random_state = np.random.RandomState(SEED)
            found = find_centers(means, sizes, self.n_clusters, witness.option, random_state)
            if len(found):
                witnesses.append(witness)
                centers[witness] = found
        kept = keep_complete(witnesses)
        return board.put(Partitions(tuple(kept), tuple([centers[witness] for witness in kept])))

    def _options(self, board: Board) -> list[tuple[str, ...]]:
        known = board.get(Documents).counts
        named = zip(board.get(Schema).names, board.get(Population).moments, strict=True)
        return [find_options(moments, known.get(name)) for name, moments in named]


# -------------------------------------------------------------------------------------------------- tables of agreement


@dataclass(frozen=True, eq=False)
class TablesRequest:
    """Ask how many rows fall together in the clusters of two partitions."""

    n_clusters: int
    witnesses: tuple[Witness, ...]
    centers: tuple[Table, ...]


@dataclass(frozen=True, eq=False)
class TablesReply:
    """Counts of rows, all tables one after the other; only those that are not 0."""

    places: npt.NDArray[Any]
    counts: npt.NDArray[Any]


@dataclass(frozen=True)
class ChooseScalings(OpenPhase):
    """Tables of counts between the partitions of views, and the scalings under which views agree most."""

    name: ClassVar[str] = "agreement"
    request_type: ClassVar[Any] = TablesRequest
    reply_type: ClassVar[Any] = TablesReply

    partitions: FindPartitions

    def begin(self, board: Board) -> Board:
        n_views = len(board.get(Schema).names)
        return board.put(Scalings((SCALINGS["standard"],) * n_views, tuple(keep_standard(n_views))))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not board.has(Partitions) or not list_pairs(board.get(Partitions).witnesses)

    def request(self, board: Board) -> TablesRequest:
        found = board.get(Partitions)
        centers = tuple([Table.of(part, PRECISION) for part in found.centers])
        return TablesRequest(self.partitions.n_clusters, found.witnesses, centers)

    @staticmethod
    def answer(site: Site, request: TablesRequest) -> TablesReply:
        labels = [
            None if points is None else find_nearest(points, centers.read())
            for points, centers in zip(_points(site, request), request.centers, strict=True)
        ]
        places, counts, size = list[Any](), list[Any](), request.n_clusters**2
        for number, (i, j) in enumerate(list_pairs(request.witnesses)):
            first, second = labels[i], labels[j]
            if first is not None and second is not None:
                table = count_together(first, second, request.n_clusters).ravel()
                held = np.flatnonzero(table)
                places.append(number * size + held)
                counts.append(table[held])
        if not places:
            return TablesReply(np.zeros(0, np.uint32), np.zeros(0, np.uint16))
        return TablesReply(np.concatenate(places).astype(np.uint32), np.concatenate(counts).astype(np.uint16))

    def check(self, board: Board, reply: TablesReply, site: str) -> None:
        places, counts = reply.places, reply.counts
        if places.dtype != np.uint32 or counts.dtype != np.uint16 or places.ndim != 1 or places.shape != counts.shape:
            raise MessageError("tables of counts are whole numbers with a place each", site)
        most = len(list_pairs(board.get(Partitions).witnesses)) * self.partitions.n_clusters**2
        if len(places) and (np.any(np.diff(places.astype(np.int64)) <= 0) or int(places[-1]) >= most):
            raise MessageError("places outside of the tables that were asked for", site)

    def combine(self, board: Board, replies: Mapping[str, TablesReply]) -> Board:
        witnesses, c = board.get(Partitions).witnesses, self.partitions.n_clusters
        pairs = list_pairs(witnesses)
        total = np.zeros(len(pairs) * c * c)
        for reply in replies.values():
            total[reply.places] += reply.counts
        tables = dict(zip(pairs, total.reshape(-1, c, c), strict=True))
        scalings, opinions = read_choice(len(board.get(Schema).names), witnesses, tables)
        return board.drop(Partitions).put(Scalings(tuple(scalings), tuple(opinions)))


# --------------------------------------------------------------------------------------- rows in the form of the choice


@dataclass(frozen=True)
class GivenScalings(ServerPhase):
    """A scaling that was given for all views, and for which rows are described once more."""

    name: ClassVar[str] = "given scaling"

    scaling: Scaling

    def begin(self, board: Board) -> Board:
        names, known = board.get(Schema).names, board.get(Documents).counts
        if unknown := [name for name in names if self.scaling.needs_counts and name not in known]:
            raise DataError(
                f"{self.scaling!r} is for counts and shares, but the views {unknown} have negative cells: use "
                "scaling='standard', 'none' or 'l2', or 'auto', which chooses for each view."
            )
        return board.put(Scalings((self.scaling,) * len(names)))

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        raise ValueError(f"{self.scaling!r} does not go with {terms.reason}: use scaling='l2' or 'standard'.")


@dataclass(frozen=True, eq=False)
class FormsRequest:
    """Ask for the moments of views whose rows are in another form than they come in."""

    views: tuple[int, ...]
    forms: tuple[RowForm, ...]
    ranges: bool


@dataclass(frozen=True, eq=False)
class FormsReply:
    """Moments of these views; of no rows, where the site lacks one."""

    moments: tuple[Moments, ...]


@dataclass(frozen=True)
class DescribeForms(OpenPhase):
    """References of the chosen scalings, after one more description where rows are in another form."""

    name: ClassVar[str] = "forms"
    request_type: ClassVar[Any] = FormsRequest
    reply_type: ClassVar[Any] = FormsReply

    settings: Settings

    def begin(self, board: Board) -> Board:
        return board if self._views(board) else self._publish(board, {})

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not self._views(board)

    def request(self, board: Board) -> FormsRequest:
        views, forms = self._views(board), self._forms(board)
        return FormsRequest(tuple(views), tuple([forms[view] for view in views]), self.settings.needs_ranges)

    @staticmethod
    def answer(site: Site, request: FormsRequest) -> FormsReply:
        views, widths = site.aligned_views(), site.board.get(References).widths
        if any(not 0 <= view < len(widths) for view in request.views):
            raise MessageError("a view that is not known")
        forms = dict(zip(request.views, request.forms, strict=True))
        for view, form in forms.items():
            if form.root and views.tables[view] is not None and has_negative(views.tables[view]):
                raise MessageError("roots are asked for where cells are negative")
            if len(form.weights) not in (0, widths[view]):
                raise MessageError("weights of words are not those of the features")
        found = site_moments(_only(views, request.views), [widths[v] for v in request.views], forms=request.forms)
        check_spreads(found, [views.names[view] for view in request.views])
        unknown = [np.full(moments.low.shape, np.nan) for moments in found]
        if not request.ranges:
            found = tuple(replace(m, low=nan, high=nan) for m, nan in zip(found, unknown, strict=True))
        return FormsReply(found)

    def check(self, board: Board, reply: FormsReply, site: str) -> None:
        views, widths = self._views(board), board.get(References).widths
        if len(reply.moments) != len(views):
            raise MessageError(f"moments of {len(reply.moments)} views, expected {len(views)}", site)
        for view, moments in zip(views, reply.moments, strict=True):
            check_moments(moments, widths[view], site, ranges=self.settings.needs_ranges)

    def combine(self, board: Board, replies: Mapping[str, FormsReply]) -> Board:
        merged, widths = dict[int, Moments](), board.get(References).widths
        for place, view in enumerate(self._views(board)):
            whole = Moments.none(widths[view])
            for reply in replies.values():
                whole = whole.merge(reply.moments[place])
            merged[view] = replace(whole, total=board.get(Population).rows)
        return self._publish(board, merged)

    def _views(self, board: Board) -> list[int]:
        return [view for view, own in enumerate(board.get(Scalings).scalings) if own.unit_rows]

    def _forms(self, board: Board) -> list[RowForm]:
        known, names, rows = board.get(Documents).counts, board.get(Schema).names, board.get(Population).rows
        scalings = board.get(Scalings).scalings
        return [own.form(known.get(name, np.zeros(0)), rows) for name, own in zip(names, scalings, strict=True)]

    def _publish(self, board: Board, merged: Mapping[int, Moments]) -> Board:
        population, scalings = board.get(Population), board.get(Scalings).scalings
        if all(own == self.settings.scaling for own in scalings):  # the references stand
            return board
        moments = tuple([merged.get(view, own) for view, own in enumerate(population.moments)])
        names, forms = board.get(Schema).names, self._forms(board)
        references = references_from_moments(
            moments, names, scalings, self.settings.heat_coef, forms, columns=board.get(Population).columns
        )
        limits = limits_from_moments(references, moments)
        return board.put(References(references), replace(population, moments=moments), Space(limits))


def _only(views: Any, kept: Sequence[int]) -> Any:
    """A site's views without the others."""
    parts = {
        name: tuple([getattr(views, name)[view] for view in kept]) for name in ("tables", "names", "missing", "columns")
    }
    return replace(views, **parts)
