"""`fedhk split`: from one file or several with the rows of all sites to a federation folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedhk._files import replacing, write_atomically
from fedhk._names import suggest
from fedhk._text import listed
from fedhk.cli import options as o
from fedhk.cli.console import OutputExistsError, exit_codes, make_table, say, say_notes, show, to_json, write_command
from fedhk.cli.runs import absolute, is_vacant
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk.data.one_file import SplitFile

# What no folder may have in its name on one of the systems that people copy folders to.
NOT_IN_NAMES = '/\\:*?"<>|'

Files = Annotated[
    list[Path],
    typer.Argument(help="Files with named columns: csv, csv.gz, tsv, xlsx, parquet or feather.", metavar="FILE..."),
]
SiteColumn = Annotated[
    str | None,
    typer.Option(
        "--site", metavar="COLUMN", help="Column that says which site a row is of. Default: each file is a site."
    ),
]
FolderOut = Annotated[Path, typer.Option("--out", "-o", help="Federation folder to write; it must not exist.")]
ViewColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--view",
        metavar="NAME[=COLUMN,...]",
        help="Name of a view, and its columns; may be repeated. Default: one view of all columns, named like the file.",
    ),
]


def split(  # noqa: PLR0917
    files: Files,
    out: FolderOut,
    site: SiteColumn = None,
    view: ViewColumns = None,
    id_column: o.IdColumn = None,
    json: o.Json = False,
) -> None:
    """Make a federation folder of files with a column that says which site a row is of, or of a file for each site.

    Every site gets a folder with a file for each view, its rows in the order in which the file has them. Cells stay as
    they are; the column of sites is left out. Every view has the column of ids. Files of Excel become tsv. Of several
    files, each is a view; without --site, each is a site of its name.

    For example:

        fedhk split patients.csv --site hospital --out hospitals/

        fedhk split patients.csv --site hospital --view record=age,sex --view lab=crp,sodium --out hospitals/

        fedhk split patients.csv --site hospital --view later=days,died --out follow-up/

        fedhk split record.csv lab.csv --site hospital --out hospitals/

        fedhk split oslo.csv rome.csv --out hospitals/
    """
    with exit_codes():
        target = absolute(out)
        if not is_vacant(target):
            raise OutputExistsError(f"{str(out)!r} exists already: it is never replaced. Give another --out.")
        parts = _read_files(files, site, view, id_column)
        sites = list(dict.fromkeys(each for part, _ in parts for each in part.sites))
        views = {name: columns for _, own in parts for name, columns in own.items()}
        _check_names(views, "view")
        _check_names(sites, "site")
        with replacing(target) as draft:
            for each in sites:
                (draft / each).mkdir(mode=0o700)
            for part, own in parts:
                for each, name in product(part.sites, own):
                    write_atomically(draft / each / f"{name}{part.ending}", part.content(each, own[name]))
        say_notes([doubt for part, _ in parts for doubt in part.doubts])
    rows = {each: max(len(part.sites[each]) for part, _ in parts if each in part.sites) for each in sorted(sites)}
    if json:
        typer.echo(to_json({"out": str(target), "views": views, "sites": rows}))
        return
    for name, columns in views.items():
        say(f"view {name!r}: {listed(columns)}", err=False)
    show(make_table("sites", ("site", "rows"), [(each, f"{n:,}") for each, n in rows.items()], numbers=("rows",)))
    left_out = [name for part, own in parts for name in part.columns if all(name not in used for used in own.values())]
    if left_out:
        say(f"In no view: {listed(dict.fromkeys(left_out))}.", err=False)
    ids = () if id_column is None else ("--id", id_column)
    say(f"Written to {target}; `{write_command('fedhk', 'info', out, *ids)}` checks it.", err=False)


def _read_files(
    files: Sequence[Path], site: str | None, view: list[str] | None, id_column: str | None
) -> list[tuple[SplitFile, dict[str, list[str]]]]:
    """Read the files, each with the views that it has: each is a view of all sites, or without `site` a site."""
    from fedhk.data.frames import ONLY_VIEW
    from fedhk.data.one_file import read_whole, split_file

    if site is None:
        if len(files) == 1:
            raise typer.BadParameter("is needed for one file: the column that names the site.", param_hint="--site")
        wholes = [read_whole(file) for file in files]
        names = [each for whole in wholes for each in whole.sites]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise DataError(
                f"Several files are called {twice[0]!r}: without --site, the name of a file is that of a site."
            )
        return [
            (whole, _choose_columns(file, whole, view or [ONLY_VIEW], id_column))
            for file, whole in zip(files, wholes, strict=True)
        ]
    if view and len(files) > 1:
        raise typer.BadParameter("goes with one file: of several, each is a view.", param_hint="--view")
    parts = [(part := split_file(file, site), _choose_columns(file, part, view, id_column)) for file in files]
    names = [name for _, own in parts for name in own]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"Several files are called {twice[0]!r}: the name of a file is that of a view.")
    return parts


def _choose_columns(
    file: Path, found: SplitFile, given: list[str] | None, id_column: str | None
) -> dict[str, list[str]]:
    """Read the views that the user asks for: the columns of each, with that of ids first."""
    from fedhk.data.tables import file_ending

    usual = file.name[: len(file.name) - len(file_ending(file))]
    ids = [name for name in (id_column or "id",) if id_column is not None or name in found.columns]
    views: dict[str, list[str]] = {}
    for text in given or [usual]:
        name, has_columns, rest = text.partition("=")
        columns = [each.strip() for each in rest.split(",")] if has_columns else list(found.columns)
        wanted = list(dict.fromkeys([*ids, *columns]))
        unknown = [each for each in wanted if each not in found.columns]
        if unknown:
            raise DataError(
                f"file {file.name!r} has no column {unknown[0]!r} for view {name!r}; it has {listed(found.columns)}."
                f"{suggest(unknown[0], list(found.columns))}"
            )
        if name in views:
            raise DataError(f"View {name!r} is given twice: a view has all of its columns in one --view.")
        views[name] = wanted
    return views


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
