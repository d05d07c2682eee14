"""Cryptography that is loaded when it is first used: it comes with an extra, and not everybody needs it."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedhk.errors import MissingPackageError

__all__ = ["primitives", "require_cryptography"]


MISSING = "secure sums and site identities need the package 'cryptography': pip install 'fedhk[privacy]'"


def require_cryptography() -> None:
    """Say that the package is missing before anything is begun that needs it."""
    if find_spec("cryptography") is None:
        raise MissingPackageError(MISSING)


class _Lazy:
    def __getattr__(self, name: str) -> Any:
        module: Any = sys.modules.get("fedhk.privacy._primitives")  # a call in the inner loop of masks
        try:
            module = module or import_module("fedhk.privacy._primitives")
        except ImportError as error:
            raise MissingPackageError(MISSING) from error
        return getattr(module, name)


if TYPE_CHECKING:
    import fedhk.privacy._primitives as primitives
else:
    primitives = _Lazy()
