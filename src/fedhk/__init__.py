"""Personalized federated multi-view clustering with heat-kernel distances."""

__version__ = "0.1.0.dev0"
