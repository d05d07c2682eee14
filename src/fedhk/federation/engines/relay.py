"""Relays between the server and its sites: hospital groups, regions, phones behind a gateway.

A relay gets the messages for all its sites in one bundle, passes each on, and sends one bundle back. Where the server
needs a total only (`Phase.adds`), a relay sends the sum of its sites' answers, in the open or under masks, and who is
in it. All other answers go on as they are, and so do refusals. A relay keeps nothing: one that was killed is asked
again, and its sites, which have kept their answers, give them again. Relays of relays are trees of any depth.

What a relay sees is what its sites send: in the open their sums, under masks numbers that look random and envelopes
that it cannot open. It is believed as the server is, in the open. Sums over other sites than those that are listed are
refused: by the number of rows in the open, and because masks do not cancel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedhk.data.clients import check_clients
from fedhk.errors import MessageError
from fedhk.federation.codec import pack
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.engines.remote import TIMEOUT, Transport
from fedhk.federation.gate import SEALED, Guard
from fedhk.federation.messages import Message, decode, encode, expect
from fedhk.federation.remote.site import refusal
from fedhk.federation.run import clean_reason
from fedhk.federation.sealed.phase import Sealed
from fedhk.federation.several import AS_ONE, SUM_OF, sum_type
from fedhk.federation.site import Site

RELAY = "relay"

# Share of the server's time limit that a relay allows its sites, so that its own answer is in time.
OWN_SHARE = 0.9


@dataclass(frozen=True, eq=False)
class Bundle:
    """Messages to several nodes, or from them, as one message.

    Parameters
    ----------
    payloads : tuple of bytes
        The messages.
    nodes : tuple of tuple of int
        For each message the nodes of the relay that it is for or, on the way up, whose answer it is.
    faults : tuple of (int, str)
        Nodes that gave no answer, and why.
    present : tuple of int
        Nodes that the relay can reach now.
    timeout : float
        Seconds that the relay has.
    """

    payloads: tuple[bytes, ...] = ()
    nodes: tuple[tuple[int, ...], ...] = ()
    faults: tuple[tuple[int, str], ...] = ()
    present: tuple[int, ...] = ()
    timeout: float = TIMEOUT

    def by_node(self) -> dict[int, bytes]:
        """Return the message of each node; refuse a bundle that lists a node twice."""
        if len(self.payloads) != len(self.nodes):
            raise MessageError("a bundle with more or fewer messages than it says")
        listed = [node for nodes in self.nodes for node in nodes] + [node for node, _ in self.faults]
        if len(set(listed)) < len(listed):
            raise MessageError("a node is in a bundle twice")
        return {node: payload for payload, nodes in zip(self.payloads, self.nodes, strict=True) for node in nodes}


@dataclass(frozen=True)
class Relay:
    """A relay; `transport` leads to its sites, or to further relays."""

    name: str
    transport: Transport

    def answer(self, payload: bytes) -> bytes:
        """Answer a bundle with a bundle; answer anything else with a refusal."""
        try:
            message = decode(payload)
            expect(message, kind=RELAY)
            bundle = message.read(Bundle)
            requests = bundle.by_node()
        except MessageError as error:
            return refusal(self.name, 0, clean_reason(error.reason))
        answers = self.transport.send(requests, OWN_SHARE * bundle.timeout) if requests else {}
        good = {node: answer for node, answer in answers.items() if isinstance(answer, bytes)}
        faults = {node: _reason_of(answers.get(node)) for node in requests.keys() - good.keys()}
        groups = self._add(requests, _group(good))
        present = tuple(sorted(self.transport.nodes()))
        made = Bundle(tuple(groups.values()), tuple(groups), tuple(sorted(faults.items())), present, bundle.timeout)
        return _write(made, self.name, message.round)

    def _add(
        self, requests: Mapping[int, bytes], answers: Mapping[tuple[int, ...], bytes]
    ) -> dict[tuple[int, ...], bytes]:
        """Add up the replies that may be added, and return them with all others."""
        kinds: dict[tuple[str, int], dict[tuple[int, ...], bytes]] = {}
        rest = dict(answers)
        asked = {payload: decode(payload) for payload in set(requests.values())}
        for nodes, answer in answers.items():
            request = asked[requests[nodes[0]]]
            if request.site == AS_ONE:
                kinds.setdefault((request.kind, request.round), {})[nodes] = answer
        for (kind, exchange), several in kinds.items():
            found = {nodes: part for nodes, answer in several.items() if (part := _read(answer, kind, exchange))}
            names = sorted([name for listed, _ in found.values() for name in listed])
            if len(found) < 2 or len(set(names)) < len(names):
                continue
            try:
                end = _end_of(kind)
                values, arrays = pack(
                    (tuple(names), end.add([reply for _, reply in found.values()])), sum_type(end.reply_type)
                )
            except MessageError:
                continue
            for nodes in found:
                del rest[nodes]
            total = Message(SUM_OF + kind, self.name, exchange, arrays, values)
            rest[tuple(sorted([node for nodes in found for node in nodes]))] = encode(total)
        return rest


class RelayTransport:
    """A transport to the nodes behind relays; the relays are the nodes of another transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._behind: dict[int, tuple[int, ...]] = {}  # what each relay said last
        self._numbers: dict[tuple[int, int], int] = {}  # of each node of a relay, here
        self._count = 0

    def nodes(self) -> Collection[int]:
        relays = set(self._transport.nodes())
        self._behind = {relay: nodes for relay, nodes in self._behind.items() if relay in relays}
        unknown = relays - self._behind.keys()
        if unknown:
            self._exchange(dict.fromkeys(unknown, Bundle()))
        return [self._number(relay, node) for relay, nodes in self._behind.items() for node in nodes]

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:
        places = {number: place for place, number in self._numbers.items()}
        wanted: dict[int, dict[int, bytes]] = {}
        for number, payload in payloads.items():
            relay, node = places[number]
            wanted.setdefault(relay, {})[node] = payload
        bundles = {
            relay: Bundle(tuple(groups.values()), tuple(groups), timeout=timeout)
            for relay, own in wanted.items()
            for groups in [_group(own)]
        }
        answers: dict[int, bytes | Exception] = {}
        for relay, found in self._exchange(bundles, timeout).items():
            for node in wanted[relay]:
                fault = found if isinstance(found, Exception) else found.get(node)
                answers[self._number(relay, node)] = fault or TimeoutError("the relay has no answer of this site")
        return answers

    def _number(self, relay: int, node: int) -> int:
        return self._numbers.setdefault((relay, node), len(self._numbers) + 1)

    def _exchange(
        self, bundles: Mapping[int, Bundle], timeout: float = TIMEOUT
    ) -> dict[int, dict[int, bytes | Exception] | Exception]:
        """Send relays their bundles; return the reply of each node, or why its relay gave none."""
        self._count += 1
        payloads = {relay: _write(bundle, "server", self._count) for relay, bundle in bundles.items()}
        answers = self._transport.send(payloads, timeout)
        lost = {relay: payloads[relay] for relay in payloads if isinstance(answers.get(relay), ConnectionError)}
        if lost:  # a relay that was killed keeps nothing: it can be asked again
            answers |= self._transport.send(lost, timeout)
        found: dict[int, dict[int, bytes | Exception] | Exception] = {}
        for relay in bundles:
            answer = answers.get(relay) or TimeoutError("no answer of the relay")
            try:
                found[relay] = answer if isinstance(answer, Exception) else self._open(relay, answer)
            except MessageError as error:
                found[relay] = error
        return found

    def _open(self, relay: int, answer: bytes) -> dict[int, bytes | Exception]:
        message = decode(answer)
        expect(message, kind=RELAY, round=self._count)
        bundle = message.read(Bundle)
        found: dict[int, bytes | Exception] = dict(bundle.by_node())
        self._behind[relay] = bundle.present
        return found | {node: ConnectionError(reason) for node, reason in bundle.faults}


class LocalRelays:
    """Relays in this process as the nodes of a transport."""

    def __init__(self, relays: Sequence[Relay]) -> None:
        self._relays = dict(enumerate(relays, 1))

    def nodes(self) -> Collection[int]:
        return list(self._relays)

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:
        return {node: self._relays[node].answer(payload) for node, payload in payloads.items()}


class LocalSites:
    """Sites in this process as the nodes of a transport.

    Parameters
    ----------
    sites : mapping of str to list or dict of tables
        As `fit` takes them.
    """

    def __init__(self, sites: Mapping[str, Any]) -> None:
        known = {name: Site(name, views) for name, views in check_clients(dict(sites)).items()}
        self._engine, self._names = InProcessEngine(known), dict(enumerate(known, 1))

    def nodes(self) -> Collection[int]:
        return list(self._names)

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:
        answers = self._engine.exchange({self._names[node]: payload for node, payload in payloads.items()})
        return {node: answers[self._names[node]] for node in payloads}


def _group(payloads: Mapping[int, bytes]) -> dict[tuple[int, ...], bytes]:
    """Group nodes by their message."""
    nodes: dict[bytes, list[int]] = {}
    for node, payload in sorted(payloads.items()):
        nodes.setdefault(payload, []).append(node)
    return {tuple(listed): payload for payload, listed in nodes.items()}


def _write(bundle: Bundle, sender: str, number: int) -> bytes:
    values, arrays = pack(bundle, Bundle)
    return encode(Message(RELAY, sender, number, arrays, values))


def _end_of(kind: str) -> Any:
    """Return what a relay needs of a phase: the type of its replies, and how they add."""
    return Sealed if kind.startswith(SEALED) else Guard().phase(kind)


def _read(answer: bytes, kind: str, exchange: int) -> tuple[Iterable[str], Any] | None:
    """Return the sites of a reply and the reply; None if it does not answer this request, such as a refusal."""
    try:
        message = decode(answer)
        expect(message, round=exchange)
        reply_type = _end_of(kind).reply_type
        if message.kind == SUM_OF + kind:
            names, reply = message.read(sum_type(reply_type))
            return names, reply
        expect(message, kind=kind)
        return (message.site,), message.read(reply_type)
    except MessageError:
        return None


def _reason_of(answer: Any) -> str:
    return clean_reason(f"{type(answer).__name__}: {answer}") if answer is not None else "no answer"
