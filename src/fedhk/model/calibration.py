"""Sites that measure differently: their own offset and spread, taken out as far as that makes clusters clearer.

Taking out a site's own mean and spread helps greatly where sites differ by sensor or person, and hurts where they
differ by which clusters they have. Which of the two it is shows in the objective: in units in which all rows together
have spread 1, the share that clusters leave unexplained falls in the first case and rises in the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.model.candidates import Candidates, candidate_rows, candidate_starts
from fedhk.model.joint import split_joint, view_sums
from fedhk.model.loop import improve, minimise
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.personal_objective import personal_objective
from fedhk.model.rows import Rows
from fedhk.model.seeding import take
from fedhk.model.settings import Settings

# Shares of a site's own mean and spread that are tried. Half of the spread: it also holds which clusters a site has.
SHARES = ((0.0, 0.0), (1.0, 0.5))

# Rows whose weight the common mean and spread have against a site's own.
PRIOR_ROWS = 5.0

# A site's spread is believed within these factors of the common one.
LEAST_RATIO, MOST_RATIO = 0.2, 5.0

# Calibration must lower the objective by this share, or it is not worth its risk.
LEAST_GAIN = 0.02

# Clusters that tell the sites apart to this share of what is possible are sites, not clusters.
MOST_TOLD = 0.7

# Offsets that sites really have take spread away; more spread than before means that they work against the clusters.
MOST_GROWTH = 1.01

# Iterations of offsets and centres in turn.
OFFSET_PASSES, FINAL_PASSES, FINAL_TOL = 10, 50, 1e-4


@dataclass(frozen=True)
class Calibration:
    """How rows of all sites are brought to one frame.

    Parameters
    ----------
    shift, spread : float
        Shares of a site's own mean and spread that are taken out, from 0 to 1.
    factors : tuple of float
        What model units are then divided by, per view, so that all rows together have spread 1 again.
    offsets : bool
        Whether each site also keeps an offset of its own from the clusters' centres during the rounds, and a model of
        its own at the end.
    """

    shift: float
    spread: float
    factors: tuple[float, ...]
    offsets: bool

    def in_units(self, references: Sequence[Reference]) -> tuple[Reference, ...]:
        """Common references in the units of the calibrated rows, in which the centres are."""
        return tuple(reference.rescaled(factor) for reference, factor in zip(references, self.factors, strict=True))

    def before(self, references: Sequence[Reference]) -> tuple[Reference, ...]:
        """What `in_units` was given."""
        return tuple(reference.rescaled(1 / factor) for reference, factor in zip(references, self.factors, strict=True))

    def to_list(self) -> list[Any]:
        """For messages."""
        return [self.shift, self.spread, list(self.factors), self.offsets]

    @classmethod
    def from_list(cls, values: list[Any]) -> Calibration:
        """What `to_list` made."""
        shift, spread, factors, offsets = values
        return cls(float(shift), float(spread), tuple(float(factor) for factor in factors), bool(offsets))


def site_frame(moments: Sequence[Moments], references: Sequence[Reference]) -> FloatArray:
    """A site's own mean, and its spread as a multiple of the common one, per feature, in model units; shape (2, d)."""
    parts = []
    for view, reference in zip(moments, references, strict=True):
        seen = (view.weight > 0) & np.isfinite(reference.scale)
        mean = np.where(seen, reference.to_model(view.mean), 0.0)
        common = 1.0 / np.sqrt(max(int(np.isfinite(reference.scale).sum()), 1))
        ratio = np.sqrt(view.variance) / reference.scale / common
        believed = np.clip(ratio, LEAST_RATIO, MOST_RATIO)
        parts.append(np.stack([mean, np.where(seen & (ratio > 0), believed, 1.0)]))
    return np.hstack(parts)


def own_share(n_rows: float) -> float:
    """How much a site of so many rows is believed against the common mean and spread."""
    return n_rows / (n_rows + PRIOR_ROWS)


def calibrated(
    references: Sequence[Reference], frame: FloatArray, n_rows: float, calibration: Calibration
) -> tuple[Reference, ...]:
    """A site's own references: the common ones, with a share of its own mean and spread."""
    shift, divide = _taken(frame, n_rows, calibration.shift, calibration.spread)
    result, start = [], 0
    for reference, factor in zip(references, calibration.factors, strict=True):
        own = slice(start, start + reference.width)
        start = own.stop
        result.append(reference.moved(shift[own], divide[own]).rescaled(factor))
    return tuple(result)


def _taken(frame: FloatArray, n_rows: float, shift: float, spread: float) -> tuple[FloatArray, FloatArray]:
    """What is subtracted from a site's rows, and what they are divided by, in model units."""
    own = own_share(n_rows)
    return shift * own * frame[0], frame[1] ** (spread * own)


# ------------------------------------------------------------------------------------------------------ the choice


@dataclass(frozen=True)
class Frames:
    """The candidates of all sites with each site's own mean and spread.

    Parameters
    ----------
    candidates : tuple of Candidates
        Per site.
    frames : tuple of array of shape (2, d)
        Per site, as `site_frame` gives them.
    references : tuple of Reference
        The common ones.
    names : tuple of str
        Names of the views.
    """

    candidates: tuple[Candidates, ...]
    frames: tuple[FloatArray, ...]
    references: tuple[Reference, ...]
    names: tuple[str, ...]

    @property
    def site(self) -> IntArray:
        """Which site each candidate is of."""
        return np.repeat(np.arange(len(self.candidates)), [len(found.sizes) for found in self.candidates])


def choose(
    known: Frames, settings: Settings, wanted: tuple[float, float] | None, seed: int, workers: int
) -> tuple[Calibration, Parameters, Rows]:
    """The calibration under which clusters explain most, the start that goes with it, and the candidates in its frame.

    Parameters
    ----------
    known : Frames
        What sites sent.
    settings : Settings
        The model.
    wanted : (float, float) or None
        Shares of mean and spread that were given; None chooses.
    seed : int
        Seed of the starts.
    workers : int
        Threads.

    Notes
    -----
    Where sites differ by more than clusters do, clusters become sites: they explain much and mean nothing. Such a
    solution is recognised by how well its clusters tell the sites apart, and left out.
    """
    options: tuple[tuple[float, float], ...] = SHARES if wanted is None else (wanted,)
    if settings.scaling != "standard":
        options = tuple(dict.fromkeys((shift, 0.0) for shift, _ in options))
    tried = [_fit(known, settings, option, seed, workers) for option in options]
    kept = [found for found in tried if found.told < MOST_TOLD] or [tried[-1]]
    best = min(kept, key=lambda found: found.objective)
    if best.objective > (1 - LEAST_GAIN) * kept[0].objective:
        best = kept[0]
    return _with_offsets(known, best, workers)


@dataclass(frozen=True)
class _Option:
    """One way to calibrate, and what came of it on the candidates."""

    shares: tuple[float, float]
    factors: FloatArray
    rows: Rows
    parameters: Parameters
    objective: float
    told: float


def _fit(known: Frames, settings: Settings, shares: tuple[float, float], seed: int, workers: int) -> _Option:
    points, spreads, widths = [], [], [reference.width for reference in known.references]
    for found, frame in zip(known.candidates, known.frames, strict=True):
        shift, divide = _taken(frame, float(found.sizes.sum()), *shares)
        points.append((found.points - shift) / divide)
        # how much of a group's spread is left: that of the site's rows as a whole
        before, after = view_sums(np.stack([frame[1] ** 2, (frame[1] / divide) ** 2]), widths)
        spreads.append(found.spreads * after / before)
    rows, factors = _rows(known, points, spreads)
    n_clusters = settings.n_clusters
    starts = candidate_starts(settings.n_init, len(SHARES) * rows.n_rows, sum(rows.widths), n_clusters)
    judge = partial(personal_objective, _by_site(rows, known.site)) if any(shares) else None
    plain = replace(settings, decomposition=None)
    start = plain.start(rows, np.random.RandomState(seed), workers, n_init=starts, judge=judge)
    with Passes(rows, n_clusters, workers) as scan:
        progress, _ = minimise(scan.statistics, start, learn_weights=False, max_iter=FINAL_PASSES, tol=FINAL_TOL)
        labels = scan.assign(progress.parameters)[1]
    weight = np.asarray(rows.sample_weight)
    objective = progress.objective / float(weight.sum())
    told = _told(known.site, labels, weight, len(known.candidates), n_clusters)
    return _Option(shares, factors, rows, progress.parameters, objective, told)


def _rows(known: Frames, points: Sequence[FloatArray], spreads: Sequence[FloatArray]) -> tuple[Rows, FloatArray]:
    """Candidates as rows in units in which each view has spread 1, and what they were divided by."""
    widths = [reference.width for reference in known.references]
    sizes = np.concatenate([found.sizes for found in known.candidates])
    joint, within = np.vstack(points), np.vstack(spreads)
    squares = np.nan_to_num(np.square(joint), nan=0.0)
    per_view = view_sums(squares, widths) + within
    factors = np.sqrt(np.maximum(sizes @ per_view / sizes.sum(), 1e-300))
    whole = Candidates(joint / np.repeat(factors, widths), sizes, within / factors**2)
    return candidate_rows([whole], known.references, known.names), factors


def _told(site: IntArray, labels: IntArray, weight: FloatArray, n_sites: int, n_clusters: int) -> float:
    """How well clusters tell the sites apart: mutual information as a share of the largest possible."""
    table = np.zeros((n_sites, n_clusters))
    np.add.at(table, (site, labels), weight)
    table = table / table.sum()
    outer = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    held = table > 0
    most = np.log(min(n_sites, n_clusters))
    return float(np.sum(table[held] * np.log(table[held] / outer[held])) / most) if most > 0 else 0.0


def _with_offsets(known: Frames, option: _Option, workers: int) -> tuple[Calibration, Parameters, Rows]:
    """Offsets and centres in turn on the candidates; kept where clusters then explain more of what is left."""
    parameters, site, weight = option.parameters, known.site, np.asarray(option.rows.sample_weight)
    joint: FloatArray = np.hstack([np.asarray(table) for table in option.rows.views.tables])
    offsets = np.zeros((len(known.candidates), joint.shape[1]))
    rows = option.rows
    for _ in range(OFFSET_PASSES):
        with Passes(rows, parameters.n_clusters, workers) as scan:
            parameters = improve(parameters, scan.statistics(parameters), learn_weights=False)
            memberships = scan.assign(parameters)[0]
        left = np.nan_to_num(joint - memberships @ np.hstack(parameters.centers), nan=0.0) * weight[:, None]
        sums = np.zeros_like(offsets)
        np.add.at(sums, site, left)
        total = np.bincount(site, weight, minlength=len(offsets))
        offsets = sums / (total + PRIOR_ROWS)[:, None]
        rows = _moved(rows, joint - offsets[site])
    inner, factors = _rows(known, [joint - offsets[site]], [np.asarray(option.rows.spread)])
    scaled = tuple(values / factor for values, factor in zip(parameters.centers, factors, strict=True))
    start = replace(parameters, centers=scaled)
    with Passes(inner, parameters.n_clusters, workers) as scan:
        progress, _ = minimise(scan.statistics, start, learn_weights=False, max_iter=FINAL_PASSES, tol=FINAL_TOL)
    clearer = progress.objective / float(weight.sum()) < option.objective
    if not clearer or float(np.prod(factors)) > MOST_GROWTH:
        calibration = Calibration(*option.shares, tuple(option.factors.tolist()), any(option.shares))
        return calibration, option.parameters, option.rows
    both = tuple((option.factors * factors).tolist())
    return Calibration(*option.shares, both, True), progress.parameters, inner


def _moved(rows: Rows, joint: FloatArray) -> Rows:
    tables = tuple(np.ascontiguousarray(part) for part in split_joint(joint, rows.widths))
    return replace(rows, views=replace(rows.views, tables=tables))


def _by_site(rows: Rows, site: IntArray) -> list[Rows]:
    return [take(rows, np.flatnonzero(site == number)) for number in range(int(site.max(initial=-1)) + 1)]
