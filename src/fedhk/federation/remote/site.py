"""The site's end of a federation over a network: bytes in, bytes out, everything else in files at the site.

Every message may meet a new process. It reads the rows and what the site has kept, takes the same step as in one
process, keeps what follows, and answers. Only then does the answer leave; the same request again gets the same answer.
What goes wrong is logged here in full; the coordinator gets a reason without paths, rows or the text of exceptions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from fedhk import __version__
from fedhk._files import locked
from fedhk.data.folders import SiteData, read_site
from fedhk.data.named import named_views
from fedhk.data.views import Views, check_views
from fedhk.errors import DataError, FedHKError, MessageError
from fedhk.federation.messages import MAX_BYTES, MAX_NAME, Message, decode, encode
from fedhk.federation.payloads import unpack_text
from fedhk.federation.remote.delivery import delivered
from fedhk.federation.remote.policy import Policy
from fedhk.federation.remote.site_file import Join, Kept, load_site, restored, save_site
from fedhk.federation.site import SiteState, client_step, described_views
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy

LOG = logging.getLogger("fedhk.site")

STATE, LOCK, LEDGER, RESULTS = "site.fedhk", "lock", "ledger.jsonl", "run"

# What a coordinator is told of an error that is not meant for it.
SANITISED = "{kind} at the site; its log says more"


@dataclass(frozen=True)
class RemoteSite:
    """One site.

    Parameters
    ----------
    name : str
        What it is called in the federation.
    data : Path
        Folder with one file per view.
    state : Path
        Folder for what it keeps; a folder of the site's name is made in it.
    policy : Policy
        What it demands of any run.
    workers : int
        Threads.
    """

    name: str
    data: Path
    state: Path
    policy: Policy = field(default_factory=Policy)
    workers: int = 1

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME or not self.name.isprintable() or self.name[0] == "." or "/" in self.name:
            raise DataError(
                f"The name of a site must be 1 to {MAX_NAME} printable characters, without '/' and not begin with '.'; "
                f"got {self.name[:MAX_NAME]!r}."
            )

    @property
    def folder(self) -> Path:
        """Where this site keeps its state, its ledger and its results."""
        return self.state / quote(self.name, safe="")

    def answer(self, payload: bytes) -> bytes:
        """Answer any message; what goes wrong is answered with a refusal."""
        exchange = 0
        try:
            request = decode(payload, max_bytes=MAX_BYTES)
            exchange = request.round
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self.folder / LOCK):
                return self._answered(request, payload)
        except MessageError as error:
            LOG.warning("site %r refuses: %s", self.name, error.reason)
            return refusal(self.name, exchange, error.reason)
        except Exception as error:  # whatever it is, its text stays here
            LOG.exception("site %r cannot answer", self.name)
            kind = type(error).__name__ if isinstance(error, FedHKError | MemoryError | OSError) else "an error"
            return refusal(self.name, exchange, SANITISED.format(kind=kind))

    def _answered(self, request: Message, payload: bytes) -> bytes:
        if request.kind == "hello":
            return encode(self._hello(request))
        kept = load_site(self.folder / STATE, self.name)
        if request.kind == "join":
            join = _read_join(request, self.name)
            payload = request.arrays["request"].tobytes()
            request = decode(payload, max_bytes=MAX_BYTES)
            kept = self._joined(kept, join)
        if kept is None:
            raise MessageError("asked before it was told of the run; send the run's terms first", self.name)
        asked = sha256(payload).hexdigest()
        if kept.answered == asked and kept.reply:
            return kept.reply
        if request.kind == "deliver":
            return encode(self._delivered(kept.join, request))
        state = self._state(kept)
        state, reply = client_step(state, request, self.workers)
        kept = replace(kept, answered=asked, reply=encode(reply))
        save_site(self.folder / STATE, kept, state)
        return kept.reply

    def _joined(self, kept: Kept | None, join: Join) -> Kept:
        """What the site has kept of the run, or a new page; the terms of a run do not change on the way."""
        if kept is None or kept.join.run != join.run:
            return Kept(join)
        if (kept.join.privacy, kept.join.secure) != (join.privacy, join.secure):
            raise MessageError("the terms of the run have changed; a run with others needs a new name", self.name)
        return replace(kept, join=join)

    def _hello(self, request: Message) -> Message:
        """What the site is called, which FedHK it runs, and which views it has: no number of its rows."""
        check_version(request.values.get("fedhk"), "the coordinator", self.name)
        views = _checked_views(self._site_data(None))
        values = {"fedhk": __version__, "dtype": views.dtype.name}
        return Message("hello", self.name, request.round, described_views(views), values)

    def _delivered(self, join: Join, request: Message) -> Message:
        """The site's own model and labels from the global model, as files here; a few numbers of it in the answer."""
        site = self._site_data(join)
        open_run = join.privacy is None and not join.secure
        told = delivered(
            request, self.name, _checked_views(site), site.ids, self.folder / RESULTS, workers=self.workers
        )
        return Message("deliver", self.name, request.round, {}, told if open_run else {})

    def _state(self, kept: Kept) -> SiteState:
        """The site as it was after its last answer."""
        join = kept.join
        self.policy.check(join, self.name)
        views = _checked_views(self._site_data(join))
        secure = self.policy.secure_site(self.name) if join.secure else None
        state = SiteState(self.name, views, secure=secure)
        if join.privacy is not None:
            state = self._with_budget(state, join)
        if kept.message is not None:
            state = restored(state, kept.message)
        if state.privacy is not None and state.ledger is not None:
            self.policy.check_budget(state.privacy, state.ledger, state.run, self.name)
        return state

    def _with_budget(self, state: SiteState, join: Join) -> SiteState:
        try:
            privacy = DifferentialPrivacy(**(join.privacy or {}))
        except (TypeError, ValueError) as error:
            raise MessageError(f"the run's privacy budget cannot be used: {str(error)[:200]}", self.name) from error
        if state.views.n_rows and privacy.delta >= 1.0 / state.views.n_rows:
            raise MessageError(f"delta={privacy.delta:g} is not below 1 over the number of its rows", self.name)
        return replace(state, privacy=privacy, ledger=Ledger(self.folder / LEDGER, self.name))

    def _site_data(self, join: Join | None) -> SiteData:
        if not self.data.is_dir():
            LOG.error("site %r: the data folder %s is not there", self.name, self.data)
            raise MessageError("it has no data folder, or it is not where its node-config says", self.name)
        if join is None:
            return self._own_data
        expected = join.columns
        return self._own_data if self._own_data.columns == expected else read_site(self.data, expected)

    @cached_property
    def _own_data(self) -> SiteData:
        return read_site(self.data)


def _checked_views(site: SiteData) -> Views:
    try:
        return check_views(named_views(site), missing_views=True, min_rows=0)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error


def _read_join(request: Message, site: str) -> Join:
    check_version(request.values.get("fedhk"), "the coordinator", site)
    try:
        join = Join.from_json(unpack_text(request.arrays.get("join"), site))
    except ValueError as error:
        raise MessageError(str(error), site) from error
    nested: Any = request.arrays.get("request")
    if not isinstance(nested, np.ndarray) or nested.dtype != np.uint8 or nested.ndim != 1:
        raise MessageError("the message that joins a site to a run has no request", site)
    return join


def check_version(found: Any, whose: str, site: str | None) -> None:
    """Refuse another version of FedHK: rounds of different versions need not fit."""
    if found != __version__:
        raise MessageError(f"{whose} runs FedHK {str(found)[:50]!r}, this side {__version__!r}: use one version", site)


def refusal(site: str, exchange: int, reason: str) -> bytes:
    """An answer that says why there is none."""
    return encode(Message("refusal", site, exchange, {}, {"reason": reason[:300]}))
