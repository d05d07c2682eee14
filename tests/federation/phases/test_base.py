"""The interface of phases: what travels is said by the base class."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from fedhk.federation.board import Board
from fedhk.federation.phases.base import Nothing, Phase, Reply, Request, Sum, SumPhase


@dataclass(frozen=True)
class Ask:
    """A request."""


@dataclass(frozen=True)
class Tell:
    """A reply."""


def test_what_travels_is_read_from_the_base_class_through_classes_between():
    class Plain(Phase[Ask, Tell]):
        name: ClassVar[str] = "plain of this test"

    class Between(Phase[Request, Reply]):
        pass

    class Further(Between[Ask, Tell]):
        name: ClassVar[str] = "further of this test"

    class Derived(Plain):
        name: ClassVar[str] = "derived of this test"

    class Own(SumPhase[Ask]):
        name: ClassVar[str] = "own of this test"
        request_type: ClassVar[type] = Tell

    for phase in (Plain, Further, Derived):
        assert (phase.request_type, phase.reply_type) == (Ask, Tell)
    assert (Own.request_type, Own.reply_type) == (Tell, Sum)


def test_a_phase_that_is_asked_without_words_needs_no_request_of_its_own():
    class Count(SumPhase[Nothing]):
        name: ClassVar[str] = "count of this test"

        def size(self, board):
            return 1

        @staticmethod
        def vector(site, request):
            return [1.0]

        def take(self, board, total, noise):
            return board

    assert Count().request(Board()) == Nothing()


@pytest.mark.parametrize("base", [Phase, SumPhase])
def test_a_phase_that_does_not_say_what_travels_is_refused_when_its_class_is_made(base):
    with pytest.raises(TypeError, match=r"Mute does not say what travels: derive it from Phase\[Request, Reply\]"):

        class Mute(base):
            name: ClassVar[str] = "mute of this test"
