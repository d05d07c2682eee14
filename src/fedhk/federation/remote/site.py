"""The site's end of a federation over a network: bytes in, bytes out, everything else in files at the site.

Every message may meet a new process. It reads what the site has kept, passes the message through the gate, keeps what
follows, and only then answers. The same request again gets the same answer. What goes wrong is logged here in full;
the coordinator gets a reason without paths, rows or the text of exceptions. Where the site's policy asks for noise or
masks, that reason is one of few texts that are always the same (`Rule`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from fedhk._files import locked
from fedhk._text import LONGEST_NAME, is_name, printable
from fedhk.data.folders import Reading, SiteData, read_site
from fedhk.data.named import named_views
from fedhk.data.views import Views, check_views
from fedhk.errors import DataError, MessageError, Rule
from fedhk.federation.board import Board
from fedhk.federation.entries import Terms
from fedhk.federation.gate import answer_message
from fedhk.federation.messages import MAX_BYTES, Message, decode, encode
from fedhk.federation.phases import load_phases
from fedhk.federation.phases.deliver import Outcome
from fedhk.federation.placed import PlacedSite
from fedhk.federation.remote.delivery import WriteModel, write_outcome
from fedhk.federation.remote.greet import Greet
from fedhk.federation.remote.own_rows import log_mistakes
from fedhk.federation.remote.policy import NO_QUESTION, UNANSWERED, Policy
from fedhk.federation.remote.policy_guard import PolicyGuard, asks_question
from fedhk.federation.remote.questions import QuestionRows, Questions
from fedhk.federation.site import Site
from fedhk.federation.stored import pack_entries, read_file, unpack_board, write_file
from fedhk.privacy.ledger import NAME

LOG = logging.getLogger("fedhk.site")

STATE, LOCK, RESULTS = "site.fedhk", "lock", "run"
# A question has a state of its own, so that a run which was interrupted can go on after it.
QUESTION_STATE = "question.fedhk"
KIND, REFUSAL, RUN_NAME = "site", "refusal", "run.txt"

NO_DATA = Rule("it has no data folder, or it is not where its node-config says")


@dataclass(frozen=True, eq=False)
class SiteFile:
    """State of a site between messages, without rows or memberships.

    Parameters
    ----------
    asked : str
        Digest of the last request.
    reply : bytes
        What was answered.
    board : bytes
        What the server has published.
    memory : bytes
        What the site keeps for itself, with the secrets of its masks.
    """

    asked: str
    reply: bytes
    board: bytes
    memory: bytes


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
    write_model : callable
        Writes the site's own model to a file at the end of a run.
    policy : Policy
        What it demands of any run.
    workers : int
        Threads.
    ledger : Path or None
        File of its ledger, which must be the one of all runs on these rows; None has it among what the site keeps.
    questions : Questions or None
        What it needs for questions after a fit; None answers none.
    id_column : str or None
        Column that says whose a row is; None is the one that its data dictionary names, or "id".
    """

    name: str
    data: Path
    state: Path
    write_model: WriteModel
    policy: Policy = field(default_factory=Policy)
    workers: int = 1
    ledger: Path | None = None
    questions: Questions | None = None
    id_column: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def folder(self) -> Path:
        """Folder of the state, the ledger and the results of this site."""
        return self.state / quote(self.name, safe="")

    def answer(self, payload: bytes) -> bytes:
        """Answer any message; on an error the answer is a refusal."""
        exchange = 0
        load_phases()
        try:
            request = decode(payload, max_bytes=MAX_BYTES)
            exchange = request.round
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self.folder / LOCK):
                if request.kind == Greet.name:
                    return self._pass(request, Site(self.name, NO_VIEWS))[1]
                if asks_question(request.kind):
                    return self._answer_question(request, sha256(payload).hexdigest())
                return self._answer_in_run(request, sha256(payload).hexdigest())
        except MessageError as error:
            cause = str(error.__cause__ or error.reason)  # the cause names who
            LOG.warning("site %r refuses: %s", self.name, printable(cause))
            return refusal(self.name, exchange, self.policy.give_reason(error))
        except DataError as error:  # its text says all, and stays here
            LOG.error("site %r cannot answer: %s", self.name, printable(" ".join(str(error).split())))  # noqa: TRY400
            return refusal(self.name, exchange, UNANSWERED)
        except Exception:  # whatever it is, its text and its kind stay here
            LOG.exception("site %r cannot answer", self.name)
            return refusal(self.name, exchange, UNANSWERED)

    def _answer_in_run(self, request: Message, asked: str) -> bytes:
        """Answer a message of a run, and save the new state before the answer leaves."""
        stored, board, memory = self._read_state(STATE)
        if stored.asked == asked:
            return stored.reply
        site, reply = self._pass(request, Site(self.name, NO_VIEWS, board, memory, self.workers))
        log_mistakes(site, board)
        for made in site.memory.find(Outcome):
            self._write_results(site, made)
        self._write_state(STATE, request, asked, site, reply)
        return reply

    def _answer_question(self, request: Message, asked: str) -> bytes:
        """Answer a message of a question after a fit, and save the new state before the answer leaves."""
        if self.questions is None:
            raise MessageError(NO_QUESTION, self.name)
        self.questions.load_phases()
        stored, board, memory = self._read_state(QUESTION_STATE)
        if stored.asked == asked:
            return stored.reply
        site = PlacedSite(self.name, NO_VIEWS, board, memory, self.workers, model=NO_MODEL)
        after, reply = self._pass(request, site)
        self._write_state(QUESTION_STATE, request, asked, after, reply)
        return reply

    def _write_state(self, file: str, request: Message, asked: str, site: Site, reply: bytes) -> None:
        boards = (pack_entries(part.entries.values(), self.name) for part in (site.board, site.memory))
        write_file(self.folder / file, SiteFile(asked, reply, *boards), KIND, self.name)
        LOG.info("site %r answers exchange %d, %r, with %d bytes", self.name, request.round, request.kind, len(reply))

    def _write_results(self, site: Site, made: Outcome) -> None:
        """Write the results of a run."""
        terms = site.board.get(Terms)
        with self.policy.hide_failures(f"site {self.name!r} cannot write the results of run {terms.run!r}"):
            results = keep_earlier(self.folder / RESULTS)
            write_outcome(results, site, made.outcome, self._read_data(terms).ids, self.write_model)
            (results / RUN_NAME).write_text(terms.run, "utf-8")
            LOG.info("site %r has its model and labels of run %r in %s", self.name, terms.run, results)

    def _read_state(self, file: str) -> tuple[SiteFile, Board, Board]:
        """Read the state of the site. Where it cannot be used, the site starts anew and is sent everything again."""
        nothing = SiteFile("", b"", b"", b""), Board(), Board()
        path = self.folder / file
        if not path.exists():
            return nothing
        try:
            stored = read_file(path, KIND, self.name, SiteFile)
            return stored, unpack_board(stored.board, self.name), unpack_board(stored.memory, self.name)
        except MessageError as error:  # damaged, or of another version of FedHK
            LOG.warning("site %r cannot use its file %s: %s", self.name, path, error.reason)
            return nothing

    def _pass(self, request: Message, site: Site) -> tuple[Site, bytes]:
        """Pass a message through the gate."""
        rows = None
        if self.questions is not None:
            results = self.folder / RESULTS
            rows = QuestionRows(
                self.name, self.policy, self.data, results, self._read_checked, self.questions, self.id_column
            )
        guard = PolicyGuard(self.policy, self._read_views, self.ledger or self.folder / NAME, rows)
        site, reply = answer_message(site, guard, request)
        return site, encode(reply)

    def _read_views(self, terms: Terms | None) -> Views:
        """Read the site's rows; with the terms of a run, views and columns are in the order of the federation."""
        data = self._read_checked(terms)
        try:
            return check_views(named_views(data), missing_views=True, min_rows=0)
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from error

    def _read_checked(self, terms: Terms | None) -> SiteData:
        """Read the site's tables; refuse categories that the policy does not allow."""
        data = self._read_data(terms)
        self.policy.check_levels(data)
        return data

    def _read_data(self, terms: Terms | None) -> SiteData:
        if not self.data.is_dir():
            LOG.error("site %r: the data folder %s is not there", self.name, self.data)
            raise MessageError(NO_DATA, self.name)
        if terms is None or self._own_data.columns == terms.columns:
            return self._own_data
        return read_site(self.data, terms.columns, Reading(self.id_column))

    @cached_property
    def _own_data(self) -> SiteData:
        return read_site(self.data, reading=Reading(self.id_column))


NO_VIEWS = Views((), (), 0, np.dtype(np.float64), (), ())
"""Rows of a site before the gate has allowed a message: none."""

NO_MODEL: Any = None
"""Model of a site before the gate has allowed a question: none."""


def keep_earlier(results: Path) -> Path:
    """Move earlier results to the first free name (run-1, run-2, ...), so that no run overwrites them."""
    if results.exists():
        free = next(path for n in count(1) if not (path := results.with_name(f"{results.name}-{n}")).exists())
        results.rename(free)
    return results


def check_name(name: str) -> None:
    """Refuse a site name that no folder can have, or that is not printable."""
    if not is_name(name) or name[0] == "." or "/" in name:
        raise DataError(
            f"The name of a site must be 1 to {LONGEST_NAME} printable characters, without '/' and not begin with '.'; "
            f"got {name[:LONGEST_NAME]!r}."
        )


def refusal(site: str, exchange: int, reason: str) -> bytes:
    """Make a refusal: an answer that says why there is none."""
    return encode(Message(REFUSAL, site, exchange, {}, {"reason": reason[:300]}))
