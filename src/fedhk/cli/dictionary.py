"""`fedhk dictionary`: begin a data dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhk._files import READABLE, write_atomically
from fedhk.cli import options as o
from fedhk.cli.algorithms import list_tables
from fedhk.cli.console import check_new, counted, exit_codes, say, say_notes, to_json
from fedhk.cli.info import read_data

if TYPE_CHECKING:
    from fedhk.data.folders import Federation

DictionaryOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="File to write; by default dictionary.toml in FOLDER.")
]


def dictionary(  # noqa: PLR0917
    folder: o.DataPath,
    out: DictionaryOut = None,
    id_column: o.IdColumn = None,
    ignore: o.Ignore = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Write a data dictionary to begin with: every column with its kind, levels of categories, codes for missing cells.

    Add units and ranges by hand, and give every site the file: from then on what a site's files hold must be what it
    says, before anything leaves. With noise or masks, levels must be named in it; its ranges are the bounds of noise.

    For example:

        fedhk dictionary hospitals/

        fedhk dictionary hospitals/oslo --out dictionary.toml
    """
    with exit_codes():
        from fedhk.data.dictionary import DICTIONARY, write_dictionary

        target = out or folder / DICTIONARY
        check_new(target, force=force)
        found, codes = _infer(read_data(folder, id_column, ignore))
        write_atomically(target, write_dictionary(found, id_column).encode(), READABLE)
        say_notes([f"{where}: {value} is taken for a missing cell; look at it." for where, value in codes.items()])
    if json:
        typer.echo(to_json({"out": str(target), "columns": {view: len(entries) for view, entries in found.items()}}))
    else:
        say(f"Written to {target}: {counted(sum(map(len, found.values())), 'column')}.", err=False)
        say("Add units and ranges of numbers by hand; runs with noise take the ranges for bounds.", err=False)


def _infer(federation: Federation) -> tuple[dict[str, Any], dict[str, str]]:
    """Make entries for all named columns, and list likely codes of missing values, by view and column."""
    from fedhk.data.clients import check_clients
    from fedhk.data.deviations import find_codes
    from fedhk.data.dictionary import infer_entries

    tables = check_clients(list_tables(federation))
    codes: dict[str, dict[str, set[float]]] = {view: {} for view in federation.columns}
    for site, views in tables.items():
        for code in find_codes(site, views):
            codes[code.view].setdefault(code.columns[0], set()).add(code.factor)
    found = {}
    for view, columns in federation.columns.items():
        if columns is not None:
            kinds = {
                name: kind for site in federation.sites.values() for name, kind in site.kinds.get(view, {}).items()
            }
            found[view] = infer_entries(columns, kinds, codes[view])
    entries = ((f"{view}/{name}", entry) for view, own in found.items() for name, entry in own.items())
    return found, {where: " and ".join(entry.missing) for where, entry in entries if entry.missing}
