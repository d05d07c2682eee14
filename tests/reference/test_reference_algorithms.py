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
    last = result.history[-1]
    for mu, weights, centers, views in zip(
        result.memberships, last.client_view_weights, last.client_centers, clients, strict=True
    ):
        check_client(mu, weights, len(views[0]))
        assert [a.shape for a in centers] == [(2, 2), (2, 3)]
    assert 1 <= len(result.objectives) <= 3
    assert last.view_weights.sum() == pytest.approx(1.0)


def test_algorithm_1_with_steps_of_zero_leaves_every_client_with_the_global_model():
    clients, _ = two_clients()
    options = reference.EfkmvcOptions(max_rounds=2, max_epochs=2, center_step=0.0, view_step=0.0)
    last = reference.efkmvc(clients, 2, options, np.random.default_rng(0)).history[-1]
    for weights, centers in zip(last.client_view_weights, last.client_centers, strict=True):
        np.testing.assert_allclose(weights, last.view_weights)
        for own, shared in zip(centers, last.centers, strict=True):
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
    options = reference.TensorOptions(max_iter=3, **readings)
    state = reference.tensor_local_clustering(views, random_parts(0), random_parts(1), 0.5, options=options)
    check_client(state.memberships, state.view_weights, 8)
    assert [part.shape for part in state.parts] == [(2, 2, 1), (2, 2), (3, 2), (2, 1)]
    assert 1 <= len(state.objectives) <= 3


def test_lambda_chooses_the_start_of_algorithm_2():
    (views, _), _ = two_clients()

    def run(shared, previous, weight, meaning):
        options = reference.TensorOptions(max_iter=1, blend_meaning=meaning)
        return reference.tensor_local_clustering(views, shared, previous, weight, options=options)

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
        state = reference.tensor_local_clustering(views, parts, parts, 0.5, options=options)
        assert len(state.objectives) == 6
        assert (np.diff(state.objectives) <= 1e-10).all()


def test_algorithm_2_stops_when_the_objective_does():
    (views, _), _ = two_clients()
    options = reference.TensorOptions(max_iter=9, tolerance=10.0)
    state = reference.tensor_local_clustering(views, random_parts(0), random_parts(0), 0.5, options=options)
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
    last = result.history[-1]
    assert [part.shape for part in last.parts] == [(2, 2, 1), (2, 2), (3, 2), (2, 1)]
    assert last.view_weights.sum() == pytest.approx(1.0)
    assert len(result.history) == 2
    for mu, weights, views in zip(result.memberships, last.client_view_weights, clients, strict=True):
        check_client(mu, weights, len(views[0]))
    assert last.personalization.shape == (2, 4)
    assert ((last.personalization >= 0) & (last.personalization <= 1)).all()
    assert (last.personalization != 0.5).any()


def test_algorithm_4_cannot_go_on_from_the_core_as_printed():
    clients, _ = two_clients()
    options = reference.PersonOptions(ranks=(2, 2, 1), rounds=1, epochs=1, core_reading="printed")
    with pytest.raises(ValueError, match=r"clients' cores have shape \(2, 2, 1\), the global one \(2, 1\)"):
        reference.fedhk_person(clients, 2, options, np.random.default_rng(0))


@pytest.mark.parametrize("run", [reference.efkmvc, reference.fedhk_parafac2, reference.fedhk_person])
def test_a_client_with_one_row_has_an_objective_of_zero(run):
    """Its features have no range, so all its coefficients are 0."""
    clients = [[np.ones((1, 3)), np.ones((1, 2))], [np.full((1, 3), 2.0), np.zeros((1, 2))]]
    found = run(clients, 2, random_state=0)
    np.testing.assert_allclose(found.history[-1].client_objectives, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    "run", [reference.efkmvc, reference.fedhk_parafac2, reference.fedhk_tucker, reference.fedhk_person]
)
def test_clients_may_have_names_as_the_sites_of_estimators(run):
    clients, _ = two_clients()
    named = run(dict(zip(("oslo", "rome"), clients, strict=True)), 2, random_state=0)
    listed = run(clients, 2, random_state=0)
    for ours, theirs in zip(named.memberships, listed.memberships, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert repr(named).startswith("<Outcome: 18 rows of 2 clients in 2 clusters, ")


def test_labels_are_the_clusters_of_the_largest_memberships():
    clients, labels = two_clients()
    options = reference.EfkmvcOptions(center_reading="corrected", fuzzifier=1.2)
    start = ([np.array([[0.0] * d, [2.0] * d]) for d in (2, 3)], np.full(2, 0.5))
    found = reference.efkmvc(clients, 2, options, start=start)
    for mine, wanted in zip(found.labels, labels, strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("algorithm", [reference.fedhk_parafac2, reference.fedhk_tucker])
def test_one_round_of_algorithms_2_and_3_is_a_local_run_at_every_client_and_an_average(algorithm):
    clients, _ = two_clients()
    options = reference.FederationOptions(ranks=(2, 2, 1), rounds=1)
    start = (random_parts(0), np.full(2, 0.5))
    found = algorithm(clients, 2, options, start=start)
    alone = [reference.tensor_local_clustering(x, *start[:1] * 2, 0.5, options=options.local) for x in clients]
    last = found.history[-1]
    np.testing.assert_allclose(last.client_objectives, [state.objectives[-1] for state in alone])
    np.testing.assert_allclose(last.client_weights, reference.client_weights(last.client_objectives, 1.0))
    statistics = [
        reference.tensor_statistics(state.memberships, state.parts[0], state.parts[1:], 2.0) for state in alone
    ]
    core, factors = reference.aggregate_tensor_statistics(statistics, last.client_weights, [8, 10])
    for mine, wanted in zip(last.parts, [core, *factors], strict=True):
        np.testing.assert_allclose(mine, wanted)
    pulls = [reference.tensor_regularizer(state.parts, last.parts) for state in alone]
    view_pulls = [reference.view_regularizer(state.view_weights, last.view_weights) for state in alone]
    assert last.objective == pytest.approx(
        reference.global_objective(
            last.client_objectives, last.client_weights, pulls, view_pulls, center_pull=1.0, view_pull=1.0
        )
    )


def test_every_public_name_is_there_once():
    assert len(set(reference.__all__)) == len(reference.__all__)
    for name in reference.__all__:
        assert getattr(reference, name).__doc__
