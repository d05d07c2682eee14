from itertools import permutations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.spatial.distance import cdist

from fedhk.metrics import matched_accuracy, partition_coefficient, partition_entropy, xie_beni

labels = st.integers(1, 40).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2))
memberships = (
    st.tuples(st.integers(1, 20), st.integers(1, 6))
    .flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(0, 1)))
    .filter(lambda mu: mu.sum(axis=1).min() > 0.01)
    .map(lambda mu: mu / mu.sum(axis=1, keepdims=True))
)


class TestMatchedAccuracy:
    @given(labels, st.permutations(range(5)))
    def test_does_not_depend_on_the_names_of_clusters(self, pair, names):
        classes, clusters = pair
        renamed = [f"cluster {names[k]}" for k in clusters]
        assert matched_accuracy(classes, renamed) == matched_accuracy(classes, clusters)

    @given(labels)
    def test_is_the_best_over_all_matchings(self, pair):
        classes, clusters = map(np.asarray, pair)
        best = max(np.mean(np.asarray(matching)[clusters] == classes) for matching in permutations(range(5)))
        assert matched_accuracy(classes, clusters) == pytest.approx(best)

    @given(labels)
    def test_is_symmetric_and_one_for_itself(self, pair):
        assert matched_accuracy(*pair) == matched_accuracy(*pair[::-1])
        assert matched_accuracy(pair[0], pair[0]) == 1.0

    def test_greedy_matching_would_be_worse(self):
        # greedy takes the pair of 4 and then nothing (4 of 10); the best matching takes 3 + 3
        assert matched_accuracy([0] * 7 + [1] * 3, [0] * 4 + [1] * 3 + [0] * 3) == 0.6

    def test_more_clusters_than_classes_leave_rows_unmatched(self):
        assert matched_accuracy([0, 0, 0, 1], [0, 0, 1, 2]) == 0.75
        assert matched_accuracy([0, 0, 1, 2], [0, 0, 0, 1]) == 0.75
        assert matched_accuracy([0] * 4, range(4)) == 0.25

    @pytest.mark.parametrize(
        "names",
        [
            ["a", "a", "b"],
            np.array(["a", "a", "b"]),
            np.array([1.5, 1.5, 0.0]),
            np.array(["a", "a", 3], dtype=object),
            ["1", "1", 1],
            [(0, 1), (0, 1), (1, 0)],
            [None, None, "x"],
            pd.Series(["a", "a", "b"], index=[7, 8, 9]),
            pd.Series(["a", "a", "b"], dtype="category"),
            pl.Series(["a", "a", "b"]),
            (True, True, False),
        ],
    )
    def test_takes_any_hashable_labels(self, names):
        assert matched_accuracy(names, [5, 5, 2]) == 1.0
        assert matched_accuracy([5, 2, 2], names) == pytest.approx(2 / 3)

    @pytest.mark.parametrize(
        ("true", "pred", "message"),
        [
            ([0, 1], [0, 1, 1], r"labels_true and labels_pred .* 2 and 3"),
            ([], [], r"labels_true .* empty"),
            ([0, 1], np.zeros((2, 1)), r"labels_pred .* one-dimensional.*\(2, 1\)"),
            ([[0], [1]], [0, 1], r"labels_true .* hashable.*\[0\] at row 0"),
            ([0.0, float("nan")], [0, 1], r"labels_true is NaN at row 1"),
            ([0, 1], np.array([0.0, np.nan]), r"labels_pred is NaN at row 1"),
        ],
    )
    def test_says_what_is_wrong(self, true, pred, message):
        with pytest.raises(ValueError, match=message):
            matched_accuracy(true, pred)

    @pytest.mark.parametrize("value", ["abc", 3, None])
    def test_refuses_what_is_not_a_sequence(self, value):
        with pytest.raises(TypeError, match="labels_true must be a sequence"):
            matched_accuracy(value, [0, 1, 2])


class TestPartitionIndices:
    @given(memberships)
    def test_stay_within_their_bounds(self, mu):
        n_clusters = mu.shape[1]
        assert 1 / n_clusters - 1e-9 <= partition_coefficient(mu) <= 1 + 1e-9
        assert -1e-9 <= partition_entropy(mu) <= np.log(n_clusters) + 1e-9

    @pytest.mark.parametrize("n_clusters", [1, 2, 7])
    def test_reach_their_bounds(self, n_clusters):
        crisp, even = np.eye(n_clusters), np.full((3, n_clusters), 1 / n_clusters)
        assert (partition_coefficient(crisp), partition_entropy(crisp)) == (1.0, 0.0)
        assert partition_coefficient(even) == pytest.approx(1 / n_clusters)
        assert partition_entropy(even) == pytest.approx(np.log(n_clusters))

    def test_take_single_precision(self):
        mu = np.random.default_rng(0).dirichlet(np.ones(50), 1000).astype(np.float32)
        assert partition_coefficient(mu) == pytest.approx(partition_coefficient(mu.astype(np.float64)))

    @pytest.mark.parametrize("index", [partition_coefficient, partition_entropy])
    @pytest.mark.parametrize(
        ("mu", "message"),
        [
            ([0.5, 0.5], r"memberships must be 2-D .*\(2,\)"),
            (np.empty((0, 2)), r"memberships .*\(0, 2\)"),
            ([[0.5, 0.4]], r"sum to 1 .* 0.9 in row 0"),
            ([[1, 0], [1.5, -0.5]], r"not negative, got -0.5"),
            ([[np.nan, 1]], r"finite .* nan"),
            ({"rome": [[1.0]]}, r"memberships must be a 2-D array of numbers, got dict"),
        ],
    )
    def test_say_what_is_wrong(self, index, mu, message):
        with pytest.raises(ValueError, match=message):
            index(mu)


def naive_xie_beni(views, centers, mu, m, weights):
    to_centers = sum(w * cdist(x, a, "sqeuclidean") for w, x, a in zip(weights, views, centers, strict=True))
    between = sum(w * cdist(a, a, "sqeuclidean") for w, a in zip(weights, centers, strict=True))
    np.fill_diagonal(between, np.inf)
    return (mu**m * to_centers).sum() / (len(mu) * between.min())


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(30, 4)), rng.normal(size=(30, 2))]
    centers = [rng.normal(size=(3, 4)), rng.normal(size=(3, 2))]
    return views, centers, rng.dirichlet(np.ones(3), 30)


class TestXieBeni:
    @pytest.mark.parametrize("m", [1.0, 1.1, 2.0])
    @pytest.mark.parametrize("weights", [None, [0.7, 0.3], [0.0, 1.0]])
    def test_coincides_with_naive_implementation(self, model, m, weights):
        expected = naive_xie_beni(*model, m, weights or [1.0, 1.0])
        assert xie_beni(*model, fuzzifier=m, view_weights=weights) == pytest.approx(expected)

    def test_one_array_is_one_view(self, model):
        views, centers, mu = model
        expected = xie_beni(views[:1], centers[:1], mu)
        assert xie_beni(views[0], centers[0], mu) == expected
        assert xie_beni(views[0].tolist(), centers[0].tolist(), mu.tolist()) == expected

    @pytest.mark.parametrize(
        "kind", [sparse.csr_array, sparse.coo_matrix, pd.DataFrame, pl.DataFrame, np.ndarray.tolist]
    )
    def test_takes_views_of_any_kind(self, model, kind):
        views, centers, mu = model
        assert xie_beni([kind(view) for view in views], centers, mu) == pytest.approx(xie_beni(views, centers, mu))

    @given(st.floats(0.01, 100), st.floats(-100, 100))
    def test_does_not_depend_on_origin_and_unit(self, factor, offset):
        x = np.array([[0.0], [2.0], [10.0], [13.0]])
        mu = np.repeat(np.eye(2), 2, axis=0)
        moved = xie_beni(factor * x + offset, factor * np.array([[1.0], [11.0]]) + offset, mu)
        assert moved == pytest.approx((1 + 1 + 1 + 4) / (4 * 100), rel=1e-6)

    def test_missing_cells_add_nothing(self):
        x = np.array([[0.0, np.nan], [2.0, 1.0], [10.0, 0.0], [np.nan, np.nan]])
        centers = np.array([[1.0, 0.0], [11.0, 0.0]])
        mu = np.repeat(np.eye(2), 2, axis=0)
        assert xie_beni(x, centers, mu) == pytest.approx((1 + (1 + 1) + 1 + 0) / (4 * 100))

    def test_a_missing_view_is_a_view_of_missing_cells(self, model):
        views, centers, mu = model
        missing = np.full_like(views[1], np.nan)
        assert xie_beni([views[0], None], centers, mu) == xie_beni([views[0], missing], centers, mu)

    def test_coinciding_centers_give_infinity(self, model):
        views, centers, mu = model
        doubled = [center[[0, 0, 1]] for center in centers]
        assert xie_beni(views, doubled, mu) == np.inf
        assert xie_beni([view * 0 for view in views], [center * 0 for center in centers], mu) == np.inf

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"fuzzifier": 0.5}, r"fuzzifier .* at least 1, got 0.5"),
            ({"fuzzifier": "auto"}, r"fuzzifier .* 'auto'"),
            ({"view_weights": [1.0]}, r"view_weights .*\(2,\).*\(1,\)"),
            ({"view_weights": [1.0, -1.0]}, r"view_weights .* not negative.*-1.0"),
            ({"views": [np.ones((30, 4))]}, r"1 views and 2 centers"),
            ({"views": [np.ones((30, 4)), np.ones((30, 3))]}, r"views\[1\] has shape \(30, 3\).* 2 features"),
            ({"views": [np.ones((29, 4)), None]}, r"views\[0\] has shape \(29, 4\).* 30 rows"),
            ({"views": [np.full((30, 4), np.inf), None]}, r"views\[0\] must be finite or NaN, got inf"),
            ({"centers": [np.ones((2, 4)), np.ones((2, 2))]}, r"centers\[0\] has 2 clusters, but memberships has 3"),
            ({"centers": [np.full((3, 4), np.nan), None]}, r"centers\[0\] must be finite, got nan"),
            ({"views": [], "centers": []}, r"at least one view"),
            ({"memberships": np.ones((30, 1))}, r"at least 2 clusters .* got 1"),
        ],
    )
    def test_says_what_is_wrong(self, model, change, message):
        with pytest.raises(ValueError, match=message):
            xie_beni(**dict(zip(("views", "centers", "memberships"), model, strict=True)) | change)
