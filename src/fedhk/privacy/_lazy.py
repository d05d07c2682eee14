"""Cryptography that is loaded when it is first used: it comes with an extra, and not everybody needs it."""

from __future__ import annotations

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
    def __init__(self) -> None:
        self._module: Any = None  # kept, because masks call in their inner loop

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            try:
                # waits while another thread loads the module; `sys.modules` would have it half made
                self._module = import_module("fedhk.privacy._primitives")
            except ImportError as error:
                raise MissingPackageError(MISSING) from error
        return getattr(self._module, name)


if TYPE_CHECKING:
    import fedhk.privacy._primitives as primitives
else:
    primitives = _Lazy()
