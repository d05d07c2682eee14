"""The version of FedHK, where every part can read it."""

__version__ = "0.2.0.dev0"
