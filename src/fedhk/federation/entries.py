"""The entries that most phases use. What only one phase gives and takes stands in that phase's file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns, Views, is_tensor
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry, RowEntry, Shared
from fedhk.federation.table import Table
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.descent import Progress
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import split_joint

# Columns in few bytes: a checksum of names, which may be many; the shape of a row of a tensor.
ColumnsCode = int | tuple[int, ...] | None


def columns_code(columns: Columns) -> ColumnsCode:
    """By what a site sees whether its columns are the model's."""
    if is_tensor(columns):
        return columns
    return None if columns is None else zlib.crc32(json.dumps(columns).encode())


@dataclass(frozen=True)
class Terms(Shared):
    """What every site must know of a run before all else; the server publishes it first.

    Parameters
    ----------
    run : str
        The name of the run; no other run has it.
    columns : dict of str to (tuple of str or None)
        The views of the federation with the names of their columns, in the order in which sites that are elsewhere
        must read them. Empty where all sites are in one process.
    privacy : dict or None
        The privacy budget, as `DifferentialPrivacy.describe` gives it; None where no noise is added.
    secure : bool
        Whether sums are masked.
    shared_noise : bool
        Whether sites share one noise under masks; else each adds all of it.
    """

    run: str
    columns: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    privacy: dict[str, Any] | None = None
    secure: bool = False
    shared_noise: bool = True


@dataclass(frozen=True)
class Schema(Shared):
    """The views of the federation.

    Parameters
    ----------
    names : tuple of str
        Name of each view, in the order of the model.
    codes : tuple of (int, tuple of int or None)
        A code of each view's columns, where they are named, or the shape of a row, where it is a tensor.
    """

    names: tuple[str, ...]
    codes: tuple[ColumnsCode, ...]

    def columns_of(self, views: Views) -> tuple[Columns, ...]:
        """Columns of a site's views, in this order; the shape of a tensor is known also where the site lacks it."""
        known = zip(views.columns, self.codes, strict=True)
        return tuple(code if columns is None and isinstance(code, tuple) else columns for columns, code in known)

    def check_columns(self, views: Views, site: str) -> None:
        """Refuse views, in this order, whose columns or shapes are others."""
        for name, columns, code in zip(self.names, views.columns, self.codes, strict=True):
            if columns is None or code is None or columns_code(columns) == code:
                continue
            if is_tensor(columns) and isinstance(code, tuple):
                raise MessageError(f"view {name!r} has rows of shape {columns} here, {code} in the model", site)
            raise MessageError(f"view {name!r} has other columns here than in the model, or in another order", site)


@dataclass(frozen=True, eq=False)
class References(Shared):
    """How each view is brought to model units."""

    references: tuple[Reference, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(reference.width for reference in self.references)


@dataclass(frozen=True, eq=False)
class Population(Entry):
    """What the server knows of all rows together.

    Parameters
    ----------
    n_sites : int
        Sites that described themselves.
    columns : tuple of (tuple of str, tuple of int or None)
        Column names of each view, or the shape of a row.
    moments : tuple of Moments
        Of each view, over all sites.
    rows : float
        How many rows there are; 0 where that is not known.
    """

    n_sites: int
    columns: tuple[Columns, ...]
    moments: tuple[Moments, ...]
    rows: float


@dataclass(frozen=True)
class Members(Entry):
    """The sites that described themselves, in a run with noise or masks: masks are agreed on among them."""

    sites: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Space(Entry):
    """The space in which rows are clustered.

    Parameters
    ----------
    reach : tuple of array of shape (d_h,)
        How far from the grand mean a value may be, per feature of each view: answers beyond it are refused.
    """

    reach: tuple[FloatArray, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(len(limits) for limits in self.reach)


@dataclass(frozen=True, eq=False)
class Minimisation(Entry):
    """Where the rounds stand.

    Parameters
    ----------
    progress : Progress
        Parameters, iteration and objective; in the coordinates of the basis, where there is one.
    answered : str
        Digest of the names of the sites that answered the last round.
    """

    progress: Progress
    answered: str = ""

    @property
    def parameters(self) -> Parameters:
        """The parameters of the round to come."""
        return self.progress.parameters


@dataclass(frozen=True, eq=False)
class Basis(Shared):
    """Few directions per view, sent once, in whose coordinates centres and sums then travel.

    Parameters
    ----------
    directions : tuple of Table of shape (q_h, d_h)
        Rows that were orthonormal before they were rounded.
    """

    directions: tuple[Table, ...]

    @cached_property
    def columns(self) -> tuple[FloatArray, ...]:
        """Orthonormal columns E_h, of shape (d_h, q_h); each points the way of its row."""
        return tuple(_orthonormal(table.read()) for table in self.directions)


def _orthonormal(directions: FloatArray) -> FloatArray:
    columns, triangle = np.linalg.qr(directions.T)
    return np.asarray(columns * np.where(np.diag(triangle) < 0, -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Broadcast:
    """Parameters as they travel: centres of all views side by side, in features or in the coordinates of the basis."""

    centers: Table
    view_weights: FloatArray
    view_shares: FloatArray
    heat_time: float
    fuzzifier: float
    view_exponent: float

    @classmethod
    def of(cls, parameters: Parameters, precision: str = "double") -> Broadcast:
        """Round parameters for the way."""
        return cls(
            Table.of(np.hstack(parameters.centers), precision),
            parameters.view_weights,
            parameters.view_shares,
            parameters.heat_time,
            parameters.fuzzifier,
            parameters.view_exponent,
        )

    def parameters(self, widths: Sequence[int], basis: Basis | None = None) -> Parameters:
        """The parameters in features; `widths` are those of the rows."""
        columns = () if basis is None else basis.columns
        centers = split_joint(self.centers.read(), [part.shape[1] for part in columns] if columns else widths)
        inner = Parameters(
            centers, self.view_weights, self.heat_time, self.fuzzifier, self.view_exponent, self.view_shares
        )
        return inner.from_basis(columns) if columns else inner


@dataclass(frozen=True, eq=False)
class FinalModel(Shared):
    """The parameters at the end of the rounds."""

    model: Broadcast


@dataclass(frozen=True, eq=False)
class FinalParameters(Entry):
    """The same at the server, in features, with the low-rank form where centres have one."""

    parameters: Parameters


@dataclass(frozen=True, eq=False)
class Result(Entry):
    """The objective at the final parameters, and the rows it is of."""

    objective: float
    rows: float


@dataclass(frozen=True, eq=False)
class Summary(Shared):
    """How large clusters are and how far rows spread in them, over all sites: what own models are compared with."""

    summary: ClusterSummary


def fitted_model(board: Board, parameters: Parameters, columns: tuple[Columns, ...]) -> FittedModel:
    """The model that all sites have in common, from what was published."""
    references = board.get(References).references
    model = FittedModel(parameters, references, board.get(Schema).names, columns)
    for entry in board.find(RowEntry):
        model = entry.wrap(model, board)
    return model
