"""What a site reports of its own model."""

import numpy as np
import pytest

from fedhk.errors import MessageError
from fedhk.federation.codec import pack, unpack
from fedhk.personal.outcome import SiteOutcome, SiteReport, SiteTerms

FINE = SiteReport(SiteTerms(2.0, 10, 0.5, 0.25), 3, {"shift": 0.5, "core": 0.1})


def test_a_report_counts_rows_and_the_clusters_that_they_are_in(model):
    labels = np.array([0, 2, 2, 0])
    outcome = SiteOutcome(model, labels, np.zeros((4, 3)), labels, 2.0, 0.5, 0.25, {"shift": 0.5})
    assert outcome.report == SiteReport(SiteTerms(2.0, 4, 0.5, 0.25), 2, {"shift": 0.5})


def test_a_report_survives_a_message_with_its_order():
    again = unpack(*pack(FINE, SiteReport), SiteReport)
    assert again == FINE
    assert list(again.shares) == ["shift", "core"]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(number):
    FINE.check("rome")
    for terms in ((number, 10, 0.5, 0.25), (2.0, 10, number, 0.25), (2.0, 10, 0.5, number)):
        with pytest.raises(MessageError, match=r"rome.*not a finite number"):
            SiteReport(SiteTerms(*terms), 3).check("rome")
    with pytest.raises(MessageError, match=r"shift=.*not a finite number"):
        SiteReport(FINE.terms, 3, {"shift": number}).check("rome")
