"""Sentences say what the numbers say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedhk.summary.facts import Gain
from fedhk.summary.narrative import paragraphs
from report.pages import made_up


@pytest.mark.parametrize("own", ["own", "global"])
def test_a_gain_is_told_with_its_sign(own):
    objectives = {"global": 0.4, "personal": 0.3 if own == "own" else 0.5}
    facts = replace(made_up(), gains=(Gain("site 0", 5, objectives),), held_out=True)
    words = " ".join(text for _, text in paragraphs(facts))
    assert ("better at 1 of 1 site" in words) == (own == "own")
    assert ("25 % lower" in words) == (own == "own")
