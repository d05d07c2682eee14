"""The envelope: what is sent arrives, equal messages have equal bytes, and whatever else comes is one kind of error."""

from __future__ import annotations

import json
import pickle
import random
import tracemalloc
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load

from fedhk.errors import FedHKError, MessageError
from fedhk.federation.messages import DTYPES, VERSION, Message, decode, encode, expect
from fedhk.federation.table import check_array

FRAME = 24
START = b"FedHK\x00" + VERSION.to_bytes(2, "little")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = texts.filter(lambda name: name not in ("", "__metadata__"))
labels = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
messages = st.builds(
    Message,
    kind=labels,
    site=labels,
    round=st.integers(0, 2**63 - 1),
    arrays=st.dictionaries(names, arrays, max_size=4),
    values=st.dictionaries(texts, json_values, max_size=4),
)


def same(one, other):
    assert (one.kind, one.site, one.round, one.values) == (other.kind, other.site, other.round, other.values)
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        assert array.shape == other.arrays[name].shape
        assert array.tobytes() == other.arrays[name].tobytes()  # NaN and the sign of zero too


def sample(values=None):
    numbers = {"sums": np.linspace(-1, 1, 6).reshape(2, 3), "counts": np.arange(2, dtype=np.float32)}
    return Message("statistics", "oslo", 3, numbers, {"rows": 20} if values is None else values)


def forge(header, data=b"", start=START):
    """A body of the attacker's choice in a frame whose digest fits."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return seal(len(text).to_bytes(8, "little") + text + data, start)


def seal(body, start=START):
    return start + sha256(start + body).digest()[:16] + body


def described(**tensors):
    return {"__metadata__": {"fedhk": '["statistics","oslo",3,{}]'}, **tensors}


class TestWhatIsSentArrives:
    @given(messages)
    def test_round_trip(self, message):
        same(decode(encode(message)), message)

    @given(messages)
    @settings(max_examples=50)
    def test_equal_messages_have_equal_bytes(self, message):
        turned = Message(
            message.kind,
            message.site,
            message.round,
            {name: np.array(message.arrays[name], order="F") for name in reversed(message.arrays)},
            dict(reversed(message.values.items())),
        )
        assert encode(turned) == encode(message)
        assert encode(decode(encode(message))) == encode(message)

    def test_memory_order_and_byte_order_do_not_matter(self):
        table = np.arange(6.0).reshape(2, 3)
        payload = encode(Message("k", "s", 0, {"a": table}))
        assert encode(Message("k", "s", 0, {"a": np.asfortranarray(table)})) == payload
        assert encode(Message("k", "s", 0, {"a": table.astype(">f8")})) == payload
        assert encode(Message("k", "s", 0, {"a": np.repeat(table, 2, axis=0)[::2]})) == payload

    def test_arrays_that_arrive_can_be_written_to(self):
        decode(encode(sample())).arrays["sums"][:] = 0

    def test_any_bytes_like_payload_is_read(self):
        payload = encode(sample())
        for form in (bytearray(payload), memoryview(payload)):
            same(decode(form), sample())

    def test_the_body_is_plain_safetensors(self):
        assert load(encode(sample())[FRAME:])["sums"].tolist() == sample().arrays["sums"].tolist()

    @pytest.mark.parametrize(("n_arrays", "most"), [(0, 100), (1, 160), (3, 290), (9, 690)])
    def test_overhead_is_what_the_module_says(self, n_arrays, most):
        tables = {f"a{i}": np.zeros((10, 50), np.float32) for i in range(n_arrays)}
        payload = encode(Message("statistics", "oslo", 3, tables))
        assert len(payload) - sum(table.nbytes for table in tables.values()) <= most


class TestWhatCannotBeSent:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"kind": ""}, "kind must be 1 to 200 printable characters"),
            ({"site": "two\nlines"}, "site must be 1 to 200"),
            ({"site": "\ud800"}, "site must be 1 to 200"),
            ({"round": -1}, "round must be a whole number"),
            ({"round": True}, "round must be a whole number"),
            ({"arrays": {"a": np.array([object()])}}, "'a' has dtype object"),
            ({"arrays": {"a": np.zeros(2, complex)}}, "'a' has dtype complex128"),
            ({"arrays": {"a": np.array(["text"])}}, "'a' has dtype <U4"),
            ({"arrays": {"__metadata__": np.zeros(2)}}, "no name for an array"),
            ({"arrays": {"\ud800": np.zeros(2)}}, "surrogates"),
            ({"values": {"a": float("nan")}}, "not JSON compliant"),
            ({"values": {"a": np.arange(2)}}, "not JSON serializable"),
            ({"values": {"a": "\ud800"}}, "surrogates"),
            ({"values": {1: 2}}, "text as keys"),
            ({"values": {"a": "x" * 2**20}}, "header is longer than"),
        ],
    )
    def test_error_says_what(self, changes, reason):
        parts = {"kind": "k", "site": "s", "round": 0, **changes}
        with pytest.raises(MessageError, match=reason):
            encode(Message(**parts))


class TestDamage:
    def test_every_flipped_bit_is_refused(self):
        payload = encode(sample())
        for bit in range(8 * len(payload)):
            damaged = bytearray(payload)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(MessageError):
                decode(bytes(damaged))

    def test_every_cut_is_refused(self):
        payload = encode(sample())
        for length in range(len(payload)):
            with pytest.raises(MessageError):
                decode(payload[:length])

    def test_mutated_payloads_give_only_message_errors_and_flat_memory(self):
        rng = random.Random(0)  # noqa: S311
        sources = [encode(sample()), encode(Message("k", "rome", 0)), encode(sample({"names": ["é", "x"] * 20}))]
        tracemalloc.start()
        try:
            for _ in range(14_000):
                with pytest.raises(MessageError):
                    decode(mutated(rng, sources), site="oslo")
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()

    def test_an_attacker_who_can_seal_gets_a_message_error_or_a_checked_message(self):
        rng = random.Random(1)  # noqa: S311
        accepted = 0
        tracemalloc.start()
        try:
            for _ in range(3_000):
                payload = seal(mutated_body(rng, encode(sample())[FRAME:]))
                try:
                    message = decode(payload)
                    check_array(message.arrays.get("sums", np.zeros(0)), (2, 3), "oslo", "sums")
                    check_array(message.arrays.get("counts", np.ones(0)), (2,), "oslo", "counts", non_negative=True)
                except MessageError:
                    continue
                accepted += 1
                assert message.arrays["sums"].shape == (2, 3)
                assert np.isfinite(message.arrays["sums"]).all()
                assert (message.arrays["counts"] >= 0).all()
                json.dumps(message.values, allow_nan=False)
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()
        assert accepted > 0  # changed numbers that are allowed


def mutated(rng, sources):
    """A payload that is none of the sources."""
    payload = bytearray(rng.choice(sources))
    how = rng.randrange(6)
    if how == 0:
        for _ in range(rng.randint(1, 8)):
            payload[rng.randrange(len(payload))] ^= rng.randint(1, 255)
    elif how == 1:
        del payload[rng.randrange(len(payload)) :]
    elif how == 2:
        payload += rng.randbytes(rng.randint(1, 50))
    elif how == 3:
        other = rng.choice(sources)
        payload = payload[: rng.randrange(len(payload))] + other[rng.randrange(len(other)) :]
    elif how == 4:
        payload = bytearray(rng.randbytes(rng.randrange(300)))
    else:
        payload[FRAME:] = rng.randbytes(rng.randrange(300))
    return b"" if bytes(payload) in sources else bytes(payload)


def mutated_body(rng, body):
    """A body that looks right at first: numbers and words of its header changed, or its bytes."""
    length = int.from_bytes(body[:8], "little")
    text, data = body[8 : 8 + length].rstrip(), body[8 + length :]
    for _ in range(rng.randint(1, 3)):
        how = rng.randrange(5)
        if how == 0:
            old, new = rng.choice(SWAPS)
            text = text.replace(old, new, rng.randint(1, 2))
        elif how == 1:
            at = rng.randrange(len(text))
            text = text[:at] + rng.randbytes(rng.randint(0, 3)) + text[at + rng.randint(0, 3) :]
        elif how == 2 and data:
            at = rng.randrange(len(data))
            data = data[:at] + rng.randbytes(1) + data[at + 1 :]
        elif how == 3:
            data = data[: rng.randrange(len(data) + 1)] + rng.randbytes(rng.randrange(20))
        else:
            length = rng.choice([0, 1, len(text) + 1, 2**20, 2**40, 2**64 - 1])
            return length.to_bytes(8, "little") + text + data
    return len(text).to_bytes(8, "little") + text + data


SWAPS = [
    (b'"F64"', b'"F32"'),
    (b'"F64"', b'"C64"'),
    (b'"F64"', b'"BF16"'),
    (b'"F32"', b'"BOOL"'),
    (b"[2,3]", b"[3,2]"),
    (b"[2,3]", b"[6]"),
    (b"[2,3]", b"[-2,-3]"),
    (b"[2,3]", b"[4611686018427387904,4611686018427387904,0]"),
    (b"[2]", b"[2,1,1]"),
    (b"[0,48]", b"[48,0]"),
    (b"[0,48]", b"[0,99999999999999999999]"),
    (b"sums", b"__metadata__"),
    (b"sums", b"counts"),
    (b"fedhk", b"other"),
    (b"20", b"1e999"),
    (b"20", b"NaN"),
    (b"20", b"9" * 5000),
    (b"oslo", b"rome"),
    (b"oslo", b"\\\\ud800"),
    (b"3,{", b"-3,{"),
    (b"{", b"["),
    (b"rows", b"r\\u0000"),
]


class TestForgedMessages:
    """The digest has no key, so an attacker's header can claim anything."""

    def test_huge_claims_are_refused_without_allocation(self):
        giga = 2**30
        claims = [
            described(a={"dtype": "F64", "shape": [giga], "data_offsets": [0, 8 * giga]}),
            described(a={"dtype": "F64", "shape": [0, giga, giga, giga], "data_offsets": [0, 0]}),
            described(a={"dtype": "F64", "shape": [giga, giga, giga, giga], "data_offsets": [0, 0]}),
            described(a={"dtype": "U8", "shape": [0] * 70, "data_offsets": [0, 0]}),
        ]
        tracemalloc.start()
        try:
            for claim in claims:
                with pytest.raises(MessageError, match="not well formed"):
                    decode(forge(claim))
            with pytest.raises(MessageError, match="header is longer"):
                decode(seal((2**40).to_bytes(8, "little") + b"{}"))
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()

    def test_memory_is_a_small_multiple_of_a_large_payload(self):
        payload = encode(Message("k", "s", 0, {"a": np.zeros(2**20)}))
        tracemalloc.start()
        try:
            decode(payload)
            assert tracemalloc.get_traced_memory()[1] < 2.5 * len(payload)
        finally:
            tracemalloc.stop()

    def test_a_header_made_to_expand_stays_below_the_stated_bound(self):
        lists = '["k","s",0,{"a":[' + "{}," * 349_000 + "{}]}]"
        payload = forge({"__metadata__": {"fedhk": lists}})
        tracemalloc.start()
        try:
            decode(payload)
            assert tracemalloc.get_traced_memory()[1] < 32e6
        finally:
            tracemalloc.stop()

    def test_oversize_is_refused_before_anything_is_read(self):
        with pytest.raises(MessageError, match="message has 1073741824 bytes, at most 268435456 are allowed"):
            decode(_Zeros())
        with pytest.raises(MessageError, match="at most 100 are allowed"):
            decode(encode(sample()), max_bytes=100)

    @pytest.mark.parametrize(
        ("payload", "reason"),
        [
            (b"", "not a FedHK message"),
            (b"FedHK\x00", "cut short"),
            (b"\x80\x04" + b"." * 100, "not a FedHK message"),
            (seal(b""), "not well formed"),
            (forge(b"{}"), "no FedHK header"),
            (forge({"__metadata__": None}), "no FedHK header"),
            (forge({"__metadata__": {"fedhk": "[" * 100_000}}), "not well formed"),
            (forge({"__metadata__": {"fedhk": '["k","s",0]'}}), "not well formed"),
            (forge({"__metadata__": {"fedhk": '["k","s",0,[]]'}}), "values must be"),
            (forge({"__metadata__": {"fedhk": '["k","s",0.0,{}]'}}), "round must be"),
            (forge({"__metadata__": {"fedhk": '["k","a\\nb",0,{}]'}}), "site must be"),
            (forge({"__metadata__": {"fedhk": '["k","s",0,{"a":1e999}]'}}), "not well formed"),
            (forge({"__metadata__": {"fedhk": '["k","s",0,{"a":1,"a":2}]'}}), "one way"),
            (forge({"__metadata__": {"fedhk": '["k","s",0,{}]', "more": "text"}}), "one way"),
            (forge(described(a={"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]})), "type 'BF16'"),
            (forge(described(a={"dtype": "C64", "shape": [0], "data_offsets": [0, 0]})), "dtype complex64"),
            (forge(described(a={"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}), b"\x01\x07"), "neither true"),
        ],
    )
    def test_reason_is_given(self, payload, reason):
        with pytest.raises(MessageError, match=reason) as caught:
            decode(payload, site="oslo")
        assert caught.value.site == "oslo"
        assert str(caught.value) == f"site 'oslo': {caught.value.reason}"
        assert len(str(caught.value)) < 700

    def test_another_version_is_reported_as_such_whatever_follows(self):
        text = "site 'oslo': message has schema version 3, this FedHK reads 1; upgrade FedHK on this side"
        for payload in (forge(described(), start=b"FedHK\x00\x03\x00"), b"FedHK\x00\x03\x00" + bytes(30)):
            with pytest.raises(MessageError) as caught:
                decode(payload, site="oslo")
            assert str(caught.value) == text
        with pytest.raises(MessageError, match="reads 1; upgrade FedHK on the other side"):
            decode(b"FedHK\x00\x00\x00" + bytes(30))


class _Zeros(bytes):
    """A gigabyte of zeros that nobody has to hold: reading it is a fault of the test."""

    def __len__(self):
        return 2**30

    def __getitem__(self, key):
        raise AssertionError("was read")


class TestExpectation:
    def test_what_was_asked_for_passes(self):
        expect(sample(), kind="statistics", round=3, site="oslo")
        expect(sample())

    @pytest.mark.parametrize(
        ("asked", "text"),
        [
            ({"round": 4}, "site 'oslo': message has round 3, expected 4"),
            ({"kind": "seeds"}, "site 'oslo': message has kind 'statistics', expected 'seeds'"),
            ({"site": "rome", "round": 4}, "site 'rome': message has site 'oslo', expected 'rome'"),
        ],
    )
    def test_anything_else_is_refused(self, asked, text):
        with pytest.raises(MessageError) as caught:
            expect(sample(), **asked)
        assert str(caught.value) == text


def test_message_error_is_a_fedhk_error_a_value_error_and_survives_pickling():
    error = pickle.loads(pickle.dumps(MessageError("too long", "oslo")))  # noqa: S301
    assert isinstance(error, FedHKError)
    assert isinstance(error, ValueError)
    assert (str(error), error.reason, error.site) == ("site 'oslo': too long", "too long", "oslo")
