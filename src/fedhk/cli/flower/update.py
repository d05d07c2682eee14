"""`fedhk flower update`: continue a finished run with the rows that its sites have now."""

from __future__ import annotations

from fedhk.cli import options as o
from fedhk.cli.console import exit_codes
from fedhk.cli.flower.ask import call_asked, open_run
from fedhk.cli.flower.init import UPDATE, RunSites, site_names
from fedhk.cli.flower.processes import connect, interruptible
from fedhk.cli.flower.run import AppFolder
from fedhk.cli.runs import MODEL, absolute, check_free
from fedhk.cli.update import (
    HalfLife,
    Level,
    Rounds,
    UpdatedRun,
    UpdateEpsilon,
    check_force,
    choose_budget,
    read_federated,
    show_update,
)


def update(  # noqa: PLR0917
    folder: AppFolder,
    run: o.RunFolder,
    out: UpdatedRun = None,
    half_life: HalfLife = None,
    rounds: Rounds = 3,
    level: Level = 0.05,
    epsilon: UpdateEpsilon = None,
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    insecure: o.Insecure = False,
    sites: RunSites = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Go on from a finished run with the rows that the sites have now; say which clusters moved, came and went.

    Before it, each site replaces the rows in its data folder by new ones: rows of the earlier run would count twice.
    Clusters keep their numbers. Masks and noise are those of the run, and each site decides as in a fit: its policy
    must allow what the run and all updates spend together. --epsilon gives the update a budget of its own. Sites that
    are new to the federation are named by --sites, with all others.

    For example:

        fedhk flower update clinics/ run/ --root-certificates tls/ca.crt

        fedhk flower update clinics/ run/ --epsilon 0.5 --root-certificates tls/ca.crt

        fedhk flower update clinics/ run/ --half-life 2 --out run-2027/ --root-certificates tls/ca.crt
    """
    check_force(out, force=force)
    with exit_codes():
        from fedhk.estimators.loading import load
        from fedhk.estimators.updating import check_updatable, check_update

        source, target = open_run(run), absolute(out or run)
        if target != source:
            check_free(target, force=force)
        config = choose_budget(read_federated(source), epsilon)
        check_update(half_life, rounds, level)
        check_updatable(load(source / MODEL))
        given = {"half_life": half_life, "rounds": rounds, "level": level}
        asked = {"kind": UPDATE, "given": given, "out": str(target), "privacy": config.parameters.get("privacy")}
        with interruptible(), connect(superlink, root_certificates, insecure) as control:
            found = call_asked(control, folder, source, asked, sites=site_names(sites or ""))
        show_update(found, target, json=json)
