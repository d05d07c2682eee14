"""The calibration of sites, and the offset from the common centres that a site keeps through the rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import References
from fedhk.federation.site import Site
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.personal.calibration import Calibration
from fedhk.personal.offset import follow_centers, shift_centers


@dataclass(frozen=True)
class Frame(RowEntry):
    """The calibration: the shares of its own mean and spread that each site removes from its rows."""

    keeps_cells: ClassVar[bool] = True

    calibration: Calibration

    @property
    def descends(self) -> bool:
        return not self.calibration.offsets  # an offset follows the rows of its site, and pays for being there

    def apply_at(self, site: Site, rows: Rows) -> Rows:
        return self.calibration.apply(rows, self.measure(site))

    def measure(self, site: Site) -> FloatArray:
        """Measure what the site takes out of its rows, of shape (2, d)."""
        return self.calibration.measure(site.rows(upto=type(self)))

    def see(self, site: Site, parameters: Parameters, *, follow: bool) -> Parameters:
        if not self.calibration.offsets:
            return parameters
        known = next((kept.values for kept in site.memory.find(Offset)), ())
        if follow:
            known = follow_centers(site.rows(), parameters, known, site.workers)
            site.keep(Offset(known))
        return shift_centers(parameters, known)

    def wrap(self, model: FittedModel, board: Board) -> FittedModel:
        return replace(model, references=self.calibration.in_units(model.references))


@dataclass(frozen=True, eq=False)
class Offset(Entry):
    """Mean distance of a site's rows from the centres of their clusters, per view. It never leaves the site."""

    values: tuple[FloatArray, ...]


def calibrated_references(board: Board) -> tuple[Reference, ...]:
    """Return the common references, in units of the calibrated rows if sites are calibrated."""
    references = board.get(References).references
    for frame in board.find(Frame):
        references = frame.calibration.in_units(references)
    return references
