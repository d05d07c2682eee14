"""Sums of which nobody sees the parts (Bonawitz et al. 2017, CCS, the protocol for honest-but-curious servers).

Exchanges
---------
Four steps, in each of which the server asks and the sites answer:

1. *keys*: each site makes fresh keys and sends the public ones: one X25519 key for envelopes, and for every sum of the
   session one for masks. Signed with its long-term key where operators exchanged those.
2. *shares*: each site gets the list of keys, splits for every sum its private mask key and the seed of its own mask so
   that `threshold` sites can put them together again, and sends each other site its shares in a sealed envelope.
3. *input*: each site gets its envelopes and sends its numbers plus its own mask, plus a mask with each other site that
   the one adds and the other subtracts.
4. *unmask*: the server says who answered. Each site gives, for every participant, its share of the seed if that one
   answered, of the mask key if not.

A session is set up once for as many sums as asked: steps 1 and 2 once, steps 3 and 4 for every sum, so R sums cost
2 + 2R exchanges. A site may miss any sum and be back for the next.

Why keys are not reused between sums
------------------------------------
It would be cheaper to agree on one mask key for the session and derive each sum's masks from it. That is not safe, even
if a site that dropped out is never asked again: in *earlier* sums it answered, so its seeds of these were revealed, and
revealing its key now takes the last masks off its earlier numbers. So every sum needs mask keys of its own, shared
before; and these can be made and shared for many sums at once.

A sum's seed could be shared together with the masked numbers. That saves no exchange, and its envelopes would be
delivered and checked only after the numbers have left: one that is damaged or held back costs the sum, and what a site
can reveal would depend on what the server chose to deliver to whom. So seeds are shared with the mask keys, in the
set-up, and a site that cannot open an envelope sends no numbers.

Each sum then is the plain protocol with secrets of its own, and the paper's proof holds for each. Sites forget the
secrets of a sum when it is over, so what is taken from a site later opens no earlier sum.

What is hidden, and what is not
-------------------------------
The claim: the traffic carries nothing about the numbers beyond the sum over the sites that answered. Whoever knows the
sum and the numbers of all sites but one knows that one's, with or without traffic. For any proper subset of the
survivors, what the server has after taking away all it can is still covered by a mask between a site in the subset and
one outside, which only these two can make. Numbers that arrive late, from a site that was declared dropped, are
covered by its own mask, whose seed nobody reveals.

This holds against a server that sees everything and keeps to the protocol, together with fewer than ``threshold``
sites (then: the sum over the remaining sites). Against a server that lies, beyond that:

- It cannot be a site itself where long-term keys are exchanged: every key is signed together with the session's terms.
- It cannot show different lists of keys or participants: their digest goes into the keys of envelopes and masks, so
  envelopes do not open and masks do not cancel.
- It cannot get both secrets of a site by asking different sites differently: the threshold t is more than half of the n
  sites, and each reveals one share of one of the two (with k sites that collude, while t > (n + k) / 2).
- It *can* tell sites different stories about who answered; then it may open one sum over fewer sites than the
  threshold, but over at least n - n (n - t) / t of them: half of all for t = 2n/3. The paper's fifth exchange closes
  this; it is not done here.

Not hidden: who took part; sums themselves. Where numbers change little from sum to sum, two sums with different
survivors give away nearly what the absent site would have sent; the same numbers must never go into two sums. Noise is
the remedy for what sums say. Wrong numbers of a hostile site cannot be seen, only numbers that break the bound on the
sum; secrecy and origin of messages on the way are the transport's.

Numbers are int64, in fixed point made elsewhere. Sums are modulo 2^64, but never wrap: ``n_sites * bound < 2^63`` and
``|number| <= bound`` are checked at the site, the range of the sum at the server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError
from fedhk.privacy.secure_server import SecureServer, begin_sum, open_session, requests, server_step
from fedhk.privacy.secure_site import SecureSite, site_step
from fedhk.privacy.secure_terms import OutOfRangeError, Parcel, ThresholdError, default_threshold, split_parcel

__all__ = [
    "OutOfRangeError",
    "Parcel",
    "SecureServer",
    "SecureSite",
    "ThresholdError",
    "begin_sum",
    "default_threshold",
    "exchange",
    "open_session",
    "requests",
    "secure_sum",
    "server_step",
    "site_step",
    "split_parcel",
]


def secure_sum(
    vectors: Mapping[str, NDArray[np.int64]],
    threshold: int | None = None,
    dropouts: Mapping[str, Collection[str]] | None = None,
    *,
    bound: int | None = None,
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """One secure sum with all sites in this process: for tests, and to see the protocol at work.

    Parameters
    ----------
    vectors : mapping of str to int64 array of shape (length,)
        Each site's numbers.
    threshold : int, optional
        How many sites must answer each time; more than two thirds by default.
    dropouts : mapping of str to collection of str, optional
        By step, the sites that do not answer from then on.
    bound : int, optional
        Largest absolute value that is allowed; by default as large as the number of sites allows.

    Returns
    -------
    total : int64 array of shape (length,)
        The exact sum over the survivors.
    survivors : tuple of str
        Whose numbers are in it.

    Raises
    ------
    ThresholdError
        If too few sites are left.
    """
    n_sites = len(vectors)
    bound = (2**63 - 1) // max(n_sites, 1) if bound is None else bound
    server = open_session(vectors, default_threshold(n_sites) if threshold is None else threshold, bound=bound)
    sites = {name: SecureSite(name) for name in vectors}
    gone: set[str] = set()
    for step in ("keys", "shares", "input", "unmask"):
        if step == "input":
            server = begin_sum(server, next(iter(vectors.values())).size)
        gone |= set((dropouts or {}).get(step, ()))
        server, sites, _ = exchange(server, sites, vectors, silent=gone)
    assert server.total is not None  # noqa: S101 - the last step made it
    return server.total, server.survivors


def exchange(
    server: SecureServer,
    sites: Mapping[str, SecureSite],
    vectors: Mapping[str, NDArray[np.int64]],
    *,
    silent: Collection[str] = (),
) -> tuple[SecureServer, dict[str, SecureSite], dict[str, str]]:
    """One step of the server with sites in this process: ask, answer, take the answers.

    Parameters
    ----------
    server : SecureServer
        The server before.
    sites : mapping of str to SecureSite
        The sites before.
    vectors : mapping of str to int64 array
        Each site's numbers.
    silent : collection of str
        Sites that do not answer.

    Returns
    -------
    server : SecureServer
        The server after.
    sites : dict of str to SecureSite
        The sites after.
    refused : dict of str to str
        Why there is no usable answer, by site: what the site said, or what the server found wrong.

    Raises
    ------
    OutOfRangeError
        If a site's numbers, or the sum, are beyond the bound.
    """
    after, replies, refused = dict(sites), {}, {}
    for name, request in requests(server).items():
        if name in silent:
            continue
        try:
            after[name], replies[name] = site_step(
                sites[name], request, vectors[name] if server.step == "input" else None
            )
        except MessageError as error:
            refused[name] = str(error)
    try:
        server, more = server_step(server, replies)
    except ThresholdError as error:
        raise error.with_reasons(refused) from None
    return server, after, refused | more
