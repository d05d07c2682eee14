"""No run spends more than its budget, whatever is lost, repeated, or asked for by a server that does not keep to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from federations import Stop
from fedhk import EFKMVC, datasets
from fedhk.data.views import check_views
from fedhk.errors import MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import pack_references
from fedhk.federation.sealed import rounds as sealed_rounds
from fedhk.federation.sealed import site as sealed_site
from fedhk.federation.sealed.site import mask_parcel
from fedhk.federation.server import QuorumError
from fedhk.federation.site import SiteState, client_step
from fedhk.privacy.accounting import spent
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.privacy.secure_server import begin_sum, open_session, requests, server_step
from fedhk.privacy.secure_site import SecureSite
from fedhk.privacy.secure_terms import split_parcel
from fedhk.privacy.sensitivity import grid_sensitivity
from sealed_runs import asked, asked_round, make_parameters, plain_reference, seeded_noise, spied_fit, step_of

DELTA = 1e-4
N_SITES = 5  # the threshold is 4

pytestmark = pytest.mark.filterwarnings("ignore:With epsilon")


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
    # what given centres make needless is not spent
    assert (epsilon > 3.999) == (run != "given centres")
    for state in spy.states.values():
        assert state.ledger.spent(state.run, DELTA) == epsilon
        phases = [release.phase for release in state.ledger.releases(state.run)]
        assert phases.count("round") == model.n_iter_ == (2 if run == "fewer rounds" else 4)


def test_shares_of_the_budget_add_up():
    for privacy in (budget(), budget(bounds="private")):
        setup = ["directions", "cells"] + ([] if privacy.public else ["ranges"])
        releases = [privacy.multiplier(phase) for phase in setup] + [privacy.multiplier("round", 7)] * 7
        assert sum(z**-2 for z in releases) == pytest.approx(privacy.budget)
        assert 3.999 < spent(releases, DELTA) <= 4.0


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
    sums = [message.arrays["sum"] for _, message in spy.replies if message.kind == "round"]
    assert len(sums) == 9
    for i, one in enumerate(sums):
        for other in sums[:i]:
            assert np.mean(one == other) < 0.5
            # far more than rounding apart, in numbers that would be equal without noise
            assert np.std((one - other).astype(float)) > 1000


def taken_rounds(monkeypatch, model, sites, **options):
    """The sums of noisy rounds as the server opened them, with what it takes for their noise."""
    kept = []
    take = sealed_rounds.NoisyRound.take

    def keep(self, plan, state, total, noise):
        kept.append((total, noise))
        return take(self, plan, state, total, noise)

    with monkeypatch.context() as patch:
        patch.setattr(sealed_rounds.NoisyRound, "take", keep)
        _, spy = spied_fit(monkeypatch, model, sites, **options)
    return kept, spy


def nearly_empty_sites(width, n_sites=7):
    sites = {f"s{i}": [np.zeros((0, width))] for i in range(n_sites)}
    return sites | {"s0": [np.zeros((1, width))]}


def stated_sigma(spy, privacy, size):
    """What noise the release of one site has by the books, in numbers."""
    release = next(r for r in spy.states["s0"].ledger.releases() if r.phase == "round")
    step = sealed_site.grid_step(release.sensitivity)
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
    privacy = options.get("privacy", budget(epsilon=0.5, rounds=2))
    model = EFKMVC(c, **{"privacy": privacy, "init": [np.zeros((c, width))], "max_rounds": 2} | options)
    gone = [f"s{i}" for i in range(1, 1 + absent)]

    def down(site, request):
        return site in gone and step_of(request) == "input"

    kept, spy = taken_rounds(monkeypatch, model, nearly_empty_sites(width), down=down)
    for total, noise in kept:
        pulls = total[: c * width]
        expected = stated_sigma(spy, privacy, total.size) * np.sqrt(parts)
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
    exchanges = 7 if bounds != "private" else 8
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
                assert message.arrays["sum"].tobytes() == lost[site].payload(run, last)


def path(folder, site):
    return folder / "ledger" / f"{site}.jsonl"


def ledgers(folder, sites):
    return [Ledger(path(folder, site), site) for site in sites]


@pytest.mark.parametrize("step", ["keys", "shares", "input", "unmask"])
@pytest.mark.parametrize("kind", ["directions", "cells", "round"])
def test_a_masked_run_never_sends_lost_numbers_again_and_ends_within_its_budget(
    kind, step, sites, tmp_path, monkeypatch
):
    monkeypatch.setattr("fedhk.federation.sealed.server.SUMS_PER_SESSION", 1)
    model = make_model(secure=True, checkpoint=tmp_path)
    with pytest.raises(Stop):
        spied_fit(monkeypatch, model, sites, tamper=killed_at(0, step, kind))
    before = [{release.key for release in ledger.releases()} for ledger in ledgers(tmp_path, sites)]
    model, spy = spied_fit(monkeypatch, model, sites, resume=True)
    epsilon, _ = model.privacy_spent_
    assert epsilon <= 4.0
    for site, ledger, known in zip(sorted(sites), ledgers(tmp_path, sites), before, strict=True):
        assert ledger.spent(None, DELTA) == pytest.approx(epsilon)
        masked = {m.round for name, m in spy.replies if name == site and "mask.masked" in m.arrays}
        assert not masked & {exchange for _, exchange in known}
        assert len({release.run for release in ledger.releases()}) == 1
    # what is lost costs as many rounds as it is worth
    worth = (budget().multiplier("round") / budget().multiplier(kind)) ** 2 if step in ("input", "unmask") else 0.0
    assert model.n_iter_ == 4 - np.ceil(worth - 1e-6)
    assert np.isfinite(np.hstack(model.cluster_centers_)).all()


def test_a_masked_run_that_is_stopped_again_and_again_ends_when_its_budget_does(sites, tmp_path, monkeypatch):
    model = make_model(secure=True, checkpoint=tmp_path)
    with pytest.raises(Stop):
        spied_fit(monkeypatch, model, sites, tamper=killed_at(7, "input"))
    stops = 0
    for _ in range(8):
        try:
            spied_fit(monkeypatch, model, sites, resume=True, tamper=killed_at(7, "input"))
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
        return site in gone and request.kind == "round" and step_of(request) == "unmask"

    with pytest.raises(QuorumError, match="3 sites answered, 4 are needed"):
        spied_fit(monkeypatch, model, sites, down=down)
    before = [{r.key for r in ledger.releases()} for ledger in ledgers(tmp_path, sites)]
    model, _ = spied_fit(monkeypatch, model, sites, resume=True)
    assert model.n_iter_ == 3
    assert model.privacy_spent_[0] <= 4.0
    for ledger, known in zip(ledgers(tmp_path, sites), before, strict=True):
        assert [r.phase for r in ledger.releases()].count("round") == 4  # one of them lost
        assert known < {r.key for r in ledger.releases()}
        assert ledger.spent(None, DELTA) == pytest.approx(model.privacy_spent_[0])


# --------------------------------------------------------------------------------------------------- hostile servers


def make_site(privacy=None, rows=None, **options):
    views = check_views([np.arange(8.0).reshape(4, 2) if rows is None else rows])
    return SiteState("oslo", views, privacy=privacy or budget(), ledger=Ledger(None, "oslo"), **options)


def good_round(exchange=1, **changes):
    values = {name: changes.pop(name) for name in ("rounds", "run", "sealed") if name in changes}
    parameters = replace(make_parameters([np.zeros((2, 2))]), **changes)
    return asked_round([plain_reference(2)], parameters, exchange, **{"rounds": 4} | values)


def ask_until_refused(site, **changes):
    """Rounds that a site gives, and why it gives no more."""
    for given in range(1, 100):
        try:
            site, _ = client_step(site, good_round(given, **changes))
        except MessageError as error:
            return site, given - 1, error.reason
    return pytest.fail("the site gives rounds without end")


def test_a_site_gives_no_more_rounds_than_its_budget_allows():
    site, given, reason = ask_until_refused(make_site())
    assert "budget of the run, epsilon=4, does not allow another release" in reason
    assert given == int(budget().budget * budget().multiplier("round") ** 2 + 1e-6)
    assert site.ledger.spent("a-run", DELTA) <= 4.0


def test_a_server_that_wants_less_noise_gets_fewer_rounds():
    site, given, reason = ask_until_refused(make_site(), rounds=1)
    assert "does not allow another release" in reason
    assert given == int(budget().budget * budget().multiplier("round", 1) ** 2 + 1e-6)
    assert site.ledger.multipliers() == [budget().multiplier("round", 1)] * given
    assert site.ledger.spent("a-run", DELTA) <= 4.0


@pytest.mark.parametrize("rounds", [0, -1, 5, 1e9, 2.5, None, True, "2", float("nan")])
def test_a_number_of_rounds_that_was_not_agreed_is_refused(rounds):
    with pytest.raises(MessageError, match=r"rounds, this site's budget is for 1 to 4"):
        client_step(make_site(), good_round(rounds=rounds))


def test_an_exchange_that_was_answered_gets_the_same_bytes_whatever_is_asked():
    site, reply = client_step(make_site(), good_round(3))
    for again in (good_round(3), good_round(3, heat_time=1.0), good_round(3, centers=(np.ones((2, 2)),))):
        site, other = client_step(site, again)
        assert other.arrays["sum"].tobytes() == reply.arrays["sum"].tobytes()
    assert len(site.ledger.releases()) == 1


class Masks:
    """Three sites and the part of a server that agrees on masks with them."""

    def __init__(self):
        names = ("oslo", "rome", "turin")
        self.sites = {n: replace(make_site(), name=n, ledger=Ledger(None, n), secure=SecureSite(n)) for n in names}

    def agree(self):
        """A new session, up to its first sum."""
        server = open_session(self.sites, 3, bound=2**60, sums=2)
        for _ in range(2):
            server, _ = server_step(server, {name: self.ask(server, name, 1) for name in self.sites})
        return begin_sum(server, 7)

    def ask(self, server, name, exchange):
        """What a site answers to the server's next question."""
        arrays, values = split_parcel({f"mask.{key}": part for key, part in requests(server)[name].items()})
        request = good_round(exchange)
        request = replace(request, arrays=request.arrays | arrays, values=request.values | values)
        self.sites[name], reply = client_step(self.sites[name], request)
        return mask_parcel(reply.arrays, reply.values)


def test_numbers_go_under_one_mask_only_and_the_same_question_has_the_same_answer():
    masks = Masks()
    server = masks.agree()
    first = masks.ask(server, "oslo", 7)
    again = masks.ask(server, "oslo", 7)
    assert_array_equal(first["masked"], again["masked"])
    assert len(masks.sites["oslo"].ledger.releases()) == 1
    with pytest.raises(MessageError, match="released already under another mask"):
        masks.ask(begin_sum(server, 7), "oslo", 7)
    with pytest.raises(MessageError, match="released already under another mask"):
        masks.ask(masks.agree(), "oslo", 7)
    assert len(masks.sites["oslo"].ledger.releases()) == 1
    other = masks.ask(masks.agree(), "oslo", 8)
    assert not np.any(other["masked"] == first["masked"])
    assert len(masks.sites["oslo"].ledger.releases()) == 2


def test_another_run_in_the_middle_of_one_is_refused():
    described = Message("describe", "*", 0, {}, {"schema": True, "run": "a-run", "scaling": "standard"})
    site, _ = client_step(make_site(), described)
    with pytest.raises(MessageError, match=r"speaks of run 'another', this site takes part in 'a-run' and no other"):
        client_step(site, good_round(run="another"))
    with pytest.raises(MessageError, match="speaks of run 'another'"):
        client_step(site, replace(described, values=described.values | {"run": "another"}))
    client_step(site, good_round())


@pytest.mark.parametrize("run", ["", None, 7])
def test_a_request_of_no_run_is_refused(run):
    with pytest.raises(MessageError, match="speaks of run"):
        client_step(make_site(), good_round(run=run))


@pytest.mark.parametrize("kind", ["candidates", "moments", "energy", "finish", "describe!", ""])
def test_what_is_not_protected_by_noise_does_not_leave(kind):
    with pytest.raises(MessageError, match=rf"asked for '{kind}', which does not leave a site in this run"):
        client_step(make_site(), replace(good_round(), kind=kind))


def test_a_description_is_of_the_views_only_whatever_the_server_asks():
    asked_for = {"run": "a-run", "scaling": "standard", "ranges": True}
    for flag in ("schema", "sealed"):
        _, reply = client_step(make_site(), Message("describe", "*", 0, {}, asked_for | {flag: True}))
        assert list(reply.arrays) == ["views"]
    with pytest.raises(MessageError, match="only gives with noise or masks"):
        client_step(make_site(), Message("describe", "*", 0, {}, asked_for))


def test_a_round_in_the_open_is_refused():
    with pytest.raises(MessageError, match="only gives with noise or masks"):
        client_step(make_site(), good_round(sealed=False))


@pytest.mark.parametrize(
    "changes",
    [
        {"fuzzifier": 1.0},
        {"fuzzifier": 0.5},
        {"fuzzifier": float("nan")},
        {"fuzzifier": float("inf")},
        {"heat_time": 0.0},
        {"heat_time": -1.0},
        {"heat_time": float("inf")},
        {"heat_time": float("nan")},
        {"view_exponent": float("nan")},
        {"view_exponent": -2.0},
        {"view_weights": np.array([-1.0])},
        {"view_weights": np.array([np.nan])},
        {"view_weights": np.array([np.inf])},
        {"view_weights": np.array([0.0])},
        {"view_weights": np.array([1e200])},
        {"view_weights": np.ones(2), "view_shares": np.ones(2)},
        {"view_shares": np.array([0.0])},
        {"view_shares": np.array([np.nan])},
        {"centers": (np.full((2, 2), np.nan),)},
        {"centers": (np.full((2, 2), np.inf),)},
        {"centers": (np.full((2, 2), 1e9),)},  # where squared distances have no digits left
    ],
)
def test_parameters_that_would_break_the_bound_are_refused_and_cost_nothing(changes):
    site = make_site()
    with pytest.raises(MessageError, match="parameters with which a row could say more than the noise is sized for"):
        client_step(site, good_round(**changes))
    assert site.ledger.releases() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"heat_coef": "absdev"},
        {"heat_coef": "other"},
        {"heat_coef": "minmax", "span": np.zeros(2)},
        {"heat_coef": "minmax", "span": np.array([1.0, -1.0])},
        {"heat_coef": "minmax", "low": np.array([0.0, np.nan])},
        {"shift": np.array([0.0, np.inf])},
    ],
)
def test_scales_that_would_break_the_bound_are_refused_and_cost_nothing(changes):
    site, parameters = make_site(), make_parameters([np.zeros((2, 2))])
    with pytest.raises(MessageError, match="scales with which a row could say more"):
        client_step(site, asked_round([plain_reference(2, **changes)], parameters, rounds=4))
    assert site.ledger.releases() == []


@pytest.mark.parametrize("radius", [None, float("inf"), float("nan"), 0.0])
def test_second_moments_without_a_radius_are_refused_and_cost_nothing(radius):
    site = make_site()
    scales, described = pack_references([plain_reference(2)], ["view_0"], [None])
    with pytest.raises((MessageError, ValueError, TypeError)):
        client_step(site, asked("directions", 1, scales, **described, radius=radius, seed=0))
    assert site.ledger.releases() == []


def test_rounds_before_scales_are_refused():
    request = good_round()
    bare = {name: array for name, array in request.arrays.items() if name not in ("references", "scales")}
    with pytest.raises(MessageError, match="before the references came"):
        client_step(make_site(), replace(request, arrays=bare))
    with pytest.raises(MessageError, match="needs a ledger"):
        client_step(replace(make_site(), ledger=None), request)


def test_one_row_in_single_precision_on_a_far_centre_is_not_counted_more_than_once(monkeypatch):
    """In float32 the squared distance to a centre at 3,000 is off by about 1, and exp of it by far more."""
    monkeypatch.setattr(sealed_site, "discrete_gaussian", lambda _, size: np.zeros(size, np.int64))
    far = np.full((1, 2), 3000.0, np.float32)
    rows = far + np.array([[0.11, 0.0]], np.float32)
    request = asked_round([plain_reference(2)], make_parameters([far.astype(float)], heat_time=5.0), rounds=4)
    site, _ = client_step(make_site(rows=rows), request)
    phase = sealed_rounds.NoisyRound()
    values = phase.values(site, request, 1)
    exact = np.exp(-5.0 * ((rows.astype(float) - far) ** 2).sum())
    count = sealed_rounds.count_scale(site.parameters, "replace")
    assert values[2] / count == pytest.approx(exact, rel=1e-6)
