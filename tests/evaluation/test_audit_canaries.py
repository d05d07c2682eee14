"""An audit of one's own run: what right guesses exclude, and what they do not."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk import EFKMVC
from fedhk.data.named import NamedTable
from fedhk.evaluation.audit_canaries import CanaryAudit, audit_run, bound_epsilon
from fedhk.privacy import DifferentialPrivacy

QUIET = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:With epsilon=.* can be expected to find:UserWarning"
)


def make_sites(rows=60, n_sites=3, seed=0):
    rng = np.random.default_rng(seed)
    return {
        f"s{site}": {
            "a": NamedTable(rng.normal(size=(rows, 3)), None),
            "b": NamedTable(rng.normal(size=(rows, 2)), None),
        }
        for site in range(n_sites)
    }


def test_a_bound_is_that_of_a_coin():
    coin = 0.05 ** (1 / 100)  # a hundred right guesses of a hundred
    assert bound_epsilon(100, 100, 100, 0.0, 0.95) == pytest.approx(np.log(coin / (1 - coin)), abs=1e-3)
    assert bound_epsilon(400, 200, 100, 1e-5, 0.95) == 0.0
    assert bound_epsilon(400, 200, 0, 0.0, 0.95) == 0.0


def test_more_right_guesses_show_more_and_delta_takes_some_away():
    shown = [bound_epsilon(400, 200, right, 1e-5, 0.95) for right in (120, 140, 160, 180, 200)]
    assert shown == sorted(shown)
    assert shown[0] > 0
    assert bound_epsilon(400, 200, 180, 1e-3, 0.95) < shown[3] <= bound_epsilon(400, 200, 180, 0.0, 0.95)


def test_coins_are_seldom_taken_for_a_broken_promise():
    """Guesses of a mechanism that has epsilon 1 exactly show more than 1 in no more than one of twenty audits."""
    rng, coin = np.random.default_rng(0), 1 / (1 + np.exp(-1.0))
    shown = [bound_epsilon(100, 100, int(right), 0.0, 0.95) for right in rng.binomial(100, coin, 300)]
    assert np.mean(np.array(shown) > 1.0) <= 0.06
    assert max(shown) > 0.5


@QUIET
def test_a_run_without_noise_with_a_centre_for_each_row_gives_its_rows_away():
    found = audit_run(EFKMVC(120, n_init=1, random_state=0), make_sites(), canaries=80)
    assert found.stated is None
    assert found.holds
    assert found.shown > 0.5
    assert (found.canaries, found.guesses) == (80, 40)
    assert "without noise nothing is promised" in found.verdict


@QUIET
def test_a_run_with_noise_keeps_its_promise_and_charges_no_ledger(tmp_path):
    budget = DifferentialPrivacy(1.0, 1e-4, (-4, 4), ledger=tmp_path / "ledger")
    model = EFKMVC(4, privacy=budget, random_state=0)
    found = audit_run(model, make_sites(), canaries=80)
    assert found.stated == 1.0
    assert found.holds
    assert found.to_dict()["verdict"].endswith("consistent.")
    assert not list(tmp_path.iterdir())
    assert model.privacy == budget


def test_what_shows_more_than_is_stated_is_said():
    assert "the promise is broken" in CanaryAudit(100, 50, 50, 1.0, 2.7, 0.95).verdict


@pytest.mark.parametrize("canaries", [19, 91])
def test_canaries_that_are_too_few_or_too_many_are_refused(canaries):
    with pytest.raises(ValueError, match=rf"canaries={canaries} must be between 20 and half of the 180 rows, 90"):
        audit_run(EFKMVC(3), make_sites(), canaries=canaries)
