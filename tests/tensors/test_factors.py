"""Factors: which arrays are the basis and which the core, and how they make centres."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.tensors import CPFactors, Parafac2Factors, TuckerFactors
from fedhk.testing.decompositions import random_centers
from tensors.forms import FORMS, RANKS, WIDTHS

NUMBERS = {
    "Tucker": (26 * 4, 3 * 4 * 2 + 5 * 3 + 3 * 2),
    "PARAFAC2": (26 * 3, 3 * (5 + 3 + 3)),
    "CP": (11 * 3, 3 * (5 + 3 + 3)),
}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_numbers_of_basis_and_core_are_those_of_the_arrays(form):
    factors = form.fit(random_centers(np.random.default_rng(0), 5, WIDTHS), rank=RANKS[form.name])
    arrays = factors.basis_arrays, factors.core_arrays
    assert tuple(sum(array.size for array in part) for part in arrays) == NUMBERS[form.name]


def test_centres_by_hand():
    """One cluster, two views, rank one: every number of a centre is a product of four."""
    p, r, first, second = np.array([[2.0]]), np.array([[3.0], [5.0]]), np.array([[0.6], [0.8]]), np.array([[1.0]])
    expected = [[[3.6 * 7, 4.8 * 7]], [[10.0 * 7]]]
    tucker = TuckerFactors(np.array([[[7.0]]]), p, (first, second), r)
    parafac2 = Parafac2Factors(p, np.array([[7.0]]), r, (first, second))
    for factors in (tucker, parafac2):
        for found, wanted in zip(factors.centers(), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-15)
    common = CPFactors(p, np.array([[7.0]]), r, first, (2, 1))
    np.testing.assert_allclose(common.centers()[1], [[6.0 * 7]], rtol=1e-15)


def test_other_arrays_go_to_their_fields():
    factors = TuckerFactors(np.ones((1, 1, 1)), np.ones((2, 1)), (np.ones((3, 1)), np.ones((4, 1))), np.ones((2, 1)))
    assert [array.shape for array in factors.basis_arrays] == [(3, 1), (4, 1)]
    assert [array.shape for array in factors.core_arrays] == [(1, 1, 1), (2, 1), (2, 1)]
    narrow = factors.with_arrays(basis=[np.zeros((1, 1)), np.zeros((2, 1))])
    assert [basis.shape for basis in narrow.feature_factors] == [(1, 1), (2, 1)]
    assert narrow.core is factors.core
    doubled = factors.with_arrays(core=[2 * array for array in factors.core_arrays])
    assert doubled.feature_factors == factors.feature_factors
    np.testing.assert_array_equal(doubled.view_factor, 2 * factors.view_factor)
