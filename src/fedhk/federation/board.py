"""The board holds what phases have found, one entry of each type. Sites have a copy of its shared entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from fedhk.data.views import Views
from fedhk.errors import MessageError
from fedhk.federation.codec import subclass_named
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows

E = TypeVar("E", bound="Entry")


@dataclass(frozen=True, eq=False)
class Entry:
    """Something that a phase has found and later phases need. It stays at the server unless it is `Shared`."""


class Passing(Entry):
    """An entry that is kept in memory only: checkpoints and the state files of sites leave it out."""


class Shared(Entry):
    """An entry that the server publishes: every site gets it once, with the next message."""


class RowEntry(Shared):
    """A shared entry that changes how sites read their rows. Several are applied in the order they were published."""

    keeps_cells: ClassVar[bool] = False
    """Whether rows keep their features, and missing cells stay missing."""

    @property
    def descends(self) -> bool:
        """Tell whether rounds still never raise the objective: true where sites use the parameters unchanged."""
        return True

    def apply(self, rows: Rows) -> Rows:
        """Return the site's rows as all later phases read them."""
        raise NotImplementedError

    def apply_at(self, site: Any, rows: Rows) -> Rows:
        """Return the rows of a site as all later phases read them, where that takes other entries of its board."""
        return self.apply(rows)

    def undo(self, parameters: Parameters, board: Board) -> Parameters:
        """Return final parameters, of rows as they are after this entry, for rows as they were before it."""
        return parameters

    def see(self, site: Any, parameters: Parameters, *, follow: bool) -> Parameters:
        """Return the server's parameters as the site uses them; `follow` is true for those of a new round."""
        return parameters

    def wrap(self, model: FittedModel, board: Board) -> FittedModel:
        """Return the fitted model extended by what new rows need to be read the same way."""
        raise NotImplementedError


@dataclass(frozen=True)
class Board:
    """Entries by type, in the order they were first published. A board is immutable: `put` returns a new one."""

    entries: dict[type[Entry], Entry] = field(default_factory=dict)
    # how often each type was put: tells the server whether a site has the latest version
    versions: dict[str, int] = field(default_factory=dict)

    def put(self, *entries: Entry) -> Board:
        """Return a board with these entries added, or replaced where their type was there."""
        found, versions = dict(self.entries), dict(self.versions)
        for entry in entries:
            name = type(entry).__name__
            found[type(entry)], versions[name] = entry, versions.get(name, 0) + 1
        return Board(found, versions)

    def drop(self, *kinds: type[Entry]) -> Board:
        """Return a board without entries that no later phase needs; sites keep those they have been sent."""
        return replace(self, entries={kind: entry for kind, entry in self.entries.items() if kind not in kinds})

    def get(self, kind: type[E]) -> E:
        """Return the entry of this type; raise MessageError where there is none."""
        entry = self.entries.get(kind)
        if not isinstance(entry, kind):
            raise MessageError(f"asked before {kind.__name__!r} was published")
        return entry

    def has(self, kind: type[Entry]) -> bool:
        """Tell whether there is an entry of this type."""
        return kind in self.entries

    def find(self, kind: type[E]) -> Iterator[E]:
        """Iterate over the entries of this type and of types derived from it; there may be none."""
        for entry in self.entries.values():
            if isinstance(entry, kind):
                yield entry

    def missing(self, known: dict[str, int]) -> dict[str, Shared]:
        """Return, by name, the shared entries that a site lacks or has in an older version than the board.

        `known` are the versions that the site has.
        """
        missing = {}
        for entry in self.find(Shared):
            name = type(entry).__name__
            if known.get(name) != self.versions[name]:
                missing[name] = entry
        return missing


def entry_type(name: str, base: Any = Shared) -> type[Entry]:
    """Find the type of an entry by the name it was sent under; abstract types are refused."""
    found = subclass_named(base, name)
    if "__dataclass_fields__" not in vars(found):
        raise MessageError(f"there is no {base.__name__} called {name[:100]!r}")
    return found


def align_views(views: Views, names: tuple[str, ...], widths: Iterable[int], site: str) -> Views:
    """Put a site's views in the order of the model, None where it lacks one; refuse a view of another width."""
    own = dict(zip(views.names, zip(views.tables, views.missing, views.columns, strict=True), strict=True))
    tables, missing, columns = [], [], []
    for name, width in zip(names, widths, strict=True):
        table, has_gaps, its_columns = own.get(name, (None, False, None))
        if table is not None and table.shape[1] != width:
            raise MessageError(f"view {name!r} has {table.shape[1]} features here, {width} in the model", site)
        tables.append(table)
        missing.append(has_gaps)
        columns.append(its_columns)
    return replace(views, tables=tuple(tables), names=names, missing=tuple(missing), columns=tuple(columns))
