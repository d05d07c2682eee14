"""Secure sums for tests: sites and a server that answer each other, step by step."""

from __future__ import annotations

import numpy as np

from fedhk.errors import MessageError
from fedhk.privacy.identity import make_identity
from fedhk.privacy.masks import add_pair_masks
from fedhk.privacy.secure_server import (
    begin_sum,
    check_enough,
    check_reply,
    find_liar,
    make_requests,
    open_session,
    take_replies,
)
from fedhk.privacy.secure_site import SecureSite, answer_request

EXTREME = 2**40


def ask(site, request, vector=None):
    """The site after a request, and its answer; the numbers are asked for where they are needed."""
    return answer_request(site, request, lambda: vector)


def names_of(n):
    return [f"site {i:02d}" for i in range(n)]


def vectors_of(n, length, seed=0, largest=EXTREME):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-largest, largest, length, endpoint=True) for name in names_of(n)}


def pair_mask(key, own, other, length, *, context, number, word=8):
    """The mask that two sites share, with the sign that it has at `own`."""
    mask = np.zeros(length, f"u{word}")
    add_pair_masks(mask, {other: key}, own, context=context, number=number)
    return mask


def plain_sum(vectors, survivors):
    return sum(vectors[name] for name in survivors)


def server_step(server, replies):
    """Check and take answers, as the server of a run does: the server after, and why answers were not used."""
    good, refused = {}, {}
    for site, reply in sorted(replies.items()):
        try:
            check_reply(server, reply, site)
            good[site] = reply
        except MessageError as error:
            refused[site] = error.reason
    check_enough(server, good)
    liars = find_liar(server, good)
    return take_replies(server, {site: good[site] for site in good if site not in liars}), refused | liars


def exchange(server, sites, vectors, *, silent=()):
    """Ask, answer and take the answers: the server and the sites after, and why there is no usable answer, by site."""
    after, replies, refused = dict(sites), {}, {}
    for name, request in make_requests(server).items():
        if name not in silent:
            vector = vectors[name] if server.step == "input" else None
            try:
                after[name], replies[name] = ask(sites[name], request, vector)
            except MessageError as error:
                refused[name] = str(error)
    server, more = server_step(server, replies)
    return server, after, refused | more


def start(vectors, threshold, *, sums=1, sites=None, session=None, silent=(), word=8):
    """A session up to its first sum."""
    server = open_session(vectors, threshold, sums=sums, session=session)
    sites = {name: SecureSite(name, simulated=True) for name in vectors} if sites is None else sites
    for _ in ("keys", "shares"):
        server, sites, refused = exchange(server, sites, vectors, silent=silent)
        assert not refused
    return begin_sum(server, next(iter(vectors.values())).size, word), sites


def replies_of(server, sites, vectors, silent=()):
    """Answers that have not been taken yet."""
    after, replies = dict(sites), {}
    for name, request in make_requests(server).items():
        if name not in silent:
            after[name], replies[name] = ask(sites[name], request, vectors[name] if request.step == "input" else None)
    return after, replies


def signed_sites(n, **options):
    """Sites that know each other's long-term keys."""
    identities = {name: make_identity() for name in names_of(n)}
    known = {name: public for name, (_, public) in identities.items()}
    return {name: SecureSite(name, identity=identities[name][0], known=known, **options) for name in identities}
