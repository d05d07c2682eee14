"""Products in pieces are the products."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from fedhk.model import readers
from fedhk.model.readers import add_rows, multiply_rows


@pytest.mark.parametrize("n_rows", [0, 1, 31, 32, 99, 100, 101, 250])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sp.csr_array])
def test_products_in_pieces_are_the_products(n_rows, layout, monkeypatch) -> None:
    monkeypatch.setattr(readers, "SMALL_PRODUCT", 50 * 6 * 3)  # pieces of 50 rows
    rng = np.random.default_rng(n_rows)
    dense, factor, weights = rng.normal(size=(n_rows, 6)), rng.normal(size=(6, 3)), rng.random((3, n_rows))
    block = layout(dense)
    assert_allclose(multiply_rows(block, factor), dense @ factor, atol=1e-12)
    assert_allclose(add_rows(weights, block), weights @ dense, atol=1e-12)
    assert_allclose(add_rows(weights[:, ::-1], dense[::-1]), weights @ dense, atol=1e-12)


def test_pieces_that_would_be_too_small_are_not_made(monkeypatch) -> None:
    called = []
    monkeypatch.setattr(np, "matmul", lambda *args, **_: called.append(args))
    monkeypatch.setattr(readers, "SMALL_PRODUCT", (readers.FEWEST_ROWS - 1) * 6 * 3)
    multiply_rows(np.ones((100, 6)), np.ones((6, 3)))
    assert not called
