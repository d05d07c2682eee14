"""The frame of a site: how its rows are calibrated, and the offset from the common centres that it keeps in rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedhk._typing import FloatArray
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.site import Site
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal.calibration import Calibration
from fedhk.personal.offset import collect_statistics, follow_centers


@dataclass(frozen=True)
class Frame(RowEntry):
    """How sites bring their rows to one frame: a share of their own mean and spread is taken out."""

    calibration: Calibration

    def apply(self, rows: Rows) -> Rows:
        return self.calibration.apply(rows)

    def wrap(self, model: FittedModel, board: Board) -> FittedModel:  # noqa: ARG002
        return replace(model, references=self.calibration.in_units(model.references))


@dataclass(frozen=True, eq=False)
class Offset(Entry):
    """How far a site's rows are from the centres of their clusters, per view. It never leaves the site."""

    values: tuple[FloatArray, ...]


def current_offset(site: Site) -> tuple[FloatArray, ...]:
    """The offset that the site has now; empty where it keeps none."""
    return next((offset.values for offset in site.memory.find(Offset)), ())


def collect_at_site(site: Site, parameters: Parameters) -> Statistics:
    """Statistics of a site's rows in a round, with an offset that follows the centres where the frame asks for one."""
    if any(frame.calibration.offsets for frame in site.board.find(Frame)):
        site.keep(Offset(follow_centers(site.rows(), parameters, current_offset(site), site.workers)))
    return collect_statistics(site.rows(), parameters, current_offset(site), site.workers)
