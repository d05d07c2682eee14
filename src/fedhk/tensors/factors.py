"""Factors: the few arrays that a decomposition makes all centres from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, Self

from fedhk._typing import FloatArray

_PART, _CORE = "part", "core"
BASIS = {_PART: "basis"}
"""Metadata of a field that holds a basis of the features: it is sent once, and its columns or rows are orthonormal."""
SIZES = {_PART: "sizes"}
"""Metadata of a field that holds no array but whole numbers, which stay as they are."""


@dataclass(frozen=True)
class Factors(ABC):
    """What a decomposition makes centres from: a basis B_h per view, and coordinates x_kh of the centres in it.

    A subclass has one field per array, or per tuple of arrays. Fields marked with `BASIS`, as in
    ``field(metadata=BASIS)``, are the basis; all others are the core, which changes in every round.
    """

    @property
    @abstractmethod
    def rank(self) -> tuple[int, ...]:
        """The rank of each mode, in the order of `Decomposition.limits`."""

    @property
    @abstractmethod
    def view_bases(self) -> tuple[FloatArray, ...]:
        """The bases B_h, of shape (d_h, r): orthonormal columns or rows, or some rows of orthonormal columns."""

    @property
    @abstractmethod
    def coordinates(self) -> FloatArray:
        """The coordinates x_kh of the centres in the bases, of shape (c, s, r)."""

    @property
    def basis_arrays(self) -> tuple[FloatArray, ...]:
        """The arrays of the basis, in the order of the fields."""
        return self._arrays(BASIS[_PART])

    @property
    def core_arrays(self) -> tuple[FloatArray, ...]:
        """The arrays of the core, in the order of the fields."""
        return self._arrays(_CORE)

    def centers(self) -> tuple[FloatArray, ...]:
        """Make the centres A_kh = B_h x_kh, one array of shape (c, d_h) per view."""
        coordinates = self.coordinates
        return tuple(coordinates[:, h] @ basis.T for h, basis in enumerate(self.view_bases))

    def with_arrays(
        self, *, basis: Sequence[FloatArray] | None = None, core: Sequence[FloatArray] | None = None
    ) -> Self:
        """Give the same factors with other arrays, in the order of `basis_arrays` and of `core_arrays`."""
        given = {
            BASIS[_PART]: iter(self.basis_arrays if basis is None else basis),
            _CORE: iter(self.core_arrays if core is None else core),
        }
        changes: dict[str, Any] = {}
        for spec in fields(self):
            part, old = spec.metadata.get(_PART, _CORE), getattr(self, spec.name)
            if part in given:
                several = isinstance(old, tuple)
                changes[spec.name] = tuple(islice(given[part], len(old))) if several else next(given[part])
        return replace(self, **changes)

    def _arrays(self, part: str) -> tuple[FloatArray, ...]:
        found: list[FloatArray] = []
        for spec in fields(self):
            if spec.metadata.get(_PART, _CORE) == part:
                value = getattr(self, spec.name)
                found += value if isinstance(value, tuple) else (value,)
        return tuple(found)
