import numpy as np
import pytest

from fedhk import reference


def two_clients(seed=0, sizes=(8, 10), widths=(2, 3)):
    """Two clients with the same two round clusters in every view."""
    rng = np.random.default_rng(seed)
    clients, labels = [], []
    for size in sizes:
        label = np.arange(size) % 2
        clients.append([0.3 * rng.normal(size=(size, d)) + 2.0 * label[:, None] for d in widths])
        labels.append(label)
    return clients, labels


def check_client(memberships, view_weights, size):
    assert memberships.shape == (size, 2)
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0)
    assert view_weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "readings",
    [
        {},
        {"center_reading": "proof", "heat_coef": "absdev"},
        {"center_reading": "corrected", "gradient_at": "global", "start": "global"},
        {"distance_reading": "summed", "normalization": "sum"},
    ],
)
def test_algorithm_1_runs_in_every_reading(readings):
    clients, _ = two_clients()
    options = reference.EfkmvcOptions(max_rounds=3, max_epochs=2, **readings)
    result = reference.efkmvc(clients, 2, options, np.random.default_rng(0))
    for model, views in zip(result.clients, clients, strict=True):
        check_client(model.memberships, model.view_weights, len(views[0]))
        assert [a.shape for a in model.centers] == [(2, 2), (2, 3)]
    assert 1 <= len(result.objectives) <= 3
    assert result.view_weights.sum() == pytest.approx(1.0)


def test_algorithm_1_with_steps_of_zero_leaves_every_client_with_the_global_model():
    clients, _ = two_clients()
    options = reference.EfkmvcOptions(max_rounds=2, max_epochs=2, center_step=0.0, view_step=0.0)
    result = reference.efkmvc(clients, 2, options, np.random.default_rng(0))
    for model in result.clients:
        np.testing.assert_allclose(model.view_weights, result.view_weights)
        for own, shared in zip(model.centers, result.centers, strict=True):
            np.testing.assert_array_equal(own, shared)


def test_algorithm_1_stops_when_the_objective_does():
    clients, _ = two_clients()
    options = reference.EfkmvcOptions(max_rounds=9, max_epochs=2, tolerance=0.9)
    assert len(reference.efkmvc(clients, 2, options, np.random.default_rng(0)).objectives) == 2


def test_one_corrected_client_of_algorithm_1_never_raises_its_objective():
    (views, _), _ = two_clients()
    coefs = [reference.minmax_coefficient(x) for x in views]
    rng = np.random.default_rng(1)
    centers, weights = [rng.normal(size=(2, x.shape[1])) for x in views], np.full(2, 0.5)
    options = reference.EfkmvcOptions(max_epochs=1, center_reading="corrected")
    previous = np.inf
    for _ in range(6):
        model = reference.local_optimization(views, coefs, centers, weights, options)
        assert model.objective <= previous + 1e-12
        previous, centers, weights = model.objective, model.centers, model.view_weights


def random_parts(seed, ranks=(2, 2, 1)):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=ranks), *[rng.normal(size=(g, r)) for g, r in zip((2, 3, 2), ranks, strict=True)]]


@pytest.mark.parametrize(
    "readings",
    [{}, {"factor_reading": "corrected", "fresh_centers": True}, {"distance_reading": "summed"}],
)
def test_algorithms_2_and_3_run_in_every_reading(readings):
    (views, _), _ = two_clients()
    tensor = reference.tensorize(views)
    options = reference.TensorOptions(max_iter=3, **readings)
    state = reference.tensor_local_clustering(tensor, [2, 3], random_parts(0), random_parts(1), 0.5, options=options)
    check_client(state.memberships, state.view_weights, 8)
    assert [part.shape for part in state.parts] == [(2, 2, 1), (2, 2), (3, 2), (2, 1)]
    assert 1 <= len(state.objectives) <= 3


def test_lambda_chooses_the_start_of_algorithm_2():
    (views, _), _ = two_clients()
    tensor = reference.tensorize(views)

    def run(shared, previous, weight, meaning):
        options = reference.TensorOptions(max_iter=1, blend_meaning=meaning)
        return reference.tensor_local_clustering(tensor, [2, 3], shared, previous, weight, options=options)

    shared, previous = random_parts(0), random_parts(1)
    alone = run(shared, shared, 0.5, "global").memberships
    np.testing.assert_allclose(run(shared, previous, 1.0, "global").memberships, alone)
    np.testing.assert_allclose(run(shared, previous, 0.0, "local").memberships, alone)
    assert np.abs(run(shared, previous, 0.0, "global").memberships - alone).max() > 1e-3


def test_corrected_algorithm_2_with_fresh_centres_never_raises_its_objective():
    (views, _), _ = two_clients()
    options = reference.TensorOptions(max_iter=6, tolerance=0.0, factor_reading="corrected", fresh_centers=True)
    for seed in range(3):
        parts = random_parts(seed)
        state = reference.tensor_local_clustering(
            reference.tensorize(views), [2, 3], parts, parts, 0.5, options=options
        )
        assert len(state.objectives) == 6
        assert (np.diff(state.objectives) <= 1e-10).all()


def test_algorithm_2_stops_when_the_objective_does():
    (views, _), _ = two_clients()
    options = reference.TensorOptions(max_iter=9, tolerance=10.0)
    state = reference.tensor_local_clustering(
        reference.tensorize(views), [2, 3], random_parts(0), random_parts(0), 0.5, options=options
    )
    assert len(state.objectives) == 2


@pytest.mark.parametrize(
    "readings",
    [
        {},
        {"quality": "mean", "divisor": "mass"},
        {"core_reading": "slices", "local": reference.TensorOptions(blend_meaning="local")},
    ],
)
def test_algorithm_4_runs_in_every_reading(readings):
    clients, _ = two_clients()
    options = reference.PersonOptions(ranks=(2, 2, 1), rounds=2, epochs=1, **readings)
    result = reference.fedhk_person(clients, 2, options, np.random.default_rng(0))
    assert [part.shape for part in result.global_parts] == [(2, 2, 1), (2, 2), (3, 2), (2, 1)]
    assert result.global_view_weights.sum() == pytest.approx(1.0)
    assert len(result.objectives) == 2
    for state, lambdas, views in zip(result.clients, result.personalization, clients, strict=True):
        check_client(state.memberships, state.view_weights, len(views[0]))
        assert len(lambdas) == 4
        assert all(0 <= value <= 1 for value in lambdas)
    assert result.personalization != [[0.5] * 4] * 2


def test_algorithm_4_cannot_go_on_from_the_core_as_printed():
    clients, _ = two_clients()
    options = reference.PersonOptions(ranks=(2, 2, 1), rounds=1, epochs=1, core_reading="printed")
    with pytest.raises(ValueError, match=r"local component has shape \(2, 2, 1\), the global one \(2, 1\)"):
        reference.fedhk_person(clients, 2, options, np.random.default_rng(0))


def test_every_public_name_is_there_once():
    assert len(set(reference.__all__)) == len(reference.__all__)
    for name in reference.__all__:
        assert getattr(reference, name).__doc__
