"""Phases: one exchange between the server and its sites each, both ends in one file."""

from __future__ import annotations

import pkgutil
from importlib import import_module


def load_phases() -> None:
    """Import every phase of this folder, so that a site finds the one that a message names."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
