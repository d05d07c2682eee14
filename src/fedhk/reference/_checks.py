"""What options and readings may be, checked before anything is computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, wraps
from numbers import Integral, Real
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from fedhk._names import suggest

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Within:
    """The numbers that an option may be."""

    least: float
    most: float = float("inf")
    above: bool = False  # whether the least itself is too small

    def holds(self, value: float) -> bool:
        """Tell whether a number is allowed; NaN is not."""
        return (value > self.least if self.above else value >= self.least) and value <= self.most

    def __str__(self) -> str:
        if self.most < float("inf"):
            return f"from {self.least:g} to {self.most:g}"
        return f"{'above' if self.above else 'at least'} {self.least:g}"


AboveOne = Annotated[float, Within(1.0, above=True)]
NotNegative = Annotated[float, Within(0.0)]
Share = Annotated[float, Within(0.0, 1.0)]
Count = Annotated[int, Within(1)]


class Options:
    """Base class of options: words must be among those of the annotation, numbers within its limits."""

    def __post_init__(self) -> None:
        owner: Any = type(self)
        for option in fields(owner):
            _check(option.name, getattr(self, option.name), _hints(owner)[option.name])


def check_words(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function refuse words that the annotations of its parameters do not list."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if get_origin(_hints(function)[name]) is Literal:
                _check(name, value, _hints(function)[name])
        return function(*args, **kwargs)

    return checked


def read_options(given: Any, wanted: type[T], algorithm: str) -> T:
    """Return the options of an algorithm, its defaults if none are given; those of another one are refused."""
    if given is None:
        return wanted()
    if type(given) is not wanted:
        raise TypeError(f"options of {algorithm} must be {wanted.__name__}(...), got {type(given).__name__}.")
    return given


@cache
def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner, include_extras=True)


def _check(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that an annotation of words, numbers within limits, or a class does not allow."""
    if get_origin(hint) is Literal:
        words = get_args(hint)
        if value not in words:
            close = suggest(value, words) if isinstance(value, str) else ""
            raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, words))}.{close}")
    elif get_origin(hint) is Annotated:
        kind, within = get_args(hint)
        number, what = (Integral, "a whole number") if kind is int else (Real, "a number")
        if not isinstance(value, number) or isinstance(value, bool):
            raise TypeError(f"{name}={value!r} must be {what} {within}.")
        if not within.holds(value):
            raise ValueError(f"{name}={value!r} must be {what} {within}.")
    elif isinstance(hint, type) and not isinstance(value, hint):
        raise TypeError(f"{name} must be of type {hint.__name__}, got {value!r}.")
