"""What the coordinator's process does inside Flower: fit over the sites, and leave a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhk._files import replacing, write_atomically
from fedhk.cli.algorithms import ALGORITHMS, Outcome, SiteFacts, collect_models, drop_costs
from fedhk.cli.config import Config, read_config
from fedhk.cli.console import exit_code, to_json
from fedhk.cli.fit import check_same
from fedhk.cli.runs import UNDER_WAY, check_free, is_under_way, under_way, write_run

if TYPE_CHECKING:
    from fedhk.federation.engines.remote import RemoteSites, Transport

RUN_CONFIG: dict[str, Any] = {"out": "", "sites": "", "wait": 600.0, "resume": False, "force": False, "failure": ""}
"""What Flower's run configuration may say, and what holds where it does not."""

DEFAULT_OUT = "fedhk-run"


def coordinate(config: Path, transport: Transport, settings: dict[str, Any]) -> None:
    """Fit what a configuration says; whoever follows the run finds what went wrong in a file.

    Parameters
    ----------
    config : Path
        The configuration, as `fedhk fit` takes it.
    transport : Transport
        The way to the sites.
    settings : dict
        Flower's run configuration; see `RUN_CONFIG`.
    """
    chosen = RUN_CONFIG | settings
    try:
        fit_remote(
            read_config(config),
            transport,
            Path(chosen["out"] or DEFAULT_OUT),
            sites=site_names(chosen["sites"]),
            wait=float(chosen["wait"]),
            resume=bool(chosen["resume"]),
            force=bool(chosen["force"]),
        )
    except Exception as error:
        if chosen["failure"]:
            content = {"code": exit_code(error), "kind": type(error).__name__, "text": " ".join(str(error).split())}
            write_atomically(chosen["failure"], to_json(content).encode())
        raise


def site_names(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


def fit_remote(
    config: Config, transport: Transport, out: Path, *, sites: list[str], wait: float, resume: bool, force: bool
) -> dict[str, Any]:
    """Run a configuration over sites that are elsewhere and write its run folder; returns the summary."""
    from fedhk.federation.engines.remote import RemoteSites
    from fedhk.report.run import write_report

    check_free(out, force=force, resume=resume)
    if resume and is_under_way(out):
        check_same(read_config(out / UNDER_WAY), config)
    parameters = config.parameters or {}
    wait_for = int((parameters.get("participation") or {}).get("min_sites", 1))
    with under_way(out, config, resume=resume) as checkpoint:
        engine = RemoteSites(transport, expected=sites, wait_for=wait_for, wait=wait)
        own = {"random_state": config.seed, "checkpoint": checkpoint, "engine": engine, "verbose": 0}
        model = ALGORITHMS[config.algorithm].make(parameters | own).fit(resume=resume)
        outcome = collect_models(model)
        outcome.sites = _facts(engine, outcome)
        with replacing(out) as draft:
            summary = write_run(draft, drop_costs(outcome), config)
            write_report(draft, title=out.name)
            return summary


def _facts(engine: RemoteSites, outcome: Outcome) -> dict[str, SiteFacts]:
    reports = outcome.model.site_reports_
    facts = {}
    for site, known in sorted(engine.known.items()):
        views = [view for view, (width, _) in known.views.items() if width is not None]
        report = reports.get(site)
        facts[site] = SiteFacts(views) if report is None else SiteFacts(views, report.terms.rows, report.clusters)
    return facts
