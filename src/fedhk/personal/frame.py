"""Choosing a calibration from the candidates that sites send, and the start that goes with it.

Where sites differ by sensor or person, clusters explain more once a site's own mean and spread are taken out; where
they differ by which clusters they have, less. Both are compared in units in which all rows together have spread 1.
Where sites differ by both, neither is right: a site's mean is its offset and its mix of clusters. Offsets are then
found together with the centres, given the clusters that the calibrated rows show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.model.descent import improve, minimise
from fedhk.model.forms import CenterForm
from fedhk.model.joint import split_joint, take, view_sums
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.personal.calibration import Calibration, scale_frame
from fedhk.personal.objective import personal_objective
from fedhk.personal.shares import PRIOR_ROWS
from fedhk.starts.candidates import Candidates, candidate_rows, candidate_starts
from fedhk.starts.settings import Settings

# Shares of a site's own mean and spread that are tried. Half of the spread: it also holds which clusters a site has.
SHARES = ((0.0, 0.0), (1.0, 0.5))

# Shares that are taken out of rows that are to be embedded. Embedded clusters need not be round, so that rows need not
# lie on each other; whole means and offsets that follow centres lost agreement there.
EMBEDDING_SHARES = (0.75, 0.75)

# Calibration must lower the objective by this share, or it is not worth its risk.
LEAST_GAIN = 0.02

# Clusters that tell the sites apart to this share of what is possible are sites, not clusters.
MOST_SITE_INFORMATION = 0.7

# Offsets that sites really have take spread away; more spread than before means that they work against the clusters.
MOST_GROWTH = 1.01

# Offsets found together with the centres must hold this share of the variance, or sites differ by their clusters.
LEAST_OFFSETS = 0.1

# Iterations: of offsets and centres in turn, of offsets and centres with fixed memberships, and of the last descent.
OFFSET_PASSES, TWO_WAY_PASSES, FINAL_PASSES = 10, 30, 50

# Fall of the objective at which the last descent ends: far below the gain that decides.
FINAL_TOL = 1e-4


def choose_calibration(
    candidates: Sequence[Candidates],
    frames: Sequence[FloatArray],
    references: tuple[Reference, ...],
    view_names: tuple[str, ...],
    settings: Settings,
    *,
    shares: tuple[float, float] | None,
    seed: int,
    workers: int = 1,
) -> tuple[Calibration, Parameters, Rows]:
    """Choose the calibration under which clusters explain most.

    Parameters
    ----------
    candidates : sequence of Candidates
        Per site; a site without any is left out.
    frames : sequence of array of shape (2, d)
        Per site, its own mean and spread as `measure_frame` gives them.
    references : tuple of Reference
        The common ones.
    view_names : tuple of str
        Names of the views.
    settings : Settings
        The model.
    shares : (float, float) or None
        Shares of mean and spread that were given; None chooses.
    seed : int
        Seed of the starts.
    workers : int
        Threads.

    Returns
    -------
    calibration : Calibration
        The choice.
    start : Parameters
        The start that goes with it; its centres are free.
    rows : Rows
        The candidates of all sites, calibrated.

    Notes
    -----
    Where sites differ by more than clusters do, clusters become sites: they explain much and mean nothing. Such a
    solution is recognised by how well its clusters tell the sites apart, and left out.
    """
    sites = _Sites.collect(candidates, frames, references, view_names)
    trials = _try_shares(sites, settings, SHARES if shares is None else (shares,), seed, workers)
    kept = [trial for trial in trials if trial.site_information < MOST_SITE_INFORMATION] or trials[-1:]
    best = min(kept, key=lambda trial: trial.objective)
    if best.objective > (1 - LEAST_GAIN) * kept[0].objective:
        best = kept[0]
    nothing: FloatArray = np.zeros((len(sites.candidates), sum(best.rows.widths)))
    found = _add_offsets(sites, best, best.parameters, nothing, accept=_take_spread_away, workers=workers)
    if len(trials) > 1:  # offsets given the clusters that calibrated rows show
        plain = replace(trials[0], objective=kept[0].objective)
        centers, offsets = _fit_two_way(sites, plain, trials[-1], workers)
        together = _add_offsets(sites, plain, centers, offsets, accept=hold_much, workers=workers)
        found = min(found, together, key=lambda trial: trial.objective)
    return found.calibration, found.parameters, found.rows


def choose_embedding_calibration(
    candidates: Sequence[Candidates],
    frames: Sequence[FloatArray],
    references: tuple[Reference, ...],
    view_names: tuple[str, ...],
    settings: Settings,
    *,
    shares: tuple[float, float] | None,
    seed: int,
    workers: int = 1,
) -> tuple[tuple[Calibration, ...], Rows]:
    """Choose how sites bring their rows to one space before they are embedded.

    Whether sites measure differently is decided by `choose_calibration`; what is then taken out is `EMBEDDING_SHARES`.

    Parameters
    ----------
    candidates, frames, references, view_names, settings, shares, seed, workers
        As in `choose_calibration`.

    Returns
    -------
    calibrations : tuple of Calibration
        The choice; () where sites measure alike.
    rows : Rows
        The candidates of all sites, calibrated.
    """
    sites = _Sites.collect(candidates, frames, references, view_names)
    if shares is None:
        inputs = (sites.candidates, sites.frames, references, view_names, settings)
        found, _, _ = choose_calibration(*inputs, shares=None, seed=seed, workers=workers)
        different = found.shift > 0 or found.spread > 0 or (found.offsets and hold_much(found.factors))
        shares = EMBEDDING_SHARES if different else (0.0, 0.0)
    shift, spread = shares
    if not settings.scaling.unit_variance:  # units are not those of a spread
        spread = 0.0
    if shift == spread == 0:
        return (), candidate_rows(sites.candidates, references, view_names)
    rows, factors = calibrate_candidates(sites, (shift, spread))
    return (Calibration(shift, spread, tuple(factors.tolist()), offsets=False),), rows


@dataclass(frozen=True)
class _Sites:
    """What sites with candidates sent, as `choose_calibration` takes it."""

    candidates: tuple[Candidates, ...]
    frames: tuple[FloatArray, ...]
    references: tuple[Reference, ...]
    view_names: tuple[str, ...]

    @classmethod
    def collect(
        cls,
        candidates: Sequence[Candidates],
        frames: Sequence[FloatArray],
        references: tuple[Reference, ...],
        view_names: tuple[str, ...],
    ) -> Self:
        """Put sites together, without those that have no candidate."""
        pairs = [pair for pair in zip(candidates, frames, strict=True) if len(pair[0].sizes)]
        return cls(tuple(c for c, _ in pairs), tuple(np.asarray(f) for _, f in pairs), references, view_names)

    @property
    def site(self) -> IntArray:
        """Which site each candidate is of."""
        return np.repeat(np.arange(len(self.candidates)), [len(found.sizes) for found in self.candidates])


@dataclass(frozen=True)
class _Trial:
    """One way to calibrate, and what came of it on the candidates.

    Parameters
    ----------
    calibration : Calibration
        The way.
    rows : Rows
        The candidates, calibrated.
    parameters : Parameters
        The best centres.
    objective : float
        What they leave unexplained.
    site_information : float
        How well clusters tell the sites apart.
    """

    calibration: Calibration
    rows: Rows
    parameters: Parameters
    objective: float
    site_information: float


def _try_shares(
    sites: _Sites, settings: Settings, options: tuple[tuple[float, float], ...], seed: int, workers: int
) -> list[_Trial]:
    """Fit the candidates with each pair of shares; rows of length 1 and other given units keep their spread."""
    if not settings.scaling.unit_variance:
        options = tuple(dict.fromkeys((shift, 0.0) for shift, _ in options))
    return [_fit_trial(sites, replace(settings, form=CenterForm()), option, seed, workers) for option in options]


def _fit_trial(sites: _Sites, settings: Settings, shares: tuple[float, float], seed: int, workers: int) -> _Trial:
    rows, factors = calibrate_candidates(sites, shares)
    n_clusters = settings.n_clusters
    starts = candidate_starts(settings.n_init, len(SHARES) * rows.n_rows, sum(rows.widths), n_clusters)
    judge = partial(personal_objective, _split_by_site(rows, sites.site)) if any(shares) else None
    start = settings.start(rows, np.random.RandomState(seed), workers, n_init=starts, judge=judge)
    parameters, objective, labels = _descend(rows, start, workers)
    table = np.zeros((len(sites.candidates), n_clusters))
    np.add.at(table, (sites.site, labels), np.asarray(rows.sample_weight))
    calibration = Calibration(*shares, tuple(factors.tolist()), offsets=any(shares))
    return _Trial(calibration, rows, parameters, objective, measure_information(table))


def _descend(rows: Rows, start: Parameters, workers: int) -> tuple[Parameters, float, IntArray]:
    """Minimise from a start; also the share of a row left unexplained, mean over views, and the labels."""
    with Passes(rows, start.n_clusters, workers) as scan:
        progress, _ = minimise(scan.statistics, start, learn_weights=False, max_iter=FINAL_PASSES, tol=FINAL_TOL)
        costs = scan.statistics(progress.parameters).costs
        labels = scan.assign(progress.parameters)[1]
    return progress.parameters, float(costs.mean() / np.asarray(rows.sample_weight).sum()), labels


def calibrate_candidates(sites: _Sites, shares: tuple[float, float]) -> tuple[Rows, FloatArray]:
    """Take such shares of their sites' means and spreads out of candidates; also what units were divided by."""
    points, spreads, widths = [], [], [reference.width for reference in sites.references]
    for found, frame in zip(sites.candidates, sites.frames, strict=True):
        shift, divide = scale_frame(frame, float(found.sizes.sum()), *shares)
        points.append((found.points - shift) / divide)
        # how much of a group's spread is left: that of the site's rows as a whole
        before, after = view_sums(np.stack([frame[1] ** 2, (frame[1] / divide) ** 2]), widths)
        spreads.append(found.spreads * after / before)
    return _normalise(sites, np.vstack(points), np.vstack(spreads))


def _normalise(sites: _Sites, points: FloatArray, spreads: FloatArray) -> tuple[Rows, FloatArray]:
    """Give candidates as rows in units in which each view has spread 1, and what they were divided by."""
    widths = [reference.width for reference in sites.references]
    sizes = np.concatenate([found.sizes for found in sites.candidates])
    per_view = view_sums(np.nan_to_num(np.square(points), nan=0.0), widths) + spreads
    factors = np.sqrt(np.maximum(sizes @ per_view / sizes.sum(), 1e-300))
    whole = Candidates(points / np.repeat(factors, widths), sizes, spreads / factors**2)
    return candidate_rows([whole], sites.references, sites.view_names), factors


def measure_information(table: FloatArray) -> float:
    """Measure how well clusters tell the sites apart: mutual information as a share of the largest possible.

    Parameters
    ----------
    table : array of shape (n_sites, n_clusters)
        Rows by site and cluster.
    """
    table = table / table.sum()
    margins = [_entropy(table.sum(axis=axis)) for axis in (0, 1)]
    return (sum(margins) - _entropy(table)) / min(margins) if min(margins) > 0 else 0.0


def _entropy(shares: FloatArray) -> float:
    filled = shares[shares > 0]
    return float(-np.sum(filled * np.log(filled)))


def _add_offsets(
    sites: _Sites,
    trial: _Trial,
    parameters: Parameters,
    offsets: FloatArray,
    *,
    accept: Callable[[FloatArray], bool],
    workers: int,
) -> _Trial:
    """Fit offsets and centres in turn on the candidates; keep them where clusters then explain more of what is left.

    Parameters
    ----------
    sites : _Sites
        What sites sent.
    trial : _Trial
        The calibration without offsets, which is given back if they do not help.
    parameters, offsets : Parameters, array of shape (n_sites, d)
        Where to begin.
    accept : callable
        Whether offsets after which units are divided by such factors are believed.
    workers : int
        Threads.
    """
    site, weight = sites.site, np.asarray(trial.rows.sample_weight)
    joint: FloatArray = np.hstack([np.asarray(table) for table in trial.rows.views.tables])
    for _ in range(OFFSET_PASSES):
        with Passes(_replace_tables(trial.rows, joint - offsets[site]), parameters.n_clusters, workers) as scan:
            parameters = improve(parameters, scan.statistics(parameters), learn_weights=False)
            memberships = scan.assign(parameters)[0]
        offsets = _average_by_site(joint - memberships @ np.hstack(parameters.centers), weight, site, len(offsets))
    rows, factors = _normalise(sites, joint - offsets[site], np.asarray(trial.rows.spread))
    scaled = tuple(values / factor for values, factor in zip(parameters.centers, factors, strict=True))
    parameters, objective, _ = _descend(rows, replace(parameters, centers=scaled), workers)
    if objective >= trial.objective or not accept(factors):
        return trial
    factors = np.array(trial.calibration.factors) * factors
    calibration = replace(trial.calibration, factors=tuple(factors.tolist()), offsets=True)
    return replace(trial, calibration=calibration, rows=rows, parameters=parameters, objective=objective)


def _take_spread_away(factors: FloatArray) -> bool:
    """Whether offsets, after which units were divided by `factors`, leave no more spread than there was."""
    return float(np.prod(factors)) <= MOST_GROWTH


def hold_much(factors: Sequence[float] | FloatArray) -> bool:
    """Whether offsets, after which units were divided by `factors`, hold so much that sites surely differ by them."""
    return bool(np.prod(factors) <= (1 - LEAST_OFFSETS) ** (len(factors) / 2))


def _fit_two_way(sites: _Sites, trial: _Trial, clusters: _Trial, workers: int) -> tuple[Parameters, FloatArray]:
    """Fit centres and offsets together, given the clusters of another trial: a row is centre plus offset."""
    parameters, site = trial.parameters, sites.site
    with Passes(clusters.rows, parameters.n_clusters, workers) as scan:
        memberships = scan.assign(clusters.parameters)[0]
    joint: FloatArray = np.hstack([np.asarray(table) for table in trial.rows.views.tables])
    weight, seen = np.asarray(clusters.rows.sample_weight), ~np.isnan(joint)
    weighted = memberships * weight[:, None]
    offsets: FloatArray = np.zeros((len(sites.candidates), joint.shape[1]))
    centers = np.zeros((parameters.n_clusters, joint.shape[1]))
    for _ in range(TWO_WAY_PASSES):
        centers = weighted.T @ np.nan_to_num(joint - offsets[site], nan=0.0) / np.maximum(weighted.T @ seen, 1e-300)
        offsets = _average_by_site(joint - memberships @ centers, weight, site, len(offsets))
    return replace(parameters, centers=split_joint(centers, clusters.rows.widths)), offsets


def _average_by_site(left: FloatArray, weight: FloatArray, site: IntArray, n_sites: int) -> FloatArray:
    """Average what is left at each site, with `PRIOR_ROWS` rows of which nothing is left."""
    sums = np.zeros((n_sites, left.shape[1]))
    np.add.at(sums, site, np.nan_to_num(left, nan=0.0) * weight[:, None])
    return sums / (np.bincount(site, weight, minlength=n_sites) + PRIOR_ROWS)[:, None]


def _replace_tables(rows: Rows, joint: FloatArray) -> Rows:
    tables = tuple(np.ascontiguousarray(part) for part in split_joint(joint, rows.widths))
    return replace(rows, views=replace(rows.views, tables=tables))


def _split_by_site(rows: Rows, site: IntArray) -> list[Rows]:
    return [take(rows, np.flatnonzero(site == number)) for number in range(int(site.max(initial=-1)) + 1)]
