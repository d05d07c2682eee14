"""Sites behind a transport without a network: the same bytes, files and steps as over a real one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fedhk.data.folders import write_site
from fedhk.estimators.site_model import write_site_model
from fedhk.federation.remote.policy import Policy
from fedhk.federation.remote.site import RemoteSite


class Wire:
    """A transport whose nodes are folders; every message meets a new `RemoteSite`, as it meets a new process."""

    def __init__(self, sites: Mapping[str, Path], state: Path, policies: Mapping[str, Policy] | None = None) -> None:
        self.sites = {node: (name, folder) for node, (name, folder) in enumerate(sites.items(), 1)}
        self.state = state
        self.policies = dict(policies or {})
        self.gone: set[int] = set()
        self.changed: dict[int, Any] = {}
        self.sent: list[Mapping[int, bytes]] = []

    def nodes(self) -> Collection[int]:
        return [node for node in self.sites if node not in self.gone]

    def send(self, payloads: Mapping[int, bytes], timeout: float) -> dict[int, bytes | Exception]:  # noqa: ARG002
        self.sent.append(payloads)
        return {node: self._answer(node, payload) for node, payload in payloads.items()}

    def _answer(self, node: int, payload: bytes) -> bytes | Exception:
        name, folder = self.sites[node]
        site = RemoteSite(name, folder, self.state, write_site_model, self.policies.get(name, Policy()))
        answer = site.answer(payload)
        change = self.changed.get(node)
        return answer if change is None else change(payload, answer)


def written(sites: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Sites as folders of parquet files."""
    for name, views in sites.items():
        write_site(folder / name, {f"view{i}": view for i, view in enumerate(views) if view is not None})
    return {name: folder / name for name in sites}
