"""Many small sites of one process answer as one: one pass over all their rows and one message, where replies add.

What a site answers by itself remains the definition. A phase that `adds` asks for sums over rows, so that the answer
from the rows of many sites together is the sum of their answers, but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk.data.scaling import POOLED_COEFS
from fedhk.federation.board import Board, RowEntry
from fedhk.federation.codec import pack
from fedhk.federation.entries import References
from fedhk.federation.gate import Guard, answer_message
from fedhk.federation.messages import Message
from fedhk.federation.several import SUM_OF, sum_type
from fedhk.federation.site import Site

# From so many sites on, messages of small sites take longer than their rows. Fewer answer one by one, so that a run has
# the same bits here as over a network.
MANY_SITES = 1_000

# A site with more cells answers by itself: a pass over so many takes about as long as its message.
MOST_CELLS = 10_000


class Pools:
    """Pools of small sites, reused from round to round while the same sites are asked."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, ...], Site] = {}

    def gather(self, sites: Mapping[str, Site], workers: int) -> list[tuple[tuple[str, ...], Site]]:
        """Return the names of sites that can answer as one, each group with a site that has the rows of all of them."""
        groups: dict[Any, list[str]] = {}
        for name, site in sites.items():
            views = site.views
            if views.n_rows * sum(filter(None, views.widths)) <= MOST_CELLS:
                form = views.names, views.widths, views.missing, views.dtype, views.columns, _list_entries(site.board)
                groups.setdefault(form, []).append(name)
        found = [tuple(names) for names in groups.values() if len(names) > 1 and _is_common(sites[names[0]].board)]
        kept = {names: self._pools.get(names) for names in found}
        self._pools = {
            names: replace(pool or _join([sites[name] for name in names], workers), board=sites[names[0]].board)
            for names, pool in kept.items()
        }
        return list(self._pools.items())

    def keep(self, names: tuple[str, ...], pool: Site) -> None:
        """Keep a pool after an answer, with its cache."""
        self._pools[names] = pool


def answer_as_one(pool: Site, names: tuple[str, ...], guard: Guard, message: Message, read: Any) -> Any:
    """Return the pool after a message, and the sum of its sites' replies; None where sites read rows their own way."""
    phase = guard.phase(message.kind)
    after, answer = answer_message(pool, guard, message, read)
    if not _is_common(after.board):
        return None
    kind = sum_type(phase.reply_type)
    values, arrays = pack((names, answer.read(phase.reply_type)), kind)
    return after, Message(SUM_OF + message.kind, pool.name, message.round, arrays, values)


def _list_entries(board: Board) -> tuple[int, ...]:
    return tuple(map(id, board.entries.values()))


def _is_common(board: Board) -> bool:
    """Tell whether all sites read rows the same way, so that nothing depends on a site's own rows."""
    own = any(r.heat_coef in POOLED_COEFS for entry in board.find(References) for r in entry.references)
    return not own and not any(board.find(RowEntry))


def _join(sites: list[Site], workers: int) -> Site:
    """Make one site with the rows of all, whose views have the same form."""
    views = [site.views for site in sites]
    tables = tuple(_stack(parts) for parts in zip(*(own.tables for own in views), strict=True))
    joined = replace(views[0], tables=tables, n_rows=sum([own.n_rows for own in views]), index=None)
    return Site(sites[0].name, joined, sites[0].board, workers=workers)


def _stack(parts: Iterable[Any]) -> Any:
    tables = list(parts)
    if tables[0] is None:
        return None
    return sp.vstack(tables, format="csr") if sp.issparse(tables[0]) else np.concatenate(tables)
