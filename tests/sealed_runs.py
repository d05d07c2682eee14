"""Sealed runs for tests: an engine that keeps all messages and can fail sites, and requests of one's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhk.data.scaling import Reference
from fedhk.estimators import efkmvc
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.messages import Message, decode
from fedhk.federation.payloads import pack_parameters, pack_references
from fedhk.federation.sealed import site as sealed_site
from fedhk.model.parameters import Parameters


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
    sent: list[dict[str, bytes]] = field(default_factory=list)
    states: dict[str, Any] = field(default_factory=dict)

    def engine(self, *arguments, **options):
        spy = self

        class Watched(InProcessEngine):
            def exchange(self, requests):
                told = {site: decode(request) for site, request in requests.items()}
                spy.requests += told.items()
                there = {s: r for s, r in requests.items() if spy.down is None or not spy.down(s, told[s])}
                answers = {site: TimeoutError("down") for site in requests} | super().exchange(there)
                if spy.tamper is not None:
                    answers = {site: spy.tamper(site, told[site], answer) for site, answer in answers.items()}
                arrived = {site: answer for site, answer in answers.items() if isinstance(answer, bytes)}
                spy.sent.append(arrived)
                spy.replies += [(site, decode(answer)) for site, answer in arrived.items() if len(answer) > 100]
                spy.states = self.states
                return answers

        return Watched(*arguments, **options)


def spied_fit(monkeypatch, model, sites, *, resume=False, **options):
    """Fit through an engine that is watched; the fitted model and what passed."""
    spy = Spy(**options)
    with monkeypatch.context() as patch:
        patch.setattr(efkmvc, "InProcessEngine", spy.engine)
        model.fit(sites, resume=resume)
    return model, spy


def seeded_noise(monkeypatch):
    """Noise that differs in every draw and is the same in every run of a test; how many draws there were."""
    drawn = [0]

    def noise(sigma, size):
        drawn[0] += 1
        return np.rint(np.random.default_rng(drawn[0]).normal(size=size) * sigma).astype(np.int64)

    monkeypatch.setattr(sealed_site, "discrete_gaussian", noise)
    return drawn


def step_of(request):
    """The step of the agreement on masks that a request is for; None in the open."""
    return request.values.get("mask.step")


def asked(kind, exchange=1, arrays=None, **values):
    """A request of a sealed run."""
    return Message(kind, "*", exchange, arrays or {}, {"sealed": True, "run": "a-run", "rounds": 1} | values)


def plain_reference(width, **changes):
    """Model units that are the input's."""
    fields = {"unit_rows": False, "shift": np.zeros(width), "scale": np.ones(width), "heat_coef": "uniform"}
    fields |= {"low": np.zeros(width), "span": np.ones(width), "share": 1.0}
    return Reference(**fields | changes)


def asked_round(references, parameters, exchange=1, **values):
    """A request for a round, with the scales."""
    names = [f"view_{view}" for view in range(len(references))]
    scales, described = pack_references(references, names, [None] * len(names))
    arrays, numbers = pack_parameters(parameters)
    return asked("round", exchange, scales | arrays, **described | numbers | values)


def make_parameters(centers, *, view_weights=None, heat_time=0.3, fuzzifier=1.0625, view_exponent=2.0):
    """Parameters with equal view weights."""
    n_views = len(centers)
    weights = np.full(n_views, 1 / n_views) if view_weights is None else np.asarray(view_weights, np.float64)
    return Parameters(tuple(centers), weights, heat_time, fuzzifier, view_exponent, np.ones(len(weights)))
