"""`fedhk dictionary`: begin a data dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedhk._files import READABLE, write_atomically
from fedhk.cli import options as o
from fedhk.cli.console import OutputExistsError, counted, exit_codes, say, to_json

DataFolder = Annotated[Path, typer.Argument(help="A federation folder, or the folder of one site.")]
DictionaryOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="File to write; by default dictionary.toml in FOLDER.")
]


def dictionary(folder: DataFolder, out: DictionaryOut = None, force: o.Force = False, json: o.Json = False) -> None:
    """Write a data dictionary to begin with: every column with its kind, and the levels of categories.

    Add units, ranges and codes for missing values by hand, and give every site the file: from then on what a site's
    files hold must be what it says, before anything leaves. With noise or masks, levels must be named in it.

    For example:

        fedhk dictionary hospitals/

        fedhk dictionary hospitals/oslo --out dictionary.toml
    """
    with exit_codes():
        from fedhk.cli.predict import site_folders
        from fedhk.data.dictionary import DICTIONARY, infer_entries, write_dictionary
        from fedhk.data.folders import read_federation, read_site

        target = out or folder / DICTIONARY
        if target.exists() and not force:
            raise OutputExistsError(f"{str(target)!r} exists already; --force replaces it.")
        columns = (read_site(folder) if site_folders(folder) == [folder] else read_federation(folder)).columns
        found = {view: infer_entries(names) for view, names in columns.items() if names is not None}
        write_atomically(target, write_dictionary(found).encode(), READABLE)
    if json:
        typer.echo(to_json({"out": str(target), "columns": {view: len(entries) for view, entries in found.items()}}))
    else:
        say(f"Written to {target}: {counted(sum(map(len, found.values())), 'column')}.", err=False)
