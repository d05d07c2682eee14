"""The board: what phases have found, one entry of each type, at the server and, where it is shared, at every site."""

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
    """An entry that ends with the process: checkpoints and state files of sites leave it out."""


class Shared(Entry):
    """An entry that the server publishes: every site gets it once, with the next message."""


class RowEntry(Shared):
    """A shared entry that changes how sites read their rows; several are applied in the order of their publication."""

    keeps_cells: ClassVar[bool] = False
    """Whether rows have the same features after it, and a cell that is missing stays missing."""

    @property
    def descends(self) -> bool:
        """Whether a round still cannot raise the objective, because sites see the parameters as they are."""
        return True

    def apply(self, rows: Rows) -> Rows:
        """A site's rows as all later phases see them."""
        raise NotImplementedError

    def see(self, site: Any, parameters: Parameters, *, follow: bool) -> Parameters:
        """The server's parameters as a site sees them; `follow` says that they are those of a new round."""
        return parameters

    def wrap(self, model: FittedModel, board: Board) -> FittedModel:
        """The fitted model with what brings new rows to the same space; `board` has what else was published."""
        raise NotImplementedError


@dataclass(frozen=True)
class Board:
    """Entries by type, in the order of their first publication. A board does not change: `put` makes a new one."""

    entries: dict[type[Entry], Entry] = field(default_factory=dict)
    # how often each type was put, by which the server knows whether a site has the latest
    versions: dict[str, int] = field(default_factory=dict)

    def put(self, *entries: Entry) -> Board:
        """The board with more entries, or with others in their place."""
        found, versions = dict(self.entries), dict(self.versions)
        for entry in entries:
            name = type(entry).__name__
            found[type(entry)], versions[name] = entry, versions.get(name, 0) + 1
        return Board(found, versions)

    def drop(self, *kinds: type[Entry]) -> Board:
        """The board without entries that no later phase needs; those that are shared stay at the sites."""
        return replace(self, entries={kind: entry for kind, entry in self.entries.items() if kind not in kinds})

    def get(self, kind: type[E]) -> E:
        """The entry of a type, which must be there."""
        entry = self.entries.get(kind)
        if not isinstance(entry, kind):
            raise MessageError(f"asked before {kind.__name__!r} was published")
        return entry

    def has(self, kind: type[Entry]) -> bool:
        """Whether there is an entry of this type."""
        return kind in self.entries

    def find(self, kind: type[E]) -> Iterator[E]:
        """All entries of a type or derived from it, in the order of their publication; often none."""
        for entry in self.entries.values():
            if isinstance(entry, kind):
                yield entry

    def missing(self, known: dict[str, int]) -> dict[str, Shared]:
        """Shared entries of which a site does not have the latest, by name; `known` are the versions that it has."""
        missing = {}
        for entry in self.find(Shared):
            name = type(entry).__name__
            if known.get(name) != self.versions[name]:
                missing[name] = entry
        return missing


def entry_type(name: str, base: Any = Shared) -> type[Entry]:
    """The type of an entry that was sent under this name; types that others are derived from are not sent."""
    try:
        found = subclass_named(base, name)
    except ValueError as error:
        raise MessageError(str(error)) from error
    if "__dataclass_fields__" not in vars(found):
        raise MessageError(f"there is no {base.__name__} called {name[:100]!r}")
    return found


def align_views(views: Views, names: tuple[str, ...], widths: Iterable[int], site: str) -> Views:
    """A site's views in the order of the model, None where it lacks one; refuses a view of another width."""
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
