"""Sites that lie in every exchange of a run: what an aggregator that claims to be robust must hold against.

    from fedhk.testing.hostile import LIES, lying_sites

    with lying_sites({"oslo", "rome"}, LIES["far away, in every exchange"]):
        model = EFKMVC(n_clusters=3, aggregator="robust").fit(sites)

Hostile sites know what the honest ones answer and what they would answer themselves, and agree on a lie.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import GenericAlias
from typing import Any
from unittest.mock import patch

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.estimators import efkmvc
from fedhk.federation.board import entry_type
from fedhk.federation.codec import pack, unpack
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.gate import ENTRIES, Guard
from fedhk.federation.messages import decode, encode
from fedhk.federation.phases.base import Sum
from fedhk.federation.phases.candidates import CandidatesReply
from fedhk.federation.phases.describe import Description
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.protocols.statistics import StatisticsReply, StatisticsRequest
from fedhk.federation.table import Table
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics

Lie = Callable[[Any, Sequence[Any]], Any]
"""From what a site would answer, and what the honest sites do answer, to what it says."""

StatisticsLie = Callable[[Statistics, Sequence[Statistics], Parameters], Statistics]
"""The same for the statistics of a round, which are at these parameters."""


def _tell_the_truth(own: Any, *_: Any) -> Any:
    return own


@dataclass(frozen=True)
class Lies:
    """What hostile sites say instead of the truth, one lie for each kind of answer."""

    moments: Lie = _tell_the_truth
    candidates: Lie = _tell_the_truth
    statistics: StatisticsLie = _tell_the_truth
    sums: Lie = _tell_the_truth

    def tell(self, own: Any, honest: Sequence[Any], parameters: Parameters | None) -> Any:
        """What a hostile site answers; several answers in one exchange are lied about one by one."""
        if isinstance(own, tuple):
            return tuple(self.tell(part, [reply[i] for reply in honest], None) for i, part in enumerate(own))
        if isinstance(own, StatisticsReply) and parameters is not None:
            widths = [part.shape[1] for part in parameters.centers]
            told = self.statistics(
                own.read(widths, means=False), [h.read(widths, means=False) for h in honest], parameters
            )
            sums = Table.of(np.hstack(told.numerators), "double")
            return StatisticsReply(sums, told.weights, told.costs, told.masses, told.objective, told.rows)
        by_type: dict[type, Lie] = {Description: self.moments, CandidatesReply: self.candidates, Sum: self.sums}
        lie: Lie = by_type.get(type(own), _tell_the_truth)
        return lie(own, honest)


@contextmanager
def lying_sites(hostile: Collection[str], lies: Lies) -> Iterator[None]:
    """Let some of the sites of all fits in this process lie, as long as it lasts."""

    class HostileEngine(InProcessEngine):
        def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Exception]:
            answers = super().exchange(requests)
            read = {site: _read(answer) for site, answer in answers.items() if isinstance(answer, bytes)}
            honest = [reply for site, reply in sorted(read.items()) if site not in hostile]
            for site in sorted(read.keys() & set(hostile)):
                told = lies.tell(read[site], honest, self._parameters(site, requests[site]))
                answers[site] = _write(answers[site], told)
            return answers

        def _parameters(self, site: str, request: bytes) -> Parameters | None:
            """What the server asks for statistics at, in a round that sends sums in all features."""
            message = decode(request)
            if message.kind != Rounds.name:
                return None
            types = [Rounds.request_type, *map(entry_type, message.values.get(ENTRIES, []))]
            kind: Any = GenericAlias(tuple, tuple(types))
            asked: Any = unpack(message.values, message.arrays, kind)[0]
            return asked.model.parameters(self.states[site].rows().widths) if type(asked) is StatisticsRequest else None

    with patch.object(efkmvc, "InProcessEngine", HostileEngine):
        yield


def _read(payload: bytes) -> Any:
    message = decode(payload)
    return unpack(message.values, message.arrays, Guard().phase(message.kind).reply_type)


def _write(payload: Any, reply: Any) -> bytes:
    message = decode(payload)
    values, arrays = pack(reply, Guard().phase(message.kind).reply_type)
    return encode(replace(message, values=values, arrays=arrays))


# ---------------------------------------------------------------------------------------------------- about moments


def _change_moments(change: Callable[[Moments], Moments]) -> Lie:
    """Other moments of every view."""
    return lambda own, _: replace(own, moments=tuple(map(change, own.moments)))


def _scale_spreads(factor: float) -> Lie:
    """Spreads of all columns but the first times a factor; a range, where it is told, grows with it.

    Had all columns the same factor, it would cancel: the mean distance of rows is brought to 1.
    """

    def scaled(view: Moments) -> Moments:
        by = np.where(np.arange(len(view.mean)) == 0, 1.0, factor)
        low, high = (view.mean + by * (end - view.mean) for end in (view.low, view.high))
        return replace(view, squares=view.squares * by**2, low=low, high=high)

    return _change_moments(scaled)


def _move_means(spreads: float, rows: float = 1.0) -> Lie:
    """Means moved by so many spreads of the site, and so many times the rows."""

    def moved(view: Moments) -> Moments:
        by = spreads * np.sqrt(view.variance)
        counts = {name: rows * getattr(view, name) for name in ("rows", "total", "weight", "squares")}
        return replace(view, mean=view.mean + by, low=view.low + by, high=view.high + by, **counts)

    return _change_moments(moved)


# ------------------------------------------------------------------------------------------------- about candidates


def _put_candidates(place: Callable[[FloatArray], FloatArray], rows: float = 1000.0) -> Lie:
    """All candidates at one place, made from the honest sites' candidates, with so many times the rows."""

    def put(own: CandidatesReply, honest: Sequence[CandidatesReply]) -> CandidatesReply:
        known = np.nan_to_num(np.vstack([reply.points.read() for reply in honest]), nan=0.0)
        points = np.tile(place(known), (len(own.sizes), 1))
        return replace(own, points=Table.of(points, "double"), sizes=rows * own.sizes)

    return put


def _far(points: FloatArray) -> FloatArray:
    return np.asarray(points.mean(axis=0) + 10 * points.std(axis=0))


def _between(points: FloatArray) -> FloatArray:
    """The middle of two candidates that are far apart."""
    first = points[np.square(points - points.mean(axis=0)).sum(axis=1).argmax()]
    other = points[np.square(points - first).sum(axis=1).argmax()]
    return np.asarray((first + other) / 2)


# ------------------------------------------------------------------------------------------------- about statistics


def move_centers(answer: Statistics, centers: Sequence[FloatArray]) -> Statistics:
    """Statistics with other centres and the same weights."""
    return replace(answer, numerators=tuple(w * a for w, a in zip(answer.weights, centers, strict=True)))


def _flip_moves(times: float, rows: float = 1.0) -> StatisticsLie:
    """Moves of the centres the other way, so many times as far and with so many times the rows, at no cost."""

    def flipped(own: Statistics, _: Sequence[Statistics], parameters: Parameters) -> Statistics:
        parts = zip(parameters.centers, own.numerators, own.weights, strict=True)
        moved = move_centers(
            own, [a - times * np.where(w > 0, n / np.maximum(w, 1e-300) - a, 0.0) for a, n, w in parts]
        )
        return replace(moved, costs=0.0 * own.costs, objective=0.0).scaled(rows)

    return flipped


def _roll_clusters(own: Statistics, _: Sequence[Statistics], parameters: Parameters) -> Statistics:
    """Every cluster is said to be the next."""
    order = np.roll(np.arange(parameters.n_clusters), 1)
    return replace(
        own,
        numerators=tuple(n[order] for n in own.numerators),
        weights=tuple(w[order] for w in own.weights),
        masses=own.masses[order],
    )


# ------------------------------------------------------------------------------------------------------- about sums


def _scale_sums(factor: float) -> Lie:
    """Objective, sizes and spreads of clusters, or energies, times a factor."""
    return lambda own, _: Sum(own.values * factor)


LIES: dict[str, Lies] = {
    "spreads x 1e30": Lies(moments=_scale_spreads(1e30)),
    "spreads / 1e6": Lies(moments=_scale_spreads(1e-6)),
    "far away, in every exchange": Lies(
        moments=_move_means(1e3, rows=1e3),
        candidates=_put_candidates(_far),
        statistics=_flip_moves(10.0, rows=1e3),
        sums=_scale_sums(1e3),
    ),
    "spreads x 1e30, in every exchange": Lies(
        moments=_scale_spreads(1e30),
        candidates=_put_candidates(_far),
        statistics=_flip_moves(10.0, rows=1e3),
        sums=_scale_sums(1e3),
    ),
    "just plausible, in every exchange": Lies(
        moments=_move_means(2.0),
        candidates=_put_candidates(_between, rows=1.0),
        statistics=_roll_clusters,
        sums=_scale_sums(0.0),
    ),
}
"""Lies that hostile sites agree on, by what they are."""
