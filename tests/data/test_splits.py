import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fedhk.datasets import split_by_group, split_dirichlet, split_even, split_views

seeds = st.integers(0, 2**32 - 1)
row_labels = st.lists(st.sampled_from("abcd"), min_size=1, max_size=60)


def assert_partitions(split, n_samples):
    assert sorted(np.concatenate(list(split.values())).tolist()) == list(range(n_samples))
    for rows in split.values():
        assert rows.dtype == np.intp
        assert (np.diff(rows) > 0).all()


def assert_same(split, other):
    assert list(split) == list(other)
    for site in split:
        np.testing.assert_array_equal(split[site], other[site])


class TestSplitEven:
    @given(row_labels, seeds, st.data())
    def test_sites_and_classes_differ_by_at_most_one_row(self, labels, seed, data):
        n_sites = data.draw(st.integers(1, len(labels)))
        split = split_even(labels, n_sites, random_state=seed)
        assert_partitions(split, len(labels))
        assert len(split) == n_sites
        assert np.ptp([rows.size for rows in split.values()]) <= 1
        for label in "abcd":
            assert np.ptp([np.sum(np.asarray(labels)[rows] == label) for rows in split.values()]) <= 1

    @given(st.integers(1, 300), seeds)
    def test_takes_a_number_of_rows(self, n_samples, seed):
        assert_partitions(split_even(n_samples, max(1, n_samples // 3), random_state=seed), n_samples)

    def test_list_and_array_of_labels_split_alike(self):
        labels = list("bacabccab") * 5
        assert_same(split_even(labels, 4, random_state=3), split_even(np.array(labels), 4, random_state=3))

    def test_site_names_sort_in_their_order(self):
        assert list(split_even(12, 3, random_state=0)) == ["site-00", "site-01", "site-02"]
        names = list(split_even(101, 101, random_state=0))
        assert names == sorted(names)
        assert (names[0], names[-1]) == ("site-000", "site-100")

    def test_rows_are_shuffled(self):
        assert split_even(1000, 2, random_state=0)["site-00"].tolist() != list(range(0, 1000, 2))

    @pytest.mark.parametrize(
        ("labels_or_n", "n_sites", "message"),
        [
            (3, 4, r"n_sites=4 .* need 4 rows, got 3"),
            ("abc", 1, r"labels_or_n"),
            (["a", "b"], 3, r"n_sites=3 .* got 2"),
            (10, 0, r"n_sites .* at least 1, got 0"),
            (10, 2.5, r"n_sites .* got 2.5"),
            (0, 1, r"labels_or_n .* at least 1, got 0"),
        ],
    )
    def test_says_what_is_wrong(self, labels_or_n, n_sites, message):
        with pytest.raises((ValueError, TypeError), match=message):
            split_even(labels_or_n, n_sites)


class TestSplitDirichlet:
    @given(row_labels, st.sampled_from([1e-6, 0.1, 1.0, 100.0, 1e300, np.inf]), seeds, st.data())
    def test_partitions_the_rows_and_leaves_no_site_too_small(self, labels, concentration, seed, data):
        n_sites = data.draw(st.integers(1, len(labels)))
        min_rows = data.draw(st.integers(0, len(labels) // n_sites))
        split = split_dirichlet(labels, n_sites, concentration, min_rows, random_state=seed)
        assert_partitions(split, len(labels))
        assert len(split) == n_sites
        assert min(rows.size for rows in split.values()) >= min_rows

    @staticmethod
    def unevenness(concentration):
        labels = np.repeat(np.arange(5), 400)
        split = split_dirichlet(labels, 10, concentration, random_state=0)
        counts = np.array([np.bincount(labels[rows], minlength=5) for rows in split.values()])
        return counts.std(axis=0).mean() / 40

    def test_smaller_concentration_is_less_even(self):
        uneven, middle, even = map(self.unevenness, (0.1, 1.0, 100.0))
        assert uneven > 1.5 * middle > 3 * even
        assert self.unevenness(np.inf) == 0

    def test_shares_have_the_variance_of_the_dirichlet_law(self):
        labels = np.repeat(np.arange(300), 200)
        split = split_dirichlet(labels, 5, 1.0, random_state=0)
        shares = np.array([np.bincount(labels[rows], minlength=300) for rows in split.values()]) / 200
        assert shares.var() == pytest.approx((1 / 5) * (4 / 5) / (5 + 1), rel=0.1)

    @pytest.mark.parametrize("concentration", [0, -1.0, float("nan"), None, "high"])
    def test_refuses_a_concentration_that_is_not_positive(self, concentration):
        with pytest.raises(ValueError, match="concentration must be a number above 0, got"):
            split_dirichlet([0, 1, 0], 2, concentration)

    def test_refuses_more_rows_than_there_are(self):
        with pytest.raises(ValueError, match=r"n_sites=3 with at least 4 row\(s\) each need 12 rows, got 10"):
            split_dirichlet([0] * 10, 3, min_rows=4)


class TestSplitByGroup:
    @given(row_labels)
    def test_every_group_is_a_site(self, groups):
        split = split_by_group(groups)
        assert_partitions(split, len(groups))
        assert list(split) == sorted(set(groups))
        for name, rows in split.items():
            assert {groups[row] for row in rows} == {name}

    def test_numbers_keep_their_order_and_become_strings(self):
        assert list(split_by_group(np.array([10, 9, 10, 1]))) == ["1", "9", "10"]

    def test_refuses_groups_with_the_same_name(self):
        with pytest.raises(ValueError, match="several groups read '1'"):
            split_by_group([1, "1"])


class TestSplitViews:
    @pytest.mark.parametrize(
        "kind", [np.asarray, pd.DataFrame, pl.DataFrame, sparse.csr_array, sparse.coo_matrix, np.ndarray.tolist]
    )
    def test_takes_the_rows_of_views_of_any_kind(self, kind):
        view = np.arange(30.0).reshape(10, 3)
        split = split_even(10, 3, random_state=0)
        sites = split_views([kind(view), None], split)
        assert list(sites) == list(split)
        for site, rows in split.items():
            part, missing = sites[site]
            assert missing is None
            dense = part.toarray() if sparse.issparse(part) else np.asarray(part)
            np.testing.assert_array_equal(dense, view[rows])

    def test_frames_stay_frames(self):
        view = np.arange(6.0).reshape(3, 2)
        sites = split_views([pd.DataFrame(view, index=list("abc")), pl.DataFrame(view)], {"rome": [2, 0]})
        assert sites["rome"][0].index.tolist() == ["c", "a"]
        assert isinstance(sites["rome"][1], pl.DataFrame)

    def test_one_array_is_one_view(self):
        (part,) = split_views(np.eye(4), {"rome": [1]})["rome"]
        np.testing.assert_array_equal(part, [[0, 1, 0, 0]])

    def test_views_by_name_keep_their_names(self):
        views = {"a": np.arange(6).reshape(3, 2), "b": np.zeros((3, 1))}
        sites = split_views(views, {"rome": [2, 0]})
        assert list(sites["rome"]) == ["a", "b"]
        np.testing.assert_array_equal(sites["rome"]["a"], views["a"][[2, 0]])

    def test_tensors_keep_their_shape(self):
        view = np.arange(24.0).reshape(4, 3, 2)
        np.testing.assert_array_equal(split_views([view], {"rome": [2, 0]})["rome"][0], view[[2, 0]])

    @pytest.mark.parametrize(
        ("views", "split", "message"),
        [
            ([np.ones((3, 1)), np.ones((4, 1))], {}, r"as many rows each, got views of \[3, 4\] rows"),
            ([], {}, r"at least one"),
            ([np.ones(3)], {}, r"views\[0\] must be at least 2-D, got ndarray of shape \(3,\)"),
            ([np.ones((3, 1))], {"rome": [3]}, r"split\['rome'\] holds row 3, but the views have rows 0 to 2"),
            ([np.ones((3, 1))], {"rome": [-1]}, r"split\['rome'\] holds row -1"),
            ([np.ones((3, 1))], {"rome": [True, False, True]}, r"split\['rome'\] .* row numbers, got bool"),
        ],
    )
    def test_says_what_is_wrong(self, views, split, message):
        with pytest.raises(ValueError, match=message):
            split_views(views, split)


class TestRandomState:
    @pytest.mark.parametrize("make", [int, np.random.default_rng, np.random.RandomState, np.int64])
    def test_same_seed_same_split(self, make):
        labels = np.arange(100) % 7
        assert_same(split_even(labels, 4, random_state=make(5)), split_even(labels, 4, random_state=make(5)))
        assert_same(split_dirichlet(labels, 4, random_state=make(5)), split_dirichlet(labels, 4, random_state=make(5)))

    @pytest.mark.parametrize("state", [np.random.default_rng(0), np.random.RandomState(0), None])
    def test_a_generator_moves_on(self, state):
        first, second = (split_even(1000, 2, random_state=state)["site-00"] for _ in range(2))
        assert first.tolist() != second.tolist()

    @pytest.mark.parametrize("state", [None, 0])
    def test_global_state_is_neither_read_nor_changed(self, state):
        before = np.random.get_state()[1:3]  # noqa: NPY002
        split_even(100, 4, random_state=state)
        after = np.random.get_state()[1:3]  # noqa: NPY002
        np.testing.assert_array_equal(before[0], after[0])
        assert before[1] == after[1]

    @pytest.mark.parametrize("state", [-1, 1.5, "seed", True])
    def test_refuses_anything_else(self, state):
        with pytest.raises(ValueError, match="random_state must be"):
            split_even(10, 2, random_state=state)
