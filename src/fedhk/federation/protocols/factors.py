"""The factor protocol: sites fit low-rank centres to their own rows and send the factors (Algorithms 2 and 3).

Factors of different sites may be turned, permuted or stretched against each other and still stand for the same centres,
so that their average means nothing. By default the server averages the centres they stand for, by the mass of each
cluster, and decomposes the average again, starting from the last global factors. The paper's average of the factors is
offered after turning each site's to the global gauge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Basis, Broadcast, Minimisation, Space
from fedhk.federation.plausible import check_points
from fedhk.federation.protocols.averaging import (
    Averaging,
    LocalCenters,
    average_centers,
    client_shares,
    pass_locally,
)
from fedhk.federation.protocols.base import RoundContext, RoundReply, RoundRequest
from fedhk.federation.site import Site
from fedhk.federation.table import PRECISIONS, Table, at_least_half, read_arrays, round_arrays
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.tensors.low_rank import LowRank, LowRankParameters

AGGREGATIONS = ("centers", "factors")


@dataclass(frozen=True, eq=False)
class OwnFactors(Entry):
    """A site's own factors of the round before. They stay at the site."""

    form: LowRank


@dataclass(frozen=True, eq=False)
class LocalFactors(LocalCenters):
    """A site's low-rank centres after its passes; `centers` is empty, the factors stand for them."""

    form: LowRank


def _round_form(form: LowRank, precision: str) -> LowRank:
    """Round a form as it is sent: to half precision at least, because errors of factors multiply."""
    return replace(form, factors=round_arrays(form.factors, at_least_half(precision)))


@dataclass(frozen=True, eq=False)
class FactorBroadcast(Broadcast):
    """Parameters as they are sent, with factors instead of centres."""

    form: LowRank

    @classmethod
    def of(cls, parameters: Parameters, precision: str = "double") -> FactorBroadcast:
        plain = Broadcast.of(replace(parameters.free(), centers=(np.zeros((0, 0)),)))
        return cls(**vars(plain), form=_round_form(form_of(parameters), precision))

    def parameters(self, widths: Sequence[int], basis: Basis | None = None) -> LowRankParameters:
        form = read_arrays(self.form)
        centers = Table(np.hstack(form.centers()), np.zeros(0))
        plain = Broadcast.parameters(replace(self, centers=centers), widths, basis)
        return LowRankParameters.of(plain, form)


def form_of(parameters: Parameters) -> LowRank:
    """Return the low-rank form of the parameters; this protocol needs one."""
    if not isinstance(parameters, LowRankParameters):
        raise MessageError("factors were asked for, but the centres have no low-rank form")
    return parameters.form


@dataclass(frozen=True, eq=False)
class FactorsRequest(RoundRequest):
    """Ask for a site's own factors after some passes."""

    model: FactorBroadcast  # with the global factors
    blend: float  # share of the site's own factors of the round before in its start
    passes: int
    learn_weights: bool
    precision: str  # what the answer is rounded to

    def answer(self, site: Site) -> LocalFactors:
        parameters = self.model.parameters(site.rows().widths)
        start, form = parameters, parameters.form
        own = next((kept.form for kept in site.memory.find(OwnFactors)), form)
        if own is not form and self.blend > 0 and own.rank == form.rank:
            blended = form.decomposition.blend(form.factors, own.factors, self.blend)
            start = LowRankParameters.of(
                replace(parameters.free(), centers=blended.centers()), replace(form, factors=blended)
            )
        local, first, latest = pass_locally(site, parameters, start, self.passes, learn_weights=self.learn_weights)
        form = form_of(local)
        site.keep(OwnFactors(form))
        sent = _round_form(form, self.precision)
        none = np.zeros((0, 0))
        return LocalFactors(none, latest.heights, local.view_weights, first.objective, first.rows, sent)


@dataclass(frozen=True)
class FactorAveraging(Averaging):
    """Average the factors that each site reaches after some passes over its own rows.

    Parameters
    ----------
    passes, weights, temperature
        As in `Averaging`.
    aggregation : {"centers", "factors"}, default="centers"
        The server averages the centres that the factors stand for and decomposes the average, whatever the gauge of
        each site's factors; or it averages the factors after turning them to one gauge.
    blend : float, default=0.0
        lambda: the share of a site's own factors of the round before in its start (phase 1 of Algorithms 2 and 3).
    precision : {"double", "single", "half"}, default="double"
        What factors are rounded to on the wire.

    Examples
    --------
    >>> from fedhk.protocols import FactorAveraging
    >>> FactorAveraging(aggregation="factors", blend=0.5).blend
    0.5
    """

    reply_type: ClassVar[type[RoundReply]] = LocalFactors

    aggregation: str = "centers"
    blend: float = 0.0
    precision: str = "double"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_word("aggregation", AGGREGATIONS)
        self._keep_number("blend", lambda share: 0 <= share <= 1, "a number from 0 to 1")
        self._check_word("precision", PRECISIONS)

    @property
    def candidate_precision(self) -> str:
        return self.precision

    def request(self, board: Board, context: RoundContext) -> FactorsRequest:
        model = FactorBroadcast.of(board.get(Minimisation).parameters, self.precision)
        learn = context.settings.learn_weights
        return FactorsRequest(model, float(self.blend), self.passes, learn, self.precision)

    def check(self, board: Board, context: RoundContext, reply: LocalCenters, site: str) -> None:
        parameters = board.get(Minimisation).parameters
        known, reach = form_of(parameters).factors, board.get(Space).reach
        reply.check(parameters, reach, site)
        if not isinstance(reply, LocalFactors) or type(reply.form.factors) is not type(known):
            raise MessageError("no factors, or factors of another decomposition", site)
        arrays = [(*factors.basis_arrays, *factors.core_arrays) for factors in (known, reply.form.factors)]
        if [array.shape for array in arrays[0]] != [array.shape for array in arrays[1]]:
            raise MessageError("factors of another shape than those that were sent", site)
        if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays[1]):
            raise MessageError("factors with values that are NaN or infinite", site)
        with np.errstate(over="ignore", invalid="ignore"):
            centers = np.hstack(read_arrays(reply.form).centers())
        # a product of factors mixes the features of a view, so that one limit is for all of them; and a centre
        # without mass may be wherever the server has it
        limits = [
            np.full(limit.shape, max(limit.max(), 1.0, 10 * np.abs(a).max()))
            for limit, a in zip(reach, parameters.centers, strict=True)
        ]
        check_points(np.nan_to_num(centers, nan=np.inf), limits, site)

    def combine(
        self,
        board: Board,
        context: RoundContext,
        replies: Mapping[str, LocalCenters],
    ) -> tuple[Board, Parameters, float]:
        before = board.get(Minimisation).parameters
        form = form_of(before)
        forms = {site: read_arrays(reply.form) for site, reply in replies.items() if isinstance(reply, LocalFactors)}
        sites = [replace(reply, centers=np.hstack(forms[site].centers())) for site, reply in replies.items()]
        averaged, objective = average_centers(before.free(), sites, self.weights, self.tau)
        masses: FloatArray = np.sum([site.masses for site in sites], axis=0)
        if not masses.any():
            return board, before, objective
        if self.aggregation == "factors":
            shares = client_shares(sites, self.weights, self.tau)
            found = form.decomposition.mean([local.factors for local in forms.values()], shares, form.factors)
            form = replace(form, factors=found)
        else:
            columns = [mass[:, None] for mass in masses.T]
            numerators = tuple(a * mass for a, mass in zip(averaged.centers, columns, strict=True))
            spread = np.zeros(len(columns))
            pooled = Statistics(numerators, tuple(columns), spread, masses.max(axis=1), objective, 0.0)
            form = form.step(pooled, before.centers, averaged.view_factors)
        return board, LowRankParameters.of(replace(averaged, centers=form.centers()), form), objective

    def finish(self, board: Board) -> tuple[Broadcast, Parameters]:
        model = FactorBroadcast.of(board.get(Minimisation).parameters, self.precision)
        return model, model.parameters(board.get(Space).widths)
