"""`fedhk flower link` and `fedhk flower site`: Flower's programs with the flags that a federation needs."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from fedhk._files import hold
from fedhk._names import suggest
from fedhk.cli import options as o
from fedhk.cli.console import counted, exit_codes, say, say_notes
from fedhk.cli.flower.keys import CA, SERVER_CERTIFICATE, SERVER_KEY
from fedhk.cli.flower.processes import (
    LOOPBACK,
    FlowerError,
    check_port,
    check_reachable,
    environment,
    free_port,
    program,
    require_flower,
    split_address,
)
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk.federation.remote.policy import Policy

# The file in the state of a site that is locked while the site is running.
RUNNING = "running"

Tls = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `fedhk flower certificates`.", file_okay=False)]
Database = Annotated[
    Path, typer.Option("--database", help="File in which the SuperLink keeps who is registered, and runs.")
]

AFTER_305 = (
    "What follows is Flower's SuperNode. If it ends with code 305, its key is not registered; or it was killed within\n"
    "the last two minutes, and the SuperLink takes the old one for alive still: then start it again."
)


def link(
    tls: Tls,
    database: Database,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 is all.")] = LOOPBACK,
    port: Annotated[int, typer.Option("--port", help="Port to listen on.", min=1, max=65535)] = 8000,
) -> None:
    """Start a SuperLink: TLS on, sites only with registered keys, no installer, no telemetry.

    For example:

        fedhk flower link tls/ --database link.db --port 8000
    """
    with exit_codes():
        require_flower()
        missing = [name for name in (CA, SERVER_CERTIFICATE, SERVER_KEY) if not (tls / name).is_file()]
        if missing:
            raise FlowerError(f"{str(tls)!r} lacks {missing}; `fedhk flower certificates` makes them.")
        check_port(host, port, "the SuperLink")
        _become(link_command(tls, database, host, port))


def link_command(tls: Path, database: Path, host: str, port: int) -> list[str]:
    """Return the command that starts a SuperLink."""
    return [
        "flower-superlink",
        *("--host", host, "--port", str(port), "--database", str(database.absolute())),
        *("--ssl-ca-certfile", str(tls / CA)),
        *("--ssl-certfile", str(tls / SERVER_CERTIFICATE)),
        *("--ssl-keyfile", str(tls / SERVER_KEY)),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]


def site(  # noqa: PLR0917
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The site's folder, with a file per view.")],
    name: Annotated[str, typer.Option("--name", help="What the site is called in the federation.")],
    state: Annotated[Path, typer.Option("--state", help="Folder for what the site keeps: ledger, model, labels.")],
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="The site's private key, registered at the SuperLink.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="TOML file: what this site demands of any run.")
    ] = None,
    also: Annotated[
        Path | None,
        typer.Option(
            "--also", help="Folder with further tables of the same rows, for questions after a fit.", file_okay=False
        ),
    ] = None,
    id_column: o.IdOfSite = None,
    insecure: o.Insecure = False,
    port: Annotated[int | None, typer.Option("--port", help="Port on loopback for this site's own processes.")] = None,
) -> None:
    """Start a site: a SuperNode that answers for a data folder.

    The folder is read first as a run would read it. It is read anew for every message, so that it must stay as it is
    while a run is under way.

    For example:

        fedhk flower site data/rome --name rome --state state/ --superlink fed.example.org:8000
            --root-certificates ca.crt --key rome.key
    """
    with exit_codes():
        from fedhk.federation.remote.policy import Policy, read_policy
        from fedhk.privacy.identity import fingerprint
        from fedhk.privacy.ledger import NAME

        require_flower()
        if not insecure and (root_certificates is None or key is None):
            raise typer.BadParameter("and --root-certificates are needed, or --insecure.", param_hint="--key")
        for file, option in ((root_certificates, "--root-certificates"), (key, "--key"), (policy, "--policy")):
            if file is not None and not file.is_file():
                raise FlowerError(f"{option} {str(file)!r} is not there.")
        if key is not None:
            _check_key(key)
        demands = Policy() if policy is None else read_policy(policy)
        say(_describe_site(data, name, demands, id_column))
        _say_policy(policy, demands, state / quote(name, safe="") / NAME)
        if also is not None:
            say(_describe_further(data, name, also, demands.held_out, id_column))
        elif demands.held_out:
            say_notes(["held_out of the policy has no effect without --also, the folder with these columns."])
        _check_own_key(name, demands)
        for other, public in sorted(demands.known.items()):
            say(f"Its policy knows {other!r} by the key with the fingerprint {fingerprint(bytes.fromhex(public))}.")
        split_address(superlink)
        try:
            check_reachable(superlink)
        except FlowerError as error:  # it may come later: the SuperNode goes on trying
            say(f"Note: {error}")
        if port is not None:
            check_port(LOOPBACK, port, "the SuperNode")
        _hold_state(name, state)
        say(AFTER_305)
        _become(
            site_command(
                *(data, name, state, superlink, root_certificates, key),
                policy=policy,
                also=also,
                id_column=id_column,
                port=port or free_port(),
            )
        )


def _check_key(key: Path) -> None:
    """Refuse a file that is not the private key of a site."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        load_ssh_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:  # a TypeError where it has a password
        private = f"; the private key is {str(key.with_suffix(''))!r}" if key.suffix == ".pub" else ""
        raise FlowerError(
            f"--key {str(key)!r} is no private key in OpenSSH form without a password, as `fedhk flower key` makes "
            f"one{private}."
        ) from error


def _hold_state(name: str, state: Path) -> None:
    """Refuse a site that runs already; until this process ends, its state is its own."""
    folder = state / quote(name, safe="")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not hold(folder / RUNNING):
        raise FlowerError(f"Site {name!r} is running already, with its state in {str(folder)!r}: end that one first.")


def _say_policy(file: Path | None, demands: Policy, ledger: Path) -> None:
    """Say what a site demands of any run, and what its ledger leaves."""
    from fedhk.cli.ledger import find_rest
    from fedhk.privacy.ledger import read_ledger, spent_on

    if file is None:
        say_notes(
            [
                "no policy: this site takes part in any run, also without masks and noise, and nothing limits what is "
                "spent. --policy FILE says what it demands."
            ]
        )
        return
    say(demands.describe())
    if demands.epsilon is not None:
        made = read_ledger(ledger)[0] if ledger.is_file() else []
        spent = spent_on(made, demands.delta, demands.neighbours) if made else 0.0
        rest = find_rest(made, demands)
        until = f" until {rest['year_ends']}" if rest.get("year_ends") else ""
        say(f"Epsilon {spent:.3g} is spent; one more run may have {rest['left']:.3g}{until}.")


def _check_own_key(name: str, demands: Policy) -> None:
    """Refuse a policy whose `known` lists another key for this site than `identity` has.

    The sites share one list, so that the others would refuse what this site signs, in the middle of a run.
    """
    from fedhk.privacy.identity import load_identity

    listed = demands.known.get(name)
    if listed is None:
        return
    if demands.identity is None:
        raise DataError(
            f"policy: known lists a key of {name!r}, this site, but identity, the file of that key, is missing. "
            "`fedhk flower mask-key` makes it."
        )
    if load_identity(demands.identity)[1] != bytes.fromhex(listed):
        raise DataError(
            f"policy: known[{name!r}] is not the key of this site's identity, {demands.identity!r}. "
            f"`fedhk flower mask-key {demands.identity} --name {name}` shows the line that all sites must have."
        )


def _describe_site(data: Path, name: str, demands: Policy, id_column: str | None = None) -> str:
    """Read a site as a run would, and describe it; refuse what its policy says that does not go with its rows."""
    from fedhk.data.folders import Reading, list_folders, read_site
    from fedhk.data.levels import first_places
    from fedhk.data.named import named_views
    from fedhk.data.views import check_views
    from fedhk.errors import DataError
    from fedhk.federation.remote.own_rows import check_policy_bounds
    from fedhk.federation.remote.site import check_name

    check_name(name)
    if data.is_dir() and data / name in list_folders(data):
        raise DataError(f"{str(data)!r} has folders of sites: give that of this one, {str(data / name)!r}.")
    found = read_site(data, reading=Reading(id_column))
    demands.check_rows(found.n_rows)
    rows = check_views(named_views(found), missing_views=True, min_rows=0)
    say_notes(check_policy_bounds(name, rows, demands.bounds))
    counts = {
        view: len(first_places(found.columns[view], math.prod(values.shape[1:])))
        for view, values in found.views.items()
        if values is not None
    }
    views = ", ".join(f"{view} ({counted(count, 'column')})" for view, count in counts.items())
    return f"Site {name!r}: {counted(found.n_rows, 'row')}, views {views}."


def _describe_further(data: Path, name: str, also: Path, allowed: Sequence[str], id_column: str | None = None) -> str:
    """Read the further tables of a site as a question would, and say which columns questions may read."""
    from fedhk.data.folders import Reading, read_site
    from fedhk.data.further import align_tables, keep_columns, read_further
    from fedhk.data.levels import base_name
    from fedhk.errors import DataError

    every = read_further(also, data, id_column)
    known = sorted({base_name(column) for names in every.columns.values() for column in names or ()})
    if unknown := [column for column in allowed if column not in known]:
        raise DataError(
            f"policy: held_out has {unknown[0]!r}, which is no column in {str(also)!r}; they are {', '.join(known)}."
            f"{suggest(unknown[0], known)}"
        )
    found = keep_columns(every, allowed)
    tables = align_tables(name, read_site(data, reading=Reading(id_column)), found)
    listed = sorted({base_name(column) for table in tables.values() for column in table.columns or ()})
    return f"Questions after a fit may read {', '.join(listed) or 'none'} of the columns in {str(also)!r}."


def site_command(  # noqa: PLR0917
    data: Path,
    name: str,
    state: Path,
    superlink: str,
    root_certificates: Path | None,
    key: Path | None,
    *,
    policy: Path | None = None,
    ledger: Path | None = None,
    also: Path | None = None,
    id_column: str | None = None,
    port: int,
) -> list[str]:
    """Return the command that starts a SuperNode."""
    config = {"site": name, "data": str(data.absolute()), "state": str(state.absolute())}
    for entry, path in (("policy", policy), ("ledger", ledger), ("also", also)):
        if path is not None:
            config[entry] = str(path.absolute())
    if id_column is not None:
        config["id"] = id_column
    for entry, value in config.items():
        if any(mark in value for mark in "\"'\\"):  # Flower's own reader stumbles over them
            raise FlowerError(
                f"{entry} {value!r} has a quotation mark or a backslash, which --node-config cannot carry."
            )
    words = " ".join(f'{entry}="{value}"' for entry, value in config.items())
    trust = ["--insecure"] if root_certificates is None else ["--root-certificates", str(root_certificates.absolute())]
    if key is not None:
        trust += ["--auth-supernode-private-key", str(key.absolute())]
    where = ["--superlink", superlink, "--host", LOOPBACK, "--port", str(port)]
    return ["flower-supernode", *where, *trust, "--node-config", words]


def _become(command: list[str]) -> None:
    """Replace this process by another program, so that signals reach it."""
    os.execve(program(command[0]), command, environment())  # noqa: S606 - a program of Flower, with arguments of ours
