"""A remote site under attack, as tests of its gate use it."""

from __future__ import annotations

import numpy as np

from fedhk.data.folders import write_site
from fedhk.estimators.heat_kernel_mvc import write_site_model
from fedhk.federation.codec import unpack
from fedhk.federation.entries import References, Schema, Terms
from fedhk.federation.gate import SEALED, write_request
from fedhk.federation.messages import decode, encode
from fedhk.federation.remote.policy import Policy
from fedhk.federation.remote.site import RemoteSite
from fedhk.federation.sealed.messages import Header, NoisySum, Numbers, Reply, request_type
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.ledger import Ledger
from sealed_runs import make_parameters, plain_reference

BUDGET = DifferentialPrivacy(1.0, 1e-6, (-20, 20), rounds=4)
STRICT = Policy(epsilon=1.0, delta=1e-6)


class Target:
    """A remote site with a policy, and what a malicious coordinator can do: send bytes, read answers."""

    def __init__(self, folder, rows, policy=STRICT):
        write_site(folder / "data", {"a": rows})
        self.state = folder / "state"
        self.site = RemoteSite("rome", folder / "data", self.state, write_site_model, policy)

    def send(self, kind, request, request_type_, *entries, run="a-run", **terms):
        """The answer to any request of a run on these terms."""
        known = Terms(**{"run": run, "columns": {"a": None}, "privacy": BUDGET.describe()} | terms)
        named = {type(entry).__name__: entry for entry in (known, *entries)}
        return decode(self.site.answer(encode(write_request(kind, 0, request, request_type_, named))))

    def ask(self, phase, request, *entries, number=0, rounds=4, bound=0.0, **options):
        """The numbers that leave in a noisy sum, or why none do."""
        header = Header(None, NoisySum(number, rounds, bound=bound))
        message = self.send(SEALED + phase.name, (header, request), request_type(phase), *entries, **options)
        if message.kind == "refusal":
            return message.values["reason"]
        reply = unpack(message.values, message.arrays, Reply)
        assert isinstance(reply, Numbers)
        return reply.values

    @property
    def releases(self):
        path = self.state / "rome" / "ledger.jsonl"
        return Ledger(path, "rome").releases() if path.exists() else []

    @property
    def files(self):
        own = self.state / "rome"
        return {str(path.relative_to(own)) for path in own.rglob("*")} if own.exists() else set()


def rows_of(n=60, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


SCALES = (Schema(("a",), (None,)), References((plain_reference(2),)))
MODEL = make_parameters([np.array([[0.0, 0.0], [1.0, 1.0]])])
