"""What a benchmark says of itself."""

from __future__ import annotations

import sys


def show_help(text: str | None) -> None:
    """Write what a script does and end it, where its user asks for help instead of figures."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        sys.stdout.write(f"{(text or '').strip()}\n")
        raise SystemExit
