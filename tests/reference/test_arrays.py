"""The formulas with arrays give what the readable loops give, one by one and in whole runs of the algorithms."""

import time

import numpy as np
import pytest

from fedhk import reference
from fedhk.reference import (
    algorithm_efkmvc,
    algorithm_person,
    algorithm_tensor_local,
    arrays,
    tensor_federation,
)

ALGORITHMS = (algorithm_efkmvc, algorithm_tensor_local, tensor_federation, algorithm_person)
WIDTHS, RANKS = (4, 2, 3), (3, 2, 2)


def some_clients(seed=0, sizes=(9, 13), widths=WIDTHS):
    rng = np.random.default_rng(seed)
    return [
        [rng.normal(size=(n, d)) + 2.0 * (np.arange(n) % 3)[:, None] * rng.normal(size=d) for d in widths]
        for n in sizes
    ]


def a_state(seed=0):
    """Views, coefficients, centres, parts, memberships and view weights of one client."""
    rng = np.random.default_rng(seed)
    views = some_clients(seed)[0]
    sizes = (3, max(WIDTHS), len(WIDTHS))
    parts = [rng.normal(size=RANKS), *[rng.normal(size=(g, r)) for g, r in zip(sizes, RANKS, strict=True)]]
    tensor = reference.tucker_to_tensor(parts[0], parts[1:])
    centers, coefs = reference.untensorize(tensor, WIDTHS), [reference.minmax_coefficient(x) for x in views]
    mu = rng.dirichlet(np.ones(3), size=len(views[0]))
    return views, coefs, centers, (tensor, parts), mu, rng.dirichlet(np.ones(3))


def calls(seed):
    """Every formula with arguments, in every reading."""
    views, coefs, centers, (tensor, parts), mu, v = a_state(seed)
    distances = reference.fked(views, centers, coefs)
    how = {"view_exponent": 3.0, "fuzzifier": 1.5}
    other = [np.sin(part) for part in parts]
    yield "minmax_coefficient", (views[0],), {}
    yield "absdev_coefficient", (views[0],), {}
    for reading in ("per_view", "summed"):
        yield "fked", (views, centers, coefs, reading), {}
    yield "update_memberships", (distances, v, 3.0, 1.5), {}
    yield "update_view_weights", (distances, mu, 3.0, 1.5), {}
    yield "ekmvc_objective", (distances, mu, v, 3.0, 1.5), {}
    yield "view_weight_gradient", (distances, mu, v, 3.0, 1.5), {}
    yield "center_gradient", (views, mu, centers, coefs, v), how
    for reading in ("theorem", "proof", "corrected"):
        yield "update_centers", (views, mu, centers, coefs, v), how | {"reading": reading}
    yield "client_weights", ([3.0, 1.0], 0.5), {}
    yield "client_weights", ([3.0, 1.0], 0.5, [9, 2]), {}
    yield "tensorize", (views,), {}
    yield "tucker_to_tensor", (parts[0], parts[1:]), {}
    for reading in ("printed", "corrected"):
        yield "update_parts", (views, mu, tensor, coefs, parts), how | {"view_weights": v, "reading": reading}
    for reading in ("whole", "slices", "printed"):
        yield "tensor_statistics", (mu, parts[0], parts[1:], 1.5, reading), {}
    for meaning in ("local", "global"):
        yield "component_lambda_gradients", (tensor, parts, other, parts, meaning), {}
    yield "tensor_regularizer", (parts, other), {}


def assert_equal(found, wanted, tolerance=1e-9):
    """Compare numbers, arrays and whatever holds them."""
    if isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for mine, theirs in zip(found, wanted, strict=True):
            assert_equal(mine, theirs, tolerance)
    elif hasattr(wanted, "__dataclass_fields__"):
        for name in wanted.__dataclass_fields__:
            assert_equal(getattr(found, name), getattr(wanted, name), tolerance)
    elif isinstance(wanted, str):
        assert found == wanted
    else:
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", range(3))
def test_every_formula_gives_what_its_loops_give(seed):
    compared = set()
    for name, args, how in calls(seed):
        assert_equal(getattr(arrays, name)(*args, **how), getattr(reference, name)(*args, **how), 1e-10)
        compared.add(name)
    assert compared == set(arrays.FORMULAS)


@pytest.fixture
def in_loops(monkeypatch):
    """Run an algorithm with the readable loops in the place of the arrays."""

    def run(algorithm, *args, **how):
        with monkeypatch.context() as patched:
            for module in ALGORITHMS:
                for name in set(arrays.FORMULAS) & set(vars(module)):
                    patched.setattr(module, name, getattr(reference, name))
            return algorithm(*args, **how)

    return run


# With m = 2 all memberships soon are 1 / c, the factors lose their rank, and rounding decides: no run to compare.
FUZZY = reference.TensorOptions(fuzzifier=1.2)
RUNS = {
    "1": (reference.efkmvc, reference.EfkmvcOptions(max_rounds=4, max_epochs=2)),
    "1 corrected": (
        reference.efkmvc,
        reference.EfkmvcOptions(max_rounds=3, center_reading="corrected", heat_coef="absdev", start="global"),
    ),
    "2": (reference.fedhk_parafac2, reference.FederationOptions(ranks=RANKS, rounds=2, local=FUZZY)),
    "3": (
        reference.fedhk_tucker,
        reference.FederationOptions(ranks=RANKS, rounds=2, divisor="mass", quality="mean", local=FUZZY),
    ),
    "4": (reference.fedhk_person, reference.PersonOptions(ranks=RANKS, rounds=3, local=FUZZY)),
    "4, m = 2": (reference.fedhk_person, reference.PersonOptions(ranks=RANKS, rounds=1, epochs=1)),
    "4 corrected": (
        reference.fedhk_person,
        reference.PersonOptions(
            ranks=RANKS,
            rounds=2,
            core_reading="slices",
            quality="mean",
            divisor="mass",
            local=reference.TensorOptions(factor_reading="corrected", fresh_centers=True, blend_meaning="local"),
        ),
    ),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_algorithm_gives_in_every_round_what_its_loops_give(run, in_loops):
    algorithm, options = run
    found, wanted = (how(algorithm, some_clients(), 3, options, 1) for how in (lambda f, *a: f(*a), in_loops))
    assert_equal(found, wanted)
    for mine, theirs in zip(found.labels, wanted.labels, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_where_the_paper_divides_by_zero_its_limit_is_taken():
    mu = arrays.update_memberships([np.array([[0.0, 1.0, 0.0], [1.0, 2.0, 4.0]])], np.ones(1), 2.0, 2.0)
    np.testing.assert_allclose(mu, [[0.5, 0, 0.5], [4 / 7, 2 / 7, 1 / 7]])
    np.testing.assert_array_equal(
        arrays.update_view_weights([np.zeros((2, 1)), np.ones((2, 1))], np.ones((2, 1)), 2.0, 2.0), [1, 0]
    )
    np.testing.assert_allclose(arrays.client_weights([2000.0, 2000.0 + np.log(3)], 1.0), [0.75, 0.25])


@pytest.mark.parametrize("run", [RUNS["1"], RUNS["2"], RUNS["3"], RUNS["4"]], ids=["1", "2", "3", "4"])
def test_ten_thousand_rows_are_a_matter_of_seconds(run):
    algorithm, _ = run
    clients = some_clients(sizes=(1000,) * 10, widths=(20, 30, 10))
    begin = time.perf_counter()
    found = algorithm(clients, 8, None, 0)
    assert time.perf_counter() - begin < 30
    assert [len(labels) for labels in found.labels] == [1000] * 10
    assert np.isfinite(found.objectives).all()


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ([], "at least one client"),
        ([[np.ones((3, 2))], [np.ones((3, 4))]], r"client 1 has views of widths \[4\], the first client of"),
        ([[np.ones((3, 2)), np.ones((4, 2))]], r"client 0 has views of \[3, 4\] rows"),
        ([[np.ones((3, 2))], [np.full((3, 2), np.nan)]], "client 1 has values that are not finite"),
    ],
)
def test_what_the_paper_has_no_rule_for_is_refused(clients, said):
    with pytest.raises(ValueError, match=said):
        reference.efkmvc(clients, 2)


@pytest.mark.parametrize("ranks", [(0, 1, 1), (3, 5, 3)])
def test_ranks_that_no_mode_has_are_refused(ranks):
    with pytest.raises(ValueError, match=r"ranks=.* sizes of the modes, \(3, 4, 3\)"):
        reference.fedhk_person(some_clients(), 3, reference.PersonOptions(ranks=ranks))
