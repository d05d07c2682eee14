"""Deliver: every site makes its own model from the final one and its rows; labels and own models stay at the site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry, Passing
from fedhk.federation.entries import (
    Basis,
    Broadcast,
    FinalModel,
    FinalParameters,
    Minimisation,
    Schema,
    Summary,
    fitted_model,
)
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.finish import final_parameters
from fedhk.federation.phases.frame import Frame
from fedhk.federation.protocols.personalized import OwnModels
from fedhk.federation.site import Site
from fedhk.personal.options import Personal
from fedhk.personal.outcome import SiteOutcome, SiteReport
from fedhk.tensors.low_rank import LowRank, LowRankParameters


@dataclass(frozen=True)
class DeliverRequest:
    """Ask every site to make its own model and, with `report`, to say a few numbers of it.

    `forms` has the low-rank form of the final centres, in the coordinates of the basis where there is one. It is ()
    where they have none, where the site knows it, or where its own model does not need it.
    """

    personal: Personal  # what a site's own model may take from its rows
    learn_weights: bool
    report: bool  # never where noise or masks hide single sites
    forms: tuple[LowRank, ...] = ()


@dataclass(frozen=True)
class DeliverReply:
    """What a site says of its own model: nothing, or one report."""

    reports: tuple[SiteReport, ...] = ()


@dataclass(frozen=True, eq=False)
class Outcome(Passing):
    """A site's own model and labels. They stay at the site, and its state file has none of them."""

    outcome: SiteOutcome


@dataclass(frozen=True, eq=False)
class Reports(Entry):
    """What sites say of their own models, by site."""

    reports: dict[str, SiteReport] = field(default_factory=dict)


@dataclass(frozen=True)
class Deliver(Phase[DeliverRequest, DeliverReply]):
    """Own models at the sites."""

    name: ClassVar[str] = "deliver"

    personal: Personal
    learn_weights: bool
    report: bool = True

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
        return DeliverRequest(self.personal, self.learn_weights, self.report, forms)

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
        outcome = request.personal.fit(
            model,
            tuple(frame.calibration for frame in board.find(Frame)),
            tuple(entry.summary for entry in board.find(Summary)),
            views,
            site=site.name,
            learn_weights=request.learn_weights,
            workers=site.workers,
            kept=next((entry.models for entry in site.memory.find(OwnModels)), ()),
        )
        site.keep(Outcome(outcome))
        return DeliverReply((outcome.report,) if request.report else ())

    def check(self, board: Board, reply: DeliverReply, site: str) -> None:
        for report in reply.reports:
            report.check(site)

    def combine(self, board: Board, replies: Mapping[str, DeliverReply]) -> Board:
        return board.put(Reports({site: reply.reports[0] for site, reply in replies.items() if reply.reports}))
