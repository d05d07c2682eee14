"""Describe: which views the sites have, agreed by majority, and the moments of their features.

From the moments follow the references, which bring the rows of all sites to the same units.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.views import LARGEST_VALUE, Columns, Views, is_tensor, other_names, size_text
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board
from fedhk.federation.codec import MOST_NUMBERS
from fedhk.federation.entries import Members, Population, References, Schema, Space, columns_code
from fedhk.federation.phases.base import Nothing, Phase, SumPhase
from fedhk.federation.phases.scales import scale_phases
from fedhk.federation.plausible import MOST_ROWS, limits_from_moments
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.model.preparation import balance, check_spreads, heat_energy, references_from_moments, site_moments
from fedhk.starts.settings import Settings

T = TypeVar("T", bound="Description | ViewsReply")

# Axes of a row; NumPy has no arrays with more than 64.
MOST_AXES = 63


@dataclass(frozen=True)
class ViewDescription:
    """One view of a site.

    Parameters
    ----------
    name : str
        Its name.
    width : int or None
        Its features; None for a view that the site does not have.
    columns : tuple of str, tuple of int or None
        Names of its columns, or the shape of a row of a tensor.
    """

    name: str
    width: int | None
    columns: Columns

    def check(self, site: str) -> None:
        """Refuse a description that no view can have."""
        if not self.name or (self.width is not None and self.width < 1):
            raise MessageError("its views are not described as name, width, and columns or shape", site)
        if self.width is not None and self.width > MOST_NUMBERS:
            raise MessageError(f"view {self.name[:50]!r} has {self.width} features, more than a message can hold", site)
        if self.columns is None:
            return
        if self.width is None:
            raise MessageError(f"view {self.name[:50]!r} has columns, but is said to be missing", site)
        shape = self.columns
        if is_tensor(shape):
            few = 2 <= len(shape) <= MOST_AXES and all(0 < size <= self.width for size in shape)
            if not few or math.prod(shape) != self.width:
                raise MessageError(f"view {self.name[:50]!r} has a shape that is not its width", site)
        elif len(self.columns) != self.width:
            raise MessageError(f"view {self.name[:50]!r} has more or fewer names than columns", site)


def describe_views(views: Views) -> tuple[ViewDescription, ...]:
    """What a site's views are called, how wide they are and what their columns are: no number of the rows."""
    parts = zip(views.names, views.widths, views.columns, strict=True)
    return tuple(ViewDescription(name, width, columns) for name, width, columns in parts)


def check_descriptions(views: tuple[ViewDescription, ...], site: str) -> None:
    """Refuse descriptions that are malformed, or two of one name."""
    for view in views:
        view.check(site)
    if len({view.name for view in views}) < len(views):
        raise MessageError("two of its views have one name", site)


Agreed = dict[str, tuple[int, Columns]]


def agree_on_views(sites: Mapping[str, tuple[ViewDescription, ...]]) -> Agreed:
    """Width and columns (names, or shape of a row) that most sites give each view; among equals, of the first site.

    Views are in the order in which they are first named, whether or not that site has them.
    """
    widths: dict[str, Counter[int]] = {}
    for views in sites.values():
        for view in views:
            widths.setdefault(view.name, Counter()).update([] if view.width is None else [view.width])
    agreed: Agreed = {}
    for name, votes in widths.items():
        if votes:
            width = votes.most_common(1)[0][0]
            named = Counter(
                view.columns
                for views in sites.values()
                for view in views
                if view.name == name and view.width == width and view.columns is not None
            )
            agreed[name] = width, (named.most_common(1)[0][0] if named else None)
    return agreed


def find_differences(views: tuple[ViewDescription, ...], agreed: Agreed) -> str:
    """How a site's views differ from what most sites have; empty if they do not.

    A site may lack views, and may leave its columns unnamed or its tensors flat.
    """
    found = [_difference(view, *agreed[view.name]) for view in views if view.width is not None]
    return "; ".join(difference for difference in found if difference)


def _difference(view: ViewDescription, width: int, columns: Columns) -> str:
    if view.width == width and (view.columns is None or view.columns == columns):
        return ""
    if view.width != width or is_tensor(view.columns) or is_tensor(columns):
        here, there = size_text(view.columns, view.width or 0), size_text(columns, width)
        return f"view {view.name!r} has {here}, other sites have {there}"
    missing, extra = other_names(view.columns, columns)
    if missing or extra:
        return f"view {view.name!r} has other columns than other sites: missing {missing[:5]}, unexpected {extra[:5]}"
    return f"view {view.name!r} has its columns in another order than other sites"


@dataclass(frozen=True)
class DescribeRequest:
    """What moments are asked for: of rows of length 1 or as they are, with the range of each feature or without."""

    unit_rows: bool
    ranges: bool


@dataclass(frozen=True, eq=False)
class Description:
    """What a site says of its views: their names and columns, and the moments of those that it has."""

    views: tuple[ViewDescription, ...]
    moments: tuple[Moments, ...]

    @property
    def by_view(self) -> dict[str, Moments]:
        """Moments of the views that the site has, by name."""
        return dict(zip((view.name for view in self.views if view.width is not None), self.moments, strict=True))


@dataclass(frozen=True)
class Describe(Phase[DescribeRequest, Description]):
    """Moments of the features of all sites, and the references that follow.

    Parameters
    ----------
    settings : Settings
        The scaling, the coefficients, and the number of clusters.
    """

    name: ClassVar[str] = "describe"
    request_type: ClassVar[Any] = DescribeRequest
    reply_type: ClassVar[Any] = Description

    settings: Settings

    def request(self, board: Board) -> DescribeRequest:  # noqa: ARG002
        return DescribeRequest(self.settings.scaling.unit_rows, self.settings.needs_ranges)

    @staticmethod
    def answer(site: Site, request: DescribeRequest) -> Description:
        views = site.views
        moments = site_moments(views, [int(width or 0) for width in views.widths], unit_rows=request.unit_rows)
        check_spreads(moments, views.names)
        present = [view for view, table in zip(moments, views.tables, strict=True) if table is not None]
        if not request.ranges:
            present = [
                replace(m, low=np.full(m.low.shape, np.nan), high=np.full(m.high.shape, np.nan)) for m in present
            ]
        return Description(describe_views(views), tuple(present))

    def check(self, board: Board, reply: Description, site: str) -> None:  # noqa: ARG002
        check_descriptions(reply.views, site)
        widths = [view.width for view in reply.views if view.width is not None]
        if len(reply.moments) != len(widths):
            raise MessageError(f"moments of {len(reply.moments)} views, expected {len(widths)}", site)
        for moments, width in zip(reply.moments, widths, strict=True):
            _check_moments(moments, width, site, ranges=self.settings.needs_ranges)

    def select(self, board: Board, replies: dict[str, Description]) -> tuple[dict[str, Description], dict[str, str]]:  # noqa: ARG002
        return select_alike(replies)

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        return [DescribeViews(self.settings), *scale_phases(self.settings, terms)]

    def combine(self, board: Board, replies: Mapping[str, Description]) -> Board:
        names, columns, moments = _merge(replies)
        settings = self.settings
        if moments[0].total < settings.n_clusters:
            raise DataError(
                f"All sites together have n_samples={moments[0].total:g}, which should be >= "
                f"n_clusters={settings.n_clusters}."
            )
        references = references_from_moments(moments, names, settings.scaling, settings.heat_coef)
        _check_weights(settings, names)
        return board.put(
            Schema(names, tuple(columns_code(names_of) for names_of in columns)),
            References(references),
            Population(len(replies), columns, moments, moments[0].total),
            Space(limits_from_moments(references, moments)),
        )


def _check_weights(settings: Settings, names: tuple[str, ...]) -> None:
    """Refuse view weights that are not one per view."""
    if not isinstance(settings.view_weights, str) and len(settings.view_weights) != len(names):
        raise DataError(
            f"view_weights has {len(settings.view_weights)} numbers, the sites have the views {list(names)}."
        )


def _check_moments(moments: Moments, width: int, site: str, *, ranges: bool) -> None:
    """Refuse moments that no rows can have; an unobserved feature has the range from infinity to minus infinity."""
    for name in ("weight", "mean", "squares"):
        check_array(getattr(moments, name), (width,), site, f"moments ({name})")
    for name in ("low", "high"):
        check_array(getattr(moments, name), (width,), site, f"moments ({name})", finite=False)
    told = not np.isnan(moments.low).any() and not np.isnan(moments.high).any()
    untold = bool(np.isnan(moments.low).all() and np.isnan(moments.high).all())
    if not (told if ranges else untold):
        raise MessageError("tells ranges of features without need, or does not where they are needed", site)
    if not _possible(moments):
        raise MessageError("moments that no rows can have: impossible counts or spreads, or a range inside out", site)


def _possible(view: Moments) -> bool:
    most = min(view.total, MOST_ROWS) * (1 + 1e-9)
    counted = 0 <= view.rows <= most and np.all((view.weight >= 0) & (view.weight <= most))
    if not counted or np.any(view.squares < 0):
        return False
    seen = view.weight > 0
    low, high = (np.where(seen, end, 0.0) for end in (view.low, view.high))
    if np.any(np.abs([view.mean, low, high]) > LARGEST_VALUE) or np.any(low > high):
        return False
    if np.any(~seen & ~np.isnan(view.low) & ((view.low != np.inf) | (view.high != -np.inf))):
        return False
    widest = np.square(high - low) + 1e-9 * np.square(np.maximum(np.abs(low), np.abs(high)))
    widest = np.where(np.isnan(widest), (2 * LARGEST_VALUE) ** 2, widest)
    return not np.any(view.squares > view.weight * widest)


def _merge(
    replies: Mapping[str, Description],
) -> tuple[tuple[str, ...], tuple[Columns, ...], tuple[Moments, ...]]:
    """Names, columns and moments of the views of all sites; a view without an observed value anywhere is left out."""
    agreed = agree_on_views({site: reply.views for site, reply in replies.items()})
    described = [reply.by_view for reply in replies.values()]
    total = sum(max((view.total for view in moments.values()), default=0.0) for moments in described)
    merged: dict[str, Moments] = {}
    for name, (width, _) in agreed.items():
        whole = Moments.none(width)
        for moments in described:
            if name in moments:
                whole = whole.merge(moments[name])
        if whole.rows > 0:
            merged[name] = replace(whole, total=total)
    if not merged:
        raise DataError("No site has a view with an observed value: there is nothing to cluster.")
    return tuple(merged), tuple(agreed[name][1] for name in merged), tuple(merged.values())


def select_alike(replies: dict[str, T]) -> tuple[dict[str, T], dict[str, str]]:
    """The sites whose views are those of most sites, and how the others differ."""
    agreed = agree_on_views({site: reply.views for site, reply in replies.items()})
    differences = {site: find_differences(reply.views, agreed) for site, reply in replies.items()}
    good = {site: reply for site, reply in replies.items() if not differences[site]}
    return good, {site: difference for site, difference in differences.items() if difference}


@dataclass(frozen=True)
class ViewsReply:
    """What a site says of its views, without any number of its rows."""

    views: tuple[ViewDescription, ...]


@dataclass(frozen=True)
class DescribeViews(Phase[Nothing, ViewsReply]):
    """Which views the sites have, and nothing of their rows: where runs with noise or masks begin.

    Parameters
    ----------
    settings : Settings
        The view weights.
    """

    name: ClassVar[str] = "schema"
    request_type: ClassVar[Any] = Nothing
    reply_type: ClassVar[Any] = ViewsReply

    settings: Settings

    def request(self, board: Board) -> Nothing:  # noqa: ARG002
        return Nothing()

    @staticmethod
    def answer(site: Site, request: Nothing) -> ViewsReply:  # noqa: ARG004
        return ViewsReply(describe_views(site.views))

    def check(self, board: Board, reply: ViewsReply, site: str) -> None:  # noqa: ARG002
        check_descriptions(reply.views, site)

    def select(self, board: Board, replies: dict[str, ViewsReply]) -> tuple[dict[str, ViewsReply], dict[str, str]]:  # noqa: ARG002
        return select_alike(replies)

    def combine(self, board: Board, replies: Mapping[str, ViewsReply]) -> Board:
        agreed = agree_on_views({site: reply.views for site, reply in replies.items()})
        if not agreed:
            raise DataError("No site has a view: there is nothing to cluster.")
        names, columns = tuple(agreed), tuple(names_of for _, names_of in agreed.values())
        _check_weights(self.settings, names)
        unknown = tuple(Moments.none(width) for width, _ in agreed.values())
        return board.put(
            Schema(names, tuple(columns_code(names_of) for names_of in columns)),
            Population(len(replies), columns, unknown, 0.0),
            Members(tuple(sorted(replies))),
        )


@dataclass(frozen=True)
class Energy(SumPhase[Nothing]):
    """Heat-weighted squared distance of all rows to the grand mean, per view, where coefficients are not uniform.

    References are then divided by its root, so that the mean distance is 1 in every view.
    """

    name: ClassVar[str] = "energy"
    request_type: ClassVar[Any] = Nothing

    def request(self, board: Board) -> Nothing:  # noqa: ARG002
        return Nothing()

    def size(self, board: Board) -> int:
        return len(board.get(References).references)

    @staticmethod
    def vector(site: Site, request: Nothing) -> FloatArray:  # noqa: ARG004
        return heat_energy(site.rows())

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_array(values, (self.size(board),), site, "energies", non_negative=True)

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        # with noise, references come from the ranges alone
        return super().sealed(terms) if terms.noise is None else []

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:  # noqa: ARG002
        population = board.get(Population)
        balanced = balance(board.get(References).references, total, [view.rows for view in population.moments])
        return board.put(References(balanced), Space(limits_from_moments(balanced, population.moments)))
