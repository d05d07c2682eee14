"""`fedhk demo`: six sites that differ, with models of their own and once more with noise, on one page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhk._files import replacing
from fedhk.cli import options as o
from fedhk.cli.algorithms import make_option
from fedhk.cli.config import Config
from fedhk.cli.console import exit_codes, format_bytes, make_table, say, show, to_json, write_command
from fedhk.cli.runs import absolute, check_free, is_run, list_sites, write_run

if TYPE_CHECKING:
    from fedhk.evaluation.comparison import Comparison
    from fedhk.summary.facts import Facts

DATA, PRIVATE_RUN, RESULTS = "data", "private", "comparison.json"
COLUMNS = ("", "ARI per site", "ARI all rows", "accuracy", "rows sent", "bytes sent", "seconds")

N_CLUSTERS = 4

# The law that values are drawn from keeps nearly all within; bounds that were looked up in the rows would tell of them.
PRIVACY = {"epsilon": 2.0, "delta": 1e-5, "bounds": [-8, 8]}

ABOUT = (
    "Made-up patients of six hospitals, in three views. Hospitals differ in size, in how often they see each of four "
    "diseases, and in how they measure; two lack a view."
)
NOTES = (
    "Measured on a fifth of every site's rows, to which no model was fitted, against the diseases, which no model is "
    "told. ARI is 1 where clusters are the diseases and 0 where they are chance. Per site is the mean over sites; over "
    "all rows, clusters must also mean the same everywhere, and those of sites alone do not. Bytes count both "
    "directions; for pooling, the tables as they are. Noise has no seed: the last line differs from run to run, and at "
    "sites of another draw noise can cost far more."
)

DemoOut = Annotated[Path, typer.Option("--out", "-o", help="Folder to write; that of an earlier demo is replaced.")]
DemoSeed = Annotated[int, typer.Option("--seed", min=0, max=2**31, help="Seed of the models; noise has none.")]


def demo(out: DemoOut = Path("fedhk-demo"), seed: DemoSeed = 0, force: o.Force = False, json: o.Json = False) -> None:
    """Cluster the patients of six hospitals that measure differently; show sites, clusters and privacy on one page.

    Every hospital gets a model of its own, once without and once with noise. All is measured on this machine, on rows
    that no model saw, beside pooling the rows, going alone and one model for all. The patients are made up.

    For example:

        fedhk demo

        fedhk demo --out demo/ && fedhk fit demo/data --clusters 4 --out run/
    """
    with exit_codes():
        from fedhk.datasets import make_hospitals
        from fedhk.evaluation.comparison import compare_methods, hold_out_rows
        from fedhk.report.run import REPORT
        from fedhk.summary.drawing import require_matplotlib

        require_matplotlib()
        target = absolute(out)
        is_demo = is_run(target) and (target / RESULTS).is_file()
        check_free(target, force=force or is_demo)
        noise = {"privacy": PRIVACY, "secure": find_spec("cryptography") is not None}
        with replacing(target) as draft:
            found = compare_methods(
                hold_out_rows(make_hospitals()),
                n_clusters=N_CLUSTERS,
                random_state=seed,
                noise={name: make_option(name, value) for name, value in noise.items()},
                report=(lambda _: None) if json else say,
            )
            config = Config(target / DATA, "fedhk-person", seed, {"n_clusters": N_CLUSTERS})
            results = _write_demo(draft, target.name, found, (config, config.updated(noise)))
    page = target / REPORT
    if json:
        typer.echo(to_json(results | {"out": str(target), "page": str(page)}))
    else:
        _show_results(results, target, page)


def _write_demo(draft: Path, title: str, found: Comparison, configs: tuple[Config, Config]) -> dict[str, Any]:
    """Write both runs as `fit` writes them, their data, the page and the measurements; returns the measurements."""
    from fedhk.data.folders import read_federation, write_site
    from fedhk.evaluation.attack_sites import count_rows
    from fedhk.report.run import COMPARISON, read_facts, write_report

    for name, tables in found.rows.train.items():
        views = {view: None if table is None else table.values for view, table in tables.items()}
        write_site(draft / DATA / name, views, range(count_rows(tables)))
    train = read_federation(draft / DATA)
    sites = list_sites(train)
    config, with_noise = (part.complete() for part in configs)
    write_run(draft, found.own, sites, config, data=DATA, evaluation=found.evaluation)
    folder = draft / PRIVATE_RUN
    folder.mkdir()
    write_run(folder, found.private, sites, with_noise, data=f"../{DATA}")
    write_report(folder, title=f"{title}, with noise")
    results = _list_results(found, read_facts(folder))
    (draft / RESULTS).write_text(to_json(results) + "\n", "utf-8")
    page = {  # what the page shows beside the run: the table of methods, and the run with noise
        "title": "FedHK demo: six hospitals that measure differently",
        "about": ABOUT,
        "note": f"{_describe_gain(results)} {NOTES}",
        "columns": COLUMNS,
        "rows": _list_method_rows(results),
        "private": PRIVATE_RUN,
    }
    (draft / COMPARISON).write_text(to_json(page) + "\n", "utf-8")
    write_report(draft, data=train)
    return results


def _list_results(found: Comparison, private: Facts) -> dict[str, Any]:
    """List all measurements, what the run with noise promised, and what the ledger of each site says it spent."""
    from fedhk.evaluation.attack_sites import count_rows

    truth = found.rows.truth
    by_site = {method: measured.score_sites(truth) for method, measured in found.methods.items()}
    assert private.privacy is not None  # noqa: S101 - it had a budget
    epsilon, delta = private.privacy
    return {
        "about": ABOUT,
        "notes": NOTES,
        "n_clusters": N_CLUSTERS,
        "methods": {method: measured.score(truth) for method, measured in found.methods.items()},
        "sites": {
            site: {
                "rows": count_rows(tables),
                "rows_measured": len(truth[site]),
                "missing_views": [view for view, table in tables.items() if table is None],
                "ari": {method: scores[site] for method, scores in by_site.items()},
            }
            for site, tables in found.rows.train.items()
        },
        "privacy": {"epsilon": epsilon, "delta": delta, "secure": private.secure, "spent_by_site": dict(private.spent)},
    }


def _describe_gain(results: dict[str, Any]) -> str:
    """Say what own models gained and what noise cost, in two sentences."""
    from fedhk.evaluation.comparison import ALONE, GLOBAL, OWN, PRIVATE

    own, common, alone, private = (results["methods"][n]["ari_per_site"] for n in (OWN, GLOBAL, ALONE, PRIVATE))
    return (
        f"Mean ARI at a site: {own:.3f} with own models, {common:.3f} with one model for all, {alone:.3f} alone. "
        f"With own models and noise of epsilon {results['privacy']['epsilon']:.3g} it is {private:.3f}."
    )


def _describe_spending(spent: dict[str, Any]) -> str:
    """Say what every site spent, in two sentences."""
    found = {f"{epsilon:.3g}" for epsilon in spent["spent_by_site"].values()}
    who = "The sites shared one noise" if spent["secure"] else "Every site added the whole noise"
    return (
        f"{who}. By its own ledger, every site spent epsilon {' to '.join(sorted(found))} at delta "
        f"{spent['delta']:g} in the whole run with noise."
    )


def _list_method_rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """List a row of text per method, under `COLUMNS`."""
    return [
        (
            method,
            *(_format_share(measured[name]) for name in ("ari_per_site", "ari", "accuracy")),
            f"{measured['rows_sent']:,}",
            format_bytes(measured["bytes_sent"]),
            f"{measured['seconds']:.2f}",
        )
        for method, measured in results["methods"].items()
    ]


def _show_results(results: dict[str, Any], target: Path, page: Path) -> None:
    show(results["about"], "\n")
    title = "clusters found without labels, measured on rows that no model saw"
    show(make_table(title, COLUMNS, _list_method_rows(results), numbers=COLUMNS[1:]))
    show(results["notes"], "\n")
    methods = tuple(results["methods"])
    sites = [
        (name, site["rows"], ", ".join(site["missing_views"]), *(_format_share(site["ari"][m]) for m in methods))
        for name, site in results["sites"].items()
    ]
    columns = ("site", "rows", "lacks", *methods)
    show(make_table("ARI at each site", columns, sites, numbers=("rows", *methods)))
    show(_describe_gain(results), _describe_spending(results["privacy"]), "\n")
    say(f"Open the page: {page}", err=False)
    go_on = write_command("fedhk", "fit", target / DATA, "--clusters", results["n_clusters"], "--out", "run/")
    say(f"Go on: {go_on}", err=False)


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
