"""Free centres: nothing is changed, and no pass over the rows is made."""

from __future__ import annotations

import numpy as np

from fedhk.model.forms import CenterForm
from fedhk.model.parameters import Parameters


def test_free_centres_stay_as_they_are_and_need_no_statistics():
    def collect():
        raise AssertionError("a pass was made")

    start = Parameters((np.ones((2, 3)),), np.ones(1), 0.3, 1.1, 2.0, np.ones(1))
    assert CenterForm().constrain(start, ["only"], collect) is start
    assert not CenterForm().is_exact(2, [3], ["only"])
