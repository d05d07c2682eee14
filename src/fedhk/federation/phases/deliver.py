"""Deliver: every site makes its own model from the final one and its rows. Labels and own models stay at the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fedhk._typing import FloatArray, IntArray
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry, Passing, RowEntry
from fedhk.federation.entries import (
    Basis,
    Broadcast,
    FinalModel,
    FinalParameters,
    Minimisation,
    OwnPast,
    Schema,
    Summary,
    find_folds,
    fitted_model,
)
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.finish import final_parameters, final_rows, forget_final_rows
from fedhk.federation.phases.fold import WideSums, mean_of_sums
from fedhk.federation.phases.frame import Frame
from fedhk.federation.protocols.personalized import OwnModels
from fedhk.federation.site import Site
from fedhk.model.drift import SitePast
from fedhk.model.fitted import FittedModel
from fedhk.model.passes import Assignment
from fedhk.personal.options import Personal
from fedhk.personal.outcome import SiteOutcome, SiteReport
from fedhk.tensors.low_rank import LowRank, LowRankParameters

# Most numbers in the means by cluster that a site keeps, 8 MB; it keeps none for wider views.
MOST_REMEMBERED = 2**20


@dataclass(frozen=True)
class DeliverRequest:
    """Ask every site to make its own model and, with `report`, to say a few numbers of it.

    `forms` has the low-rank form of the final centres, in the coordinates of the basis where there is one. It is ()
    where they have none, where the site knows it, or where its own model does not need it.
    """

    personal: Personal  # what a site's own model may take from its rows
    learn_weights: bool
    report: bool  # never where noise or masks hide single sites
    keep: float = 0.0  # by how much rows that the site remembers from before count beside those that it has now
    forms: tuple[LowRank, ...] = ()


@dataclass(frozen=True)
class DeliverReply:
    """A site's report on its own model, if asked for, and sums of rows of folded views, by name."""

    reports: tuple[SiteReport, ...] = ()
    sums: dict[str, WideSums] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class WideMeans(Entry):
    """Means of the rows of each cluster in the columns of very wide views, by name, of shape (c, columns)."""

    means: dict[str, FloatArray]


@dataclass(frozen=True, eq=False)
class Outcome(Passing):
    """A site's own model and labels. They stay at the site, and are not in its state file."""

    outcome: SiteOutcome


@dataclass(frozen=True, eq=False)
class Reports(Entry):
    """Reports of the sites on their own models."""

    reports: dict[str, SiteReport] = field(default_factory=dict)


@dataclass(frozen=True)
class Deliver(Phase[DeliverRequest, DeliverReply]):
    """Make own models at the sites."""

    name: ClassVar[str] = "deliver"

    personal: Personal
    learn_weights: bool
    report: bool = True
    keep: float = 0.0

    def request(self, board: Board) -> DeliverRequest:
        forms: tuple[LowRank, ...] = ()
        final = board.get(FinalParameters).parameters
        # sites that were sent the factors know the form
        sent_centers = type(board.get(FinalModel).model) is Broadcast
        if self.personal.uses_form and isinstance(final, LowRankParameters) and sent_centers:
            form = final.form
            for basis in board.find(Basis):
                form = final.form_in_basis(board.get(Minimisation).parameters, basis.columns)
            forms = (form,)
        return DeliverRequest(self.personal, self.learn_weights, self.report, self.keep, forms)

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [replace(self, report=False)]

    @staticmethod
    def answer(site: Site, request: DeliverRequest) -> DeliverReply:
        board, views, parameters = site.board, site.aligned_views(), final_parameters(site)
        if tuple(part.shape[1] for part in parameters.centers) != site.rows().widths:
            raise MessageError("the final centres are of other widths than the views have")
        for form in request.forms:
            outer = form.from_basis(board.get(Basis).columns) if board.has(Basis) else form
            if [part.shape for part in outer.centers()] != [part.shape for part in parameters.centers]:
                raise MessageError("the server says a form that the final centres cannot have")
            parameters = LowRankParameters.of(parameters, outer)
        model = fitted_model(board, parameters, board.get(Schema).columns_of(views))
        taken_out = [frame.measure(site) for frame in board.find(Frame)]
        outcome = request.personal.fit(
            model,
            tuple(frame.calibration for frame in board.find(Frame)),
            tuple(entry.summary for entry in board.find(Summary)),
            views,
            site=site.name,
            learn_weights=request.learn_weights,
            workers=site.workers,
            kept=next((entry.models for entry in site.memory.find(OwnModels)), ()),
            assigned=_find_assignment(site, request),
            taken_out=taken_out,
        )
        sums = _sum_wide(site, outcome.global_labels, parameters.n_clusters)
        site.keep(Outcome(replace(outcome, model=_unfold(site, outcome.model, sums))))
        _remember_rows(site, request.keep, taken_out)
        forget_final_rows(site)
        return DeliverReply((outcome.report,) if request.report else (), sums)

    def check(self, board: Board, reply: DeliverReply, site: str) -> None:
        for report in reply.reports:
            report.check(site)
        folds = find_folds(board)
        for name, sums in reply.sums.items():
            if name not in folds:
                raise MessageError("sums of rows in a view that is not folded", site)
            sums.check(board.get(FinalParameters).parameters.n_clusters, folds[name].n_columns, site)

    def combine(self, board: Board, replies: Mapping[str, DeliverReply]) -> Board:
        means, clusters = {}, board.get(FinalParameters).parameters.n_clusters
        for name, fold in find_folds(board).items():
            sent = [reply.sums[name] for reply in replies.values() if name in reply.sums]
            means[name] = mean_of_sums(sent, clusters, fold.n_columns)
        board = board.put(WideMeans(means)) if means else board
        return board.put(Reports({site: reply.reports[0] for site, reply in replies.items() if reply.reports}))


def _find_assignment(site: Site, request: DeliverRequest) -> Assignment | None:
    """Return the memberships of rows in the common model where `Finish` needs them, too: few rows, read as they are."""
    if request.forms or any(site.board.find(RowEntry)):
        return None
    final = final_rows(site)
    return final.assigned if final.is_small else None


def _sum_wide(site: Site, labels: IntArray, n_clusters: int) -> dict[str, WideSums]:
    """Sum the site's rows by cluster, in all columns of folded views."""
    folds, tables = find_folds(site.board), zip(site.views.names, site.views.tables, strict=True)
    return {
        name: WideSums.of(folds[name], table, labels, n_clusters)
        for name, table in tables
        if name in folds and table is not None
    }


def _unfold(site: Site, model: FittedModel, sums: Mapping[str, WideSums]) -> FittedModel:
    """Convert a site's own model to unfolded rows, with the means of its own rows in very wide views."""
    folds = find_folds(site.board)
    clusters = model.parameters.n_clusters
    means = {
        name: mean_of_sums([sums[name]] if name in sums else [], clusters, fold.n_columns)
        for name, fold in folds.items()
    }
    columns = dict(zip(site.views.names, site.views.columns, strict=True))
    return model.unfold(folds, means, {name: columns.get(name) for name in folds})


def _remember_rows(site: Site, keep: float, taken_out: Sequence[FloatArray]) -> None:
    """Keep at the site what later updates compare rows with; in an update, earlier rows are weighted by `keep`."""
    final = final_rows(site)
    if final.common.n_clusters * sum(final.features.widths) > MOST_REMEMBERED:
        return
    past = SitePast.of(final.placed, final.means, final.common, *taken_out)
    for known in site.memory.find(OwnPast) if keep > 0 else ():
        past = known.past.add(past, keep)
    site.keep(OwnPast(past))
