"""A hostile ServerApp in place of ours, over real Flower processes: it gets what a site's ledger has, and no more."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from attacked_site import BUDGET, MODEL, SCALES
from fedhk.cli.config import Config
from fedhk.cli.flower import local
from fedhk.cli.flower.init import SERVER_FILE, make_app
from fedhk.cli.flower.keys import CA
from fedhk.cli.flower.processes import CONNECTION, connect
from fedhk.data.folders import write_site
from fedhk.federation.codec import pack, unpack
from fedhk.federation.entries import Broadcast, FinalModel, References, Terms
from fedhk.federation.gate import ENTRIES, SEALED, write_request
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases.base import Nothing, phase_named
from fedhk.federation.phases.deliver import Deliver, DeliverRequest
from fedhk.federation.phases.describe import Describe, DescribeRequest, DescribeViews
from fedhk.federation.phases.scales import Ranges, RangesRequest
from fedhk.federation.phases.sum_rounds import NoisyRounds, noisy_request
from fedhk.federation.remote.policy import MALFORMED
from fedhk.federation.sealed.messages import Header, NoisySum, Numbers, Reply, request_type
from fedhk.personal.options import GradientStep
from fedhk.privacy.ledger import Ledger
from sealed_runs import plain_reference

pytestmark = pytest.mark.deploy

POLICY = "epsilon = 1.0\ndelta = 1e-6\nrounds = 4\n"
PATIENCE = 1500.0

# It sends the files of a folder, one after the other, to the only node there is, and writes the answers beside them.
HOSTILE = """
import time
from pathlib import Path

from flwr.serverapp import ServerApp

from fedhk.federation.engines.flower import GridTransport

app = ServerApp()
FOLDER = Path({folder!r})


@app.main()
def main(grid, context):
    transport = GridTransport(grid)
    while not transport.nodes():
        time.sleep(1.0)
    (node,) = transport.nodes()
    for attack in sorted(FOLDER.glob("*.attack")):
        answer = transport.send({{node: attack.read_bytes()}}, 300.0)[node]
        attack.with_suffix(".answer").write_bytes(answer if isinstance(answer, bytes) else repr(answer).encode())
    (FOLDER / "done").touch()
"""


def message(kind, request, kinds, *entries, run="a-run", **terms):
    """A request of a run on these terms."""
    known = Terms(**{"run": run, "columns": {"a": None}, "privacy": BUDGET.describe()} | terms)
    named = {type(entry).__name__: entry for entry in (known, *entries)}
    return encode(write_request(kind, 0, request, kinds, named))


def noisy_sum(phase, request, *entries, number=0, rounds=4, **options):
    """A request for numbers of rows."""
    header = Header(None, NoisySum(number, rounds))
    return message(SEALED + phase.name, (header, request), request_type(phase), *entries, **options)


def said_twice():
    agreed = Terms("a-run", {"a": None}, BUDGET.describe())
    values, arrays = pack((Nothing(), agreed, replace(agreed, secure=True)), tuple[Nothing, Terms, Terms])
    return encode(Message("schema", "*", 0, arrays, values | {ENTRIES: ["Terms", "Terms"]}))


def hostile_scales():
    span = plain_reference(2, heat_coef="minmax", span=np.array([1e-320, 1.0]))
    return SCALES[0], References((span,))


ROUND = noisy_request(MODEL, "replace")
FINAL = FinalModel(Broadcast.of(MODEL))
NOISE_ONLY = "this site gives sums with noise only; the run must have a privacy budget"
WEAKER = replace(BUDGET, neighbours="add-remove").describe()
REPORT = DeliverRequest(GradientStep(0.0), False, True)

# What is sent, and what a site with a policy says to it; None is an answer with numbers that its ledger has.
ATTACKS = {
    "deliver without a run": (
        message("deliver", REPORT, Deliver.request_type, *SCALES, FINAL, privacy=None),
        NOISE_ONLY,
    ),
    "deliver with a report": (
        message("deliver", REPORT, Deliver.request_type, *SCALES, FINAL),
        "the server asks for what this site only gives with noise or masks",
    ),
    "describe in the open": (
        message("describe", DescribeRequest(False, True), Describe.request_type, privacy=None),
        NOISE_ONLY,
    ),
    "candidates in the open": (
        message(
            "candidates",
            phase_named("candidates").request_type(30, 0.0, 0, "double"),
            phase_named("candidates").request_type,
            *SCALES,
            privacy=None,
        ),
        NOISE_ONLY,
    ),
    "other neighbours": (
        noisy_sum(NoisyRounds, noisy_request(MODEL, "add-remove"), *SCALES, privacy=WEAKER),
        "the run's neighbours protect less than this site demands: use neighbours='replace'",
    ),
    "rounds without end": (
        noisy_sum(NoisyRounds, ROUND, *SCALES, rounds=10**13, privacy=replace(BUDGET, rounds=10**13).describe()),
        "the run's budget is for more rounds than this site allows",
    ),
    "terms said twice": (said_twice(), MALFORMED),
    "ranges of a view that is wider": (
        noisy_sum(Ranges, RangesRequest((10**9,)), *SCALES),
        "ranges of views with other widths than here",
    ),
    "ranges of less than nothing": (
        noisy_sum(Ranges, RangesRequest((-1,)), *SCALES),
        "ranges of views with other widths than here",
    ),
    "hostile scales": (
        noisy_sum(NoisyRounds, ROUND, *hostile_scales()),
        "scales with which a row could say more than the noise is sized for",
    ),
    "a round": (noisy_sum(NoisyRounds, ROUND, *SCALES, number=0, rounds=1), None),
    "the same round at other centres": (
        noisy_sum(NoisyRounds, replace(ROUND, count_scale=0.5), *SCALES, number=0, rounds=1),
        None,
    ),
    "all of the budget": (noisy_sum(NoisyRounds, ROUND, *SCALES, number=1, rounds=1), None),
    "a round beyond the budget": (
        noisy_sum(NoisyRounds, ROUND, *SCALES, number=2, rounds=1),
        "the privacy budget of the run does not allow another release",
    ),
    "another run": (
        message("schema", Nothing(), DescribeViews.request_type, run="another"),
        "the run's budget, with what was spent before, is above what this site allows",
    ),
}


def strict_policies(folder, sites):
    folder.mkdir()
    paths = {name: folder / f"{name}.toml" for name in sites}
    for path in paths.values():
        path.write_text(POLICY, "utf-8")
    return paths


def test_a_hostile_server_app_gets_nothing_beyond_the_ledger_of_a_site_with_a_policy(tmp_path, monkeypatch):
    """Attacks 1, 2, 3, 10 and 15 over the way that Flower takes."""
    write_site(tmp_path / "sites" / "rome", {"a": np.random.default_rng(0).normal(size=(60, 2))})
    attacks = tmp_path / "attacks"
    attacks.mkdir()
    for number, (payload, _) in enumerate(ATTACKS.values()):
        (attacks / f"{number:02d}.attack").write_bytes(payload)
    make_app(tmp_path / "app", Config(tmp_path / "nowhere", "e-fkmvc", 0, {"n_clusters": 2}), sites=["rome"])
    (tmp_path / "app" / SERVER_FILE).write_text(HOSTILE.format(folder=str(attacks)), "utf-8")
    monkeypatch.setattr(local, "make_policies", strict_policies)
    with local.federation(tmp_path, {"rome": tmp_path / "sites" / "rome"}, masks=True) as running:
        with connect(running.address, tmp_path / "tls" / CA, insecure=False) as control:
            control.call("run", str(tmp_path / "app"), CONNECTION)
        deadline = time.monotonic() + PATIENCE
        while not (attacks / "done").exists():
            running.check()
            assert time.monotonic() < deadline, sorted(path.name for path in attacks.iterdir())
            time.sleep(1.0)
    answers = {name: decode((attacks / f"{n:02d}.answer").read_bytes()) for n, name in enumerate(ATTACKS)}
    numbers = []
    for name, (_, reason) in ATTACKS.items():
        answer = answers[name]
        if reason is not None:
            assert (answer.kind, answer.values) == ("refusal", {"reason": reason}), name
            continue
        reply = unpack(answer.values, answer.arrays, Reply)
        assert isinstance(reply, Numbers)
        numbers.append(reply.values)
    state = tmp_path / "state" / "rome"
    ledger = Ledger(state / "ledger.jsonl", "rome")
    lines = [(line.run, line.exchange, line.neighbours) for line in ledger.releases()]
    assert lines == [("a-run", 0, "replace"), ("a-run", 1, "replace")]
    assert ledger.spent(None, 1e-6) <= 1.0
    first, again, second = numbers
    assert np.array_equal(first, again)  # what was asked for a second time is what was sent already
    assert not np.array_equal(first, second)
    assert not (state / "run").exists()
    assert "refuses" in (tmp_path / "site-0.log").read_text("utf-8")
