"""One file with the rows of all sites, of which a column says whose they are, or of one: its cells, site by site."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fedhk._names import suggest
from fedhk._text import listed
from fedhk.data.file_columns import MISSING_TEXTS, TEXT
from fedhk.data.tables import file_ending, read_cells
from fedhk.errors import DataError

# Files with named columns, and the kind of file that is written of each. Text in Excel files may have decimal commas,
# and so may text between tabs.
WRITTEN = {
    ".csv": ".csv",
    ".csv.gz": ".csv",
    ".tsv": ".tsv",
    ".xlsx": ".tsv",
    ".parquet": ".parquet",
    ".feather": ".feather",
}


# Longer lists of files are written as a pattern.
MOST_FILES = 5


@dataclass(frozen=True, eq=False)
class SplitFile:
    """The rows of one file by site."""

    sites: dict[str, pl.DataFrame]  # sorted by name, without the column of sites; cells of text files are text
    ending: str  # of the files to write
    separator: str  # of the cells of text files
    doubts: tuple[str, ...]  # what may be read otherwise than it was meant

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the files to write: as they are named in the file, by their names without spaces around them."""
        rows = next(iter(self.sites.values()))
        return {name.strip(): name for name in rows.columns}

    def content(self, site: str, columns: Sequence[str]) -> bytes:
        """Write the file of one site with some of its columns."""
        known, buffer = self.columns, io.BytesIO()
        rows = self.sites[site].select([known[name] for name in columns])
        if self.ending == ".parquet":
            rows.write_parquet(buffer)
        elif self.ending == ".feather":
            rows.write_ipc(buffer)
        else:
            days = [
                pl.col(name).dt.total_seconds() / 86400 for name, kind in rows.schema.items() if kind == pl.Duration
            ]
            rows.with_columns(days).write_csv(buffer, separator=self.separator, time_format="%H:%M:%S")
        return buffer.getvalue()


def advise_split(path: Path) -> str:
    """Say how a file with the rows of all sites becomes a folder; empty if it is no file with named columns."""
    if file_ending(path) not in WRITTEN:
        return ""
    return (
        "FedHK reads a folder with a sub-folder per site. If a column of the file says which site a row is of, "
        f"`fedhk split {shlex.quote(str(path))} --site COLUMN --out FOLDER` makes one."
    )


def advise_files(paths: Sequence[Path]) -> str:
    """Say how files that lie in no folder of a site become a federation; empty where none has named columns."""
    files = [shlex.quote(str(path)) for path in paths if file_ending(path) in WRITTEN]
    if not files:
        return ""
    named = " ".join(files) if len(files) <= MOST_FILES else f"{shlex.quote(str(paths[0].parent))}/*"
    each = f" If each file is a site, leave --site out: `fedhk split {named} --out FOLDER`." if len(files) > 1 else ""
    return (
        " If a column says which site a row is of, "
        f"`fedhk split {named} --site COLUMN --out FOLDER` makes a federation.{each}"
    )


def split_file(path: Path, column: str) -> SplitFile:
    """Read a file and divide its rows by a column that names their site.

    Raises
    ------
    DataError
        If the file cannot be read or has no such column, a row has no site, or a column is no column of sites.
    """
    frame, separator, doubts = _read_frame(path)
    names = {name.strip(): name for name in frame.columns}
    if column not in names:
        raise DataError(
            f"file {path.name!r} has no column {column!r}; it has {listed(names)}.{suggest(column, list(names))}"
        )
    if len(names) < 2:
        raise DataError(f"file {path.name!r} has no column beside {column!r}; at least one is needed.")
    sites = _read_sites(frame[names[column]], path)
    rows = frame.drop(names[column])
    found = {name: rows.filter(sites == name) for name in sorted(sites.unique().to_list())}
    return SplitFile(found, WRITTEN[file_ending(path)], separator, doubts)


def read_whole(path: Path) -> SplitFile:
    """Read a file that has the rows of one site, which is called like the file."""
    frame, separator, doubts = _read_frame(path)
    name = path.name[: len(path.name) - len(file_ending(path))]
    return SplitFile({name: frame}, WRITTEN[file_ending(path)], separator, doubts)


def _read_frame(path: Path) -> tuple[pl.DataFrame, str, tuple[str, ...]]:
    """Read the cells of a file, what separates them, and doubts."""
    if not path.is_file() or file_ending(path) not in WRITTEN:
        what = "is a folder" if path.is_dir() else "is no such file" if path.exists() else "does not exist"
        raise DataError(f"{str(path)!r} {what}: give one file with named columns ({', '.join(WRITTEN)}).")
    try:
        return read_cells(path)
    except DataError as error:  # which takes the folder for a site
        raise DataError(str(error).removeprefix(f"site {path.parent.name!r}, ")) from error


def _read_sites(column: pl.Series, path: Path) -> pl.Series:
    """Read the site of each row, without spaces around it."""
    where = f"file {path.name!r}, column {column.name.strip()!r}"
    if not len(column):
        raise DataError(f"file {path.name!r} has no rows; at least one is needed.")
    if not (column.dtype in TEXT or column.dtype.is_integer()):
        raise DataError(f"{where} holds {column.dtype}; sites are named by text or whole numbers.")
    sites = column.cast(pl.String).str.strip_chars()
    missing = (sites.is_null() | sites.str.to_lowercase().is_in(MISSING_TEXTS)).fill_null(True)
    if missing.any():
        row = int(missing.arg_max() or 0) + 1
        raise DataError(
            f"{where}: row {row} has no site ({missing.sum()} of {len(sites)} have none). Fill it in first."
        )
    if len(sites) > 1 and sites.is_unique().all():
        raise DataError(f"{where} has another value in every row: it does not say which site a row is of.")
    return sites
