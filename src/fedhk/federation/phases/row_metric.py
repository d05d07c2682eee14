"""The metric of rows that are tied to anchors, as sites get it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fedhk.embedding.metric import NO_METRIC, Metric
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Shared
from fedhk.federation.table import read_arrays, round_arrays

# Precision of the matrices: anchors, which they are applied to, have fewer digits.
PRECISION = "half"


@dataclass(frozen=True, eq=False)
class RowMetric(Shared):
    """By what rows are stretched before they are grouped and tied to anchors."""

    rounded: Metric

    @classmethod
    def of(cls, metric: Metric) -> RowMetric:
        """Round a metric."""
        return cls(round_arrays(metric, PRECISION))

    @cached_property
    def metric(self) -> Metric:
        """The metric as server and sites read it."""
        return read_arrays(self.rounded)


def find_metric(board: Board) -> Metric:
    """Return the metric of a run; none if none was found."""
    return next((entry.metric for entry in board.find(RowMetric)), NO_METRIC)


def check_metric(metric: Metric, widths: tuple[int, ...]) -> Metric:
    """Return a metric that a server has sent; refuse one that rows of such widths cannot have."""
    try:
        metric.check(widths)
    except ValueError as error:
        raise MessageError(str(error)) from error
    return metric
