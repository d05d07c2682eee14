"""`fedhk flower profile`, `outcomes`, `stability`, `compare`, `limits`: questions to sites of a run, over Flower."""

from __future__ import annotations

import json as json_format
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedhk._files import write_atomically
from fedhk.cli import options as o
from fedhk.cli.after import Halves, OtherRun, TableOut, tell_table
from fedhk.cli.console import check_new, exit_codes, say_notes, to_json
from fedhk.cli.flower.init import RunSites, site_names
from fedhk.cli.flower.processes import Control, connect, interruptible
from fedhk.cli.flower.run import AppFolder, call_app, read_app
from fedhk.cli.predict import model_file
from fedhk.cli.runs import MODEL, SUMMARY, absolute, is_run
from fedhk.errors import DataError

Masks = Annotated[
    bool, typer.Option("--secure/--no-secure", help="See sums over all sites only, which takes three of them.")
]
Bounds = Annotated[
    str | None,
    typer.Option("--bounds", metavar="LOW,HIGH", help="With --epsilon: range of the columns or the outcome."),
]
ColumnRanges = Annotated[
    Path | None,
    typer.Option("--dictionary", help="With --epsilon: data dictionary with the range of each column, for --bounds."),
]
Time = Annotated[
    str | None, typer.Option("--time", metavar="COLUMN", help="Column at the sites: time until the event.")
]
Event = Annotated[
    str | None, typer.Option("--event", metavar="COLUMN", help="Column at the sites: 1 if it happened, 0.")
]
Value = Annotated[str | None, typer.Option("--value", metavar="COLUMN", help="Column at the sites: a number, instead.")]

Rare = Annotated[float, typer.Option("--rare", help="Share of sound rows that may be beyond the limits.")]


def profile(  # noqa: PLR0917
    folder: AppFolder,
    run: o.RunFolder,
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    insecure: o.Insecure = False,
    sites: RunSites = None,
    secure: Masks = True,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    bounds: Bounds = None,
    dictionary: ColumnRanges = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Ask the sites of a finished run what the clusters are: every column by cluster ("Table 1").

    Each site answers if its policy lists this question. Columns of its further tables that the policy lists are
    included; clustering did not see them, so that their tests are honest.

    For example:

        fedhk flower profile clinics/ run/ --root-certificates tls/ca.crt --out table-1.tex

        fedhk flower profile clinics/ run/ --epsilon 1 --delta 1e-6 --dictionary dictionary.toml
    """
    asked: dict[str, Any] = {"kind": "profile", "given": {}}
    if dictionary is None:
        asked |= _protection(secure, epsilon, delta, bounds)
    else:
        if epsilon is None or bounds not in (None, o.DICTIONARY_BOUNDS):
            raise typer.BadParameter("goes with --epsilon, --delta and no other --bounds.", param_hint="--dictionary")
        # the ranges take the place of the bounds
        asked |= {"secure": secure, "privacy": o.parse_privacy(epsilon, delta, "private")}
        asked["given"] = {"dictionary": str(absolute(dictionary))}

    def check(target: Path) -> None:
        if asked["privacy"] is not None:
            _check_profile(target, asked, site_names(sites or ""))

    where = (superlink, root_certificates, insecure)
    _ask(folder, run, asked, where, sites, out, force=force, json=json, check=check)


def _check_profile(run: Path, asked: dict[str, Any], sites: list[str]) -> None:
    """Refuse a budget that does not go with a run, and warn of rows that are too few for it, before sites are asked."""
    from fedhk.after.profile import expect_profile
    from fedhk.data.dictionary import read_dictionary
    from fedhk.estimators.loading import load
    from fedhk.privacy.mechanism import DifferentialPrivacy

    summary = json_format.loads((run / SUMMARY).read_text("utf-8"))
    file = asked["given"].get("dictionary")
    ranges = None if file is None else read_dictionary(file)
    known = {"n_sites": len(sites or summary["sites"]), "rows": summary.get("rows") or 0}
    budget = DifferentialPrivacy(**asked["privacy"])
    if text := expect_profile(load(run / MODEL), budget, secure=asked["secure"], dictionary=ranges, **known):
        say_notes([text])


def outcomes(  # noqa: PLR0917
    folder: AppFolder,
    run: o.RunFolder,
    time: Time = None,
    event: Event = None,
    value: Value = None,
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    insecure: o.Insecure = False,
    sites: RunSites = None,
    secure: Masks = True,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    bounds: Bounds = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Ask the sites of a finished run what becomes of the clusters: survival, an event alone, or a number.

    The columns are in the further tables of the sites. Each site answers if its policy lists this question and them.

    For example:

        fedhk flower outcomes clinics/ run/ --time days --event died --root-certificates tls/ca.crt
    """
    given = {"time": time, "event": event, "value": value}
    columns = {name: column for name, column in given.items() if column is not None}
    asked = {"kind": "outcomes", "given": columns} | _protection(secure, epsilon, delta, bounds)
    _ask(folder, run, asked, (superlink, root_certificates, insecure), sites, out, force=force, json=json)


def stability(  # noqa: PLR0917
    folder: AppFolder,
    run: o.RunFolder,
    halves: Halves = 50,
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    insecure: o.Insecure = False,
    sites: RunSites = None,
    secure: Masks = True,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Ask the sites of a finished run how sure the clusters are: whether halves of their rows find them.

    Sites refit models to halves of their rows, in at most 15 exchanges, and in three times as many under masks. Models
    without single sites are fitted with --no-secure only: under masks nobody may see the sums of one site.

    For example:

        fedhk flower stability clinics/ run/ --halves 20 --root-certificates tls/ca.crt
    """
    asked = {"kind": "stability", "given": {"n_resamples": halves}} | _protection(secure)
    _ask(folder, run, asked, (superlink, root_certificates, insecure), sites, out, force=force, json=json)


def compare(  # noqa: PLR0917
    folder: AppFolder,
    run: o.RunFolder,
    other: OtherRun,
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    insecure: o.Insecure = False,
    sites: RunSites = None,
    secure: Masks = True,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Ask the sites of two finished runs how their clusters agree: matched clusters, and counts of rows in both.

    Every site must have kept the results of both runs.

    For example:

        fedhk flower compare clinics/ this-year/ last-year/ --root-certificates tls/ca.crt
    """
    with exit_codes():
        file = absolute(model_file(other))
    asked = {"kind": "compare", "given": {"other": str(file)}} | _count_protection(secure, epsilon, delta)
    _ask(folder, run, asked, (superlink, root_certificates, insecure), sites, out, force=force, json=json)


def limits(  # noqa: PLR0917
    folder: AppFolder,
    run: o.RunFolder,
    rare: Rare = 0.001,
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    insecure: o.Insecure = False,
    sites: RunSites = None,
    secure: Masks = True,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Ask the sites of a finished run how far from its centre a row may be: beyond that, a new row belongs nowhere.

    For example:

        fedhk flower limits clinics/ run/ --rare 0.01 --root-certificates tls/ca.crt
    """
    asked = {"kind": "limits", "given": {"rare": rare}} | _count_protection(secure, epsilon, delta)
    _ask(folder, run, asked, (superlink, root_certificates, insecure), sites, out, force=force, json=json)


def _count_protection(secure: bool, epsilon: float | None, delta: float | None) -> dict[str, Any]:
    """Return the protection of a question that counts rows alone: any bounds will do."""
    return _protection(secure, epsilon, delta, None if epsilon is None else "0,1")


def _protection(
    secure: bool, epsilon: float | None = None, delta: float | None = None, bounds: str | None = None
) -> dict[str, Any]:
    privacy = o.parse_privacy(epsilon, delta, bounds)
    if privacy is not None and bounds is None:
        raise typer.BadParameter("is needed with --epsilon.", param_hint="--bounds")
    if privacy is not None and isinstance(privacy["bounds"], str):
        raise typer.BadParameter(
            f"{bounds!r} does not go with questions: give LOW,HIGH, or to a profile --dictionary FILE, which has the "
            "range of each column.",
            param_hint="--bounds",
        )
    return {"secure": secure, "privacy": privacy}


def _ask(  # noqa: PLR0917
    folder: Path,
    run: Path,
    asked: dict[str, Any],
    where: tuple[str, Path | None, bool],
    sites: str | None,
    out: Path | None,
    *,
    force: bool,
    json: bool,
    check: Callable[[Path], None] = lambda _: None,
) -> None:
    with exit_codes():
        check_new(out, force=force)
        target = open_run(run)
        check(target)
        with interruptible(), connect(*where) as control:
            told = ask_app(control, folder, target, asked, sites=site_names(sites or ""))
        tell_table(told["table"], out, json, told["facts"])


def open_run(run: Path) -> Path:
    """Return the absolute path of a finished run; refuse a folder that is none."""
    target = absolute(run)
    if not is_run(target):
        raise DataError(f"{str(run)!r} holds no finished run: it has no summary.json and config.toml.")
    return target


def ask_app(control: Control, folder: Path, run: Path, asked: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Ask a question of the sites of a finished run, as `call_asked`; returns the table and the facts of the answer."""
    from fedhk.after.tables import PrintedTable

    told = call_asked(control, folder, run, asked, **options)
    return told | {"table": PrintedTable(**told["table"])}


def call_asked(
    control: Control,
    folder: Path,
    run: Path,
    asked: dict[str, Any],
    *,
    sites: list[str] | None = None,
    watch: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Start an app that asks something of the sites of a finished run, wait for its end, and return the answer.

    The coordinator's process reads what is asked from a file, and writes its answer to another. The sites of the run
    are asked, unless others are named. `watch` is called now and then; it raises where there is nothing left to wait
    for.
    """
    read_app(folder)
    told_to = {"run": str(run), "sites": sites or []}
    with tempfile.TemporaryDirectory(prefix="fedhk-ask-") as scratch:
        question, answer = Path(scratch) / "question.json", Path(scratch) / "answer.json"
        write_atomically(question, to_json(asked | told_to | {"answer": str(answer)}).encode())
        call_app(control, folder, {"question": str(question)}, watch, answer.exists)
        told: dict[str, Any] = json_format.loads(answer.read_text("utf-8"))
    return told
