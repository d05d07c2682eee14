"""Checks that every phase must pass; `SumPhaseChecks` has more for a phase whose answer is a sum over rows."""

from __future__ import annotations

import random
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.testing import assert_allclose

from fedhk._typing import FloatArray
from fedhk.errors import FedHKError, MessageError
from fedhk.federation.board import Board, Shared
from fedhk.federation.codec import pack, unpack
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.gate import Guard, answer_message, write_request
from fedhk.federation.messages import decode, encode
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase, SumPhase, phase_named
from fedhk.federation.phases.describe import Describe
from fedhk.federation.run import Run, conduct
from fedhk.federation.several import Several
from fedhk.federation.site import Site
from fedhk.federation.stored import pack_entries, unpack_board
from fedhk.privacy.sensitivity import Neighbours
from fedhk.testing._values import Path, assert_same, assert_same_board, check, leaves, replace_leaf
from fedhk.testing.sites import SETTINGS, make_sites, make_tables, pool_tables

NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)

# Exchanges after which a phase that is not done is taken to have no end.
MOST_EXCHANGES = 200

BAD_NUMBERS = {"NaN": np.nan, "infinite": np.inf, "negative": -1e3, "huge": 1e300}


def ask(phase: Phase[Any, Any], board: Board, sites: Mapping[str, Site]) -> dict[str, Any]:
    """Ask every site once, over real messages, and give the replies in the order of site names."""
    replies = {}
    for name, request in phase.requests(board, sorted(sites)).items():
        message = write_request(phase.name, 0, request, phase.request_type, board.missing({}))
        reply = answer_message(sites[name], Guard(), decode(encode(message)))[1]
        read = decode(encode(reply))
        replies[name] = unpack(read.values, read.arrays, phase.reply_type)
    return replies


class PhaseChecks:
    """Checks of one phase.

    Attributes
    ----------
    keeps_sites_apart : bool
        Whether it may matter which site sent which reply, because the server keeps what each site said, or draws random
        numbers. Where all replies are brought together it does not: leave it False.
    """

    keeps_sites_apart: ClassVar[bool] = False

    @abstractmethod
    def phase(self) -> Phase[Any, Any]:
        """Make the phase."""

    def before(self) -> list[Phase[Any, Any]]:
        """Make the phases that must run first; here sites describe their views, and all rows get the same units."""
        return [Describe(SETTINGS)]

    def tables(self) -> dict[str, Any]:
        """Give the rows of the sites, as `fit` of an estimator takes them."""
        return make_tables()

    def test_a_site_finds_the_phase_by_its_name(self) -> None:
        phase = self.phase()
        check(isinstance(phase, phase_named(phase.name)), f"the name {phase.name!r} is that of another phase")

    def test_requests_and_replies_come_back_from_the_codec_as_they_were(self) -> None:
        phase, board, sites = self._stand()
        values = [(request, phase.request_type) for request in phase.requests(board, sorted(sites)).values()]
        values += [(reply, phase.reply_type) for reply in ask(phase, board, sites).values()]
        for value, kind in values:
            assert_same(unpack(*pack(value, kind), kind), value)

    def test_an_honest_reply_is_accepted(self) -> None:
        phase, board, sites = self._stand()
        for site, reply in ask(phase, board, sites).items():
            phase.check(board, reply, site)

    def test_the_answer_depends_on_the_site_the_request_and_the_board_alone(self) -> None:
        phase, board, sites = self._stand()
        random.seed(1)
        first = ask(phase, board, sites)
        random.seed(2)
        assert_same(ask(self._stand()[0], board, sites), first)
        alone = {name: ask(phase, board, {name: site})[name] for name, site in sites.items()}
        assert_same(alone, first)

    def test_an_answer_does_not_change_the_rows(self) -> None:
        phase, board, sites = self._stand()
        before = {name: [None if t is None else t.copy() for t in site.views.tables] for name, site in sites.items()}
        ask(phase, board, sites)
        assert_same({name: list(site.views.tables) for name, site in sites.items()}, before)

    def test_damaged_replies_are_refused_with_a_message_error_or_do_no_harm(self) -> None:
        phase, board, sites = self._stand()
        replies = ask(phase, board, sites)
        for site, reply in replies.items():
            for path, damage, damaged in damaged_values(reply):
                what = f"{site}: {'.'.join(map(str, path)) or 'the reply'} {damage}"
                if _is_refused(f"{what}: check", MessageError, phase.check, board, damaged, site):
                    continue
                check("rows" not in damage, f"{what}: it was accepted")
                lies = replies | {site: damaged}
                _is_refused(f"{what}: accepted, then combine", FedHKError, _combine, phase, board, lies, False)

    def test_the_same_replies_give_the_same_board_whichever_site_sent_which(self) -> None:
        phase, board, sites = self._stand()
        replies = ask(phase, board, sites)
        found = _combine(phase, board, replies)
        assert_same_board(_combine(phase, board, dict(replies)), found)
        if not self.keeps_sites_apart:
            exchanged = dict(zip(replies, reversed(replies.values()), strict=True))
            assert_same_board(_combine(phase, board, exchanged), found, rtol=1e-6)

    def test_replies_that_add_give_the_same_board_when_a_relay_has_added_them_up(self) -> None:
        phase, board, sites = self._stand()
        if phase.adds(board):
            replies = ask(phase, board, sites)
            first, *others = sorted(replies)
            together = Several(others)
            added = {first: replies[first], together: phase.add([replies[site] for site in others])}
            phase.check(board, added[together], together)
            assert_same_board(_combine(phase, board, added), _combine(phase, board, replies), rtol=1e-9)

    def test_replies_and_the_board_before_are_not_changed(self) -> None:
        phase, board, sites = self._stand()
        replies, again = ask(phase, board, sites), ask(phase, board, sites)
        before = _store(board)
        _combine(phase, board, replies)
        assert_same(replies, again)
        assert_same_board(_store(board), before)

    def test_a_run_comes_to_the_end_of_the_phase_and_its_board_can_be_stored(self) -> None:
        phases = [*self.before(), self.phase()]
        run, sites = self._conduct(phases)
        check(run.phase == len(phases), f"the run ends in phase {run.phase}")
        for kind, entry in _store(run.board).entries.items():
            assert_same(entry, run.board.entries[kind])
        check(not run.pending["refused"], f"of the sites {sorted(sites)} were refused: {run.pending['refused']}")

    def _conduct(self, phases: list[Phase[Any, Any]]) -> tuple[Run, dict[str, Site]]:
        engine = InProcessEngine(make_sites(self.tables()))

        def stop_late(run: Run) -> None:
            check(run.exchanges <= MOST_EXCHANGES, f"a phase is not done after {MOST_EXCHANGES} exchanges")

        run = Run()
        if phases:
            run = conduct(phases, engine, run, seed=0, participation=Participation(), after=[stop_late])
        return run, dict(engine.states)

    def _stand(self) -> tuple[Any, Board, dict[str, Site]]:
        """The phase, the board before its first request, and the sites."""
        phase = self.phase()
        run, sites = self._conduct(self.before())
        return phase, phase.begin(run.board), sites


class SumPhaseChecks(PhaseChecks):
    """Checks of a phase whose answer is a sum over rows."""

    @abstractmethod
    def phase(self) -> SumPhase[Any]:
        """Make the phase."""

    def test_the_vector_has_the_size_that_the_server_expects(self) -> None:
        phase, board, sites = self._stand()
        for site, reply in ask(phase, board, sites).items():
            size = phase.size(board)
            check(reply.values.shape == (size,), f"{site} sends shape {reply.values.shape}, size is {size}")

    def test_the_sums_of_sites_are_the_sum_of_the_pooled_rows(self) -> None:
        phase, board, sites = self._stand()
        tables = self.tables()
        split = sum(ask(phase, board, sites)[name].values for name in sorted(tables))
        pooled = self._vector(phase, board, pool_tables(list(tables.values())))
        assert_allclose(split, pooled, rtol=1e-9, atol=1e-9 * float(np.max(np.abs(pooled), initial=0.0)))

    def test_no_row_moves_the_vector_further_than_the_sensitivity_says(self) -> None:
        phase, board, _ = self._stand()
        request, generator = phase.request(board), np.random.default_rng(0)
        tables = self.tables()["oslo"]
        whole, rows = self._vector(phase, board, tables), len(next(iter(tables.values())))
        for neighbours in NEIGHBOURS:
            try:
                most = phase.sensitivity(request, whole.size, neighbours)
            except MessageError:
                continue  # the sum must not leave a site with privacy on: nothing is claimed
            for row in range(rows):
                changed = {name: np.delete(part, row, axis=0) for name, part in tables.items()}
                if neighbours == "replace":
                    changed = {name: part.copy() for name, part in tables.items()}
                    for part in changed.values():
                        part[row] = 10.0 ** generator.uniform(-2, 3) * generator.standard_normal(part.shape[1])
                moved = float(np.linalg.norm(self._vector(phase, board, changed) - whole))
                check(moved <= most * (1 + 1e-9), f"{neighbours}: a row moves the vector by {moved}, stated is {most}")

    @staticmethod
    def _vector(phase: Any, board: Board, tables: Any) -> FloatArray:
        site = make_sites({"oslo": tables})["oslo"]
        site.board = Board().put(*board.find(Shared))
        return np.asarray(phase.vector(site, phase.request(board)))


def damaged_values(value: Any) -> Iterator[tuple[Path, str, Any]]:
    """List copies of a value with one part damaged: where, how, and the copy."""
    for path, leaf in leaves(value):
        for damage, changed in _damaged_leaf(leaf):
            yield path, damage, replace_leaf(value, path, changed)


def _damaged_leaf(leaf: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(leaf, np.ndarray) and leaf.size:
        yield "with more rows", np.concatenate([leaf, leaf[-1:]])
        yield "of another type", np.zeros(leaf.shape, bool)
        yield "with another number of axes", leaf[None]
        if leaf.dtype.kind == "f":
            for name, number in BAD_NUMBERS.items():
                with np.errstate(over="ignore"):
                    yield f"all {name}", np.full(leaf.shape, number).astype(leaf.dtype)
    elif isinstance(leaf, bool):
        yield "the other way round", not leaf
    elif isinstance(leaf, int):
        yield from (("negative", -1), ("huge", 2**62))
    elif isinstance(leaf, float):
        yield from BAD_NUMBERS.items()
    elif isinstance(leaf, str):
        yield from (("empty", ""), ("long", "x" * 10_000))


def _is_refused(what: str, refusal: type[Exception], call: Callable[..., object], *arguments: Any) -> bool:
    """Whether a call raises such an error; any other error fails the check."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            call(*arguments)
    except refusal:
        return True
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}") from error
    return False


def _store(board: Board) -> Board:
    """Write a board as a checkpoint does, and read it again."""
    return unpack_board(pack_entries(board.entries.values(), "server"), "server")


def _combine(phase: Phase[Any, Any], board: Board, replies: dict[str, Any], honest: bool = True) -> Board:
    """Combine replies as a run does; of honest ones the phase leaves out none."""
    board, selected, refused = phase.select(board, replies)
    check(not (honest and refused), f"honest replies were refused: {refused}")
    return phase.combine(board, selected)
