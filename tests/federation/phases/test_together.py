"""Phases in one exchange: what each of them would find alone, and whoever one of them refuses is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from federations import make_plan, make_sites
from fedhk import datasets
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import Result
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Nothing, Phase
from fedhk.federation.phases.deliver import Deliver, Outcome, Reports
from fedhk.federation.phases.finish import Finish
from fedhk.federation.phases.together import Together
from fedhk.federation.run import Run, conduct
from fedhk.personal.options import GradientStep


@pytest.fixture(scope="module")
def sites():
    return datasets.make_sites(3, 40, n_clusters=3, random_state=0).sites


def conduct_all(phases, sites):
    engine = InProcessEngine(make_sites(sites))
    return conduct(phases, engine, Run(), seed=0, participation=Participation()), engine


def test_two_phases_in_one_exchange_give_what_they_give_in_two(sites):
    *start, _ = make_plan(3).phases()
    end = Finish(summary=False), Deliver(GradientStep(0.5), learn_weights=False)
    apart, sites_apart = conduct_all([*start, *end], sites)
    together, sites_together = conduct_all([*start, Together(end)], sites)
    assert together.exchange == apart.exchange - 1
    assert vars(together.board.get(Result)) == vars(apart.board.get(Result))
    assert vars(together.board.get(Reports)) == vars(apart.board.get(Reports))
    for name, site in sites_together.states.items():
        own, other = (s.memory.get(Outcome).outcome for s in (site, sites_apart.states[name]))
        np.testing.assert_array_equal(own.labels, other.labels)


@dataclass(frozen=True)
class Picky(Phase[Nothing, Nothing]):
    """Refuses one site, alone and beside others."""

    name: ClassVar[str] = "picky"
    request_type: ClassVar[Any] = Nothing
    reply_type: ClassVar[Any] = Nothing

    unwanted: str

    def request(self, board: Board) -> Nothing:
        return Nothing()

    @staticmethod
    def answer(site, request):
        return Nothing()

    def check(self, board, reply, site) -> None:
        pass

    def select(self, board, replies):
        return board, {s: r for s, r in replies.items() if s != self.unwanted}, {self.unwanted: "not wanted"}

    def combine(self, board, replies):
        return board


def test_whoever_one_phase_refuses_is_refused(sites):
    plan, unwanted = make_plan(3), "site-01"
    *start, finish = plan.phases()
    run, _ = conduct_all([*start, Together((finish, Picky(unwanted)))], sites)
    assert run.history[-1]["refused"] == {unwanted: "not wanted"}


def test_an_unknown_phase_among_them_is_refused():
    with pytest.raises(MessageError, match="does not know"):
        Together.named("finish+nonsense")
