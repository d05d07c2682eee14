"""The engine for sites in this process. It is the reference that every other engine must agree with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fedhk.federation.engines.pools import MANY_SITES, Pools, answer_as_one
from fedhk.federation.gate import Guard, answer_message
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.several import AS_ONE
from fedhk.federation.site import Site

# Sites with fewer cells are faster one after the other than in threads.
WORTH_A_THREAD = 200_000

# With a time limit every site has a thread, up to this many.
MOST_THREADS = 64

# Decoded messages of one exchange that are cached: sites differ little in what they have been sent before.
FEW_MESSAGES = 8

# The guard of sites in the open: it has no state, so all sites share one.
OPEN = Guard()


class InProcessEngine:
    """Answers the messages to all sites in this process. The messages are encoded as they are over a network.

    With several `workers`, sites run side by side where they are large, and one large site uses them all. After
    `timeout` seconds an exchange goes on without the sites that have not answered.
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        guards: Mapping[str, Guard] | None = None,
        workers: int = 1,
        timeout: float | None = None,
    ) -> None:
        cells = [site.views.n_rows * sum(filter(None, site.views.widths)) for site in sites.values()]
        large = len(sites) > 1 and workers > 1 and max(cells) >= WORTH_A_THREAD
        parallel = timeout is not None or large
        self.states = {name: replace(site, workers=1 if parallel else workers) for name, site in sites.items()}
        self.guards = dict.fromkeys(sites, OPEN) | dict(guards or {})
        self._pools, self._workers = Pools(), workers
        # a slow site must not keep the others from answering in time
        threads = max(workers, min(len(sites), MOST_THREADS)) if timeout is not None else workers
        self._pool = ThreadPoolExecutor(max(threads, 1)) if parallel else None
        self._timeout = timeout
        # most sites get one of few messages, which are decoded once; their content is never changed
        self._decode = lru_cache(maxsize=FEW_MESSAGES)(decode)
        self._read = lru_cache(maxsize=FEW_MESSAGES)(Message.read)

    def sites(self) -> Sequence[str]:
        return list(self.states)

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Exception]:
        as_one = self._answer_as_one(requests)
        requests = {site: payload for site, payload in requests.items() if site not in as_one}
        answers: dict[str, Any] = {}
        if self._pool is None:
            answers |= map(self._answer, requests, requests.values())
        else:
            futures = [self._pool.submit(self._answer, *request) for request in requests.items()]
            done, late = wait(futures, self._timeout)
            for future in late:
                future.cancel()
            answers |= dict.fromkeys(requests, TimeoutError(f"no answer within {self._timeout} s"))
            answers |= [future.result() for future in futures if future in done]
        for site, answer in answers.items():
            if not isinstance(answer, Exception):  # only a site that answered in time has taken the step
                self.states[site], answers[site] = answer
        return answers | as_one

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer_as_one(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """Answer for many small sites with the same request as one; give no answer where one of them fails."""
        answers: dict[str, bytes] = {}
        if len(requests) < MANY_SITES or self._timeout is not None:
            return answers
        for payload in set(requests.values()):
            message = self._decode(payload)
            if message.site != AS_ONE:
                continue
            alike = {s: self.states[s] for s, own in requests.items() if own is payload and self.guards[s] is OPEN}
            for names, pool in self._pools.gather(alike, self._workers):
                found = None
                with suppress(Exception):  # where one of them is at fault, each answers by itself
                    found = answer_as_one(pool, names, OPEN, message, self._read)
                if found is not None:
                    after, reply = found
                    self._pools.keep(names, after)
                    for name in names:
                        self.states[name].board = after.board
                    answers |= dict.fromkeys(names, encode(reply))
        return answers

    def _answer(self, site: str, payload: bytes) -> tuple[str, tuple[Site, bytes] | Exception]:
        """Return the site's name, with its new state and answer, or with the error: the other sites go on."""
        try:
            message = self._decode(payload)
            after, reply = answer_message(self.states[site], self.guards[site], message, self._read)
            return site, (after, encode(reply))
        except Exception as error:
            return site, error
