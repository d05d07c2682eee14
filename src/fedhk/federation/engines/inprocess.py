"""All sites in this process: for one laptop, for tests, and the reference for every other engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

from fedhk.federation.codec import unpack
from fedhk.federation.gate import Guard, answer_message
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.site import Site

# Sites with less than this to compute in a pass are faster one after the other than in threads.
WORTH_A_THREAD = 200_000

# With a time limit every site has a thread, up to this many.
MOST_THREADS = 64

Answer = tuple[Site, bytes] | Exception


class InProcessEngine:
    """Answers every site's messages in this process; the messages are real, encoded ones.

    Parameters
    ----------
    sites : mapping of str to Site
        The sites.
    guards : mapping of str to Guard
        What each lets pass.
    workers : int, default=1
        Threads; sites run side by side where they are large, and one large site uses them all.
    timeout : float or None, default=None
        Seconds after which an exchange goes on without the sites that have not answered.
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        guards: Mapping[str, Guard] | None = None,
        workers: int = 1,
        timeout: float | None = None,
    ) -> None:
        cells = max((s.views.n_rows * sum(w or 0 for w in s.views.widths) for s in sites.values()), default=0)
        parallel = timeout is not None or (len(sites) > 1 and workers > 1 and cells >= WORTH_A_THREAD)
        self.states = {name: replace(site, workers=1 if parallel else workers) for name, site in sites.items()}
        self._guards = {name: Guard() for name in sites} | dict(guards or {})
        # a slow site must not keep the others from answering in time
        threads = max(workers, min(len(sites), MOST_THREADS)) if timeout is not None else workers
        self._pool = ThreadPoolExecutor(max(threads, 1)) if parallel else None
        self._timeout = timeout
        self._request: tuple[bytes, Message] | None = None
        self._content: tuple[Mapping[str, Any], Any, Any] | None = None

    def sites(self) -> Sequence[str]:
        return list(self.states)

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Exception]:
        if self._pool is None:
            return {site: self._keep(site, self._answer(site, request)) for site, request in requests.items()}
        futures = {site: self._pool.submit(partial(self._answer, site, r)) for site, r in requests.items()}
        done, late = wait(futures.values(), self._timeout)
        for future in late:
            future.cancel()
        missed = TimeoutError(f"no answer within {self._timeout} s")
        return {site: self._keep(site, f.result()) if f in done else missed for site, f in futures.items()}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, site: str, payload: bytes) -> Answer:
        """One site's answer; whatever goes wrong at a site stays its own trouble."""
        try:
            after, reply = answer_message(self.states[site], self._guards[site], self._decoded(payload), self._read)
            return after, encode(reply)
        except Exception as error:
            return error

    def _keep(self, site: str, answer: Answer) -> bytes | Exception:
        """The message of an answer; only a site that answered in time has taken the step."""
        if isinstance(answer, Exception):
            return answer
        self.states[site], message = answer
        return message

    def _decoded(self, payload: bytes) -> Message:
        """The request; most sites get the same bytes, which are read once."""
        known = self._request
        if known is None or known[0] is not payload:
            known = (payload, decode(payload))
            self._request = known
        return known[1]

    def _read(self, values: Mapping[str, Any], arrays: Mapping[str, Any], kind: Any) -> Any:
        """What a request holds; most sites get the same one, which nobody changes."""
        known = self._content
        if known is None or known[0] is not values or known[1] != kind:
            known = (values, kind, unpack(values, arrays, kind))
            self._content = known
        return known[2]
