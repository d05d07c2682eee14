import numpy as np
import pytest

from fedhk import reference


def problem(seed, n_samples=10, widths=(2, 3), n_clusters=2):
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(n_samples, d)) for d in widths]
    coefs = [reference.minmax_coefficient(x) for x in views]
    centers = [rng.normal(size=(n_clusters, d)) for d in widths]
    return views, coefs, centers


def test_objectives_by_hand():
    x, centers = np.array([[0.0], [3.0]]), np.array([[0.0], [2.0]])
    mu = np.array([[1.0, 0.0], [0.5, 0.5]])
    # 0.25 * 9 + 0.25 * 1
    assert reference.fcm_objective(x, mu, centers, 2.0) == pytest.approx(2.5)
    assert reference.mvc_objective([x, x], [mu, np.eye(2)], [centers, centers], 2.0) == pytest.approx(3.5)
    assert reference.shared_mvc_objective([x, x], mu, [centers, centers], 2.0) == pytest.approx(5.0)
    distances = [np.array([[0.0, 0.4], [0.8, 0.4]]), np.full((2, 2), 0.5)]
    # View 1: 0.25 * 0.8 + 0.25 * 0.4 = 0.3; view 2: (1 + 0.25 + 0.25) * 0.5 = 0.75.
    assert reference.amvc_objective(distances, mu, 2.0) == pytest.approx(1.05)
    assert reference.ekmvc_objective(distances, mu, np.array([0.25, 0.75]), 2.0, 2.0) == pytest.approx(
        0.3 / 16 + 0.75 * 9 / 16
    )
    assert reference.efkmvc_objective([1.0, 2.5]) == 3.5


def test_printed_updates_agree_with_the_guarded_ones():
    views, coefs, centers = problem(0)
    distances = reference.fked(views, centers, coefs)
    weights = np.array([0.4, 0.6])
    mu = reference.update_memberships(distances, weights, 2.0, 1.5)
    np.testing.assert_allclose(mu, reference.memberships(distances, weights, 2.0, 1.5))
    np.testing.assert_allclose(mu.sum(axis=1), 1.0)
    result = reference.statistics(views, centers, coefs, [1.0, 1.0], weights, 2.0, 1.5)
    np.testing.assert_allclose(
        reference.update_view_weights(distances, mu, 2.0, 1.5), reference.view_weights(result["costs"], 2.0)
    )
    corrected = reference.update_centers(
        views, mu, centers, coefs, weights, view_exponent=2.0, fuzzifier=1.5, reading="corrected"
    )
    for a, b in zip(corrected, reference.center_update(result["numerators"], result["weights"], centers), strict=True):
        np.testing.assert_allclose(a, b)


def test_centre_readings_by_hand():
    # One centre at 0, samples 1 and 2 with coefficients 0.5 and 1, memberships one.
    x, coef, center = np.array([[1.0], [2.0]]), np.array([[0.5], [1.0]]), np.array([[0.0]])
    kernel = np.exp([-0.5, -4.0])  # with one feature, theorem and proof have the same exponent

    def update(reading):
        return reference.update_centers(
            [x], np.ones((2, 1)), [center], [coef], np.ones(1), view_exponent=2.0, fuzzifier=2.0, reading=reading
        )[0][0, 0]

    plain = (kernel[0] * 1 + kernel[1] * 2) / kernel.sum()
    weighted = (0.5 * kernel[0] * 1 + kernel[1] * 2) / (0.5 * kernel[0] + kernel[1])
    assert update("theorem") == pytest.approx(plain)
    assert update("proof") == pytest.approx(plain)
    assert update("corrected") == pytest.approx(weighted)


def test_theorem_and_proof_differ_with_two_features():
    views, coefs, centers = problem(1)
    mu = np.full((10, 2), 0.5)
    theorem, proof = (
        reference.update_centers(
            views, mu, centers, coefs, np.full(2, 0.5), view_exponent=2.0, fuzzifier=2.0, reading=reading
        )
        for reading in ("theorem", "proof")
    )
    assert np.abs(theorem[0] - proof[0]).max() > 1e-3


def test_all_readings_agree_where_every_coefficient_is_one_and_the_view_has_one_feature():
    rng = np.random.default_rng(2)
    x, centers = rng.normal(size=(8, 1)), rng.normal(size=(2, 1))
    mu = np.full((8, 2), 0.5)
    moved = [
        reference.update_centers(
            [x], mu, [centers], [np.ones((8, 1))], np.ones(1), view_exponent=2.0, fuzzifier=2.0, reading=reading
        )[0]
        for reading in ("theorem", "proof", "corrected")
    ]
    np.testing.assert_allclose(moved[0], moved[1])
    np.testing.assert_allclose(moved[0], moved[2])


def rises(reading, seed):
    """Whether one centre update of random centres raises the objective."""
    views, coefs, centers = problem(seed, n_samples=15)
    weights = np.array([0.5, 0.5])
    distances = reference.fked(views, centers, coefs)
    mu = reference.update_memberships(distances, weights, 2.0, 2.0)
    for _ in range(4):
        before = reference.ekmvc_objective(reference.fked(views, centers, coefs), mu, weights, 2.0, 2.0)
        centers = reference.update_centers(
            views, mu, centers, coefs, weights, view_exponent=2.0, fuzzifier=2.0, reading=reading
        )
        after = reference.ekmvc_objective(reference.fked(views, centers, coefs), mu, weights, 2.0, 2.0)
        if after > before + 1e-12:
            return True
    return False


def test_only_the_corrected_centre_update_never_raises_the_objective():
    counts = {reading: sum(rises(reading, seed) for seed in range(50)) for reading in ("theorem", "proof", "corrected")}
    assert counts == {"theorem": 45, "proof": 41, "corrected": 0}  # docs/paper-map.md has these figures


def test_the_lagrangian_is_stationary_in_the_memberships_at_their_update():
    views, coefs, centers = problem(4)
    distances = reference.fked(views, centers, coefs)
    weights = np.array([0.3, 0.7])
    mu = reference.update_memberships(distances, weights, 2.0, 1.7)
    multipliers = reference.membership_multipliers(distances, weights, 2.0, 1.7)
    slope = reference.membership_derivative(
        distances, mu, weights, view_exponent=2.0, fuzzifier=1.7, multipliers=multipliers
    )
    np.testing.assert_allclose(slope, 0.0, atol=1e-12)
    # On the constraints the Lagrangian is the objective.
    value = reference.lagrangian(
        distances,
        mu,
        weights,
        view_exponent=2.0,
        fuzzifier=1.7,
        membership_multipliers=multipliers,
        view_multiplier=5.0,
    )
    assert value == pytest.approx(reference.ekmvc_objective(distances, mu, weights, 2.0, 1.7))


def test_view_weight_gradient_is_constant_over_views_at_their_update():
    views, coefs, centers = problem(5)
    distances = reference.fked(views, centers, coefs)
    mu = reference.update_memberships(distances, np.array([0.5, 0.5]), 3.0, 2.0)
    weights = reference.update_view_weights(distances, mu, 3.0, 2.0)
    gradient = reference.view_weight_gradient(distances, mu, weights, 3.0, 2.0)
    assert gradient[0] == pytest.approx(gradient[1])


def test_centre_gradient_is_the_finite_difference():
    views, coefs, centers = problem(6)
    weights, mu, step = np.array([0.3, 0.7]), np.full((10, 2), 0.5), 1e-6

    def objective(candidate):
        return reference.ekmvc_objective(reference.fked(views, candidate, coefs), mu, weights, 2.0, 2.0)

    gradient = reference.center_gradient(views, mu, centers, coefs, weights, view_exponent=2.0, fuzzifier=2.0)
    for h, k, j in [(0, 0, 1), (1, 1, 2)]:
        up, down = [[a.copy() for a in centers] for _ in range(2)]
        up[h][k, j] += step
        down[h][k, j] -= step
        assert gradient[h][k, j] == pytest.approx((objective(up) - objective(down)) / (2 * step), rel=1e-6)
