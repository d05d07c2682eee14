"""Warnings about a site's rows for its operator. They go to the site's log and never leave the site.

No answer depends on it. Where a run hides single sites, nobody else can see such a mistake.
"""

from __future__ import annotations

import logging

from fedhk.data.deviations import compare_with_all, find_codes
from fedhk.data.views import Views
from fedhk.errors import DataError
from fedhk.federation.board import Board
from fedhk.federation.entries import References, Schema, Terms
from fedhk.federation.remote.policy_guard import read_public_bounds
from fedhk.federation.site import Site
from fedhk.privacy.outside import MOST_OUTSIDE, REMEDY, own_bounds, shares_outside

LOG = logging.getLogger("fedhk.site")


def log_mistakes(site: Site, before: Board) -> None:
    """Log warnings about the rows of a site when a run or its first references are new; errors are logged too."""
    try:
        if not before.has(Terms) or before.get(Terms).run != site.board.get(Terms).run:
            _log_bounds(site)
        if site.board.has(References) and not before.has(References):
            _log_deviations(site)
    except Exception:
        LOG.exception("site %r cannot look for mistakes in its rows", site.name)


def _log_bounds(site: Site) -> None:
    for bounds in read_public_bounds(site.board.get(Terms)):
        for outside in shares_outside(site.views, own_bounds(site.views, bounds)):
            if outside.is_worth_a_word:
                LOG.warning("site %r: in this run, %s.", site.name, outside)


def _log_deviations(site: Site) -> None:
    names, references = site.board.get(Schema).names, site.board.get(References).references
    for text in compare_with_all(site.views, names, references):
        LOG.warning("site %r: %s", site.name, text)
    for code in find_codes(site.name, site.views):
        LOG.warning("site %r: %s", site.name, code.reason)


def check_policy_bounds(name: str, views: Views, bounds: object) -> list[str]:
    """Refuse bounds of a site's policy that exclude most values of a view; return further warnings."""
    notes = [code.sentence for code in find_codes(name, views)]
    if bounds is None:
        return notes
    try:
        shares = shares_outside(views, own_bounds(views, bounds))
    except ValueError as error:  # of views that the site lacks, nothing is known here
        return [*notes, f"policy: the bounds were not compared with the rows: {error}"]
    for outside in shares:
        if outside.share > MOST_OUTSIDE:
            raise DataError(f"policy: bounds={bounds!r}: {outside}. {REMEDY}.")
        if outside.is_worth_a_word:
            notes.append(f"policy: {outside}.")
    return notes
