"""Numbers on the wire: how far rounding may move them, what is kept, and what a run loses by it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from federations import TestEngine
from fedhk import EFKMVC, FedHKParafac2, FedHKTucker, datasets
from fedhk.errors import MessageError
from fedhk.estimators import efkmvc
from fedhk.federation.messages import Message, check_arrays, decode, encode
from fedhk.federation.precision import (
    PRECISIONS,
    as_sent,
    at_least_half,
    pack_rounded,
    rounded_spec,
    unpack_rounded,
)

# Largest relative error of one number, or of the largest of a row in bytes; half loses more below its normal numbers.
RELATIVE = {"double": 0.0, "single": 2.0**-24, "half": 2.0**-11, "byte": 0.5 / 127 + 1e-6}
FIRST_SWEEPS = 10  # enough for clusters to be found; see `short_first_fit`
SUBNORMAL = {"double": 0.0, "single": 1e-45, "half": 2.0**-25, "byte": 1e-36}


def tables(seed, n_rows, n_columns, size, holes):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n_rows, n_columns)) * 10.0**size
    table[rng.random(table.shape) < holes] = np.nan
    return table


@given(
    seed=st.integers(0, 2**16),
    shape=st.tuples(st.integers(0, 6), st.integers(1, 9)),
    size=st.floats(-60, 60),
    holes=st.sampled_from([0.0, 0.3, 1.0]),
    precision=st.sampled_from(PRECISIONS),
)
def test_what_comes_is_near_what_went_whatever_its_size(seed, shape, size, holes, precision):
    table = tables(seed, *shape, size, holes)
    packed = pack_rounded("table", table, precision)
    message = decode(encode(Message("round", "oslo", 1, packed)))
    check_arrays(message, rounded_spec(message, "table", shape, finite=False))
    found = unpack_rounded(message.arrays, "table")
    assert found.dtype == np.float64
    assert_array_equal(np.isnan(found), np.isnan(table))
    assert_array_equal(found, as_sent(table, precision))
    known = np.nan_to_num(np.abs(table))
    scale = known.max(axis=1, keepdims=True, initial=0.0) if precision == "byte" else known
    errors = np.nan_to_num(np.abs(found - table))
    assert np.all(errors <= RELATIVE[precision] * scale + SUBNORMAL[precision])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_zeros_stay_zeros_and_rows_do_not_disturb_each_other(precision):
    table = np.array([[0.0, 0.0, 0.0], [1e4, -1e4, 0.0], [1e-3, 0.0, -1e-3], [np.nan, 0.0, np.nan]])
    found = as_sent(table, precision)
    assert_array_equal(found[0], 0.0)
    assert_array_equal(found == 0, table == 0)
    assert_array_equal(np.isnan(found), np.isnan(table))
    assert np.abs(found[2, [0, 2]] - table[2, [0, 2]]).max() < 1e-6


def test_types_on_the_wire():
    table = np.array([[1.0, -2.0]])
    assert {p: pack_rounded("t", table, p)["t"].dtype.name for p in PRECISIONS} == {
        "double": "float64",
        "single": "float32",
        "half": "float16",
        "byte": "int8",
    }
    assert pack_rounded("t", table, "byte")["t.scale"].dtype == np.float32
    assert [at_least_half(precision) for precision in PRECISIONS] == ["double", "single", "half", "half"]


@pytest.mark.parametrize(
    ("largest", "precision", "expected"),
    [
        (5e4, "half", "float16"),
        (7e4, "half", "float32"),
        (1e39, "half", "float64"),
        (1e39, "single", "float64"),
        (1e39, "byte", "float64"),
    ],
)
def test_what_a_type_cannot_hold_goes_in_the_next(largest, precision, expected):
    table = np.array([[largest, np.nan, -1.0]])
    assert pack_rounded("t", table, precision)["t"].dtype.name == expected
    assert as_sent(table, precision)[0, 0] == pytest.approx(largest, rel=1e-3)


def message(**arrays):
    return Message("round", "oslo", 1, arrays)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"t": np.zeros((2, 3), np.int8)}, "dtype int8"),
        ({"t": np.zeros((2, 3), np.int8), "t.scale": np.array([-1.0, 1.0])}, "below zero"),
        ({"t": np.zeros((2, 3), np.int8), "t.scale": np.array([np.nan, 1.0])}, "NaN or infinite"),
        ({"t": np.zeros((2, 3), np.int8), "t.scale": np.array([np.inf, 1.0])}, "NaN or infinite"),
        ({"t": np.zeros((2, 3), np.int8), "t.scale": np.ones(3)}, "shape"),
        ({"t": np.zeros((2, 4), np.int8), "t.scale": np.ones(2)}, "shape"),
        ({"t": np.zeros((2, 3)), "t.scale": np.ones(2)}, "dtype float64"),
        ({"t": np.full((2, 3), -128, np.int8), "t.scale": np.ones(2)}, "NaN or infinite"),
        ({"t": np.full((2, 3), np.nan)}, "NaN or infinite"),
        ({"t.scale": np.ones(2)}, "lacks 't'"),
    ],
)
def test_what_nobody_rounded_is_refused(arrays, reason):
    with pytest.raises(MessageError, match=reason):
        check_arrays(message(**arrays), rounded_spec(message(**arrays), "t", (2, 3)))


def test_missing_bytes_are_taken_where_missing_numbers_are():
    sent = message(**pack_rounded("t", np.array([[np.nan, 1.0]]), "byte"))
    check_arrays(sent, rounded_spec(sent, "t", (1, 2), finite=False))
    assert_allclose(unpack_rounded(sent.arrays, "t"), [[np.nan, 1.0]], rtol=1e-7)


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(3, 60, n_clusters=4, n_features=(60, 40, 50), shift=0.2, separation=8, random_state=4)


def fitted(monkeypatch, data, estimator):
    """A fitted estimator, and the engine that carried its messages."""
    engines = []

    def recording(*_):
        engines.append(TestEngine(data.sites))
        return engines[0]

    with monkeypatch.context() as patch:
        patch.setattr(efkmvc, "InProcessEngine", recording)
        return estimator.fit(data.sites), engines[0]


def score(data, model):
    truth = np.concatenate(list(data.site_labels.values()))
    return adjusted_rand_score(truth, np.concatenate([model.labels_[site] for site in data.site_labels]))


@pytest.mark.parametrize(
    ("estimator", "protocol"),
    [
        (FedHKTucker, "cores"),
        (FedHKParafac2, "cores"),
        (FedHKTucker, "statistics"),
        (FedHKTucker, "factors"),
        (FedHKParafac2, "factors"),
    ],
)
@pytest.mark.usefixtures("short_first_fit")
def test_lower_precision_finds_the_same_clusters_in_smaller_messages(monkeypatch, data, estimator, protocol):
    scores, sizes = {}, {}
    for precision in PRECISIONS:
        model = estimator(
            4, protocol=protocol, precision=precision, max_rounds=4, tol=0, n_init=2, random_state=0, local_passes=1
        )
        model, engine = fitted(monkeypatch, data, model)
        scores[precision] = score(data, model)
        rounds = engine.phases.index("round")
        sizes[precision] = [
            sum(len(m) for exchange in messages[rounds + 1 : rounds + 4] for m in exchange.values())
            for messages in (engine.received, engine.sent)
        ]
        for direction, messages in (("bytes_up", engine.received), ("bytes_down", engine.sent)):
            lengths = [sum(map(len, exchange.values())) for exchange in messages]
            expected = [sum(lengths[: rounds + 1]), *lengths[rounds + 1 : -2], sum(lengths[-2:])]
            assert [record[direction] for record in model.history_] == expected
        assert all(np.isfinite(record["objective"]) for record in model.history_)
    assert scores["double"] > 0.9
    assert min(scores.values()) >= scores["double"] - 0.02
    up, down = ([sizes[precision][way] for precision in PRECISIONS] for way in (0, 1))
    assert up[0] > up[1] > up[2]
    assert down[0] > down[1] > down[2]
    if protocol == "factors":  # never in bytes
        assert up[3] == pytest.approx(up[2], rel=0.01)
    else:
        assert up[2] > up[3]
    if protocol == "cores":  # the default, against what the exact protocol sends
        exact, engine = fitted(monkeypatch, data, EFKMVC(4, max_rounds=4, tol=0, n_init=2, random_state=0))
        assert exact.objective_ > 0
        rounds = engine.phases.index("round")
        full = sum(len(m) for exchange in engine.received[rounds + 1 : rounds + 4] for m in exchange.values())
        assert up[3] < 0.3 * full


def test_auto_is_bytes_with_cores_and_double_else(monkeypatch, data):
    options = {"max_rounds": 1, "n_init": 1, "random_state": 0}
    for protocol, name, expected in [
        ("cores", "moves", "int8"),
        ("statistics", "numerators", "float64"),
        ("factors", "form.core.0", "float64"),
    ]:
        _, engine = fitted(monkeypatch, data, FedHKTucker(4, protocol=protocol, **options))
        answer = next(iter(engine.received[engine.phases.index("round")].values()))
        assert decode(answer).arrays[name].dtype.name == expected


def test_rounding_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (0.0, 1e-310, 1e-45, 1e-40, 1e300):
            for precision in PRECISIONS:
                as_sent(np.array([[size, -size, np.nan], [np.nan] * 3]), precision)
