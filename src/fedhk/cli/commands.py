"""The program: its commands and exit codes. Slow imports are inside commands."""

from __future__ import annotations

import typer

from fedhk._version import __version__
from fedhk.cli.after import compare, outcomes, place, profile, stability
from fedhk.cli.audit import attack, privacy
from fedhk.cli.audit import run as audit_run
from fedhk.cli.bench import bench
from fedhk.cli.demo import demo
from fedhk.cli.dictionary import dictionary
from fedhk.cli.fit import fit
from fedhk.cli.flower.ask import compare as flower_compare
from fedhk.cli.flower.ask import limits
from fedhk.cli.flower.ask import outcomes as flower_outcomes
from fedhk.cli.flower.ask import profile as flower_profile
from fedhk.cli.flower.ask import stability as flower_stability
from fedhk.cli.flower.init import init
from fedhk.cli.flower.keys import certificates, key, mask_key, register
from fedhk.cli.flower.local import local
from fedhk.cli.flower.run import run
from fedhk.cli.flower.site import link, site
from fedhk.cli.flower.update import update as flower_update
from fedhk.cli.info import info
from fedhk.cli.ledger import ledger
from fedhk.cli.predict import predict
from fedhk.cli.report import report
from fedhk.cli.split import split
from fedhk.cli.update import update

EPILOG = (
    "Exit codes: 0 done, 1 unexpected error, 2 wrong usage, 3 data or configuration that cannot be used, 4 too few "
    "sites answered, 5 the output exists already, 130 interrupted. Errors are one line on standard error; with "
    "FEDHK_DEBUG=1 the traceback comes before it."
)

app = typer.Typer(
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click suggests them already
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"fedhk {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Personalized federated multi-view clustering."""


audit = typer.Typer(no_args_is_help=True, help="Measure what releases and models tell of single rows.")
after = typer.Typer(
    no_args_is_help=True, help="Ask the sites of a finished run what clusters are, how sure, and what becomes of them."
)
flower = typer.Typer(
    no_args_is_help=True,
    help="Run a federation of real sites on Flower: docs/deployment.md goes through it step by step.",
)
for group, commands in (
    (app, (fit, update, predict, info, split, dictionary, report, ledger, bench, demo)),
    (after, (profile, stability, outcomes, place, compare)),
    (audit, (privacy, attack, audit_run)),
    (flower, (local, init, run, flower_update)),
    (flower, (flower_profile, flower_outcomes, flower_stability, flower_compare, limits)),
    (flower, (certificates, link, register, key, mask_key, site)),
):
    for command in commands:
        group.command(epilog=EPILOG)(command)
app.add_typer(after, name="after")
app.add_typer(audit, name="audit")
app.add_typer(flower, name="flower")
