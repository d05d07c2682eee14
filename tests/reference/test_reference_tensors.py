import math

import numpy as np
import pytest
import tensorly as tl
from tensorly.cp_tensor import cp_to_tensor
from tensorly.parafac2_tensor import parafac2_to_slices
from tensorly.tenalg import mode_dot

from fedhk import reference


@pytest.fixture
def tensor():
    return np.random.default_rng(0).normal(size=(3, 4, 2))


def test_tensorize_pads_with_zeros():
    first, second = np.arange(1.0, 7.0).reshape(2, 3), np.array([[8.0], [9.0]])
    tensor = reference.tensorize([first, second])
    assert tensor.shape == (2, 3, 2)
    np.testing.assert_array_equal(tensor[:, :, 0], first)
    np.testing.assert_array_equal(tensor[:, :, 1], [[8, 0, 0], [9, 0, 0]])
    for slice_, view in zip(reference.untensorize(tensor, [3, 1]), [first, second], strict=True):
        np.testing.assert_array_equal(slice_, view)


def test_unfolding_of_a_cube_by_hand():
    # The example of Kolda and Bader: X_1 = [[1, 3], [2, 4]], X_2 = [[5, 7], [6, 8]].
    cube = np.stack([np.array([[1.0, 3.0], [2.0, 4.0]]), np.array([[5.0, 7.0], [6.0, 8.0]])], axis=2)
    np.testing.assert_array_equal(reference.unfold(cube, 0), [[1, 3, 5, 7], [2, 4, 6, 8]])
    np.testing.assert_array_equal(reference.unfold(cube, 1), [[1, 2, 5, 6], [3, 4, 7, 8]])
    np.testing.assert_array_equal(reference.unfold(cube, 2), [[1, 2, 3, 4], [5, 6, 7, 8]])


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_mode_product_coincides_with_einsum_tensorly_and_the_unfolding(tensor, mode):
    matrix = np.random.default_rng(1).normal(size=(5, tensor.shape[mode]))
    product = reference.mode_product(tensor, matrix, mode)
    subscripts = ["gbc,zg->zbc", "agc,zg->azc", "abg,zg->abz"][mode]
    np.testing.assert_allclose(product, np.einsum(subscripts, tensor, matrix))
    np.testing.assert_allclose(product, mode_dot(tl.tensor(tensor), matrix, mode))
    np.testing.assert_allclose(reference.unfold(product, mode), matrix @ reference.unfold(tensor, mode))


def test_mode_products_along_different_modes_commute(tensor):
    rng = np.random.default_rng(2)
    left, right = rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
    one = reference.mode_product(reference.mode_product(tensor, left, 0), right, 1)
    other = reference.mode_product(reference.mode_product(tensor, right, 1), left, 0)
    np.testing.assert_allclose(one, other)


def test_shape_errors_name_the_mode_and_both_sizes(tensor):
    with pytest.raises(ValueError, match=r"mode 1 of the tensor has size 4, the matrix 5 columns"):
        reference.mode_product(tensor, np.ones((2, 5)), 1)
    with pytest.raises(ValueError, match=r"mode 0 of the left tensor has size 3, mode 1 of the right one 2"):
        reference.inner_product(tensor, np.ones((3, 2)), 0, 1)
    with pytest.raises(ValueError, match=r"shape \(3, 4, 2\), the right one \(2, 2\)"):
        reference.scalar_product(tensor, np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"rank 5 of mode 1 should be between 1 and its size 4"):
        reference.hosvd(tensor, [1, 5, 1])


def test_inner_scalar_and_outer_products_coincide_with_numpy(tensor):
    rng = np.random.default_rng(3)
    other = rng.normal(size=(5, 4))
    np.testing.assert_allclose(reference.inner_product(tensor, other, 1, 1), np.tensordot(tensor, other, axes=(1, 1)))
    assert reference.scalar_product(tensor, 2 * tensor) == pytest.approx(2 * (tensor**2).sum())
    assert reference.frobenius_norm(tensor) == pytest.approx(np.linalg.norm(tensor))
    x, y, z = rng.normal(size=2), rng.normal(size=3), rng.normal(size=4)
    np.testing.assert_allclose(reference.outer_product([x, y, z]), np.einsum("a,b,c->abc", x, y, z))


def test_cp_coincides_with_tensorly_and_is_a_tucker_with_a_diagonal_core():
    rng = np.random.default_rng(4)
    weights, factors = rng.normal(size=2), [rng.normal(size=(g, 2)) for g in (3, 4, 2)]
    built = reference.cp_to_tensor(weights, factors)
    np.testing.assert_allclose(built, cp_to_tensor((weights, factors)))
    core = np.zeros((2, 2, 2))
    core[0, 0, 0], core[1, 1, 1] = weights
    np.testing.assert_allclose(built, reference.tucker_to_tensor(core, factors))


def test_parafac2_proper_coincides_with_tensorly_and_has_slices_of_different_width():
    rng = np.random.default_rng(5)
    cluster, feature, view = rng.normal(size=(4, 2)), rng.normal(size=(2, 2)), rng.normal(size=(3, 2))
    bases = [np.linalg.qr(rng.normal(size=(width, 2)))[0] for width in (5, 3, 2)]
    slices = reference.parafac2_to_slices(cluster, feature, view, bases)
    assert [a.shape for a in slices] == [(4, 5), (4, 3), (4, 2)]
    # Tensorly's slices are B_h Q diag(R_h) P^T.
    expected = parafac2_to_slices((None, [view, feature, cluster], bases))
    for a, b in zip(slices, expected, strict=True):
        np.testing.assert_allclose(a, b.T)


def test_hosvd_reconstructs_with_orthonormal_factors_and_an_all_orthogonal_core(tensor):
    core, factors = reference.hosvd(tensor)
    np.testing.assert_allclose(reference.tucker_to_tensor(core, factors), tensor, atol=1e-12)
    for mode, factor in enumerate(factors):
        np.testing.assert_allclose(factor.T @ factor, np.eye(len(factor)), atol=1e-12)
        gram = reference.unfold(core, mode) @ reference.unfold(core, mode).T
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12)


def test_truncated_hosvd_stays_within_its_bound():
    for seed in range(10):
        tensor = np.random.default_rng(seed).normal(size=(3, 4, 2))
        ranks = [2, 2, 1]
        core, factors = reference.hosvd(tensor, ranks)
        error = reference.frobenius_norm(tensor - reference.tucker_to_tensor(core, factors)) ** 2
        assert 0 < error <= reference.hosvd_error_bound(tensor, ranks)


def test_the_printed_position_of_definition_8_is_no_numbering():
    shape = (2, 3, 2)
    indices = list(np.ndindex(*shape))
    assert len({reference.vector_position(index, shape) for index in indices}) == 12
    assert len({reference.printed_position(index, shape, skipped_mode=1) for index in indices}) == 4


def test_tensor_distance_of_one_element_by_hand():
    x, a = np.array([3.0]), np.array([1.0])
    # Corrected: rho = 1 / (2 pi theta). Printed: the index distance is (1 + 1)^2 = 4, so exp(4) / (2 theta) more.
    assert reference.tensor_distance(x, a, 2.0) == pytest.approx(2 / math.sqrt(4 * math.pi))
    printed = reference.tensor_distance(x, a, 2.0, "printed")
    assert printed == pytest.approx(2 * math.sqrt(math.exp(4) / 4 / (4 * math.pi)))


def test_corrected_tensor_distance_is_a_metric_that_decays():
    rng = np.random.default_rng(6)
    x, y, z = rng.normal(size=(3, 2, 3))
    matrix = reference.metric_matrix((2, 3), 1.0)
    np.testing.assert_allclose(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > 0
    assert matrix[0, 0] > matrix[0, 1] > matrix[0, 5]
    assert reference.tensor_distance(x, x, 1.0) == 0
    both = reference.tensor_distance(x, y, 1.0) + reference.tensor_distance(y, z, 1.0)
    assert reference.tensor_distance(x, z, 1.0) <= both
    vector = (x - y).ravel(order="F")
    assert reference.tensor_distance(x, y, 1.0) == pytest.approx(math.sqrt(vector @ matrix @ vector))


def test_printed_metric_grows_with_the_index_and_overflows():
    matrix = reference.metric_matrix((2, 2), 1.0, "printed")
    assert matrix[0, 0] < matrix[0, 3] < matrix[3, 3]
    with pytest.raises(OverflowError):
        reference.metric_matrix((14,), 1.0, "printed")
    with pytest.raises(ValueError, match=r"shape \(2,\), the right one \(3,\)"):
        reference.tensor_distance(np.ones(2), np.ones(3), 1.0)
