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

import numpy as np
from scipy.special import entr

from fedhk._typing import FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.model.descent import improve, minimise
from fedhk.model.parameters import CenterForm, Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows, split_joint, take, view_sums
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


@dataclass(frozen=True)
class Search:
    """What sites sent, one after the other, and how a start is sought in it."""

    candidates: Sequence[Candidates]
    frames: Sequence[FloatArray]  # each site's own mean and spread, as `measure_frame` gives them
    references: tuple[Reference, ...]  # the common ones
    view_names: tuple[str, ...]
    settings: Settings
    seed: int
    workers: int = 1

    @property
    def site(self) -> IntArray:
        """Which site each candidate is of."""
        return np.repeat(np.arange(len(self.candidates)), [len(found.sizes) for found in self.candidates])


@dataclass(frozen=True)
class _Trial:
    """One way to calibrate, and what came of it on the candidates."""

    calibration: Calibration
    rows: Rows  # the candidates, calibrated
    parameters: Parameters
    objective: float  # what the best centres leave unexplained
    site_information: float  # how well clusters tell the sites apart

    @property
    def joint(self) -> FloatArray:
        """The candidates with all views side by side."""
        return np.hstack([np.asarray(table) for table in self.rows.views.tables])


def choose_calibration(search: Search, shares: tuple[float, float] | None) -> tuple[Calibration, Parameters, Rows]:
    """Choose the calibration under which clusters explain most.

    Where shares of mean and spread are given, only its offsets are chosen. Also gives the start that goes with it,
    whose centres are free, and the candidates of all sites, calibrated.

    Where sites differ by more than clusters do, clusters become sites: they explain much and mean nothing. Such a
    solution is recognised by how well its clusters tell the sites apart, and left out.
    """
    options: tuple[tuple[float, float], ...] = SHARES if shares is None else (shares,)
    if not search.settings.scaling.unit_variance:  # rows of length 1, and other given units, keep their spread
        options = tuple(dict.fromkeys((shift, 0.0) for shift, _ in options))
    trials = [_fit_trial(search, option) for option in options]
    kept = [trial for trial in trials if trial.site_information < MOST_SITE_INFORMATION] or trials[-1:]
    best = min(kept, key=lambda trial: trial.objective)
    if best.objective > (1 - LEAST_GAIN) * kept[0].objective:
        best = kept[0]
    nothing: FloatArray = np.zeros((len(search.candidates), sum(best.rows.widths)))
    found = _add_offsets(search, best, best.parameters, nothing, accept=_take_spread_away)
    if len(trials) > 1:  # offsets given the clusters that calibrated rows show
        plain = replace(trials[0], objective=kept[0].objective)
        together = _add_offsets(search, plain, *_fit_two_way(search, plain, trials[-1]), accept=hold_much)
        found = min(found, together, key=lambda trial: trial.objective)
    return found.calibration, found.parameters, found.rows


def choose_embedding_calibration(
    search: Search, shares: tuple[float, float] | None
) -> tuple[tuple[Calibration, ...], Rows]:
    """Choose how sites bring their rows to one space before they are embedded; () where they measure alike.

    Whether they measure alike is decided by `choose_calibration`; if not, `EMBEDDING_SHARES` are taken out. Also gives
    the candidates of all sites, calibrated.
    """
    if shares is None:
        found, _, _ = choose_calibration(search, None)
        different = found.shift > 0 or found.spread > 0 or (found.offsets and hold_much(found.factors))
        shares = EMBEDDING_SHARES if different else (0.0, 0.0)
    shift, spread = shares
    if not search.settings.scaling.unit_variance:  # units are not those of a spread
        spread = 0.0
    if shift == spread == 0:
        return (), candidate_rows(search.candidates, search.references, search.view_names)
    rows, factors = _calibrate_candidates(search, (shift, spread))
    return (Calibration(shift, spread, factors, offsets=False),), rows


def _fit_trial(search: Search, shares: tuple[float, float]) -> _Trial:
    """Fit free centres to the candidates without such shares of their sites' means and spreads."""
    rows, factors = _calibrate_candidates(search, shares)
    settings, site = replace(search.settings, form=CenterForm()), search.site
    starts = candidate_starts(settings.n_init, len(SHARES) * rows.n_rows, sum(rows.widths), settings.n_clusters)
    judge = None
    if any(shares):
        judge = partial(personal_objective, [take(rows, np.flatnonzero(site == number)) for number in np.unique(site)])
    start = settings.start(rows, np.random.RandomState(search.seed), search.workers, n_init=starts, judge=judge)
    parameters, objective, labels = _descend(rows, start, search.workers)
    table = np.zeros((len(search.candidates), settings.n_clusters))
    np.add.at(table, (site, labels), np.asarray(rows.sample_weight))
    calibration = Calibration(*shares, factors, offsets=any(shares))
    return _Trial(calibration, rows, parameters, objective, measure_information(table))


def _descend(rows: Rows, start: Parameters, workers: int) -> tuple[Parameters, float, IntArray]:
    """Minimise from a start; also the share of a row left unexplained, mean over views, and the labels."""
    with Passes(rows, start.n_clusters, workers) as scan:
        progress, _ = minimise(scan.statistics, start, learn_weights=False, max_iter=FINAL_PASSES, tol=FINAL_TOL)
        costs = scan.statistics(progress.parameters).costs
        labels = scan.assign(progress.parameters)[1]
    return progress.parameters, float(costs.mean() / np.asarray(rows.sample_weight).sum()), labels


def _calibrate_candidates(search: Search, shares: tuple[float, float]) -> tuple[Rows, tuple[float, ...]]:
    """Take such shares of their sites' means and spreads out of candidates; also what units were divided by."""
    points, spreads, widths = [], [], [reference.width for reference in search.references]
    for found, frame in zip(search.candidates, search.frames, strict=True):
        _, divide = scale_frame(frame, float(found.sizes.sum()), *shares)
        points.append(move_candidates(found, frame, shares).points)
        # how much of a group's spread is left: that of the site's rows as a whole
        before, after = view_sums(np.stack([frame[1] ** 2, (frame[1] / divide) ** 2]), widths)
        spreads.append(found.spreads * after / before)
    return _normalise(search, np.vstack(points), np.vstack(spreads))


def move_candidates(found: Candidates, frame: FloatArray, shares: tuple[float, float]) -> Candidates:
    """Take such shares of its own mean and spread out of the candidates of one site."""
    shift, divide = scale_frame(frame, float(found.sizes.sum()), *shares)
    return replace(found, points=(found.points - shift) / divide)


def _normalise(search: Search, points: FloatArray, spreads: FloatArray) -> tuple[Rows, tuple[float, ...]]:
    """Give candidates as rows in units in which each view has spread 1, and what they were divided by."""
    widths = [reference.width for reference in search.references]
    sizes = np.concatenate([found.sizes for found in search.candidates])
    per_view = view_sums(np.nan_to_num(np.square(points), nan=0.0), widths) + spreads
    factors = np.sqrt(np.maximum(sizes @ per_view / sizes.sum(), 1e-300))
    whole = Candidates(points / np.repeat(factors, widths), sizes, spreads / factors**2)
    return candidate_rows([whole], search.references, search.view_names), tuple(factors.tolist())


def measure_information(table: FloatArray) -> float:
    """Measure how well clusters tell the sites apart, from the number of rows by site and cluster.

    It is the mutual information as a share of the largest possible.
    """
    table = table / table.sum()
    margins = [float(entr(table.sum(axis=axis)).sum()) for axis in (0, 1)]
    return (sum(margins) - float(entr(table).sum())) / min(margins) if min(margins) > 0 else 0.0


def _add_offsets(
    search: Search,
    trial: _Trial,
    parameters: Parameters,
    offsets: FloatArray,
    *,
    accept: Callable[[Sequence[float]], bool],
) -> _Trial:
    """Fit centres and offsets of sites in turn on the candidates, beginning with given ones.

    They are kept where clusters then explain more of what is left, and where `accept` believes offsets after which
    units are divided by such factors. Else the trial is given back as it is.
    """
    rows, joint, site = trial.rows, trial.joint, search.site
    weight = np.asarray(rows.sample_weight)
    for _ in range(OFFSET_PASSES):
        tables = tuple(np.ascontiguousarray(part) for part in split_joint(joint - offsets[site], rows.widths))
        moved = replace(rows, views=replace(rows.views, tables=tables))
        with Passes(moved, parameters.n_clusters, search.workers) as scan:
            parameters = improve(parameters, scan.statistics(parameters), learn_weights=False)
            memberships = scan.assign(parameters)[0]
        offsets = _average_by_site(joint - memberships @ np.hstack(parameters.centers), weight, site, len(offsets))
    rows, factors = _normalise(search, joint - offsets[site], np.asarray(rows.spread))
    scaled = tuple(values / factor for values, factor in zip(parameters.centers, factors, strict=True))
    parameters, objective, _ = _descend(rows, replace(parameters, centers=scaled), search.workers)
    if objective >= trial.objective or not accept(factors):
        return trial
    both = tuple(before * factor for before, factor in zip(trial.calibration.factors, factors, strict=True))
    calibration = replace(trial.calibration, factors=both, offsets=True)
    return replace(trial, calibration=calibration, rows=rows, parameters=parameters, objective=objective)


def _take_spread_away(factors: Sequence[float]) -> bool:
    """Whether offsets, after which units were divided by `factors`, leave no more spread than there was."""
    return bool(np.prod(factors) <= MOST_GROWTH)


def hold_much(factors: Sequence[float]) -> bool:
    """Whether offsets, after which units were divided by `factors`, hold so much that sites surely differ by them."""
    return bool(np.prod(factors) <= (1 - LEAST_OFFSETS) ** (len(factors) / 2))


def _fit_two_way(search: Search, trial: _Trial, clusters: _Trial) -> tuple[Parameters, FloatArray]:
    """Fit centres and offsets together, given the clusters of another trial: a row is centre plus offset."""
    parameters, joint, site = trial.parameters, trial.joint, search.site
    with Passes(clusters.rows, parameters.n_clusters, search.workers) as scan:
        memberships = scan.assign(clusters.parameters)[0]
    weight, seen = np.asarray(clusters.rows.sample_weight), ~np.isnan(joint)
    weighted = memberships * weight[:, None]
    offsets: FloatArray = np.zeros((len(search.candidates), joint.shape[1]))
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
