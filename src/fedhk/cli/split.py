"""`fedhk split`: from one file with the rows of all sites to a federation folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from fedhk._files import replacing, write_atomically
from fedhk.cli import options as o
from fedhk.cli.console import OutputExistsError, exit_codes, make_table, say, say_notes, show, to_json, write_command
from fedhk.cli.runs import absolute, is_vacant
from fedhk.errors import DataError

# What no folder may have in its name on one of the systems that people copy folders to.
NOT_IN_NAMES = '/\\:*?"<>|'

OneFile = Annotated[Path, typer.Argument(help="A file with named columns: csv, csv.gz, tsv, xlsx, parquet or feather.")]
SiteColumn = Annotated[str, typer.Option("--site", metavar="COLUMN", help="Column that says which site a row is of.")]
FolderOut = Annotated[Path, typer.Option("--out", "-o", help="Federation folder to write; it must not exist.")]
ViewName = Annotated[
    str | None, typer.Option("--view", metavar="NAME", help="Name of the view; by default that of the file.")
]


def split(file: OneFile, site: SiteColumn, out: FolderOut, view: ViewName = None, json: o.Json = False) -> None:
    """Make a federation folder of one file, a column of which says which site a row is of.

    Every site gets a folder with one file, its rows in the order in which the file has them. Cells stay as they are;
    the column of sites is left out. Files of Excel become tsv.

    For example:

        fedhk split patients.csv --site hospital --out hospitals/

        fedhk split patients.xlsx --site hospital --view lab --out hospitals/
    """
    with exit_codes():
        from fedhk.data.one_file import split_file
        from fedhk.data.tables import file_ending

        target = absolute(out)
        if not is_vacant(target):
            raise OutputExistsError(f"{str(out)!r} exists already: it is never replaced. Give another --out.")
        name = file.name[: len(file.name) - len(file_ending(file))] if view is None else view
        _check_names([name], "view")
        found = split_file(file, site)
        _check_names(found.sites, "site")
        with replacing(target) as draft:
            for each in found.sites:
                (draft / each).mkdir(mode=0o700)
                write_atomically(draft / each / f"{name}{found.ending}", found.content(each))
        say_notes(list(found.doubts))
    rows = {each: len(part) for each, part in found.sites.items()}
    if json:
        typer.echo(to_json({"out": str(target), "view": name, "sites": rows}))
        return
    show(
        make_table(f"view {name}", ("site", "rows"), [(each, f"{n:,}") for each, n in rows.items()], numbers=("rows",))
    )
    say(f"Written to {target}; `{write_command('fedhk', 'info', out)}` checks it.", err=False)


def _check_names(names: Collection[str], what: str) -> None:
    """Refuse names of sites or views that cannot be those of folders or files, or that would be passed over."""
    from fedhk.data.folders import is_left_over
    from fedhk.federation.remote.site import check_name

    for name in names:
        if set(name) & set(NOT_IN_NAMES) or name.endswith((".", " ")) or name.startswith(" ") or is_left_over(name):
            raise DataError(
                f"{name!r} cannot be the name of a {what}: it is the name of a folder or file, without any of "
                f"{' '.join(NOT_IN_NAMES)}, and none that is passed over, such as 'archive'. Rename it."
            )
        check_name(name)
    alike = [name for name, count in Counter(name.casefold() for name in names).items() if count > 1]
    if alike:
        same = [name for name in names if name.casefold() == alike[0]]
        raise DataError(f"Sites {', '.join(map(repr, same))} differ by capital letters only: write them alike.")
