"""Sentences say what the numbers say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedhk.summary.facts import Gain
from fedhk.summary.narrative import paragraphs
from report.pages import made_up


@pytest.mark.parametrize(("epsilon", "odds"), [(0.5, "1.7"), (1.0, "2.8"), (2.5, "13"), (4.0, "55"), (8.0, "3,000")])
def test_the_odds_that_are_promised_are_not_below_those_of_epsilon(epsilon, odds):
    words = " ".join(text for _, text in paragraphs(replace(made_up(), privacy=(epsilon, 1e-6))))
    assert f"grow by more than {odds} times" in words


@pytest.mark.parametrize("own", ["own", "global"])
def test_a_gain_is_told_with_its_sign(own):
    objectives = {"global": 0.4, "personal": 0.3 if own == "own" else 0.5}
    facts = replace(made_up(), gains=(Gain("site 0", 5, objectives),), held_out=True)
    words = " ".join(text for _, text in paragraphs(facts))
    assert ("better at 1 of 1 site" in words) == (own == "own")
    assert ("25 % lower" in words) == (own == "own")
