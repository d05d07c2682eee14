"""Sites behind a transport: who they are, what each must hear first, and what came back.

A transport knows nodes by number; a site says its own name. Whatever the transport is, one class here keeps the two
together, so that a new transport is `nodes` and `send`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedhk import __version__
from fedhk._files import write_atomically
from fedhk.data.views import Columns, Views, is_tensor
from fedhk.errors import DataError, MessageError
from fedhk.federation.describe import read_description
from fedhk.federation.messages import Message, decode, encode, expect
from fedhk.federation.payloads import pack_text
from fedhk.federation.remote.site import check_version
from fedhk.federation.remote.site_file import Join
from fedhk.federation.server import QuorumError
from fedhk.personal.objective import SiteReport

if TYPE_CHECKING:
    from fedhk.federation.state import Plan

LOG = logging.getLogger("fedhk.engine")

# Seconds that a site has for an answer where nothing else is asked for: a pass over many rows on a slow machine.
TIMEOUT = 600.0

# Seconds between two looks at who is connected, while sites are waited for.
LOOK_EVERY = 1.0


class Transport(Protocol):
    """What carries bytes to nodes and back."""

    def nodes(self) -> Collection[int]:
        """Nodes that are connected now."""

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:
        """Send each node its bytes; what came back within so many seconds, or why nothing did."""


class SitesError(QuorumError):
    """Sites that are needed did not come."""


@dataclass(frozen=True)
class Known:
    """A site that has said who it is.

    Parameters
    ----------
    node : int
        Where it is.
    views : dict of str to (int or None, columns or None)
        Its views, with widths and columns.
    dtype : str
        The precision of its numbers.
    """

    node: int
    views: Mapping[str, tuple[int | None, Columns]]
    dtype: str


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
    memory : path, optional
        File that holds the name of the run, so that sites know it again when it goes on.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        expected: Sequence[str] = (),
        wait_for: int = 1,
        wait: float = 600.0,
        memory: Path | None = None,
    ) -> None:
        self._transport = transport
        self._expected = tuple(expected)
        self._wait_for = wait_for
        self._wait = wait
        self._memory = memory
        self.known: dict[str, Known] = {}
        self._faults: dict[str, MessageError] = {}
        self._joined: set[str] = set()
        self._join: Join | None = None
        self._timeout = TIMEOUT

    def describe(self) -> dict[str, Views]:
        """Wait for the sites and ask who they are; their views without rows, columns in the order of the first."""
        deadline = time.monotonic() + self._wait
        while not self._complete():
            self._greet(self._strangers())
            if self._complete() or time.monotonic() > deadline:
                break
            time.sleep(LOOK_EVERY)
        if len(self.known) < max(self._wait_for, 1):
            wanted = f"of {list(self._expected)} " if self._expected else ""
            why = "; ".join(f"{site}: {fault.reason}" for site, fault in self._faults.items())
            raise SitesError(
                f"{len(self.known)} sites {wanted}came within {self._wait:g} s, {max(self._wait_for, 1)} are needed. "
                f"{why}"
            )
        columns = self.columns
        return {site: _without_rows(known, columns) for site, known in sorted(self.known.items())}

    @property
    def columns(self) -> dict[str, tuple[str, ...] | None]:
        """All views, sorted, with the names of their columns as the first site with names has them."""
        described = [known.views for _, known in sorted(self.known.items())]
        found: dict[str, tuple[str, ...] | None] = {}
        for view in sorted({view for views in described for view in views}):
            named = (views[view][1] for views in described if view in views)
            found[view] = next((names for names in named if names is not None and not is_tensor(names)), None)  # type: ignore[assignment]
        return found

    def begin(self, plan: Plan, timeout: float | None) -> None:
        privacy = None if plan.privacy is None else plan.privacy.describe()
        self._join = Join(self._run_name(), self.columns, privacy, plan.secure is not None)
        self._timeout = TIMEOUT if timeout is None else timeout

    def sites(self) -> Sequence[str]:
        return sorted({*self._expected, *self.known, *self._faults})

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Exception]:
        present = set(self._transport.nodes())
        reached = {s: self.known[s].node for s in requests if s in self.known and self.known[s].node in present}
        payloads = {node: self._told(site, requests[site]) for site, node in reached.items()}
        # whoever is new, or came back under another number, is greeted on the way
        strangers = {node: self._hello() for node in present - {known.node for known in self.known.values()}}
        answers = self._transport.send(payloads | strangers, self._timeout)
        found = {site: self._heard(site, answers.get(node)) for site, node in reached.items()}
        self._meet({node: answers[node] for node in strangers if node in answers})
        for site in requests.keys() - reached.keys():
            self._joined.discard(site)
            found[site] = self._faults.get(site) or ConnectionError("not connected")
        return found

    def deliver(self, model: bytes) -> dict[str, SiteReport]:
        request = encode(Message("deliver", "*", 0, {"model": np.frombuffer(model, np.uint8)}))
        reports = {}
        for site, answer in self.exchange(dict.fromkeys(self.sites(), request)).items():
            report = _read_report(site, answer)
            if report is not None:
                reports[site] = report
        return dict(sorted(reports.items()))

    def close(self) -> None:
        """Nothing is held: the transport belongs to the caller."""

    def _run_name(self) -> str:
        """A name that no other run has; the same as before for a run that goes on."""
        if self._memory is None:
            return secrets.token_hex(8)
        if not self._memory.exists():
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._memory, secrets.token_hex(8).encode())
        return self._memory.read_text("ascii")

    def _complete(self) -> bool:
        if self._expected:
            return all(site in self.known for site in self._expected)
        return len(self.known) >= self._wait_for

    def _strangers(self) -> set[int]:
        return set(self._transport.nodes()) - {known.node for known in self.known.values()}

    def _hello(self) -> bytes:
        return encode(Message("hello", "*", 0, {}, {"fedhk": __version__}))

    def _greet(self, nodes: Collection[int]) -> None:
        if nodes:
            self._meet(self._transport.send(dict.fromkeys(nodes, self._hello()), min(self._timeout, self._wait)))

    def _meet(self, answers: Mapping[int, bytes | Exception]) -> None:
        """Take down who answered a greeting."""
        for node, answer in sorted(answers.items()):
            site = None
            try:
                message = _message(answer, None)
                site = message.site
                if message.kind == "refusal":
                    raise MessageError(str(message.values.get("reason"))[:300], site)  # noqa: TRY301
                known = self._introduced(node, message)
            except MessageError as error:
                LOG.warning("node %d is not let in: %s", node, error)
                if site is not None and (not self._expected or site in self._expected) and site not in self.known:
                    self._faults[site] = error
            else:
                LOG.info("site %r is node %d", site, node)
                self.known[message.site] = known
                self._faults.pop(message.site, None)

    def _introduced(self, node: int, message: Message) -> Known:
        site = message.site
        expect(message, kind="hello")
        check_version(message.values.get("fedhk"), f"site {site!r}", site)
        if self._expected and site not in self._expected:
            raise MessageError(f"it is not one of {list(self._expected)}", site)
        holder = self.known.get(site)
        if holder is not None and holder.node != node and holder.node in self._transport.nodes():
            raise MessageError("another node has this name already", site)
        self._joined.discard(site)
        dtype = message.values.get("dtype")
        return Known(node, read_description(message, schema=True).views, "float32" if dtype == "float32" else "float64")

    def _told(self, site: str, request: bytes) -> bytes:
        """The request, with the terms of the run for a site that has not answered since it could have lost them."""
        if site in self._joined or self._join is None:
            return request
        arrays = {"join": pack_text(self._join.to_json()), "request": np.frombuffer(request, np.uint8)}
        return encode(Message("join", "*", 0, arrays, {"fedhk": __version__}))

    def _heard(self, site: str, answer: bytes | Exception | None) -> bytes | Exception:
        """An answer, or why there is none."""
        self._joined.discard(site)
        if answer is None:
            return TimeoutError(f"no answer within {self._timeout:g} s")
        if isinstance(answer, Exception):
            return answer
        reason = _refused(answer, site)
        if reason is not None:
            return MessageError(reason, site)
        self._joined.add(site)
        return answer


def _message(answer: bytes | Exception, site: str | None) -> Message:
    if isinstance(answer, Exception):
        raise MessageError(f"{type(answer).__name__}: {answer}"[:300], site)
    return decode(answer, site=site)


def _refused(answer: bytes, site: str) -> str | None:
    """Why a site gives no answer, or None where it does; damage is found where the answer is read."""
    if len(answer) > 10_000:
        return None
    try:
        message = decode(answer, site=site)
    except MessageError:
        return None
    return str(message.values.get("reason"))[:300] if message.kind == "refusal" else None


def _without_rows(known: Known, columns: Mapping[str, Columns]) -> Views:
    """A site's views as an estimator takes them, with no rows."""
    names = tuple(columns)
    described = [known.views.get(name, (None, None)) for name in names]
    dtype = np.dtype(known.dtype)
    return Views(
        tables=tuple(None if width is None else np.empty((0, width), dtype) for width, _ in described),
        names=names,
        n_rows=0,
        dtype=dtype,
        missing=(False,) * len(names),
        columns=tuple(own if is_tensor(own) else columns[n] for n, (_, own) in zip(names, described, strict=True)),
    )


def _read_report(site: str, answer: bytes | Exception) -> SiteReport | None:
    """What a site says of its own model; None where it says nothing, or nothing that can be used."""
    try:
        message = _message(answer, site)
        expect(message, kind="deliver", site=site)
        return SiteReport.from_json(message.values) if message.values else None
    except MessageError as error:
        LOG.warning("site %r did not take the model: %s", site, error.reason)
    except (KeyError, TypeError, ValueError, AttributeError):
        LOG.warning("site %r says of its model what cannot be read", site)
    return None


def remote_sites(engine: Any, X: Any) -> dict[str, Views]:
    """The views of the sites of a remote engine, without rows; refuses rows that were given too."""
    if X is not None:
        raise DataError("sites are given, but engine= leads to sites that have their own rows: call fit() without any.")
    found: dict[str, Views] = engine.describe()
    return found
