"""`fedhk flower run`: start a run at the SuperLink, follow it, and know a good one from a failed one."""

from __future__ import annotations

import json as json_format
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from fedhk.cli import options as o
from fedhk.cli.config import Config, ConfigError, read_config
from fedhk.cli.console import exit_codes, say
from fedhk.cli.fit import show_summary
from fedhk.cli.flower.init import CLIENT_FILE, CONFIG_FILE, NEWS, PROJECT_FILE, SERVER_FILE
from fedhk.cli.flower.processes import CONNECTION, Control, FlowerError, connect, interruptible
from fedhk.cli.runs import CHECKPOINT, SUMMARY, absolute, check_free, is_run, is_under_way
from fedhk.errors import CheckpointError

# Seconds between looks at the checkpoint, and at what Flower says of the run.
LOOK_EVERY, ASK_EVERY = 1.0, 5.0

AppFolder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder that `fedhk flower init` made.", exists=True, file_okay=False)
]
RunOut = Annotated[Path, typer.Option("--out", "-o", help="Run folder to write.")]


def run(  # noqa: PLR0917
    folder: AppFolder,
    out: RunOut,
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    insecure: o.Insecure = False,
    force: o.Force = False,
    resume: o.Resume = False,
    json: o.Json = False,
) -> None:
    """Start a run at a SuperLink, follow it, and leave a run folder.

    It must be called on the SuperLink's machine, where the run folder is written. Labels and own models of sites stay
    at the sites, in the folder that they call --state. After an interruption, --resume goes on.

    For example:

        fedhk flower run clinics/ --root-certificates tls/ca.crt --out run/

        fedhk flower run clinics/ --root-certificates tls/ca.crt --out run/ --resume
    """
    target = absolute(out)
    again = "The same command with --resume goes on."
    with exit_codes(again):
        try:
            with interruptible(), connect(superlink, root_certificates, insecure) as control:
                summary = run_app(control, folder, target, force=force, resume=resume)
        except CoordinatorError as error:
            if is_under_way(target):
                raise CoordinatorError(f"{error} {again}", error.exit_code) from error
            raise
        show_summary(summary, target, json)


def run_app(
    control: Control,
    folder: Path,
    out: Path,
    *,
    force: bool = False,
    resume: bool = False,
    watch: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run an app to its end; returns the summary.

    If the coordinator's process failed, its own words and exit code are raised. `watch` is called now and then; it
    raises where there is nothing left to wait for.
    """
    from fedhk.estimators.progress import show_progress
    from fedhk.federation.checkpoint import peek

    parameters = read_app(folder).parameters
    check_free(out, force=force, resume=resume)
    settings = {"out": str(out), "resume": resume, "force": force}
    hint = "--resume goes on where a checkpoint was reached."

    # with a privacy budget all rounds are run that share it
    runs_all = parameters.get("privacy") is not None
    show = show_progress(_find_most_rounds(parameters), timed=True, runs_all=runs_all)

    def look() -> None:
        watch()
        with suppress(CheckpointError):  # reported when the run is resumed
            if (reached := peek(out / CHECKPOINT)) is not None:
                show(*reached)

    call_app(control, folder, settings, look, lambda: is_run(out), hint=hint)
    summary: dict[str, Any] = json_format.loads((out / SUMMARY).read_text("utf-8"))
    return summary


def read_app(folder: Path) -> Config:
    """Read what an app runs; refuse a folder that is none."""
    files = (PROJECT_FILE, SERVER_FILE, CLIENT_FILE, CONFIG_FILE)
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"{str(folder)!r} lacks {missing}; `fedhk flower init` makes such a folder.")
    return read_config(folder / CONFIG_FILE)


def call_app(
    control: Control,
    folder: Path,
    settings: dict[str, Any],
    look: Callable[[], None],
    is_done: Callable[[], bool],
    *,
    hint: str = "",
) -> None:
    """Start an app at the SuperLink with some run settings, and wait for its end.

    `look` is called every second; it may show progress, and raises where there is nothing left to wait for. `is_done`
    tells whether the result is there. If the coordinator's process failed, its own words and exit code are raised as
    soon as they are there.
    """
    with tempfile.TemporaryDirectory(prefix="fedhk-run-") as scratch:
        failure = Path(scratch) / "failure.json"
        given = settings | {"failure": str(failure)}
        words = " ".join(f"{name}={json_format.dumps(value)}" for name, value in given.items())
        started = control.call("run", str(folder.absolute()), CONNECTION, "--run-config", words)
        number = str(started["run-id"])
        say(f"Run {number} has begun.")
        try:
            status = _follow(control, number, failure, look, is_done)
        except (KeyboardInterrupt, FlowerError):
            control.call("stop", number, CONNECTION)
            raise
        if failure.exists():
            report = json_format.loads(failure.read_text("utf-8"))
            raise CoordinatorError(str(report["text"]), int(report["code"]))
    if not status.startswith("finished:completed") or not is_done():
        raise FlowerError(
            f"Flower says {status!r} of run {number}, and there is no result. The SuperLink's log says more. {hint}"
        )


def ask_status(control: Control, number: str) -> str:
    """Ask Flower what has become of a run."""
    return str(control.call("list", CONNECTION, "--run-id", number)["runs"][0]["status"])


class CoordinatorError(FlowerError):
    """The coordinator's process failed; the message is its own."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code


def _find_most_rounds(parameters: dict[str, Any]) -> int:
    """Find how many rounds a run may have: with noise, those that share its budget."""
    from fedhk.privacy.mechanism import DifferentialPrivacy

    most = int(parameters.get("max_rounds", 100))
    privacy = parameters.get("privacy")
    return most if privacy is None else min(most, int(privacy.get("rounds", DifferentialPrivacy.rounds)))


def _follow(control: Control, number: str, failure: Path, look: Callable[[], None], is_done: Callable[[], bool]) -> str:
    """Show what the coordinator says until the run has ended or failed; return Flower's last word on it, if needed."""
    asked, shown = time.monotonic(), 0
    while True:
        time.sleep(LOOK_EVERY)
        has_failed = failure.exists()
        shown = _show_news(failure.with_name(NEWS), shown)
        if has_failed:  # Flower needs some more seconds to notice
            return ""
        look()
        if time.monotonic() - asked > ASK_EVERY or is_done():
            status = ask_status(control, number)
            if status.startswith("finished"):
                _show_news(failure.with_name(NEWS), shown)
                return status
            asked = time.monotonic()


def _show_news(file: Path, shown: int) -> int:
    """Show the whole lines of a file after those that were shown before; return how many were shown by now."""
    lines = file.read_text("utf-8").split("\n")[:-1] if file.exists() else []
    for line in lines[shown:]:
        say(line)
    return len(lines)
