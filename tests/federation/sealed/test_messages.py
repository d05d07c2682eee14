"""Every field of every message of a run with privacy, and what protects it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from fedhk import EFKMVC, FedHKParafac2, FedHKPerson, FedHKTucker, datasets
from fedhk.federation.board import entry_type
from fedhk.federation.codec import unpack
from fedhk.federation.gate import ENTRIES
from fedhk.federation.phases.describe import ViewsReply
from fedhk.federation.sealed import SealedGuard
from fedhk.privacy.ledger import LedgerError
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.secure_sum import MaskedNumbers
from sealed_runs import read_reply, read_request, spied_fit, step_of

KINDS = {"schema", "deliver", "sealed.noisy moves"} | {
    f"sealed.{phase}" for phase in ("ranges", "means", "lengths", "spreads", "directions", "cells", "noisy round")
}

# What a site says: nothing of it is a function of the rows but sums with noise, which the ledger has.
FROM_SITES = {
    "ViewDescription.name": "names of the views: known before there were rows",
    "ViewDescription.width": "widths of the views: known before there were rows",
    "ViewDescription.columns": "column names of the views: known before there were rows",
    "Numbers.values": "sums over rows, with noise sized for one row, in the ledger before they leave",
    "MaskedNumbers.masked": "the same sums, under masks of which the server has no key",
    "MaskedNumbers.number": "said by the server",
    "Advert.cipher_key": "random",
    "Advert.signature": "of the key",
    "Envelopes.envelopes": "shares of random secrets, sealed for another site",
    "Envelopes.locks": "keys with other sites under random secrets, and their digests",
    "Shares.shares": "shares of random secrets, one kind for each site",
    "Shares.number": "said by the server",
} | {f"{reply}.session": "said by the server" for reply in ("Advert", "Envelopes", "MaskedNumbers", "Shares")}

CHOSEN = "chosen by the user"
SCHEMA = "from what sites said of their views"
SUMS = "from bounds and sums with noise"

# What the server says: choices of the user, or made of sums with noise.
FROM_SERVER = (
    {
        "Terms.run": "random",
        "Terms.columns": "empty",
        "Terms.privacy": CHOSEN,
        "Terms.secure": CHOSEN,
        "Terms.shared_noise": CHOSEN,
        "Schema.names": SCHEMA,
        "Schema.codes": SCHEMA,
        "RangesRequest.widths": SCHEMA,
        "SpreadsRequest.widths": SCHEMA,
        "SpreadsRequest.radius": "constant",
        "MeansRequest.radius": "from the number and widths of the views",
        "DirectionsRequest.radius": "from the number of views",
        "DirectionsRequest.seed": CHOSEN,
        "NoisyRoundRequest.count_scale": "from the widths of the views, and with unit='site' the rows that sums gave",
        "NoisyRoundRequest.cost_share": "from the number of clusters",
        "NoisyMovesRequest.count_scale": "from the widths of the views, and with unit='site' the rows that sums gave",
        "NoisyMovesRequest.cost_share": "from the number of clusters",
        "NoisyMovesRequest.in_features": "from how many rounds there were",
        "NoisySum.number": "how many sums there were",
        "NoisySum.rounds": CHOSEN,
        "NoisySum.finds_start": CHOSEN,
        "NoisySum.bound": SUMS,
        "DeliverRequest.learn_weights": CHOSEN,
        "DeliverRequest.report": "constant",
        "DeliverRequest.forms": SUMS,
        "MaskTerms.session": "random",
        "MaskTerms.threshold": CHOSEN,
        "MaskTerms.sums": "constant",
        "InputRequest.length": "from the widths of the views",
        "InputRequest.word": "constant with noise",
        "InputRequest.participants": "who answered",
        "InputRequest.envelopes": "what sites sealed for each other",
        "DeliverRequest.keep": CHOSEN,
        "UnmaskRequest.survivors": "who answered",
        "UnmaskRequest.signers": "empty in one process",
        "UnmaskRequest.signatures": "empty in one process",
    }
    | {
        f"Reference.{name}": SUMS
        for name in ("unit_rows", "shift", "scale", "heat_coef", "low", "span", "share", "root", "weights")
    }
    | {f"Landmarks.{name}": SUMS for name in ("axes", "places")}
    | {
        f"Broadcast.{name}": SUMS
        for name in ("view_weights", "view_shares", "heat_time", "fuzzifier", "view_exponent", "gone")
    }
    | {f"Table.{name}": SUMS for name in ("values", "scale")}
    | {f"LowRank.{name}": SUMS for name in ("name", "error")}
    | {f"TuckerFactors.{name}": SUMS for name in ("core", "cluster_factor", "feature_factors", "view_factor")}
    | {f"Parafac2Factors.{name}": SUMS for name in ("cluster_factor", "bases", "feature_factor", "view_factor")}
    | {f"Roster.{name}": "what sites told of their keys" for name in ("names", "cipher_keys", "signatures")}
    | {f"{step}.session": "random" for step in ("SharesRequest", "InputRequest", "UnmaskRequest")}
    | {f"{step}.number": "how many sums there were" for step in ("InputRequest", "UnmaskRequest")}
)

# Options of own models, which the user chose.
OWN_MODELS = ("GradientStep.", "Personalization.")


def fields_of(value):
    """The fields of a message that hold numbers or texts, by the type that has them."""
    if isinstance(value, tuple):
        return set().union(*map(fields_of, value))
    if not is_dataclass(value):
        return set()
    found = set()
    for field in fields(value):
        part = getattr(value, field.name)
        inner = fields_of(part)
        nested = is_dataclass(part) or part is None or (isinstance(part, tuple) and part and is_dataclass(part[0]))
        found |= inner if nested else {f"{type(value).__name__}.{field.name}"}
    return found


def read_all(message):
    """The request of a message to a site, and the entries that come with it."""
    phase = SealedGuard().phase(message.kind)
    entries = [entry_type(name) for name in message.values.get(ENTRIES, [])]
    return unpack(message.values, message.arrays, tuple[phase.request_type, *entries])


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
    "steps of sites": lambda: EFKMVC(2, privacy=budget(), personalization=1.0),
    "tucker": lambda: FedHKTucker(2, privacy=budget()),
    "basis": lambda: EFKMVC(2, privacy=budget(), protocol="cores"),
    "basis, secure": lambda: FedHKTucker(2, privacy=budget(), protocol="cores", secure=True),
    "basis, given centres": lambda: EFKMVC(2, privacy=budget(), protocol="cores", init=INIT),
    "parafac2": lambda: FedHKParafac2(2, privacy=budget(), rank=1),
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:With epsilon"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.mark.parametrize("run", RUNS)
def test_every_field_of_every_message_is_known_and_what_protects_it(run, monkeypatch):
    _, spy = spied_fit(monkeypatch, RUNS[run]().set_params(n_init=1), make_data())
    assert {message.kind for _, message in (*spy.requests, *spy.replies)} <= KINDS
    asked = set().union(*(fields_of(read_all(message)) for _, message in spy.requests))
    assert {name for name in asked if not name.startswith(OWN_MODELS)} <= FROM_SERVER.keys()
    sealed = [read_reply(message) for _, message in spy.replies if message.kind.startswith("sealed.")]
    described = [message for _, message in spy.replies if message.kind == "schema"]
    views = [unpack(message.values, message.arrays, ViewsReply) for message in described]
    answered = set().union(*map(fields_of, [*sealed, *views]))
    assert answered <= FROM_SITES.keys()
    assert len(views) == 4
    for site in views:
        assert [(view.name, view.width, view.columns) for view in site.views] == [
            ("view_0", 2, None),
            ("view_1", 3, None),
        ]
    # that a site has its own model is all that it says of it: no report, and no sums of folded views
    assert {str(message.values) for _, message in spy.replies if message.kind == "deliver"} <= {"{'tree': [[], []]}"}


@pytest.mark.parametrize("run", ["site noise", "private bounds", "own models", "tucker"])
def test_every_sum_that_leaves_a_site_is_in_its_ledger_as_it_was_sent(run, monkeypatch):
    _, spy = spied_fit(monkeypatch, RUNS[run]().set_params(n_init=1), make_data())
    for site in spy.sites:
        ledger, name = spy.ledger(site)
        numbers = sums_of(spy, site)
        assert sorted(numbers) == [release.exchange for release in ledger.releases()]
        for number, reply in numbers.items():
            assert reply.values.dtype in (np.int32, np.int64)
            assert ledger.payload(name, number) == reply.values.astype(np.int64).tobytes()


def sums_of(spy, site):
    """What a site released, by the number of the sum within the run."""
    asked = {m.round: m for name, m in spy.requests if name == site}
    replies = [m for name, m in spy.replies if name == site and m.kind.startswith("sealed.")]
    return {
        read_request(asked[m.round])[0].noise.number: read_reply(m)
        for m in replies
        if step_of(asked[m.round]) in (None, "input")
    }


def test_masked_sums_are_charged_and_no_file_keeps_them_without_their_masks(monkeypatch):
    """Each has a part of the noise only."""
    _, spy = spied_fit(monkeypatch, RUNS["secure"]().set_params(n_init=1), make_data())
    for site in spy.sites:
        ledger, name = spy.ledger(site)
        masked = sums_of(spy, site)
        assert list(masked) == [release.exchange for release in ledger.releases()]
        for number, reply in masked.items():
            assert isinstance(reply, MaskedNumbers)
            with pytest.raises(LedgerError, match="counts as spent"):
                ledger.payload(name, number)


@pytest.mark.parametrize("run", ["site noise", "secure", "private bounds", "own models, secure"])
def test_what_is_sent_has_the_same_shape_however_many_rows_there_are(run, monkeypatch):
    def shapes(n_samples, seed):
        _, spy = spied_fit(monkeypatch, RUNS[run]().set_params(n_init=1), make_data(n_samples, seed))
        # of how many points the server asks for the rows nearest to them follows from how many rows were released
        return [
            (m.kind, m.kind == "sealed.cells" or (len(str(m.values)), [(n, a.shape) for n, a in m.arrays.items()]))
            for _, m in spy.replies
        ]

    assert shapes(80, 1) == shapes(250, 2)


def test_the_description_of_a_site_says_nothing_of_its_rows(monkeypatch):
    def described(rows):
        sites = {"a": {"ecg": rows, "image": None}, "b": {"ecg": rows[:2], "image": rows[:2]}, "c": {"ecg": rows + 1}}
        _, spy = spied_fit(monkeypatch, EFKMVC(2, privacy=budget()), sites)
        return [(m.arrays, m.values) for _, m in spy.replies if m.kind == "schema"]

    rng = np.random.default_rng(0)
    found = described(rng.normal(size=(9, 2)))
    assert found == described(3 * rng.normal(size=(33, 2)))
    assert found[0] == ({}, {"tree": [[["ecg", [0, 2], None], ["image", None, None]]]})
