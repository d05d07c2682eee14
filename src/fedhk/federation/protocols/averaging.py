"""The averaging protocol: each site makes a few passes over its rows, and the server averages the sites' centres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import Broadcast, Minimisation, Space
from fedhk.federation.plausible import ROUNDING, check_points, check_rows
from fedhk.federation.protocols.base import Protocol, RoundContext, RoundReply, RoundRequest
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import split_joint
from fedhk.model.statistics import Statistics

WEIGHTS = ("mass", "rows", "quality")


@dataclass(frozen=True, eq=False)
class LocalCenters(RoundReply):
    """A site's centres after its passes."""

    centers: FloatArray  # of shape (c, features), all views side by side
    masses: FloatArray  # how much of the site's rows each centre stands for, per view
    view_weights: FloatArray
    objective: float  # J at the server's parameters
    rows: float

    def check(self, parameters: Parameters, reach: Sequence[FloatArray], site: str) -> None:
        """Refuse malformed arrays, except the centres, and sums that so many rows cannot give."""
        check_array(self.masses, (parameters.n_clusters, len(reach)), site, "masses", non_negative=True)
        check_array(self.view_weights, (len(reach),), site, "view weights", non_negative=True)
        check_array(np.array([self.objective, self.rows]), (2,), site, "objective and rows", non_negative=True)
        check_rows(self.rows, self.objective, parameters, site)
        furthest = [max(2 * float(np.linalg.norm(limit)), 1.0) for limit in reach]
        if np.any(self.masses > (1 + ROUNDING) * self.rows * np.array(furthest)):
            raise MessageError(f"masses larger than the {self.rows:.6g} rows they are of", site)
        if abs(float(self.view_weights.sum()) - 1.0) > ROUNDING:
            raise MessageError("weights of views that do not sum to 1", site)


def average_centers(
    parameters: Parameters, sites: Sequence[LocalCenters], rule: str, temperature: float
) -> tuple[Parameters, float]:
    """Average centres and view weights of the sites (`eqn:global_A_EFKMVFC`, `eqn:global_V_EFKMVFC`); J before it.

    The rule weighs by the rows that each centre stands for ("mass"), by the rows of the site ("rows"), or by
    softmax(-tau J) of its mean objective ("quality", `eqn:client_weights`). A centre that no site holds stays.

    Notes
    -----
    The paper weighs by rows. A site without rows in a cluster then pulls its centre to wherever it was left; by mass it
    has no say. softmax is taken of the mean objective per row: of sums over rows it underflows and one site takes all.
    """
    if not any(site.rows for site in sites):
        return parameters, 0.0
    masses = np.stack([site.masses for site in sites])
    shares = client_shares(sites, rule, temperature)
    weights = masses if rule == "mass" else (masses > 0) * shares[:, None, None]
    by_site = [split_joint(site.centers, [part.shape[1] for part in parameters.centers]) for site in sites]
    centers = []
    for view, old in enumerate(parameters.centers):
        weight = weights[:, :, view]
        total = weight.sum(axis=0)[:, None]
        summed = np.einsum("lk,lkd->kd", weight, np.stack([centers_of[view] for centers_of in by_site]))
        centers.append(np.divide(summed, total, out=np.array(old, dtype=np.float64), where=total > 0))
    view_weights = shares @ np.stack([site.view_weights for site in sites])
    better = replace(parameters, centers=tuple(centers), view_weights=view_weights / view_weights.sum())
    return better, float(sum(site.objective for site in sites))


def client_shares(sites: Sequence[LocalCenters], rule: str, temperature: float) -> FloatArray:
    """Compute the share of each site: of the rows, or by the quality of its model (`eqn:client_weights`); sums to 1."""
    rows = np.array([site.rows for site in sites])
    if rule != "quality":
        return np.asarray(rows / rows.sum())
    return quality_shares([site.objective for site in sites], rows, temperature)


def quality_shares(objectives: Sequence[float], rows: FloatArray, temperature: float) -> FloatArray:
    """Compute softmax(-tau J) of the mean objective of a row per site (`eqn:client_weights`); 0 without rows."""
    means = np.divide(objectives, rows, out=np.full(len(rows), np.inf), where=rows > 0)
    filled = np.isfinite(means)
    scores = filled * np.exp(-temperature * np.where(filled, means - means.min(), 0.0))
    return np.asarray(scores / scores.sum())


def pass_locally(
    site: Site, parameters: Parameters, start: Parameters, passes: int, *, learn_weights: bool
) -> tuple[Parameters, Statistics, Statistics]:
    """Make some passes; return the site's own parameters, and the statistics of the first and of the last pass."""
    with Passes(site.rows(), parameters.n_clusters, site.workers) as scan:
        first = scan.statistics(parameters)
        latest = first if start is parameters else scan.statistics(start)
        local = improve(start, latest, learn_weights=learn_weights)
        for _ in range(passes - 1):
            latest = scan.statistics(local)
            local = improve(local, latest, learn_weights=learn_weights)
    return local, first, latest


@dataclass(frozen=True, eq=False)
class CentersRequest(RoundRequest):
    """Ask for a site's own centres after some passes from these parameters."""

    model: Broadcast
    passes: int
    learn_weights: bool

    def answer(self, site: Site) -> LocalCenters:
        parameters = self.model.parameters(site.rows().widths)
        local, first, latest = pass_locally(site, parameters, parameters, self.passes, learn_weights=self.learn_weights)
        return LocalCenters(np.hstack(local.centers), latest.heights, local.view_weights, first.objective, first.rows)


@dataclass(frozen=True)
class Averaging(Protocol):
    """Average the centres that each site reaches after some passes over its own rows.

    An average is no descent: the objective of all rows may rise. The rounds then keep the model with the lowest one.

    Parameters
    ----------
    passes : int, default=5
        Passes over a site's rows before it answers. More bring a site nearer to its own minimum, and sites further
        from each other.
    weights : {"mass", "rows", "quality"}, default="mass"
        How centres of sites are averaged: by the rows each centre stands for, by the site's rows
        (`eqn:global_A_EFKMVFC`), or by softmax of its mean objective (`eqn:client_weights`). "mass", because a site
        without rows in a cluster should not move it.
    temperature : float or None, default=None
        tau of `eqn:client_weights`, with "quality" only; None is 10.

    Examples
    --------
    >>> from fedhk.protocols import Averaging
    >>> Averaging(passes=3, weights="quality", temperature=5.0)
    Averaging(passes=3, weights='quality', temperature=5.0)
    """

    reply_type: ClassVar[type[RoundReply]] = LocalCenters

    passes: int = 5
    weights: str = "mass"
    temperature: float | None = None

    def __post_init__(self) -> None:
        self._keep_whole("passes", 1)
        self._check_word("weights", WEIGHTS)
        if self.temperature is not None and self.weights != "quality":
            raise ValueError(
                f"temperature={self.temperature!r} has no effect with weights={self.weights!r}: use weights='quality', "
                "or leave it out."
            )
        self._keep_number("temperature", lambda tau: tau >= 0, "a number from 0 on", or_none=True)

    @property
    def tau(self) -> float:
        """Temperature, or its default."""
        return 10.0 if self.temperature is None else float(self.temperature)

    def request(self, board: Board, context: RoundContext) -> RoundRequest:
        model = Broadcast.of(board.get(Minimisation).parameters)
        return CentersRequest(model, self.passes, context.settings.learn_weights)

    def check(self, board: Board, context: RoundContext, reply: LocalCenters, site: str) -> None:
        parameters, space = board.get(Minimisation).parameters, board.get(Space)
        reply.check(parameters, space.reach, site)
        check_array(reply.centers, (parameters.n_clusters, sum(space.widths)), site, "centres")
        parts = zip(split_joint(reply.centers, space.widths), reply.masses.T, strict=True)
        held = [np.where(mass[:, None] > 0, centers, np.nan) for centers, mass in parts]
        check_points(np.hstack(held), space.reach, site)

    def combine(
        self,
        board: Board,
        context: RoundContext,
        replies: Mapping[str, LocalCenters],
    ) -> tuple[Board, Parameters, float]:
        before = board.get(Minimisation).parameters
        return board, *average_centers(before, list(replies.values()), self.weights, self.tau)
