"""The personalised protocol (Algorithm 4): sites keep a model of their own from round to round.

A round has five steps. The server broadcasts the global model. A site blends it with its local model of the round
before, by a share for each component; passes over its rows from there; and sends the sums of its rows at the model that
it ends with, its view weights, and how well it fares. The server weighs sites by quality, omega = softmax(-tau J).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Broadcast, Minimisation, Space
from fedhk.federation.plausible import ROUNDING, check_statistics
from fedhk.federation.protocols.averaging import quality_shares
from fedhk.federation.protocols.base import Protocol, RoundContext, RoundRequest
from fedhk.federation.protocols.factors import FactorBroadcast
from fedhk.federation.protocols.statistics import StatisticsReply
from fedhk.federation.site import Site
from fedhk.federation.table import Table, check_array
from fedhk.model.parameters import Parameters
from fedhk.personal.component import Share
from fedhk.personal.factors import PARTS
from fedhk.personal.objective import global_objective
from fedhk.personal.options import Personal, RoundModel, check_share, check_site_names, is_default
from fedhk.personal.outcome import SiteTerms
from fedhk.personal.rounds import CENTERS, VIEWS, KeptModel, OwnRounds, run_site_round
from fedhk.personal.shares import PRIOR_ROWS
from fedhk.starts.settings import Settings
from fedhk.tensors.low_rank import LowRankForm, LowRankParameters

COMPONENTS = (CENTERS, *PARTS, VIEWS)


@dataclass(frozen=True, eq=False)
class OwnModels(Entry):
    """A site's own models of its last round and of the best one. They never leave the site."""

    models: tuple[KeptModel, ...]


@dataclass(frozen=True, eq=False)
class PersonalReply(StatisticsReply):
    """Sums over a site's rows at its local model, its view weights, and the terms of its objective."""

    view_weights: FloatArray
    terms: SiteTerms


@dataclass(frozen=True, eq=False)
class PersonalRequest(RoundRequest):
    """Ask for a round of the site's own model from these parameters."""

    model: Broadcast
    options: OwnRounds
    learn_weights: bool
    round: int  # of this request, from 1 on
    best: int  # the round with the lowest objective so far; 0 before there is one

    def answer(self, site: Site) -> PersonalReply:
        rows = site.rows()
        kept = next((entry.models for entry in site.memory.find(OwnModels)), ())
        found = run_site_round(
            rows,
            self.model.parameters(rows.widths),
            kept,
            self.options,
            site=site.name,
            learn_weights=self.learn_weights,
            workers=site.workers,
        )
        latest = replace(found.kept, round=self.round)
        site.keep(OwnModels((*(model for model in kept if model.round == self.best), latest)))
        sums, local = found.statistics, found.kept.local
        return PersonalReply(
            Table.of(np.hstack(sums.numerators), "double"),
            sums.weights,
            np.maximum(sums.costs, 0.0),
            sums.masses,
            sums.objective,
            sums.rows,
            local.view_weights,
            found.terms,
        )


@dataclass(frozen=True)
class Personalized(Protocol):
    """Keep a model of its own at every site through the rounds (FedHK-MVC-Person, Algorithm 4).

    In every round a site blends the global model with its local one of the round before, and passes over its rows from
    there. It keeps both; what it sends is sums of its rows. The server adds the sums, weighing sites by the quality of
    their models. This is no descent, so the rounds keep the best model and say so. The objective of `history_` is that
    of the own models with the pulls, for as many rows as there are (`eqn:fed_global_obj_personalization`).

    Parameters
    ----------
    centers : "auto", float or dict, default="auto"
        lambda: share of a site's local centres in its own model, from 0 to 1; one for all sites, or by site. "auto",
        and a site that the dict does not name, learns it in the rounds, from 0.5 on. Without a decomposition only.
    core, cluster_factor, feature_factors, view_factor : "auto", float or dict, default="auto"
        The same for G, P, Q and R, with a decomposition only.
    view_weights : "auto", float or dict, default="auto"
        rho: the same for view weights, where they are learned.
    passes : int, default=2
        E: passes over a site's rows in a round.
    temperature : float, default=10.0
        tau of `eqn:client_weights`, with the mean objective of a row; 0 weighs all sites alike, whatever their quality.
    step : float or None, default=None
        beta of `eqn:adaptive_lambda`: learned shares of centres take a clipped gradient step of this size on the
        objective, a sum over rows; that of view weights stays at 0.5. None moves every learned share by a tenth up or
        down in each round, where that costs less: no size has to fit the data.
    held_out : float, default=0.2
        Share of a site's rows that its passes do not see, on which shares are learned. 0 learns them on the rows
        themselves, as the paper has it; there no share is better than 1.
    center_pull : float, default=5.0
        gamma of R_person: rows by which each global centre pulls a local one in the passes. Five, as everywhere in own
        models: a cluster with as few rows at a site is believed by half. 0 is none, and local centres drift apart.
    tensor_pull : float, default=0.0
        gamma of R_tensor: the same for core and factors, with a decomposition only.
    view_pull : float, default=0.0
        eta of R_view: the same for view weights, where they are learned.

    Examples
    --------
    >>> from fedhk.protocols import Personalized
    >>> Personalized(centers={"rome": 0.3}, passes=3).passes
    3
    """

    reply_type: ClassVar[type[PersonalReply]] = PersonalReply

    centers: Share | dict[str, Share] = "auto"
    core: Share | dict[str, Share] = "auto"
    cluster_factor: Share | dict[str, Share] = "auto"
    feature_factors: Share | dict[str, Share] = "auto"
    view_factor: Share | dict[str, Share] = "auto"
    view_weights: Share | dict[str, Share] = "auto"
    passes: int = 2
    temperature: float = 10.0
    step: float | None = None
    held_out: float = 0.2
    center_pull: float = PRIOR_ROWS
    tensor_pull: float = 0.0
    view_pull: float = 0.0

    def __post_init__(self) -> None:
        for name in COMPONENTS:
            given = getattr(self, name)
            if isinstance(given, Mapping):
                checked: Any = {str(site): check_share(f"{name}[{site!r}]", share) for site, share in given.items()}
            else:
                checked = check_share(name, given)
            self._set(name, checked)
        self._keep_whole("passes", 1)
        for name in ("temperature", "center_pull", "tensor_pull", "view_pull", "step"):
            self._keep_number(name, lambda number: number >= 0, "a number of 0 or more", or_none=name == "step")
        self._keep_number("held_out", lambda share: 0 <= share < 1, "a number from 0 to below 1")

    @property
    def tau(self) -> float:
        """Temperature of the softmax over the quality of sites."""
        return self.temperature

    @property
    def options(self) -> OwnRounds:
        """Options that are sent to the sites."""
        shares = {name: getattr(self, name) for name in COMPONENTS}
        return OwnRounds(
            self.passes,
            {name: share for name, share in shares.items() if share != "auto"},
            self.step,
            self.held_out,
            self.center_pull,
            self.tensor_pull,
            self.view_pull,
        )

    def check_settings(self, settings: Settings) -> None:
        if isinstance(settings.form, LowRankForm):
            self._refuse(CENTERS, "with a decomposition", f"give the shares of its parts, {', '.join(PARTS)}")
        else:
            for name in (*PARTS, "tensor_pull"):
                self._refuse(name, "without a decomposition", "give decomposition='tucker' or 'parafac2'")
        if not settings.learn_weights:
            for name in (VIEWS, "view_pull"):
                self._refuse(name, "where view weights are not learned", "give view_weights='learned'")

    def _refuse(self, name: str, why: str, remedy: str) -> None:
        given = getattr(self, name)
        if given not in ("auto", 0.0):
            raise ValueError(f"Personalized({name}={given!r}) has no effect {why}: {remedy}, or leave {name} out.")

    def check_sites(self, names: Sequence[str]) -> None:
        check_site_names({name: getattr(self, name) for name in COMPONENTS}, names)

    def choose_personal(self, given: Personal) -> Personal:
        if not is_default(given):
            raise ValueError(
                f"personalization={given!r} has no effect with {type(self).__name__}: sites have the own models of "
                "the rounds. Give shares and pulls to the protocol, and leave personalization out."
            )
        return RoundModel(self.options)

    def request(self, board: Board, context: RoundContext) -> PersonalRequest:
        progress = board.get(Minimisation).progress
        learn = context.settings.learn_weights
        model = _broadcast_of(progress.parameters)
        return PersonalRequest(model, self.options, learn, progress.iteration + 1, progress.lowest_at)

    def check(self, board: Board, context: RoundContext, reply: PersonalReply, site: str) -> None:
        parameters, space = board.get(Minimisation).parameters, board.get(Space)
        reply.check(parameters.n_clusters, space.widths, site)
        check_array(reply.view_weights, parameters.view_weights.shape, site, "view weights", non_negative=True)
        if abs(float(reply.view_weights.sum()) - 1.0) > ROUNDING:
            raise MessageError("weights of views that do not sum to 1", site)
        at_local = replace(parameters.free(), view_weights=reply.view_weights)
        check_statistics(reply.read(space.widths, means=False), at_local, space.reach, site)
        reply.terms.check(site)

    def combine(
        self,
        board: Board,
        context: RoundContext,
        replies: Mapping[str, PersonalReply],
    ) -> tuple[Board, Parameters, float]:
        before, widths = board.get(Minimisation).parameters, board.get(Space).widths
        sites = [reply.read(widths, means=False) for reply in replies.values()]
        rows = np.array([site.rows for site in sites])
        if not rows.any():
            return board, before, 0.0
        omega = quality_shares([site.objective for site in sites], rows, self.tau)
        # eqn:fed_global_centers: sums of sites, times omega
        total = sites[0].scaled(float(omega[0]))
        for share, site in zip(omega[1:], sites[1:], strict=True):
            total = total + site.scaled(float(share))
        better = before.move_centers(total)
        if context.settings.learn_weights:  # eqn:fed_global_views
            weights = (omega * rows) @ np.stack([reply.view_weights for reply in replies.values()])
            better = replace(better, view_weights=weights / weights.sum())
        terms = [reply.terms for reply in replies.values()]
        return board, better, float(rows.sum()) * self.measure(terms)["total"]

    def measure(self, terms: Sequence[SiteTerms]) -> dict[str, float]:
        """Compute the objective of the own models, and its terms, for one row."""
        pulls = {"center_pull": self.center_pull, "tensor_pull": self.tensor_pull, "view_pull": self.view_pull}
        return global_objective(terms, temperature=self.tau, **pulls)

    def finish(self, board: Board) -> tuple[Broadcast, Parameters]:
        parameters = board.get(Minimisation).parameters
        return _broadcast_of(parameters), parameters


def _broadcast_of(parameters: Parameters) -> Broadcast:
    """Make the broadcast of parameters, with factors if they have a low-rank form."""
    kind = FactorBroadcast if isinstance(parameters, LowRankParameters) else Broadcast
    return kind.of(parameters)
