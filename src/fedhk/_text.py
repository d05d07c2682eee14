"""Makes untrusted text safe to show, and lists names: anybody may have written those of sites and files."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

__all__ = ["LONGEST_NAME", "is_name", "is_printable", "listed", "printable"]

# Most characters in the name of a site, a run or a kind of message: the header of a message has no room for more.
LONGEST_NAME = 200


def is_name(text: Any) -> bool:
    """Tell whether something can be the name of a site, a run or a kind of message: some printable characters."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and text.isprintable()


def is_printable(text: str) -> bool:
    """Tell whether every character is printable: no control character, line break or change of writing direction.

    Spaces of any width are fine; spreadsheets are full of them.
    """
    return text.isprintable() or all(map(_is_shown, text))


def printable(text: str) -> str:
    r"""Escape all other characters, such as \\x1b, so that the text cannot control a terminal or hide anything.

    Examples
    --------
    >>> from fedhk._text import printable
    >>> printable("oslo" + chr(27) + "[2J")
    'oslo\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def listed(names: Iterable[Any]) -> str:
    """List the first few names, and how many more there are."""
    every = list(names)
    shown = ", ".join(repr(name) for name in every[:5])
    return shown if len(every) <= 5 else f"{shown} and {len(every) - 5} more"
