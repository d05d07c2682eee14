"""Makes untrusted text safe to show: anybody may have written the names and reasons of sites and files."""

from __future__ import annotations

import unicodedata

__all__ = ["is_printable", "printable"]


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
