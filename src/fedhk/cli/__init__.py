"""The command line: `fedhk fit`, `predict`, `info`, `report`, `ledger`, `audit`, `flower` and `demo`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["app", "main"]

# What the extra `cli` installs, by the names of the modules.
NEEDED = ("typer", "click", "rich", "polars", "matplotlib")
UNUSABLE = 3


def main() -> None:
    """Run the program, or say in one sentence which packages it lacks."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(f"Error: the command line needs {', '.join(missing)}: pip install 'fedhk[cli]'\n")
        sys.exit(UNUSABLE)
    __getattr__("app")()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("fedhk.cli.commands").app  # typer and rich may be missing before `main` has looked for them
