"""Options and inputs of the paper's algorithms: what is misspelt or impossible is refused, with what is allowed."""

from __future__ import annotations

import pydoc
from dataclasses import fields
from inspect import signature

import numpy as np
import pytest

from fedhk import reference
from fedhk.reference import EfkmvcOptions, FederationOptions, PersonOptions, TensorOptions
from fedhk.reference._checks import _hints

ALGORITHMS = {
    reference.efkmvc: EfkmvcOptions,
    reference.fedhk_parafac2: FederationOptions,
    reference.fedhk_tucker: FederationOptions,
    reference.fedhk_person: PersonOptions,
}


def some_clients():
    rng = np.random.default_rng(0)
    return {name: [rng.normal(size=(6, 3)), rng.normal(size=(6, 2))] for name in ("rome", "oslo")}


OWNERS = EfkmvcOptions, TensorOptions, FederationOptions
WORDS = [(owner, one.name) for owner in OWNERS for one in fields(owner) if isinstance(getattr(owner(), one.name), str)]


@pytest.mark.parametrize(("owner", "name"), WORDS)
def test_every_option_that_takes_words_refuses_others(owner, name):
    with pytest.raises(ValueError, match=rf"{name}='uniform' must be one of '.*'\.$"):
        owner(**{name: "uniform"})


def test_a_misspelt_word_is_answered_with_the_one_that_was_meant():
    said = r"center_reading='corected' must be one of 'theorem', 'proof', 'corrected'\. Did you mean 'corrected'\?"
    with pytest.raises(ValueError, match=said):
        EfkmvcOptions(center_reading="corected")
    with pytest.raises(ValueError, match="Did you mean 'theorem'"):
        EfkmvcOptions(center_reading="Theorem")


@pytest.mark.parametrize(
    ("owner", "given", "said"),
    [
        (EfkmvcOptions, {"fuzzifier": 1.0}, "fuzzifier=1.0 must be a number above 1"),
        (EfkmvcOptions, {"fuzzifier": -3}, "fuzzifier=-3 must be a number above 1"),
        (TensorOptions, {"view_exponent": 1}, "view_exponent=1 must be a number above 1"),
        (EfkmvcOptions, {"tolerance": np.nan}, "tolerance=nan must be a number at least 0"),
        (EfkmvcOptions, {"max_rounds": 0}, "max_rounds=0 must be a whole number at least 1"),
        (PersonOptions, {"epochs": 0}, "epochs=0 must be a whole number at least 1"),
        (FederationOptions, {"personalization": 2.0}, "personalization=2.0 must be a number from 0 to 1"),
        (FederationOptions, {"ranks": 3}, "ranks=3 must be three whole numbers"),
        (FederationOptions, {"ranks": (2, 2)}, r"ranks=\(2, 2\) must be three whole numbers"),
    ],
)
def test_impossible_numbers_are_refused(owner, given, said):
    with pytest.raises(ValueError, match=said):
        owner(**given)


def test_values_of_another_type_are_refused():
    with pytest.raises(TypeError, match=r"max_rounds=2\.5 must be a whole number at least 1"):
        EfkmvcOptions(max_rounds=2.5)
    with pytest.raises(TypeError, match="fuzzifier='2' must be a number above 1"):
        EfkmvcOptions(fuzzifier="2")
    with pytest.raises(TypeError, match="local must be of type TensorOptions"):
        FederationOptions(local=EfkmvcOptions())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_options_of_another_algorithm_are_refused(algorithm):
    wanted = ALGORITHMS[algorithm]
    for owner in {EfkmvcOptions, TensorOptions, FederationOptions, PersonOptions} - {wanted}:
        with pytest.raises(TypeError, match=rf"must be {wanted.__name__}\(\.\.\.\), got {owner.__name__}"):
            algorithm(some_clients(), 2, owner(), 0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_start_that_does_not_fit_is_refused(algorithm):
    clients = some_clients()
    with pytest.raises(ValueError, match=r"start must be a pair: .* and 2 view weights, got shapes"):
        algorithm(clients, 2, start=([np.zeros((2, 3))], np.full(2, 0.5)))
    with pytest.raises(ValueError, match="start must be a pair"):
        algorithm(clients, 2, start=[np.zeros((2, 3)), np.zeros((2, 2)), np.zeros(2)])
    with pytest.raises(ValueError, match="start must be a pair"):
        reference.efkmvc(clients, 2, start=[np.zeros((2, 3)), np.zeros((2, 2))])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_goes_on_from_the_result_of_another(algorithm):
    last = algorithm(some_clients(), 2, None, 0).history[-1]
    start = getattr(last, "parts", last.centers), last.view_weights
    assert np.isfinite(algorithm(some_clients(), 2, start=start).objectives).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_clients_that_the_paper_has_no_rule_for_are_refused_by_name(algorithm):
    clients = some_clients()
    with pytest.raises(ValueError, match="client oslo lacks view 1: the paper has no rule for missing views"):
        algorithm(clients | {"oslo": [clients["oslo"][0], None]}, 2)
    with pytest.raises(ValueError, match="n_clusters=13 must be a whole number from 1 to the number of rows, 12"):
        algorithm(clients, 13)
    with pytest.raises(ValueError, match="client rome has views of shapes"):
        algorithm(clients | {"rome": [np.zeros(6), np.zeros(6)]}, 2)
    with pytest.raises(TypeError, match="client 0 must be a list of views"):
        algorithm(clients["rome"], 2)


def test_labels_are_found_by_the_name_of_the_client():
    found = reference.efkmvc(some_clients(), 2, random_state=0)
    assert list(found.site_labels) == ["rome", "oslo"]
    np.testing.assert_array_equal(found.site_labels["oslo"], found.labels[1])
    assert list(reference.efkmvc(list(some_clients().values()), 2, random_state=0).site_labels) == ["0", "1"]


def with_readings():
    functions = [getattr(reference, name) for name in reference.__all__]
    for function in [function for function in functions if not isinstance(function, type)]:
        for name, parameter in signature(function).parameters.items():
            if isinstance(parameter.default, str):
                yield function, name


@pytest.mark.parametrize(("function", "name"), list(with_readings()))
def test_functions_refuse_readings_that_they_do_not_know(function, name):
    needed = [p for p in signature(function).parameters.values() if p.default is p.empty]
    with pytest.raises(ValueError, match=f"{name}='none' must be one of"):
        function(**{parameter.name: None for parameter in needed}, **{name: "none"})


def test_help_begins_with_names_of_types_that_can_be_read():
    for name in reference.__all__:
        owner = getattr(reference, name)
        if not isinstance(owner, type):
            assert "numpy.ndarray" not in pydoc.render_doc(owner, renderer=pydoc.plaintext)
            assert _hints(owner)
