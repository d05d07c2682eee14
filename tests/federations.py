"""Federations for tests: plans, an engine whose sites can be made to lie, and whole runs through `conduct`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import GenericAlias
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.clients import check_clients
from fedhk.data.scaling import make_scaling
from fedhk.estimators import efkmvc
from fedhk.federation.aggregators import Aggregator, make_aggregator
from fedhk.federation.board import entry_type
from fedhk.federation.checkpoint import save_run
from fedhk.federation.codec import pack, unpack
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import FinalParameters, Minimisation, Result
from fedhk.federation.gate import ENTRIES, Guard
from fedhk.federation.messages import decode, encode
from fedhk.federation.participation import Participation
from fedhk.federation.phases.agreement import CompareClusters, FindPartitions
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.candidates import ChooseStart, GivenStart
from fedhk.federation.phases.deliver import Deliver
from fedhk.federation.phases.describe import Describe, Energy
from fedhk.federation.phases.finish import Finish
from fedhk.federation.phases.publish_frame import GivenShares, PublishFrame
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.protocols import make_protocol
from fedhk.federation.protocols.base import Protocol, RoundContext
from fedhk.federation.run import Run, conduct
from fedhk.federation.site import Site
from fedhk.personal.options import Personal
from fedhk.starts.settings import Settings


@dataclass(frozen=True)
class Plan:
    """What a run in a test is made of; `phases` is the list that an estimator would make of it.

    Parameters
    ----------
    settings : Settings
        The model.
    protocol, aggregator, max_rounds, tol, seed
        Of the run.
    calibration : "auto", (float, float) or None
        How a frame is chosen; None chooses a start alone.
    personal : Personal or None
        Own models at the end; None leaves this phase out.
    """

    settings: Settings
    protocol: Protocol
    aggregator: Aggregator
    max_rounds: int = 5
    tol: float = 0.0
    seed: int = 0
    calibration: Any = None
    personal: Personal | None = None

    def phases(self, workers: int = 1) -> list[Phase[Any, Any]]:
        """The phases of the run."""
        settings = self.settings
        start = settings, self.protocol, self.aggregator, self.seed, workers
        phases = [Describe(settings, aggregator=self.aggregator)]
        if settings.heat_coef != "uniform":
            phases.append(Energy(self.aggregator))
        if self.calibration is not None:
            phases.extend(frame_phases(settings, self.calibration, self.aggregator))
        if isinstance(settings.init, str):
            phases.append(ChooseStart(*start))
        else:
            phases.append(GivenStart(settings, self.protocol))
        phases.append(Rounds(self.protocol, RoundContext(settings, self.aggregator), self.max_rounds, self.tol))
        phases.append(Finish(self.personal is not None and self.personal.uses_summary, self.aggregator))
        return [*phases, Deliver(self.personal, settings.learn_weights)] if self.personal is not None else phases


def frame_phases(settings, calibration, aggregator, *, offsets=True):
    """The phases that choose or publish a frame."""
    publish = PublishFrame(settings, offsets, aggregator)
    if calibration != "auto":
        return [GivenShares(*calibration), publish]
    find = FindPartitions(settings.n_clusters, settings, aggregator)
    return [find, CompareClusters(find), publish]


def make_settings(n_clusters=3, **changes):
    """Settings with small numbers; any field of `Settings` may be changed."""
    settings = {
        "heat_coef": "uniform",
        "scaling": "standard",
        "heat_time": 0.3,
        "fuzzifier": 1.1,
        "view_weights": "uniform",
        "view_exponent": 2.0,
        "init": "k-means++",
        "n_init": 3,
    }
    settings |= changes
    settings["scaling"] = make_scaling(settings["scaling"])
    if not isinstance(settings["init"], str):
        settings["init"] = tuple(settings["init"])
    return Settings(n_clusters=n_clusters, **settings)


def make_plan(n_clusters=3, *, protocol="statistics", aggregator="sum", **changes):
    """A plan with small numbers; any field of `Settings` or `Plan` may be changed, parts may be given by name."""
    known = {part.name for part in fields(Settings)}
    settings = make_settings(n_clusters, **{name: changes.pop(name) for name in list(changes) if name in known})
    return Plan(settings, make_protocol(protocol), make_aggregator(aggregator), **changes)


def make_phases(n_clusters=3, **changes):
    """The phases of a plain run up to its end, without own models."""
    return make_plan(n_clusters, **changes).phases()


def make_sites(sites):
    """Sites before a run, as an engine takes them."""
    return {name: Site(name, views) for name, views in check_clients(sites).items()}


class TestEngine(InProcessEngine):
    """Sites in this process; `tamper` changes what they answer, `present` says who is there; all messages are kept.

    Parameters
    ----------
    sites : dict
        As for `EFKMVC.fit`, or of `Site`.
    guards, options
        As in `InProcessEngine`.
    tamper : callable, optional
        From (site, phase, exchange, answer) to another answer; None is no answer.
    present : callable, optional
        From the number of the exchange to the names of the sites that can be asked.
    """

    __test__ = False

    def __init__(self, sites, guards=None, *, tamper=None, present=None, **options):
        known = isinstance(sites, dict) and all(isinstance(site, Site) for site in sites.values())
        super().__init__(sites if known else make_sites(sites), guards, **options)
        self.tamper = tamper or (lambda *asked: asked[-1])
        self.present = present or (lambda *_: super(TestEngine, self).sites())
        self.exchanges = 0
        self.sent, self.received, self.phases = [], [], []

    def sites(self):
        return self.present(self.exchanges)

    def exchange(self, requests):
        if not requests:
            return {}
        asked = decode(next(iter(requests.values())))
        answers = super().exchange(requests)
        changed = {site: self.tamper(site, asked.kind, asked.round, answer) for site, answer in answers.items()}
        self.exchanges += 1
        self.phases.append(asked.kind)
        self.sent.append(dict(requests))
        self.received.append({site: answer for site, answer in changed.items() if answer is not None})
        return self.received[-1]


def run_sites(
    plan, sites, *, tamper=None, present=None, fraction=1.0, min_sites=1, after=(), run=None, seed=0, **options
):
    """A whole run of a plan, or of a list of phases, and the engine that carried it."""
    engine = sites if isinstance(sites, TestEngine) else TestEngine(sites, tamper=tamper, present=present, **options)
    phases, seed = (plan.phases(options.get("workers", 1)), plan.seed) if isinstance(plan, Plan) else (plan, seed)
    participation = Participation(fraction, min_sites)
    try:
        done = conduct(phases, engine, run or Run(), seed=seed, participation=participation, after=after)
    finally:
        engine.close()
    return done, engine


def fit_recorded(model, sites, monkeypatch, **engine_options):
    """Fit an estimator; the model, and the engine with all of its messages."""
    engines = []

    class Recording(TestEngine):
        def __init__(self, *args, **options):
            super().__init__(*args, **options | engine_options)
            engines.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(efkmvc, "InProcessEngine", Recording)
        model.fit(sites)
    return model, engines[0]


def parameters_of(run):
    """The parameters that the rounds ended with, in features."""
    return run.board.get(FinalParameters).parameters


def progress_of(run):
    """Where the rounds stand."""
    return run.board.get(Minimisation).progress


def assert_same_model(one, other):
    """Two runs ended with the same bits."""
    first, second = progress_of(one), progress_of(other)
    assert first.iteration == second.iteration
    assert_array_equal(np.hstack(first.parameters.centers), np.hstack(second.parameters.centers))
    assert_array_equal(first.parameters.view_weights, second.parameters.view_weights)
    assert first.parameters.fuzzifier == second.parameters.fuzzifier
    assert_array_equal(np.hstack(parameters_of(one).centers), np.hstack(parameters_of(other).centers))
    assert [r["objective"] for r in one.history] == [r["objective"] for r in other.history]
    assert one.board.get(Result).objective == other.board.get(Result).objective


# ------------------------------------------------------------------------------------------------- what messages hold


def read_reply(payload):
    """What a site answered, as the dataclass of its phase."""
    message = decode(payload)
    return unpack(message.values, message.arrays, Guard().phase(message.kind).reply_type)


def write_reply(payload, reply):
    """The same message with another answer in it; the digest fits."""
    message = decode(payload)
    values, arrays = pack(reply, Guard().phase(message.kind).reply_type)
    return encode(replace(message, values=values, arrays=arrays))


def with_reply(change):
    """A change of a site's answer from dataclass to dataclass."""
    return lambda payload: write_reply(payload, change(read_reply(payload)))


def with_field(name, change):
    """A change of one field of a site's answer; dots lead into it, as in "sums.values" or "weights.0"."""

    def changed(value, path):
        if not path:
            return change(np.copy(value) if isinstance(value, np.ndarray) else value)
        first, *rest = path
        if isinstance(value, tuple):
            return tuple(changed(part, rest) if str(i) == first else part for i, part in enumerate(value))
        return replace(value, **{first: changed(getattr(value, first), rest)})

    return with_reply(lambda reply: changed(reply, name.split(".")))


def with_message(change):
    """A change of the decoded message, sealed again: the digest is no help."""
    return lambda payload: encode(change(decode(payload)))


def read_request(payload):
    """What sites were asked, as the dataclass of its phase."""
    message = decode(payload)
    kinds = [entry_type(name) for name in published(payload)]
    return unpack(
        message.values, message.arrays, GenericAlias(tuple, (Guard().phase(message.kind).request_type, *kinds))
    )[0]


def published(payload):
    """Names of the entries that a request carries."""
    return decode(payload).values.get(ENTRIES, [])


# -------------------------------------------------------------------------------------------------------- interruptions


class Stop(BaseException):
    """What kills a fit in tests."""


def resumed_after(last, model, sites, monkeypatch):
    """A fit that is killed after so many exchanges, and goes on from its checkpoint."""

    def save_then_stop(folder: Path, run: Run, *others: Any) -> None:
        save_run(folder, run, *others)
        if run.exchange == last:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(efkmvc, "save_run", save_then_stop)
        with pytest.raises(Stop):
            model.fit(sites)
    return model.fit(sites, resume=True)


def objectives(run):
    """The objective of every round, and at the end."""
    return [record["objective"] for record in run.history] + [run.board.get(Result).objective]


def assert_near(one, other, atol):
    """Two runs ended with nearly the same model, by nearly the same way."""
    for a, b in zip(parameters_of(one).centers, parameters_of(other).centers, strict=True):
        assert_allclose(a, b, rtol=0, atol=atol)
    assert_allclose(parameters_of(one).view_weights, parameters_of(other).view_weights, rtol=0, atol=atol)
    assert_allclose(objectives(one), objectives(other), rtol=atol)
