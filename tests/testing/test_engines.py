"""The checks for engines pass for sites in this process and behind a transport, and fail for broken ones."""

from __future__ import annotations

import pytest

from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.testing.engines import EngineChecks


class TestOneAfterTheOther(EngineChecks):
    def engine(self, sites):
        return InProcessEngine(sites)


class TestThreads(EngineChecks):
    def engine(self, sites):
        return InProcessEngine(sites, timeout=60.0)


class Nameless(InProcessEngine):
    def sites(self):
        return ["site"]


class Late(InProcessEngine):
    """Gives every answer one exchange late."""

    last = None

    def exchange(self, requests):
        now = super().exchange(requests)
        self.last, before = now, self.last
        return before or {site: TimeoutError("not yet") for site in requests}


class Talkative(InProcessEngine):
    def exchange(self, requests):
        return super().exchange(dict.fromkeys(self.states, next(iter(requests.values()))))


class Brittle(InProcessEngine):
    def exchange(self, requests):
        answers = super().exchange(requests)
        for answer in answers.values():
            if isinstance(answer, Exception):
                raise answer
        return answers


class Forgetful(InProcessEngine):
    def exchange(self, requests):
        states = dict(self.states)
        answers = super().exchange(requests)
        self.states = states
        return answers


class ClosedOnce(InProcessEngine):
    closed = False

    def close(self):
        if self.closed:
            raise AssertionError("closed already")
        self.closed = True


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Nameless, "test_it_names_the_sites"),
        (Late, "test_what_is_sent_arrives_and_the_answer_is_that_of_the_site"),
        (Talkative, "test_only_the_sites_that_are_asked_answer"),
        (Brittle, "test_a_site_that_fails_does_not_stop_the_others"),
        (Brittle, "test_a_damaged_request_is_an_error_of_the_site_and_not_of_the_engine"),
        (Forgetful, "test_a_run_gives_the_model_of_a_run_in_this_process_bit_for_bit"),
        (ClosedOnce, "test_closing_twice_is_no_error"),
    ],
)
def test_a_broken_engine_fails(broken, check):
    class Checks(EngineChecks):
        def engine(self, sites):
            return broken(sites)

    with pytest.raises(Exception):  # noqa: B017, PT011 - AssertionError, or what the engine raises
        getattr(Checks(), check)()
