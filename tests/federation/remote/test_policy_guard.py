"""The guard of a remote site: rows are read once a message is admitted, and a run stays what its terms say."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.data.views import check_views
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import Terms
from fedhk.federation.gate import answer_message, write_request
from fedhk.federation.phases import load_phases
from fedhk.federation.phases.base import Nothing, phase_named
from fedhk.federation.phases.deliver import DeliverRequest
from fedhk.federation.phases.describe import DescribeRequest
from fedhk.federation.phases.frame import Offset
from fedhk.federation.remote.greet import Greet
from fedhk.federation.remote.policy import Policy
from fedhk.federation.remote.policy_guard import PolicyGuard
from fedhk.federation.remote.site import NO_VIEWS
from fedhk.federation.site import Site
from fedhk.personal.options import GradientStep
from fedhk.privacy import DifferentialPrivacy

BUDGET = DifferentialPrivacy(1.0, 1e-6, (-20, 20)).describe()
OPEN = DescribeRequest(unit_rows=False, ranges=False)


class Rows:
    """Reads rows, and counts how often."""

    def __init__(self):
        self.reads = []

    def __call__(self, terms):
        self.reads.append(terms)
        return check_views({"a": np.arange(12.0).reshape(6, 2)})


@pytest.fixture
def rows():
    return Rows()


@pytest.fixture
def ask(rows, tmp_path):
    """Ask a site with a policy; the site after its answer, and the answer."""
    load_phases()

    def answer(kind, request, *entries, policy=None, site=None):
        guard = PolicyGuard(policy or Policy(), rows, tmp_path / "ledger.jsonl")
        named = {type(entry).__name__: entry for entry in entries}
        message = write_request(kind, 0, request, phase_named(kind).request_type, named)
        return answer_message(site or Site("rome", NO_VIEWS), guard, message)

    return answer


@pytest.mark.parametrize(
    ("policy", "terms", "reason"),
    [
        (Policy(secure=True), Terms("a"), "masked sums only"),
        (Policy(epsilon=1.0), Terms("a"), "noise only"),
        (Policy(secure=True), Terms("a", {}, BUDGET), "masked sums only"),
        (Policy(epsilon=1.0), Terms("a", {}, None, True), "noise only"),
        (Policy(), Terms("a", {}, BUDGET), "only gives with noise or masks"),
        (Policy(), Terms("a", {}, None, True), "only gives with noise or masks"),
        (Policy(), Terms("a", {}, {"epsilon": 1.0}), "budget cannot be used"),
        (Policy(epsilon=0.5), Terms("a", {}, BUDGET), "is above what this site allows"),
    ],
)
def test_what_is_refused_is_refused_before_rows_are_read(ask, rows, policy, terms, reason):
    with pytest.raises(MessageError, match=reason):
        ask("describe", OPEN, terms, policy=policy)
    assert rows.reads == []


@pytest.mark.parametrize("kind", ["describe", "finish", "deliver"])
def test_no_kind_of_message_goes_past_the_policy(ask, rows, kind):
    """Also the last one, which makes the site's own model."""
    requests = {"describe": OPEN, "deliver": DeliverRequest(GradientStep(), False, False)}
    request = requests.get(kind) or phase_named(kind).request_type(summary=False)
    with pytest.raises(MessageError, match="masked sums only"):
        ask(kind, request, Terms("a"), policy=Policy(secure=True))
    assert rows.reads == []


def test_a_greeting_needs_no_terms_and_says_no_number_of_rows(ask, rows):
    site, reply = ask("hello", Greet().request(Board()), policy=Policy(secure=True, epsilon=1.0))
    assert rows.reads == [None]
    assert reply.arrays == {}
    assert site.board.entries == {}


def test_masked_runs_may_ask_for_views_in_the_open(ask):
    _, reply = ask("schema", Nothing(), Terms("a", {}, None, True), policy=Policy(secure=True))
    assert reply.arrays == {}


def test_rows_are_read_in_the_order_of_the_terms_that_the_site_has(ask, rows):
    terms = Terms("a", {"a": ("x", "y")})
    site, _ = ask("describe", OPEN, terms)
    ask("describe", OPEN, site=site)
    assert [asked.columns for asked in rows.reads] == [terms.columns] * 2


def test_another_run_begins_with_an_empty_board_and_an_empty_memory(ask):
    site, _ = ask("describe", OPEN, Terms("a"))
    site.keep(Offset((np.zeros(2),)))
    again, _ = ask("describe", OPEN, Terms("a"), site=site)
    assert again.memory.has(Offset)
    other, _ = ask("describe", OPEN, Terms("b"), site=site)
    assert other.board.get(Terms).run == "b"
    assert list(other.board.entries) == [Terms]
    assert not other.memory.entries


def test_a_refused_run_leaves_the_site_in_the_run_that_it_is_in(ask):
    site, _ = ask("describe", OPEN, Terms("a"))
    site.keep(Offset((np.zeros(2),)))
    with pytest.raises(MessageError, match="only gives with noise or masks"):
        ask("describe", OPEN, Terms("b", {}, None, True), site=site)
    assert site.board.get(Terms).run == "a"
    assert site.memory.has(Offset)
