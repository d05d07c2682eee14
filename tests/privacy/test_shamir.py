import secrets
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedhk.privacy.shamir import PRIME, SHARE_BYTES, ShareError, recover, split

SECRET = bytes(range(32))


@st.composite
def sharings(draw):
    n = draw(st.integers(1, 12))
    threshold = draw(st.integers(1, n))
    secret = draw(st.binary(min_size=32, max_size=32))
    holders = draw(st.permutations(range(1, n + 1)))
    return secret, n, threshold, holders


def by_point(shares, points):
    return {point: shares[point - 1] for point in points}


@settings(max_examples=50)
@given(sharings(), st.data())
def test_any_shares_from_the_threshold_on_give_the_secret_back(sharing, data):
    secret, n, threshold, holders = sharing
    shares = split(secret, n, threshold)
    count = data.draw(st.integers(threshold, n))
    assert {len(share) for share in shares} == {SHARE_BYTES}
    assert recover(by_point(shares, holders[:count]), threshold) == secret


@settings(max_examples=50)
@given(sharings(), st.data())
def test_too_few_shares_are_refused_with_both_numbers(sharing, data):
    secret, n, threshold, holders = sharing
    count = data.draw(st.integers(0, threshold - 1))
    with pytest.raises(ShareError, match=f"{count} shares, {threshold} are needed"):
        recover(by_point(split(secret, n, threshold), holders[:count]), threshold)


@settings(max_examples=50)
@given(sharings(), st.data())
def test_one_wrong_share_is_refused_wherever_it_is(sharing, data):
    secret, n, threshold, holders = sharing
    count = data.draw(st.integers(threshold, n))
    shares = by_point(split(secret, n, threshold), holders[:count])
    victim = data.draw(st.sampled_from(sorted(shares)))
    value = int.from_bytes(shares[victim], "little")
    other = data.draw(st.integers(0, PRIME - 1).filter(lambda number: number != value))
    shares[victim] = other.to_bytes(SHARE_BYTES, "little")
    with pytest.raises(ShareError):
        recover(shares, threshold)


def test_a_smaller_threshold_than_that_of_the_split_gives_no_secret():
    with pytest.raises(ShareError, match="at least one is wrong"):
        recover(by_point(split(SECRET, 5, 4), (1, 2, 3)), 3)


def test_shares_at_the_wrong_points_or_of_two_secrets_are_refused():
    first, second = split(SECRET, 4, 3), split(bytes(32), 4, 3)
    with pytest.raises(ShareError):
        recover({1: first[1], 2: first[0], 3: first[2]}, 3)
    with pytest.raises(ShareError):
        recover({1: first[0], 2: first[1], 3: second[2]}, 3)
    with pytest.raises(ShareError, match="counted from 1"):
        recover({0: first[0], 2: first[1], 3: first[2]}, 3)


@pytest.mark.parametrize("share", [b"", bytes(47), bytes(49), b"\xff" * 48])
def test_what_is_no_share_is_refused(share):
    shares = by_point(split(SECRET, 3, 2), (1, 2)) | {3: share}
    with pytest.raises(ShareError):
        recover(shares, 2)


@pytest.mark.parametrize(("n", "threshold"), [(3, 0), (3, 4), (0, 0)])
def test_impossible_thresholds_are_refused(n, threshold):
    with pytest.raises(ValueError, match="threshold"):
        split(SECRET, n, threshold)


def test_secrets_of_another_length_are_refused():
    with pytest.raises(ValueError, match="31 bytes, expected 32"):
        split(bytes(31), 3, 2)


def test_the_field_is_prime_and_larger_than_what_is_shared():
    assert PRIME > 2 ** (8 * 47)
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(20):  # Miller and Rabin
        x = pow(2 + secrets.randbelow(PRIME - 3), odd, PRIME)
        assert x in (1, PRIME - 1) or any(pow(x, 2**k, PRIME) == PRIME - 1 for k in range(1, twos))


def test_fewer_shares_than_the_threshold_look_the_same_for_every_secret(entropy):
    """Bytes of two of three shares, over many sharings of a secret of zeros: uniform, alone and in their difference."""
    counts = {name: [0] * 256 for name in ("1", "2", "1 - 2")}
    for _ in range(400):
        shares = [int.from_bytes(share, "little") for share in split(bytes(32), 3, 3, entropy=entropy)]
        for name, value in (("1", shares[0]), ("2", shares[1]), ("1 - 2", (shares[0] - shares[1]) % PRIME)):
            for byte in value.to_bytes(SHARE_BYTES, "little")[:47]:
                counts[name][byte] += 1
    assert all(chisquare(count).pvalue > 1e-6 for count in counts.values())


def test_every_set_of_shares_of_the_threshold_gives_the_same_secret():
    shares = split(SECRET, 6, 3)
    assert {recover(by_point(shares, points), 3) for points in combinations(range(1, 7), 3)} == {SECRET}


@pytest.fixture
def entropy():
    """Random bytes that are the same in every run."""
    return np.random.default_rng(0).bytes
