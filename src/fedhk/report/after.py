"""What was asked after a run, as sections of its page: how sure clusters are, what they are, what becomes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from fedhk._files import read_regular
from fedhk._typing import FloatArray
from fedhk.after.binary import BinaryOutcome
from fedhk.after.comparison import Comparison
from fedhk.after.continuous import ContinuousOutcome
from fedhk.after.drawings import draw_comparison, draw_profile, draw_stability, draw_survival
from fedhk.after.effects import adjust_p_values
from fedhk.after.profile import Profile
from fedhk.after.run import Answered
from fedhk.after.stability import Stability
from fedhk.after.survival import EVENT_NAME, Survival
from fedhk.after.tables import PrintedTable, show_p
from fedhk.data.folders import Federation
from fedhk.data.further import align_tables
from fedhk.data.named import SITES, NamedTable, named_views
from fedhk.errors import DataError
from fedhk.estimators.loading import load
from fedhk.summary.drawing import Figure
from fedhk.summary.facts import Extra
from fedhk.summary.html import Markup, join, table, tag
from fedhk.summary.words import join_names, number, show_date, two_digits

# Columns that are named for each cluster, and the least difference that is worth a word (Cohen's "small" is 0.2).
MOST_NAMED, LEAST_DIFFERENCE = 4, 0.2

# p-value, adjusted for the number of clusters and columns, below which sites are said to disagree.
SITES_DIFFER = 0.05

UNSEEN = "Clustering did not see this outcome."
AGREE = "Sites agree on these differences, unless the contrary is said."
SOONER = "sooner", "later"


@singledispatch
def _describe_answer(found: Any) -> Extra:
    """Make a section of the page of what was found."""
    raise TypeError(
        f"found has a {type(found).__name__}; it takes what fedhk.profile, outcomes, stability and compare give."
    )


def _show(name: str, title: str, words: str, sentences: Sequence[str], *content: Any, verdict: str = "") -> Extra:
    said = tag("ul", *(tag("li", sentence) for sentence in sentences)) if sentences else Markup("")
    return Extra(name, title, words, join(said, *content), verdict)


def _show_figure(figure: Figure, sentences: Sequence[str]) -> Markup:
    """Show a figure with sentences beside it, where there is room."""
    said = tag("ul", *(tag("li", sentence) for sentence in sentences))
    return tag("div", tag("div", figure.to_html(), class_="figures wide"), said, class_="beside")


def _fold(printed: PrintedTable, summary: str) -> Markup:
    return tag("details", tag("summary", summary), table(printed.columns, printed.rows), _list_notes(printed))


def _list_notes(printed: PrintedTable, first: int = 0) -> Markup:
    """Show what is to be known about a table, from a note on; the figure above has the table itself."""
    notes = printed.notes[first:]
    return tag("ul", *(tag("li", note) for note in notes), class_="notes") if notes else Markup("")


@_describe_answer.register
def _(found: Stability) -> Extra:
    sentences = []
    for k, verdict in enumerate(found.verdicts):
        if verdict in ("empty", "only"):
            rows = "no rows" if verdict == "empty" else "all rows: nothing can contradict it, and nothing confirms it"
            sentences.append(f"Cluster {k} has {rows}.")
            continue
        share = two_digits(found.mean_halves[k])
        can = "can be trusted" if verdict == "stable" else "should not be trusted"
        text = f"Cluster {k} is {verdict} and {can}: two halves of the rows agree on it by {share} "
        text += f"({two_digits(found.enough)} is enough)."
        without = {site: float(values[k]) for site, values in found.site_jaccard.items() if values[k] < 0.5}
        if without:
            text += f" Without {join_names(list(without))} it would not be found."
        sentences.append(text)
    words = "Halves of the rows of each site were clustered anew, and models were made without each site."
    figure = _show_figure(draw_stability(found), sentences)
    below = replace(found.table(), notes=[note for note in found.notes if note not in words])
    verdict = _sum_up(found.verdicts)
    return _show("trust", "Can the clusters be trusted?", words, (), figure, _list_notes(below), verdict=verdict)


def _sum_up(verdicts: Sequence[str]) -> str:
    """Say in one sentence which clusters can be trusted; nothing if there is one only."""
    stable, unstable = ([k for k, verdict in enumerate(verdicts) if verdict == one] for one in ("stable", "unstable"))
    if not stable and not unstable:
        return ""
    if not unstable:
        return "All clusters are stable: halves of the rows, clustered anew, find them again."
    if not stable:
        return "No cluster is stable: halves of the rows, clustered anew, find others."
    found, lost = (
        f"{'cluster' if len(ks) == 1 else 'clusters'} {join_names(list(map(str, ks)), len(ks))}"
        for ks in (stable, unstable)
    )
    return f"Halves of the rows, clustered anew, find {found} again; {lost} should not be trusted."


@_describe_answer.register
def _(found: Profile) -> Extra:
    sentences, sites_p = [], adjust_p_values(found.sites_p)
    for k in range(found.n_clusters):
        if found.rows[k] < found.least_rows:
            continue
        differences = np.zeros(len(found.columns))
        told = found.told_places[found.seen[k, found.told_places] >= found.least_rows]
        differences[told] = np.nan_to_num(found.difference[k, told])
        named = [
            p
            for p in np.argsort(-np.abs(differences), kind="stable")[:MOST_NAMED]
            if abs(differences[p]) >= LEAST_DIFFERENCE
        ]
        said = [_say_column(found, k, int(place)) for place in named]
        nothing = "like all other rows in every column" if found.n_clusters > 1 else "all rows"
        text = f"Cluster {k}: {'; '.join(said) or nothing}."
        differ = [found.labels[p] for p in named if sites_p[k, p] < SITES_DIFFER]
        sentences.append(text + (f" Sites disagree on how much: {', '.join(differ)}." if differ else ""))
    compared = [AGREE] if np.isfinite(found.i_squared).any() else []
    words = " ".join(["How each cluster differs from all other rows.", *compared, *found.notes[-1:]])
    figure = _show_figure(draw_profile(found), sentences)
    return _show("profile", "What is special about each cluster?", words, (), figure, _fold(found.table(), "Table 1"))


def _say_column(found: Profile, k: int, place: int) -> str:
    column, apart, name = found.columns[place], found.difference[k, place], found.labels[place]
    mark, own = "*" if column.used else "", found.mean[k, place]
    others = np.delete(np.arange(found.n_clusters), k)
    weights = np.where(np.isnan(found.mean[others, place]), 0.0, np.maximum(found.seen[others, place], 0.0))
    rest = float(weights @ np.nan_to_num(found.mean[others, place]) / weights.sum())
    if column.level or place in found.binary:
        more = "more" if apart > 0 else "less"
        return f"{name}{mark} {more} often ({100 * own:.0f} %, others {100 * rest:.0f} %)"
    shown = f"{_round_mean(own, found, place)}, others {_round_mean(rest, found, place)}"
    return f"{name}{mark} {'higher' if apart > 0 else 'lower'} (mean {shown})"


def _round_mean(mean: float, found: Profile, place: int) -> str:
    """Write a mean with two digits of the spread of its column: more say nothing."""
    if found.columns[place].is_date:
        return show_date(mean)
    spread = float(found.overall_spread[place])
    if not 1e-4 < spread < 1e9:
        return number(mean)
    digits = 1 - math.floor(math.log10(spread))
    return f"{round(mean, digits) + 0.0:,.{max(digits, 0)}f}".replace("-", "−")  # no minus before a zero


def _say_ratio(
    what: str,
    interval: Sequence[float],
    between: tuple[float, float],
    sites: tuple[float, float],
    *,
    stratified: bool,
    event: str = "the event",
    sides: tuple[str, str] = ("more often", "less often"),
) -> str:
    """A sentence about the ratio of one cluster to the others, with its interval, and whether sites agree.

    `between` is the heterogeneity between sites and its adjusted p-value; `sites` are those at which the cluster has
    more events than the others, and those that can tell.
    """
    ratio, lower, upper = interval
    where = " at the same site" if stratified else ""
    if ratio == 0:
        return f"never has {event}, which others{where} have."
    if np.isinf(ratio):
        return f"has {event}, which no others{where} have."
    if not np.isfinite(lower):
        return "cannot be compared with the others: there are too few events, or it is alone at its sites."
    sure = lower > 1 or upper < 1
    side = f"neither clearly {sides[0]} nor clearly {sides[1]}"
    if sure:
        side = sides[0] if lower > 1 else sides[1]
    numbers = f"{what} {number(ratio, 2)}, {number(lower, 2)} to {number(upper, 2)}"
    more, known = sites
    at = f", {_count_sites(more if lower > 1 else known - more, known)}" if sure and known > 1 else ""
    text = f"has {event} {side} than the others{where} ({numbers}){at}."
    i_squared, p = between
    if np.isnan(p):
        return text
    agree = "Sites agree on that, as far as chance lets one tell"
    if p < SITES_DIFFER:
        agree = "Sites disagree on how much" if sure else "Sites disagree on that"
    return f"{text} {agree} (I² {number(i_squared, 2)}, p {show_p(p)})."


def _count_sites(there: float, known: float) -> str:
    """Say at how many of the sites that can tell it is so."""
    return f"at all {known:.0f} sites" if there == known else f"at {there:.0f} of {known:.0f} sites"


def _join_others(means: FloatArray, k: int) -> str:
    """Say between which numbers those of the other clusters are."""
    others = np.delete(means, k)
    others = others[np.isfinite(others)]
    if not len(others):
        return ""
    ends = list(dict.fromkeys(map(number, (others.min(), others.max()))))
    return f" (other clusters {' to '.join(ends)})"


@_describe_answer.register
def _(found: Survival) -> Extra:
    sentences, sites_p = [], adjust_p_values(found.sites_p)
    for k in np.flatnonzero(found.rows >= found.least_rows).tolist():
        interval = found.hazard_ratio[k], found.hazard_lower[k], found.hazard_upper[k]
        event = "the event" if found.event_name == EVENT_NAME else f"the event ({found.event_name})"
        how: dict[str, Any] = {"stratified": found.stratified, "event": event, "sides": SOONER}
        sites = found.sites_more[k], found.sites_known[k]
        text = _say_ratio("hazard ratio", interval, (found.i_squared[k], sites_p[k]), sites, **how)
        mean = found.restricted_mean[k]
        if np.isfinite(mean):
            others = _join_others(found.restricted_mean, k)
            text += f" Mean {found.time_name} without event up to {number(found.horizon)}: {number(mean)}{others}."
        sentences.append(f"Cluster {k} {text}")
    title = "What becomes of each cluster?" + (f" ({found.name})" if found.name else "")
    figure = _show_figure(draw_survival(found), sentences)
    words = " ".join([UNSEEN, *found.notes[:1]])
    return _show("survival", title, words, (), figure, _list_notes(found.table(), 1))


@_describe_answer.register
def _(found: BinaryOutcome) -> Extra:
    sentences, sites_p = [], adjust_p_values(found.sites_p)
    for k in np.flatnonzero(found.rows >= found.least_rows).tolist():
        interval = found.odds_ratio[k], found.odds_lower[k], found.odds_upper[k]
        event = f"the event ({found.name})" if found.name else "the event"
        between, sites = (found.i_squared[k], sites_p[k]), (found.sites_more[k], found.sites_known[k])
        text = _say_ratio("odds ratio", interval, between, sites, stratified=found.stratified, event=event)
        sentences.append(f"Cluster {k} {text}")
    words = " ".join([UNSEEN, *found.notes[:1]])
    numbers = _fold(found.table(), "Numbers")
    title = f"How often does {found.name or 'it'} happen in each cluster?"
    return _show("events", title, words, sentences, numbers)


@_describe_answer.register
def _(found: ContinuousOutcome) -> Extra:
    words = " ".join([UNSEEN, *found.notes[:1]])
    title = f"How does {found.name or 'it'} differ between clusters?"
    printed = found.table()
    return _show("value", title, words, (), table(printed.columns, printed.rows), _list_notes(printed, 1))


@_describe_answer.register
def _(found: Comparison) -> Extra:
    figure = tag("div", draw_comparison(found).to_html(), class_="figures wide")
    return _show("other-model", "Beside another model", " ".join(found.notes), (), figure)


def describe_answers(found: Sequence[Answered]) -> tuple[Extra, ...]:
    """Make sections of what was found, in the order in which it is given; names on the page differ."""
    sections = [_describe_answer(one) for one in found]
    return tuple(
        replace(section, name=f"{section.name}-{i}" if i else section.name) for i, section in enumerate(sections)
    )


# ----------------------------------------------------------------------------------------------------- of run folders


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """The model of a run folder with its sites' own models, its rows, and further tables of the same rows.

    Parameters
    ----------
    model : estimator
        The global model; `client_models_` has those of the sites.
    sites : dict
        Rows as `fit` takes them, with the further tables as views that the model does not know.
    further : dict of str to (dict of str to array)
        Columns of the further tables, by name and site.
    secure : bool
        Whether the run had masks.
    """

    model: Any
    sites: dict[str, dict[str, NamedTable | None]]
    further: dict[str, dict[str, FloatArray]]
    secure: bool

    def column(self, name: str) -> dict[str, FloatArray]:
        """A column of the further tables, by site."""
        if name not in self.further:
            there = f"they have {list(self.further)[:20]}" if self.further else "there are none: give --also FOLDER"
            raise DataError(f"{name!r} is no column of the further tables; {there}.")
        known = self.model.view_names_
        for site, views in self.sites.items():
            tables = [
                view for view, table in views.items() if view not in known and table and name in (table.columns or ())
            ]
            if len(tables) > 1:
                raise DataError(
                    f"site {site!r}: {name!r} is a column of {len(tables)} further tables, {join_names(tables)}: leave "
                    "it in one of them only."
                )
        return self.further[name]


def open_run(folder: Path, rows: Federation, also: Federation | None, *, secure: bool, private: bool) -> FinishedRun:
    """Read the models of a run folder, with the rows that it is of, and other tables of the same rows.

    Raises
    ------
    DataError
        If the run had a privacy budget, or tables do not have the same rows.
    """
    if private:
        raise DataError(
            "the run had a privacy budget: what is asked after it needs one of its own. Ask from Python, with "
            "privacy=DifferentialPrivacy(...)."
        )
    model = load(folder / "model.safetensors")
    own = {}
    for name in rows.sites:
        file = folder / SITES / f"{name}.safetensors"
        if file.is_file() and read_regular(file):
            own[name] = load(file)
    model.client_models_ = own
    sites = {name: named_views(site) for name, site in rows.sites.items()}
    further: dict[str, dict[str, FloatArray]] = {}
    for name, site in rows.sites.items():
        if also is None:
            continue
        if name not in also.sites:
            raise DataError(f"the further tables have no site {name!r}; they have {list(also.sites)[:10]}.")
        for view, aligned in align_tables(name, site, also.sites[name]).items():
            if view in model.view_names_:
                raise DataError(f"the further tables have a view {view!r}, which the run was made of: rename it.")
            sites[name][view] = aligned
            for place, column in enumerate(aligned.columns or ()):
                further.setdefault(column, {})[name] = aligned.values[:, place]
    return FinishedRun(model, sites, further, secure)
