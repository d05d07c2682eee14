"""Tables on the wire: how far rounding may move numbers, what is kept, and what a receiver refuses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.errors import MessageError
from fedhk.federation.codec import pack, unpack
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.table import PRECISIONS, Table, at_least_half, check_array, check_shape, round_as_sent

# Largest relative error of one number, or of the largest of a row in bytes; half loses more below its normal numbers.
RELATIVE = {"double": 0.0, "single": 2.0**-24, "half": 2.0**-11, "byte": 0.5 / 127 + 1e-6}
SUBNORMAL = {"double": 0.0, "single": 1e-45, "half": 2.0**-25, "byte": 1e-36}


def tables(seed, n_rows, n_columns, size, holes):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n_rows, n_columns)) * 10.0**size
    table[rng.random(table.shape) < holes] = np.nan
    return table


def as_received(table):
    """A table at the other end of the wire."""
    values, arrays = pack(table, Table)
    message = decode(encode(Message("round", "oslo", 1, arrays, values)))
    return unpack(message.values, message.arrays, Table)


@given(
    seed=st.integers(0, 2**16),
    shape=st.tuples(st.integers(0, 6), st.integers(1, 9)),
    size=st.floats(-60, 60),
    holes=st.sampled_from([0.0, 0.3, 1.0]),
    precision=st.sampled_from(PRECISIONS),
)
def test_what_comes_is_near_what_went_whatever_its_size(seed, shape, size, holes, precision):
    table = tables(seed, *shape, size, holes)
    sent = as_received(Table.of(table, precision))
    sent.check(shape, "oslo", "numbers", finite=False)
    found = sent.read()
    assert found.dtype == np.float64
    assert_array_equal(np.isnan(found), np.isnan(table))
    assert_array_equal(found, round_as_sent(table, precision))
    known = np.nan_to_num(np.abs(table))
    scale = known.max(axis=1, keepdims=True, initial=0.0) if precision == "byte" else known
    errors = np.nan_to_num(np.abs(found - table))
    assert np.all(errors <= RELATIVE[precision] * scale + SUBNORMAL[precision])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_zeros_stay_zeros_and_rows_do_not_disturb_each_other(precision):
    table = np.array([[0.0, 0.0, 0.0], [1e4, -1e4, 0.0], [1e-3, 0.0, -1e-3], [np.nan, 0.0, np.nan]])
    found = round_as_sent(table, precision)
    assert_array_equal(found[0], 0.0)
    assert_array_equal(found == 0, table == 0)
    assert_array_equal(np.isnan(found), np.isnan(table))
    assert np.abs(found[2, [0, 2]] - table[2, [0, 2]]).max() < 1e-6


def test_types_on_the_wire():
    table = np.array([[1.0, -2.0]])
    assert {p: Table.of(table, p).values.dtype.name for p in PRECISIONS} == {
        "double": "float64",
        "single": "float32",
        "half": "float16",
        "byte": "int8",
    }
    assert Table.of(table, "byte").scale.dtype == np.float32
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
    assert Table.of(table, precision).values.dtype.name == expected
    assert round_as_sent(table, precision)[0, 0] == pytest.approx(largest, rel=1e-3)


BYTES = np.zeros((2, 3), np.int8)


@pytest.mark.parametrize(
    ("values", "scale", "reason"),
    [
        (BYTES, [], r"scales of numbers have shape \(0,\)"),
        (BYTES, [-1.0, 1.0], "scales of numbers have 1 of 2 values below zero"),
        (BYTES, [np.nan, 1.0], "scales of numbers have .* NaN or infinite"),
        (BYTES, [np.inf, 1.0], "scales of numbers have .* NaN or infinite"),
        (BYTES, [1.0, 1.0, 1.0], r"scales of numbers have shape \(3,\)"),
        (np.zeros((2, 4), np.int8), [1.0, 1.0], r"numbers have shape \(2, 4\), expected \(2, 3\)"),
        (np.zeros((2, 3)), [1.0, 1.0], "numbers have scales, but are not in bytes"),
        (np.full((2, 3), -128, np.int8), [1.0, 1.0], "numbers have values that are NaN or infinite"),
        (np.full((2, 3), np.nan), [], "numbers have values that are NaN or infinite"),
        (np.zeros((2, 3), np.int64), [], "numbers have type int64"),
        (np.zeros((2, 3), bool), [], "numbers have type bool"),
        (np.zeros(6), [], r"numbers have shape \(6,\)"),
    ],
)
def test_what_nobody_rounded_is_refused(values, scale, reason):
    with pytest.raises(MessageError, match=f"site 'oslo': {reason}"):
        Table(values, np.array(scale)).check((2, 3), "oslo", "numbers")


def test_missing_bytes_are_taken_where_missing_numbers_are():
    sent = Table.of(np.array([[np.nan, 1.0]]), "byte")
    sent.check((1, 2), "oslo", "numbers", finite=False)
    assert_allclose(sent.read(), [[np.nan, 1.0]], rtol=1e-7)


def test_rounding_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (0.0, 1e-310, 1e-45, 1e-40, 1e300):
            for precision in PRECISIONS:
                round_as_sent(np.array([[size, -size, np.nan], [np.nan] * 3]), precision)


class TestArrays:
    """What a receiver expects of an array is said with its name and what was found."""

    def test_what_fits_is_accepted(self):
        check_array(np.zeros((2, 3)), (2, 3), "oslo", "sums")
        check_array(np.zeros((5, 3), np.float32), (None, 3), "oslo", "sums", non_negative=True)
        check_array(np.array([np.nan, np.inf]), (2,), "oslo", "ranges", finite=False)
        check_array(np.zeros((0, 3)), (None, 3), "oslo", "sums", non_negative=True)
        check_shape(np.zeros((2, 3), np.int8), (2, None), "oslo", "steps")

    @pytest.mark.parametrize(
        ("array", "options", "reason"),
        [
            (np.zeros((2, 4)), {}, r"sums have shape \(2, 4\), expected \(any, 3\)"),
            (np.zeros(3), {}, r"sums have shape \(3,\), expected \(any, 3\)"),
            (np.zeros((2, 3), np.int64), {}, "sums have type int64, expected floating-point numbers"),
            (np.zeros((2, 3), bool), {}, "sums have type bool"),
            (np.array([[0.0, np.nan, np.inf]]), {}, "sums have 2 of 3 values that are NaN or infinite"),
            (np.array([[0.0, -1.0, -2.0]]), {"non_negative": True}, "sums have 2 of 3 values below zero"),
            (
                np.array([[np.nan, -1.0, 2.0]]),
                {"non_negative": True, "finite": False},
                "sums have 1 of 3 values below zero",
            ),
        ],
    )
    def test_what_does_not_is_refused_by_site_name_and_number(self, array, options, reason):
        with pytest.raises(MessageError, match=f"site 'oslo': {reason}"):
            check_array(array, (None, 3), "oslo", "sums", **options)
