"""Factors: the few arrays that a decomposition makes all centres from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Factors:
    """What a decomposition makes centres from; each decomposition has a subclass with its own arrays."""
