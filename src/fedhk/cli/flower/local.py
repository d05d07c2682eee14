"""`fedhk flower local`: a whole federation on one machine, with the processes, keys and TLS of a real one."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedhk._files import READABLE, write_atomically
from fedhk.cli import options as o
from fedhk.cli.config import Config
from fedhk.cli.console import exit_codes, say, to_json
from fedhk.cli.fit import show_summary, with_ledger, with_public_bounds
from fedhk.cli.flower.init import make_app, make_config
from fedhk.cli.flower.keys import CA, make_certificates, make_key, make_mask_key
from fedhk.cli.flower.processes import (
    CONNECTION,
    LOOPBACK,
    FlowerError,
    connect,
    environment,
    free_port,
    interruptible,
    last_lines,
    require_flower,
    start,
    stop,
    wait_for_port,
)
from fedhk.cli.flower.run import run_app
from fedhk.cli.flower.site import link_command, site_command
from fedhk.cli.runs import RELEASES, absolute, check_apart, check_free, choose_ledger
from fedhk.data.named import LABELS, SITES


def local(  # noqa: PLR0917
    folder: o.Folder,
    clusters: o.Clusters = None,
    algorithm: o.Name = None,
    out: o.Out = None,
    config: o.ConfigFile = None,
    force: o.Force = False,
    json: o.Json = False,
    seed: o.Seed = None,
    min_sites: o.MinSites = None,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    bounds: o.Bounds = None,
    ledger: o.LedgerFolder = None,
    secure: o.Secure = None,
    settings: o.Settings = None,
    id_column: o.IdColumn = None,
) -> None:
    """Run a federation on this machine as it would run between machines: to try it before others are asked.

    A SuperLink and one SuperNode for every sub-folder of FOLDER are started on loopback, with TLS and keys made for the
    occasion, and ended afterwards. The run folder has the files that `fedhk fit` writes, gathered from the sites.

    For example:

        fedhk flower local hospitals/ --clusters 6 --out run/
    """
    privacy = o.parse_privacy(epsilon, delta, bounds)
    given = {"n_clusters": o.parse("clusters", clusters), "privacy": privacy, "secure": secure}
    with exit_codes():
        others = {"data": folder, "algorithm": algorithm, "seed": seed, "id": id_column}
        wanted = make_config(config, given, settings, min_sites, **others)
        wanted = with_public_bounds(with_ledger(wanted, ledger))
        target = absolute(out if out is not None else Path("run"))
        with interruptible():
            summary = _run_local(wanted, target, force=force)
        show_summary(summary, target, json)


def _run_local(config: Config, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Start everything, run, gather, end everything; returns the summary."""
    from fedhk.data.folders import Reading, read_federation
    from fedhk.errors import DataError
    from fedhk.report.run import write_report
    from fedhk.summary.drawing import require_matplotlib

    require_flower()
    require_matplotlib()
    if config.data is None:
        raise DataError("a folder with one sub-folder per site is needed.")
    data = absolute(config.data)
    check_apart(out, data)
    check_free(out, force=force)
    ledger = choose_ledger(replace(config, data=data), out)
    federation_data = read_federation(data, Reading(config.id))
    names = list(federation_data.sites)
    work = Path(tempfile.mkdtemp(prefix="fedhk-local-"))
    try:
        make_app(work / "app", replace(config, data=data), sites=names, wait=120.0)
        masks, folders = bool(config.parameters.get("secure")), {name: data / name for name in names}
        with federation(work, folders, masks=masks, ledger=ledger, id_column=config.id) as running:
            with connect(running.address, work / "tls" / CA, insecure=False) as control:
                summary = run_app(control, work / "app", out, force=force, watch=running.check)
            gather(work / "state", names, out, ledger)
            write_report(out, data=federation_data)
    except BaseException:
        say(f"Logs of all processes are in {work}")
        raise
    shutil.rmtree(work, ignore_errors=True)
    return summary


@dataclass
class Running:
    """Processes of a federation on this machine."""

    address: str  # of the SuperLink
    # The SuperLink, by the name "", and the SuperNodes by site, with their logs.
    processes: dict[str, tuple[subprocess.Popen[Any], Path]] = field(default_factory=dict)

    def check(self) -> None:
        """Raise if one of them has ended."""
        for site, (process, log) in self.processes.items():
            if process.poll() is not None:
                who = f"the SuperNode of site {site!r}" if site else "the SuperLink"
                raise FlowerError(f"{who} ended with code {process.returncode}: {last_lines(log)}")


@contextmanager
def federation(
    work: Path,
    sites: dict[str, Path],
    *,
    masks: bool = False,
    ledger: Path | None = None,
    policies: dict[str, Path] | None = None,
    also: dict[str, Path] | None = None,
    id_column: str | None = None,
) -> Iterator[Running]:
    """Start a SuperLink and SuperNodes on loopback, which end when the context does.

    `sites` are data folders by name; `work` is the folder for keys, logs and the state of the sites, which may go
    afterwards. Ledgers may not: they are in the folder `ledger`. With `masks`, sites know each other's keys, as between
    real operators. `policies` are files by site, in place of those, and `also` the folders with further tables. Ids of
    all sites are in `id_column`.
    """
    policies, also = policies or (make_policies(work / "policies", list(sites)) if masks else {}), also or {}
    env = environment(work / "flwr")
    tls, keys = work / "tls", [work / "keys" / f"{number}.key" for number in range(len(sites))]
    make_certificates(tls, ["localhost"], days=2)
    port = free_port()
    running = Running(f"{LOOPBACK}:{port}")
    try:
        log = work / "superlink.log"
        link = start(link_command(tls, work / "link.db", LOOPBACK, port), log, env)
        running.processes[""] = link, log
        wait_for_port(port, link, log)
        with connect(running.address, tls / CA, insecure=False) as control:
            for key in keys:
                make_key(key)
                control.call("supernode", "register", f"{key}.pub", CONNECTION)
        for number, (name, data) in enumerate(sites.items()):
            where = data, name, work / "state", running.address, tls / CA, keys[number]
            log = work / f"site-{number}.log"
            policy, further = policies.get(name), also.get(name)
            command = site_command(
                *where, policy=policy, ledger=ledger, also=further, id_column=id_column, port=free_port()
            )
            running.processes[name] = start(command, log, env), log
        yield running
    finally:
        for process, _ in reversed(running.processes.values()):
            stop(process)


def make_policies(folder: Path, sites: list[str]) -> dict[str, Path]:
    """Write a policy for each site, with a long-term key of its own and the public keys of all."""
    folder.mkdir()
    keys = {name: folder / f"{number}.pem" for number, name in enumerate(sites)}
    known = "\n".join(f'{json.dumps(name)} = "{make_mask_key(key).hex()}"' for name, key in keys.items())
    policies = {name: key.with_suffix(".toml") for name, key in keys.items()}
    for name, path in policies.items():
        path.write_text(f'identity = "{keys[name].name}"\n[known]\n{known}\n', "utf-8")
    return policies


def gather(state: Path, sites: list[str], out: Path, ledger: Path | None = None) -> None:
    """Bring what sites keep into one run folder: only for sites of one machine and one owner."""
    from fedhk.federation.remote.site import RESULTS, RUN_NAME
    from fedhk.privacy.ledger import ledger_file, read_ledger

    releases = {}
    for site in sites:
        own = state / quote(site, safe="")
        for part, file in ((SITES, f"{site}.safetensors"), (LABELS, f"{site}.parquet")):
            if (own / RESULTS / part / file).is_file():
                shutil.copy2(own / RESULTS / part / file, out / part / file)
        if ledger is not None and (own / RESULTS / RUN_NAME).is_file():
            run = (own / RESULTS / RUN_NAME).read_text("utf-8")
            made, _ = read_ledger(ledger_file(ledger, site))
            releases[site] = [asdict(release) for release in made if release.run == run]
    if releases:
        write_atomically(out / RELEASES, (to_json(releases) + "\n").encode(), READABLE)
