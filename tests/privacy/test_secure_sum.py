"""Secure sums: exact, whoever drops out; nothing to be seen but the sum; whatever is forged is refused by name."""

import re
import stat
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from fedhk.errors import DataError, MessageError
from fedhk.federation.codec import pack, unpack
from fedhk.federation.messages import Message, decode, encode
from fedhk.privacy import _primitives
from fedhk.privacy._lazy import primitives
from fedhk.privacy.fixed_point import most_of_site, most_of_word
from fedhk.privacy.identity import fingerprint, load_identity, make_identity, save_identity
from fedhk.privacy.masks import (
    CLOSED_ENVELOPE,
    WEAK_KEY,
    agree_with,
    key_prints,
    lock_keys,
    pair_keys,
    self_mask,
)
from fedhk.privacy.secure_server import (
    OutOfRangeError,
    ThresholdError,
    begin_sum,
    check_reply,
    make_requests,
    open_session,
    recover_secrets,
)
from fedhk.privacy.secure_site import (
    BAD_KEYS,
    BAD_PARTICIPANTS,
    BAD_SURVIVORS,
    LOW_THRESHOLD,
    OTHER_LENGTH,
    OTHER_SESSION,
    OUT_OF_ORDER,
    SAME_KEY,
    SAME_SESSION,
    SMALL_SHARE,
    SPENT_SUM,
    UNKNOWN_KEY,
    UNKNOWN_STEP,
    UNSIGNED,
    SecureSite,
    SiteSession,
)
from fedhk.privacy.secure_sum import (
    MaskReply,
    MaskRequest,
    MaskTerms,
    UnmaskRequest,
    default_threshold,
)
from secure_sums import (
    ask,
    exchange,
    names_of,
    pair_mask,
    plain_sum,
    replies_of,
    server_step,
    signed_sites,
    start,
    vectors_of,
)

STEPS = ("keys", "shares", "input", "confirm", "unmask")
RARE = 1e-6  # many comparisons; numbers that are not covered give less than 1e-100


def secure_sum(vectors, threshold=None, dropouts=None, *, signed=False):
    """One sum over sites, of which some do not answer from a step on: the sum, and whose numbers are in it."""
    server = open_session(vectors, threshold or default_threshold(len(vectors)))
    sites = {name: SecureSite(name, simulated=True) for name in vectors}
    sites, gone = signed_sites(len(vectors), simulated=True) if signed else sites, set()
    for step in STEPS if signed else ("keys", "shares", "input", "unmask"):
        if step == "input":
            server = begin_sum(server, next(iter(vectors.values())).size)
        assert server.step == step
        gone |= set((dropouts or {}).get(step, ()))
        server, sites, _ = exchange(server, sites, vectors, silent=gone)
    return server.total, server.survivors


def flipped(array, row=...):
    changed = array.copy()
    changed[row] ^= 1
    return changed


@pytest.fixture
def fixed_entropy(monkeypatch):
    """Secrets that are the same in every run, so that a statistical test does not fail once in a while."""
    monkeypatch.setattr(_primitives, "entropy", np.random.default_rng(7).bytes)


# ---------------------------------------------------------------------------------------------------------------- exact


@st.composite
def federations(draw):
    n = draw(st.integers(3, 20))
    threshold = draw(st.integers(n // 2 + 1, n))
    gone = draw(st.permutations(names_of(n)))[: draw(st.integers(0, n - threshold))]
    dropouts = {step: set() for step in STEPS}
    for name in gone:
        dropouts[draw(st.sampled_from(STEPS))].add(name)
    length = draw(st.one_of(st.integers(1, 50), st.integers(1, 5000)))
    return vectors_of(n, length, draw(st.integers(0, 99))), threshold, dropouts


@settings(max_examples=40)
@given(federations(), st.booleans())
def test_secure_sum_equals_plain_sum_whoever_drops_out(federation, signed):
    vectors, threshold, dropouts = federation
    if not signed:
        dropouts["unmask"] |= dropouts["confirm"]
    total, survivors = secure_sum(vectors, threshold, dropouts, signed=signed)
    early = set().union(*(dropouts[step] for step in ("keys", "shares", "input")))
    assert set(survivors) == vectors.keys() - early  # a site that is gone after its numbers came is in the sum
    assert total.dtype == np.int64
    np.testing.assert_array_equal(total, plain_sum(vectors, survivors))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("n", [10, 20])
def test_a_third_less_one_may_drop_out_at_any_step_with_the_default_threshold(n, step):
    vectors = vectors_of(n, 17)
    total, survivors = secure_sum(vectors, dropouts={step: names_of(n)[: 3 * n // 10]}, signed=True)
    np.testing.assert_array_equal(total, plain_sum(vectors, survivors))
    assert len(survivors) == (n if step in ("confirm", "unmask") else n - 3 * n // 10)


@pytest.mark.parametrize("step", STEPS)
def test_below_the_threshold_the_sum_is_given_up_with_both_numbers(step):
    vectors = vectors_of(10, 4)
    with pytest.raises(ThresholdError, match=f"step '{step}'.* is given up: 6 sites answered, 7 are needed"):
        secure_sum(vectors, 7, {step: names_of(10)[:4]}, signed=True)


def test_default_threshold_leaves_room_for_three_in_ten():
    for n in range(3, 200):
        assert n - 3 * n // 10 >= default_threshold(n) > 2 * n / 3


def test_sites_may_miss_sums_of_a_session_and_come_back():
    vectors = vectors_of(6, 8)
    names = names_of(6)
    server, sites = start(vectors, 4, sums=4)
    for number, away in enumerate(({names[0]}, {names[1], names[2]}, set(), {names[0], names[5]})):
        server = server if number == 0 else begin_sum(server, 8)
        numbers = {name: vector + number for name, vector in vectors.items()}
        for _ in ("input", "unmask"):
            server, sites, refused = exchange(server, sites, numbers, silent=away)
            assert not refused
        assert set(server.survivors) == set(names) - away
        np.testing.assert_array_equal(server.total, plain_sum(numbers, server.survivors))
    with pytest.raises(ValueError, match="all 4 sums of the session are used"):
        begin_sum(server, 8)


def test_a_sum_that_is_given_up_does_not_end_the_session():
    vectors = vectors_of(5, 3)
    server, sites = start(vectors, 4, sums=2)
    after, replies = replies_of(server, sites, vectors, silent=names_of(5)[:2])
    with pytest.raises(ThresholdError, match="sum 0 is given up: 3 sites answered, 4 are needed"):
        server_step(server, replies)
    server, sites = begin_sum(server, 3), after
    for _ in ("input", "unmask"):
        server, sites, _ = exchange(server, sites, vectors)
    np.testing.assert_array_equal(server.total, plain_sum(vectors, vectors))


def test_lengths_may_differ_from_sum_to_sum():
    server, sites = start(vectors_of(3, 5), 2, sums=2)
    for length in (5, 9):
        vectors = vectors_of(3, length)
        server = server if length == 5 else begin_sum(server, length)
        for _ in ("input", "unmask"):
            server, sites, _ = exchange(server, sites, vectors)
        np.testing.assert_array_equal(server.total, plain_sum(vectors, vectors))


def sent(value, kind):
    """What arrives of a request, a reply or a state of a site."""
    values, arrays = pack(value, kind)
    message = decode(encode(Message("secure", "site", 0, arrays, values)))
    return unpack(message.values, message.arrays, kind)


def test_requests_replies_and_what_sites_keep_can_travel_as_messages():
    vectors = vectors_of(4, 6)
    server = open_session(vectors, 3, sums=2)
    sites = signed_sites(4)

    for step in STEPS:
        server = begin_sum(server, 6) if step == "input" else server
        assert server.step == step
        replies = {}
        for name, request in make_requests(server).items():
            if step != "unmask" or name != "site 01":
                vector = vectors[name] if step == "input" else None
                after, reply = ask(sites[name], sent(request, MaskRequest), vector)
                sites[name] = replace(after, session=sent(after.session, SiteSession))
                replies[name] = sent(reply, MaskReply)
        server, refused = server_step(server, replies)
        assert not refused
    np.testing.assert_array_equal(server.total, plain_sum(vectors, vectors))


# ------------------------------------------------------------------------------------------------------------- in range


def test_sums_up_to_the_bound_that_follows_from_the_number_of_sites_are_exact():
    bound = most_of_site(7)
    vectors = {name: np.array([bound, -bound]) for name in names_of(7)}
    total, _ = secure_sum(vectors)
    assert total.tolist() == [7 * bound, -7 * bound]
    assert 7 * bound < 2**61 + 7


@pytest.mark.parametrize("number", [2**61 // 3 + 1, -(2**61) // 3 - 1, -(2**63), 2**63 - 1])
def test_a_number_beyond_the_bound_is_cut_and_logged_and_never_refused(number, caplog):
    vectors = vectors_of(3, 2, largest=100)
    vectors["site 01"][1] = number
    total, _ = secure_sum(vectors)
    vectors["site 01"][1] = np.sign(number) * (2**61 // 3)
    np.testing.assert_array_equal(total, plain_sum(vectors, vectors))
    assert "site 'site 01': 1 of 2 numbers of a masked sum are cut" in caplog.text


def test_a_sum_out_of_range_is_refused_by_the_server():
    vectors = vectors_of(4, 3, largest=100)
    server, sites = start(vectors, 3)
    sites, replies = replies_of(server, sites, vectors)
    replies["site 02"] = replace(replies["site 02"], masked=replies["site 02"].masked + np.uint64(2**62))
    server, _ = server_step(server, replies)
    with pytest.raises(OutOfRangeError, match=f"beyond {2**61} in size"):
        exchange(server, sites, vectors)


@pytest.mark.parametrize("vector", [np.zeros(3), np.zeros(3, np.int32), np.zeros(4, np.int64)])
def test_anything_but_int64_of_the_announced_length_is_refused(vector):
    server, sites = start(vectors_of(3, 3), 2)
    with pytest.raises(MessageError, match=OTHER_LENGTH):
        ask(sites["site 00"], make_requests(server)["site 00"], vector)


# --------------------------------------------------------------------------------------------------------------- hidden


def byte_counts(arrays):
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    return np.bincount(np.frombuffer(content, np.uint8), minlength=256)


def looks_uniform(arrays):
    return chisquare(byte_counts(arrays)).pvalue > RARE


def look_alike(first, second):
    return chi2_contingency(np.stack([byte_counts(first), byte_counts(second)])).pvalue > RARE


WORLDS = (
    {"site 00": [0, 5], "site 01": [1, 5], "site 02": [2, 5], "site 03": [97, -15]},
    {"site 00": [100, 0], "site 01": [0, 0], "site 02": [0, 0], "site 03": [0, 0]},
)


def watched(world, sessions, *, late=()):
    """What a server has seen and worked out in each session: the traffic, and numbers without all masks it can make.

    Sites in `late` send numbers, but are declared to have dropped out.
    """
    views = []
    vectors = {name: np.tile(np.array(numbers, np.int64), 4) for name, numbers in WORLDS[world].items()}
    for session in range(sessions):
        server, sites = start(vectors, 3, session=f"{world} {session}")
        context = server.keys.context(server.terms, server.participants)
        sites, inputs = replies_of(server, sites, vectors)
        taken, _ = server_step(server, {name: reply for name, reply in inputs.items() if name not in late})
        sites, answers = replies_of(taken, sites, vectors)
        final, _ = server_step(taken, answers)
        secret_of = recover_secrets(taken, answers)
        bare = {}
        for name, reply in inputs.items():
            numbers = reply.masked.copy()
            if name not in late:
                numbers -= self_mask(secret_of[name], name, 8, context=context, number=0)
            for other in set(vectors) - {name}:
                if name in late or other in late:
                    known, public = (name, other) if name in late else (other, name)
                    keys = lock_keys(
                        secret_of[known], server.locks[known][:, 0, :16], known, context=server.seed, number=0
                    )
                    mask = pair_mask(
                        keys[server.keys.index[public]].tobytes(), known, public, 8, context=context, number=0
                    )
                    numbers = numbers - mask if known == name else numbers + mask
            bare[name] = numbers
        views.append({"server": final, "inputs": inputs, "answers": answers, "bare": bare, "vectors": vectors})
    return views


@pytest.fixture(scope="module")
def both_worlds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_primitives, "entropy", np.random.default_rng(11).bytes)
        return [watched(world, 60) for world in (0, 1)]


def test_masked_numbers_are_uniform_whatever_is_under_the_mask(both_worlds):
    for views in both_worlds:
        for name in WORLDS[0]:
            assert looks_uniform([view["inputs"][name].masked for view in views])
    bare = [view["vectors"][name] for view in both_worlds[0] for name in WORLDS[0]]
    assert chisquare(byte_counts(bare)).pvalue < 1e-100


def traffic(view, row, name):
    """All that a site sends but names and numbers of steps."""
    server = view["server"]
    return {
        "cipher keys": server.roster.cipher_keys[row],
        "locks": np.delete(server.locks[name], row, axis=0),
        "envelopes": np.delete(server.envelopes[name], row, axis=0),
        "masked": view["inputs"][name].masked,
        "shares": view["answers"][name].shares,
    }


def test_all_traffic_looks_alike_for_inputs_with_the_same_sum(both_worlds):
    """The worlds have the same sum, and one of them is the other with numbers moved between sites."""
    for row, name in enumerate(WORLDS[0]):
        seen = [[traffic(view, row, name) for view in views] for views in both_worlds]
        for field in seen[0][0]:
            assert look_alike(*([fields[field] for fields in views] for views in seen)), (name, field)
    first, second = ({tuple(view["server"].total.tolist()) for view in views} for views in both_worlds)
    assert first == second == {(100, 0) * 4}


def test_nothing_is_seen_of_a_site_beyond_what_sum_and_known_numbers_give(both_worlds):
    """The server takes away all masks it can, and the numbers of all sites but one, which somebody told it.

    Any proper subset of the sites is still covered; all of them together are the sum, which gives the last one away.
    """
    for target in WORLDS[0]:
        others = sorted(WORLDS[0].keys() - {target})
        for size in range(len(others)):
            for subset in combinations(others, size):
                seen = [
                    [
                        view["bare"][target]
                        + sum((view["bare"][n] - view["vectors"][n].view(np.uint64) for n in subset), np.uint64(0))
                        for view in views
                    ]
                    for views in both_worlds
                ]
                assert all(looks_uniform(arrays) for arrays in seen)
                assert look_alike(*seen)
        for views in both_worlds:
            for view in views:
                rest = view["server"].total - sum(view["vectors"][name] for name in others)
                np.testing.assert_array_equal(rest, view["vectors"][target])


def test_numbers_of_a_site_that_was_declared_dropped_stay_covered_by_its_own_mask(fixed_entropy):
    """The server has its numbers and its mask key, and so all its masks but one."""
    views = watched(0, 60, late={"site 03"})
    assert all("site 03" not in view["server"].survivors for view in views)
    assert looks_uniform([view["bare"]["site 03"] for view in views])
    rest = {tuple(sum(view["bare"][name] for name in sorted(WORLDS[0])[:3]).view(np.int64)) for view in views}
    assert rest == {(3, 15) * 4}  # the other three: what the sum says, so masks with the late site were taken away


def test_no_mask_is_ever_made_twice(monkeypatch, fixed_entropy):
    keys, blocks = [], set()
    keystream = _primitives.keystream

    def spy(key, count):
        stream = keystream(key, count)
        if key not in keys:
            assert blocks.isdisjoint(stream[i : i + 64] for i in range(0, count, 64))
            blocks.update(stream[i : i + 64] for i in range(0, count, 64))
        keys.append(key)
        return stream

    monkeypatch.setattr(_primitives, "keystream", spy)
    vectors = vectors_of(4, 16)
    sites = {name: SecureSite(name, simulated=True) for name in vectors}
    for session in range(10):
        server, sites = start(vectors, 3, sums=5, session=f"number {session}", sites=sites)
        for number in range(5):
            server = server if number == 0 else begin_sum(server, 16)
            sites, replies = replies_of(server, sites, vectors)
            server, _ = server_step(server, replies)
    assert len(set(keys)) == 10 * 5 * (6 + 4)  # a mask for each pair and for each site alone
    assert len(keys) == 10 * 5 * (2 * 6 + 4)  # that of a pair is made at both ends
    assert len(blocks) == 2 * len(set(keys))


def test_masks_differ_with_secret_sum_sites_and_context():
    a, b = (bytes([i]) * 32 for i in (1, 2))
    made = [
        pair_mask(a, "a", "b", 4, context="x", number=0),
        pair_mask(b, "a", "b", 4, context="x", number=0),
        pair_mask(a, "a", "c", 4, context="x", number=0),
        pair_mask(a, "a", "b", 4, context="y", number=0),
        pair_mask(a, "a", "b", 4, context="x", number=1),
        self_mask(a, "a", 4, context="x", number=0),
        self_mask(a, "b", 4, context="x", number=0),
        self_mask(a, "a", 4, context="x", number=1),
        self_mask(b, "a", 4, context="x", number=0),
    ]
    numbers = [number for mask in made for number in (mask.tolist() + (-mask).tolist())]
    assert len(set(numbers)) == len(numbers)
    np.testing.assert_array_equal(made[0], -pair_mask(a, "b", "a", 4, context="x", number=0))


def test_two_sites_make_the_same_keys_and_a_different_one_for_each_sum():
    privates = {name: bytes([i]) * 32 for i, name in enumerate(("a", "b", "c"), start=1)}
    publics = {name: _primitives.public_key(private) for name, private in privates.items()}
    agreed = {
        (own, other): agree_with(privates[own], {other: publics[other]})[other]
        for own in privates
        for other in privates
        if own != other
    }
    keys = {pair: pair_keys(secret, *pair, 5, context="x") for pair, secret in agreed.items()}
    for (own, other), made in keys.items():
        np.testing.assert_array_equal(made, keys[other, own])
    assert len({key.tobytes() for pair in keys.values() for key in pair}) == 3 * 5


def test_a_lock_opens_with_its_own_secret_for_its_own_sum_only():
    keys = np.arange(48, dtype=np.uint8).reshape(3, 16)
    locked = lock_keys(bytes(32), keys, "a", context="x", number=1)
    assert not np.any(np.all(locked == keys, axis=1))
    np.testing.assert_array_equal(lock_keys(bytes(32), locked, "a", context="x", number=1), keys)
    for secret, site, number in ((bytes([1]) * 32, "a", 1), (bytes(32), "b", 1), (bytes(32), "a", 2)):
        assert np.any(lock_keys(secret, locked, site, context="x", number=number) != keys)


def test_a_key_that_is_revealed_for_one_sum_opens_no_other():
    """A site that answered sum 0, whose seed was revealed for that, drops out of sum 1, which reveals a mask key."""
    vectors = vectors_of(4, 3)
    server, sites = start(vectors, 3, sums=3)
    for _ in ("input", "unmask"):
        server, sites, _ = exchange(server, sites, vectors)
    server = begin_sum(server, 3)
    server, sites, _ = exchange(server, sites, vectors, silent={"site 02"})
    _, answers = replies_of(server, sites, vectors)
    secret_of = recover_secrets(server, answers)
    row = names_of(4).index("site 02")
    keys = sites["site 00"].session.pair_keys  # of sum 2, which is to come
    opened = [
        lock_keys(secret_of["site 02"], server.locks["site 02"][:, i, :16], "site 02", context=server.seed, number=i)
        for i in range(3)
    ]
    prints = [server.locks["site 00"][row, i, 16:] for i in range(3)]
    assert [np.array_equal(key_prints(keys[0]), mark) for keys, mark in zip(opened, prints, strict=True)] == [
        False,
        True,
        False,
    ]
    assert len(keys) == 1
    assert not np.array_equal(opened[2][0], keys[0, row])


# ----------------------------------------------------------------------------------------------------- either, not both


@settings(max_examples=40)
@given(st.lists(st.sets(st.sampled_from(names_of(5))), min_size=1, max_size=8))
def test_a_site_never_gives_shares_of_both_secrets_of_a_site(lists):
    """Whatever lists of survivors the server tells it, one after the other."""
    server, sites, held = opened_for_unmasking()
    site = sites["site 00"]
    given_out = set()
    for survivors in lists:
        request = replace(make_requests(server)["site 00"], survivors=server.keys.mark(survivors))
        try:
            site, reply = ask(site, request)
        except MessageError:
            continue
        assert len(survivors) >= 3
        for owner, share in enumerate(reply.shares):
            given_out |= {(owner, kind) for kind in (0, 1) if np.array_equal(share, held[owner, kind])}
    assert len({owner for owner, _ in given_out}) == len(given_out)


OPENED = []


def opened_for_unmasking():
    if not OPENED:
        vectors = vectors_of(5, 2)
        server, sites = start(vectors, 3)
        sites, replies = replies_of(server, sites, vectors)
        server, _ = server_step(server, replies)
        OPENED.append((server, sites, sites["site 00"].session.shares[0].copy()))
    return OPENED[0]


def test_a_site_opens_a_sum_once_and_repeats_only_the_same_answer():
    server, sites, _ = opened_for_unmasking()
    request = make_requests(server)["site 00"]
    site, reply = ask(sites["site 00"], request)
    assert not site.session.shares.size  # what is forgotten cannot be revealed
    again, same = ask(site, request)
    np.testing.assert_array_equal(same.shares, reply.shares)
    assert again is site
    with pytest.raises(MessageError, match=OUT_OF_ORDER):
        ask(site, replace(request, survivors=server.keys.mark(names_of(5)[:4])))


@pytest.mark.parametrize(
    "survivors",
    [
        [1, 1, 0, 0, 0],  # 3 are needed
        [0, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 1],  # a stranger
        [1, 1, 1, 1, 1, 0, 0, 0, 0],
        [],
    ],
)
def test_a_site_refuses_to_open_for_a_wrong_list(survivors):
    server, sites, _ = opened_for_unmasking()
    request = replace(make_requests(server)["site 00"], survivors=np.packbits(np.array(survivors, int)))
    with pytest.raises(MessageError, match=BAD_SURVIVORS):
        ask(sites["site 00"], request)


def test_a_site_masks_one_set_of_numbers_for_a_sum():
    """The difference of two masked vectors under one mask is the difference of what is under it."""
    vectors = vectors_of(3, 4)
    server, sites = start(vectors, 2, sums=2)
    request = make_requests(server)["site 00"]
    site, reply = ask(sites["site 00"], request, vectors["site 00"])
    # whatever the numbers are by now, the same question has the same answer
    np.testing.assert_array_equal(ask(site, request, vectors["site 00"] + 1)[1].masked, reply.masked)
    with pytest.raises(MessageError, match=SPENT_SUM):
        ask(site, replace(request, length=5), vectors_of(3, 5)["site 00"])
    assert len(site.session.secrets) == 1
    np.testing.assert_array_equal(site.session.secrets[-1], sites["site 00"].session.secrets[1])


def test_shares_are_dealt_once():
    vectors = vectors_of(4, 1)
    server = open_session(vectors, 3)
    server, sites, _ = exchange(server, {name: SecureSite(name, simulated=True) for name in vectors}, vectors)
    request = make_requests(server)["site 00"]
    site, reply = ask(sites["site 00"], request)
    np.testing.assert_array_equal(ask(site, request)[1].envelopes, reply.envelopes)
    shorter = replace(request, roster=changed_roster(request.roster, **dict.fromkeys(ROSTER, lambda value: value[:3])))
    with pytest.raises(MessageError, match=OUT_OF_ORDER):
        ask(site, shorter)


# --------------------------------------------------------------------------------------------------------------- forged


ROSTER = ("names", "cipher_keys", "signatures")


def changed_roster(roster, **changes):
    return replace(roster, **{name: change(getattr(roster, name)) for name, change in changes.items()})


def roster_request(n=4, signed=True, **changes):
    """The list of keys as site 00 gets it, and site 00."""
    server = open_session(names_of(n), default_threshold(n))
    sites = signed_sites(n) if signed else {name: SecureSite(name, simulated=True) for name in names_of(n)}
    server, sites, _ = exchange(server, sites, {})
    request = make_requests(server)["site 00"]
    return sites["site 00"], replace(request, roster=changed_roster(request.roster, **changes))


def test_a_true_list_of_keys_is_taken():
    for signed in (True, False):
        site, request = roster_request(signed=signed)
        assert ask(site, request)[1].envelopes.shape == (4, 28 + 96)


@pytest.mark.parametrize("field", ["cipher_keys", "signatures"])
def test_a_changed_key_or_signature_is_refused_naming_the_site(field):
    site, request = roster_request(**{field: lambda array: flipped(array, 2)})
    with pytest.raises(MessageError, match=f"site 'site 02': {UNSIGNED}"):
        ask(site, request)


def test_a_site_whose_long_term_key_is_not_known_is_refused_by_name():
    site, request = roster_request()
    known = {name: key for name, key in site.known.items() if name != "site 03"}
    with pytest.raises(MessageError, match=f"site 'site 03': {UNKNOWN_KEY}"):
        ask(replace(site, known=known), request)


def test_a_key_that_stands_twice_is_refused_naming_the_second_site():
    def copied(array):
        array = array.copy()
        array[3] = array[1]
        return array

    site, request = roster_request(signed=False, cipher_keys=copied)
    with pytest.raises(MessageError, match=f"site 'site 03': {SAME_KEY}"):
        ask(site, request)


def test_other_keys_for_oneself_are_refused():
    site, request = roster_request(signed=False, cipher_keys=lambda array: flipped(array, 0))
    with pytest.raises(MessageError, match=BAD_KEYS):
        ask(site, request)


def test_a_list_shorter_than_the_threshold_is_refused():
    site, request = roster_request(**dict.fromkeys(ROSTER, lambda value: value[:2]))
    with pytest.raises(MessageError, match=SMALL_SHARE):
        ask(site, request)
    site, request = roster_request(**dict.fromkeys(ROSTER, lambda value: value[1:]))
    with pytest.raises(MessageError, match=BAD_KEYS):
        ask(site, request)


def test_a_threshold_of_half_the_sites_is_refused_on_both_sides():
    with pytest.raises(ValueError, match="threshold=2 must be more than half of the 4 sites"):
        open_session(names_of(4), 2)
    server = open_session(names_of(3), 2)
    server = replace(server, sites=tuple(names_of(4)))  # a server that does not look
    server, sites, _ = exchange(server, {name: SecureSite(name, simulated=True) for name in names_of(4)}, {})
    with pytest.raises(MessageError, match=SMALL_SHARE):
        ask(sites["site 00"], make_requests(server)["site 00"])


def test_a_site_refuses_a_smaller_threshold_than_its_operator_asks_for():
    server = open_session(names_of(3), 2)
    with pytest.raises(MessageError, match=re.escape(LOW_THRESHOLD)):
        ask(SecureSite("site 00", least=3), make_requests(server)["site 00"])


@pytest.mark.parametrize("change", [{"threshold": 1}, {"threshold": "3"}, {"sums": 0}, {"session": ""}, {"sums": 2.0}])
def test_terms_that_make_no_sense_are_refused(change):
    terms = open_session(names_of(3), 2).terms
    with pytest.raises(ValueError, match=f"^{next(iter(change))} must be"):
        replace(terms, **change)
    values, arrays = pack(terms, MaskTerms, named=True)
    values["tree"] |= change  # a server that does not look
    with pytest.raises(MessageError, match="it is not what was asked for"):
        unpack(values, arrays, MaskTerms)


def test_a_changed_envelope_is_refused_naming_its_sender():
    vectors = vectors_of(4, 2)
    server, sites = start(vectors, 3)
    request = make_requests(server)["site 00"]
    request = replace(request, envelopes=flipped(request.envelopes, (2, 40)))
    with pytest.raises(MessageError, match=f"site 'site 02': {CLOSED_ENVELOPE}"):
        ask(sites["site 00"], request, vectors["site 00"])


def test_envelopes_for_another_site_or_another_session_are_refused_naming_the_sender():
    vectors = vectors_of(4, 2)
    server, sites = start(vectors, 3)
    other, _ = start(vectors, 3)
    request = make_requests(server)["site 00"]
    swapped = request.envelopes.copy()
    swapped[1] = make_requests(server)["site 02"].envelopes[1]
    for envelopes in (swapped, make_requests(other)["site 00"].envelopes):
        with pytest.raises(MessageError, match=f"site 'site 01': {CLOSED_ENVELOPE}"):
            ask(sites["site 00"], replace(request, envelopes=envelopes), vectors["site 00"])


def test_sites_that_were_shown_different_lists_of_keys_cannot_open_each_others_envelopes():
    vectors = vectors_of(5, 2)
    server = open_session(vectors, 3)
    server, sites, _ = exchange(server, {name: SecureSite(name, simulated=True) for name in vectors}, vectors)
    asked = make_requests(server)
    shorter = changed_roster(asked["site 01"].roster, **dict.fromkeys(ROSTER, lambda value: value[:4]))
    lie = replace(asked["site 01"], roster=shorter)
    sites, replies = dict(sites), {}
    for name in names_of(4):
        sites[name], reply = ask(sites[name], lie if name == "site 01" else asked[name])
        envelopes, locks = (np.resize(array, (5, *array.shape[1:])) for array in (reply.envelopes, reply.locks))
        replies[name] = replace(reply, envelopes=envelopes, locks=locks)
    server, _ = server_step(server, replies)
    server = begin_sum(server, 2)
    with pytest.raises(MessageError, match=f"site 'site 01': {CLOSED_ENVELOPE}"):
        ask(sites["site 00"], make_requests(server)["site 00"], vectors["site 00"])


def test_a_sum_does_not_come_out_where_sites_were_shown_different_participants():
    vectors = vectors_of(5, 40)  # one wrong number in five may be within the bound
    server, sites = start(vectors, 3)
    asked = make_requests(server)
    lie = asked["site 01"]
    lie = replace(lie, participants=server.keys.mark(names_of(4)), envelopes=lie.envelopes[:4])
    replies = {}
    for name in names_of(4):
        sites[name], replies[name] = ask(sites[name], lie if name == "site 01" else asked[name], vectors[name])
    server, _ = server_step(server, replies)
    with pytest.raises(OutOfRangeError, match="did not all see the same participants"):
        exchange(server, sites, vectors, silent={"site 01"})


@pytest.mark.parametrize(
    "participants",
    [
        [1, 1, 0, 0],  # 3 are needed
        [0, 1, 1, 1],
        [1, 1, 1, 0, 1],  # a stranger
    ],
)
def test_a_site_refuses_wrong_participants(participants):
    vectors = vectors_of(4, 2)
    server, sites = start(vectors, 3)
    request = make_requests(server)["site 00"]
    marks = np.packbits(np.array(participants, int))
    request = replace(request, participants=marks, envelopes=request.envelopes[: sum(participants)])
    with pytest.raises(MessageError, match=BAD_PARTICIPANTS):
        ask(sites["site 00"], request, vectors["site 00"])


def test_participants_are_told_once_and_never_change():
    vectors = vectors_of(4, 2)
    server, sites = start(vectors, 3, sums=2)
    told = make_requests(server)["site 00"]
    server, sites, _ = exchange(server, sites, vectors)
    request = make_requests(begin_sum(server, 2))["site 00"]
    assert request.participants.size == 0
    assert request.envelopes.size == 0
    other = {"participants": server.keys.mark(names_of(3)), "envelopes": told.envelopes[:3]}
    with pytest.raises(MessageError, match=BAD_PARTICIPANTS):
        ask(sites["site 00"], replace(request, **other), vectors["site 00"])


def test_requests_of_another_session_are_refused():
    vectors = vectors_of(3, 2)
    first, _ = start(vectors, 2, session="first")
    _, sites = start(vectors, 2, session="second")
    with pytest.raises(MessageError, match=OTHER_SESSION):
        ask(sites["site 00"], make_requests(first)["site 00"], vectors["site 00"])


def test_signed_keys_of_another_session_are_refused_naming_the_site():
    vectors = vectors_of(3, 2)
    sites = signed_sites(3)
    old, _, _ = exchange(open_session(vectors, 3), sites, vectors)
    new, sites, _ = exchange(open_session(vectors, 3), sites, vectors)
    request = make_requests(new)["site 00"]
    before, changed = make_requests(old)["site 00"].roster, {}
    for field in ROSTER[1:]:
        changed[field] = getattr(request.roster, field).copy()
        changed[field][1] = getattr(before, field)[1]
    request = replace(request, roster=replace(request.roster, **changed))
    with pytest.raises(MessageError, match=f"site 'site 01': {UNSIGNED}"):
        ask(sites["site 00"], request)


def test_answers_of_another_session_or_sum_are_refused_by_the_server():
    vectors = vectors_of(4, 2)
    server, sites = start(vectors, 3, sums=2)
    other, others = start(vectors, 3, sums=2)
    after, replies = replies_of(server, sites, vectors)
    replies["site 01"] = replies_of(other, others, vectors)[1]["site 01"]
    _, refused = server_step(server, replies)
    assert refused.keys() == {"site 01"}
    assert "session is" in refused["site 01"]
    _, later = replies_of(begin_sum(server, 2), after, vectors)
    later["site 02"] = replies["site 02"]
    later["stranger"] = replies["site 02"]
    _, refused = server_step(begin_sum(server, 2), later)
    assert refused == {"site 02": "sum is '0', expected '1'", "stranger": "it was not asked for the step 'input'"}


def test_a_session_is_not_started_twice():
    server = open_session(names_of(3), 2, session="once")
    site, _ = ask(SecureSite("site 00", simulated=True), make_requests(server)["site 00"])
    with pytest.raises(MessageError, match=SAME_SESSION):
        ask(site, replace(make_requests(server)["site 00"], terms=replace(server.terms, sums=2)))


@pytest.mark.parametrize(
    ("step", "field", "bad"),
    [
        ("keys", "cipher_key", np.zeros((2, 32), np.uint8)),
        ("keys", "signature", np.zeros(0, np.uint8)),
        ("shares", "envelopes", np.zeros((4, 5), np.uint8)),
        ("shares", "locks", np.zeros((4, 2, 32), np.uint8)),
        ("input", "masked", np.zeros(2, np.int64)),
        ("input", "masked", np.zeros(3, np.uint64)),
        ("confirm", "signature", np.zeros(63, np.uint8)),
        ("unmask", "shares", np.zeros((4, 48))),
    ],
)
def test_malformed_answers_are_refused_and_the_others_go_on(step, field, bad):
    vectors = vectors_of(4, 2)
    server, sites = open_session(vectors, 3), signed_sites(4)
    for now in STEPS:
        server = begin_sum(server, 2) if now == "input" else server
        sites, replies = replies_of(server, sites, vectors)
        if now == step:
            replies["site 01"] = replace(replies["site 01"], **{field: bad})
        server, refused = server_step(server, replies)
        assert refused.keys() == ({"site 01"} if now == step else set())
        assert all(field in reason for reason in refused.values())
    np.testing.assert_array_equal(server.total, plain_sum(vectors, server.survivors))


def test_one_site_that_passes_on_wrong_shares_is_found_and_left_out():
    vectors = vectors_of(5, 3)
    server, sites = start(vectors, 3)
    server, sites, _ = exchange(server, sites, vectors, silent={"site 04"})
    _, replies = replies_of(server, sites, vectors)
    for row in range(5):
        forged = replies | {"site 02": replace(replies["site 02"], shares=flipped(replies["site 02"].shares, row))}
        opened, refused = server_step(server, forged)
        assert refused == {"site 02": "the shares that it gave do not fit those of the others"}
        np.testing.assert_array_equal(opened.total, plain_sum(vectors, names_of(4)))
    del forged["site 03"]
    with pytest.raises(MessageError, match=r"site 'site 04': its mask cannot be taken away.*'site 02'"):
        server_step(server, forged)


def test_a_site_that_dealt_shares_of_another_key_is_named():
    vectors = vectors_of(5, 3)
    server = open_session(vectors, 3)
    server, sites, _ = exchange(server, {name: SecureSite(name, simulated=True) for name in vectors}, vectors)
    sites, replies = replies_of(server, sites, vectors)
    replies["site 01"] = replace(replies["site 01"], locks=flipped(replies["site 01"].locks, (slice(None), 0)))
    server, _ = server_step(server, replies)
    server, sites, _ = exchange(begin_sum(server, 3), sites, vectors, silent={"site 01"})
    with pytest.raises(MessageError, match="site 'site 01': the shares that it gave the other sites are not of its"):
        exchange(server, sites, vectors)


def test_a_public_key_that_makes_every_agreement_the_same_is_refused_naming_its_site():
    def weak(array):
        array = array.copy()
        array[2] = 0
        return array

    site, request = roster_request(signed=False, cipher_keys=weak)
    with pytest.raises(MessageError, match=f"site 'site 02': {WEAK_KEY}"):
        ask(site, request)


def test_steps_out_of_order_and_unknown_steps_are_refused():
    vectors = vectors_of(3, 2)
    server, sites = start(vectors, 2)
    asked = make_requests(server)["site 00"]
    with pytest.raises(MessageError, match=OUT_OF_ORDER):
        ask(SecureSite("site 00", simulated=True), asked, vectors["site 00"])
    with pytest.raises(MessageError, match=OUT_OF_ORDER):
        ask(sites["site 00"], UnmaskRequest(asked.session, asked.number, server.keys.mark(names_of(3))))
    with pytest.raises(MessageError, match=UNKNOWN_STEP):
        ask(sites["site 00"], MaskRequest())
    fresh, _ = ask(
        SecureSite("site 00", simulated=True), make_requests(open_session(names_of(3), 2, session="s"))["site 00"]
    )
    with pytest.raises(MessageError, match=OUT_OF_ORDER):
        ask(fresh, replace(asked, session="s"), vectors["site 00"])
    with pytest.raises(ValueError, match="keys and shares come before a sum"):
        begin_sum(open_session(names_of(3), 2), 2)


# -------------------------------------------------------------------------------------------------- secrets, identities


def test_no_secret_shows_when_a_state_is_printed():
    vectors = vectors_of(3, 2)
    sites = signed_sites(3)
    server, sites = start(vectors, 3, sums=3, sites=sites)
    sites, _ = replies_of(server, sites, vectors)
    site = sites["site 00"]
    session = site.session
    shown = repr(site) + str(site) + repr(session) + repr(server)
    assert session.cipher_private == b""
    hidden = [site.identity, *(secret.tobytes() for secret in session.secrets.reshape(-1, 32))]
    hidden += [key.tobytes() for key in session.pair_keys.reshape(-1, 16)]
    hidden += [share.tobytes() for share in session.shares.reshape(-1, 48)]
    assert len(hidden) > 10
    for secret in hidden:
        for form in (repr(secret), secret.hex(), repr(secret)[2:12], ", ".join(map(str, secret[:4]))):
            assert form not in shown


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(primitives, "_module", None)
    monkeypatch.delitem(sys.modules, "fedhk.privacy._primitives")
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ImportError, match=r"pip install 'fedhk\[privacy\]'"):
        make_identity()
    with pytest.raises(ImportError, match=r"pip install 'fedhk\[privacy\]'"):
        secure_sum(vectors_of(3, 2))


def test_identities_are_kept_in_files_that_only_the_owner_reads(tmp_path):
    private, public = make_identity()
    path = tmp_path / "site.pem"
    save_identity(path, private)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert load_identity(path) == (private, public)
    with pytest.raises(DataError, match="there already"):
        save_identity(path, private)
    path.chmod(0o640)
    with pytest.raises(DataError, match="chmod 600"):
        load_identity(path)


@pytest.mark.parametrize("text", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_files_that_hold_no_identity_are_refused(tmp_path, text):
    path = tmp_path / "site.pem"
    path.touch(mode=0o600)
    path.write_bytes(text)
    with pytest.raises(DataError, match="no Ed25519 private key"):
        load_identity(path)


def test_fingerprints_are_short_and_differ():
    publics = [make_identity()[1] for _ in range(20)]
    shown = {fingerprint(public) for public in publics}
    assert len(shown) == 20
    assert all(len(text.split()) == 8 and len(text) == 39 for text in shown)
    with pytest.raises(ValueError, match="32 bytes, got 31"):
        fingerprint(bytes(31))


# ---------------------------------------------------------------------------------------------------------- short words


@pytest.mark.parametrize("word", [1, 2, 4])
@pytest.mark.parametrize("silent", [(), ("site 02", "site 04")])
def test_sums_in_short_words_are_those_of_long_ones_whatever_the_parts(word, silent):
    most = most_of_word(word)
    vectors = vectors_of(7, 9, seed=word)  # far beyond what a word holds
    survivors = [name for name in vectors if name not in silent]
    total = np.random.default_rng(0).integers(-most, most, 9, endpoint=True)
    vectors[survivors[0]] = total - plain_sum(vectors, survivors[1:])
    server, sites = start(vectors, 5, word=word)
    server, sites, _ = exchange(server, sites, vectors, silent=silent)
    server, sites, _ = exchange(server, sites, vectors)
    np.testing.assert_array_equal(server.total, total)
    assert server.total.dtype == np.int64


def test_masked_words_are_as_long_as_they_were_asked_for():
    vectors = vectors_of(4, 6)
    server, sites = start(vectors, 3, word=2)
    _, replies = replies_of(server, sites, vectors)
    assert {reply.masked.dtype.str for reply in replies.values()} == {"<u2"}
    # a reply in other words is refused
    long = replace(replies["site 01"], masked=replies["site 01"].masked.astype(np.uint64))
    with pytest.raises(MessageError, match="'masked' is uint64 of shape \\(6,\\), expected uint16 of shape"):
        check_reply(server, long, "site 01")


@pytest.mark.parametrize("word", [0, 3, 16, -1])
def test_a_site_gives_no_numbers_in_words_of_another_length(word):
    vectors = vectors_of(4, 6)
    server, sites = start(vectors, 3)
    request = replace(make_requests(server)["site 01"], word=word)
    with pytest.raises(MessageError, match="of another length than 1, 2, 4 or 8 bytes"):
        ask(sites["site 01"], request, vectors["site 01"])


def test_a_sum_in_short_words_beyond_its_bound_is_refused_by_the_server():
    vectors = {name: np.array([60]) for name in names_of(3)}
    server, sites = start(vectors, 3, word=1)
    server, sites, _ = exchange(server, sites, vectors)
    with pytest.raises(OutOfRangeError, match="beyond 64 in size"):
        exchange(server, sites, vectors)


def test_masks_for_words_of_different_lengths_have_nothing_in_common():
    """Else a server that asks one site for short words and the others for long ones would see numbers of the first."""
    a = bytes([1]) * 32
    of_pair = {"context": "x", "number": 0}
    long = pair_mask(a, "a", "b", 64, **of_pair)
    for word in (1, 2, 4):
        short = pair_mask(a, "a", "b", 64, word=word, **of_pair)
        assert not np.array_equal(short.tobytes()[:16], long.tobytes()[:16])
        assert not np.array_equal(
            self_mask(a, "a", 64, word=word, **of_pair).tobytes()[:16], self_mask(a, "a", 64, **of_pair).tobytes()[:16]
        )
