import math

import numpy as np
import pytest

from fedhk import reference


def test_sample_average_by_hand_keeps_view_weights_on_the_simplex():
    average = reference.sample_average([np.array([0.2, 0.8]), np.array([0.6, 0.4])], [30, 10])
    np.testing.assert_allclose(average, [0.3, 0.7])


def test_centre_statistics_of_a_split_give_the_pooled_fuzzy_means():
    rng = np.random.default_rng(0)
    x, mu = rng.normal(size=(9, 2)), rng.dirichlet(np.ones(3), size=9)
    parts = [reference.center_statistics(x[rows], mu[rows], 2.0) for rows in (slice(0, 4), slice(4, 9))]
    centers = reference.aggregate_center_statistics([p[0] for p in parts], [p[1] for p in parts], np.full(2, 0.5))
    np.testing.assert_allclose(centers, (mu**2).T @ x / (mu**2).sum(axis=0)[:, None])


def test_view_weights_by_quality_and_size():
    weights = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
    np.testing.assert_allclose(reference.aggregate_view_weights(weights, np.array([0.75, 0.25]), [1, 3]), [0.5, 0.5])


def test_client_weights_by_hand():
    omega = reference.client_weights([0.0, math.log(3.0)], 1.0)
    np.testing.assert_allclose(omega, [0.75, 0.25])


def test_client_weights_underflow_over_sums_and_not_over_means():
    objectives, sizes = [1000.0, 1010.0], [2000, 2000]
    with pytest.raises(ZeroDivisionError):
        reference.client_weights(objectives, 1.0)
    np.testing.assert_allclose(reference.client_weights(objectives, 1.0, sizes), [0.50125, 0.49875], atol=1e-5)
    # Well before the underflow one client takes all, over a difference of one per cent.
    assert reference.client_weights([700.0, 707.0], 1.0)[0] > 0.999


@pytest.fixture
def client():
    rng = np.random.default_rng(1)
    mu = rng.dirichlet(np.ones(3), size=7)
    return mu, rng.normal(size=(3, 2, 2)), [rng.normal(size=shape) for shape in ((3, 3), (4, 2), (2, 2))]


def test_printed_tensor_aggregation_shrinks_the_factors_and_the_mass_divisor_does_not(client):
    mu, core, factors = client
    stats = [reference.tensor_statistics(mu, core, factors, 2.0)]
    shrunk, _ = reference.aggregate_tensor_statistics(stats, np.ones(1), [7])
    np.testing.assert_allclose(shrunk, core * (mu**2).sum() / 7)
    assert (mu**2).sum() / 7 < 1
    kept, kept_factors = reference.aggregate_tensor_statistics(stats, np.ones(1), [7], "mass")
    np.testing.assert_allclose(kept, core)
    for a, b in zip(kept_factors, factors, strict=True):
        np.testing.assert_allclose(a, b)


def test_slices_weigh_each_cluster_by_its_own_mass_and_the_printed_core_loses_a_mode(client):
    mu, core, factors = client
    masses = (mu**2).sum(axis=0)
    sliced = reference.tensor_statistics(mu, core, factors, 2.0, "slices")
    np.testing.assert_allclose(sliced.core, masses[:, None, None] * core)
    np.testing.assert_allclose(sliced.factors[0], masses[:, None] * factors[0])
    np.testing.assert_allclose(sliced.factors[1], masses.sum() * factors[1])
    printed = reference.tensor_statistics(mu, core, factors, 2.0, "printed")
    assert printed.core.shape == (2, 2)
    with pytest.raises(ValueError, match=r"r1=2 to equal the number of clusters 3"):
        reference.tensor_statistics(mu, core[:2], factors, 2.0, "slices")


def test_blending_factors_is_not_blending_centres(client):
    _, core, factors = client
    flipped = [-core, -factors[0], *factors[1:]]  # the same centres in another gauge
    own = reference.tucker_to_tensor(core, factors)
    np.testing.assert_allclose(reference.tucker_to_tensor(flipped[0], flipped[1:]), own)
    blended = [reference.blend(a, b, 0.5) for a, b in zip([core, *factors], flipped, strict=True)]
    np.testing.assert_allclose(reference.tucker_to_tensor(blended[0], blended[1:]), 0.0)


def test_the_two_meanings_of_lambda_mirror_each_other():
    local, shared = np.array([1.0, 2.0]), np.array([5.0, 6.0])
    np.testing.assert_allclose(reference.blend(local, shared, 0.25), [4.0, 5.0])
    np.testing.assert_allclose(reference.blend(local, shared, 0.25, "global"), [2.0, 3.0])
    with pytest.raises(ValueError, match=r"local component has shape \(2,\), the global one \(3,\)"):
        reference.blend(local, np.ones(3), 0.5)


def test_personalized_steps_by_hand():
    np.testing.assert_allclose(reference.personalized_centers(np.array([1.0]), np.array([4.0]), 0.1), [0.6])
    weights, gradient = np.array([0.2, 0.8]), np.array([3.0, 1.0])
    plain = reference.personalized_view_weights(weights, gradient, 0.1, "sum")
    np.testing.assert_allclose(plain, np.array([-0.1, 0.7]) / 0.6)
    lifted = reference.personalized_view_weights(weights, gradient, 0.1, "threshold", 0.1)
    np.testing.assert_allclose(lifted, [0.125, 0.875])


def local_problem():
    rng = np.random.default_rng(2)
    views = [rng.normal(size=(12, 2)), rng.normal(size=(12, 3))]
    coefs = [reference.minmax_coefficient(x) for x in views]
    mu, weights = rng.dirichlet(np.ones(2), size=12), np.array([0.4, 0.6])

    def objective(centers):
        return reference.ekmvc_objective(reference.fked(views, centers, coefs), mu, weights, 2.0, 2.0)

    def gradient(centers):
        return reference.center_gradient(views, mu, centers, coefs, weights, view_exponent=2.0, fuzzifier=2.0)

    def fit(centers):
        for _ in range(200):
            centers = reference.update_centers(
                views, mu, centers, coefs, weights, view_exponent=2.0, fuzzifier=2.0, reading="corrected"
            )
        return centers

    start = [x[:2].copy() for x in views]
    return rng, objective, gradient, fit, start


def test_lambda_gradient_is_the_finite_difference_in_both_meanings():
    rng, objective, gradient, _, local = local_problem()
    shared = [a + rng.normal(size=a.shape) for a in local]
    step = 1e-6
    for meaning in ("local", "global"):

        def blended(weight, meaning=meaning):
            return [reference.blend(a, b, weight, meaning) for a, b in zip(local, shared, strict=True)]

        slope = reference.lambda_gradient(gradient(blended(0.3)), local, shared, meaning)
        difference = (objective(blended(0.3 + step)) - objective(blended(0.3 - step))) / (2 * step)
        assert slope == pytest.approx(difference, rel=1e-5)


def test_adaptive_lambda_on_the_fitted_rows_prefers_the_local_centres():
    rng, _, gradient, fit, start = local_problem()
    local = fit(start)
    for _ in range(5):
        shared = [a + 0.05 * rng.normal(size=a.shape) for a in local]
        weight = 0.5
        for _ in range(30):
            blended = [reference.blend(a, b, weight) for a, b in zip(local, shared, strict=True)]
            weight = reference.adaptive_lambda(
                weight, reference.lambda_gradient(gradient(blended), local, shared), 50.0
            )
        assert weight == pytest.approx(1.0, abs=0.02)
    assert reference.adaptive_lambda(0.9, -1.0, 1.0) == 1.0
    assert reference.adaptive_lambda(0.9, -1.0, 1.0, clip=False) == 1.9


def test_component_lambda_gradients_are_the_finite_differences(client):
    _, core, factors = client
    rng = np.random.default_rng(3)
    local = [core, *factors]
    shared = [part + rng.normal(size=part.shape) for part in local]
    slope = rng.normal(size=(3, 4, 2))  # of the linear objective <slope, centres>
    step = 1e-6

    def objective(lambdas, meaning):
        parts = [reference.blend(a, b, w, meaning) for a, b, w in zip(local, shared, lambdas, strict=True)]
        return parts, reference.scalar_product(slope, reference.tucker_to_tensor(parts[0], parts[1:]))

    for meaning in ("local", "global"):
        lambdas = [0.2, 0.4, 0.6, 0.8]
        blended, _ = objective(lambdas, meaning)
        gradients = reference.component_lambda_gradients(slope, blended, local, shared, meaning)
        for part in range(4):
            up, down = list(lambdas), list(lambdas)
            up[part] += step
            down[part] -= step
            difference = (objective(up, meaning)[1] - objective(down, meaning)[1]) / (2 * step)
            assert gradients[part] == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_global_objective_by_hand():
    centers, shared = [np.ones((3, 2))], [np.zeros((3, 2))]
    assert reference.center_regularizer(centers, shared) == pytest.approx(6.0)
    assert reference.center_regularizer(centers, shared, count_clusters=True) == pytest.approx(18.0)
    assert reference.view_regularizer(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(2.0)
    assert reference.tensor_regularizer([np.ones(2), np.ones(3)], [np.zeros(2), np.zeros(3)]) == pytest.approx(5.0)
    value = reference.global_objective([10.0, 20.0], [0.25, 0.75], [6.0, 0.0], [2.0, 1.0], center_pull=0.5, view_pull=2)
    assert value == pytest.approx(2.5 + 15 + 3 + 6)


def test_gaussian_noise_by_hand():
    # 2 * 3^2 * log(1.25 / 1.25e-5) / 0.5^2 = 72 * log(1e5)
    assert reference.gaussian_noise_variance(3.0, 0.5, 1.25e-5) == pytest.approx(72 * math.log(1e5))
    noisy = reference.add_gaussian_noise(np.zeros(20_000), 3.0, 0.5, 1.25e-5, np.random.default_rng(0))
    assert noisy.var() == pytest.approx(72 * math.log(1e5), rel=0.05)
    with pytest.raises(ValueError, match=r"epsilon=0.0 should be > 0"):
        reference.gaussian_noise_variance(1.0, 0.0, 1e-5)


def test_message_sizes_and_operations_by_hand():
    assert reference.center_message_size(10, [240, 76, 216]) == pytest.approx(10 * 532)
    # 10*5*2 + 100 + 240*5 + 3*2, and with r1 = 4: 4*5*2 + 40 + 1200 + 6
    assert reference.tensor_message_size(10, 240, 3, feature_rank=5, view_rank=2) == 1406
    assert reference.tensor_message_size(10, 240, 3, feature_rank=5, view_rank=2, cluster_rank=4) == 1286
    assert reference.local_operations(100, 10, [3, 2]) == 2 * reference.local_operations(100, 10, [3, 2], stated=False)
    assert reference.tensor_operations(100, 10, 7, 3, feature_rank=5, view_rank=2) == 100 * 10 * (10 + 21)


def test_the_personalization_bound_is_false_below_one_half_and_the_blend_gap_is_exact():
    assert reference.personalization_bound(0.5) < 1
    rng = np.random.default_rng(4)
    local, shared = rng.normal(size=(2, 3, 2))
    gap = reference.frobenius_norm(reference.blend(local, shared, 0.5) - shared) ** 2
    assert gap == pytest.approx(reference.blend_gap(0.5) * reference.frobenius_norm(local - shared) ** 2)
