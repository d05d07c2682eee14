"""What a site does not take from a message: terms said twice, centres in disguise, names and sizes without end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacked_site import BUDGET, MODEL, SCALES, Target, rows_of
from fedhk.federation.codec import pack
from fedhk.federation.entries import Broadcast, FinalModel, Schema, Terms
from fedhk.federation.gate import ENTRIES
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases.base import UNSTATED, Nothing
from fedhk.federation.phases.deliver import Deliver, DeliverRequest
from fedhk.federation.phases.describe import DescribeViews
from fedhk.federation.phases.scales import OTHER_WIDTH, Ranges, RangesRequest
from fedhk.federation.phases.sum_rounds import UNBOUNDED, NoisyRounds, noisy_request
from fedhk.federation.phases.sum_start import (
    NO_POINTS,
    Cells,
    CellsRequest,
    Groups,
    GroupsRequest,
    OwnCells,
    OwnGrouping,
    ViewDistances,
    ViewDistancesRequest,
)
from fedhk.federation.protocols.factors import FactorBroadcast
from fedhk.federation.remote.policy import MALFORMED
from fedhk.federation.remote.policy_guard import BAD_NAME
from fedhk.personal.options import GradientStep
from fedhk.starts.cells import Landmarks
from fedhk.tensors.low_rank import LowRankForm
from sealed_runs import make_parameters


@pytest.fixture
def target(tmp_path):
    return Target(tmp_path, rows_of())


def test_terms_that_are_published_twice_in_one_message_are_not_well_formed(target):
    """The guard looked at the first terms and the site kept the second: noise was shared with sites nobody knows."""
    agreed = Terms("a-run", {"a": None}, BUDGET.describe(), True, False)
    types = tuple[DescribeViews.request_type, Terms, Terms]
    values, arrays = pack((Nothing(), agreed, replace(agreed, shared_noise=True)), types)
    message = Message("schema", "*", 0, arrays, values | {ENTRIES: ["Terms", "Terms"]})
    answer = decode(target.site.answer(encode(message)))
    assert answer.values["reason"] == MALFORMED


def test_centres_that_a_request_brings_in_another_form_are_held_to_the_same_limits(target):
    """Factors stood for centres of any length, while the limit was checked on a table that nobody used."""
    far = LowRankForm("tucker", 2).constrain(make_parameters([np.array([[1e12, 0.0], [0.0, 1e12]])]), ("a",))
    plain = noisy_request(make_parameters([np.zeros((2, 2))]), "replace")
    hidden = replace(FactorBroadcast.of(far), centers=plain.model.centers)
    reason = target.ask(NoisyRounds, replace(plain, model=hidden), *SCALES)
    assert reason == UNBOUNDED
    assert target.releases == []


def test_what_becomes_of_a_model_at_the_site_is_not_told(target, monkeypatch, caplog):
    """A model with which one row cannot be worked on was refused only where that row was."""
    fit = GradientStep.fit_rows

    def broken(personal, inputs):
        if inputs.rows.n_rows:
            raise OverflowError("row 17 is 42.0")
        return fit(personal, inputs)

    request, final = DeliverRequest(GradientStep(0.0), False, False), FinalModel(Broadcast.of(MODEL))
    answers = [target.send("deliver", request, Deliver.request_type, *SCALES, final)]
    monkeypatch.setattr(GradientStep, "fit_rows", broken)
    answers.append(target.send("deliver", request, Deliver.request_type, *SCALES, final, run="another"))
    assert encode(answers[0]) == encode(answers[1])
    assert "row 17 is 42.0" in caplog.text


def test_results_are_not_replaced_by_a_second_delivery_of_the_same_run(target):
    """Whoever takes over the coordinator after a run knows its name."""
    request = DeliverRequest(GradientStep(0.0), False, False)
    target.send("deliver", request, Deliver.request_type, *SCALES, FinalModel(Broadcast.of(MODEL)))
    before = (target.state / "rome" / "run" / "model.safetensors").read_bytes()
    other = FinalModel(Broadcast.of(make_parameters([np.full((2, 2), 9.0)])))
    target.send("deliver", request, Deliver.request_type, *SCALES, other)
    assert (target.state / "rome" / "run-1" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("run", ["", "x" * 201, "a\nrun", "\x1b[2J"])
def test_the_name_of_a_run_is_short_and_printable(target, run):
    """It is in every line of the ledger, which is read with every message."""
    answer = target.send("schema", Nothing(), DescribeViews.request_type, run=run)
    assert answer.values["reason"] == BAD_NAME


TOO_LARGE = {
    "views that the site lacks": (
        Ranges,
        RangesRequest((2, 2**20, 2**20)),
        (Schema(("a", "b", "c"), (None,) * 3),),
        OTHER_WIDTH,
    ),
    "directions": (Cells, CellsRequest(Landmarks(np.ones((2, 64)), np.ones((1, 64)))), (), NO_POINTS),
    "points": (Cells, CellsRequest(Landmarks(np.ones((2, 1)), np.ones((2**15 + 1, 1)))), (), NO_POINTS),
    "points under masks": (Groups, GroupsRequest(Landmarks(np.ones((2, 64)), np.ones((1, 64))), (True,)), (), UNSTATED),
    "groups of a site's own, which one row changes without bound": (
        OwnCells,
        CellsRequest(Landmarks(np.ones((2, 1)), np.ones((1, 1)))),
        (OwnGrouping(3, 0),),
        UNSTATED,
    ),
    "points of views under masks": (
        ViewDistances,
        ViewDistancesRequest((Landmarks(np.ones((2, 64)), np.ones((1, 64))),)),
        (),
        UNSTATED,
    ),
    "centres": (NoisyRounds, noisy_request(make_parameters([np.zeros((2**16 + 1, 2))]), "replace"), (), UNBOUNDED),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_no_request_fills_the_memory_of_a_site(target, case):
    phase, request, entries, rule = TOO_LARGE[case]
    assert target.ask(phase, request, *SCALES, *entries) == rule
    assert target.releases == []
