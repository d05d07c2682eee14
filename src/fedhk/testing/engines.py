"""Checks that every engine must pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fedhk.federation.aggregators import SumAggregator
from fedhk.federation.board import Board
from fedhk.federation.engines.base import Engine
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.gate import write_request
from fedhk.federation.messages import decode, encode, expect
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.candidates import ChooseStart
from fedhk.federation.phases.describe import Describe
from fedhk.federation.phases.finish import Finish
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.protocols import make_protocol
from fedhk.federation.protocols.base import RoundContext
from fedhk.federation.run import Run, conduct
from fedhk.federation.site import Site
from fedhk.testing._values import assert_same_board, check
from fedhk.testing.sites import ROWS, SETTINGS, WIDTHS, make_sites, make_tables

# Rounds of the short run.
N_ROUNDS = 3


class EngineChecks:
    """Checks of one engine."""

    @abstractmethod
    def engine(self, sites: Mapping[str, Site]) -> Engine:
        """Make an engine that leads to these sites; each answers its messages with `fedhk.federation.gate`.

        An engine for sites that are elsewhere starts them here with the rows that it is given.
        """

    def test_it_names_the_sites(self) -> None:
        with self._open() as engine:
            check(sorted(engine.sites()) == sorted(make_tables()), f"sites are {engine.sites()}")

    def test_what_is_sent_arrives_and_the_answer_is_that_of_the_site(self) -> None:
        with self._open() as engine:
            requests = dict.fromkeys(engine.sites(), _describe_request())
            answers, expected = engine.exchange(requests), InProcessEngine(_sites()).exchange(requests)
        for site, answer in expected.items():
            check(answers.get(site) == answer, f"{site} answers otherwise than in this process: {answers.get(site)!r}")
            message = decode(bytes(answers[site]), site=site)  # type: ignore[arg-type]
            expect(message, kind=Describe.name, round=0, site=site)

    def test_only_the_sites_that_are_asked_answer(self) -> None:
        with self._open() as engine:
            answers = engine.exchange({"rome": _describe_request()})
        check(list(answers) == ["rome"], f"rome was asked, {list(answers)} answered")

    def test_a_site_that_fails_does_not_stop_the_others(self) -> None:
        sites = _sites()
        unreadable = tuple(np.full((ROWS, width), "x", object) for width in WIDTHS)
        broken = replace(sites["pisa"].views, tables=unreadable)
        with self._open(sites | {"pisa": replace(sites["pisa"], views=broken)}) as engine:
            answers = engine.exchange(dict.fromkeys(sites, _describe_request()))
        for site in ("oslo", "rome"):
            check(isinstance(answers.get(site), bytes), f"{site} did not answer: {answers.get(site)!r}")
        answer = answers.get("pisa")
        check(answer is None or isinstance(answer, Exception), f"the site that fails answers {answer!r}")

    def test_a_damaged_request_is_an_error_of_the_site_and_not_of_the_engine(self) -> None:
        with self._open() as engine:
            answers = engine.exchange({"oslo": b"no message", "rome": _describe_request()})
        check(not isinstance(answers.get("oslo"), bytes), "a damaged request was answered")
        check(isinstance(answers.get("rome"), bytes), "a damaged request to one site stopped another")

    def test_a_run_gives_the_model_of_a_run_in_this_process_bit_for_bit(self) -> None:
        with self._open() as engine:
            found = _run(engine)
        expected = _run(InProcessEngine(_sites()))
        assert_same_board(found.board, expected.board)
        for name in ("bytes_up", "bytes_down", "clients", "objective"):
            one, other = ([record[name] for record in run.history] for run in (found, expected))
            check(one == other, f"{name} are {one} instead of {other}")

    def test_closing_twice_is_no_error(self) -> None:
        with self._open() as engine:
            engine.close()

    @contextmanager
    def _open(self, sites: Mapping[str, Site] | None = None) -> Iterator[Engine]:
        engine = self.engine(_sites() if sites is None else sites)
        try:
            yield engine
        finally:
            engine.close()


def _sites() -> dict[str, Site]:
    return make_sites(make_tables())


def _describe_request() -> bytes:
    phase = Describe(SETTINGS)
    return encode(write_request(phase.name, 0, phase.request(Board()), phase.request_type, {}))


def _run(engine: Engine) -> Run:
    """Conduct a short run."""
    protocol, aggregator = make_protocol("statistics"), SumAggregator()
    phases: list[Phase[Any, Any]] = [
        Describe(SETTINGS),
        ChooseStart(SETTINGS, protocol, aggregator, 0),
        Rounds(protocol, RoundContext(SETTINGS, aggregator), N_ROUNDS, 0.0),
        Finish(summary=False),
    ]
    return conduct(phases, engine, Run(), seed=0, participation=Participation())
