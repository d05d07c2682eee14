"""Progress is said on standard error: one line for each phase before the rounds, one for each round, none twice."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from federations import make_phases, run_sites
from fedhk import EFKMVC, FedHKDiffusion, FedHKParafac2, FedHKPerson, FedHKTucker, HeatKernelMVC, datasets
from fedhk.estimators.progress import show_progress

QUICK = {"n_init": 2, "random_state": 0}
# fits of few rounds on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.* did not converge:sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(3, 40, n_clusters=3, n_features=(3, 5), separation=6, random_state=2)


def lines(data, **changes):
    phases, stream = make_phases(**changes), io.StringIO()
    names = [phase.name for phase in phases]
    show = show_progress(changes["max_rounds"], stream)
    run, _ = run_sites(phases, data.sites, after=[lambda run: show(run, names)])
    return run, stream.getvalue().splitlines()


def test_every_round_has_its_line_with_objective_change_and_bytes(data):
    run, said = lines(data, max_rounds=4)
    rounds = [line for line in said if line.startswith("round")]
    assert len(rounds) == 4
    assert len(set(said)) == len(said)
    pattern = r"round (\d) of at most 4: objective ([\d.e+-]+)( \([+-][\d.e+-]+\))?, [\d.]+ MB"
    for number, (line, record) in enumerate(zip(rounds, run.history, strict=True), start=1):
        found = re.fullmatch(pattern, line)
        assert found, line
        assert int(found[1]) == number
        assert float(found[2]) == pytest.approx(record["objective"], rel=1e-4)
        assert (found[3] is None) == (number == 1)


def test_phases_before_the_rounds_are_named_and_counted(data):
    _, said = lines(data, max_rounds=1, heat_coef="absdev")
    setup = [line for line in said if line.startswith("set-up")]
    assert setup
    steps = [re.fullmatch(r"set-up: [\w ]+, step (\d+) of (\d+), exchange \d+, [\d.]+ MB", line) for line in setup]
    assert [int(step[1]) for step in steps] == sorted(int(step[1]) for step in steps)
    assert {int(step[2]) for step in steps} == {len(make_phases(max_rounds=1, heat_coef="absdev"))}


def test_steps_under_masks_have_the_names_that_the_documentation_has(data, capsys):
    EFKMVC(3, verbose=1, secure=True, max_rounds=1, **QUICK).fit(data.sites)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("set-up: ")
    assert not any("sealed" in line for line in said)


@pytest.mark.parametrize("runs_all", [True, False])
def test_over_a_network_lines_say_how_long_it_took_and_where_rounds_are_known_what_is_to_come(data, runs_all):
    phases, stream = make_phases(max_rounds=4), io.StringIO()
    names = [phase.name for phase in phases]
    show = show_progress(4, stream, timed=True, runs_all=runs_all)
    pace = {"seconds": 30.0}  # of every exchange

    def after(run):
        history = tuple(record | pace for record in run.history)
        show(replace(run, history=history, pending=run.pending | pace), names)

    run_sites(phases, data.sites, after=[after])
    said = stream.getvalue().splitlines()
    assert all(re.search(r" MB, [\d.]+ (s|minutes)", line) for line in said)
    rounds = [line for line in said if line.startswith("round")]
    found = [line.partition("; about ")[2] for line in rounds]
    assert found == (["", "60 s to go", "30 s to go", ""] if runs_all else [""] * 4)


def test_bytes_only_grow_and_end_with_those_of_the_history(data):
    run, said = lines(data, max_rounds=3)
    sizes = [float(line.split(", ")[-1].removesuffix(" MB")) for line in said]
    assert sizes == sorted(sizes)
    total = sum(record["bytes_up"] + record["bytes_down"] for record in run.history) / 1e6
    assert sizes[-1] <= total + 0.005


@pytest.mark.parametrize("estimator", [EFKMVC, FedHKTucker, FedHKParafac2, FedHKPerson, FedHKDiffusion])
def test_verbose_writes_to_standard_error_only(data, capfd, estimator):
    estimator(3, verbose=1, max_rounds=2, **QUICK).fit(data.sites)
    out, err = capfd.readouterr()
    assert out == ""
    assert "round" in err
    assert "objective" in err
    estimator(3, max_rounds=2, **QUICK).fit(data.sites)
    assert capfd.readouterr() == ("", "")


def test_the_first_phase_and_the_number_of_clusters_that_was_found_are_said(data, capsys):
    EFKMVC(3, verbose=1, **QUICK).fit(data.sites)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("set-up: ")
    assert max(map(len, said)) <= 80
    with pytest.warns(UserWarning, match=r"=\(2, 4\): 2 was taken, but there is no clear number: .* (has|have) more"):
        HeatKernelMVC((2, 4), verbose=1, **QUICK).fit(data.views)
    said = [line for line in capsys.readouterr().err.splitlines() if "clusters: " in line]
    assert said[0].startswith("2 clusters: no clear number")
    assert said[1] == "2 clusters: looking for a start"
