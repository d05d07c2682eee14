"""The corrected algorithms with one correction taken back at a time.

    python benchmarks/ablation.py            # benchmarks/results/ablation.md, some minutes

Everything but the last table runs on the paper's own formulas (`fedhk.reference.arrays`), in the readings that the row
names. With nothing taken back they are what `EFKMVC` does, which stands beside them as a check: the same start, view
weights and fuzzifier, sums over all sites. Sites are the real ones, or ten by Dirichlet(0.5). The paper has no rule for
missing cells, so heart4_nan is in the last table alone.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import fedhk
from data import RESULTS, DataSet, scaled_views, seeds, shared_sets
from fedhk.reference import arrays, untensorize
from fedhk.reference.tensor_federation import FederationOptions, start_parts
from methods import Sites
from tables import spread, table

SEEDS = seeds(3)
ROUNDS, PASSES, TOLERANCE = 100, 5, 1e-6
TENSOR_ROUNDS, SWEEPS = 15, 2
MOST_UNKNOWNS = 300  # of a core: each sweep solves for all of them at once
VIEW_EXPONENT = 2.0  # alpha, as in the defaults of the estimators

Views = list[np.ndarray]


@dataclass(frozen=True)
class Corrections:
    """What of the corrected Algorithm 1 is in force; a field that is changed takes one correction back."""

    coefficients: Literal["uniform", "minmax", "absdev"] = "uniform"
    center_reading: Literal["corrected", "theorem", "proof"] = "corrected"
    distance_reading: Literal["per_view", "summed"] = "per_view"
    bandwidth: bool = True
    fuzzifier: float | None = None  # None is the estimator's
    learned_weights: bool = False
    random_start: bool = False
    server: Literal["sums", "rows", "softmax of means", "softmax of sums"] = "sums"


MIN_MAX = Corrections(coefficients="minmax")
ALGORITHM_1: dict[str, Corrections | dict[str, object]] = {
    "nothing: `EFKMVC`": {},
    "nothing: the formulas corrected": Corrections(),
    "one exponential over all views (`eqn:federated_ked`)": Corrections(distance_reading="summed"),
    "no bandwidth: g = 1 on z-scores": Corrections(bandwidth=False),
    "m = 2 from a good start": Corrections(fuzzifier=2.0),
    "m = 2 from the start on: `EFKMVC(fuzzifier=2)`": {"fuzzifier": 2.0},
    "view weights by the printed rule, alpha = 2": Corrections(learned_weights=True),
    "centres start at random": Corrections(random_start=True),
    "centres of sites averaged by rows (`eqn:global_A_EFKMVFC`)": Corrections(server="rows"),
    "averaged by softmax of mean J, tau = 1": Corrections(server="softmax of means"),
    "averaged by softmax of J as printed, tau = 1": Corrections(server="softmax of sums"),
    "absolute deviations instead of delta = 1": Corrections(coefficients="absdev"),
    "min-max coefficients instead of delta = 1": MIN_MAX,
    "min-max, and the centres of the proof": replace(MIN_MAX, center_reading="proof"),
    "min-max, and the centres of the theorem": replace(MIN_MAX, center_reading="theorem"),
}


class Problem:
    """A data set at its sites, in the units of the model, with the start and the settings that `EFKMVC` finds."""

    def __init__(self, data: DataSet, seed: int) -> None:
        self.sites = Sites(data, seed)
        self.data, self.seed = data, seed
        self.scaled = scaled_views(data)
        self.means = [view.mean(axis=0) for view in self.scaled]
        self.units = [
            np.sqrt(np.square(x - mean).sum(axis=1).mean()) for x, mean in zip(self.scaled, self.means, strict=True)
        ]

    def fit(self, estimator: type[fedhk.EFKMVC] = fedhk.EFKMVC, **options: object) -> fedhk.EFKMVC:
        """The estimator on the sites."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimator(self.data.n_classes, scaling=self.data.scaling, random_state=self.seed, **options)
            return model.fit(self.sites.views)

    def labels(self, model: fedhk.EFKMVC) -> np.ndarray:
        """Labels of all rows by the models of the sites."""
        found = np.empty(len(self.data.labels), np.intp)
        for site, own in self.sites.rows.items():
            found[own] = model.labels_[site]
        return found

    @cached_property
    def model(self) -> fedhk.EFKMVC:
        """`EFKMVC` after its first round: view weights and the fuzzifier are chosen before it."""
        return self.fit(max_rounds=1)

    @cached_property
    def start(self) -> Views:
        """Centres after the first round, in the units of `scaled_views`."""
        found = self.model.cluster_centers_
        if self.data.scaling == "l2":
            return list(found)
        parts = []
        for center, view in zip(found, self.data.views, strict=True):
            deviation = view.std(axis=0)
            parts.append((center - view.mean(axis=0)) / np.where(deviation > 0, deviation, 1))
        return parts

    def rows_and_centers(self, how: Corrections) -> tuple[Views, Views, Views]:
        """Rows, coefficients and start, in units in which the exponent of the kernel is phi itself."""
        rows = [(x - mean) / unit for x, mean, unit in zip(self.scaled, self.means, self.units, strict=True)]
        centers = [(a - mean) / unit for a, mean, unit in zip(self.start, self.means, self.units, strict=True)]
        if how.random_start:
            generator = np.random.default_rng(self.seed)
            centers = [generator.normal(size=a.shape) / np.sqrt(a.shape[1]) for a in centers]
        coefficients = [_coefficients(x, how) for x in rows]
        for h, (x, delta) in enumerate(zip(rows, coefficients, strict=True)):
            energy = np.mean((delta * x * x).sum(axis=1))  # the mean of phi at the grand mean is g
            factor = np.sqrt(self.model.heat_time / energy) if how.bandwidth else self.units[h]
            rows[h], centers[h] = factor * x, factor * centers[h]
        return rows, coefficients, centers


def _coefficients(x: np.ndarray, how: Corrections) -> np.ndarray:
    if how.coefficients == "uniform":
        return np.ones_like(x)
    return (arrays.minmax_coefficient if how.coefficients == "minmax" else arrays.absdev_coefficient)(x)


@dataclass(frozen=True)
class State:
    """Memberships, centres, view weights and J after some passes over the rows of a client."""

    memberships: np.ndarray
    centers: Views
    view_weights: np.ndarray
    objective: float


def run_algorithm_1(problem: Problem, how: Corrections | dict[str, object]) -> np.ndarray:
    """Labels of all rows by Algorithm 1 with these corrections, or by the estimator with these settings."""
    if isinstance(how, dict):
        return problem.labels(problem.fit(**how))
    rows, coefficients, centers = problem.rows_and_centers(how)
    weights = np.asarray(problem.model.view_weights_)
    fuzzifier = how.fuzzifier or problem.model.fuzzifier_
    owners = list(problem.sites.rows.values()) if how.server != "sums" else [np.arange(len(rows[0]))]
    previous, passes = np.inf, 1 if how.server == "sums" else PASSES
    for _ in range(ROUNDS):
        states = []
        for own in owners:
            state = State(np.empty(0), centers, weights, np.inf)
            for _ in range(passes):
                state = _pass([x[own] for x in rows], [d[own] for d in coefficients], state, how, fuzzifier)
            states.append(state)
        omegas = _client_weights(states, how)
        centers = [np.tensordot(omegas, [s.centers[h] for s in states], 1) for h in range(len(rows))]
        weights = omegas @ [s.view_weights for s in states]
        objective = sum(s.objective for s in states)
        if abs(previous - objective) <= TOLERANCE * objective:
            break
        previous = objective
    labels = np.empty(len(rows[0]), np.intp)
    for own, state in zip(owners, states, strict=True):
        labels[own] = state.memberships.argmax(axis=1)
    return labels


def _pass(rows: Views, coefficients: Views, state: State, how: Corrections, fuzzifier: float) -> State:
    """One pass in the order of Algorithm 1: memberships, centres, view weights."""
    distances = arrays.fked(rows, state.centers, coefficients, how.distance_reading)
    mu = arrays.update_memberships(distances, state.view_weights, VIEW_EXPONENT, fuzzifier)
    options = {"view_exponent": VIEW_EXPONENT, "fuzzifier": fuzzifier, "reading": how.center_reading}
    centers = arrays.update_centers(rows, mu, state.centers, coefficients, state.view_weights, **options)
    weights = state.view_weights
    if how.learned_weights:
        weights = arrays.update_view_weights(distances, mu, VIEW_EXPONENT, fuzzifier)
    objective = arrays.ekmvc_objective(distances, mu, weights, VIEW_EXPONENT, fuzzifier)
    return State(mu, centers, weights, objective)


def _client_weights(states: Sequence[State], how: Corrections) -> np.ndarray:
    sizes = [len(state.memberships) for state in states]
    if how.server.startswith("softmax"):
        given = sizes if how.server == "softmax of means" else None
        return arrays.client_weights([state.objective for state in states], 1.0, given)
    return np.array(sizes) / sum(sizes)


TENSOR = {
    "nothing": "corrected",
    "padding not masked": "padded",
    "padding not masked, and no kernel in the weights: as printed": "printed",
}


def run_tensor(problem: Problem, how: str) -> np.ndarray:
    """Labels of all rows with centres in Tucker's form, at the ranks that `fedhk.reference` takes by default."""
    rows, coefficients, centers = problem.rows_and_centers(Corrections())
    widths, fuzzifier = [x.shape[1] for x in rows], problem.model.fuzzifier_
    weights = np.asarray(problem.model.view_weights_)
    generator = np.random.default_rng(problem.seed)
    parts, _ = start_parts(len(centers[0]), widths, FederationOptions(), generator)
    fitted = untensorize(arrays.tensorize(rows), [max(widths)] * len(rows)) if how == "padded" else rows
    options = {
        "view_weights": weights,
        "view_exponent": VIEW_EXPONENT,
        "fuzzifier": fuzzifier,
        "reading": "printed" if how == "printed" else "corrected",
    }
    for _ in range(TENSOR_ROUNDS):
        distances = arrays.fked(rows, centers, coefficients)
        mu = arrays.update_memberships(distances, weights, VIEW_EXPONENT, fuzzifier)
        given = (fitted, mu, arrays.tensorize(centers), [np.ones_like(x) for x in fitted])
        for _ in range(SWEEPS):
            parts = arrays.update_parts(*given, parts, **options)
        centers = untensorize(arrays.tucker_to_tensor(parts[0], parts[1:]), widths)
    return mu.argmax(axis=1)


ALGORITHM_4: dict[str, dict[str, object]] = {
    "nothing: `FedHKPerson`": {},
    "no calibration": {"calibration": None},
    "lambda fixed at 1, the site's own centres": {"personalization": 1.0},
    "lambda fixed at 0.5": {"personalization": 0.5},
    "lambda fixed at 0, the common centres": {"personalization": 0.0},
    "no calibration, lambda fixed at 0.5": {"calibration": None, "personalization": 0.5},
}


def run_algorithm_4(problem: Problem, options: dict[str, object]) -> np.ndarray:
    """Labels of all rows by the sites' own models."""
    return problem.labels(problem.fit(fedhk.FedHKPerson, **options))


def measure(data: DataSet, seed: int, run: Callable[..., np.ndarray], rows: Sequence[object]) -> np.ndarray:
    """ARI over all rows, and the mean of ARI within sites, for each row of a table."""
    problem = Problem(data, seed)
    found = []
    for how in rows:
        with threadpool_limits(1), np.errstate(all="ignore"):
            labels = run(problem, how)
        owners = [own for own in problem.sites.rows.values() if len(own) > 1]
        within = np.mean([adjusted_rand_score(data.labels[own], labels[own]) for own in owners])
        found.append((adjusted_rand_score(data.labels, labels), within))
    return np.array(found)


def ablate(title: str, sets: Sequence[DataSet], run: Callable[..., np.ndarray], rows: dict[str, object]) -> list[str]:
    """One line for each correction that is taken back: ARI on each set, and the means."""
    jobs = [(data, seed, run, list(rows.values())) for data in sets for seed in SEEDS]
    found = np.array(Parallel(n_jobs=-1)(delayed(measure)(*job) for job in jobs))
    found = found.reshape(len(sets), len(SEEDS), len(rows), 2)
    lines = []
    for i, name in enumerate(rows):
        per_set, means = found[:, :, i, 0], found[:, :, i].mean(axis=0)
        lines.append((name, *map(spread, per_set), spread(means[:, 0]), spread(means[:, 1])))
    names = ("what is taken back", *(data.name for data in sets), "mean", "mean within sites")
    return table(f"{title} (ARI, {len(SEEDS)} seeds)", names, lines)


def _has_padding(data: DataSet) -> bool:
    """Whether a third of a view or more would be padding, and the core is not too large."""
    widths = [view.shape[1] for view in data.views]
    n_unknowns = data.n_classes * min(data.n_classes, max(widths)) * len(widths)
    return max(widths) > 1.5 * min(widths) and n_unknowns <= MOST_UNKNOWNS


def main() -> None:
    sets = shared_sets()
    complete = [data for data in sets if not any(np.isnan(view).any() for view in data.views)]
    padded = [data for data in complete if _has_padding(data)]
    real = [data for data in sets if data.client is not None]
    lines = [
        *ablate("Algorithm 1", complete, run_algorithm_1, ALGORITHM_1),
        *ablate("Algorithms 2 and 3, sets whose views differ much in width", padded, run_tensor, TENSOR),
        *ablate("Algorithm 4, by settings of the estimator, real sites", real, run_algorithm_4, ALGORITHM_4),
    ]
    text = "\n".join(lines)
    print(text)
    (RESULTS / "ablation.md").write_text(text)


if __name__ == "__main__":
    main()
