"""`fedhk flower init`: a folder that Flower runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedhk._version import __version__
from fedhk.cli import options as o
from fedhk.cli.algorithms import ALGORITHMS
from fedhk.cli.config import Config, ConfigError, read_config
from fedhk.cli.console import OutputExistsError, exit_codes, say, say_notes, write_command
from fedhk.cli.fit import with_public_bounds
from fedhk.cli.runs import is_vacant

CONFIG_FILE, SERVER_FILE, CLIENT_FILE, PROJECT_FILE = "fedhk.toml", "server_app.py", "client_app.py", "pyproject.toml"

# A round over Flower takes seconds whatever it computes. At this tolerance runs end after about two thirds of the
# rounds that the default takes, within 1e-4 of the same objective (benchmarks/results/federation.md).
FLOWER_TOL = 1e-4

# What Flower's run configuration may say, and what holds where it does not.
RUN_CONFIG: dict[str, Any] = {
    "out": "",
    "sites": "",
    "wait": 600.0,
    "resume": False,
    "force": False,
    "failure": "",
    "question": "",  # a file with what is asked of the sites of a finished run, in place of a fit
}

# What such a file has as its kind where the model of the run is to be updated.
UPDATE = "update"

# File beside `failure` in which the coordinator says line by line which sites have come.
NEWS = "news.txt"

SERVER = '''"""The coordinator of a FedHK federation; fedhk.toml, beside this file, says what is run."""

from pathlib import Path

from fedhk.cli.flower.coordinate import make_server_app

app = make_server_app(Path(__file__).parent / "fedhk.toml")
'''

CLIENT = '''"""A site of a FedHK federation; it does not load what only the coordinator needs."""

from fedhk.flower import make_client_app

app = make_client_app()
'''

PROJECT = """\
# A Flower app, made by `fedhk flower init`. What is run stands in fedhk.toml.
[project]
name = "fedhk-federation"
version = "{version}"
description = "Federated multi-view clustering with FedHK"
license = "BSD-3-Clause"
dependencies = ["fedhk[flower,privacy]=={version}"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "fedhk"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

# sites: who takes part, with commas between; empty lets every registered SuperNode in
# wait: seconds to wait for them before the run begins with those that are there
# the others are set by `fedhk flower run`, and by the commands that ask questions
[tool.flwr.app.config]
{settings}
"""

# What is better known before a budget is spent than after it.
NO_UPDATES = "cannot be updated with new rows later, but only fitted anew; --algorithm e-fkmvc can."

AppFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; it must not exist or be empty.")]
Sites = Annotated[
    str | None,
    o.option("sites", "Names of the sites that take part, with commas between.", "all that come"),
]
RunSites = Annotated[
    str | None,
    o.option("sites", "Names of the sites that take part, with commas between.", "those of the run"),
]
DictionaryFile = Annotated[
    Path | None,
    typer.Option("--dictionary", help="Data dictionary, for pages; with --epsilon its ranges are the bounds."),
]
Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait for the sites before a run begins.", min=0)]


def init(  # noqa: PLR0917
    folder: AppFolder,
    clusters: o.Clusters = None,
    algorithm: o.Name = None,
    sites: Sites = None,
    wait: Wait = 600.0,
    config: o.ConfigFile = None,
    seed: o.Seed = None,
    min_sites: o.MinSites = None,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    bounds: o.Bounds = None,
    dictionary: DictionaryFile = None,
    secure: o.Secure = None,
    settings: o.Settings = None,
) -> None:
    """Make a Flower app for a federation of real sites.

    DIR gets fedhk.toml, which says what is run and may be edited, and the two files that Flower needs. `fedhk flower
    run DIR` runs it. Over Flower a round takes seconds whatever it computes, so rounds are few: `tol` is 1e-4 where
    nothing else is asked for (fedhk-diffusion keeps its own). With a privacy budget all rounds are run that share it,
    and `tol` has no say.

    For example:

        fedhk flower init clinics/ --clusters 6 --sites rome,oslo,pisa

        fedhk flower init clinics/ --clusters 6 --secure --epsilon 2 --delta 1e-6 --dictionary dictionary.toml
    """
    privacy = o.parse_privacy(epsilon, delta, bounds)
    given = {"n_clusters": o.parse("clusters", clusters), "privacy": privacy, "secure": secure}
    with exit_codes():
        wanted = make_config(config, given, settings, min_sites, algorithm=algorithm, seed=seed)
        if wanted.parameters.get("privacy") is not None:
            wanted = with_public_bounds(wanted, dictionary)
        make_app(folder, wanted, sites=site_names(sites or ""), wait=wait, dictionary=dictionary)
    if wanted.parameters.get("privacy") is not None and not ALGORITHMS[wanted.algorithm].noisy_updates:
        say_notes([f"{wanted.algorithm} with a privacy budget {NO_UPDATES}"])
    say(f"Written to {folder}. Next, on the SuperLink's machine, with the ca.crt of `fedhk flower certificates`:")
    say(write_command("fedhk", "flower", "run", folder, "--root-certificates", "tls/ca.crt", "--out", "run/"))


def make_config(
    config: Path | None, given: dict[str, Any], settings: list[str] | None, min_sites: int | None, **others: Any
) -> Config:
    """Make the configuration: a file, if given, changed by options and --set."""
    base = Config() if config is None else read_config(config)
    wanted = base.updated(given | o.parse_settings(settings), **others)
    return wanted.with_options("participation", min_sites=min_sites)


def find_fewest(config: Config, sites: list[str]) -> int:
    """Find how many sites must be there for a run to begin: masked sums need three, or their threshold.

    Refuse a run that needs more than are named: it would wait for sites that nobody expects.
    """
    from fedhk.privacy.mechanism import FEWEST_SITES, SecureSummation

    fewest = int(config.parameters.get("participation", {}).get("min_sites") or len(sites) // 2 + 1)
    secure, why = config.parameters.get("secure"), "min_sites"
    if secure:
        masks = SecureSummation(**secure) if isinstance(secure, dict) else SecureSummation()
        fewest, why = max(fewest, FEWEST_SITES, masks.threshold or 0), "secure"
    if sites and len(sites) < fewest:
        raise ConfigError(f"{why} needs at least {fewest} sites, and {len(sites)} are named: {', '.join(sites)}.")
    return fewest


def site_names(text: str) -> list[str]:
    """Split names at commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def make_app(
    folder: Path, config: Config, *, sites: list[str], wait: float = 600.0, dictionary: Path | None = None
) -> None:
    """Write the files of an app. `sites` take part, everybody if there are none; `wait` is in seconds.

    The data dictionary, if there is one, tells the pages of runs what columns are.
    """
    from fedhk.data.dictionary import DICTIONARY

    if not is_vacant(folder):
        raise OutputExistsError(f"{str(folder)!r} exists already and is not empty; give another folder.")
    if not ALGORITHMS[config.algorithm].federated:
        raise ConfigError(f"Algorithm {config.algorithm!r} clusters one site; a federation needs a federated one.")
    if "n_clusters" not in config.parameters:
        raise typer.BadParameter("is needed.", param_hint="--clusters")
    find_fewest(config, sites)
    # with noise, all rounds that share the budget are run, whatever `tol` is
    hasty = config.parameters.get("privacy") or ALGORITHMS[config.algorithm].defaults()["tol"] >= FLOWER_TOL
    quick = {} if hasty else {"tol": FLOWER_TOL}
    complete = replace(config, parameters=quick | config.parameters).complete()
    run_config = RUN_CONFIG | {"sites": ",".join(sites), "wait": float(wait)}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in run_config.items())
    files = {
        CONFIG_FILE: complete.to_toml(),
        SERVER_FILE: SERVER,
        CLIENT_FILE: CLIENT,
        PROJECT_FILE: PROJECT.format(version=__version__, settings=lines),
    }
    if dictionary is not None:
        files[DICTIONARY] = dictionary.read_text("utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, "utf-8")
