"""Lists of records that show themselves as tables."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, SupportsIndex, overload

from fedhk.summary.html import frame, table

Record = dict[str, Any]

# Records that are shown; of more of them, as many of the first and of the last, and those that were taken.
MOST_SHOWN = 24


class Records(list[Record]):
    """Records in a list, as a table in consoles and notebooks; `pandas.DataFrame(records)` makes a frame of them.

    Examples
    --------
    >>> from fedhk._records import Records
    >>> Records([{"round": 1, "objective": 16.664159}, {"round": 2, "objective": 16.658396}])
    round  objective
        1    16.6642
        2    16.6584
    """

    @overload
    def __getitem__(self, index: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Record | Records:
        """Return one record, or a part of the table."""
        return Records(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def __repr__(self) -> str:
        """Show the table in plain text, with numbers aligned to the right."""
        names, rows = self._cells()
        if not names:
            return super().__repr__()
        columns = []
        for name, *cells in zip(names, *rows, strict=True):
            side = ">" if any(isinstance(record.get(name), Real) for record in self) else "<"
            width = max(map(len, (name, *cells)))
            columns.append([f"{cell:{side}{width}}" for cell in (name, *cells)])
        return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))

    def _repr_html_(self) -> str:
        """Show the table in notebooks."""
        names, rows = self._cells()
        return frame(table(names, rows)) if names else f"<code>{super().__repr__()}</code>"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the names of all fields, and the texts of the records; of a long list, a part is left out.

        Of a series that is most of its middle, because its end counts as well as its beginning. Where one of several
        was taken, it is what comes last, but for that one.
        """
        names = list(dict.fromkeys(name for record in self for name in record))
        half = MOST_SHOWN // 2
        last = 0 if "taken" in names else half
        left_out: Record = dict.fromkeys(names, "…")
        shown: list[Record] = []
        for place, record in enumerate(self):
            if place < half or place >= len(self) - last or record.get("taken") is True:
                shown.append(record)
            elif shown[-1] is not left_out:
                shown.append(left_out)
        return names, [[_shown(record.get(name)) for name in names] for record in shown]


def _shown(value: Any) -> str:
    """Write a value in a cell; a mapping is shown by its keys, an empty one by nothing."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
