"""`fedhk flower`: a federation of real sites, on Flower."""

from __future__ import annotations

import typer

from fedhk.cli.flower.connection import register
from fedhk.cli.flower.init import init
from fedhk.cli.flower.keys import certificates, key
from fedhk.cli.flower.local import local
from fedhk.cli.flower.run import run
from fedhk.cli.flower.site import link, site

__all__ = ["flower_commands"]


def flower_commands(epilog: str) -> typer.Typer:
    """The commands."""
    app = typer.Typer(
        help="Run a federation of real sites on Flower: docs/deployment.md goes through it step by step.",
        no_args_is_help=True,
    )
    for command in (local, init, run, certificates, link, register, key, site):
        app.command(epilog=epilog)(command)
    return app
