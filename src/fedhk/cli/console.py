"""Output of the commands: results on standard output, messages on standard error, errors as exit codes."""

from __future__ import annotations

import json
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedhk._text import is_printable, printable
from fedhk.cli import UNUSABLE
from fedhk.errors import FedHKError, QuorumError

UNEXPECTED, TOO_FEW_SITES, OUTPUT_EXISTS, INTERRUPTED = 1, 4, 5, 130

# Longer lists of sites are cut: a table is to be read.
MOST_ROWS = 25


class OutputExistsError(FedHKError):
    """Something is already where the result should go."""


def check_new(file: Path | None, *, force: bool) -> None:
    """Refuse a file that exists already, unless it shall be replaced; a folder is never replaced by a file."""
    if file is not None and file.exists() and (not force or file.is_dir()):
        hint = "it is a folder" if file.is_dir() else "--force replaces it"
        raise OutputExistsError(f"{str(file)!r} exists already; {hint}.")


def show(*parts: Any) -> None:
    """Write tables and paragraphs on standard output, 100 columns wide where that is no terminal."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(highlight=False, width=None if known else 100).print(*parts)


def say(text: str, *, err: bool = True) -> None:
    """Write a message to the user, on standard error; names and reasons in it may come from anybody."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err)


def write_command(*words: object) -> str:
    """Write a command as a shell takes it: a folder may have blanks in its name."""
    return shlex.join(map(str, words))


def say_progress(text: str) -> None:
    """Write what is being done, where somebody watches: on standard error, if that is a terminal."""
    if sys.stderr.isatty():
        say(text)


def say_notes(texts: Sequence[str]) -> None:
    """Write things that the user should know of, one line each."""
    for text in texts:
        say(f"Note: {' '.join(text.split())}")


def to_json(document: Any) -> str:
    """Write a document as JSON text; numbers that JSON does not have are null, what a terminal obeys is escaped."""
    plain = json.loads(json.dumps(document), parse_constant=lambda _: None)
    text = json.dumps(plain, indent=2, ensure_ascii=False)
    return "".join(c if c == "\n" or is_printable(c) else json.dumps(c)[1:-1] for c in text)


def _as_text(value: Any) -> str:
    """Convert anything to text without control characters for the terminal or markup for rich."""
    return escape(printable(str(value)))


def make_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numbers: Sequence[str] = (),
    most: int = MOST_ROWS,
) -> Table:
    """Make a table with a title; `numbers` are the columns that are set to the right. Rows after `most` are cut."""
    table = Table(title=_as_text(title), title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(_as_text(column), justify="right" if column in numbers else "left")
    for row in rows[:most]:
        table.add_row(*map(_as_text, row))
    if len(rows) > most:
        table.add_row(f"and {len(rows) - most:,} more")
    return table


def make_facts_table(title: str, facts: Sequence[tuple[str, Any]]) -> Table:
    """Make a table of two columns, what and how much; facts that are None are left out."""
    table = Table(title=_as_text(title), title_justify="left", title_style="bold", show_header=False)
    for name, value in facts:
        if value is not None:
            table.add_row(_as_text(name), _as_text(value))
    return table


def counted(number: int, what: str) -> str:
    """Format a number of things: "1 site", "2 sites"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def format_count(number: int | None) -> str:
    """Format a number that sites need not report."""
    return "not told" if number is None else f"{number:,}"


def format_bytes(n_bytes: float) -> str:
    """Format a number of bytes as people read it."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.2f} {unit}"
    return f"{n_bytes:.0f} B"


@contextmanager
def show_progress(what: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Show a bar on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def show_warnings() -> Iterator[None]:
    """Show Python's warnings as notes of one line each, without file and line, and each text once."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            say_notes([str(message)])

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def exit_codes(when_interrupted: str = "") -> Iterator[None]:
    """Turn errors into one line on standard error and an exit code that says what kind it is; warnings into notes.

    `when_interrupted` says what to do after Ctrl-C, if anything can be done.
    """
    try:
        with show_warnings():
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
    """Choose the exit code of an error."""
    known: int | None = getattr(error, "exit_code", None)  # of a process elsewhere
    if known is not None:
        return known
    if isinstance(error, OutputExistsError):
        return OUTPUT_EXISTS
    if isinstance(error, QuorumError):
        return TOO_FEW_SITES
    return UNUSABLE if isinstance(error, FedHKError | ValueError | OSError) else UNEXPECTED
