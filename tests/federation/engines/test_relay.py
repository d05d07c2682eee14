"""A tree of relays gives what a flat federation gives, and a relay that drops, doubles or changes messages is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk import EFKMVC, FedHKPerson
from fedhk.errors import MessageError, QuorumError
from fedhk.federation.codec import pack
from fedhk.federation.engines.relay import RELAY, Bundle, LocalRelays, LocalSites, Relay, RelayTransport
from fedhk.federation.engines.remote import RemoteSites
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases.base import Sum, SumPhase
from fedhk.federation.protocols.base import RoundReply
from fedhk.federation.sealed.phase import Sealed
from fedhk.federation.several import SUM_OF, Several, list_sites, sum_type
from fedhk.privacy.secure_server import OutOfRangeError
from remote_sites import Wire, write_sites

N_SITES = 9
QUICK = {"random_state": 0, "max_rounds": 4, "tol": 0.0, "view_weights": "uniform", "n_init": 2}


def make_sites(n_sites=N_SITES):
    rng = np.random.default_rng(0)
    centers = [4 * rng.normal(size=(3, width)) for width in (3, 4)]
    labels = rng.integers(0, 3, (n_sites, 12))
    return {f"site {i}": [c[own] + rng.normal(size=(12, c.shape[1])) for c in centers] for i, own in enumerate(labels)}


class Relays(LocalRelays):
    """Relays of which `tamper` may change what one answers, or kill it."""

    def __init__(self, *relays, tamper=None):
        super().__init__(relays)
        self.tamper = tamper or (lambda *sent: sent[-1])

    def send(self, payloads, timeout):
        answers = super().send(payloads, timeout)
        return {node: self.tamper(node, payloads[node], answer) for node, answer in answers.items()}


def parts_of(sites, count):
    names = list(sites)
    return [{name: sites[name] for name in names[i::count]} for i in range(count)]


def tree(sites, depth, leaf=LocalSites, tamper=None):
    """Three relays above the sites or, in a tree of depth 3, above three relays each."""
    if depth == 2:
        relays = [Relay(f"relay {i}", leaf(part)) for i, part in enumerate(parts_of(sites, 3))]
    else:
        relays = [Relay(f"region {i}", tree(part, depth - 1, leaf)) for i, part in enumerate(parts_of(sites, 3))]
    return RelayTransport(Relays(*relays, tamper=tamper))


def fit(transport, estimator=EFKMVC, n_sites=N_SITES, **parameters):
    engine = RemoteSites(transport, expected=[f"site {i}" for i in range(n_sites)], wait=0.0)
    return estimator(3, engine=engine, **QUICK | parameters).fit()


def assert_same(one, other, rtol=1e-12):
    assert_allclose(np.hstack(one.cluster_centers_), np.hstack(other.cluster_centers_), rtol=rtol, atol=rtol)
    assert_allclose(one.objective_, other.objective_, rtol=rtol)
    for mine, theirs in zip(one.history_, other.history_, strict=True):
        assert mine["clients"] == theirs["clients"]
        assert mine["refused"] == theirs["refused"]


@pytest.fixture(scope="module")
def flat():
    return fit(LocalSites(make_sites()))


@pytest.mark.parametrize("depth", [2, 3])
def test_a_tree_gives_what_the_flat_run_gives_in_fewer_bytes(flat, depth):
    transport = tree(make_sites(), depth)
    model = fit(transport)
    assert_same(model, flat)
    assert model.history_[1]["bytes_up"] < 0.5 * flat.history_[1]["bytes_up"]


def test_sites_with_a_frame_and_models_of_their_own_can_be_behind_relays():
    one, other = fit(tree(make_sites(), 2), FedHKPerson), fit(LocalSites(make_sites()), FedHKPerson)
    assert_same(one, other)


@pytest.mark.filterwarnings("ignore:.* gives back its start:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("parameters", [{"aggregator": "median"}, {"protocol": "centers"}])
def test_answers_that_count_one_by_one_pass_a_relay_as_they_are(parameters):
    one, other = fit(tree(make_sites(), 2), **parameters), fit(LocalSites(make_sites()), **parameters)
    assert one.objective_ == other.objective_
    assert_array_equal(np.hstack(one.cluster_centers_), np.hstack(other.cluster_centers_))


@pytest.mark.parametrize("exchange", range(2, 11, 2))
def test_a_relay_that_is_killed_after_it_asked_its_sites_is_asked_again(flat, exchange):
    calls = []

    def kill(node, payload, answer):
        calls.append(node)
        return ConnectionError("killed") if node == 2 and calls.count(2) == exchange else answer

    assert_same(fit(tree(make_sites(), 2, tamper=kill)), flat)
    assert calls.count(2) == calls.count(1) + 1


# -------------------------------------------------------------------------------------------------------- bad relays


def change_bundle(change):
    """A tamper that changes the bundles of relay 2 that have a sum of a round in them."""

    def tamper(node, payload, answer):
        message = decode(answer)
        bundle = message.read(Bundle)
        kinds = {decode(own).kind for own in bundle.payloads}
        if node != 2 or f"{SUM_OF}round" not in kinds:
            return answer
        values, arrays = pack(change(bundle), Bundle)
        return encode(Message(RELAY, message.site, message.round, arrays, values))

    return tamper


def change_sum(change):
    """A bundle whose sum is changed, with the names in it: the relay lies."""

    def changed(bundle):
        message = decode(bundle.payloads[0])
        kind = sum_type(RoundReply)
        values, arrays = pack(change(*message.read(sum_type(RoundReply))), kind)
        return replace(bundle, payloads=(encode(replace(message, values=values, arrays=arrays)),))

    return changed


BAD = {
    "a site is left out and listed": (change_sum(lambda names, r: (names, replace(r, rows=r.rows - 12))), "24 rows"),
    "a site is doubled": (change_sum(lambda names, r: (names, replace(r, rows=r.rows + 12))), "48 rows"),
    "a site is not listed": (change_sum(lambda names, r: (names[1:], r)), "a sum over 2 sites"),
    "a site of others is listed": (change_sum(lambda names, r: ((*names, "site 8"), r)), "a sum over 4 sites"),
    "numbers that no rows can give": (change_sum(lambda names, r: (names, replace(r, costs=r.costs * 1e6))), "costs"),
    "a damaged sum": (lambda b: replace(b, payloads=(b.payloads[0][:-1] + b"x",)), "damaged"),
    "a node twice": (lambda b: replace(b, payloads=b.payloads * 2, nodes=b.nodes * 2), "twice"),
    "fewer messages than said": (lambda b: replace(b, payloads=()), "more or fewer"),
    "an answer is dropped": (lambda b: replace(b, payloads=(), nodes=()), "no answer"),
    "the last sum again": (lambda b: replace(b, payloads=(again(b.payloads[0]),)), "round"),
}


def again(payload):
    message = decode(payload)
    return encode(replace(message, round=message.round - 1))


@pytest.mark.parametrize("case", BAD)
def test_what_a_bad_relay_sends_is_refused_and_the_sites_of_others_go_on(case):
    change, reason = BAD[case]
    model = fit(tree(make_sites(), 2, tamper=change_bundle(change)))
    refused = model.history_[0]["refused"]
    assert sorted(refused) == ["site 1", "site 4", "site 7"]
    assert all(reason in text for text in refused.values()), refused
    assert model.history_[0]["clients"] == N_SITES - 3


def test_a_relay_that_is_gone_takes_its_sites_with_it_until_it_is_back():
    calls = []

    def gone(node, payload, answer):
        calls.append(node)
        return TimeoutError("gone") if node == 3 and 6 <= calls.count(3) <= 7 else answer

    model = fit(tree(make_sites(), 2, tamper=gone))
    clients = [record["clients"] for record in model.history_]
    assert N_SITES - 3 in clients
    assert clients[-1] == N_SITES


@pytest.mark.parametrize("payload", [b"", b"rubbish", encode(Message("round", "x", 0)), encode(Message(RELAY, "x", 0))])
def test_a_relay_refuses_what_is_no_bundle(payload):
    message = decode(Relay("north", LocalSites(make_sites())).answer(payload))
    assert (message.kind, message.site) == ("refusal", "north")


# ------------------------------------------------------------------------------------------------------------ masks


@pytest.fixture
def folders(tmp_path):
    return write_sites(make_sites(6), tmp_path / "data")


def masked(folders, state, depth, tamper=None):
    transport = Wire(folders, state)
    if depth > 1:
        parts = parts_of(folders, 2)
        wires = [Relay(f"relay {i}", Wire(part, state)) for i, part in enumerate(parts)]
        transport = RelayTransport(Relays(*wires, tamper=tamper))
    rng = np.random.default_rng(0)
    init = [rng.normal(size=(3, width)) for width in (3, 4)]
    return fit(transport, n_sites=6, secure=True, init=init, max_rounds=2, n_init=1)


def test_masked_sums_through_relays_have_the_bits_of_the_flat_run(folders, tmp_path):
    apart, together = (masked(folders, tmp_path / f"state {depth}", depth) for depth in (1, 2))
    assert apart.objective_ == together.objective_
    assert_array_equal(np.hstack(apart.cluster_centers_), np.hstack(together.cluster_centers_))
    assert sum(r["bytes_up"] for r in together.history_) < sum(r["bytes_up"] for r in apart.history_)


def test_a_relay_that_leaves_a_masked_number_out_is_found_because_masks_do_not_cancel(folders, tmp_path):
    class Dropping(Relay):
        def _add(self, requests, answers):
            groups = super()._add(requests, answers)
            for nodes, answer in groups.items():
                message = decode(answer)
                if message.kind.startswith(f"{SUM_OF}sealed."):
                    part = super()._add(requests, {own: a for own, a in answers.items() if own != next(iter(answers))})
                    names, _ = message.read(sum_type(Sealed.reply_type))
                    _, rest = decode(next(iter(part.values()))).read(sum_type(Sealed.reply_type))
                    values, arrays = pack((names, rest), sum_type(Sealed.reply_type))
                    groups[nodes] = encode(replace(message, values=values, arrays=arrays))
            return groups

    parts = parts_of(folders, 2)
    state = tmp_path / "state"
    wires = [
        kind(f"relay {i}", Wire(part, state))
        for i, (kind, part) in enumerate(zip((Relay, Dropping), parts, strict=True))
    ]
    with pytest.raises(OutOfRangeError, match="did not all see the same participants"):
        fit(RelayTransport(Relays(*wires)), n_sites=6, secure=True)


def test_a_relay_that_is_gone_leaves_too_few_for_masks_and_nothing_is_lost(folders, tmp_path):
    calls = []

    def gone(node, payload, answer):
        calls.append(node)
        return TimeoutError("gone") if node == 2 and calls.count(2) > 5 else answer

    with pytest.raises(QuorumError, match="sites answered"):
        masked(folders, tmp_path / "state", 2, tamper=gone)


# ------------------------------------------------------------------------------------------------------- small parts


def test_names_of_several_sites_are_listed_one_by_one():
    several = Several(["a", "b"])
    assert several == "a and 1 more"
    assert list_sites(["c", several]) == ["a", "b", "c"]


def test_vectors_of_different_lengths_do_not_add():
    with pytest.raises(MessageError, match="different shapes"):
        SumPhase.add([Sum(np.zeros(2)), Sum(np.zeros(3))])
