"""`fedhk demo`: six sites that differ, with models of their own and once more with noise, on one page."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedhk._files import replacing
from fedhk.cli import options as o
from fedhk.cli.config import Config
from fedhk.cli.console import add_rows, exit_codes, make_table, output, say, show_json, size, to_json
from fedhk.cli.runs import absolute, check_free, is_run, keep_ledger, write_run

if TYPE_CHECKING:
    from fedhk.cli.comparison import Comparison
    from fedhk.report.facts import Facts

DATA, PRIVATE_RUN, RESULTS = "data", "private", "comparison.json"
COLUMNS = ("", "ARI per site", "ARI all rows", "accuracy", "rows sent", "bytes sent", "seconds")

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
        from fedhk.cli.comparison import compare, make_federation
        from fedhk.report import REPORT

        target = absolute(out)
        check_free(target, force=force or _is_demo(target))
        with TemporaryDirectory() as scratch, replacing(target) as draft:
            checkpoint = Path(scratch)
            found = compare(make_federation(), seed, checkpoint, lambda text: None if json else say(text))
            results = _write(draft, target, found, checkpoint, seed)
    page = target / REPORT
    if json:
        show_json(results | {"out": str(target), "page": str(page)})
    else:
        _show(output(), results, target, page)


def _is_demo(folder: Path) -> bool:
    """Whether a folder is one that the demo wrote."""
    return is_run(folder) and (folder / RESULTS).is_file()


def _write(draft: Path, target: Path, found: Comparison, checkpoint: Path, seed: int) -> dict[str, Any]:
    """Both runs as `fit` writes them, their data, the page and the measurements; returns the measurements."""
    from fedhk.cli.comparison import N_CLUSTERS, PRIVACY, can_sum_securely
    from fedhk.data.folders import write_site
    from fedhk.report import write_report
    from fedhk.report.gather import BESIDES, facts_of_run

    federation = found.sites.fitted
    for name, site in federation.sites.items():
        write_site(draft / DATA / name, site.views, site.ids, site.columns)
    config = Config(target / DATA, "fedhk-person", seed, {"n_clusters": N_CLUSTERS})
    write_run(draft, found.own, config.complete(), data=DATA, evaluation=found.evaluation)
    folder = draft / PRIVATE_RUN
    folder.mkdir()
    keep_ledger(checkpoint, folder)
    with_noise = config.updated({"privacy": PRIVACY, "secure": can_sum_securely()}).complete()
    write_run(folder, found.private, with_noise, data=f"../{DATA}")
    write_report(folder, title=f"{target.name}, with noise")
    results = found.to_dict() | {"privacy": _spent(facts_of_run(folder))}
    (draft / RESULTS).write_text(to_json(results) + "\n", "utf-8")
    (draft / BESIDES).write_text(to_json(_besides(results)) + "\n", "utf-8")
    write_report(draft, data=federation)
    return results


def _spent(private: Facts) -> dict[str, Any]:
    """What the run with noise promised, and what the ledger of each site says it spent."""
    assert private.privacy is not None  # noqa: S101 - it had a budget
    epsilon, delta = private.privacy
    return {"epsilon": epsilon, "delta": delta, "secure": private.secure, "spent_by_site": dict(private.spent)}


def _besides(results: dict[str, Any]) -> dict[str, Any]:
    """What the page shows beside the run: the table of methods, and the run with noise."""
    return {
        "title": "FedHK demo: six hospitals that measure differently",
        "about": results["about"],
        "note": f"{_in_short(results)} {results['notes']}",
        "columns": COLUMNS,
        "rows": _method_rows(results),
        "private": PRIVATE_RUN,
    }


def _in_short(results: dict[str, Any]) -> str:
    """What own models gained and what noise cost, in a sentence."""
    from fedhk.cli.comparison import ALONE, GLOBAL, OWN, PRIVATE

    own, common, alone, private = (results["methods"][n]["ari_per_site"] for n in (OWN, GLOBAL, ALONE, PRIVATE))
    return (
        f"Mean ARI at a site: {own:.3f} with own models, {common:.3f} with one model for all, {alone:.3f} alone. "
        f"With own models and noise of epsilon {results['privacy']['epsilon']:.3g} it is {private:.3f}."
    )


def _method_rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row of text per method, under `COLUMNS`."""
    return [
        (
            method,
            *(_share(measured[name]) for name in ("ari_per_site", "ari", "accuracy")),
            f"{measured['rows_sent']:,}",
            size(measured["bytes_sent"]),
            f"{measured['seconds']:.2f}",
        )
        for method, measured in results["methods"].items()
    ]


def _show(console: Console, results: dict[str, Any], target: Path, page: Path) -> None:
    console.print(results["about"], "\n")
    title = "clusters found without labels, measured on rows that no model saw"
    console.print(add_rows(make_table(title, *COLUMNS, numbers=COLUMNS[1:]), _method_rows(results)))
    console.print(results["notes"], "\n")
    methods = tuple(results["methods"])
    sites = [
        (name, site["rows"], ", ".join(site["missing_views"]), *(_share(site["ari"][method]) for method in methods))
        for name, site in results["sites"].items()
    ]
    columns = ("site", "rows", "lacks", *methods)
    numbers = ("rows", *methods)
    console.print(add_rows(make_table("ARI at each site", *columns, numbers=numbers), sites))
    console.print(_in_short(results), _privacy_words(results["privacy"]), "\n")
    console.print(f"Open the page: {page}", markup=False, soft_wrap=True)
    console.print(
        f"Go on: fedhk fit {target / DATA} --clusters {results['n_clusters']} --out run/", markup=False, soft_wrap=True
    )


def _privacy_words(spent: dict[str, Any]) -> str:
    """What every site spent, in a sentence."""
    found = {f"{epsilon:.3g}" for epsilon in spent["spent_by_site"].values()}
    who = "The sites shared one noise" if spent["secure"] else "Every site added the whole noise"
    return (
        f"{who}. By its own ledger, every site spent epsilon {' to '.join(sorted(found))} at delta "
        f"{spent['delta']:g} in the whole run with noise."
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
