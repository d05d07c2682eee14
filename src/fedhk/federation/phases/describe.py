"""Describe: sites name their views, agreed on by majority, and send the moments of their features.

The references computed from these moments bring the rows of all sites to the same units.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from scipy.special import fdtrc

from fedhk._text import is_printable
from fedhk._typing import FloatArray
from fedhk.data.deviations import MEND, find_deviations
from fedhk.data.moments import Moments
from fedhk.data.views import LARGEST_VALUE, Columns, Views, find_difference, is_tensor
from fedhk.errors import DataError, MessageError
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import (
    Deviations,
    Members,
    Population,
    References,
    RowCounts,
    Schema,
    Space,
    columns_code,
)
from fedhk.federation.participation import Deviating
from fedhk.federation.phases.base import Nothing, Phase, Request, SumPhase
from fedhk.federation.phases.scales import scale_phases
from fedhk.federation.plausible import MOST_FEATURES, MOST_ROWS, MOST_WIDTH, are_possible, limits_from_moments
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.model.preparation import (
    balance,
    check_spreads,
    count_observed,
    heat_energy,
    references_from_moments,
    site_moments,
)
from fedhk.starts.settings import Settings

# Axes of a row; NumPy has no arrays with more than 64.
MOST_AXES = 63

# Sites that are random parts of one set are taken to differ in less than one of a thousand federations.
LEVEL = 1e-3


@dataclass(frozen=True)
class SiteEffect(Entry):
    """Test result: the probability that chance alone makes the means of sites differ as they do."""

    chance: float

    @property
    def is_sure(self) -> bool:
        """Whether sites differ by more than chance explains."""
        return self.chance < LEVEL


def sites_differ(board: Board) -> bool:
    """Tell whether the means of several sites differ by more than chance explains, or this is not known."""
    return board.get(Population).n_sites > 1 and all(found.is_sure for found in board.find(SiteEffect))


def _measure_site_effect(sites: Sequence[Sequence[Moments]]) -> SiteEffect:
    """Test whether sites have the same means, from the moments of each view at the sites that have it."""
    views = []
    for view in sites:
        parts = [moments for moments in view if moments.rows > 0]
        weight = np.stack([moments.weight for moments in parts]) if parts else np.zeros((0, 0))
        means = np.stack([moments.mean for moments in parts]) if parts else np.zeros((0, 0))
        apart = np.square(means - (weight * means).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300))
        within = np.sum([moments.squares for moments in parts], axis=0)
        rows = float(sum([moments.rows for moments in parts]))
        views.append(Variation(len(parts), rows, (weight * apart).sum(axis=0), np.asarray(within)))
    return compare_means(views)


@dataclass(frozen=True, eq=False)
class Variation:
    """Sums of squares of a view between sites and within them, per feature."""

    sites: float  # those that have the view
    rows: float
    between: FloatArray  # (d,)
    within: FloatArray  # (d,)


def compare_means(views: Iterable[Variation]) -> SiteEffect:
    """Test whether sites have the same means.

    Of every feature the variance between sites is divided by that within sites. The mean over the features of a view is
    compared with the F distribution of a single feature: if features depend on each other, it is never exceeded more
    often than is said; if not, less often. The least of the views counts, times their number.
    """
    chances = [1.0]
    for view in views:
        if view.sites < 2 or view.rows <= view.sites:
            continue
        between, within = view.between / (view.sites - 1), view.within / (view.rows - view.sites)
        varies = within > 0
        if varies.any():
            ratio = float(np.mean(between[varies] / within[varies]))
            chances.append(float(fdtrc(view.sites - 1, view.rows - view.sites, ratio)))
    return SiteEffect(min(1.0, min(chances) * max(len(chances) - 1, 1)))


@dataclass(frozen=True)
class ViewDescription:
    """One view of a site."""

    name: str
    width: int | None  # None for a view that the site does not have
    columns: Columns  # names, or the shape of a row of a tensor


@dataclass(frozen=True)
class ViewsReply:
    """Description of a site's views, without any number from its rows."""

    views: tuple[ViewDescription, ...]


@dataclass(frozen=True)
class DescribeRequest:
    """Ask for moments: of rows scaled to length 1 or not, with the range of each feature or without."""

    unit_rows: bool
    ranges: bool


@dataclass(frozen=True, eq=False)
class Description:
    """Description of a site's views: their names and columns, and the moments of those that it has."""

    views: tuple[ViewDescription, ...]
    moments: tuple[Moments, ...]

    @property
    def present(self) -> list[ViewDescription]:
        """Views that the site has, in the order of their moments."""
        return [view for view in self.views if view.width is not None]

    @property
    def by_view(self) -> dict[str, Moments]:
        """Moments of the views that the site has, by name."""
        return {view.name: moments for view, moments in zip(self.present, self.moments, strict=True)}


T = TypeVar("T", Description, ViewsReply)
R = TypeVar("R", bound="HasViews")


def describe_views(views: Views) -> tuple[ViewDescription, ...]:
    """Describe a site's views by names, widths and columns, without any number from its rows."""
    return tuple(map(ViewDescription, views.names, views.widths, views.columns))


def check_descriptions(views: tuple[ViewDescription, ...], site: str) -> None:
    """Refuse descriptions that no view can have, or two of one name."""
    names = set()
    for view in views:
        names.add(view.name)
        name, width, columns = view.name[:50], view.width, view.columns
        if not name or (width is not None and width < 1):
            raise MessageError("its views are not described as name, width, and columns or shape", site)
        if columns is None:
            continue
        if width is None:
            raise MessageError(f"view {name!r} has columns, but is said to be missing", site)
        if is_tensor(columns):
            few = 2 <= len(columns) <= MOST_AXES and all(0 < size <= width for size in columns)
            if not few or math.prod(columns) != width:
                raise MessageError(f"view {name!r} has a shape that is not its width", site)
        elif len(columns) != width:
            raise MessageError(f"view {name!r} has more or fewer names than columns", site)
    if len(names) < len(views):
        raise MessageError("two of its views have one name", site)
    if not are_possible(view.width for view in views if view.width is not None):
        raise MessageError(
            f"a view with more than {MOST_WIDTH} features, or views with more than {MOST_FEATURES} in all", site
        )
    _check_names(views, site)


def _check_names(views: tuple[ViewDescription, ...], site: str) -> None:
    """Refuse names with unprintable characters: they are shown on terminals and pages of others."""
    for view in views:
        columns = () if view.columns is None or is_tensor(view.columns) else view.columns
        for name in (view.name, *map(str, columns)):
            if not is_printable(name):
                raise MessageError(f"the name {name[:50]!r} of a view or column has characters that do not show", site)


class HasViews(Protocol):
    """A reply that describes a site's views."""

    @property
    def views(self) -> tuple[ViewDescription, ...]:
        """Descriptions of the views."""


def agree_on_views(replies: Iterable[HasViews], holders: int = 1) -> dict[str, tuple[int, Columns]]:
    """Return the width and columns that most sites give each view; in a tie, those of the first site.

    Views are in the order in which they are first named, whether or not that site has them. A view that fewer than
    `holders` sites have is left out, and so is one for which there is no room beside those that more sites have.
    """
    widths: dict[str, Counter[int]] = {}
    columns: dict[tuple[str, int], Counter[Columns]] = {}
    for reply in replies:
        for view in reply.views:
            votes = widths.setdefault(view.name, Counter())
            if view.width is not None:
                votes[view.width] += 1
                named = columns.setdefault((view.name, view.width), Counter())
                named[view.columns] += view.columns is not None  # sites without names have no vote
    agreed: dict[str, tuple[int, Columns]] = {}
    for name, votes in widths.items():
        if votes and votes.total() >= holders:
            width = votes.most_common(1)[0][0]
            agreed[name] = width, columns[name, width].most_common(1)[0][0]
    for name in sorted(agreed, key=lambda name: widths[name].total()):
        if are_possible(width for width, _ in agreed.values()):
            break
        del agreed[name]
    return agreed


def select_alike(replies: Mapping[str, R]) -> tuple[dict[str, R], dict[str, str]]:
    """Return the sites whose views agree with the majority, and how the others differ.

    A site may lack views, and may leave its columns unnamed or its tensors flat.
    """
    agreed = agree_on_views(replies.values())
    good, refused = {}, {}
    for site, reply in replies.items():
        if found := describe_differences(reply, agreed):
            refused[site] = found
        else:
            good[site] = reply
    return good, refused


def describe_differences(reply: HasViews, agreed: Mapping[str, tuple[int, Columns]]) -> str:
    """Describe how a site's views differ from those agreed on; empty if they do not. Further views are ignored."""
    found = []
    for view in reply.views:
        if view.width is not None and view.name in agreed:
            width, columns = agreed[view.name]
            texts = "other sites", "other sites have"
            if difference := find_difference(view.columns, view.width, columns, width, *texts):
                found.append(f"view {view.name!r} {difference}")
    return "; ".join(found)


def _warn_of_lone_views(replies: Iterable[HasViews], agreed: Mapping[str, Any], holders: int) -> None:
    """Warn of views that are left out because too few sites have them."""
    held = Counter(view.name for reply in replies for view in reply.views if view.width is not None)
    few = sorted(name for name in held if name not in agreed)
    if few:
        shown = ", ".join(repr(name[:50]) for name in few[:5]) + (f" and {len(few) - 5} more" if len(few) > 5 else "")
        warnings.warn(
            f"Views that fewer than {holders} sites have are left out, because nobody could tell whether they are "
            f"right: {shown}. Sites in one process with aggregator='sum' can have views of their own.",
            UserWarning,
            stacklevel=2,
        )


@dataclass(frozen=True)
class AskViews(Phase[Request, T]):
    """A phase in which sites describe their views. Sites whose views differ from the majority are left out."""

    settings: Settings
    holders: int = 1  # sites that must have a view for it to count

    def select(self, board: Board, replies: dict[str, T]) -> tuple[Board, dict[str, T], dict[str, str]]:
        alike, different = select_alike(replies)
        return board, alike, different

    def agree(self, replies: Mapping[str, T]) -> dict[str, tuple[int, Columns]]:
        """Return the views of the federation; warn of those left out."""
        agreed = agree_on_views(replies.values(), self.holders)
        _warn_of_lone_views(replies.values(), agreed, self.holders)
        return agreed


@dataclass(frozen=True)
class Describe(AskViews[DescribeRequest, Description]):
    """Collect moments of the features, find sites that deviate, and compute references from the others."""

    deviating: Deviating = "exclude"

    name: ClassVar[str] = "describe"

    aggregator: Aggregator = PLAIN_SUM
    in_basis: bool = False  # whether the rounds are in a basis: sums that come before are then sent in few bytes

    def request(self, board: Board) -> DescribeRequest:
        return DescribeRequest(self.settings.scaling.unit_rows, self.settings.needs_ranges)

    @staticmethod
    def answer(site: Site, request: DescribeRequest) -> Description:
        views = site.read_views()
        moments = site_moments(views, [int(width or 0) for width in views.widths], unit_rows=request.unit_rows)
        check_spreads(moments, views.names)
        present = [view for view, table in zip(moments, views.tables, strict=True) if table is not None]
        if not request.ranges:
            present = [view.without_range() for view in present]
        return Description(describe_views(views), tuple(present))

    def check(self, board: Board, reply: Description, site: str) -> None:
        check_descriptions(reply.views, site)
        widths = [view.width for view in reply.present]
        check_moments(reply.moments, widths, site, ranges=self.settings.needs_ranges)

    def select(
        self, board: Board, replies: dict[str, Description]
    ) -> tuple[Board, dict[str, Description], dict[str, str]]:
        _, alike, different = super().select(board, replies)
        columns = {name: columns for name, (_, columns) in agree_on_views(alike.values()).items()}
        found = find_deviations({site: reply.by_view for site, reply in alike.items()}, columns)
        sure = [deviation for deviation in found if deviation.is_sure]
        if sure and self.deviating == "refuse":
            raise DataError(f"{' '.join(d.sentence for d in sure)} {MEND}, or give Participation(deviating='warn').")
        excluded: dict[str, str] = {}
        for deviation in sure if self.deviating == "exclude" else ():
            excluded.setdefault(deviation.site, deviation.reason)
        board = board.put(Deviations(found, excluded)) if found else board
        return board, {site: reply for site, reply in alike.items() if site not in excluded}, different | excluded

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        return [DescribeViews(self.settings, self.holders), *scale_phases(self.settings, terms, in_basis=self.in_basis)]

    def combine(self, board: Board, replies: Mapping[str, Description]) -> Board:
        settings, agreed = self.settings, self.agree(replies)
        sent: dict[str, list[Moments]] = {name: [] for name in agreed}
        for reply in replies.values():
            for name, own in reply.by_view.items():
                if name in sent:
                    sent[name].append(own)
        merged = {name: self.aggregator.moments(sites) for name, sites in sent.items()}
        counts = {site: max([own.total for own in reply.moments], default=0.0) for site, reply in replies.items()}
        rows = [np.array([count]) for count in counts.values()]
        total = max([float(self.aggregator.sums(rows, rows)[0]), *(whole.rows for whole in merged.values())])
        for name, whole in merged.items():
            if whole.rows > 0:
                merged[name] = replace(whole, total=total)
            else:  # no site has an observed value
                del agreed[name]
        if not agreed:
            raise DataError("No site has a view with an observed value: there is nothing to cluster.")
        if total < settings.n_clusters:
            raise DataError(
                f"All sites together have n_samples={total:g}, which should be >= n_clusters={settings.n_clusters}."
            )
        moments = tuple(map(merged.__getitem__, agreed))
        schema, columns = _make_schema(settings, agreed)
        references = references_from_moments(
            moments, tuple(agreed), settings.scaling, settings.heat_coef, columns=columns
        )
        return board.put(
            schema,
            References(references),
            Population(len(replies), columns, moments, total),
            RowCounts(counts),
            Space(limits_from_moments(references, moments)),
            _measure_site_effect(list(sent.values())),
        )


def _make_schema(settings: Settings, agreed: dict[str, tuple[int, Columns]]) -> tuple[Schema, tuple[Columns, ...]]:
    """Make the schema and the columns of the views; refuse view weights that are not one per view."""
    weights, columns = settings.view_weights, tuple([columns for _, columns in agreed.values()])
    if not isinstance(weights, str) and len(weights) != len(agreed):
        raise DataError(f"view_weights has {len(weights)} numbers, the sites have the views {list(agreed)}.")
    return Schema(tuple(agreed), tuple(map(columns_code, columns))), columns


def check_moments(views: Sequence[Moments], widths: Sequence[int | None], site: str, *, ranges: bool) -> None:
    """Refuse moments of more or fewer views than have these widths, or that no rows can have."""
    if len(views) != len(widths):
        raise MessageError(f"moments of {len(views)} views, expected {len(widths)}", site)
    for view, width in zip(views, widths, strict=True):
        _check_view(view, width, site, ranges=ranges)


def _check_view(view: Moments, width: int | None, site: str, *, ranges: bool) -> None:
    """Refuse moments that no rows can have; an unobserved feature has the range from infinity to minus infinity."""
    for name in ("weight", "mean", "squares", "low", "high"):
        finite = name not in ("low", "high")
        check_array(getattr(view, name), (width,), site, f"moments ({name})", finite=finite)
    untold = np.isnan([view.low, view.high])
    if untold.any() if ranges else not untold.all():
        raise MessageError("tells ranges of features without need, or does not where they are needed", site)
    most = min(view.total, MOST_ROWS) * (1 + 1e-9)
    seen = view.weight > 0
    low, high = np.where(seen, [view.low, view.high], 0.0)
    unseen_in_range = ~seen & ~np.isnan(view.low) & ((view.low != np.inf) | (view.high != -np.inf))
    with np.errstate(over="ignore", invalid="ignore"):
        widest = np.square(high - low) + 1e-9 * np.square(np.maximum(np.abs(low), np.abs(high)))
    widest = np.where(np.isnan(widest), (2 * LARGEST_VALUE) ** 2, widest)
    if (
        not 0 <= view.rows <= most
        or np.any((view.weight < 0) | (view.weight > most) | (view.squares < 0) | (low > high) | unseen_in_range)
        or np.any(np.abs([view.mean, low, high]) > LARGEST_VALUE)
        or np.any(view.squares > view.weight * widest)
    ):
        raise MessageError("moments that no rows can have: impossible counts or spreads, or a range inside out", site)


@dataclass(frozen=True)
class DescribeViews(AskViews[Nothing, ViewsReply]):
    """Collect the views of the sites, and nothing of their rows: the first phase with noise or masks."""

    name: ClassVar[str] = "schema"

    @staticmethod
    def answer(site: Site, request: Nothing) -> ViewsReply:
        return ViewsReply(describe_views(site.views))

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [self]  # it tells nothing of rows

    def check(self, board: Board, reply: ViewsReply, site: str) -> None:
        check_descriptions(reply.views, site)

    def combine(self, board: Board, replies: Mapping[str, ViewsReply]) -> Board:
        agreed = self.agree(replies)
        if not agreed:
            raise DataError("No site has a view: there is nothing to cluster.")
        schema, columns = _make_schema(self.settings, agreed)
        unknown = tuple(Moments.none(width) for width, _ in agreed.values())
        return board.put(schema, Population(len(replies), columns, unknown, 0.0), Members(tuple(sorted(replies))))


class EnergySum(SumPhase[Request]):
    """Heat-weighted squared distance of rows to the grand mean, per view, and the number of rows with the view."""

    aggregator: Aggregator

    def size(self, board: Board) -> int:
        return 2 * len(board.get(References).references)

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_array(values, (self.size(board),), site, "energies", non_negative=True)

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        return self.aggregator.sums(vectors, [np.tile(np.split(values, 2)[1], 2) for values in vectors])


@dataclass(frozen=True)
class Energy(EnergySum[Nothing]):
    """Measure the energy of rows, and rescale the references so that it is 1 for each row and view.

    It is asked for where coefficients are not uniform.
    """

    name: ClassVar[str] = "energy"
    with_noise: ClassVar[bool] = False  # references come from the ranges alone

    aggregator: Aggregator = PLAIN_SUM

    @staticmethod
    def vector(site: Site, request: Nothing) -> FloatArray:
        rows = site.rows()
        return np.concatenate([heat_energy(rows), count_observed(rows.views)])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        energy, rows = np.split(total, 2)
        balanced = balance(board.get(References).references, energy, rows.tolist())
        return board.put(References(balanced), Space(limits_from_moments(balanced, board.get(Population).moments)))
