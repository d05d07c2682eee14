import numpy as np
import pytest

from fedhk import reference


def problem(seed, ranks=(2, 2, 1)):
    rng = np.random.default_rng(seed)
    widths = (3, 2)
    tensor = reference.tensorize([rng.normal(size=(8, d)) for d in widths])
    coef = reference.tensorized_coefficient(tensor, widths)
    core = rng.normal(size=ranks)
    factors = [rng.normal(size=(g, r)) for g, r in zip((2, 3, 2), ranks, strict=True)]
    return tensor, coef, widths, core, factors


def weights_of(tensor, coef, widths, centers, view_weights, *, reading):
    distances = reference.tked(tensor, centers, coef, widths)
    mu = reference.update_memberships(distances, view_weights, 2.0, 2.0)
    weights = reference.cell_weights(
        tensor,
        mu,
        centers,
        coef,
        widths=widths,
        view_weights=view_weights,
        view_exponent=2.0,
        fuzzifier=2.0,
        reading=reading,
    )
    return mu, weights


def test_printed_weights_by_hand_and_corrected_weights_are_zero_on_padding():
    tensor, coef, widths, core, factors = problem(0)
    centers = reference.tucker_to_tensor(core, factors)
    view_weights = np.array([0.25, 0.75])
    mu, printed = weights_of(tensor, coef, widths, centers, view_weights, reading="printed")
    assert printed[3, 1, 0, 1] == pytest.approx(mu[3, 1] ** 2 * 0.75**2)
    assert printed[3, 1, 2, 1] == printed[3, 1, 0, 1]  # the padded cell weighs like any other
    _, corrected = weights_of(tensor, coef, widths, centers, view_weights, reading="corrected")
    assert (corrected[:, :, 2, 1] == 0).all()
    assert (corrected <= printed + 1e-15).all()


def test_full_rank_printed_core_gives_the_fuzzy_means():
    # With square invertible factors any centre tensor is reachable, so the optimum is the weighted mean of the samples.
    tensor, coef, widths, core, factors = problem(1, ranks=(2, 3, 2))
    mu, weights = weights_of(
        tensor, coef, widths, reference.tucker_to_tensor(core, factors), np.full(2, 0.5), reading="printed"
    )
    fitted = reference.tucker_to_tensor(reference.update_core(tensor, weights, factors), factors)
    power = mu**2
    means = np.einsum("nk,ndv->kdv", power, tensor) / power.sum(axis=0)[:, None, None]
    np.testing.assert_allclose(fitted, means, atol=1e-8)


@pytest.mark.parametrize("reading", ["printed", "corrected"])
def test_each_als_step_lowers_its_least_squares_error(reading):
    for seed in range(5):
        tensor, coef, widths, core, factors = problem(seed)
        centers = reference.tucker_to_tensor(core, factors)
        _, weights = weights_of(tensor, coef, widths, centers, np.full(2, 0.5), reading=reading)
        error = reference.reconstruction_error(tensor, centers, weights)
        core = reference.update_core(tensor, weights, factors)
        for mode in (None, 0, 1, 2):
            if mode is not None:
                factors[mode] = reference.update_factor(tensor, weights, core, factors, mode)
            after = reference.reconstruction_error(tensor, reference.tucker_to_tensor(core, factors), weights)
            assert after <= error + 1e-10
            error = after


def als_rises(reading, seed):
    """Whether ALS sweeps with fixed memberships and view weights ever raise the objective."""
    tensor, coef, widths, core, factors = problem(seed)
    view_weights = np.full(2, 0.5)
    for sweep in range(3):
        centers = reference.tucker_to_tensor(core, factors)
        if sweep == 0:
            mu, _ = weights_of(tensor, coef, widths, centers, view_weights, reading=reading)
        weights = reference.cell_weights(
            tensor,
            mu,
            centers,
            coef,
            widths=widths,
            view_weights=view_weights,
            view_exponent=2.0,
            fuzzifier=2.0,
            reading=reading,
        )
        before = reference.ekmvc_objective(reference.tked(tensor, centers, coef, widths), mu, view_weights, 2.0, 2.0)
        core, factors = reference.als_sweep(tensor, weights, factors)
        centers = reference.tucker_to_tensor(core, factors)
        after = reference.ekmvc_objective(reference.tked(tensor, centers, coef, widths), mu, view_weights, 2.0, 2.0)
        if after > before + 1e-10:
            return True
    return False


def test_only_the_corrected_als_never_raises_the_objective():
    counts = {reading: sum(als_rises(reading, seed) for seed in range(50)) for reading in ("printed", "corrected")}
    assert counts == {"printed": 36, "corrected": 0}  # docs/paper-map.md has these figures


def test_a_padded_feature_keeps_its_row_of_the_factor():
    tensor, coef, _, core, factors = problem(7)
    widths = (2, 2)  # the last feature is padding in both views
    _, weights = weights_of(
        tensor, coef, widths, reference.tucker_to_tensor(core, factors), np.full(2, 0.5), reading="corrected"
    )
    updated = reference.update_factor(tensor, weights, core, factors, 1)
    np.testing.assert_array_equal(updated[2], factors[1][2])
    assert (updated[:2] != factors[1][:2]).all()
