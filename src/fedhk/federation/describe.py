"""The first exchange: what views the sites have, agreed by majority, and the moments of their features."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedhk.data.moments import Moments
from fedhk.data.views import Columns, is_tensor, other_names, size_text
from fedhk.errors import DataError, MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import unpack_moments, unpack_text

# Axes of a row; NumPy has no arrays with more than 64.
MOST_AXES = 63


@dataclass(frozen=True)
class Description:
    """What one site says of its views.

    Parameters
    ----------
    views : dict of str to (int or None, columns or None)
        Width and column names (of a tensor the shape of a row) of each view, in the site's order; the width is None for
        a view that it does not have.
    moments : dict of str to Moments
        Of the views that it has.
    """

    views: dict[str, tuple[int | None, Columns]]
    moments: dict[str, Moments]


def read_description(reply: Message, *, schema: bool = False) -> Description:
    """A site's description, checked; of a `schema` the views alone."""
    arrays = dict(reply.arrays)
    described = unpack_text(arrays.pop("views", None), reply.site)
    if not isinstance(described, list):
        raise MessageError("its views are not listed", reply.site)
    views = dict(_read_view(entry, reply.site) for entry in described)
    if len(views) < len(described):
        raise MessageError("two of its views have one name", reply.site)
    if schema:
        if arrays:
            raise MessageError(
                f"tells {sorted(arrays)[:5]} of its rows, where only its views were asked for", reply.site
            )
        return Description(views, {})
    widths = {name: width for name, (width, _) in views.items() if width is not None}
    moments = unpack_moments(replace(reply, arrays=arrays), list(widths.values()))
    return Description(views, dict(zip(widths, moments, strict=True)))


def _read_view(entry: Any, site: str) -> tuple[str, tuple[int | None, Columns]]:
    match entry:
        case [str(name), None, None] if name:
            return name, (None, None)
        case [str(name), int(width), None] if name and width > 0 and width is not True:
            return name, (width, None)
        case [str(name), int(width), list(columns)] if name and (
            _are_names(columns, width) or _is_shape(columns, width)
        ):
            return name, (width, tuple(columns))
    raise MessageError("its views are not described as name, width, and columns or shape", site)


def _are_names(columns: list[Any], width: int) -> bool:
    return width == len(columns) > 0 and all(isinstance(column, str) for column in columns)


def _is_shape(shape: list[Any], width: int) -> bool:
    few = 2 <= len(shape) <= MOST_AXES and all(type(size) is int and 0 < size <= width for size in shape)
    return few and math.prod(shape) == width


def same_views(sites: Sequence[tuple[str, Description]]) -> tuple[list[tuple[str, Description]], dict[str, str]]:
    """The sites whose views are those of most sites, and what is different at the others.

    A site may lack views, and may leave its columns unnamed or its tensors flat.
    """
    agreed = agreed_views(sites)
    differences = {site: _differences(description, agreed) for site, description in sites}
    good = [(site, description) for site, description in sites if not differences[site]]
    return good, {site: difference for site, difference in differences.items() if difference}


def agreed_views(sites: Sequence[tuple[str, Description]]) -> dict[str, tuple[int, Columns]]:
    """Width and columns (names, or shape of a row) that most sites give each view; among equals, of the first site.

    Views are in the order in which they are first named, whether or not that site has them.
    """
    widths: dict[str, Counter[int]] = {}
    for _, description in sites:
        for name, (width, _) in description.views.items():
            widths.setdefault(name, Counter()).update([] if width is None else [width])
    agreed: dict[str, tuple[int, Columns]] = {}
    for name, votes in widths.items():
        if votes:
            width = votes.most_common(1)[0][0]
            named = Counter(
                columns
                for _, description in sites
                for found, columns in [description.views.get(name, (None, None))]
                if found == width and columns is not None
            )
            agreed[name] = width, (named.most_common(1)[0][0] if named else None)
    return agreed


def _differences(description: Description, agreed: dict[str, tuple[int, Columns]]) -> str:
    found = [
        _difference(name, width, columns, *agreed[name])
        for name, (width, columns) in description.views.items()
        if width is not None
    ]
    return "; ".join(difference for difference in found if difference)


def _difference(name: str, width: int, columns: Columns, agreed_width: int, agreed_columns: Columns) -> str:
    if width == agreed_width and (columns is None or columns == agreed_columns):
        return ""
    if width != agreed_width or is_tensor(columns) or is_tensor(agreed_columns):
        return (
            f"view {name!r} has {size_text(columns, width)}, other sites have {size_text(agreed_columns, agreed_width)}"
        )
    missing, extra = other_names(columns, agreed_columns)
    if missing or extra:
        return f"view {name!r} has other columns than other sites: missing {missing[:5]}, unexpected {extra[:5]}"
    return f"view {name!r} has its columns in another order than other sites"


def merge_descriptions(
    sites: Sequence[tuple[str, Description]],
) -> tuple[tuple[str, ...], tuple[Columns, ...], tuple[Moments, ...]]:
    """Names, columns and moments of the views of all sites; a view without an observed value anywhere is left out."""
    agreed = agreed_views(sites)
    total = sum(max((view.total for view in site.moments.values()), default=0.0) for _, site in sites)
    merged = {}
    for name, (width, _) in agreed.items():
        moments = Moments.none(width)
        for _, site in sites:
            if name in site.moments:
                moments = moments.merge(site.moments[name])
        if moments.rows > 0:
            merged[name] = replace(moments, total=total)
    if not merged:
        raise DataError("No site has a view with an observed value: there is nothing to cluster.")
    return tuple(merged), tuple(agreed[name][1] for name in merged), tuple(merged.values())
