"""Text from elsewhere, made safe to show: names and reasons come from sites and files that anybody may have written."""

from __future__ import annotations

import unicodedata

__all__ = ["is_printable", "printable"]


def is_printable(text: str) -> bool:
    """Whether every character shows as itself: no control character, line break or change of writing direction.

    Spaces of any width are fine; spreadsheets are full of them.
    """
    return text.isprintable() or all(map(_is_shown, text))


def printable(text: str) -> str:
    r"""The text with every other character written out, such as \\x1b: it commands no terminal and hides nothing.

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
