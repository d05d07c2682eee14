"""Which calibration the candidates ask for, and the start that goes with it.

Where sites differ by sensor or person, clusters explain more once a site's own mean and spread are taken out; where
they differ by which clusters they have, less. Both are compared in units in which all rows together have spread 1.
Where sites differ by both, neither is right: a site's mean is its offset and its mix of clusters. Offsets are then
found together with the centres, given the clusters that the calibrated rows show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.model.descent import improve, minimise
from fedhk.model.joint import split_joint, take, view_sums
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.personal.calibration import PRIOR_ROWS, Calibration, taken
from fedhk.personal.objective import personal_objective
from fedhk.starts.candidates import Candidates, candidate_rows, candidate_starts
from fedhk.starts.settings import Settings

# Shares of a site's own mean and spread that are tried. Half of the spread: it also holds which clusters a site has.
SHARES = ((0.0, 0.0), (1.0, 0.5))

# Calibration must lower the objective by this share, or it is not worth its risk.
LEAST_GAIN = 0.02

# Clusters that tell the sites apart to this share of what is possible are sites, not clusters.
MOST_TOLD = 0.7

# Offsets that sites really have take spread away; more spread than before means that they work against the clusters.
MOST_GROWTH = 1.01

# Offsets found together with the centres must hold this share of the variance, or sites differ by their clusters.
LEAST_OFFSETS = 0.1

# Iterations of offsets and centres in turn.
OFFSET_PASSES, FINAL_PASSES, FINAL_TOL, TWO_WAY_PASSES = 10, 50, 1e-4, 30


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

    @classmethod
    def of(
        cls, answers: Sequence[tuple[Candidates, Any]], references: tuple[Reference, ...], names: tuple[str, ...]
    ) -> Self:
        """From the candidates and the own mean and spread of each site; sites that have no candidate are left out."""
        held = [(found, np.asarray(frame)) for found, frame in answers if len(found.sizes)]
        return cls(tuple(found for found, _ in held), tuple(frame for _, frame in held), references, names)

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
    tried = fitted_options(known, settings, SHARES if wanted is None else (wanted,), seed, workers)
    kept = _meaningful(tried)
    found = _with_offsets(known, _best(kept), workers)
    if len(tried) > 1:
        common = replace(tried[0], objective=kept[0].objective)
        together = _with_offsets(known, common, workers, clusters=tried[-1])
        found = min(found, together, key=lambda frame: frame.objective)
    return found.calibration, found.parameters, found.rows


@dataclass(frozen=True)
class Option:
    """One way to calibrate, and what came of it on the candidates.

    Parameters
    ----------
    shares : (float, float)
        Of the sites' own mean and spread that are taken out.
    factors : array of shape (s,)
        What units were divided by.
    rows : Rows
        The candidates in this frame.
    parameters : Parameters
        The best centres.
    objective : float
        What they leave unexplained.
    told : float
        How well clusters tell the sites apart.
    """

    shares: tuple[float, float]
    factors: FloatArray
    rows: Rows
    parameters: Parameters
    objective: float
    told: float


@dataclass(frozen=True)
class _Frame:
    """A calibration, the start in its frame, the candidates in it, and what is left unexplained."""

    calibration: Calibration
    parameters: Parameters
    rows: Rows
    objective: float


def fitted_options(
    known: Frames, settings: Settings, options: tuple[tuple[float, float], ...], seed: int, workers: int
) -> list[Option]:
    """What comes of each pair of shares; rows of length 1 and other given units keep their spread."""
    if settings.scaling != "standard":
        options = tuple(dict.fromkeys((shift, 0.0) for shift, _ in options))
    return [_fit(known, settings, option, seed, workers) for option in options]


def _meaningful(tried: list[Option]) -> list[Option]:
    """Options whose clusters are not the sites; the last one if all are."""
    return [found for found in tried if found.told < MOST_TOLD] or [tried[-1]]


def _best(kept: list[Option]) -> Option:
    best = min(kept, key=lambda found: found.objective)
    return kept[0] if best.objective > (1 - LEAST_GAIN) * kept[0].objective else best


def _fit(known: Frames, settings: Settings, shares: tuple[float, float], seed: int, workers: int) -> Option:
    rows, factors = in_frame(known, shares)
    n_clusters = settings.n_clusters
    starts = candidate_starts(settings.n_init, len(SHARES) * rows.n_rows, sum(rows.widths), n_clusters)
    judge = partial(personal_objective, _by_site(rows, known.site)) if any(shares) else None
    plain = replace(settings, decomposition=None)
    start = plain.start(rows, np.random.RandomState(seed), workers, n_init=starts, judge=judge)
    with Passes(rows, n_clusters, workers) as scan:
        progress, _ = minimise(scan.statistics, start, learn_weights=False, max_iter=FINAL_PASSES, tol=FINAL_TOL)
        labels = scan.assign(progress.parameters)[1]
        objective = _unexplained(scan, progress.parameters, rows)
    told = _told(known.site, labels, np.asarray(rows.sample_weight), len(known.candidates), n_clusters)
    return Option(shares, factors, rows, progress.parameters, objective, told)


def in_frame(known: Frames, shares: tuple[float, float]) -> tuple[Rows, FloatArray]:
    """Candidates without such shares of their sites' means and spreads, and what units were divided by."""
    points, spreads, widths = [], [], [reference.width for reference in known.references]
    for found, frame in zip(known.candidates, known.frames, strict=True):
        shift, divide = taken(frame, float(found.sizes.sum()), *shares)
        points.append((found.points - shift) / divide)
        # how much of a group's spread is left: that of the site's rows as a whole
        before, after = view_sums(np.stack([frame[1] ** 2, (frame[1] / divide) ** 2]), widths)
        spreads.append(found.spreads * after / before)
    return _rows(known, points, spreads)


def _unexplained(scan: Passes, parameters: Parameters, rows: Rows) -> float:
    """The share of a row that clusters leave unexplained, mean over views: whatever weights the views have."""
    return float(scan.statistics(parameters).costs.mean() / np.asarray(rows.sample_weight).sum())


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
    margins = [table.sum(axis=axis) for axis in (0, 1)]
    most = min(_entropy(margin) for margin in margins)
    return (sum(_entropy(margin) for margin in margins) - _entropy(table)) / most if most > 0 else 0.0


def _entropy(shares: FloatArray) -> float:
    held = shares[shares > 0]
    return float(-np.sum(held * np.log(held)))


def _with_offsets(known: Frames, option: Option, workers: int, clusters: Option | None = None) -> _Frame:
    """Offsets and centres in turn on the candidates; kept where clusters then explain more of what is left.

    Parameters
    ----------
    known : Frames
        What sites sent.
    option : Option
        The frame, and the centres to begin with.
    workers : int
        Threads.
    clusters : Option, optional
        Begin with the clusters of another frame instead; the offsets must then hold part of the variance.
    """
    parameters, site, rows = option.parameters, known.site, option.rows
    weight = np.asarray(rows.sample_weight)
    joint: FloatArray = np.hstack([np.asarray(table) for table in rows.views.tables])
    offsets: FloatArray = np.zeros((len(known.candidates), joint.shape[1]))
    if clusters is not None:
        parameters, offsets = _two_way(known, joint, parameters, clusters, workers)
        rows = _moved(rows, joint - offsets[site])
    for _ in range(OFFSET_PASSES):
        with Passes(rows, parameters.n_clusters, workers) as scan:
            parameters = improve(parameters, scan.statistics(parameters), learn_weights=False)
            memberships = scan.assign(parameters)[0]
        offsets = _site_means(joint - memberships @ np.hstack(parameters.centers), weight, site, len(offsets))
        rows = _moved(rows, joint - offsets[site])
    inner, factors = _rows(known, [joint - offsets[site]], [np.asarray(option.rows.spread)])
    scaled = tuple(values / factor for values, factor in zip(parameters.centers, factors, strict=True))
    start = replace(parameters, centers=scaled)
    with Passes(inner, parameters.n_clusters, workers) as scan:
        progress, _ = minimise(scan.statistics, start, learn_weights=False, max_iter=FINAL_PASSES, tol=FINAL_TOL)
        reached = _unexplained(scan, progress.parameters, inner)
    held = float(np.prod(factors)) <= MOST_GROWTH if clusters is None else takes_much(factors)
    if reached >= option.objective or not held:
        calibration = Calibration(*option.shares, tuple(option.factors.tolist()), any(option.shares))
        return _Frame(calibration, option.parameters, option.rows, option.objective)
    both = tuple((option.factors * factors).tolist())
    return _Frame(Calibration(*option.shares, both, True), progress.parameters, inner, reached)


def takes_much(factors: Sequence[float] | FloatArray) -> bool:
    """Whether offsets, after which units were divided by `factors`, hold so much that sites surely differ by them."""
    return bool(np.prod(factors) <= (1 - LEAST_OFFSETS) ** (len(factors) / 2))


def _two_way(
    known: Frames, joint: FloatArray, parameters: Parameters, clusters: Option, workers: int
) -> tuple[Parameters, FloatArray]:
    """Centres and offsets together, given the clusters of another frame: a row is its centre and its site's offset."""
    with Passes(clusters.rows, parameters.n_clusters, workers) as scan:
        memberships = scan.assign(clusters.parameters)[0]
    site, weight, seen = known.site, np.asarray(clusters.rows.sample_weight), ~np.isnan(joint)
    weighted = memberships * weight[:, None]
    offsets: FloatArray = np.zeros((len(known.candidates), joint.shape[1]))
    centers = np.zeros((parameters.n_clusters, joint.shape[1]))
    for _ in range(TWO_WAY_PASSES):
        centers = weighted.T @ np.nan_to_num(joint - offsets[site], nan=0.0) / np.maximum(weighted.T @ seen, 1e-300)
        offsets = _site_means(joint - memberships @ centers, weight, site, len(offsets))
    return replace(parameters, centers=tuple(split_joint(centers, clusters.rows.widths))), offsets


def _site_means(left: FloatArray, weight: FloatArray, site: IntArray, n_sites: int) -> FloatArray:
    """The mean of what is left at each site, with a few rows' weight for none."""
    sums = np.zeros((n_sites, left.shape[1]))
    np.add.at(sums, site, np.nan_to_num(left, nan=0.0) * weight[:, None])
    return sums / (np.bincount(site, weight, minlength=n_sites) + PRIOR_ROWS)[:, None]


def _moved(rows: Rows, joint: FloatArray) -> Rows:
    tables = tuple(np.ascontiguousarray(part) for part in split_joint(joint, rows.widths))
    return replace(rows, views=replace(rows.views, tables=tables))


def _by_site(rows: Rows, site: IntArray) -> list[Rows]:
    return [take(rows, np.flatnonzero(site == number)) for number in range(int(site.max(initial=-1)) + 1)]
