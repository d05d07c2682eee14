"""How a run goes, and all that the server knows between rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns
from fedhk.errors import MessageError
from fedhk.federation.basis import expanded, orthonormal
from fedhk.federation.plausible import ROUNDING, reach
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.descent import Progress
from fedhk.model.parameters import Parameters
from fedhk.personal.calibration import Calibration
from fedhk.starts.settings import Settings

if TYPE_CHECKING:
    from fedhk.embedding.diffusion import DiffusionSettings
    from fedhk.federation.diffusion.state import Stage
    from fedhk.federation.sealed.state import Sealed
    from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
    from fedhk.tensors.low_rank import LowRank

# Phases in which sites are told what they are told once.
HELD = ("diffuse", "round", "finish")


@dataclass(frozen=True)
class Plan:
    """How a run goes, apart from the model: the same for every engine.

    Parameters
    ----------
    settings : Settings
        The model.
    protocol : {"statistics", "centers", "cores", "factors", "auto"}
        What a round sends. "auto" is "cores" where that saves bytes, else "statistics".
    local_passes : int
        Passes at a site before it answers, for "centers" and "factors".
    client_weights : {"mass", "rows", "quality"}
        How centres of sites are averaged, for "centers" and "factors".
    quality_temperature : float
        tau of `eqn:client_weights`.
    max_rounds, tol : int, float
        When to stop.
    seed : int
        Seed of everything that is drawn.
    precision : {"double", "single", "half", "byte", "auto"}
        What numbers are rounded to on the wire. "auto" is "byte" with the protocol "cores", else "double".
    refresh_every : int
        Rounds after which "cores" makes a new basis; 0 is never.
    aggregation : {"centers", "factors"}
        What the server averages, for "factors".
    blend : float
        Share of a site's factors of the round before in its start, for "factors".
    calibration : (float, float), "auto" or None
        Shares of each site's own mean and spread that are taken out of its rows; None is none, and no offsets either.
    cluster_summary : bool
        Whether sites say at the end how large clusters are and how far rows spread in them.
    privacy : DifferentialPrivacy or None
        The budget of the run; sites add noise to all that they send.
    secure : SecureSummation or None
        Sums of which the server sees only the total.
    aggregator : {"sum", "robust", "median", "trimmed"}
        How the statistics of sites are brought together, where some of them may lie.
    diffusion : DiffusionSettings or None
        How rows are embedded before they are clustered; None clusters them as they are.
    """

    settings: Settings
    protocol: str
    local_passes: int
    client_weights: str
    quality_temperature: float
    max_rounds: int
    tol: float
    seed: int
    precision: str = "double"
    refresh_every: int = 0
    aggregation: str = "centers"
    blend: float = 0.0
    calibration: str | tuple[float, float] | None = None
    cluster_summary: bool = False
    privacy: DifferentialPrivacy | None = None
    secure: SecureSummation | None = None
    aggregator: str = "sum"
    diffusion: DiffusionSettings | None = None

    @property
    def is_sealed(self) -> bool:
        """Whether the server sees nothing but sums over sites."""
        return self.privacy is not None or self.secure is not None

    @property
    def given_calibration(self) -> tuple[float, float] | None:
        """Shares of mean and spread that were given; None where they are to be chosen."""
        return None if isinstance(self.calibration, str) else self.calibration


def digest_of(sites: Sequence[str]) -> str:
    """Who answered: `ServerState.answered`."""
    return sha256("\n".join(sites).encode()).hexdigest()


@dataclass(frozen=True)
class ServerState:
    """All that the server knows between rounds.

    Parameters
    ----------
    phase : str
        What it asks next.
    exchange : int
        How many exchanges there were; every message carries it.
    n_sites : int
        Sites that described themselves.
    names, columns, moments, references :
        The views, once described.
    protocol, precision : str
        Those of the plan, resolved once the views are known.
    informed, holders : frozenset of str
        Sites that have the references, and those that have what the protocol sends once.
    directions : tuple of array of shape (q_h, d_h)
        What sites are sent of the basis, as they read it; empty where centres are in features.
    calibration : Calibration or None
        How sites bring their rows to one frame, once it is chosen.
    free_form : LowRank or None
        A form that constrains nothing, where the centres of `progress` go without it.
    answered : str
        Digest of the names of the sites that answered the last round.
    progress : Progress or None
        The minimisation, once there is a start.
    final_objective, rows : float
        The objective at the final parameters, and the rows it is of.
    cluster_summary : ClusterSummary or None
        How large clusters are and how far rows spread in them, where it was asked for.
    sealed : Sealed or None
        What a run with noise or masks keeps beside.
    stage : Stage or None
        The diffusion that embeds rows, once there are anchors.
    """

    phase: str = "describe"
    exchange: int = 0
    n_sites: int = 0
    names: tuple[str, ...] = ()
    columns: tuple[Columns, ...] = ()
    moments: tuple[Moments, ...] = ()
    references: tuple[Reference, ...] = ()
    protocol: str = "statistics"
    precision: str = "double"
    informed: frozenset[str] = field(default_factory=frozenset)
    holders: frozenset[str] = field(default_factory=frozenset)
    directions: tuple[FloatArray, ...] = ()
    calibration: Calibration | None = None
    free_form: LowRank | None = None
    answered: str = ""
    progress: Progress | None = None
    final_objective: float = float("nan")
    rows: float = 0.0
    cluster_summary: ClusterSummary | None = None
    sealed: Sealed | None = None
    stage: Stage | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view of the rows that sites have in mind: those that came in or, once embedded, those."""
        embedded = None if self.stage is None else self.stage.diffusion
        return tuple(reference.width for reference in self.references) if embedded is None else (embedded.n_components,)

    @cached_property
    def basis(self) -> tuple[FloatArray, ...]:
        """Orthonormal columns, of shape (d_h, q_h), in whose coordinates the centres of `progress` are."""
        return tuple(orthonormal(directions) for directions in self.directions)

    @property
    def going(self) -> Progress:
        """The minimisation; there must be a start."""
        if self.progress is None:
            raise MessageError(f"the server is in phase {self.phase!r} without parameters")
        return self.progress

    @property
    def inner(self) -> Parameters:
        """The parameters in the coordinates of the basis."""
        return self.going.parameters

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters in features."""
        parameters = expanded(self.inner, self.basis) if self.basis else self.inner
        if self.free_form is None:
            return parameters
        return replace(parameters, form=self.free_form.refitted(parameters.centers))

    @cached_property
    def reach(self) -> tuple[FloatArray, ...]:
        """How far from the grand mean a value may be, per feature of each view; as `widths`."""
        if self.stage is not None and self.stage.done:  # embedded rows have length 1
            return tuple(np.full(width, 1.0 + ROUNDING) for width in self.widths)
        return reach(self.references, self.moments)
