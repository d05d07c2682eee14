"""What the commands say and where: results on standard output, all else on standard error, errors as exit codes."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedhk.errors import FedHKError

UNEXPECTED, UNUSABLE, TOO_FEW_SITES, OUTPUT_EXISTS, INTERRUPTED = 1, 3, 4, 5, 130

# Longer lists of sites are cut: a table is to be read.
MOST_ROWS = 25


class OutputExistsError(FedHKError):
    """Something is already where the result should go."""


def output() -> Console:
    """Standard output; 100 columns where it is no terminal."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if known else 100)


def say(text: str) -> None:
    """A message to the user, on standard error."""
    typer.echo(text, err=True)


def show_json(document: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(to_json(document))


def to_json(document: Any) -> str:
    """A document as JSON text; numbers that JSON does not have are null."""
    return json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_table(title: str, *columns: str, numbers: Sequence[str] = ()) -> Table:
    """A table with a title; `numbers` are the columns that are set to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left")
    return table


def add_rows(table: Table, rows: Sequence[Sequence[Any]]) -> Table:
    """Fill a table; of many rows the first, and how many more there are."""
    for row in rows[:MOST_ROWS]:
        table.add_row(*(escape(str(cell)) for cell in row))
    if len(rows) > MOST_ROWS:
        table.add_row(f"and {len(rows) - MOST_ROWS:,} more")
    return table


def facts_table(title: str, facts: Sequence[tuple[str, Any]]) -> Table:
    """A table of two columns, what and how much; facts that are None are left out."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    for name, value in facts:
        if value is not None:
            table.add_row(name, escape(str(value)))
    return table


def counted(number: int, what: str) -> str:
    """A number of things: "1 site", "2 sites"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def told(number: int | None) -> str:
    """A number of things that sites may keep to themselves."""
    return "not told" if number is None else f"{number:,}"


def size(n_bytes: float) -> str:
    """Bytes as people read them."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.2f} {unit}"
    return f"{n_bytes:.0f} B"


@contextmanager
def exit_codes(when_interrupted: str = "") -> Iterator[None]:
    """Turn errors into one line on standard error and an exit code that says what kind it is.

    Parameters
    ----------
    when_interrupted : str
        What to do after Ctrl-C, if anything can be done.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt as error:
        say(f"Interrupted. {when_interrupted}".strip())
        raise typer.Exit(INTERRUPTED) from error
    except Exception as error:
        if os.environ.get("FEDHK_DEBUG", "") not in ("", "0"):
            traceback.print_exc()
        code = exit_code(error)
        text = " ".join(str(error).split())
        if code == UNEXPECTED:
            text = f"unexpected {type(error).__name__}: {text} (FEDHK_DEBUG=1 shows where)"
        say(f"Error: {text}")
        raise typer.Exit(code) from error


def exit_code(error: Exception) -> int:
    """The exit code of an error."""
    from fedhk.federation.run import QuorumError

    known: int | None = getattr(error, "exit_code", None)  # of a process elsewhere
    if known is not None:
        return known
    if isinstance(error, OutputExistsError):
        return OUTPUT_EXISTS
    if isinstance(error, QuorumError):
        return TOO_FEW_SITES
    return UNUSABLE if isinstance(error, FedHKError | ValueError | OSError) else UNEXPECTED
