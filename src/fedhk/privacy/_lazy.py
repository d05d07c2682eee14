"""Cryptography that is loaded when it is first used: it comes with an extra, and not everybody needs it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedhk.errors import FedHKError

__all__ = ["MissingPackageError", "primitives"]


class MissingPackageError(FedHKError, ImportError):
    """A package of an extra is not installed."""


class _Lazy:
    def __getattr__(self, name: str) -> Any:
        try:
            module = import_module("fedhk.privacy._primitives")
        except ImportError as error:
            raise MissingPackageError(
                "secure sums and site identities need the package 'cryptography': pip install fedhk[privacy]"
            ) from error
        return getattr(module, name)


if TYPE_CHECKING:
    import fedhk.privacy._primitives as primitives
else:
    primitives = _Lazy()
