"""Cluster summaries that no rows can have are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhk.errors import MessageError
from fedhk.federation.plausible import check_summary
from fedhk.model.cluster_summary import ClusterSummary


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"counts": np.array([8.0, 8.0])}, "more rows than the 10"),
        ({"seen": np.array([11.0])}, "more rows than the 10"),
        ({"squares": np.array([10 * 4 * 9.0 + 1])}, "further from their centres"),
    ],
)
def test_what_no_rows_can_have_is_refused(changed, said):
    fine = ClusterSummary(np.array([6.0, 4.0]), np.array([12.0]), np.array([10.0]))
    limits = (np.array([3.0]),)
    check_summary(fine, 10, limits, "oslo")
    with pytest.raises(MessageError, match=said):
        check_summary(replace(fine, **changed), 10, limits, "oslo")
