"""Scalings: the units of each view, where rows are counts or units are chosen by neighbours that views have in common.

Sites say in how many rows each feature is above 0. Where rows are brought to another form (length 1, roots, weights of
words), sites describe them once more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.agreement.opinions import Opinion
from fedhk.agreement.scalings import (
    NUMBERS,
    SAMPLE_ROWS,
    Witness,
    compare_witnesses,
    find_options,
    list_pairs,
    list_witnesses,
    read_choice,
)
from fedhk.data.moments import Moments
from fedhk.data.row_forms import RowForm, count_documents, count_rows_without_total, has_negative
from fedhk.data.scaling import SCALINGS, Reference, Scaling, UnitRows
from fedhk.data.views import Views
from fedhk.errors import DataError, MessageError
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator
from fedhk.federation.board import Board, Entry, Shared
from fedhk.federation.entries import Folds, Members, Population, References, Schema, Space
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Nothing, Phase, ServerPhase, SumPhase
from fedhk.federation.phases.describe import check_moments
from fedhk.federation.plausible import MOST_ROWS, limits_from_moments
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.model.preparation import check_spreads, references_from_moments, site_moments
from fedhk.privacy.fixed_point import shortest_word
from fedhk.starts.settings import Settings


@dataclass(frozen=True, eq=False)
class Documents(Entry):
    """The number of rows of all sites in which each feature is above 0, by view; not of views with negative cells.

    Also the number of rows at sites whose rows do not have one total.
    """

    counts: dict[str, FloatArray]
    without_total: dict[str, float]


@dataclass(frozen=True, eq=False)
class Words(Shared):
    """The same counts, shared with sites, of the views that may be text; empty for the others."""

    rows: float  # of all sites
    documents: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class Scalings(Entry):
    """The scaling of each view, and the options that were compared."""

    scalings: tuple[Scaling, ...]
    opinions: tuple[Opinion, ...] = ()


def scalings_of(board: Board, settings: Settings) -> tuple[Scaling, ...]:
    """Return the scaling of each view: the chosen ones, or the one given for all."""
    chosen = next(board.find(Scalings), Scalings((settings.scaling,) * len(board.get(Schema).names)))
    return chosen.scalings


# ------------------------------------------------------------------------------------------------------ counts of words


@dataclass(frozen=True, eq=False)
class DocumentsReply:
    """The number of rows of a site in which each feature is above 0, by view; empty for a view with negative cells.

    Also the number of its rows, or 0 where all of them have one total.
    """

    counts: dict[str, FloatArray]
    without_total: dict[str, int]


@dataclass(frozen=True)
class CountDocuments(Phase[Nothing, DocumentsReply]):
    """Count the rows of all sites in which each feature is above 0, and those at sites where rows have no common total.

    The first tell text, the second histograms.
    """

    name: ClassVar[str] = "documents"

    @staticmethod
    def answer(site: Site, request: Nothing) -> DocumentsReply:
        counts, without_total = {}, {}
        views = site.read_views()
        for name, table in zip(views.names, views.tables, strict=True):
            if table is not None:
                found = np.zeros(0) if has_negative(table) else count_documents(table)
                counts[name] = found.astype(np.float32)
                without_total[name] = count_rows_without_total(table)
        return DocumentsReply(counts, without_total)

    def check(self, board: Board, reply: DocumentsReply, site: str) -> None:
        for counts in reply.counts.values():
            check_array(counts, (None,), site, "rows with each feature", non_negative=True)
            if np.any(counts > MOST_ROWS):
                raise MessageError("more rows with a feature than any site has", site)
        if reply.without_total.keys() != reply.counts.keys():
            raise MessageError("totals of other views than are described", site)
        if any(not 0 <= rows <= MOST_ROWS for rows in reply.without_total.values()):
            raise MessageError("more rows without a common total than any site has", site)

    def combine(self, board: Board, replies: Mapping[str, DocumentsReply]) -> Board:
        total, without_total = dict[str, FloatArray](), dict[str, float]()
        for name, moments in zip(board.get(Schema).names, board.get(Population).moments, strict=True):
            parts = [np.asarray(reply.counts[name], np.float64) for reply in replies.values() if name in reply.counts]
            if parts and all(part.shape == moments.mean.shape for part in parts):
                total[name] = np.sum(parts, axis=0)
                without_total[name] = float(sum(reply.without_total.get(name, 0) for reply in replies.values()))
        return board.put(Documents(total, without_total))

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        return SumDocuments().sealed(terms)


@dataclass(frozen=True)
class SumDocuments(SumPhase[Nothing]):
    """Count the same under masks, and per view the sites that have a negative cell."""

    name: ClassVar[str] = "sum documents"
    counts: ClassVar[bool] = True
    with_noise: ClassVar[bool] = False  # views have z-scores

    def word(self, board: Board) -> int:
        return shortest_word(max(board.get(Population).rows, len(board.get(Members).sites)))

    def size(self, board: Board) -> int:
        return sum(width + 2 for width in board.get(References).widths)

    @staticmethod
    def vector(site: Site, request: Nothing) -> FloatArray:
        parts = []
        for table, width in zip(site.aligned_views().tables, site.board.get(References).widths, strict=True):
            negative = table is not None and has_negative(table)
            known = np.zeros(width) if table is None or negative else count_documents(table)
            without_total = 0 if table is None else count_rows_without_total(table)
            parts.append(np.append(known, [without_total, float(negative)]))
        return np.concatenate(parts)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        widths = board.get(References).widths
        parts = np.split(total, np.cumsum([width + 2 for width in widths])[:-1])
        known = {name: part for name, part in zip(board.get(Schema).names, parts, strict=True) if part[-1] < 0.5}
        without_total = {name: float(part[-2]) for name, part in known.items()}
        return board.put(Documents({name: part[:-2] for name, part in known.items()}, without_total))


# ------------------------------------------------------------------------------------------------- neighbours in common


@dataclass(frozen=True, eq=False)
class NeighboursRequest:
    """Ask how many neighbours rows of the site have in common as each pair of witnesses sees them."""

    witnesses: tuple[Witness, ...]


@dataclass(frozen=True)
class CompareNeighbours(SumPhase[NeighboursRequest]):
    """Neighbours that rows have in common under the scalings of views, and the scaling of each view that follows."""

    name: ClassVar[str] = "neighbours"
    with_noise: ClassVar[bool] = False  # views have z-scores

    aggregator: Aggregator = PLAIN_SUM

    def begin(self, board: Board) -> Board:
        if not self._witnesses(board):
            return self._publish(board, np.zeros((0, NUMBERS)))
        known, nothing = board.get(Documents).counts, np.zeros(0, np.float32)
        weighed = {witness.view for witness in self._witnesses(board) if SCALINGS[witness.option].weighs_words}
        named = enumerate(board.get(Schema).names)
        counts = tuple([known[name].astype(np.float32) if view in weighed else nothing for view, name in named])
        return board.put(Words(board.get(Population).rows, counts))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not self._witnesses(board)

    def request(self, board: Board) -> NeighboursRequest:
        return NeighboursRequest(self._witnesses(board))

    def size(self, board: Board) -> int:
        return NUMBERS * len(list_pairs(self._witnesses(board)))

    def participants(self, board: Board, sites: Sequence[str], participation: Participation, seed: Any) -> list[str]:
        return participation.draw_sample(sites, seed)

    @staticmethod
    def vector(site: Site, request: NeighboursRequest) -> FloatArray:
        views, references, words = site.aligned_views(), site.board.get(References).references, site.board.get(Words)
        for witness in request.witnesses:
            _check_witness(witness, views, references, words)
        documents = [counts if len(counts) else None for counts in words.documents]
        return compare_witnesses(views, references, request.witnesses, documents, words.rows).ravel()

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        sums = values.reshape(-1, NUMBERS)
        if np.any(sums < 0) or np.any(sums[:, -1] > SAMPLE_ROWS) or np.any(sums > sums[:, -1:] * (1 + 1e-9)):
            raise MessageError("more neighbours in common than rows can have", site)

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        rows = [np.repeat(values.reshape(-1, NUMBERS)[:, -1], NUMBERS) for values in vectors]
        return self.aggregator.sums(vectors, rows)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        return self._publish(board, total.reshape(-1, NUMBERS))

    def _publish(self, board: Board, sums: FloatArray) -> Board:
        scalings, opinions = read_choice(self._options(board), sums)
        return board.put(Scalings(tuple(scalings), tuple(opinions)))

    def _witnesses(self, board: Board) -> tuple[Witness, ...]:
        return list_witnesses(self._options(board))

    def _options(self, board: Board) -> list[tuple[str, ...]]:
        population, known = board.get(Population), board.get(Documents)
        named = zip(board.get(Schema).names, population.moments, population.columns, strict=True)
        return [
            find_options(moments, known.counts.get(name), columns, known.without_total.get(name, math.inf))
            for name, moments, columns in named
        ]


def _check_witness(witness: Witness, views: Views, references: Sequence[Reference], words: Words) -> None:
    """Refuse a witness that does not fit a site's rows."""
    if not (0 <= witness.view < len(references) == len(words.documents) and witness.half in (-1, 0, 1)):
        raise MessageError("neighbours in a view that is not known")
    if witness.option not in SCALINGS:
        raise MessageError("neighbours under a scaling that is not known")
    scaling, table = SCALINGS[witness.option], views.tables[witness.view]
    if scaling.needs_counts and table is not None and has_negative(table):
        raise MessageError("counts are asked for where cells are negative")
    if scaling.weighs_words and words.documents[witness.view].shape != (references[witness.view].width,):
        raise MessageError("weights of words are missing")


# --------------------------------------------------------------------------------------- rows in the form of the choice


@dataclass(frozen=True)
class GivenScalings(ServerPhase):
    """Use a scaling that was given for all views and needs the rows described once more."""

    name: ClassVar[str] = "given scaling"

    scaling: Scaling

    def begin(self, board: Board) -> Board:
        names, known = board.get(Schema).names, board.get(Documents).counts
        folded = {name for entry in board.find(Folds) for name in entry.folds}  # rows have had their form
        if unknown := [name for name in names if self.scaling.needs_counts and name not in known.keys() | folded]:
            raise DataError(
                f"{self.scaling!r} is for counts and shares, but the views {unknown} have negative cells: use "
                "scaling='standard', 'none' or 'l2', or 'auto', which chooses for each view."
            )
        return board.put(Scalings(tuple([UnitRows() if name in folded else self.scaling for name in names])))

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
    """Moments of these views; of no rows for a view that the site lacks."""

    moments: tuple[Moments, ...]


@dataclass(frozen=True)
class DescribeForms(Phase[FormsRequest, FormsReply]):
    """Compute the references of the chosen scalings, after new moments where rows change their form."""

    name: ClassVar[str] = "forms"

    settings: Settings

    def begin(self, board: Board) -> Board:
        return board if self._views(board) else self.publish(board, {})

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not self._views(board)

    def request(self, board: Board) -> FormsRequest:
        views, forms = self._views(board), self._forms(board)
        return FormsRequest(tuple(views), tuple([forms[view] for view in views]), self.settings.needs_ranges)

    @staticmethod
    def answer(site: Site, request: FormsRequest) -> FormsReply:
        found = _describe_forms(site, request)
        check_spreads(found, [site.board.get(Schema).names[view] for view in request.views])
        return FormsReply(found if request.ranges else tuple([moments.without_range() for moments in found]))

    def check(self, board: Board, reply: FormsReply, site: str) -> None:
        known = board.get(References).widths
        widths = [known[view] for view in self._views(board)]
        check_moments(reply.moments, widths, site, ranges=self.settings.needs_ranges)

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        return SumForms(self).sealed(terms)

    def combine(self, board: Board, replies: Mapping[str, FormsReply]) -> Board:
        merged, widths = dict[int, Moments](), board.get(References).widths
        for place, view in enumerate(self._views(board)):
            whole = Moments.none(widths[view])
            for reply in replies.values():
                whole = whole.merge(reply.moments[place])
            merged[view] = replace(whole, total=board.get(Population).rows)
        return self.publish(board, merged)

    def _views(self, board: Board) -> list[int]:
        return [view for view, own in enumerate(board.get(Scalings).scalings) if own.changes_rows]

    def _forms(self, board: Board) -> list[RowForm]:
        known, names, rows = board.get(Documents).counts, board.get(Schema).names, board.get(Population).rows
        scalings = board.get(Scalings).scalings
        return [own.form(known.get(name, np.zeros(0)), rows) for name, own in zip(names, scalings, strict=True)]

    def publish(self, board: Board, merged: Mapping[int, Moments]) -> Board:
        """Return the board with the references, given the moments of the views whose rows change their form."""
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


def _describe_forms(site: Site, request: FormsRequest) -> tuple[Moments, ...]:
    """Compute the moments of a site's views whose rows change their form; of no rows for a view it lacks."""
    views, widths = site.aligned_views(), site.board.get(References).widths
    if any(not 0 <= view < len(widths) for view in request.views):
        raise MessageError("a view that is not known")
    for view, row_form in zip(request.views, request.forms, strict=True):
        if fault := row_form.find_fault(views.tables[view], widths[view]):
            raise MessageError(fault)
    return site_moments(_only(views, request.views), [widths[v] for v in request.views], forms=request.forms)


@dataclass(frozen=True)
class SumForms(SumPhase[FormsRequest]):
    """Compute the same under masks, from rows, sums and sums of squares of each view."""

    name: ClassVar[str] = "sum forms"
    with_noise: ClassVar[bool] = False  # views have z-scores

    describe: DescribeForms

    def begin(self, board: Board) -> Board:
        return self.describe.begin(board)

    def is_done(self, board: Board, exchanges: int) -> bool:
        return self.describe.is_done(board, exchanges)

    def request(self, board: Board) -> FormsRequest:
        return self.describe.request(board)

    def size(self, board: Board) -> int:
        widths = board.get(References).widths
        return sum(1 + 2 * widths[view] for view in self.request(board).views)

    @staticmethod
    def vector(site: Site, request: FormsRequest) -> FloatArray:
        parts = []
        for own in _describe_forms(site, request):
            parts += [np.array([own.rows]), own.weight * own.mean, own.squares + own.weight * np.square(own.mean)]
        return np.concatenate(parts)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        merged, widths = dict[int, Moments](), board.get(References).widths
        for view in self.request(board).views:
            (rows,), first, second, total = np.split(total, np.cumsum([1, widths[view], widths[view]]))
            mean, unknown = first / max(rows, 1.0), np.full(widths[view], np.nan)
            squares = np.maximum(second - rows * np.square(mean), 0.0)
            cells = np.full(widths[view], float(rows))
            merged[view] = Moments(float(rows), board.get(Population).rows, cells, mean, squares, unknown, unknown)
        return self.describe.publish(board, merged)


def _only(views: Any, kept: Sequence[int]) -> Any:
    """Return the chosen ones of a site's views."""
    parts = {
        name: tuple([getattr(views, name)[view] for view in kept]) for name in ("tables", "names", "missing", "columns")
    }
    return replace(views, **parts)
