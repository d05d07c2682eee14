"""An engine for sites behind a transport: it knows which node is which site, and reads their answers.

A transport knows nodes by number; a site says its own name. Whatever the transport is, one class here keeps the two
together, so that a new transport is `nodes` and `send`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from fedhk.data.levels import base_name, common_columns, is_level
from fedhk.data.views import Columns, Views, is_tensor
from fedhk.errors import MessageError, QuorumError
from fedhk.federation.board import Board, Shared
from fedhk.federation.entries import Terms
from fedhk.federation.gate import write_request
from fedhk.federation.messages import Message, decode, encode, expect
from fedhk.federation.phases.describe import agree_on_views, describe_differences, select_alike
from fedhk.federation.remote.greet import Greet, Introduction
from fedhk.federation.remote.site import REFUSAL
from fedhk.federation.run import clean_reason, explain_failure

LOG = logging.getLogger("fedhk.engine")

# Default time limit of a reply in seconds: enough for a pass over many rows on a slow machine.
TIMEOUT = 600.0

# Seconds between two checks of who is connected, while waiting for sites.
LOOK_EVERY = 1.0

# Longer answers cannot be refusals, so they are not decoded to find out.
LONGEST_REFUSAL = 10_000


class Transport(Protocol):
    """Carries bytes to nodes and back."""

    def nodes(self) -> Collection[int]:
        """Return the nodes that are connected now."""

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:
        """Send each node its bytes; return what came back within so many seconds, or why nothing did."""


@runtime_checkable
class Telling(Protocol):
    """A transport that tells what becomes of a node while its answer is waited for."""

    tell: Callable[[int, str], None]


class SitesError(QuorumError):
    """Too few sites are connected, or a site that is needed is not."""


@dataclass(frozen=True)
class Known:
    """A site that has introduced itself."""

    node: int  # where it is
    introduction: Introduction

    @property
    def views(self) -> dict[str, tuple[int | None, Columns]]:
        """Views of the site, with widths and columns."""
        return {view.name: (view.width, view.columns) for view in self.introduction.views}


class RemoteSites:
    """An engine for sites behind a transport.

    Parameters
    ----------
    transport : Transport
        What carries the bytes.
    expected : sequence of str
        Names of the sites that take part; no others may. Empty lets all in.
    wait_for : int, default=1
        How many sites must be there for a run to begin, where `expected` names none.
    wait : float, default=600
        Seconds to wait for them. Those of `expected` that did not come by then are left out, as long as `wait_for` did.
    tell : callable, optional
        Called with a line of text at the beginning of the wait and whenever a site came: who is there and who is not.
        A transport that can tell why an answer is late has a line for that, too.
    tell_exchanges : bool, default=False
        Whether every exchange of a run has a line, too: how many sites answered.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        expected: Sequence[str] = (),
        wait_for: int = 1,
        wait: float = 600.0,
        tell: Callable[[str], None] = lambda _: None,
        tell_exchanges: bool = False,
    ) -> None:
        self._transport = transport
        self._expected = tuple(expected)
        self._wait_for = max(wait_for, 1)
        self._wait = wait
        self._tell = tell
        self._told = ""  # what was told last
        self._tell_exchanges, self._exchanges = tell_exchanges, 0
        self._held_out, self._needs_all = False, False  # as `for_questions` says
        self._timeout = TIMEOUT
        self._faults: dict[str, MessageError] = {}
        self._agreed: dict[str, tuple[int, Columns]] = {}
        self._missing: set[str] = set()  # sites that the last exchange did not reach
        self.known: dict[str, Known] = {}
        if isinstance(transport, Telling):
            transport.tell = self._tell_of

    # ------------------------------------------------------------------------------------------------- before the run

    def describe(self) -> dict[str, Views]:
        """Wait for the sites and greet them; return their views, without rows, as the majority of sites has them."""
        deadline = time.monotonic() + self._wait
        while not self._is_complete():
            self._tell_who_is_there()
            strangers = self._find_strangers(self._transport.nodes())
            if strangers:
                answers = self._transport.send(self._greet(strangers), min(self._timeout, self._wait))
                self._read_introductions(answers)
            if self._is_complete() or time.monotonic() > deadline:
                break
            time.sleep(LOOK_EVERY)
        self._tell_who_is_there()
        self._check_enough(f"came within {self._wait:g} s")
        self._vote()
        self._check_enough("can take part")
        if self._needs_all and self._faults:
            raise SitesError(f"Every site must answer, and some cannot. {self._list_faults()}")
        columns = self._columns()
        return {site: _without_rows(known, columns) for site, known in sorted(self.known.items())}

    def begin(self, timeout: float | None) -> Sequence[Shared]:
        """Prepare a run, and return its terms, which sites must have first; a resumed run has them on its board."""
        self._timeout = TIMEOUT if timeout is None else timeout
        return (Terms(secrets.token_hex(8), self._columns()),)

    def for_questions(self, *, held_out: bool) -> RemoteSites:
        """Return an engine to the same sites for a question after a fit, which every one of them must answer.

        With `held_out`, they also name the views that clustering did not see and that the question may read.
        """
        sites = self._expected or self.sites()
        wait_for = len(sites) or self._wait_for
        told: Any = {"tell": self._tell, "tell_exchanges": self._tell_exchanges}
        engine = RemoteSites(self._transport, expected=sites, wait_for=wait_for, wait=self._wait, **told)
        engine._held_out, engine._needs_all = held_out, True
        return engine

    def _vote(self) -> None:
        """Agree on views by majority; a site whose views differ is excluded, and told what differs."""
        good, refused = select_alike({s: _without_order(known.introduction) for s, known in sorted(self.known.items())})
        self._agreed = agree_on_views(good.values())
        for site, difference in refused.items():
            LOG.warning("site %r is not let in: %s", site, difference)
            del self.known[site]
            self._faults[site] = MessageError(clean_reason(difference), site)

    def _columns(self) -> dict[str, tuple[str, ...] | None]:
        """Return all views, sorted, with the columns of the majority of sites that name them, and all their levels."""
        introductions = [known.introduction for _, known in sorted(self.known.items())]
        views = [view for introduction in introductions for view in introduction.views]
        agreed = agree_on_views(introductions)
        columns: dict[str, tuple[str, ...] | None] = {}
        for name in sorted({view.name for view in views}):
            known = agreed[name][1] if name in agreed else None
            columns[name] = known if _are_names(known) else None
            several = [view.columns for view in views if view.name == name and _are_names(view.columns)]
            if any(is_level(column) for part in several for column in part):
                columns[name] = common_columns(several)
        return columns

    # -------------------------------------------------------------------------------------------------- in the run

    def sites(self) -> Sequence[str]:
        """Return the names of all sites of the run; `exchange` refuses those that are not connected."""
        return sorted({*self._expected, *self.known, *self._faults})

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Exception]:
        """Send each site its request. Nodes that are new, or came back under another number, are greeted first.

        A site that answered before and is not connected now is sent its request, too: the transport knows how long it
        has to come back. Whoever did not is not waited for again.
        """
        present = set(self._transport.nodes())
        reached = {
            s: self.known[s].node
            for s in requests
            if s in self.known and (self.known[s].node in present or s not in self._missing)
        }
        payloads = {node: requests[site] for site, node in reached.items()}
        greetings = self._greet(self._find_strangers(present))
        answers = self._transport.send(payloads | greetings, self._timeout)
        found = {site: self._read_answer(site, answers.get(node)) for site, node in reached.items()}
        self._read_introductions({node: answers[node] for node in greetings if node in answers})
        for site in requests.keys() - reached.keys():
            found[site] = self._faults.get(site) or ConnectionError("not connected")
        self._missing -= reached.keys()
        self._missing |= {site for site, answer in found.items() if isinstance(answer, ConnectionError | TimeoutError)}
        self._exchanges += 1
        if self._tell_exchanges:
            answered = sum(isinstance(answer, bytes) for answer in found.values())
            self._tell(f"exchange {self._exchanges}: {answered} of {len(found)} sites answered")
        return found

    def close(self) -> None:
        """Do nothing: the transport belongs to the caller."""

    def _read_answer(self, site: str, answer: bytes | Exception | None) -> bytes | Exception:
        """Return an answer, or why there is none; whether it is damaged is checked later, when it is read."""
        if answer is None:
            return TimeoutError(f"no answer within {self._timeout:g} s")
        if isinstance(answer, Exception) or len(answer) > LONGEST_REFUSAL:
            return answer
        try:
            message = decode(answer, site=site)
        except MessageError:
            return answer
        return _refusal_of(message) or answer

    # -------------------------------------------------------------------------------------------------- who is there

    def _is_complete(self) -> bool:
        if self._expected:
            return all(site in self.known for site in self._expected)
        return len(self.known) >= self._wait_for

    def _tell_who_is_there(self) -> None:
        """Tell which sites are there and for which the run waits, unless that was told before."""
        came, total = sorted(self.known), len(self._expected) or self._wait_for
        text = f"{len(came)} of {total} sites are there{': ' if came else ''}{', '.join(came)}."
        if not self._is_complete():
            missing = ", ".join(site for site in self._expected if site not in self.known) or "sites"
            text += f" Waiting for {missing}, at most {self._wait:g} s; {self._wait_for} are needed."
        text = " ".join(filter(None, (text, self._list_faults())))
        if text != self._told:
            self._told = text
            self._tell(text)

    def _tell_of(self, node: int, text: str) -> None:
        """Tell what became of a node, by the name of its site if it has said it."""
        names = (site for site, known in self.known.items() if known.node == node)
        self._tell(f"{next(names, 'a site that has not said its name')}: {text}")

    def _check_enough(self, what: str) -> None:
        """Raise an error if fewer sites than needed are there; `what` says what the others did not do."""
        if len(self.known) < self._wait_for:
            wanted = f"of {list(self._expected)} " if self._expected else ""
            raise SitesError(
                f"{len(self.known)} sites {wanted}{what}, {self._wait_for} are needed. {self._list_faults()}"
            )

    def _list_faults(self) -> str:
        """List the sites that are excluded, with the reasons."""
        return "; ".join(f"{site}: {fault.reason}" for site, fault in self._faults.items())

    def _find_strangers(self, nodes: Collection[int]) -> set[int]:
        return set(nodes) - {known.node for known in self.known.values()}

    def _greet(self, nodes: Collection[int]) -> dict[int, bytes]:
        asked = Greet(self._held_out).request(Board())
        request = write_request(Greet.name, 0, asked, Greet.request_type, {})
        return dict.fromkeys(nodes, encode(request))

    def _read_introductions(self, answers: Mapping[int, bytes | Exception]) -> None:
        """Note which sites have introduced themselves, and why others are excluded."""
        for node, answer in sorted(answers.items()):
            site = None
            try:
                if isinstance(answer, Exception):
                    raise MessageError(explain_failure(answer))  # noqa: TRY301
                message = decode(answer)
                site = message.site
                known = self._read_introduction(node, message)
            except MessageError as error:
                LOG.warning("node %d is not let in: %s", node, clean_reason(str(error)))
                if site is not None and (not self._expected or site in self._expected) and site not in self.known:
                    self._faults[site] = error
            else:
                LOG.info("site %r is node %d", site, node)
                self.known[message.site] = known
                self._faults.pop(message.site, None)

    def _read_introduction(self, node: int, message: Message) -> Known:
        site = message.site
        refused = _refusal_of(message)
        if refused is not None:
            raise refused
        expect(message, kind=Greet.name)
        reply = message.read(Introduction)
        Greet().check(Board(), reply, site)
        if self._expected and site not in self._expected:
            raise MessageError(f"it is not one of {list(self._expected)}", site)
        if difference := describe_differences(_without_order(reply), self._agreed):
            raise MessageError(clean_reason(difference), site)
        other = self.known.get(site)
        if other is not None and other.node != node and other.node in self._transport.nodes():
            raise MessageError("another node has this name already", site)
        return Known(node, reply)


def _without_order(introduction: Introduction) -> Introduction:
    """Return an introduction with sorted columns and without levels: sites bring both to those of the run."""
    ordered = []
    for view in introduction.views:
        if _are_names(view.columns):
            names = tuple(sorted(set(map(base_name, view.columns))))
            view = replace(view, columns=names, width=len(names))  # noqa: PLW2901
        ordered.append(view)
    return replace(introduction, views=tuple(ordered))


def _are_names(columns: Columns) -> TypeGuard[tuple[str, ...]]:
    return columns is not None and not is_tensor(columns)


def _refusal_of(message: Message) -> MessageError | None:
    """Return the reason if an answer is a refusal, else None."""
    if message.kind != REFUSAL:
        return None
    return MessageError(clean_reason(str(message.values.get("reason"))), message.site)


def _without_rows(known: Known, columns: Mapping[str, Columns]) -> Views:
    """Make the views of a site, without rows, for an estimator; categories have the levels of all sites."""
    names, dtype = tuple(columns), np.dtype(known.introduction.dtype)
    tables: list[Any] = []
    features: list[Columns] = []
    for name in names:
        width, own = known.views.get(name, (None, None))
        common = columns[name]
        if width is not None and _are_names(own) and common is not None:
            width = len(common)
        tables.append(None if width is None else np.empty((0, width), dtype))
        features.append(own if is_tensor(own) else common)
    return Views(tuple(tables), names, 0, dtype, (False,) * len(names), tuple(features))
