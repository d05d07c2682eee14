"""Flower as the transport: messages go through a SuperLink to SuperNodes, which sites start."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

# What FedHK's messages are called in Flower, and the record and its key that hold the bytes.
ACTION, RECORD, KEY = "fedhk", "fedhk", "payload"

# Seconds between two checks for replies; Flower's own `send_and_receive` checks every three.
POLL_EVERY = 0.5

# Seconds after which a request is sent again, doubled each time: a SuperNode that was killed has lost the first one.
# Repeating a request costs a site nothing: it has kept its answer.
RESEND_AFTER = 60.0

# Transport errors, which are retried: a message or its reply was lost, or a process was killed.
LOST, MOST_TRIES = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED), 3

# A SuperNode that went away, and the seconds that it has to come back: Flower's SuperLink takes a SuperNode that was
# killed for alive for about a minute, and lets no other in with its key; a new one then needs half a minute to start.
# Twice that, because machines differ.
GONE, RETURN_WITHIN = ErrorCode.NODE_UNAVAILABLE, 180.0


class GridTransport:
    """Nodes of a Flower run; `grid` is what Flower gives a ServerApp.

    Attributes
    ----------
    tell : callable
        Called with a node and a text when an answer is late: its SuperNode went away, came back, or is asked again.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.tell: Callable[[int, str], None] = lambda *_: None

    def nodes(self) -> Collection[int]:
        return list(self._grid.get_node_ids())

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:
        if not payloads:
            return {}
        began = time.monotonic()
        sent_again, wait = began, RESEND_AFTER
        sending = _Sending(self._grid, payloads, self.tell)
        sending.push(payloads)
        while len(sending.answers) < len(payloads) and time.monotonic() - began < timeout:
            # where a node died while it sent its answer, Flower waits three minutes for the rest, and what others have
            # answered meanwhile is there only for the next look: nobody is late before a look that finds nothing
            if sending.pull():
                continue
            sending.look_for_gone()
            if time.monotonic() - sent_again > wait:
                late = payloads.keys() - sending.answers.keys() - sending.gone.keys()
                for node in sorted(late):
                    self.tell(node, f"no answer for {time.monotonic() - began:.0f} s. It is asked again.")
                sending.push(late)
                sent_again, wait = time.monotonic(), 2 * wait
            if len(sending.answers) < len(payloads):
                time.sleep(POLL_EVERY)
        return sending.answers


class _Sending:
    """Requests that are on their way, and what has come back."""

    def __init__(self, grid: Grid, payloads: Mapping[int, bytes], tell: Callable[[int, str], None]) -> None:
        self._grid = grid
        self._payloads = payloads
        self._tell = tell
        self._waiting: dict[str, int] = {}  # node of each message's number
        self._tries = dict.fromkeys(payloads, 1)
        self.answers: dict[int, bytes | Exception] = {}
        self.gone: dict[int, float] = {}  # nodes that went away, and when that was noticed

    def push(self, nodes: Collection[int]) -> None:
        """Send nodes their requests."""
        ordered = sorted(nodes)
        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord({KEY: self._payloads[node]})}),
                dst_node_id=node,
                message_type=f"query.{ACTION}",
            )
            for node in ordered
        ]
        numbers = self._grid.push_messages(messages) if messages else []
        taken = {number: node for number, node in zip(numbers, ordered, strict=False) if number}
        self._waiting |= taken
        refused = set(ordered) - set(taken.values())
        if refused:
            connected = set(self._grid.get_node_ids())
            for node in refused - connected:
                self._note_gone(node)

    def pull(self) -> bool:
        """Take what has come back, and return whether anything had; requests that were lost are sent again."""
        came = list(self._grid.pull_messages(list(self._waiting)))
        for reply in came:
            node = self._waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is None or node in self.answers:
                continue
            code = reply.error.code if reply.has_error() else None
            if code in LOST and self._tries[node] < MOST_TRIES:
                self._tries[node] += 1
                self.push([node])
            elif code == GONE:
                self._note_gone(node)
            else:
                self.answers[node] = _content(reply)
        return bool(came)

    def look_for_gone(self) -> None:
        """Send nodes that are back their requests again, and give up those that are gone for too long."""
        if not self.gone:
            return
        back = self.gone.keys() & set(self._grid.get_node_ids())
        given_up = {node for node, since in self.gone.items() if time.monotonic() - since > RETURN_WITHIN} - back
        for node in sorted(back):
            self._tell(node, "its SuperNode is back. It is asked again.")
        self.push(back - self.answers.keys())
        for node in given_up:
            self.answers.setdefault(node, ConnectionError(f"its SuperNode went away, {RETURN_WITHIN:g} s ago"))
        self.gone = {node: since for node, since in self.gone.items() if node not in back | given_up}

    def _note_gone(self, node: int) -> None:
        """Note when a node went away, and tell it once."""
        if node not in self.gone:
            self.gone[node] = time.monotonic()
            self._tell(node, f"its SuperNode went away. It has {RETURN_WITHIN:g} s to come back.")


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
