"""The base class of options that belong to one part of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from fedhk._names import KnowsNames


@dataclass(frozen=True)
class Option(KnowsNames):
    """The options of one part of a run, such as its protocol, for estimators that take a name or an object.

    A subclass is a frozen dataclass that checks its values when it is made, with the methods below: they keep a value
    that is right as Python's own number. Model files keep options with the parameters.
    """

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _keep_whole(self, name: str, least: int, *, or_none: bool = False) -> None:
        value = getattr(self, name)
        if value is None and or_none:
            return
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            none = "None or " if or_none else ""
            raise ValueError(f"{name}={value!r} must be {none}a whole number from {least} on.")
        self._set(name, int(value))

    def _keep_number(
        self, name: str, is_allowed: Callable[[float], bool], allowed: str, *, or_none: bool = False
    ) -> None:
        """`allowed` says in words, for errors, what `is_allowed` asks for."""
        value = getattr(self, name)
        if value is None and or_none:
            return
        if not isinstance(value, Real) or isinstance(value, bool) or not is_allowed(float(value)):
            raise ValueError(f"{name}={value!r} must be {'None or ' if or_none else ''}{allowed}.")
        self._set(name, float(value))

    def _check_word(self, name: str, allowed: Sequence[Any]) -> None:
        if getattr(self, name) not in allowed:
            raise ValueError(f"{name}={getattr(self, name)!r} must be one of {allowed}.")
