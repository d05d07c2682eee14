"""The command line: `fedhk fit`, `predict`, `info` and `demo`."""

from fedhk.cli.app import app

__all__ = ["app"]
