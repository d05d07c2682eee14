"""Warnings of a fit about sites that deviate from the others, such as by a wrong unit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from fedhk._records import Records
from fedhk._text import listed
from fedhk.data.deviations import MEND, Deviation, compare_sites, describe_deviations, find_codes
from fedhk.data.views import Views, row_blocks
from fedhk.federation.board import Board
from fedhk.federation.entries import Deviations
from fedhk.federation.sealed import SealedTerms

# Most sentences in one warning.
MOST_LISTED = 10


def keep_deviations(board: Board, clients: Mapping[str, Views], terms: SealedTerms, *, unit_rows: bool) -> Records:
    """Warn of sites that deviate, and return the records that may be kept.

    In a run in the open that is what the moments of the sites say, and codes for missing values in rows that are here.
    With noise or masks, nothing but sums may be kept: sites in this process are compared, and a warning is all.
    """
    here = {site: views for site, views in clients.items() if views.n_rows}
    if empty := [site for site, views in here.items() if not _has_values(views)]:
        warnings.warn(
            f"no cell at {listed(empty)} has a value: rows there belong to all clusters alike, and get the first. Are "
            "columns named as elsewhere, and values read?",
            UserWarning,
            stacklevel=4,
        )
    entry = next(board.find(Deviations), Deviations((), {}))
    if terms.is_open:
        codes = [code for site, views in here.items() for code in find_codes(site, views)]
        found: Sequence[Deviation] = (*entry.found, *codes)
    else:
        found = compare_sites(here, unit_rows=unit_rows)
    if found:
        warnings.warn(_describe(found, entry.excluded, is_open=terms.is_open), UserWarning, stacklevel=4)
    return _list_deviations(found if terms.is_open else (), entry.excluded)


def warn_of_codes(views: Views) -> None:
    """Warn of codes for missing values in the rows of a fit at one site, which no other site can be compared with."""
    if said := describe_deviations(find_codes("X", views)):
        warnings.warn(f"{_shorten(said)} {MEND}.", UserWarning, stacklevel=4)


def _has_values(views: Views) -> bool:
    """Tell whether a site has any cell with a value."""
    tables = [(table, missing) for table, missing in zip(views.tables, views.missing, strict=True) if table is not None]
    if any(not missing or sp.issparse(table) for table, missing in tables):
        return True
    return any(
        not np.isnan(table[rows]).all()
        for table, _ in tables
        for rows in row_blocks(len(table), 8 * table.shape[1])  # a table may be larger than memory
    )


def _list_deviations(found: Sequence[Deviation], excluded: Mapping[str, str]) -> Records:
    """List deviations as records, for `deviations_`."""
    return Records(
        {
            "site": one.site,
            "view": one.view,
            "columns": list(one.columns),
            "kind": one.kind,
            "factor": one.factor,
            "excluded": one.site in excluded,
            "text": one.sentence,
        }
        for one in found
    )


def _describe(found: Sequence[Deviation], excluded: Mapping[str, str], *, is_open: bool) -> str:
    """Write the text of the warning."""
    parts = [_shorten(describe_deviations(found))]
    if excluded:
        names = ", ".join(map(repr, excluded))
        kept = "keep what you are sure of with participation=fedhk.Participation(deviating='warn')"
        parts.append(f"Left out of the model: {names}. {MEND}, or {kept}.")
    elif is_open:
        parts.append(f"{MEND}.")
    else:
        parts.append(f"{MEND}: noise and masks hide single sites, so that none is left out.")
    return " ".join(parts)


def _shorten(said: Sequence[str]) -> str:
    """Join sentences, of many only the first."""
    more = len(said) - MOST_LISTED
    return " ".join([*said[:MOST_LISTED], *([f"And {more} more."] if more > 0 else [])])
