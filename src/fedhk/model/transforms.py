"""Ways to bring rows from one space to another before a model sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fedhk.model.rows import Rows


class RowTransform(ABC):
    """How a site brings its rows from one space to another: a calibration, an embedding."""

    @abstractmethod
    def apply(self, rows: Rows) -> Rows:
        """Give the same rows in the other space, in the same order."""
