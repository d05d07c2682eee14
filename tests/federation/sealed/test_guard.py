"""What a site lets pass in a run with noise or masks, whatever a server asks that does not keep to the protocol."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedhk.embedding.affinity import AnchorGraph
from fedhk.errors import MessageError
from fedhk.federation.gate import Guard
from fedhk.federation.phases.base import Nothing
from fedhk.federation.phases.deliver import DeliverRequest
from fedhk.federation.phases.describe import DescribeRequest, Energy
from fedhk.federation.phases.diffuse import CountTies, TiesRequest
from fedhk.federation.phases.finish import Finish, FinishRequest
from fedhk.federation.phases.frame import Frame
from fedhk.federation.phases.scales import MomentsRequest, SumMoments
from fedhk.federation.phases.sum_rounds import MaskedRoundRequest, MaskedRounds, NoisyRounds, noisy_request
from fedhk.federation.phases.sum_start import Directions, DirectionsRequest
from fedhk.federation.sealed import noise as sealed_noise
from fedhk.federation.sealed.messages import ExactSum, Header, NoisySum
from fedhk.federation.table import round_arrays
from fedhk.personal.calibration import Calibration
from fedhk.personal.options import GradientStep
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.secure_server import begin_sum, make_requests, open_session, take_replies
from fedhk.privacy.secure_site import SPENT_SUM, SecureSite
from fedhk.privacy.secure_sum import InputRequest
from sealed_runs import RUN, LoneSite, make_parameters, plain_reference, scales

DELTA = 1e-4


def budget(**changes):
    return DifferentialPrivacy(**{"epsilon": 4.0, "delta": DELTA, "bounds": (-12, 12), "rounds": 4} | changes)


def make_site(privacy=None, rows=None, **options):
    return LoneSite([np.arange(8.0).reshape(4, 2) if rows is None else rows], privacy or budget(), **options)


def good_round(**changes):
    """The request of a round, with whatever a server changes in its parameters."""
    parameters = make_parameters([np.zeros((2, 2))])
    request = noisy_request(parameters, "replace")
    if "centers" in changes:
        changes["centers"] = replace(request.model.centers, values=changes["centers"])
    return replace(request, model=replace(request.model, **changes))


SCALES = scales([plain_reference(2)])


def ask_until_refused(site, **changes):
    """Rounds that a site gives, and why it gives no more."""
    for given in range(1, 100):
        try:
            site.ask(NoisyRounds, good_round(), *SCALES, number=given, **{"rounds": 4} | changes)
        except MessageError as error:
            return given - 1, error.reason
    return pytest.fail("the site gives rounds without end")


# --------------------------------------------------------------------------------------------------------------- budget


def test_a_site_gives_no_more_rounds_than_its_budget_allows():
    site = make_site()
    given, reason = ask_until_refused(site)
    assert "budget of the run does not allow another release" in reason
    assert given == int(budget().budget * budget().multiplier("noisy round") ** 2 + 1e-6)
    assert site.ledger.spent("a-run", DELTA) <= 4.0


def test_a_server_that_wants_less_noise_gets_fewer_rounds():
    site = make_site()
    given, reason = ask_until_refused(site, rounds=1)
    assert "does not allow another release" in reason
    assert given == int(budget().budget * budget().multiplier("noisy round", 1) ** 2 + 1e-6)
    assert [release.multiplier for release in site.ledger.releases()] == [budget().multiplier("noisy round", 1)] * given
    assert site.ledger.spent("a-run", DELTA) <= 4.0


@pytest.mark.parametrize("rounds", [0, -1, 5, 10**9])
def test_a_number_of_rounds_that_was_not_agreed_is_refused(rounds):
    site = make_site()
    with pytest.raises(MessageError, match="more rounds than the budget of the run is for, or of none"):
        site.ask(NoisyRounds, good_round(), *SCALES, rounds=rounds)
    assert site.ledger.releases() == []


@pytest.mark.parametrize("rounds", [2.5, None, True, "2", float("nan")])
def test_what_is_no_number_of_rounds_is_no_request(rounds):
    with pytest.raises((MessageError, TypeError, ValueError)):
        make_site().ask(NoisyRounds, good_round(), *SCALES, rounds=rounds)


def test_a_sum_that_was_answered_gets_the_same_bytes_whatever_is_asked():
    site = make_site()
    first = site.released(NoisyRounds, good_round(), *SCALES, number=3, rounds=4)
    for again in (good_round(), good_round(heat_time=1.0), good_round(centers=np.ones((2, 2)))):
        assert site.released(NoisyRounds, again, number=3, rounds=4).tobytes() == first.tobytes()
    assert len(site.ledger.releases()) == 1


class Masks:
    """Three sites and the part of a server that agrees on masks with them."""

    def __init__(self):
        self.sites = {name: make_site(name=name, masks=SecureSite(name)) for name in ("oslo", "rome", "turin")}

    def agree(self):
        """A new session, up to its first sum."""
        server = open_session(self.sites, 3, sums=2)
        for _ in range(2):
            server = take_replies(server, {name: self.ask(server, name, 1) for name in self.sites})
        return begin_sum(server, 7)

    def ask(self, server, name, number, asked=good_round):
        """What a site answers to the server's next question."""
        masks = make_requests(server)[name]
        request = asked() if isinstance(masks, InputRequest) else None
        return self.sites[name].ask(NoisyRounds, request, *SCALES, header=Header(masks, NoisySum(number, 4)))


def test_numbers_go_under_one_mask_only_and_the_same_question_has_the_same_answer():
    masks = Masks()
    server, ledger = masks.agree(), masks.sites["oslo"].ledger
    first = masks.ask(server, "oslo", 7)
    again = masks.ask(server, "oslo", 7)
    assert_array_equal(first.masked, again.masked)
    assert len(ledger.releases()) == 1
    with pytest.raises(MessageError, match="were released already are not sent again"):
        masks.ask(begin_sum(server, 7), "oslo", 7)
    with pytest.raises(MessageError, match="were released already are not sent again"):
        masks.ask(masks.agree(), "oslo", 7)
    assert len(ledger.releases()) == 1
    other = masks.ask(masks.agree(), "oslo", 8)
    assert not np.any(other.masked == first.masked)
    assert len(ledger.releases()) == 2


def test_a_masked_sum_of_which_nobody_says_what_it_is_of_is_refused_and_costs_nothing():
    masks = Masks()
    with pytest.raises(MessageError, match="asks for a sum and does not say which"):
        masks.ask(masks.agree(), "oslo", 7, asked=lambda: None)
    assert masks.sites["oslo"].ledger.releases() == []


def test_a_sum_under_masks_that_are_spent_or_unknown_costs_nothing():
    masks = Masks()
    server, ledger = masks.agree(), masks.sites["oslo"].ledger
    masks.ask(server, "oslo", 7)
    for wrong in (replace(server, number=-1), replace(server, number=2), replace(server, length=9)):
        with pytest.raises(MessageError, match=SPENT_SUM):
            masks.ask(wrong, "oslo", 8)
    assert len(ledger.releases()) == 1


def test_a_threshold_that_leaves_nobody_who_adds_noise_is_refused():
    masks = Masks()
    for name in masks.sites:
        masks.sites[name] = make_site(budget(colluders=3), name=name, masks=SecureSite(name))
    server = masks.agree()
    with pytest.raises(MessageError, match="colluders of the budget leave no honest site among those that a sum needs"):
        masks.ask(server, "oslo", 7)
    assert masks.sites["oslo"].ledger.releases() == []


# ------------------------------------------------------------------------------------------------------------ the terms


def test_another_run_in_the_middle_of_one_is_refused():
    site = make_site()
    site.send("schema", Nothing(), Nothing)
    with pytest.raises(MessageError, match="speaks of another run than the one that this site takes part in"):
        site.ask(NoisyRounds, good_round(), *SCALES, rounds=4, terms=site.terms("another"))
    with pytest.raises(MessageError, match="speaks of another run"):
        site.send("schema", Nothing(), Nothing, terms=site.terms("another"))
    site.ask(NoisyRounds, good_round(), *SCALES, rounds=4)


def test_a_request_of_no_run_is_refused():
    site = make_site()
    with pytest.raises(MessageError, match="speaks of another run"):
        site.ask(NoisyRounds, good_round(), *SCALES, terms=site.terms(""))


@pytest.mark.parametrize("changes", [{"privacy": None}, {"secure": True}, {"privacy": budget(epsilon=5.0).describe()}])
def test_other_terms_than_those_of_the_site_are_refused(changes):
    site = make_site()
    with pytest.raises(MessageError, match="the terms of the run have changed"):
        site.ask(NoisyRounds, good_round(), *SCALES, terms=replace(site.terms(), **changes))


# ------------------------------------------------------------------------------------------------------ what is open


NOT_PROTECTED = {
    "energy": (Energy, Nothing()),
    "moments": (SumMoments, MomentsRequest((2,), -np.ones(2), np.ones(2), unit_rows=False)),
    "finish": (Finish, FinishRequest(summary=False)),
    "masked round": (MaskedRounds, MaskedRoundRequest(good_round().model, (False,))),
}


@pytest.mark.parametrize("kind", NOT_PROTECTED)
def test_what_is_not_protected_by_noise_does_not_leave(kind):
    site = make_site()
    with pytest.raises(MessageError, match="this sum has no stated sensitivity, so it never leaves a site with noise"):
        site.ask(*NOT_PROTECTED[kind], *SCALES, rounds=4)
    assert site.ledger.releases() == []


@pytest.mark.parametrize("kind", ["sealed.candidates", "sealed.round", "sealed.describe"])
def test_what_is_no_sum_cannot_be_sealed(kind):
    with pytest.raises(MessageError, match="what is no sum"):
        make_site().send(kind, Nothing(), Nothing)
    with pytest.raises(MessageError, match="which this FedHK does not know"):
        make_site().send("sealed.describe!", Nothing(), Nothing)


def test_sums_without_noise_do_not_leave_a_site_with_a_budget():
    with pytest.raises(MessageError, match="asks for sums without noise, this site gives none"):
        make_site().ask(NoisyRounds, good_round(), *SCALES, header=Header(None, ExactSum(1.0)))


def test_a_description_is_of_the_views_only():
    reply = make_site().send("schema", Nothing(), Nothing)
    assert reply.arrays == {}
    assert reply.values == {"tree": [[["view_0", [0, 2], None]]]}
    with pytest.raises(MessageError, match="only gives with noise or masks"):
        make_site().send("describe", DescribeRequest(unit_rows=False, ranges=True), DescribeRequest)


@pytest.mark.parametrize("kind", ["round", "candidates", "energy", "describe", "finish", "!"])
def test_whatever_is_asked_in_the_open_is_refused(kind):
    with pytest.raises(MessageError, match="only gives with noise or masks"):
        make_site().send(kind, Nothing(), Nothing)


def test_a_site_reports_nothing_of_its_own_model():
    for site in (make_site(), make_site(masks=SecureSite("oslo")), LoneSite([np.eye(3)], masks=SecureSite("oslo"))):
        with pytest.raises(MessageError, match="only gives with noise or masks"):
            site.send("deliver", DeliverRequest(GradientStep(0.0), False, report=True), DeliverRequest)


def test_rows_under_noise_are_not_mapped():
    site = make_site()
    with pytest.raises(MessageError, match="bounded for rows as they are"):
        site.ask(NoisyRounds, good_round(), *SCALES, Frame(Calibration(0.5, 0.5, (1.0,), offsets=False)), rounds=4)


def test_no_sum_comes_after_rows_are_mapped():
    """A map may come with the final model, which stays at the site; from then on nothing that is bounded is asked."""
    site, frame = make_site(), Frame(Calibration(0.5, 0.5, (1.0,), offsets=False))
    assert site.ask(NoisyRounds, good_round(), *SCALES, rounds=4)
    site.site = replace(site.site, board=site.site.board.put(frame))
    with pytest.raises(MessageError, match="bounded for rows as they are"):
        site.ask(NoisyRounds, good_round(), number=2, rounds=4)


@pytest.mark.parametrize(
    "changes",
    [
        {"anchors": (np.full((3, 2), 1e61),)},
        {"anchors": (np.full((3, 2), np.nan),)},
        {"scale": -1.0},
        {"scale": float("nan")},
        {"scale": 1e300},
        {"joint_weight": 0.5},
        {"joint_weight": float("nan")},
    ],
)
def test_anchors_with_which_a_row_could_say_more_are_refused_before_anything_is_charged(changes):
    graph = replace(AnchorGraph((np.eye(3)[:, :2],), 2, 3.0, 1.0), **changes)
    site = make_site()
    with pytest.raises(MessageError):
        site.ask(CountTies, TiesRequest(round_arrays(graph, "double")), *SCALES)
    assert not site.ledger.releases(RUN)


def test_a_site_in_the_open_gives_no_sealed_sums():
    site = make_site()
    terms, site.guard = site.terms(), Guard()
    with pytest.raises(MessageError, match="this site was not set up for them"):
        site.ask(NoisyRounds, good_round(), *SCALES, terms=terms)


# ------------------------------------------------------------------------------------------------ what breaks the bound


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
        {"view_weights": np.ones(0), "view_shares": np.ones(0)},
        {"view_shares": np.array([0.0])},
        {"view_shares": np.array([np.nan])},
        {"centers": np.full((2, 2), np.nan)},
        {"centers": np.full((2, 2), np.inf)},
        {"centers": np.full((2, 2), 1e9)},  # where squared distances have no digits left
        {"centers": np.zeros((2, 3))},
    ],
)
def test_parameters_that_would_break_the_bound_are_refused_and_cost_nothing(changes):
    site = make_site()
    with pytest.raises(MessageError, match="parameters with which a row could say more than the noise is sized for"):
        site.ask(NoisyRounds, good_round(**changes), *SCALES, rounds=4)
    assert site.ledger.releases() == []


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_of_weights_that_would_break_the_bound_is_refused_and_costs_nothing(scale):
    site = make_site()
    with pytest.raises(MessageError, match="parameters with which a row could say more"):
        site.ask(NoisyRounds, replace(good_round(), count_scale=scale), *SCALES, rounds=4)
    assert site.ledger.releases() == []


@pytest.mark.parametrize("share", [0.0, -1.0, 1.001, float("nan"), float("inf")])
def test_a_scale_of_costs_that_would_break_the_bound_is_refused_and_costs_nothing(share):
    site = make_site()
    with pytest.raises(MessageError, match="parameters with which a row could say more"):
        site.ask(NoisyRounds, replace(good_round(), cost_share=share), *SCALES, rounds=4)
    assert site.ledger.releases() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"heat_coef": "absdev"},
        {"heat_coef": "minmax", "span": np.zeros(2)},
        {"heat_coef": "minmax", "span": np.array([1.0, -1.0])},
        {"heat_coef": "minmax", "low": np.array([0.0, np.nan])},
        {"shift": np.array([0.0, np.inf])},
        {"shift": np.array([0.0, 1e61])},
        {"scale": np.array([1.0, 0.0])},
        {"scale": np.array([1.0, 1e-61])},
        {"scale": np.array([1.0, -1.0])},
        {"heat_coef": "minmax", "span": np.array([1.0, 1e-320])},
    ],
)
def test_scales_that_would_break_the_bound_are_refused_and_cost_nothing(changes):
    site = make_site()
    with pytest.raises(MessageError, match="scales with which a row could say more"):
        site.ask(NoisyRounds, good_round(), *scales([plain_reference(2, **changes)]), rounds=4)
    assert site.ledger.releases() == []


@pytest.mark.parametrize("radius", [float("inf"), float("nan"), 0.0, -1.0])
def test_second_moments_without_a_radius_are_refused_and_cost_nothing(radius):
    site = make_site()
    with pytest.raises(MessageError, match="rows that are not cut"):
        site.ask(Directions, DirectionsRequest(radius, 0), *SCALES, rounds=4)
    assert site.ledger.releases() == []


def test_rounds_before_scales_are_refused():
    with pytest.raises(MessageError, match="asked before 'References' was published"):
        make_site().ask(NoisyRounds, good_round(), rounds=4)


def test_numbers_that_are_not_finite_leave_as_nothing(monkeypatch):
    monkeypatch.setattr(sealed_noise, "discrete_gaussian", lambda _, size: np.zeros(size, np.int64))
    monkeypatch.setattr(NoisyRounds, "vector", staticmethod(lambda *_: np.array([1.0, np.nan, np.inf, -np.inf])))
    numbers = make_site().released(NoisyRounds, good_round(), *SCALES, rounds=4)
    assert numbers[0] > 0
    assert_array_equal(numbers[1:], 0)


def test_one_row_in_single_precision_on_a_far_centre_is_not_counted_more_than_once(monkeypatch):
    """In float32 the squared distance to a centre at 3,000 is off by about 1, and exp of it by far more."""
    vector, made = NoisyRounds.vector, []
    monkeypatch.setattr(NoisyRounds, "vector", staticmethod(lambda *asked: made.append(vector(*asked)) or made[-1]))
    far = np.full((1, 2), 3000.0, np.float32)
    rows = far + np.array([[0.11, 0.0]], np.float32)
    request = noisy_request(make_parameters([far.astype(float)], heat_time=5.0), "replace")
    site = make_site(rows=rows)
    assert site.site.views.dtype == np.float32
    site.ask(NoisyRounds, request, *SCALES, rounds=4)
    exact = np.exp(-5.0 * ((rows.astype(float) - far) ** 2).sum())
    assert made[-1][2] / request.count_scale == pytest.approx(exact, rel=1e-6)
