"""How sums of columns go with noise: bounds in the place of what rows would tell, and nothing without a sensitivity."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.after.binary import CompareEvents, CountEvents
from fedhk.after.columns import (
    ColumnsRequest,
    CompareSites,
    CountMagnitudes,
    FindBins,
    GivenRanges,
    Ranges,
    SumColumns,
    SumMoments,
    Units,
)
from fedhk.after.continuous import continuous_phases
from fedhk.after.run import count_sums
from fedhk.after.survival import NOISY_KINDS, CountSurvival, survival_phases
from fedhk.federation.board import Board
from fedhk.federation.sealed import Noise, SealedTerms
from fedhk.federation.sealed.phase import Sealed
from fedhk.privacy import DifferentialPrivacy, SecureSummation

# two numbers in the first view; in the second one a number, and two levels of a category
COLUMNS = ColumnsRequest(("lab", "record"), (2, 3), np.array([-1, -1, -1, 0, 0]))

QUESTIONS = {
    "profile": [
        CountMagnitudes(COLUMNS),
        SumMoments(COLUMNS),
        FindBins(COLUMNS, 3, 10),
        SumColumns(COLUMNS, 3, 10),
        CompareSites(COLUMNS, 3),
    ],
    "survival": survival_phases(3, None),
    "survival on a grid": survival_phases(3, [1.0, 2.0]),
    "event": [CountEvents(3), CompareEvents(3)],
    "value": continuous_phases(3),
}


def seal(phases, bounds=(0.0, 9.0), *, secure=False):
    noise = Noise(DifferentialPrivacy(1.0, 1e-5, bounds=bounds), count_sums(phases), finds_start=False)
    return SealedTerms(noise, SecureSummation() if secure else None).compose(phases)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("phases", QUESTIONS.values(), ids=QUESTIONS)
def test_with_noise_one_sum_is_asked_and_nothing_is_open(phases, secure):
    sealed = seal(phases, secure=secure)
    sums = [phase for phase in sealed if isinstance(phase, Sealed)]
    assert len(sums) == count_sums(phases) == 1
    assert all(isinstance(phase, Sealed | GivenRanges) for phase in sealed)


@pytest.mark.parametrize("phases", QUESTIONS.values(), ids=QUESTIONS)
def test_masks_change_no_question(phases):
    sealed = SealedTerms(None, SecureSummation()).compose(phases)
    assert [phase.phase for phase in sealed] == phases


def test_bounds_are_the_units_of_numbers_and_levels_stay():
    board = GivenRanges(COLUMNS, [(0.0, 4.0), (-2.0, 2.0)]).begin(Board())
    units = board.get(Units)
    assert units.bounded
    np.testing.assert_array_equal(units.shift, [0, 0, -2, 0, 0])
    np.testing.assert_array_equal(units.scale, [4, 4, 4, 1, 1])
    np.testing.assert_array_equal(board.get(Ranges).high, [4, 4, 2])


def test_bounds_that_do_not_fit_are_refused_before_any_site_is_asked():
    phases = QUESTIONS["profile"]
    with pytest.raises(ValueError, match="bounds='private' does not go with profile and outcomes"):
        seal(phases, "private")
    with pytest.raises(ValueError, match="bounds has 3 pairs, the sites have 2 views"):
        seal(phases, [(0, 1)] * 3)


@pytest.mark.parametrize(("grid", "intervals"), [(None, 12), (24, 24)])
def test_with_noise_times_are_few_unless_they_are_given(grid, intervals):
    given, counted = seal(survival_phases(3, grid))
    phase = counted.phase
    assert isinstance(phase, CountSurvival)
    request = phase.request(given.begin(Board()))
    assert request.kinds == NOISY_KINDS
    np.testing.assert_allclose(request.grid, np.linspace(0.0, 9.0, intervals + 1))
