"""The coordinator's end of a Flower app: it fits, updates a model or asks a question. Sites do not load this."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedhk._files import READABLE, replacing, write_atomically
from fedhk._text import printable
from fedhk.after.comparison import compare
from fedhk.after.outcomes import outcomes
from fedhk.after.placement import find_limit
from fedhk.after.profile import profile
from fedhk.after.run import Answered
from fedhk.after.stability import stability
from fedhk.cli.algorithms import ALGORITHMS
from fedhk.cli.config import Config, read_config
from fedhk.cli.console import exit_code, to_json
from fedhk.cli.flower.init import NEWS, RUN_CONFIG, UPDATE, find_fewest, site_names
from fedhk.cli.runs import (
    CONFIG,
    MODEL,
    SUMMARY,
    SiteFacts,
    check_free,
    check_same,
    folder_mode,
    under_way,
    write_run,
)
from fedhk.cli.update import write_update
from fedhk.data.dictionary import DICTIONARY, read_dictionary
from fedhk.estimators.loading import load
from fedhk.federation.engines.flower import GridTransport
from fedhk.federation.engines.remote import RemoteSites, Transport
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.report.run import write_report
from fedhk.summary.drawing import require_matplotlib

ASK: dict[str, Callable[..., Answered]] = {
    "profile": profile,
    "outcomes": outcomes,
    "stability": stability,
    "compare": compare,
    "limits": find_limit,
}
"""What asks each of the questions after a fit."""


def make_server_app(config: Path) -> ServerApp:
    """Make the coordinator's app: it fits what a configuration says, and writes a run folder.

    Parameters
    ----------
    config : Path
        As `fedhk fit` takes and writes it, without data.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        coordinate(config, GridTransport(grid), dict(context.run_config))

    return app


def coordinate(config: Path, transport: Transport, settings: dict[str, Any]) -> None:
    """Fit what a configuration says, or do with a finished run what a file asks for: update it, or ask a question.

    Errors are written to a file for the process that follows the run. `settings` is Flower's run configuration, with
    the keys of `RUN_CONFIG`.
    """
    chosen = RUN_CONFIG | settings
    try:
        if chosen["question"]:
            asked = json.loads(Path(chosen["question"]).read_text("utf-8"))
            answer = _update_remote if asked["kind"] == UPDATE else _ask_remote
            write_atomically(asked["answer"], to_json(answer(asked, transport, chosen)).encode())
        else:
            dictionary = config.with_name(DICTIONARY)
            _fit_remote(read_config(config), transport, Path(chosen["out"] or "fedhk-run"), chosen, dictionary)
    except Exception as error:
        if chosen["failure"]:
            content = {"code": exit_code(error), "kind": type(error).__name__, "text": " ".join(str(error).split())}
            write_atomically(chosen["failure"], to_json(content).encode())
        raise


def _fit_remote(config: Config, transport: Transport, out: Path, chosen: dict[str, Any], dictionary: Path) -> None:
    """Run a configuration over remote sites and write its run folder, with the data dictionary if there is one."""
    require_matplotlib()
    resume = bool(chosen["resume"])
    check_free(out, force=bool(chosen["force"]), resume=resume)
    if resume:
        check_same(out, config)
    sites = site_names(chosen["sites"])
    fewest = find_fewest(config, sites)
    with under_way(out, config, resume=resume) as checkpoint:
        engine = _make_engine(transport, chosen, sites, fewest)
        own: dict[str, Any] = {"random_state": config.seed, "checkpoint": checkpoint, "engine": engine, "verbose": 0}
        if config.parameters.get("secure"):  # an exchange needs as many as the sums that follow
            own["participation"] = config.parameters.get("participation", {}) | {"min_sites": fewest}
        model = ALGORITHMS[config.algorithm].make(config.parameters | own).fit(resume=resume)
        with replacing(out, folder_mode(config)) as draft:
            write_run(draft, model, _list_sites(engine, model), config)
            if dictionary.is_file():
                write_atomically(draft / DICTIONARY, dictionary.read_bytes(), READABLE)
            write_report(draft, title=out.name)


def _update_remote(asked: dict[str, Any], transport: Transport, chosen: dict[str, Any]) -> dict[str, Any]:
    """Update the model of a finished run with the rows that its sites have now, and write a run folder.

    As in a fit, more than half of the sites must be there, unless the run has `min_sites`.
    """
    require_matplotlib()
    run, out = Path(asked["run"]), Path(asked["out"])
    config = replace(read_config(run / CONFIG), data=None)
    sites = _list_expected(run, asked)
    engine = _make_engine(transport, chosen, sites, find_fewest(config, sites), each=True)
    model = load(run / MODEL).set_params(engine=engine, verbose=0)
    if asked["privacy"] is not None:
        config = config.updated({"privacy": asked["privacy"]})
        model.set_params(privacy=DifferentialPrivacy(**asked["privacy"]))
    model.update(**asked["given"])
    return write_update(run, out, model, _list_sites(engine, model), config)


def _ask_remote(asked: dict[str, Any], transport: Transport, chosen: dict[str, Any]) -> dict[str, Any]:
    """Ask the sites of a finished run a question."""
    run = Path(asked["run"])
    model, sites = load(run / MODEL), _list_expected(run, asked)
    engine = _make_engine(transport, chosen, sites, len(sites), each=True)
    given: dict[str, Any] = asked["given"] | {"engine": engine, "secure": asked["secure"]}
    if asked["privacy"] is not None:
        given["privacy"] = DifferentialPrivacy(**asked["privacy"])
    if "dictionary" in given:
        given["dictionary"] = read_dictionary(given["dictionary"])
    if "other" in given:
        given["other"] = load(given["other"])
    found: Answered = ASK[asked["kind"]](model, **given)
    return {"table": asdict(found.table()), "facts": found.facts() | {"privacy_spent": found.privacy_spent}}


def _list_expected(run: Path, asked: dict[str, Any]) -> list[str]:
    """List the sites that are asked after a run: those that the user names, else those of the run."""
    return asked["sites"] or sorted(json.loads((run / SUMMARY).read_text("utf-8"))["sites"])


def _make_engine(
    transport: Transport, chosen: dict[str, Any], sites: list[str], wait_for: int, *, each: bool = False
) -> RemoteSites:
    """Make the engine to the sites, which tells the process that follows the run who is there.

    An update or a question has no checkpoint that shows how far it is: there the engine tells of `each` exchange.
    """
    wait, tell = float(chosen["wait"]), _make_tell(chosen)
    return RemoteSites(transport, expected=sites, wait_for=wait_for, wait=wait, tell=tell, tell_exchanges=each)


def _make_tell(chosen: dict[str, Any]) -> Callable[[str], None]:
    """Make what writes a line for the process that follows the run, into a file beside that of errors."""

    def tell(line: str) -> None:
        if chosen["failure"]:
            # a run goes on where nobody follows it any longer
            with suppress(OSError), Path(chosen["failure"]).with_name(NEWS).open("a", encoding="utf-8") as file:
                file.write(printable(line) + "\n")

    return tell


def _list_sites(engine: RemoteSites, model: Any) -> dict[str, SiteFacts]:
    """List what sites have reported about themselves."""
    found = {}
    for site, known in sorted(engine.known.items()):
        views = [view for view, (width, _) in known.views.items() if width is not None]
        report = model.site_reports_.get(site)
        found[site] = SiteFacts(views) if report is None else SiteFacts(views, report.terms.rows, report.clusters)
    return found
