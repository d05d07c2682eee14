"""Every field of every message of a run with privacy, and what protects it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedhk import EFKMVC, FedHKParafac2, FedHKPerson, FedHKTucker, datasets
from fedhk.privacy.mechanism import DifferentialPrivacy
from sealed_runs import spied_fit, step_of

KINDS = {"describe", "ranges", "directions", "cells", "round"}

# What a site says: nothing of it is a function of the rows but sums with noise, which the ledger has.
FROM_SITES = {
    "views": "names, widths and column names of the views: known before there were rows",
    "sum": "sums over rows, with noise sized for one row, in the ledger before they leave",
    "mask.masked": "the same sums, under masks of which the server has no key",
    "mask.cipher_key": "random",
    "mask.mask_keys": "random",
    "mask.signature": "of the keys",
    "mask.envelopes": "shares of random secrets, sealed for another site",
    "mask.shares": "shares of random secrets, one kind for each site",
    "mask.step": "said by the server",
    "mask.session": "said by the server",
    "mask.sum": "said by the server",
}

# What the server says: choices of the user, or made of sums with noise.
FROM_SERVER = {
    "schema": "constant",
    "sealed": "constant",
    "run": "random",
    "scaling": "chosen",
    "ranges": "constant",
    "rounds": "chosen",
    "names": "from what sites said of their views",
    "widths": "from what sites said of their views",
    "views": "from what sites said of their views",
    "references": "from bounds and sums with noise",
    "scales": "from bounds and sums with noise",
    "radius": "from the number of views",
    "seed": "chosen",
    "axes": "from sums with noise",
    "deviations": "from sums with noise",
    "bins": "from the number of clusters",
    "centers": "from sums with noise",
    "view_weights": "chosen, or from sums with noise",
    "numbers": "chosen",
    "mask.step": "of the agreement on masks",
    "mask.session": "random",
    "mask.threshold": "chosen",
    "mask.sums": "constant",
    "mask.bound": "from the number of sites",
    "mask.names": "names of sites",
    "mask.cipher_keys": "what sites sent",
    "mask.mask_keys": "what sites sent",
    "mask.signatures": "what sites sent",
    "mask.participants": "names of sites",
    "mask.envelopes": "what sites sent",
    "mask.sum": "a count of sums",
    "mask.length": "from the views and the number of clusters",
    "mask.survivors": "names of sites",
}


def budget(bounds=(-12, 12), **changes):
    return DifferentialPrivacy(**{"epsilon": 4.0, "delta": 1e-4, "bounds": bounds, "rounds": 2} | changes)


def make_data(n_samples=40, seed=0):
    return datasets.make_sites(4, n_samples, n_clusters=2, n_features=(2, 3), random_state=seed).sites


INIT = [np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]])]
RUNS = {
    "site noise": lambda: EFKMVC(2, privacy=budget()),
    "secure": lambda: EFKMVC(2, privacy=budget(), secure=True),
    "private bounds": lambda: EFKMVC(2, privacy=budget("private")),
    "private bounds, secure": lambda: EFKMVC(2, privacy=budget("private"), secure=True),
    "minmax": lambda: EFKMVC(2, privacy=budget(), heat_coef="minmax"),
    "learned weights": lambda: EFKMVC(2, privacy=budget(), view_weights="learned"),
    "l2": lambda: EFKMVC(2, privacy=budget("private"), scaling="l2"),
    "given centres": lambda: EFKMVC(2, privacy=budget(), init=INIT),
    "own models": lambda: FedHKPerson(2, privacy=budget()),
    "own models, secure": lambda: FedHKPerson(2, privacy=budget(), secure=True, personalization=0.5),
    "steps of sites": lambda: EFKMVC(2, privacy=budget(), personalization_step=1.0),
    "tucker": lambda: FedHKTucker(2, privacy=budget()),
    "parafac2": lambda: FedHKParafac2(2, privacy=budget(), rank=1),
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:With epsilon"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.mark.parametrize("run", RUNS)
def test_every_field_of_every_message_is_known_and_what_protects_it(run, monkeypatch):
    _, spy = spied_fit(monkeypatch, RUNS[run]().set_params(n_init=1), make_data())
    for messages, protected in ((spy.requests, FROM_SERVER), (spy.replies, FROM_SITES)):
        assert {message.kind for _, message in messages} <= KINDS
        fields = {name for _, message in messages for name in (*message.arrays, *message.values)}
        assert fields <= protected.keys(), fields - protected.keys()
    described = [message for _, message in spy.replies if message.kind == "describe"]
    for message in described:
        assert json.loads(message.arrays["views"].tobytes()) == [["view_0", 2, None], ["view_1", 3, None]]
        assert (set(message.arrays), message.values) == ({"views"}, {})
    assert len(described) == 4


@pytest.mark.parametrize("run", ["site noise", "private bounds", "own models", "tucker"])
def test_every_sum_that_leaves_a_site_is_in_its_ledger_as_it_was_sent(run, monkeypatch):
    _, spy = spied_fit(monkeypatch, RUNS[run]().set_params(n_init=1), make_data())
    for site, state in spy.states.items():
        sums = {message.round: message.arrays["sum"] for name, message in spy.replies if name == site and message.round}
        assert sorted(sums) == [release.exchange for release in state.ledger.releases()]
        for exchange, numbers in sums.items():
            assert numbers.dtype == np.int64
            assert state.ledger.payload(state.run, exchange) == numbers.tobytes()


def test_masked_sums_are_in_the_ledger_without_their_masks(monkeypatch):
    _, spy = spied_fit(monkeypatch, RUNS["secure"]().set_params(n_init=1), make_data())
    for site, state in spy.states.items():
        masked = [m for name, m in spy.replies if name == site and "mask.masked" in m.arrays]
        assert [m.round for m in masked] == [release.exchange for release in state.ledger.releases()]
        for message in masked:
            noisy = np.frombuffer(state.ledger.payload(state.run, message.round), np.int64)
            assert noisy.shape == message.arrays["mask.masked"].shape
            assert not np.any(noisy.view(np.uint64) == message.arrays["mask.masked"])


@pytest.mark.parametrize("run", ["site noise", "secure", "private bounds", "own models, secure"])
def test_what_is_sent_has_the_same_shape_however_many_rows_there_are(run, monkeypatch):
    def shapes(n_samples, seed):
        _, spy = spied_fit(monkeypatch, RUNS[run]().set_params(n_init=1), make_data(n_samples, seed))
        return [
            (m.kind, step_of(m), sorted((name, a.shape, a.dtype.str) for name, a in m.arrays.items()))
            for _, m in spy.replies
        ]

    assert shapes(20, 1) == shapes(90, 2)


def test_the_description_of_a_site_says_nothing_of_its_rows(monkeypatch):
    def described(rows):
        sites = {"a": {"ecg": rows, "image": None}, "b": {"ecg": rows[:2], "image": rows[:2]}, "c": {"ecg": rows + 1}}
        _, spy = spied_fit(monkeypatch, EFKMVC(2, privacy=budget()), sites)
        return [m.arrays["views"].tobytes() for _, m in spy.replies if m.kind == "describe"]

    rng = np.random.default_rng(0)
    found = described(rng.normal(size=(9, 2)))
    assert found == described(100 * rng.normal(size=(33, 2)))
    assert json.loads(found[0]) == [["ecg", 2, None], ["image", None, None]]
