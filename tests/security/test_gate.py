"""Whoever owns the coordinator gets from a site what its ledger was charged for, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from attacked_site import BUDGET, MODEL, SCALES, STRICT, Target, rows_of
from fedhk import EFKMVC
from fedhk.errors import MessageError
from fedhk.federation.codec import unpack
from fedhk.federation.entries import Broadcast, FinalModel, References, Schema
from fedhk.federation.phases.base import Nothing, phase_named
from fedhk.federation.phases.deliver import Deliver, DeliverRequest
from fedhk.federation.phases.describe import Describe, DescribeRequest, DescribeViews
from fedhk.federation.phases.scales import Ranges, RangesRequest
from fedhk.federation.phases.sum_rounds import NoisyRounds, noisy_request
from fedhk.federation.remote.policy import Policy
from fedhk.personal.options import GradientStep
from fedhk.privacy.ledger import Ledger
from remote_sites import NAMES, Wire, fit_remote, write_sites
from sealed_runs import LoneSite, make_parameters, plain_reference, scales


@pytest.fixture
def target(tmp_path):
    return Target(tmp_path, rows_of())


def test_a_model_of_the_attackers_choice_is_not_delivered_without_a_run_that_the_policy_allows(target):
    """Attack 1."""
    final = FinalModel(Broadcast.of(MODEL))
    for report in (True, False):
        request = DeliverRequest(GradientStep(0.0), False, report)
        answer = target.send("deliver", request, Deliver.request_type, *SCALES, final, privacy=None)
        assert answer.values["reason"] == "this site gives sums with noise only; the run must have a privacy budget"
    assert not any(name.startswith("run") for name in target.files)
    assert target.releases == []


def test_what_is_delivered_in_an_allowed_run_says_the_same_of_any_rows(tmp_path):
    """Attack 1: members cannot be told from others by the answer."""
    final, answers = FinalModel(Broadcast.of(MODEL)), []
    for seed in range(2):
        site = Target(tmp_path / str(seed), rows_of(40 + seed, seed))
        request = DeliverRequest(GradientStep(0.0), False, False)
        answers.append(site.send("deliver", request, Deliver.request_type, *SCALES, final))
        refused = site.send("deliver", replace(request, report=True), Deliver.request_type, *SCALES, final)
        assert refused.values["reason"] == "the server asks for what this site only gives with noise or masks"
    assert answers[0].values == answers[1].values
    assert answers[0].arrays == answers[1].arrays == {}


def test_a_new_run_does_not_take_the_results_of_the_last_one_away(target):
    """Attack 1: the site's files are unharmed."""
    request, final = DeliverRequest(GradientStep(0.0), False, False), FinalModel(Broadcast.of(MODEL))
    target.send("deliver", request, Deliver.request_type, *SCALES, final, run="honest")
    before = (target.state / "rome" / "run" / "model.safetensors").read_bytes()
    other = FinalModel(Broadcast.of(make_parameters([np.full((2, 2), 9.0)])))
    target.send("deliver", request, Deliver.request_type, *SCALES, other, run="hostile")
    assert (target.state / "rome" / "run-1" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("widths", [(-0.9999999,), (2, -1), (10**9,), (0,), (1,)])
def test_noise_is_sized_by_the_tables_of_the_site_and_not_by_widths_of_the_server(target, widths):
    """Attack 2."""
    try:
        answer = target.ask(Ranges, RangesRequest(widths), *SCALES)
    except (MessageError, TypeError):
        return  # not even a message
    if not isinstance(answer, str):
        pytest.fail("answered for widths that are not those of the site")
    assert target.releases == []


def test_ranges_leave_with_the_noise_of_all_features_of_the_site(target):
    """Attack 2: with public bounds too."""
    counts = target.ask(Ranges, RangesRequest((2,)), *SCALES)
    (release,) = target.releases
    assert release.sensitivity == pytest.approx(np.sqrt(2) * np.sqrt(2))
    assert np.std(counts.astype(float)) > 1000  # in steps of the grid


HOSTILE = {
    "span 1e-320": ({"heat_coef": "minmax", "span": np.array([1e-320, 1.0])}, {}),
    "scale 1e-316": ({"scale": np.array([1e-316, 1.0])}, {}),
    "factors 1e-316": ({}, {"view_weights": np.array([1e-158])}),
    "fuzzifier near 1": ({}, {"fuzzifier": 1.0 + 1e-16}),
    "far centres": ({}, {"heat_time": 1e-300}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_no_choice_of_parameters_makes_an_answer_depend_on_whether_a_row_is_there(case, tmp_path):
    """Attack 3: refused or not, and why, is the same with the row and without; nothing is free."""
    reference, model = HOSTILE[case]
    entries = (Schema(("a",), (None,)), References((plain_reference(2, **reference),)))
    request = noisy_request(make_parameters([np.array([[0.0, 0.0], [3.0, 3.0]])]), "replace")
    request = replace(request, model=replace(request.model, **model))
    answers = []
    for name, rows in {"with": np.zeros((1, 2)), "without": np.full((1, 2), 5.0)}.items():
        site = Target(tmp_path / name, np.vstack([rows_of(10), rows]))
        answer = site.ask(NoisyRounds, request, *entries)
        answers.append(answer if isinstance(answer, str) else answer.shape)
        assert len(site.releases) == (0 if isinstance(answer, str) else 1)
    assert answers[0] == answers[1]


def test_more_rounds_than_the_policy_allows_are_refused_before_anything_else(target):
    """Attack 3: rounds=10**13 so that nothing is ever released."""
    privacy = replace(BUDGET, rounds=10**13).describe()
    reason = target.ask(NoisyRounds, noisy_request(MODEL, "replace"), *SCALES, rounds=10**13, privacy=privacy)
    assert reason == "the run's budget is for more rounds than this site allows"


def test_the_number_of_rows_cannot_be_found_by_trying_deltas(tmp_path):
    """Attack 4."""
    sites = [Target(tmp_path / str(n), rows_of(n), Policy(epsilon=1.0, delta=0.5)) for n in (10, 1000)]
    for delta in np.geomspace(1e-6, 0.9, 12):
        privacy = replace(BUDGET, delta=float(delta)).describe()
        answers = [site.send("schema", Nothing(), DescribeViews.request_type, privacy=privacy) for site in sites]
        assert answers[0].values == answers[1].values


def test_made_up_sites_cannot_thin_the_noise_of_a_site_that_knows_no_keys(tmp_path):
    """Attack 6."""
    site = Target(tmp_path, rows_of(), Policy(epsilon=1.0))
    answer = site.send("schema", Nothing(), DescribeViews.request_type, secure=True)
    assert "knows no keys of the other sites, so it adds all of the noise itself" in answer.values["reason"]
    answer = site.send("schema", Nothing(), DescribeViews.request_type, secure=True, shared_noise=False)
    assert answer.kind == "schema"


def test_neighbours_are_those_of_the_policy_and_the_ledger_says_which(target):
    """Attack 10."""
    weaker = replace(BUDGET, neighbours="add-remove").describe()
    reason = target.ask(NoisyRounds, noisy_request(MODEL, "add-remove"), *SCALES, privacy=weaker)
    assert "neighbours protect less than this site demands" in reason
    assert not isinstance(target.ask(NoisyRounds, noisy_request(MODEL, "replace"), *SCALES), str)
    assert [release.neighbours for release in target.releases] == ["replace"]


def test_budgets_of_both_kinds_of_neighbours_add_up_in_the_unit_of_the_policy(tmp_path):
    """Attack 10: noise for rows that are added protects exchanged rows half as well."""
    site = Target(tmp_path, rows_of())
    (tmp_path / "state" / "rome").mkdir(parents=True)
    ledger = Ledger(tmp_path / "state" / "rome" / "ledger.jsonl", "rome")
    multiplier = 2 * BUDGET.budget**-0.5
    ledger.charge(run="old", exchange=0, phase="p", multiplier=multiplier, sensitivity=1.0, neighbours="add-remove")
    reason = site.ask(NoisyRounds, noisy_request(MODEL, "replace"), *SCALES)
    assert reason == "the run's budget, with what was spent before, is above what this site allows"


@pytest.mark.parametrize("n", [1, 4])
def test_a_site_of_few_rows_sends_no_moments_in_the_open(tmp_path, n):
    """Attack 15: the mean of one row is the row."""
    site = Target(tmp_path, rows_of(n), Policy())
    answer = site.send("describe", DescribeRequest(False, False), Describe.request_type, privacy=None)
    assert "too few rows for a run in the open" in answer.values["reason"]


def test_a_column_with_few_values_is_empty_in_the_open(tmp_path):
    """Attack 15."""
    rows = rows_of(30)
    rows[1:, 1] = np.nan
    site = Target(tmp_path, rows, Policy())
    answer = site.send("describe", DescribeRequest(False, False), Describe.request_type, privacy=None)
    assert answer.kind == "describe"
    sent = np.concatenate([np.ravel(array) for array in answer.arrays.values()])
    assert not np.any(np.isclose(sent, rows[0, 1]))


def test_a_group_of_fewer_rows_than_the_policy_says_is_not_sent(tmp_path):
    """Attack 15: candidates are means of at least as many rows."""
    sizes = {}
    for least in (2, 8):
        site = Target(tmp_path / str(least), rows_of(40), Policy(least_group=least))
        site.send("describe", DescribeRequest(False, False), Describe.request_type, privacy=None)
        phase = phase_named("candidates")
        request = phase.request_type(30, 0.0, 0, "double")
        answer = site.send("candidates", request, phase.request_type, *SCALES, privacy=None)
        reply = unpack(answer.values, answer.arrays, phase.reply_type)
        sizes[least] = reply.sizes.min()
    assert sizes[2] < 8 <= sizes[8]


def test_sparse_rows_far_from_a_hostile_mean_cannot_say_more_than_the_noise_is_sized_for():
    """Attack 19."""
    rows = sp.csr_array(np.array([[1e8, 0.0], [0.0, 1e8 + 1.0], [1e8, 1.0]]))
    site = LoneSite([rows], BUDGET)
    hostile = scales([plain_reference(2, shift=np.full(2, -1e8), scale=np.full(2, 1e-3))])
    with pytest.raises(MessageError, match="scales with which a row could say more than the noise is sized for"):
        site.ask(NoisyRounds, noisy_request(make_parameters([np.zeros((2, 2))]), "replace"), *hostile, rounds=4)
    assert site.ledger.releases() == []


@pytest.mark.parametrize("value", [1e100, -1e139, 1e140])
def test_one_enormous_cell_moves_a_sum_no_further_than_any_other(value, monkeypatch):
    """Attack 3: no row makes a sum undefined, so none can wipe out what the others add."""
    monkeypatch.setattr("fedhk.federation.sealed.noise.discrete_gaussian", lambda _, size: np.zeros(size, np.int64))
    base, request = np.zeros((50, 2)), noisy_request(make_parameters([np.array([[0.1, 0.0], [1.0, 1.0]])]), "replace")
    sums = []
    for row in ([0.0, 0.0], [value, -value]):
        site = LoneSite([np.vstack([base, row])], BUDGET)
        sums.append(site.released(NoisyRounds, request, *scales([plain_reference(2)]), rounds=4).astype(float))
    sensitivity = NoisyRounds.sensitivity(request, 0, "replace")
    step = 2.0 ** np.floor(np.log2(sensitivity / 2**16))
    assert np.linalg.norm(sums[0] - sums[1]) * step <= sensitivity * (1 + 1e-3)


def test_rows_that_a_phase_cannot_read_leave_noise_only_and_are_charged(target, monkeypatch, caplog):
    """Attack 3: a site answers whatever its rows are."""

    vector = NoisyRounds.vector

    def broken(site, request):
        if site.views.n_rows:
            raise ZeroDivisionError("row 17 is 42.0")
        return vector(site, request)

    monkeypatch.setattr(NoisyRounds, "vector", staticmethod(broken))
    answer = target.ask(NoisyRounds, noisy_request(MODEL, "replace"), *SCALES)
    assert not isinstance(answer, str)
    assert len(target.releases) == 1
    assert "row 17 is 42.0" in caplog.text


def test_phases_of_other_packages_need_a_word_of_the_policy(target):
    """Deny is the default for what is not named."""
    name = "phase of a plugin"

    class Plugin(Ranges):
        pass

    Plugin.name = name
    Plugin.__module__ = "plugin"
    assert target.ask(Plugin, RangesRequest((2,)), *SCALES) == "this site takes no part in such an exchange"
    named = replace(target.site, policy=replace(STRICT, phases=(name,)))
    target.site = named
    assert not isinstance(target.ask(Plugin, RangesRequest((2,)), *SCALES), str)


def test_masks_of_a_policy_are_demanded_of_every_message(tmp_path):
    site = Target(tmp_path, rows_of(), Policy(epsilon=1.0, secure=True))
    answer = site.send("schema", Nothing(), DescribeViews.request_type)
    assert answer.values["reason"] == "this site gives masked sums only; the run must use secure=True"


def test_an_honest_run_goes_through_with_a_strict_policy(tmp_path):
    rng = np.random.default_rng(0)
    sites = {name: [rng.normal(size=(600, 2)) + 6 * rng.integers(2, size=(600, 1))] for name in NAMES}
    wire = Wire(write_sites(sites, tmp_path / "data"), tmp_path / "state", dict.fromkeys(NAMES, STRICT))
    model = fit_remote(wire, EFKMVC, privacy=replace(BUDGET, bounds=(-4, 10)))
    assert model.privacy_spent_[0] == pytest.approx(1.0, rel=1e-3)
    for name in NAMES:
        assert Ledger(tmp_path / "state" / name / "ledger.jsonl", name).spent(None, 1e-6) <= 1.0
