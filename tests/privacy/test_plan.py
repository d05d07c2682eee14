"""A privacy plan is kept over years: what would exceed it is refused before anything is charged."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedhk.cli import app
from fedhk.errors import DataError, MessageError
from fedhk.estimators.sealing import make_guards
from fedhk.federation.remote.policy import Policy, read_policy
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.sealed.noise import Noise
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.accounting import epsilon_of
from fedhk.privacy.ledger import Ledger, LedgerError, Release, ledger_file
from fedhk.privacy.mechanism import ChoiceError
from fedhk.privacy.plan import PLAN, YEAR, PrivacyPlan, keep_plan, read_plan

few = settings(max_examples=60, deadline=None)

DELTA, DAY = 1e-6, 86_400.0
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
YEAR_SECONDS = YEAR.total_seconds()
PLANNED = PrivacyPlan(1.0, 3, DELTA, "replace")


def budget(epsilon=0.5, **changes):
    return DifferentialPrivacy(epsilon, DELTA, (-1, 1), **changes)


def release(day, privacy, run="r"):
    """A whole run's budget in one release, so many days after the first."""
    then = datetime.fromtimestamp(on(day), UTC).isoformat()
    return Release("a", run, 0, "round", privacy.budget**-0.5, 1.0, privacy.neighbours, then)


def on(day):
    return START + day * DAY


# ------------------------------------------------------------------------------------------------------------ the years


@few
@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0.05, 0.9)), max_size=12))
def test_no_year_of_the_plan_spends_more_than_its_epsilon(runs):
    """Whenever runs come and however much they ask for: those that are allowed never add up to more."""
    kept, day = [], 0
    for wait, epsilon in runs:
        day += wait
        if not PLANNED.refuse(kept, budget(epsilon), on(day)):
            kept.append(release(day, budget(epsilon)))
    times = [datetime.fromisoformat(one.time) for one in kept]
    for year in range(10):
        mine = [one for one, then in zip(kept, times, strict=True) if int((then - times[0]) / YEAR) == year]
        spent = sum(one.multiplier**-2 for one in mine)
        assert not mine or year < PLANNED.years
        assert not mine or epsilon_of(DELTA, math.sqrt(spent)) <= PLANNED.epsilon * (1 + 1e-5)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0])
def test_the_first_run_is_allowed_up_to_the_epsilon_of_a_year(epsilon):
    assert PLANNED.refuse([], budget(epsilon), on(0)) == ""
    assert "0 is spent of epsilon 1, and this run would make it 1.1" in PLANNED.refuse([], budget(1.1), on(0))


def test_what_a_year_spent_is_free_again_in_the_next_and_after_the_last_nothing_is():
    spent = [release(0, budget(1.0))]
    assert "2027-01-01" in PLANNED.refuse(spent, budget(0.1), on(365))
    assert PLANNED.refuse(spent, budget(1.0), on(366)) == ""
    assert "its 3 years are over" in PLANNED.refuse(spent, budget(0.001), START + 3 * YEAR_SECONDS + 1)
    assert PLANNED.refuse(spent, budget(1.0), START + 3 * YEAR_SECONDS - 1) == ""


def test_years_begin_with_the_first_release_of_the_site():
    ends, mine = PLANNED.find_year([release(20, budget()), release(400, budget())], on(401))
    assert ends == datetime.fromtimestamp(START, UTC) + 20 * YEAR / 365.25 + 2 * YEAR
    assert [one.time[:10] for one in mine] == ["2027-02-05"]
    assert PLANNED.find_year([], on(0))[1] == []


def test_a_clock_that_goes_back_frees_nothing():
    spent = [release(0, budget(1.0))]
    for day in (-1, -300, -2000):
        assert PLANNED.refuse(spent, budget(0.5), on(day))


def test_a_run_that_protects_added_rows_spends_four_times_as_much_of_a_plan_for_exchanged_ones():
    """Before it begins as much as after it, in the ledger."""
    added = budget(0.9, neighbours="add-remove")
    assert PLANNED.refuse([], budget(0.9), on(0)) == ""
    assert PLANNED.refuse([], added, on(0))
    assert replace(PLANNED, neighbours="add-remove").refuse([], added, on(0)) == ""
    for neighbours in ("replace", "add-remove"):
        for run in (added, budget(0.9)):
            assert run.budget_for(neighbours) == pytest.approx(release(0, run).multiplier_for(neighbours) ** -2)


# ------------------------------------------------------------------------------------------------------ in a folder


def test_a_plan_is_kept_from_its_first_run_on(tmp_path):
    folder = tmp_path / "ledgers"
    given_plan = budget(ledger=folder, plan=(1.0, 3))
    assert keep_plan(given_plan) == PLANNED
    assert keep_plan(budget(ledger=folder)) == PLANNED  # also of a run that does not name it
    assert keep_plan(given_plan) == read_plan(folder / PLAN) == PLANNED
    assert keep_plan(replace(given_plan, delta=1e-3)) == PLANNED  # a weaker delta does not widen it


@pytest.mark.parametrize("other", [(2.0, 3), (0.5, 3), (1.0, 4)])
def test_another_plan_is_refused_and_the_first_stays(tmp_path, other):
    keep_plan(budget(ledger=tmp_path, plan=(1.0, 3)))
    with pytest.raises(ChoiceError, match="A plan is kept; leave plan out"):
        keep_plan(budget(ledger=tmp_path, plan=other))
    assert read_plan(tmp_path / PLAN) == PLANNED


def test_without_a_plan_nothing_is_written(tmp_path):
    assert keep_plan(budget()) is None
    assert keep_plan(budget(ledger=tmp_path)) is None
    assert list(tmp_path.iterdir()) == []


GOOD = {"epsilon": 1.0, "years": 3, "delta": DELTA, "neighbours": "replace"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"3",
        json.dumps(GOOD).encode()[:-5],
        *(
            json.dumps(GOOD | changed).encode()
            for changed in (
                {"epsilon": 0},
                {"epsilon": math.inf},
                {"epsilon": math.nan},
                {"epsilon": "1"},
                {"years": 0},
                {"years": 2.5},
                {"years": True},
                {"delta": 1.0},
                {"delta": -1},
                {"neighbours": "nobody"},
                {"neighbours": []},
                {"more": 1},
            )
        ),
        json.dumps({"epsilon": 1.0}).encode(),
    ],
)
def test_a_damaged_plan_is_refused_and_not_taken_for_none(tmp_path, content):
    (tmp_path / PLAN).write_bytes(content)
    for privacy in (budget(ledger=tmp_path), budget(ledger=tmp_path, plan=(1.0, 3))):
        with pytest.raises(LedgerError, match=r"The privacy plan .*plan\.json.* is damaged"):
            keep_plan(privacy)
    assert (tmp_path / PLAN).read_bytes() == content


@pytest.mark.parametrize("plan", [1.0, (1.0,), (0, 3), (-1.0, 3), (math.inf, 3), (1.0, 0), (1.0, 2.5), "13", (True, 3)])
def test_what_is_no_plan_is_refused_by_name(plan):
    with pytest.raises(ValueError, match=r"plan=.* must be epsilon a year"):
        budget(plan=plan)


# ----------------------------------------------------------------------------------- before anything is charged


def fill(folder, site, privacy, run="earlier"):
    folder.mkdir(exist_ok=True)
    kept = Ledger(ledger_file(folder, site), site)
    multiplier = privacy.budget**-0.5
    kept.charge(
        run=run, exchange=0, phase="round", multiplier=multiplier, sensitivity=1.0, neighbours=privacy.neighbours
    )
    return kept


def test_a_run_that_would_exceed_the_plan_at_one_site_charges_none(tmp_path):
    privacy = budget(0.9, ledger=tmp_path, plan=(1.0, 3))
    fill(tmp_path, "rome", budget(0.8))
    before = ledger_file(tmp_path, "rome").read_bytes()
    terms = SealedTerms(noise=Noise(privacy, 2))
    with pytest.raises(
        ChoiceError, match=r"site 'rome': the privacy plan does not allow this run: in the year .* 0\.8"
    ):
        make_guards(terms, {"bern": None, "rome": None}, None, "new")
    assert ledger_file(tmp_path, "rome").read_bytes() == before
    assert Ledger(ledger_file(tmp_path, "bern"), "bern").releases() == []


def test_what_a_run_released_before_it_was_interrupted_is_part_of_its_own_budget(tmp_path):
    privacy = budget(0.9, ledger=tmp_path, plan=(1.0, 3))
    fill(tmp_path, "rome", privacy, run="same")
    terms = SealedTerms(noise=Noise(privacy, 2))
    assert set(make_guards(terms, {"rome": None}, None, "same")) == {"rome"}
    with pytest.raises(ChoiceError, match="does not allow"):
        make_guards(terms, {"rome": None}, None, "another")


# ------------------------------------------------------------------------------------------------ the policy of a site


def spent_ledger(clock):
    """A ledger in which epsilon 1 was spent, at the time of this clock."""
    kept = Ledger(None, "rome", clock=clock)
    multiplier = budget(1.0).budget ** -0.5
    kept.charge(run="r", exchange=0, phase="round", multiplier=multiplier, sensitivity=1.0, neighbours="replace")
    return kept


def test_a_policy_with_years_allows_its_epsilon_in_each_of_them_and_charges_nothing_for_what_it_refuses():
    recent, old = spent_ledger(time.time), spent_ledger(lambda: 0.0)
    for policy, kept in (
        (Policy(epsilon=1.0, years=1000), recent),  # this year's is spent
        (Policy(epsilon=1.0, years=2), old),  # its years are over
        (Policy(epsilon=1.0), old),  # all is spent
    ):
        with pytest.raises(MessageError, match="above what this site allows"):
            policy.check_budget(budget(0.5), kept, "new")
        assert len(kept.releases()) == 1
    Policy(epsilon=1.0, years=1000).check_budget(budget(1.0), old, "new")
    Policy(epsilon=1.0, years=1000).check_budget(budget(1.0), recent, "r")  # its own releases are part of its budget


@pytest.mark.parametrize("years", [0, -1, 2.5, True, "5"])
def test_years_of_a_policy_are_a_whole_number(years):
    with pytest.raises(DataError, match=rf"policy: years={years!r} must be a whole number from 1 on"):
        Policy(epsilon=1.0, years=years)


def test_years_without_epsilon_are_refused(tmp_path):
    (tmp_path / "policy.toml").write_text("years = 5\n")
    with pytest.raises(DataError, match="years goes with epsilon"):
        read_policy(tmp_path / "policy.toml")
    (tmp_path / "policy.toml").write_text("epsilon = 1.0\nyears = 5\n")
    assert read_policy(tmp_path / "policy.toml").years == 5


@pytest.mark.parametrize(
    ("years", "days_ago", "left", "shown"),
    [
        ("", 400, 0.0, "0 of 1"),
        ("years = 5", 10, 0.0, "0 of 1 until "),
        ("years = 5", 400, 1.0, "1 of 1 until "),
        ("years = 1", 400, 0.0, "0 of 1: all years are over"),
    ],
)
def test_fedhk_ledger_says_whether_what_is_left_is_that_of_a_year(tmp_path, years, days_ago, left, shown):
    then = time.time() - days_ago * 24 * 3600
    kept = Ledger(tmp_path / "state" / "rome" / "ledger.jsonl", "rome", clock=lambda: then)
    multiplier = budget(1.0).budget ** -0.5
    kept.charge(run="r", exchange=0, phase="round", multiplier=multiplier, sensitivity=1.0, neighbours="replace")
    policy = tmp_path / "policy.toml"
    policy.write_text(f"epsilon = 1.0\ndelta = {DELTA}\n{years}\n")
    words = ["ledger", str(tmp_path / "state"), "--policy", str(policy)]
    told = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert told.exit_code == 0, told.output
    assert shown in told.stdout
    assert ("in each year" in told.stdout) == bool(years)
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["sites"]["rome"]["policy"]
    assert found["left"] == pytest.approx(left, abs=1e-6)
    assert ("years" in found) == ("year_ends" in found) == bool(years)
