from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedhk.privacy import shamir
from fedhk.privacy.shamir import PRIME, SHARE_BYTES, ShareError, recover

SECRET = bytes(range(32))


def split(secret, n, threshold, **options):
    """Shares of one secret at the points 1 to n."""
    shares = shamir.split(np.frombuffer(secret, np.uint8)[None], np.arange(1, n + 1), threshold, **options)
    return [share.tobytes() for share in shares[:, 0]]


def numbers_of(share):
    """The elements of the field in a share."""
    return [int.from_bytes(share[i : i + 3], "little") for i in range(0, SHARE_BYTES, 3)]


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
    place, value = data.draw(st.integers(0, 15)), numbers_of(shares[victim])
    other = data.draw(st.integers(0, PRIME - 1).filter(lambda number: number != value[place]))
    value[place] = other
    shares[victim] = b"".join(number.to_bytes(3, "little") for number in value)
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
    assert PRIME > 2**23
    assert 16 * 23 == 8 * (32 + 14)
    assert all(PRIME % divisor for divisor in range(2, 4097))


def test_fewer_shares_than_the_threshold_look_the_same_for_every_secret(entropy):
    """Bytes of two of three shares, over many sharings of a secret of zeros: uniform, alone and in their difference."""
    counts = {name: [0] * 256 for name in ("1", "2", "1 - 2")}
    for _ in range(400):
        first, second, _ = map(numbers_of, split(bytes(32), 3, 3, entropy=entropy))
        difference = [(one - other) % PRIME for one, other in zip(first, second, strict=True)]
        for name, values in (("1", first), ("2", second), ("1 - 2", difference)):
            for byte in b"".join(value.to_bytes(3, "little") for value in values):
                counts[name][byte] += 1
    assert all(chisquare(count).pvalue > 1e-6 for count in counts.values())


def test_every_set_of_shares_of_the_threshold_gives_the_same_secret():
    shares = split(SECRET, 6, 3)
    assert {recover(by_point(shares, points), 3) for points in combinations(range(1, 7), 3)} == {SECRET}


@pytest.fixture
def entropy():
    """Random bytes that are the same in every run."""
    return np.random.default_rng(0).bytes


def test_many_secrets_are_shared_at_once_at_any_points():
    rng = np.random.default_rng(0)
    secrets, points = rng.integers(0, 256, (7, 32), np.uint8), np.sort(rng.choice(10_000, 90, replace=False)) + 1
    shares = shamir.split(secrets, points, 61)
    assert shares.shape == (90, 7, SHARE_BYTES)
    for i, secret in enumerate(secrets):
        for count in (61, 90):
            held = {int(point): shares[row, i].tobytes() for row, point in list(enumerate(points))[-count:]}
            assert recover(held, 61) == secret.tobytes()


def test_shares_are_values_of_a_polynomial():
    """Computed again by hand, in whole numbers: the share at a point is secret + a x + b x^2."""
    shares = [numbers_of(share) for share in split(SECRET, 5, 3)]
    for place in range(16):
        values = [share[place] for share in shares]
        differences = np.diff(values, n=3)  # of a polynomial of degree 2 they vanish
        assert not np.any(differences % PRIME)
