"""The command line: `fedhk fit`, `predict`, `info`, `report`, `audit`, `flower` and `demo`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

__all__ = ["app", "main"]

# What the extra `cli` installs, by the names of the modules.
NEEDED = ("typer", "rich", "polars", "matplotlib")


def main() -> None:
    """Run the program, or say in one sentence what it lacks."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"fedhk: the command line needs {', '.join(missing)}: pip install 'fedhk[cli]' installs all of it.")
    __getattr__("app")()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedhk.cli.commands import app  # what is slow to load is loaded when it is needed

    return app
