"""The board entries that several phases use. An entry of one phase alone is defined in the file of that phase."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from fedhk._typing import FloatArray
from fedhk.data.deviations import Deviation
from fedhk.data.folds import Fold
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns, Views, is_tensor
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry, RowEntry, Shared
from fedhk.federation.plausible import are_possible
from fedhk.federation.several import Several
from fedhk.federation.table import Table
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.descent import Progress
from fedhk.model.drift import SitePast
from fedhk.model.fitted import FittedModel
from fedhk.model.memory import Memory
from fedhk.model.parameters import Parameters
from fedhk.model.rows import split_joint

# Refusal of references with more features than a federation can have.
WIDE = Rule("references of wider views than a federation can have")

# Refusal of a malformed basis. Rounding to bytes leaves directions a length near 1, far within these limits.
UNSOUND_BASIS = Rule("a basis whose directions are not those of the views, not finite, too long or not independent")
MOST_LENGTH = 1e3

# Columns in few bytes: a checksum of names, which may be many; the shape of a row of a tensor.
ColumnsCode = int | tuple[int, ...] | None


def columns_code(columns: Columns) -> ColumnsCode:
    """Encode columns in few bytes, so that a site can compare its own with those of the model."""
    if is_tensor(columns):
        return columns
    return None if columns is None else zlib.crc32(json.dumps(columns).encode())


@dataclass(frozen=True)
class Terms(Shared):
    """The terms of a run: its name, its privacy budget, whether sums are masked. The server publishes them first."""

    run: str  # its name; no other run has it
    # The views of the federation with the names of their columns, in the order in which sites that are elsewhere must
    # read them. Empty where all sites are in one process.
    columns: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    privacy: dict[str, Any] | None = None  # the budget, as `DifferentialPrivacy.describe` gives it; None without noise
    secure: bool = False  # whether sums are masked
    shared_noise: bool = True  # whether sites share one noise under masks; else each adds all of it


@dataclass(frozen=True)
class Question(Shared):
    """What is asked after a fit. Sites that are elsewhere get it with the terms, and decide whether they answer."""

    kind: str  # a name in `QUESTIONS`, which the policy of a site lists
    model: str  # digest of the model that places rows in clusters: `FittedModel.digest`
    outcomes: dict[str, str] = field(default_factory=dict)  # the column of each outcome: "time", "event" or "value"
    other: str = ""  # digest of the model whose clusters are compared; "" where there is none


@dataclass(frozen=True)
class QuestionKind:
    """What a question after a fit reads at a site, beside the rows that were clustered.

    Parameters
    ----------
    held_out : bool
        Views that clustering did not see.
    outcomes : bool
        Columns that the question names.
    other : bool
        The clusters of a second model.
    common_centers : bool
        Rows are placed by the centres of the global model, in the units and the frame of their site. Otherwise the
        site's own model places them, where it has one.
    """

    held_out: bool = False
    outcomes: bool = False
    other: bool = False
    common_centers: bool = False


QUESTIONS = {
    "profile": QuestionKind(held_out=True),
    "outcomes": QuestionKind(outcomes=True),
    "stability": QuestionKind(common_centers=True),
    "compare": QuestionKind(other=True),
    "limits": QuestionKind(common_centers=True),
}
"""All questions after a fit, by the names that policies and commands have for them."""


@dataclass(frozen=True)
class Schema(Shared):
    """The views of the federation, in the order of the model."""

    names: tuple[str, ...]
    codes: tuple[ColumnsCode, ...]

    def columns_of(self, views: Views) -> tuple[Columns, ...]:
        """Return the columns of a site's views; a tensor view that the site lacks has the shape of its rows."""
        known = zip(views.columns, self.codes, strict=True)
        return tuple(code if columns is None and isinstance(code, tuple) else columns for columns, code in known)

    def check_columns(self, views: Views, site: str) -> None:
        """Refuse views of a site, in the order of the model, whose columns or shapes differ from those of the model."""
        for name, columns, code in zip(self.names, views.columns, self.codes, strict=True):
            if columns is None or code is None or columns_code(columns) == code:
                continue
            if is_tensor(columns) and isinstance(code, tuple):
                raise MessageError(f"view {name!r} has rows of shape {columns} here, {code} in the model", site)
            raise MessageError(f"view {name!r} has other columns here than in the model, or in another order", site)


@dataclass(frozen=True, eq=False)
class Folds(Shared):
    """How sites fold the rows of very wide views, by name. All other entries describe folded rows."""

    folds: dict[str, Fold]


def find_folds(board: Board) -> dict[str, Fold]:
    """Return the folds of very wide views by name; empty if no view is folded."""
    return next((entry.folds for entry in board.find(Folds)), {})


@dataclass(frozen=True, eq=False)
class References(Shared):
    """How the features of each view are shifted and scaled to model units."""

    references: tuple[Reference, ...]

    def __post_init__(self) -> None:
        if not are_possible(self.widths):  # a site makes room for every feature, also of views that it lacks
            raise MessageError(WIDE)

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(reference.width for reference in self.references)


@dataclass(frozen=True, eq=False)
class Population(Entry):
    """What the server knows of the pooled rows of the sites that described themselves."""

    n_sites: int
    columns: tuple[Columns, ...]
    moments: tuple[Moments, ...]  # of each view
    rows: float  # 0 where their number is not known


@dataclass(frozen=True)
class RowCounts(Entry):
    """The number of rows that each site has reported, to check sums over several sites against."""

    rows: dict[str, float]


def check_row_count(board: Board, rows: float, site: str) -> None:
    """Refuse a sum over several sites that has not the rows that they reported: a site is missing, or counted twice."""
    if isinstance(site, Several):
        for counts in board.find(RowCounts):
            expected = sum([counts.rows.get(name, 0.0) for name in site.sites])
            if rows != expected:
                raise MessageError(f"a sum over {rows:.6g} rows of sites that have {expected:.6g}", site)


@dataclass(frozen=True)
class Deviations(Entry):
    """Sites that deviate from the others by more than sites usually differ, such as by a wrong unit.

    Parameters
    ----------
    found : tuple of Deviation
        What is off.
    excluded : dict of str to str
        Sites that are not asked again, and why.
    """

    found: tuple[Deviation, ...]
    excluded: dict[str, str]


@dataclass(frozen=True)
class Members(Entry):
    """The sites that described themselves in a run with noise or masks. They are the partners for masks."""

    sites: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Space(Entry):
    """The space in which rows are clustered.

    `reach` says how far from the grand mean a value may be, per feature of each view: answers beyond it are refused.
    """

    reach: tuple[FloatArray, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(map(len, self.reach))


@dataclass(frozen=True, eq=False)
class Minimisation(Entry):
    """The state of the rounds. Parameters are in the coordinates of the basis, if there is one."""

    progress: Progress
    answered: str = ""  # digest of the names of the sites that answered the last round

    @property
    def parameters(self) -> Parameters:
        """Parameters of the next round."""
        return self.progress.parameters


@dataclass(frozen=True, eq=False)
class Basis(Shared):
    """A few directions per view, sent once. Centres and sums are then sent as coordinates along them."""

    directions: tuple[Table, ...]  # of shape (q_h, d_h); rows were orthonormal before they were rounded

    @cached_property
    def columns(self) -> tuple[FloatArray, ...]:
        """Orthonormal columns E_h, of shape (d_h, q_h); each points the way of its row.

        The reader of a basis makes it orthonormal itself, so that it need not trust the sender. Directions that
        are not numbers, of no length or much too long, or that depend on each other are refused.
        """
        found = []
        for table in self.directions:
            if table.values.ndim != 2 or table.values.shape[0] > table.values.shape[1]:
                raise MessageError(UNSOUND_BASIS)
            rows = table.read()
            if not np.all(np.abs(rows) <= MOST_LENGTH):
                raise MessageError(UNSOUND_BASIS)
            columns, triangle = np.linalg.qr(rows.T)
            lengths = np.diag(triangle)
            if not np.all((np.abs(lengths) >= 1 / MOST_LENGTH) & (np.abs(lengths) <= MOST_LENGTH)):
                raise MessageError(UNSOUND_BASIS)
            found.append(np.asarray(columns * np.where(lengths < 0, -1.0, 1.0)))
        return tuple(found)

    @cached_property
    def block(self) -> FloatArray:
        """The columns of all views as one block-diagonal matrix, of shape (features, directions)."""
        return np.asarray(block_diag(*self.columns))

    def columns_of(self, widths: Sequence[int]) -> tuple[FloatArray, ...]:
        """Return the columns; refuse a basis that is not of views of these widths."""
        if [table.values.shape[-1] for table in self.directions] != list(widths):
            raise MessageError(UNSOUND_BASIS)
        return self.columns


@dataclass(frozen=True, eq=False)
class LeadingSpans(Entry):
    """The directions in which the pooled rows vary most, found from sums. The basis of the rounds is made from them."""

    spans: tuple[FloatArray, ...]  # per view, orthonormal rows of shape (k_h, d_h)


@dataclass(frozen=True, eq=False)
class Broadcast:
    """Parameters as they are sent: centres of all views side by side, in features or in coordinates of the basis."""

    centers: Table
    view_weights: FloatArray
    view_shares: FloatArray
    heat_time: float
    fuzzifier: float
    view_exponent: float
    # clusters that are gone; the others keep their numbers
    gone: tuple[int, ...] = field(default=(), kw_only=True)

    @classmethod
    def of(cls, parameters: Parameters, precision: str = "double") -> Broadcast:
        """Round parameters to the precision in which they are sent."""
        return cls(
            Table.of(np.hstack(parameters.centers), precision),
            parameters.view_weights,
            parameters.view_shares,
            parameters.heat_time,
            parameters.fuzzifier,
            parameters.view_exponent,
            gone=parameters.gone,
        )

    def parameters(self, widths: Sequence[int], basis: Basis | None = None) -> Parameters:
        """Return the parameters in features; `widths` are the features per view."""
        inner_widths = widths if basis is None else [part.shape[1] for part in basis.columns]
        views = (len(inner_widths),)
        if self.view_weights.shape != views or self.view_shares.shape != views:
            raise MessageError("parameters with more or fewer view weights than there are views")
        inner = Parameters(
            split_joint(self.centers.read(), inner_widths),
            self.view_weights,
            self.heat_time,
            self.fuzzifier,
            self.view_exponent,
            self.view_shares,
        ).without(self.gone)
        return inner if basis is None else inner.from_basis(basis.columns)


@dataclass(frozen=True, eq=False)
class FinalModel(Shared):
    """The parameters at the end of the rounds."""

    model: Broadcast


@dataclass(frozen=True, eq=False)
class FinalParameters(Entry):
    """The final parameters at the server, in features, with the low-rank form if centres have one."""

    parameters: Parameters


@dataclass(frozen=True, eq=False)
class Result(Entry):
    """The objective at the final parameters, and the number of rows."""

    objective: float
    rows: float


@dataclass(frozen=True, eq=False)
class Remembered(Entry):
    """Sums over the rows that the final model keeps for updates."""

    memory: Memory


@dataclass(frozen=True, eq=False)
class OwnPast(Entry):
    """What a site keeps of its rows, by cluster, for later runs. It never leaves the site."""

    past: SitePast


@dataclass(frozen=True, eq=False)
class EarlierPast(Entry):
    """What a site kept in the run before, which may be of another model. The first exchange of an update decides."""

    past: SitePast


@dataclass(frozen=True, eq=False)
class Summary(Shared):
    """Sizes of the clusters and spread of their rows, over all sites. Own models are compared with it."""

    summary: ClusterSummary


def fitted_model(board: Board, parameters: Parameters, columns: tuple[Columns, ...]) -> FittedModel:
    """Build the common model of all sites from the entries of the board."""
    references = board.get(References).references
    model = FittedModel(parameters, references, board.get(Schema).names, columns)
    for entry in board.find(RowEntry):
        model = entry.wrap(model, board)
    return model
