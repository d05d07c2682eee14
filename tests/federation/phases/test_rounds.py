"""Rounds go on until the objective of the same rows settles, and end with the parameters that sites are sent."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from federations import make_phases, make_plan, parameters_of, progress_of, run_sites
from fedhk import datasets, protocols
from fedhk.federation.entries import FinalModel, Result
from fedhk.federation.phases.rounds import digest_names
from fedhk.model.descent import START_KEPT
from fedhk.tensors.low_rank import LowRankForm

LIAR = "oslo"


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(4, 30, n_clusters=3, n_features=(3, 4), random_state=3)
    return dict(zip(["bern", LIAR, "rome", "turin"], data.sites.values(), strict=True))


def silent_in(exchanges):
    return lambda site, _, exchange, answer: None if site == LIAR and exchange in exchanges else answer


def test_without_tolerance_all_rounds_are_run(sites):
    run, engine = run_sites(make_phases(max_rounds=7), sites)
    assert engine.phases.count("round") == progress_of(run).iteration == len(run.history) == 7
    assert not progress_of(run).converged
    assert "tol=0" in progress_of(run).stop_reason


def test_they_end_when_the_objective_settles(sites):
    run, _ = run_sites(make_phases(max_rounds=60, tol=1e-6), sites)
    progress = progress_of(run)
    assert progress.converged
    assert 2 < progress.iteration < 60
    first, last = run.history[-2]["objective"], run.history[-1]["objective"]
    assert first - last < 1e-6 * first
    assert all(a["objective"] >= b["objective"] for a, b in zip(run.history, run.history[1:], strict=False))


@pytest.mark.parametrize("protocol", ["statistics", "cores", "centers"])
def test_the_first_objective_is_that_of_the_start(sites, protocol):
    """A round tells the objective before its step; a step that raised it is not kept."""
    short, _ = run_sites(make_phases(max_rounds=1, protocol=protocol), sites)
    long, _ = run_sites(make_phases(max_rounds=3, protocol=protocol), sites)
    assert long.history[0]["objective"] == short.history[0]["objective"]
    best = min(record["objective"] for record in long.history[:2])
    assert short.board.get(Result).objective == pytest.approx(best, rel=1e-3)


def test_rows_that_come_and_go_are_not_taken_for_convergence(sites):
    """The objective rises when a site comes back; that is no sign of a minimum."""
    plan = make_plan(max_rounds=60, tol=1e-6)
    run, _ = run_sites(plan, sites, tamper=silent_in([3, 5]))
    undisturbed, _ = run_sites(plan, sites)
    assert progress_of(run).converged
    assert run.history[2]["objective"] > run.history[1]["objective"]
    assert run.history[3]["objective"] < run.history[2]["objective"]
    assert len(run.history) > 5
    assert run.board.get(Result).objective == pytest.approx(undisturbed.board.get(Result).objective, rel=1e-4)


def test_other_sites_with_the_same_objective_are_not_taken_for_convergence(sites):
    """Two halves of the same rows, asked in turn."""
    twins = {"a": sites["rome"], "b": sites["rome"]}
    start = [view[:3] for view in sites["rome"]]
    turns = lambda n: ["a"] if n % 2 else ["b"]  # noqa: E731
    run, _ = run_sites(make_phases(init=start, max_rounds=6, tol=0.5), twins, present=turns)
    assert len(run.history) == 6
    assert not progress_of(run).converged
    alone, _ = run_sites(make_phases(init=start, max_rounds=6, tol=0.5), twins, present=lambda _: ["a"])
    assert len(alone.history) < 6


def test_the_digest_of_names_depends_on_who_and_not_on_how_many():
    assert digest_names(["a", "b"]) == digest_names(["a", "b"])
    assert len({digest_names(names) for names in (["a", "b"], ["a"], ["b"], ["ab"], ["a", "c"], [])}) == 6


@pytest.mark.parametrize("protocol", ["statistics", "cores", "centers"])
def test_sites_and_server_end_with_the_same_centres(sites, protocol):
    run, engine = run_sites(make_phases(max_rounds=3, protocol=protocol), sites)
    expected = np.hstack(parameters_of(run).centers)
    for site in engine.states.values():
        from fedhk.federation.phases.finish import final_parameters  # noqa: PLC0415

        assert_array_equal(np.hstack(final_parameters(site).centers), expected)
        assert site.board.has(FinalModel)


# What each kind of round is made of.
PROTOCOLS = {
    "statistics": {"protocol": "statistics"},
    "rounded": {"protocol": protocols.Statistics(basis=True, precision="byte")},
    "robust": {"aggregator": "robust"},
    "centers": {"protocol": protocols.Averaging(weights="rows")},
    "factors": {"protocol": protocols.FactorAveraging(passes=1), "form": LowRankForm("parafac2", 2)},
    "personalized": {"protocol": protocols.Personalized()},
}


def check_kept_model(kind, max_rounds, seed, **data):
    """No model of the history is better than the one that is kept, and only what settled has converged."""
    sites = datasets.make_sites(**{"n_sites": 5, "n_samples": 25, "n_clusters": 3, "random_state": seed} | data).sites
    run, _ = run_sites(make_phases(max_rounds=max_rounds, tol=1e-5, seed=seed, **PROTOCOLS[kind]), sites)
    progress, objectives = progress_of(run), [record["objective"] for record in run.history]
    if kind != "personalized":  # the result is of the common model there, the history of own ones
        assert run.board.get(Result).objective <= min(objectives) * (1 + 1e-12)
    if progress.converged:
        assert abs(objectives[-1] - objectives[-2]) <= 1e-5 * objectives[-2]
    assert progress.lowest == min(objectives)


@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("max_rounds", [1, 3, 20])
def test_no_model_of_the_history_is_better_than_the_one_that_is_kept(kind, max_rounds):
    """Sites whose clusters lie elsewhere: averages of their centres are often worse than what they started from."""
    for seed in range(3):
        check_kept_model(kind, max_rounds, seed, n_features=(9, 6), shift=2.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_none_of_200_random_runs_is_said_to_have_converged_where_it_has_not(kind):
    rng = np.random.default_rng(1)
    for seed in range(200):
        widths = tuple(int(width) for width in rng.integers(3, 12, size=2))
        sizes = {"n_sites": int(rng.integers(2, 6)), "n_samples": int(rng.integers(12, 25)), "n_features": widths}
        shapes = {"shift": float(rng.uniform(0, 4)), "scale": float(rng.uniform(0, 1))}
        check_kept_model(kind, int(rng.integers(1, 20)), seed, **sizes, **shapes)


def test_a_run_that_finds_nothing_better_than_its_start_says_so():
    data = datasets.make_sites(4, 25, n_clusters=3, n_features=(9, 6), shift=3.0, random_state=4)
    plan = make_phases(max_rounds=60, tol=1e-5, seed=4, protocol=protocols.Averaging(passes=7, weights="quality"))
    run, _ = run_sites(plan, data.sites)
    progress = progress_of(run)
    assert run.history[1]["objective"] > run.history[0]["objective"]
    assert progress.lowest_at == 1
    last = progress.iteration
    assert progress.stop_reason == f"The objective was not below that of the start in rounds 2 to {last}. {START_KEPT}"
    assert not progress.converged
    assert np.argmin([record["objective"] for record in run.history]) == 0


@pytest.mark.parametrize("max_rounds", [1, 2, 30])
def test_the_start_is_kept_as_often_as_it_is_said(sites, max_rounds):
    """From where a run has converged no round leads further, and nothing is said of it."""
    data = datasets.make_sites(5, 25, n_clusters=3, n_features=(9, 6), shift=2.0, random_state=0).sites
    for protocol in ("centers", "factors"):
        run, _ = run_sites(make_phases(max_rounds=max_rounds, tol=1e-5, **PROTOCOLS[protocol]), data)
        start = run.history[0]["objective"] * (1 - 1e-12) <= run.board.get(Result).objective
        assert (START_KEPT in progress_of(run).stop_reason) == start
    settled, _ = run_sites(make_phases(max_rounds=60, tol=1e-9), sites)
    again = make_phases(max_rounds=60, tol=1e-5, protocol="cores", init=list(parameters_of(settled).centers))
    progress = progress_of(run_sites(again, sites)[0])
    assert progress.converged
    assert START_KEPT not in progress.stop_reason


def test_rows_of_other_sites_in_every_round_leave_the_last_model(sites):
    """Objectives of different rows tell nothing of which model is better."""
    turns = lambda n: ["bern"] if n % 2 else ["rome"]  # noqa: E731
    run, engine = run_sites(make_phases(protocol="centers", max_rounds=4, tol=1e-5), sites, present=turns)
    assert engine.phases.count("round") == 4
    assert not progress_of(run).converged
