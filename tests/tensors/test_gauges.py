"""Signs, scales, orders and turns that leave centres as they are."""

from __future__ import annotations

import numpy as np

from fedhk.tensors.gauges import best_signs, core_rotations, match_columns, peak_signs, ratio


def test_the_sign_of_a_column_is_that_of_its_largest_entry():
    np.testing.assert_array_equal(peak_signs(np.array([[1.0, -3.0, 0.0], [-2.0, 1.0, 0.0]])), [-1.0, -1.0, 1.0])


def test_columns_are_matched_whatever_their_order_sign_and_scale():
    generator = np.random.default_rng(0)
    parts = [generator.standard_normal((6, 4)) for _ in range(2)]
    order = np.array([2, 0, 3, 1])
    changed = [part[:, order] * scale for part, scale in zip(parts, (-2.0, 0.3), strict=True)]
    np.testing.assert_array_equal(match_columns(parts, changed), order)


def test_signs_of_rows_and_columns_make_a_matrix_of_rank_one_positive():
    signs = np.outer([1.0, -1.0, 1.0], [-1.0, 1.0])
    rows, columns = best_signs(signs * np.array([[1.0, 2.0], [3.0, 1.0], [2.0, 2.0]]))
    assert np.all(rows[:, None] * columns * signs == 1.0)


def test_a_ratio_with_zero_is_one():
    np.testing.assert_array_equal(ratio(np.array([4.0, 0.0, 3.0]), np.array([2.0, 5.0, 0.0])), [2.0, 1.0, 1.0])


def test_a_turned_core_has_orthogonal_slices_of_falling_size():
    generator = np.random.default_rng(0)
    core = generator.standard_normal((3, 4, 2))
    first, second, third = core_rotations(core, [np.eye(size) for size in core.shape])
    turned = np.einsum("abc,ai,bj,ck->ijk", core, first, second, third)
    for mode in range(3):
        flat = np.moveaxis(turned, mode, 0).reshape(turned.shape[mode], -1)
        gram = flat @ flat.T
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12)
        assert np.all(np.diff(np.diag(gram)) <= 1e-12)
