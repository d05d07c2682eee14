"""Flower's grid as a transport: answers by node, lost messages sent again, texts of exceptions left out."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.common.constant import ErrorCode

from fedhk.federation.engines import flower
from fedhk.federation.engines.flower import KEY, RECORD, GridTransport


class Grid:
    """Answers as it is told: by node a list of bytes (an answer), codes (an error) or None (silence), one a message."""

    def __init__(self, script):
        self.script = {node: list(steps) for node, steps in script.items()}
        self.pushed = []
        self._ready = {}

    def get_node_ids(self):
        return list(self.script)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = f"m{len(self.pushed)}"
            self.pushed.append(message.node)
            step = self.script[message.node].pop(0) if self.script[message.node] else None
            if step is not None:
                self._ready[number] = step
            numbers.append(number)
        return numbers

    def pull_messages(self, numbers):
        return [self._reply(number, self._ready.pop(number)) for number in numbers if number in self._ready]

    def _reply(self, number, step):
        failed = isinstance(step, int)
        return SimpleNamespace(
            metadata=SimpleNamespace(reply_to_message_id=number),
            has_error=lambda: failed,
            error=SimpleNamespace(code=step, reason="row 17 is 42.0") if failed else None,
            content=None if failed else {RECORD: {KEY: step}},
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(flower, "POLL_EVERY", 0.001)
    made = lambda content, dst_node_id, message_type: SimpleNamespace(node=dst_node_id)  # noqa: E731, ARG005
    monkeypatch.setattr(flower, "Message", made)


def test_answers_come_back_by_node():
    grid = Grid({1: [b"one"], 2: [b"two"]})
    assert GridTransport(grid).send({1: b"a", 2: b"b"}, 5.0) == {1: b"one", 2: b"two"}


def test_a_node_that_is_silent_is_left_out_after_the_time():
    grid = Grid({1: [b"one"], 2: []})
    assert GridTransport(grid).send({1: b"a", 2: b"b"}, 0.05) == {1: b"one"}


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED])
def test_what_was_lost_on_the_way_is_sent_again(code):
    grid = Grid({1: [code, code, b"one"]})
    assert GridTransport(grid).send({1: b"a"}, 5.0) == {1: b"one"}
    assert grid.pushed == [1, 1, 1]


def test_what_is_lost_every_time_is_an_error_without_its_text():
    answer = GridTransport(Grid({1: [ErrorCode.CLIENT_APP_CRASHED] * 9})).send({1: b"a"}, 5.0)[1]
    assert isinstance(answer, ConnectionError)
    assert "42.0" not in str(answer)


def test_an_exception_in_the_app_is_not_tried_again_and_its_text_stays_there():
    grid = Grid({1: [ErrorCode.CLIENT_APP_RAISED_EXCEPTION, b"late"]})
    answer = GridTransport(grid).send({1: b"a"}, 5.0)[1]
    assert isinstance(answer, ConnectionError)
    assert "42.0" not in str(answer)
    assert grid.pushed == [1]


def test_a_request_is_sent_again_to_a_node_that_was_killed(monkeypatch):
    monkeypatch.setattr(flower, "RESEND_AFTER", 0.02)
    grid = Grid({1: [None, b"one"]})
    assert GridTransport(grid).send({1: b"a"}, 5.0) == {1: b"one"}


def test_a_node_that_went_away_is_asked_again_when_it_is_back(monkeypatch):
    grid = Grid({1: [ErrorCode.NODE_UNAVAILABLE, b"one"], 2: [b"two"]})
    connected = [[2], [2], [1, 2]]
    monkeypatch.setattr(grid, "get_node_ids", lambda: connected.pop(0))
    assert GridTransport(grid).send({1: b"a", 2: b"b"}, 5.0) == {1: b"one", 2: b"two"}
    assert grid.pushed == [1, 2, 1]


def test_it_tells_that_a_node_went_away_and_came_back_or_is_late(monkeypatch):
    monkeypatch.setattr(flower, "RESEND_AFTER", 0.02)
    grid = Grid({1: [ErrorCode.NODE_UNAVAILABLE, b"one"], 2: [None, b"two"]})
    connected = [[2], [2], [1, 2]]
    monkeypatch.setattr(grid, "get_node_ids", lambda: connected.pop(0) if connected else [1, 2])
    transport, told = GridTransport(grid), []
    transport.tell = lambda node, text: told.append((node, text))
    assert transport.send({1: b"a", 2: b"b"}, 5.0) == {1: b"one", 2: b"two"}
    assert told == [
        (1, "its SuperNode went away. It has 180 s to come back."),
        (1, "its SuperNode is back. It is asked again."),
        (2, "no answer for 0 s. It is asked again."),
    ]


def test_nobody_is_called_late_who_answered_while_flower_waited_for_another(monkeypatch):
    # node 1 died while it sent its answer: Flower waits for the rest, and node 2 has answered meanwhile
    monkeypatch.setattr(flower, "RESEND_AFTER", 0.02)
    grid = Grid({1: [ErrorCode.MESSAGE_UNAVAILABLE, b"one"], 2: [b"two"]})
    pull, looks = grid.pull_messages, []

    def wait_for_the_first(numbers):
        looks.append(numbers)
        time.sleep(0.05 if len(looks) == 1 else 0.0)
        return pull(numbers[:1] if len(looks) == 1 else numbers)

    monkeypatch.setattr(grid, "pull_messages", wait_for_the_first)
    transport, told = GridTransport(grid), []
    transport.tell = lambda node, text: told.append((node, text))
    assert transport.send({1: b"a", 2: b"b"}, 5.0) == {1: b"one", 2: b"two"}
    assert told == []
    assert grid.pushed == [1, 2, 1]


@pytest.mark.parametrize("takes", [True, False], ids=["reported", "not taken"])
def test_a_node_that_stays_away_is_given_up_long_before_the_time(takes, monkeypatch):
    monkeypatch.setattr(flower, "RETURN_WITHIN", 0.02)
    grid = Grid({1: [ErrorCode.NODE_UNAVAILABLE], 2: [b"two"]})
    monkeypatch.setattr(grid, "get_node_ids", lambda: [2])
    if not takes:
        push = grid.push_messages
        monkeypatch.setattr(
            grid,
            "push_messages",
            lambda messages: [n if m.node == 2 else None for m, n in zip(messages, push(messages), strict=True)],
        )
    answers = GridTransport(grid).send({1: b"a", 2: b"b"}, 60.0)
    assert answers[2] == b"two"
    assert "went away" in str(answers[1])


@pytest.mark.parametrize("content", [{}, {RECORD: {}}, {RECORD: {KEY: "text"}}])
def test_an_answer_without_the_record_is_an_error(content):
    reply = SimpleNamespace(has_error=lambda: False, content=content)
    assert isinstance(flower._content(reply), ConnectionError)
