"""Sealed runs for tests: an engine that keeps all messages and can fail sites, and requests of one's own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedhk.data.scaling import Reference
from fedhk.data.views import check_views
from fedhk.estimators import efkmvc
from fedhk.federation.board import entry_type
from fedhk.federation.codec import pack, unpack
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import References, Schema, Terms
from fedhk.federation.gate import ENTRIES, SEALED, answer_message, write_request
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases.base import phase_named
from fedhk.federation.phases.sum_rounds import NoisyMovesRequest, noisy_request
from fedhk.federation.sealed import SealedGuard, SiteNoise
from fedhk.federation.sealed import noise as sealed_noise
from fedhk.federation.sealed.messages import Header, NoisySum, Numbers, Reply, request_type
from fedhk.federation.site import Site
from fedhk.model.parameters import Parameters
from fedhk.privacy.ledger import Ledger

RUN = "a-run"


@dataclass
class Spy:
    """What passed between the server and the sites of the last fit.

    Parameters
    ----------
    down : callable
        From (site, request) to whether the site does not get the request.
    tamper : callable
        From (site, request, answer) to what arrives; an exception is no answer.
    """

    down: Any = None
    tamper: Any = None
    requests: list[tuple[str, Message]] = field(default_factory=list)
    replies: list[tuple[str, Message]] = field(default_factory=list)
    sites: dict[str, Site] = field(default_factory=dict)
    guards: dict[str, SealedGuard] = field(default_factory=dict)

    def engine_class(self):
        """An engine that shows this spy all that passes."""
        spy = self

        class Watched(InProcessEngine):
            def __init__(self, sites, guards=None, **options):
                super().__init__(sites, guards, **options)
                spy.guards = guards or {}

            def exchange(self, requests):
                asked = {site: decode(request) for site, request in requests.items()}
                spy.requests += asked.items()
                there = {s: r for s, r in requests.items() if spy.down is None or not spy.down(s, asked[s])}
                answers = {site: TimeoutError("down") for site in requests} | super().exchange(there)
                if spy.tamper is not None:
                    answers = {site: spy.tamper(site, asked[site], answer) for site, answer in answers.items()}
                arrived = {site: answer for site, answer in answers.items() if isinstance(answer, bytes)}
                spy.replies += [(site, decode(answer)) for site, answer in arrived.items() if len(answer) > 100]
                spy.sites = self.states
                return answers

        return Watched

    def ledger(self, site):
        """What a site has released, and the run that it is of."""
        return self.guards[site].noise.ledger, self.sites[site].board.get(Terms).run

    def answers(self, kind, site=None):
        """What sites answered to requests of a kind, with their names."""
        wanted = [(name, m) for name, m in self.replies if m.kind == kind and site in (None, name)]
        return [(name, read_reply(message)) for name, message in wanted]


def spied_fit(monkeypatch, model, sites, *, resume=False, **options):
    """Fit through an engine that is watched; the fitted model and what passed."""
    spy = Spy(**options)
    with monkeypatch.context() as patch:
        patch.setattr(efkmvc, "InProcessEngine", spy.engine_class())
        model.fit(sites, resume=resume)
    return model, spy


def seeded_noise(monkeypatch):
    """Noise that differs in every draw and is the same in every run of a test; how many draws there were."""
    drawn = [0]

    def noise(sigma, size):
        drawn[0] += 1
        return np.rint(np.random.default_rng(drawn[0]).normal(size=size) * sigma).astype(np.int64)

    monkeypatch.setattr(sealed_noise, "discrete_gaussian", noise)
    return drawn


# ------------------------------------------------------------------------------------------------------------ messages


def read_request(message):
    """The header and the phase's own request of a sealed message."""
    phase = phase_named(message.kind.removeprefix(SEALED))
    kinds = (request_type(phase), *map(entry_type, message.values.get(ENTRIES, [])))
    return unpack(message.values, message.arrays, tuple[*kinds])[0]


def step_of(message):
    """The step of the agreement on masks that a request is for; None in the open."""
    if not message.kind.startswith(SEALED):
        return None
    masks = read_request(message)[0].masks
    return None if masks is None else masks.step


def read_reply(message):
    """What a site answered in a sealed phase."""
    return unpack(message.values, message.arrays, Reply)


def with_reply(change):
    """A change of a site's sealed answer, from dataclass to dataclass."""

    def changed(payload):
        message = decode(payload)
        values, arrays = pack(change(read_reply(message)), Reply)
        return encode(replace(message, values=values, arrays=arrays))

    return changed


# ---------------------------------------------------------------------------------------------------- a site by itself


def moves_request(parameters, neighbours, *, in_features=False):
    """The request of a noisy round in a basis."""
    asked = noisy_request(parameters, neighbours)
    return NoisyMovesRequest(asked.model, asked.count_scale, in_features)


class LoneSite:
    """A site of one view or more with a guard, asked by a server of a test's own making.

    Parameters
    ----------
    views : list or dict of tables
        Its rows.
    privacy : DifferentialPrivacy or None
        Its budget.
    masks : SecureSite or None
        Its part in masked sums.
    """

    def __init__(self, views, privacy=None, masks=None, name="oslo"):
        self.ledger = Ledger(None, name)
        self.guard = SealedGuard(None if privacy is None else SiteNoise(privacy, self.ledger), masks)
        self.site = Site(name, views if hasattr(views, "tables") else check_views(views))

    def terms(self, run=RUN):
        privacy = None if self.guard.noise is None else self.guard.noise.privacy.describe()
        return Terms(run, privacy=privacy, secure=self.guard.masks is not None)

    def ask(self, phase, request, *entries, header=None, number=1, rounds=1, terms=None):
        """What the site answers to a sealed request; entries of the board come with it, the run's terms once."""
        header = header or Header(None, NoisySum(number, rounds))
        return read_reply(self.send(SEALED + phase.name, (header, request), request_type(phase), *entries, terms=terms))

    def send(self, kind, request, kinds, *entries, terms=None):
        """The site's answer to any request, as a message."""
        told = [*([] if self.site.board.has(Terms) and terms is None else [terms or self.terms()]), *entries]
        message = write_request(kind, 0, request, kinds, {type(entry).__name__: entry for entry in told})
        self.site, reply = answer_message(self.site, self.guard, decode(encode(message)))
        return reply

    def released(self, *asked, **options):
        """The numbers that the site sends in the open."""
        reply = self.ask(*asked, **options)
        assert isinstance(reply, Numbers)
        return reply.values


def scales(references):
    """The entries that bring rows of views `view_0`, ... to model units."""
    names = tuple(f"view_{view}" for view in range(len(references)))
    return Schema(names, (None,) * len(names)), References(tuple(references))


def plain_reference(width, **changes):
    """Model units that are the input's."""
    fields = {"unit_rows": False, "shift": np.zeros(width), "scale": np.ones(width), "heat_coef": "uniform"}
    fields |= {"low": np.zeros(width), "span": np.ones(width), "share": 1.0}
    return Reference(**fields | changes)


def make_parameters(centers, *, view_weights=None, heat_time=0.3, fuzzifier=1.0625, view_exponent=2.0):
    """Parameters with equal view weights."""
    n_views = len(centers)
    weights = np.full(n_views, 1 / n_views) if view_weights is None else np.asarray(view_weights, np.float64)
    return Parameters(tuple(centers), weights, heat_time, fuzzifier, view_exponent, np.ones(len(weights)))
