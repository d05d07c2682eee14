"""What docs/paper-map.md and docs/theory.md say in figures, computed."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk import EFKMVC, HeatKernelMVC, reference
from fedhk.datasets import make_sites
from fedhk.protocols import Averaging


def test_without_a_bandwidth_most_distances_of_wide_rows_are_one():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1000, 50))
    centers = rows[rng.choice(1000, 5, replace=False)]
    coefs = reference.minmax_coefficient(rows)
    exponents = (coefs[:, None, :] * (rows[:, None, :] - centers) ** 2).sum(axis=2)
    assert np.mean(-np.expm1(-exponents) == 1.0) > 0.8


def test_equal_view_weights_divide_the_objective_by_a_constant():
    rng = np.random.default_rng(1)
    distances, mu = [rng.uniform(size=(6, 3)) for _ in range(2)], rng.dirichlet(np.ones(3), size=6)
    alike = reference.ekmvc_objective(distances, mu, np.full(2, 0.5), 3.0, 2.0)
    assert reference.amvc_objective(distances, mu, 2.0) == pytest.approx(2**3.0 * alike)


class TestLambdaOnTheRowsThatWereFitted:
    """One cluster, ten rows at 0 and five at 6; the local centre 0 is the best there is, the global one is 8."""

    rows = np.r_[np.zeros(10), np.full(5, 6.0)][:, None]
    local, common = np.zeros((1, 1)), np.full((1, 1), 8.0)

    def objective(self, weight):
        center = reference.blend(self.local, self.common, weight)
        return float(np.sum(-np.expm1(-((self.rows - center) ** 2))))

    def learn(self, weight):
        parts = np.ones((15, 1)), [np.ones((15, 1))], np.ones(1)
        for _ in range(500):
            center = reference.blend(self.local, self.common, weight)
            slope = reference.center_gradient(
                [self.rows], parts[0], [center], parts[1], parts[2], view_exponent=2.0, fuzzifier=2.0
            )
            gradient = reference.lambda_gradient(slope, [self.local], [self.common])
            weight = reference.adaptive_lambda(weight, gradient, 1e-3)
        return weight

    def test_no_share_is_better_than_one(self):
        assert min(self.objective(weight) for weight in np.linspace(0, 1, 1001)) >= self.objective(1.0) - 1e-12

    @pytest.mark.parametrize("start", [0.0, 0.2, 0.5])
    def test_and_yet_steps_may_end_elsewhere(self, start):
        assert self.learn(start) == pytest.approx(0.25)
        assert self.objective(0.25) > 1.9 * self.objective(1.0)


def test_a_round_of_averages_is_that_of_algorithm_1_with_corrected_centres():
    """View weights are held: the paper learns them after the centres, the fast code before."""
    passes, m, alpha, weights = 3, 1.3, 2.0, np.full(2, 0.5)
    sites = make_sites(3, 30, 3, (4, 3), random_state=2).sites
    everybody = [np.vstack([views[h] for views in sites.values()]) for h in range(2)]
    corners = [  # two rows that make the ranges of every site those of all; all minima in one would have no distance
        np.where(np.indices((2, view.shape[1])).sum(axis=0) % 2, view.min(axis=0), view.max(axis=0))
        for view in everybody
    ]
    sites = {name: [np.vstack([views[h], corners[h]]) for h in range(2)] for name, views in sites.items()}
    start = [view[[0, 40, 80]] + 0.1 for view in everybody]
    model = EFKMVC(3, init=start, protocol=Averaging(passes, "rows"), heat_coef="minmax", scaling="none", fuzzifier=m)
    model.set_params(view_weights="uniform", max_rounds=1, tol=0.0).fit(sites)
    # rows times this number have the paper's bandwidth, 1
    units = [np.sqrt(model.heat_time) / float(part.scale[0]) for part in model._model.references]
    averaged = [np.zeros_like(center) for center in start]
    n_rows = sum(len(views[0]) for views in sites.values())
    for views in sites.values():
        rows = [view * unit for view, unit in zip(views, units, strict=True)]
        centers = [center * unit for center, unit in zip(start, units, strict=True)]
        coefs = [reference.minmax_coefficient(view) for view in rows]
        for _ in range(passes):
            mu = reference.update_memberships(reference.fked(rows, centers, coefs), weights, alpha, m)
            centers = reference.update_centers(
                rows, mu, centers, coefs, weights, view_exponent=alpha, fuzzifier=m, reading="corrected"
            )
        for h, unit in enumerate(units):
            averaged[h] += len(rows[0]) / n_rows * centers[h] / unit
    for found, wanted in zip(model.cluster_centers_, averaged, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_the_gradient_in_the_centres_tends_to_zero():
    """Corollary 1 of docs/theory.md, with view weights that are kept."""
    views = [np.asarray(view) for view in make_sites(1, 120, 3, (4, 3), random_state=0).views]
    start = [view[[0, 40, 80]] + 0.5 for view in views]

    def slope(iterations):
        model = HeatKernelMVC(3, init=start, fuzzifier=1.3, heat_coef="minmax", max_iter=iterations, tol=0.0).fit(views)
        units = [np.sqrt(model.heat_time) / part.scale for part in model._model.references]
        rows, centers = (
            [part * unit for part, unit in zip(p, units, strict=True)] for p in (views, model.cluster_centers_)
        )
        coefs = [reference.minmax_coefficient(view) for view in views]
        mu = reference.update_memberships(reference.fked(rows, centers, coefs), model.view_weights_, 2.0, 1.3)
        found = reference.center_gradient(
            rows, mu, centers, coefs, model.view_weights_, view_exponent=2.0, fuzzifier=1.3
        )
        return max(np.abs(part).max() for part in found)

    assert slope(400) < 1e-9 * slope(1)


@pytest.mark.parametrize(("heat_coef", "weights"), [("uniform", 2), ("minmax", 60), ("absdev", 60)])
def test_a_round_sends_as_many_numbers_as_the_theory_counts(heat_coef, weights):
    """N has c D numbers, W has c s or c D, and there are s costs, c masses, J and the rows."""
    c, widths = 5, (40, 20)
    data = make_sites(3, 60, c, widths, random_state=0)
    model = EFKMVC(c, heat_coef=heat_coef, n_init=1, max_rounds=4, tol=0, random_state=0).fit(data.sites)
    numbers = c * sum(widths) + c * weights + len(widths) + c + 2
    header = model.history_[1]["bytes_up"] / len(data.sites) - 8 * numbers
    assert 0 < header < 400
