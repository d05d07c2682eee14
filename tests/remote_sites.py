"""Sites behind a transport without a network: the same bytes, files and steps as over a real one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fedhk import EFKMVC
from fedhk.data.folders import write_site
from fedhk.estimators.heat_kernel_mvc import write_site_model
from fedhk.estimators.loading import read_site_model
from fedhk.federation.board import Board
from fedhk.federation.engines.remote import RemoteSites
from fedhk.federation.entries import Terms
from fedhk.federation.gate import write_request
from fedhk.federation.messages import encode
from fedhk.federation.phases.base import Phase
from fedhk.federation.remote.policy import Policy
from fedhk.federation.remote.questions import Questions
from fedhk.federation.remote.site import KIND, STATE, RemoteSite, SiteFile
from fedhk.federation.stored import read_file, unpack_board
from fedhk.privacy.identity import make_identity, save_identity

NAMES = ("genoa", "oslo", "pisa", "rome")
QUICK = {"n_init": 2, "random_state": 0}


def _load() -> None:
    import_module("fedhk.after")


class Wire:
    """A transport whose nodes are folders; every message meets a new `RemoteSite`, as it meets a new process."""

    def __init__(
        self,
        sites: Mapping[str, Path],
        state: Path,
        policies: Mapping[str, Policy] | None = None,
        also: Mapping[str, Path] | None = None,
    ) -> None:
        self.sites = {node: (name, folder) for node, (name, folder) in enumerate(sites.items(), 1)}
        self.state = state
        self.policies = dict(policies or {})
        self.also = dict(also or {})
        self.gone: set[int] = set()
        self.changed: dict[int, Any] = {}
        self.sent: list[Mapping[int, bytes]] = []

    def nodes(self) -> Collection[int]:
        return [node for node in self.sites if node not in self.gone]

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:
        self.sent.append(payloads)
        return {node: self._answer(node, payload) for node, payload in payloads.items()}

    def _answer(self, node: int, payload: bytes) -> bytes | Exception:
        name, folder = self.sites[node]
        policy, questions = self.policies.get(name, Policy()), Questions(_load, read_site_model, self.also.get(name))
        site = RemoteSite(name, folder, self.state, write_site_model, policy, questions=questions)
        answer = site.answer(payload)
        change = self.changed.get(node)
        return answer if change is None else change(payload, answer)


def write_sites(sites: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Write sites as folders of parquet files."""
    for name, views in sites.items():
        write_site(folder / name, {f"view{i}": view for i, view in enumerate(views) if view is not None})
    return {name: folder / name for name in sites}


def make_policies(folder: Path, sites: Iterable[str], **demands: Any) -> dict[str, Policy]:
    """Policies of sites that know each other's long-term keys; the private ones are files of a folder."""
    known = {}
    for site in sites:
        private, public = make_identity()
        save_identity(folder / f"{site}.pem", private)
        known[site] = public.hex()
    return {site: Policy(identity=str(folder / f"{site}.pem"), known=known, **demands) for site in known}


def read_boards(state: Path, site: str, file: str = STATE) -> tuple[Board, Board]:
    """What a site has in its file: what the server has published, and what it keeps for itself."""
    stored = read_file(state / site / file, KIND, site, SiteFile)
    return unpack_board(stored.board, site), unpack_board(stored.memory, site)


def join_run(phase: type[Phase[Any, Any]], request: Any, **terms: Any) -> bytes:
    """A request with the terms of a run, as a site gets it first."""
    entry = Terms(**{"run": "a-run", "columns": {"view0": None, "view1": None}} | terms)
    return encode(write_request(phase.name, 0, request, phase.request_type, {"Terms": entry}))


def fit_remote(wire: Wire, estimator: Any = EFKMVC, engine: Any = None, resume: bool = False, **parameters: Any) -> Any:
    """Fit over the sites of a wire."""
    engine = RemoteSites(wire, expected=NAMES, wait=0.0) if engine is None else engine
    return estimator(3, engine=engine, **QUICK | {"view_weights": "uniform"} | parameters).fit(resume=resume)
