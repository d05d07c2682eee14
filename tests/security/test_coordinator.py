"""A hostile coordinator that sends what it likes, for thousands of steps, to two sites that differ in one row.

Whatever it sends, three things hold after every step. Answers with numbers of rows are in the ledger, once each, and
the ledger stays within the policy. Whether a site answers, why not, and how much, is the same at both sites. The files
of the sites are unharmed.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from fedhk import EFKMVC
from fedhk.estimators.heat_kernel_mvc import write_site_model
from fedhk.federation.board import entry_type
from fedhk.federation.codec import unpack
from fedhk.federation.gate import ENTRIES, SEALED, write_request
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases.base import phase_named
from fedhk.federation.remote.policy import Policy
from fedhk.federation.remote.site import KIND, REFUSAL, RUN_NAME, STATE, RemoteSite, SiteFile
from fedhk.federation.sealed.messages import Numbers, Reply, request_type
from fedhk.federation.stored import read_file, unpack_board
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.identity import make_identity, save_identity
from fedhk.privacy.ledger import Ledger, Release, spent_on
from fedhk.privacy.secure_sum import MaskedNumbers
from mutants import mutated
from remote_sites import NAMES, Wire, fit_remote, write_sites

ROME = "rome"
ROUNDS = 2
STEPS_OF_RUN = 50

COUNTS: Counter[str] = Counter()
"""What came of all steps, for reports."""


# -------------------------------------------------------------------------------------------------------------- worlds


def make_rows(n: int, odd: Any = None) -> list[np.ndarray]:
    """Two views of few rows in three groups; the first row can be any other."""
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, 4)) + 6 * rng.integers(3, size=(n, 1))
    if odd is not None:
        rows[0] = odd
    return [rows[:, :2], rows[:, 2:]]


PAIRS = {
    "another row": (make_rows(24, [0, 0, 0, 0]), make_rows(24, [1e100, -1e100, np.nan, 1e-300])),
    "row on a centre": (make_rows(24, [1, 1, 1, 1]), make_rows(24, [np.nan, np.nan, np.nan, 7])),
    "fewer rows": (make_rows(24), make_rows(6)),
}
"""The rows of the two sites."""


@dataclass(frozen=True)
class Mode:
    """What the site demands, and what an honest run has."""

    policy: Callable[[Path], dict[str, Policy]]
    options: dict[str, Any] = field(default_factory=dict)


def same_policy(**demands: Any) -> Callable[[Path], dict[str, Policy]]:
    return lambda _: dict.fromkeys(NAMES, Policy(**demands))


def policies_with_keys(folder: Path) -> dict[str, Policy]:
    """Noise that sites share under masks, which needs the keys of the others."""
    public = {}
    for name in NAMES:
        private, key = make_identity()
        save_identity(folder / f"{name}.pem", private)
        public[name] = key.hex()
    demands = {"epsilon": 1.0, "secure": True, "rounds": 4}
    return {name: Policy(**demands, identity=str(folder / f"{name}.pem"), known=public) for name in NAMES}


BUDGET = DifferentialPrivacy(1.0, 1e-6, "private", rounds=ROUNDS)
MODES = {
    "noise": Mode(same_policy(epsilon=1.0, rounds=4), {"privacy": BUDGET}),
    "many runs": Mode(
        same_policy(epsilon=4.0, rounds=4, neighbours="add-remove"),
        {"privacy": replace(BUDGET, epsilon=0.4, bounds=(-20, 20), neighbours="add-remove")},
    ),
    "noise and masks": Mode(policies_with_keys, {"privacy": BUDGET, "secure": True}),
    "masks": Mode(same_policy(secure=True), {"secure": True, "max_rounds": ROUNDS}),
}


@dataclass
class Twin:
    """A site, and what an honest run sent to it: its files before each message, the message and the answer."""

    data: Path
    policy: Policy
    before: list[Path] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)


class Recording(Wire):
    """A transport that keeps what passes between the coordinator and one site.

    The second of two sites is sent what was sent to the first, but for the masks, which every site agrees on anew.
    """

    def __init__(self, twin: Twin, first: Twin | None, *options: Any) -> None:
        super().__init__(*options)
        self.twin, self.first, self.together = twin, first, True

    def _answer(self, node: int, payload: bytes) -> Any:
        if self.sites[node][0] != ROME:
            return super()._answer(node, payload)
        number = len(self.twin.before)
        if self.first is not None:
            made = [with_masks_of(one, decode(payload)) for one in self.first.messages[number : number + 1]]
            self.together = self.together and made not in ([], [None])
            if not self.together:  # other rows, other totals: the second run goes another way from here
                return super()._answer(node, payload)
            payload = encode(made[0])
        kept = self.state.parent / "before" / str(number)
        kept.mkdir(parents=True)
        for path in self.state.glob(f"{ROME}*"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, kept / path.name)
        answer = super()._answer(node, payload)
        self.twin.before.append(kept)
        self.twin.messages.append(decode(payload))
        self.twin.answers.append(answer)
        return answer


def with_masks_of(message: Message, other: Message) -> Message | None:
    """The message, with what another of the same exchange says of masks; None where that is another exchange."""
    if message.kind != other.kind or not message.kind.startswith(SEALED):
        return message if message.kind == other.kind else None
    kinds = [request_type(phase_named(message.kind.removeprefix(SEALED)))]
    names = message.values.get(ENTRIES, [])
    (header, request), *entries = unpack(message.values, message.arrays, tuple[*kinds, *map(entry_type, names)])
    theirs = unpack(other.values, other.arrays, tuple[*kinds, *map(entry_type, other.values.get(ENTRIES, []))])
    masks = theirs[0][0].masks
    if type(masks) is not type(header.masks) or getattr(masks, "length", 0) != getattr(header.masks, "length", 0):
        return None
    header = replace(header, masks=masks)
    return write_request(
        message.kind, message.round, (header, request), kinds[0], dict(zip(names, entries, strict=True))
    )


@cache
def record(mode: str, pair: str) -> tuple[Twin, Twin]:
    """Two honest runs whose coordinator cannot tell which of the two sites it has."""
    folder = Path(tempfile.mkdtemp(prefix="fedhk-twins"))
    policies, twins = MODES[mode].policy(folder), []
    for index, rows in enumerate(PAIRS[pair]):
        sites = {name: make_rows(24) for name in NAMES if name != ROME} | {ROME: rows}
        folders = write_sites(sites, folder / str(index) / "data")
        twins.append(Twin(folders[ROME], policies[ROME]))
        wire = Recording(twins[-1], twins[0] if index else None, folders, folder / str(index) / "state", policies)
        fit_remote(wire, EFKMVC, n_init=1, tol=0.0, **MODES[mode].options)
    for kept in (twins[0].before, twins[0].messages, twins[0].answers):
        del kept[len(twins[1].messages) :]
    return twins[0], twins[1]


# ------------------------------------------------------------------------------------------------------- what may leave


class Victim:
    """One of the two sites while it is under attack, and what must be true of it."""

    def __init__(self, twin: Twin, stage: int, state: Path) -> None:
        self.twin = twin
        if stage < len(twin.before):
            shutil.copytree(twin.before[stage], state)
        self.site = RemoteSite(ROME, twin.data, state, write_site_model, twin.policy)
        self.sent = {digest_of(decode(answer)) for answer in twin.answers[:stage]}
        self.earlier = self.site.folder / "run" / "model.safetensors"
        self.earlier.parent.mkdir(parents=True, exist_ok=True)
        self.earlier.write_bytes(b"the model of an earlier run")
        (self.earlier.parent / RUN_NAME).write_text("an earlier run")
        self.data = files_of(twin.data)
        self.lines, self.checked = self.read_ledger(), 0

    def answer(self, payload: bytes) -> Message:
        self.raw = self.site.answer(payload)
        return decode(self.raw)

    def read_ledger(self) -> list[Release]:
        return Ledger(self.site.folder / "ledger.jsonl", ROME).releases()

    def is_kept(self, reply: Any) -> bool:
        """Whether these are the numbers of a line, made in a step whose answer was lost."""
        ledger = Ledger(self.site.folder / "ledger.jsonl", ROME)
        kept = [ledger.payload(line.run, line.exchange) for line in self.lines] if isinstance(reply, Numbers) else []
        return any(np.array_equal(np.frombuffer(numbers or b"", np.int64), reply.values) for numbers in kept)

    def check_charged(self, answer: Message) -> None:
        """Numbers of rows are in one line of the ledger, or are those that were sent before."""
        before, self.lines = self.lines, self.read_ledger()
        assert self.lines[: len(before)] == before
        assert len(self.lines) <= len(before) + 1
        assert len({(line.run, line.exchange) for line in self.lines}) == len(self.lines)
        policy = self.twin.policy
        if policy.epsilon is not None:
            assert spent_on(self.lines, policy.delta, policy.neighbours) <= policy.epsilon * (1 + 1e-5)
        if answer.kind.startswith(SEALED):
            reply = unpack(answer.values, answer.arrays, Reply)
            if isinstance(reply, Numbers | MaskedNumbers) and policy.epsilon is not None:
                new = len(self.lines) == len(before) + 1
                known = new or digest_of(answer) in self.sent or self.is_kept(reply)
                assert known, "numbers that no line of the ledger is for"
                COUNTS["released" if new else "sent again"] += 1
            self.sent.add(digest_of(answer))

    def check_files(self) -> None:
        """State can be read or is not there, results of an earlier run are there, the data are as they were."""
        state = self.site.folder / STATE
        if state.exists() and state.stat().st_mtime_ns != self.checked:
            self.checked = state.stat().st_mtime_ns
            stored = read_file(state, KIND, ROME, SiteFile)
            unpack_board(stored.board, ROME), unpack_board(stored.memory, ROME)
        kept = [path for path in self.site.folder.glob("run*/model.safetensors") if path.stat().st_size == 27]
        assert [path.read_bytes() for path in kept] == [b"the model of an earlier run"]
        assert files_of(self.twin.data) == self.data


def files_of(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir())


def digest_of(message: Message) -> str:
    """What a message says, whatever exchange it is of."""
    parts = [f"{name} {array.dtype} {array.shape}".encode() + array.tobytes() for name, array in message.arrays.items()]
    return sha256(b"".join(sorted(parts))).hexdigest()


def form_of(message: Message) -> Any:
    """Shapes and sizes of an answer, without the numbers; noise decides whether these need four bytes or eight."""

    def form(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: form(part) for key, part in tree.items()}
        return [form(part) for part in tree] if isinstance(tree, list) else len(tree) if isinstance(tree, str) else tree

    sizes = {name.replace("i4", "i8"): array.size for name, array in message.arrays.items()}
    values = message.values
    if message.kind.startswith(SEALED) and isinstance(unpack(values, message.arrays, Reply), Numbers):
        return sizes
    return sizes, form(values)


# ------------------------------------------------------------------------------------------------------ the coordinator

places, choices = st.integers(0, 2**16), st.integers(0, 2**10)
changes = st.lists(st.tuples(choices, places, choices), min_size=1, max_size=4)


class Coordinator(RuleBasedStateMachine):
    """Begins anywhere in an honest run, and then sends messages of this or another run, as they are or changed."""

    @initialize(mode=st.sampled_from(list(MODES)), pair=st.sampled_from(list(PAIRS)), stage=places)
    def begin(self, mode: str, pair: str, stage: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fedhk-attack"))
        self.twins = record(mode, pair)
        self.count = len(self.twins[0].messages)
        self.stage, self.runs, self.asked = stage % (self.count + 1), 0, 100
        both = enumerate(self.twins)
        self.victims = [Victim(twin, self.stage, self.folder / str(index) / "state") for index, twin in both]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def send(self, *payloads: bytes | None) -> None:
        """Send each site its message, and check all that must be true."""
        sent = [payload for payload in payloads if payload is not None]
        if len(sent) < len(payloads):  # no bytes stand for such a message
            return
        answers = [victim.answer(payload) for victim, payload in zip(self.victims, sent, strict=True)]
        COUNTS["steps"] += 1
        one, other = answers
        if one.kind == REFUSAL or not one.kind.startswith(SEALED):
            assert self.victims[0].raw == self.victims[1].raw
        assert one.kind == other.kind
        assert form_of(one) == form_of(other)
        COUNTS[one.values["reason"] if one.kind == REFUSAL else f"answered {one.kind}"] += 1
        for victim, answer in zip(self.victims, answers, strict=True):
            victim.check_charged(answer)
            victim.check_files()
        charged = [[replace(line, time="") for line in victim.lines] for victim in self.victims]
        assert charged[0] == charged[1]

    @rule()
    def go_on(self) -> None:
        """The next message of the honest run."""
        self.send(*(encode(twin.messages[self.stage % self.count]) for twin in self.twins))
        self.stage += 1

    @rule(number=places)
    def replay(self, number: int) -> None:
        """Any message of the honest run, out of its order."""
        self.send(*(encode(twin.messages[number % self.count]) for twin in self.twins))

    @rule(changes=changes)
    def change_next(self, changes: Any) -> None:
        """The next message, changed."""
        number = self.stage % self.count
        self.send(*(mutated(twin.messages[number], changes, twin.messages) for twin in self.twins))

    @rule(number=places, changes=changes)
    def change_any(self, number: int, changes: Any) -> None:
        """Any message, changed."""
        self.send(*(mutated(twin.messages[number % self.count], changes, twin.messages) for twin in self.twins))

    @rule(number=places, changes=changes)
    def change_sum(self, number: int, changes: Any) -> None:
        """A request for numbers of rows, changed."""
        found = [place for place, message in enumerate(self.twins[0].messages) if message.kind.startswith(SEALED)]
        place = found[number % len(found)]
        self.send(*(mutated(twin.messages[place], changes, twin.messages) for twin in self.twins))

    @rule(number=places, numbers=st.lists(st.tuples(st.integers(0, 1), places, choices), max_size=3))
    def ask_anew(self, number: int, numbers: Any) -> None:
        """A well-formed request for numbers of rows that were not sent before, at other parameters and scales."""
        found = [place for place, message in enumerate(self.twins[0].messages) if message.kind.startswith(SEALED)]
        place = found[number % len(found)]
        self.asked += 1
        self.send(*(mutated(numbered(twin.messages[place], self.asked), numbers, []) for twin in self.twins))

    @rule(changes=st.one_of(st.just([]), changes))
    def begin_another_run(self, changes: Any) -> None:
        """The first message of a run with another name, and with terms as they were or changed."""
        self.runs += 1
        self.stage = next(place for place, message in enumerate(self.twins[0].messages) if has_terms(message))
        payloads = [
            mutated(renamed(twin.messages[self.stage], f"run {self.runs}"), changes, twin.messages)
            for twin in self.twins
        ]
        self.send(*payloads)
        self.stage += 1

    @rule(mode=st.sampled_from(list(MODES)), number=places, changes=changes, noise=st.binary(max_size=20), how=places)
    def mix(self, mode: str, number: int, changes: Any, noise: bytes, how: int) -> None:
        """A message of a run on other terms, whole, changed or cut."""
        payloads = []
        for twin in record(mode, "another row"):
            message = twin.messages[number % len(twin.messages)]
            whole = encode(message)
            payloads.append([whole, mutated(message, changes, twin.messages), whole[: how % 4096] + noise][how % 3])
        self.send(*payloads)


def has_terms(message: Message) -> bool:
    return "Terms" in message.values.get(ENTRIES, [])


def numbered(message: Message, number: int) -> Message:
    """The message with another number of the sum; sums without noise have none."""
    values = copy.deepcopy(message.values)
    _, (_, noise) = values["tree"][0][0]
    noise[:1] = [number] if noise else []
    return replace(message, values=values)


def renamed(message: Message, run: str) -> Message:
    """The message with another name of the run in its terms."""
    values = copy.deepcopy(message.values)
    values["tree"][1 + values[ENTRIES].index("Terms")][0] = run
    return replace(message, values=values)


def attack(examples: int, **options: Any) -> None:
    COUNTS.clear()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS_OF_RUN,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # to make a failure shorter takes minutes
        suppress_health_check=list(HealthCheck),
        **options,
    )
    run_state_machine_as_test(Coordinator, settings=chosen)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.filterwarnings("ignore")
def test_five_hundred_steps_of_a_hostile_coordinator_cost_a_site_nothing_that_it_did_not_agree_to():
    attack(12, derandomize=True)
    assert COUNTS["steps"] >= 400
    assert COUNTS["released"] >= 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_twenty_thousand_steps_of_a_hostile_coordinator_cost_a_site_nothing_that_it_did_not_agree_to():
    attack(520)
    assert COUNTS["steps"] >= 20_000
    assert COUNTS["released"] >= 1000
