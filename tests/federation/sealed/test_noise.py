"""No run spends more than its budget, whatever is lost, repeated, or asked for by a server that does not keep to it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from federations import Stop
from fedhk import EFKMVC, datasets
from fedhk.errors import QuorumError
from fedhk.federation.phases.sum_rounds import NoisyRounds
from fedhk.federation.sealed.noise import noise_step
from fedhk.privacy.accounting import spent
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.privacy.secure_sum import MaskedNumbers
from fedhk.privacy.sensitivity import grid_sensitivity
from sealed_runs import read_reply, read_request, seeded_noise, spied_fit, step_of

DELTA = 1e-4
N_SITES = 5  # the threshold is 4

pytestmark = [
    pytest.mark.filterwarnings("ignore:With epsilon"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(scope="module")
def sites():
    return datasets.make_sites(N_SITES, 30, n_clusters=2, n_features=(2, 3), random_state=0).sites


def budget(**changes):
    return DifferentialPrivacy(**{"epsilon": 4.0, "delta": DELTA, "bounds": (-12, 12), "rounds": 4} | changes)


def make_model(**changes):
    options = {"privacy": budget(), "n_init": 1, "random_state": 0}
    return EFKMVC(2, **options | changes)


# --------------------------------------------------------------------------------------------------- what is spent


RUNS = {
    "site noise": {},
    "secure": {"secure": True},
    "private bounds": {"privacy": budget(bounds="private")},
    "fewer rounds": {"max_rounds": 2},
    "given centres": {"init": [np.zeros((2, 2)), np.ones((2, 3))]},
    "add-remove": {"privacy": budget(neighbours="add-remove"), "secure": True},
}


@pytest.mark.parametrize("run", RUNS)
def test_what_a_run_says_it_spent_is_what_the_ledger_of_every_site_says(run, sites, monkeypatch):
    model, spy = spied_fit(monkeypatch, make_model(**RUNS[run]), sites)
    epsilon, delta = model.privacy_spent_
    assert delta == DELTA
    assert epsilon <= 4.0
    assert epsilon > 3.999  # the whole budget, also where centres were given
    for site in sites:
        ledger, name = spy.ledger(site)
        assert ledger.spent(name, DELTA, model.privacy.neighbours) == epsilon
        phases = [release.phase for release in ledger.releases(name)]
        assert phases.count("noisy round") == model.n_iter_ == (2 if run == "fewer rounds" else 4)


def test_shares_of_the_budget_add_up():
    for privacy in (budget(), budget(bounds="private")):
        units = ["means", "lengths", "spreads"] + ([] if privacy.public else ["ranges"])
        for finds_start in (True, False):
            setup = units + (["directions", "cells"] if finds_start else [])
            rounds = [privacy.multiplier("round", 7, finds_start=finds_start)] * 7
            releases = [privacy.multiplier(phase, finds_start=finds_start) for phase in setup] + rounds
            assert sum(z**-2 for z in releases) == pytest.approx(privacy.budget)
            assert 3.999 < spent(releases, DELTA) <= 4.0


def test_shares_of_the_budget_add_up_where_lengths_come_before_sums():
    for privacy in (budget(unit="site"), budget(unit="site", bounds="private")):
        for finds_start in (True, False):
            units = ["means", "lengths", "spreads"] + ([] if privacy.public else ["ranges"])
            setup = units + (["directions", "cells"] if finds_start else [])
            names = [*setup, *(["noisy round"] * 7), *(f"length of {name}" for name in [*setup, "noisy round"])]
            releases = [privacy.multiplier(name, 7, finds_start=finds_start) for name in names]
            assert sum(z**-2 for z in releases) == pytest.approx(privacy.budget)
        after = [
            privacy.multiplier(name, 2) for name in ("after a", "after b", "length of after a", "length of after b")
        ]
        assert sum(z**-2 for z in after) == pytest.approx(privacy.budget)
        update = [privacy.multiplier(name, 3) for name in (*(["update round"] * 3), "length of update round")]
        assert sum(z**-2 for z in update) == pytest.approx(privacy.budget)


# ----------------------------------------------------------------------------------------------------------- noise


def test_noise_does_not_come_from_the_random_state(sites):
    one, other = (make_model(random_state=3).fit(sites) for _ in range(2))
    assert not np.array_equal(one.cluster_centers_[0], other.cluster_centers_[0])


def test_sites_with_the_same_rows_and_rounds_at_the_same_centres_have_noise_of_their_own(monkeypatch):
    rows = np.arange(12.0).reshape(6, 2)
    _, spy = spied_fit(
        monkeypatch,
        EFKMVC(2, privacy=budget(), init=[np.zeros((2, 2))], max_rounds=3),
        {name: [rows] for name in "abc"},
    )
    sums = [reply.values for _, reply in spy.answers("sealed.noisy round")]
    assert len(sums) == 9
    for i, one in enumerate(sums):
        for other in sums[:i]:
            assert np.mean(one == other) < 0.5
            # far more than rounding apart, in numbers that would be equal without noise
            assert np.std((one - other).astype(float)) > 1000


def taken_rounds(monkeypatch, model, sites, **options):
    """The sums of noisy rounds as the server opened them, with what it takes for their noise."""
    kept = []
    take = NoisyRounds.take

    def keep(self, board, total, noise):
        kept.append((total, noise))
        return take(self, board, total, noise)

    with monkeypatch.context() as patch:
        patch.setattr(NoisyRounds, "take", keep)
        _, spy = spied_fit(monkeypatch, model, sites, **options)
    return kept, spy


def nearly_empty_sites(width, n_sites=7):
    sites = {f"s{i}": [np.zeros((0, width))] for i in range(n_sites)}
    return sites | {"s0": [np.zeros((1, width))]}


def stated_sigma(spy, size):
    """What noise the release of one site has by the books, in numbers."""
    release = next(r for r in spy.ledger("s0")[0].releases() if r.phase == "noisy round")
    step = noise_step(release.sensitivity)
    return release.multiplier * step * grid_sensitivity(release.sensitivity, step, size)


@pytest.mark.parametrize(
    ("options", "absent", "parts"),
    [
        ({}, 0, 7),
        ({"secure": SecureSummation(threshold=5)}, 0, 7 / 5),
        ({"secure": SecureSummation(threshold=5)}, 2, 1.0),
        ({"secure": SecureSummation(threshold=5), "privacy": budget(epsilon=0.5, rounds=2, colluders=3)}, 2, 5 / 2),
    ],
)
def test_a_sum_has_the_noise_that_it_should_have(options, absent, parts, monkeypatch):
    """With masks sites share one noise, which is whole where as many are absent as may be, or tell their part."""
    width, c = 30, 40
    model = EFKMVC(
        c, **{"privacy": budget(epsilon=0.5, rounds=2), "init": [np.zeros((c, width))], "max_rounds": 2} | options
    )
    gone = [f"s{i}" for i in range(1, 1 + absent)]

    def down(site, request):
        return site in gone and step_of(request) == "input"

    kept, spy = taken_rounds(monkeypatch, model, nearly_empty_sites(width), down=down)
    for total, noise in kept:
        pulls = total[: c * width]
        expected = stated_sigma(spy, total.size) * np.sqrt(parts)
        assert noise == pytest.approx(expected)
        assert pulls.std() == pytest.approx(expected, rel=0.1)  # 1,200 numbers: one in 40,000 fails by chance


# ------------------------------------------------------------------------------------------------ stopped and resumed


@pytest.fixture
def counted_noise(monkeypatch):
    return seeded_noise(monkeypatch)


def killed_at(last, step=None, kind=None):
    """A tamper that kills the server when the answers to an exchange have come."""
    answers = []

    def tamper(_, request, answer):
        if request.round >= last and step_of(request) == step and kind in (None, request.kind):
            answers.append(answer)
            if len(answers) == N_SITES:
                raise Stop
        return answer

    return tamper


def same_fit(one, other):
    for a, b in zip(one.cluster_centers_, other.cluster_centers_, strict=True):
        assert_array_equal(a, b)
    assert [r["objective"] for r in one.history_] == [r["objective"] for r in other.history_]
    assert (one.n_iter_, one.stop_reason_, one.privacy_spent_) == (
        other.n_iter_,
        other.stop_reason_,
        other.privacy_spent_,
    )


@pytest.mark.parametrize("bounds", [(-12, 12), "private"])
def test_a_run_with_site_noise_goes_on_to_the_same_bits_and_sends_what_was_lost_again(
    bounds, sites, tmp_path, monkeypatch, counted_noise
):
    options = {"privacy": budget(bounds=bounds)}
    expected = make_model(**options).fit(sites)
    draws = counted_noise[0]
    exchanges = 10 if bounds != "private" else 11  # the first tells the views; own models are made after them
    assert draws == N_SITES * (exchanges - 1)
    for last in range(1, exchanges, 1 if bounds == "private" else 3):
        counted_noise[0] = 0
        model = make_model(**options, checkpoint=tmp_path / str(last))
        with pytest.raises(Stop):
            spied_fit(monkeypatch, model, sites, tamper=killed_at(last))
        lost = {site: Ledger(path(tmp_path / str(last), site), site) for site in sites}
        model, spy = spied_fit(monkeypatch, model, sites, resume=True)
        same_fit(model, expected)
        assert counted_noise[0] == draws
        for site, message in spy.replies:
            if message.round == last:
                run = lost[site].releases()[0].run
                assert read_reply(message).values.astype(np.int64).tobytes() == lost[site].payload(run, last - 1)


def released_numbers(spy, site):
    """Of the sums to which a site gave masked numbers, the numbers within the run."""
    asked = {m.round: read_request(m)[0].noise.number for name, m in spy.requests if name == site and step_of(m)}
    masked = [m for name, m in spy.replies if name == site and m.kind.startswith("sealed.")]
    return {asked[m.round] for m in masked if isinstance(read_reply(m), MaskedNumbers)}


def path(folder, site):
    return folder.with_name(f"{folder.name}.ledger") / f"{site}.jsonl"


def ledgers(folder, sites):
    return [Ledger(path(folder, site), site) for site in sites]


@pytest.mark.parametrize("step", ["keys", "shares", "input", "unmask"])
@pytest.mark.parametrize("kind", ["directions", "cells", "noisy round"])
def test_a_masked_run_never_sends_lost_numbers_again_and_ends_within_its_budget(
    kind, step, sites, tmp_path, monkeypatch
):
    monkeypatch.setattr("fedhk.federation.sealed.masks.SUMS_PER_SESSION", 1)
    model = make_model(secure=True, checkpoint=tmp_path)
    with pytest.raises(Stop):
        spied_fit(monkeypatch, model, sites, tamper=killed_at(0, step, f"sealed.{kind}"))
    before = [{(release.run, release.exchange) for release in ledger.releases()} for ledger in ledgers(tmp_path, sites)]
    model, spy = spied_fit(monkeypatch, model, sites, resume=True)
    epsilon, _ = model.privacy_spent_
    assert epsilon <= 4.0
    for site, ledger, known in zip(sorted(sites), ledgers(tmp_path, sites), before, strict=True):
        assert ledger.spent(None, DELTA) == pytest.approx(epsilon)
        masked = released_numbers(spy, site)
        assert not masked & {number for _, number in known}
        assert len({release.run for release in ledger.releases()}) == 1
    # what is lost costs as many rounds as it is worth
    worth = (budget().multiplier("round") / budget().multiplier(kind)) ** 2 if step in ("input", "unmask") else 0.0
    assert model.n_iter_ == 4 - np.ceil(worth - 1e-6)
    assert np.isfinite(np.hstack(model.cluster_centers_)).all()


def test_a_masked_run_that_is_stopped_again_and_again_ends_when_its_budget_does(sites, tmp_path, monkeypatch):
    model = make_model(secure=True, checkpoint=tmp_path)
    with pytest.raises(Stop):
        spied_fit(monkeypatch, model, sites, tamper=killed_at(13, "input"))
    stops = 0
    for _ in range(8):
        try:
            spied_fit(monkeypatch, model, sites, resume=True, tamper=killed_at(13, "input"))
            break
        except Stop:
            stops += 1
    assert stops < 5
    assert model.privacy_spent_[0] <= 4.0
    assert "The privacy budget is spent after" in model.stop_reason_
    assert np.isfinite(np.hstack(model.cluster_centers_)).all()
    for ledger in ledgers(tmp_path, sites):
        assert ledger.spent(None, DELTA) <= 4.0
        assert len({release.run for release in ledger.releases()}) == 1


def test_a_sum_that_fell_below_the_threshold_is_spent_and_not_asked_for_again(sites, tmp_path, monkeypatch):
    model = make_model(secure=True, checkpoint=tmp_path)
    gone = sorted(sites)[:2]

    def down(site, request):
        return site in gone and request.kind == "sealed.noisy round" and step_of(request) == "unmask"

    with pytest.raises(QuorumError, match="3 sites answered, 4 are needed"):
        spied_fit(monkeypatch, model, sites, down=down)
    before = [{(r.run, r.exchange) for r in ledger.releases()} for ledger in ledgers(tmp_path, sites)]
    model, _ = spied_fit(monkeypatch, model, sites, resume=True)
    assert model.n_iter_ == 3
    assert model.privacy_spent_[0] <= 4.0
    for ledger, known in zip(ledgers(tmp_path, sites), before, strict=True):
        assert [r.phase for r in ledger.releases()].count("noisy round") == 4  # one of them lost
        assert known < {(r.run, r.exchange) for r in ledger.releases()}
        assert ledger.spent(None, DELTA) == pytest.approx(model.privacy_spent_[0])
