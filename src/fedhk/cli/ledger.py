"""`fedhk ledger`: what sites have spent of their privacy, over all runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhk._names import suggest_path
from fedhk.cli import options as o
from fedhk.cli.console import counted, exit_codes, make_table, say, say_notes, show, to_json
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk.federation.remote.policy import Policy
    from fedhk.privacy.ledger import Release

KINDS = ("replace", "add-remove")
FIT, UPDATED, QUESTION = "fit", "update", "question"

LedgerPaths = Annotated[
    list[Path],
    typer.Argument(metavar="PATH...", help="Ledger files, folders of them, or the state folders of remote sites."),
]
AtDelta = Annotated[
    float | None,
    o.option("delta", "At which epsilon is computed.", "that of the policy, or 1e-6"),
]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", help="A site's policy, a TOML file: show what it leaves to further runs.")
]


def ledger(paths: LedgerPaths, delta: AtDelta = None, policy: PolicyFile = None, json: o.Json = False) -> None:
    """Add up what sites have spent of their privacy over all runs.

    Ledgers are read and checked, and never changed. Those of one site in several PATHs are added up: give all that are
    of the same rows. A ledger that is damaged, cut, deleted or an older copy is an error, with exit code 3.

    For example:

        fedhk ledger hospitals.ledger/

        fedhk ledger state/rome --policy rome.toml --json
    """
    with exit_codes():
        from fedhk.federation.remote.policy import read_policy

        demanded = None if policy is None else read_policy(policy)
        at = delta if delta is not None else 1e-6 if demanded is None else demanded.delta
        if not 0 < at < 1:
            raise typer.BadParameter(f"{at} is not between 0 and 1.", param_hint="--delta")
        if demanded is not None:
            demanded.check_rows(max(map(_count_rows, paths), default=0))
        releases, notes = _read_releases(paths)
        sites = {site: _add_up(found, at, demanded) for site, found in sorted(releases.items())}
    say_notes(notes)
    if json:
        typer.echo(to_json({"delta": at, "sites": sites, "notes": notes}))
    else:
        _show_sites(sites, at)
        _show_runs(sites)


def _count_rows(state: Path) -> int:
    """Count the rows that a site had in its last run, by the labels in its state folder; 0 where there are none."""
    import polars as pl

    from fedhk._files import read_regular
    from fedhk.data.named import LABELS
    from fedhk.federation.remote.site import RESULTS

    return max((len(pl.read_parquet(read_regular(f))) for f in (state / RESULTS / LABELS).glob("*.parquet")), default=0)


def _read_releases(paths: list[Path]) -> tuple[dict[str, list[Release]], list[str]]:
    """Read all ledgers at some paths, by site, and note which could not be compared with a tip."""
    from fedhk.privacy.ledger import find_ledgers, read_ledger

    releases: dict[str, list[Release]] = {}
    notes, read = [], set()
    for path in paths:
        found = find_ledgers(path)
        if not found:
            fault = "holds no ledger" if path.exists() else "does not exist"
            raise DataError(f"{str(path)!r} {fault}.{suggest_path(path)}")
        for file in found:
            if file.resolve() in read:
                continue
            read.add(file.resolve())
            lines, guarded = read_ledger(file)
            if not guarded:
                notes.append(f"{file} has no tip beside its folder: whether lines at its end are missing is not known.")
            for release in lines:
                releases.setdefault(release.site, []).append(release)
    return releases, notes


def _add_up(releases: list[Release], delta: float, policy: Policy | None) -> dict[str, Any]:
    """Add up what one site has spent: in each run, in total, and what its policy leaves."""
    runs: dict[str, list[Release]] = {}
    for release in releases:
        runs.setdefault(release.run, []).append(release)
    found: dict[str, Any] = {
        **_summarise(releases, delta),
        "runs": [{"run": run, **_find_kind(made), **_summarise(made, delta)} for run, made in runs.items()],
    }
    if policy is not None and policy.epsilon is not None:
        terms = {"epsilon": policy.epsilon, "delta": policy.delta, "neighbours": policy.neighbours}
        found["policy"] = terms | find_rest(releases, policy)
    return found


def _find_kind(releases: list[Release]) -> dict[str, Any]:
    """Find what a run was for by the names of its sums."""
    from fedhk.privacy.mechanism import AFTER, LENGTH_OF, UPDATE

    names = list(dict.fromkeys(release.phase for release in releases))
    first = names[0].removeprefix(LENGTH_OF)  # all sums of a run are of one kind
    kind = QUESTION if first.startswith(AFTER) else UPDATED if first.startswith(UPDATE) else FIT
    return {"kind": kind, "sums": names}


def _summarise(releases: list[Release], delta: float) -> dict[str, Any]:
    from fedhk.privacy.ledger import spent_on

    times = sorted(release.time for release in releases)
    spent = {kind: spent_on(releases, delta, kind) for kind in KINDS}  # type: ignore[arg-type]
    return {"releases": len(releases), "first": times[0], "last": times[-1], "epsilon": spent}


def find_rest(releases: list[Release], policy: Policy) -> dict[str, Any]:
    """Find the largest epsilon, at the policy's delta, that one more run may have.

    With a policy for some years it is that of this year; the day on which this year ends is None if all are over.
    """
    from fedhk.privacy.accounting import epsilon_of, mu_of
    from fedhk.privacy.plan import PrivacyPlan

    assert policy.epsilon is not None  # noqa: S101 - asked before
    plan: dict[str, Any] = {}
    if policy.years is not None:
        year = PrivacyPlan(policy.epsilon, policy.years, policy.delta, policy.neighbours).find_year(releases)
        if year is None:
            return {"left": 0.0, "years": policy.years, "year_ends": None}
        ends, releases = year
        plan = {"years": policy.years, "year_ends": f"{ends:%Y-%m-%d}"}
    rest = mu_of(policy.epsilon, policy.delta) ** 2 - sum(r.multiplier_for(policy.neighbours) ** -2 for r in releases)
    return {"left": epsilon_of(policy.delta, math.sqrt(rest)) if rest > 0 else 0.0} | plan


def _show_sites(sites: dict[str, Any], delta: float) -> None:
    left = any("policy" in site for site in sites.values())
    rows = []
    for name, site in sites.items():
        spent = [f"{site['epsilon'][kind]:.4g}" for kind in KINDS]
        rest = [_tell_rest(site["policy"])] if left else []
        rows.append((name, len(site["runs"]), site["releases"], site["last"][:10], *spent, *rest))
    columns = ("site", "runs", "releases", "last", *KINDS, *(["left"] if left else []))
    title = f"epsilon spent over all runs, at delta {delta:g}, by kind of neighbours"
    show(make_table(title, columns, rows, numbers=("runs", "releases", *KINDS, "left")))
    plans = [site["policy"] for site in sites.values() if "years" in site.get("policy", {})]
    if plans:  # all have the same: a policy is given once
        epsilon, years = f"{plans[0]['epsilon']:g}", counted(plans[0]["years"], "year")
        say(
            f"The policy allows epsilon {epsilon} in each year, for {years} from a site's first release on. Left is of "
            "this year; the other columns count all years.",
            err=False,
        )
    if left:
        say("Left is the largest epsilon that one more run may have; two runs come to less than their sum.", err=False)


def _show_runs(sites: dict[str, Any]) -> None:
    """Show what each run was for and what it has spent, the last one first."""
    made = [(name, run) for name, site in sites.items() for run in reversed(site["runs"])]
    made.sort(key=lambda pair: pair[1]["last"], reverse=True)
    lines = [
        (name, run["run"], run["kind"], ", ".join(run["sums"]), run["last"][:10], f"{run['epsilon'][KINDS[0]]:.4g}")
        for name, run in made
    ]
    title = f"epsilon of each run, the last one first, for neighbours {KINDS[0]!r}"
    show(make_table(title, ("site", "run", "kind", "sums", "last", "epsilon"), lines, numbers=("epsilon",)))


def _tell_rest(terms: dict[str, Any]) -> str:
    """Say what a policy leaves, and if it is for some years, until when."""
    rest = f"{terms['left']:.4g} of {terms['epsilon']:g}"
    if "years" not in terms:
        return rest
    if terms["year_ends"] is None:
        return f"{rest}: all years are over"
    return f"{rest} until {terms['year_ends']}"
