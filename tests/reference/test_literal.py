"""The literal paper of the benchmark is the readable one, with arrays for its loops."""

import numpy as np

from fedhk import reference
from scripts import load_benchmark


def test_arrays_give_what_loops_give():
    literal = load_benchmark("literal")
    rng = np.random.default_rng(0)
    clients = [[rng.normal(size=(12, 3)), rng.normal(size=(12, 2))] for _ in range(2)]
    slow = reference.efkmvc(clients, 3, reference.EfkmvcOptions(max_rounds=4), np.random.default_rng(1))
    fast = literal.efkmvc(clients, 3, 4, np.random.default_rng(1))
    np.testing.assert_allclose(fast.objectives, slow.objectives, rtol=1e-10)
    np.testing.assert_allclose(fast.view_weights, slow.view_weights, rtol=1e-10)
    for mine, theirs in zip(fast.clients, slow.clients, strict=True):
        np.testing.assert_allclose(mine.memberships, theirs.memberships, atol=1e-10)
        for a, b in zip(mine.centers, theirs.centers, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
