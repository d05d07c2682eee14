"""Flower as the transport: messages go through a SuperLink to SuperNodes, which sites start."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

# What FedHK's messages are called in Flower, and the record and its key that hold the bytes.
ACTION, RECORD, KEY = "fedhk", "fedhk", "payload"

# Seconds between two looks for answers; Flower's own `send_and_receive` looks every three.
POLL_EVERY = 0.5

# Seconds after which a request is sent again, doubled each time: a SuperNode that was killed has lost the first one.
# The same request again costs a site nothing, it has kept its answer.
RESEND_AFTER = 60.0

# Errors of the way, not of the site: a message or its reply was lost, a process was killed. They are tried again.
LOST, MOST_TRIES = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED), 3


class GridTransport:
    """Nodes of a Flower run; `grid` is what Flower gives a ServerApp."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> Collection[int]:
        return list(self._grid.get_node_ids())

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:
        if not payloads:
            return {}
        began = time.monotonic()
        sent_again, wait = began, RESEND_AFTER
        waiting = self._push(payloads)
        answers: dict[int, bytes | Exception] = {}
        tries = dict.fromkeys(payloads, 1)
        while len(answers) < len(payloads) and time.monotonic() - began < timeout:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is None or node in answers:
                    continue
                if reply.has_error() and reply.error.code in LOST and tries[node] < MOST_TRIES:
                    tries[node] += 1
                    waiting |= self._push({node: payloads[node]})
                else:
                    answers[node] = _content(reply)
            if time.monotonic() - sent_again > wait:
                waiting |= self._push({node: content for node, content in payloads.items() if node not in answers})
                sent_again, wait = time.monotonic(), 2 * wait
            if len(answers) < len(payloads):
                time.sleep(POLL_EVERY)
        return answers

    def _push(self, payloads: Mapping[int, bytes]) -> dict[str, int]:
        """Send messages; return the node of each message's number."""
        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord({KEY: content})}), dst_node_id=node, message_type=f"query.{ACTION}"
            )
            for node, content in payloads.items()
        ]
        numbers = self._grid.push_messages(messages)
        return {number: node for number, node in zip(numbers, payloads, strict=False) if number}


def _content(reply: Message) -> bytes | Exception:
    """Return the bytes of a reply; of an error only its number, because Flower puts the text of exceptions in it."""
    if reply.has_error():
        return ConnectionError(f"Flower says error {reply.error.code}; the SuperNode's log says more")
    try:
        content: Any = reply.content[RECORD][KEY]
    except (KeyError, TypeError):
        content = None
    return content if isinstance(content, bytes) else ConnectionError("an answer without FedHK's record")


def reply_with(message: Message, content: bytes) -> Message:
    """Wrap a site's answer as a Flower message."""
    return Message(RecordDict({RECORD: ConfigRecord({KEY: content})}), reply_to=message)
