"""The gate of a site: every message passes it before any row is read.

First the message must be well formed, then the site's guard must allow it; only then is it answered. What the guard
holds to (policy, limits, ledger) is the site's own and never the server's word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import GenericAlias
from typing import Any, Protocol

import numpy as np

from fedhk.errors import FedHKError, MessageError
from fedhk.federation.board import Shared, entry_type
from fedhk.federation.codec import pack
from fedhk.federation.messages import Message
from fedhk.federation.phases.base import phase_named
from fedhk.federation.phases.together import AND, Together
from fedhk.federation.several import EACH
from fedhk.federation.site import Site

# Prefix of the kind of messages of sealed phases.
SEALED = "sealed."

ENTRIES = "entries"


class MalformedError(MessageError):
    """A malformed message: it does not fit the type that its kind declares."""


class UnansweredError(MessageError):
    """A message that the guard allowed but that the site cannot answer."""


class SiteEnd(Protocol):
    """The part of a phase that runs at a site."""

    @property
    def request_type(self) -> Any:
        """Type of the request, for the codec."""

    @property
    def reply_type(self) -> Any:
        """Type of the reply, for the codec."""

    def answer(self, site: Site, request: Any, /) -> Any:
        """Compute the reply from the site's rows."""


class Guard:
    """Decides which messages a site answers. This one allows every phase in the open, and none with noise or masks."""

    def phase(self, kind: str) -> SiteEnd:
        """Return the phase of messages of this kind; raise MessageError if the site takes no part in it."""
        if kind.startswith(SEALED):
            raise MessageError("the server asks for sums with noise or masks, this site was not set up for them")
        return Together.named(kind) if AND in kind else phase_named(kind)

    def admit(self, site: Site, request: Any, entries: Sequence[Shared]) -> None:
        """Raise MessageError for a well-formed request, or an entry sent with it, that the site does not allow."""


def write_request(
    kind: str, exchange: int, request: Any, request_type: Any, entries: Mapping[str, Shared], *, to: str = EACH
) -> Message:
    """Make the message to sites that lack these entries of the board; `to` says whether they may answer as one."""
    kinds = GenericAlias(tuple, (request_type, *map(type, entries.values())))
    values, arrays = pack((request, *entries.values()), kinds)
    if entries:
        values[ENTRIES] = list(entries)
    return Message(kind, to, exchange, arrays, values)


def answer_message(
    site: Site, guard: Guard, message: Message, read: Callable[[Message, Any], Any] = Message.read
) -> tuple[Site, Message]:
    """Answer one message of the server; return the site after it, to be kept if the answer is sent, and the answer.

    Parameters
    ----------
    site : Site
        The site before the message.
    guard : Guard
        Decides whether the message is allowed.
    message : Message
        The server's request and newly published entries.
    read : callable
        Reads the message; sites of one process need not each read the same one.

    Raises
    ------
    MessageError
        If the message is not well formed (`MalformedError`), not allowed, or cannot be answered (`UnansweredError`).
    """
    site = replace(site)  # if the answer comes too late, what it changes is forgotten
    try:
        phase = guard.phase(message.kind)
        names = message.values.get(ENTRIES, [])
        if not isinstance(names, list) or not set(map(type, names)) <= {str}:
            raise MessageError("the entries that were published are not listed")  # noqa: TRY301
        if len(set(names)) < len(names):  # the guard would look at one and the board would keep the other
            raise MessageError("an entry is published twice in one message")  # noqa: TRY301
        request, *entries = read(message, GenericAlias(tuple, (phase.request_type, *map(entry_type, names))))
    except MessageError as error:
        raise MalformedError(error.reason, site.name) from error
    try:
        guard.admit(site, request, entries)
    except MessageError as error:
        raise MessageError(error.reason, site.name) from error
    try:
        for entry in entries:
            known = site.board.entries.get(type(entry))
            if known is None or not _same(known, entry):  # after an interruption the site has it already
                site.board = site.board.put(entry)
        reply = phase.answer(site, request)
    except MessageError as error:
        raise UnansweredError(error.reason, site.name) from error
    except FedHKError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # numbers of the server that do not fit
        raise UnansweredError(f"it cannot be answered: {type(error).__name__}: {error}", site.name) from error
    values, arrays = pack(reply, phase.reply_type)
    return site, Message(message.kind, site.name, message.round, arrays, values)


def _same(one: Any, other: Any) -> bool:
    (some, these), (others, those) = pack(one, type(one)), pack(other, type(other))
    return some == others and these.keys() == those.keys() and all(np.array_equal(these[k], those[k]) for k in these)
