"""Federations for tests: phases, engines that can be made to lie, and whole runs through `conduct`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedhk.data.clients import check_clients
from fedhk.estimators import federated
from fedhk.federation.aggregators import SumAggregator
from fedhk.federation.checkpoint import save_run
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import Minimisation, Result
from fedhk.federation.messages import decode
from fedhk.federation.participation import Participation
from fedhk.federation.phases.candidates import ChooseStart
from fedhk.federation.phases.describe import Describe, Energy
from fedhk.federation.phases.finish import Finish
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.protocols import make_protocol
from fedhk.federation.protocols.base import RoundContext
from fedhk.federation.run import Run, conduct
from fedhk.federation.site import Site
from fedhk.starts.settings import Settings


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
    return Settings(n_clusters=n_clusters, **settings | changes)


def make_phases(n_clusters=3, *, protocol="statistics", aggregator=None, max_rounds=5, tol=0.0, seed=0, **changes):
    """The phases of a plain run up to its end, without own models."""
    settings, protocol = make_settings(n_clusters, **changes), make_protocol(protocol)
    aggregator = aggregator or SumAggregator()
    return [
        Describe(settings),
        *([] if settings.heat_coef == "uniform" else [Energy()]),
        ChooseStart(settings, protocol, aggregator, seed),
        Rounds(protocol, RoundContext(settings, aggregator), max_rounds, tol),
        Finish(summary=False),
    ]


def make_sites(sites):
    """Sites in this process, as an engine takes them."""
    return {name: Site(name, views) for name, views in check_clients(sites).items()}


class TestEngine:
    """Sites in this process; `tamper` changes what they answer, `present` says who is there.

    Parameters
    ----------
    sites : dict
        As for `EFKMVC.fit`.
    tamper : callable, optional
        From (site, phase, exchange, answer) to another answer; None is no answer.
    present : callable, optional
        From the number of the exchange to the names of the sites that can be asked.
    """

    __test__ = False

    def __init__(self, sites, tamper=None, present=None, **engine):
        self.engine = InProcessEngine(make_sites(sites), **engine)
        self.tamper = tamper or (lambda *asked: asked[-1])
        self.present = present or (lambda *_: self.engine.sites())
        self.exchanges = 0
        self.sent, self.received, self.phases = [], [], []

    def sites(self):
        return self.present(self.exchanges)

    def exchange(self, requests):
        if not requests:
            return {}
        asked = decode(next(iter(requests.values())))
        answers = self.engine.exchange(requests)
        changed = {site: self.tamper(site, asked.kind, asked.round, answer) for site, answer in answers.items()}
        self.exchanges += 1
        self.phases.append(asked.kind)
        self.sent.append(dict(requests))
        self.received.append({site: answer for site, answer in changed.items() if answer is not None})
        return self.received[-1]

    def close(self):
        self.engine.close()


def run_sites(
    phases, sites, *, tamper=None, present=None, fraction=1.0, min_sites=1, after=(), run=None, seed=0, **options
):
    """A whole run, and the engine that carried it."""
    limits = {"max_bytes": options.pop("max_bytes")} if "max_bytes" in options else {}
    engine = sites if isinstance(sites, TestEngine) else TestEngine(sites, tamper, present, **options)
    participation = Participation(fraction, min_sites)
    try:
        done = conduct(phases, engine, run or Run(), seed=seed, participation=participation, after=after, **limits)
    finally:
        engine.close()
    return done, engine


def assert_same_model(one, other):
    """Two runs ended with the same bits."""
    first, second = (run.board.get(Minimisation).progress for run in (one, other))
    assert first.iteration == second.iteration
    assert_array_equal(np.hstack(first.parameters.centers), np.hstack(second.parameters.centers))
    assert_array_equal(first.parameters.view_weights, second.parameters.view_weights)
    assert first.parameters.fuzzifier == second.parameters.fuzzifier
    assert [r["objective"] for r in one.history] == [r["objective"] for r in other.history]
    assert one.board.get(Result).objective == other.board.get(Result).objective


class Stop(BaseException):
    """What kills a fit in tests."""


def resumed_after(last, model, sites, monkeypatch):
    """A fit that is killed after so many exchanges, and goes on from its checkpoint."""

    def save_then_stop(folder, run, plan):
        save_run(folder, run, plan)
        if run.exchange == last:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(federated, "save_run", save_then_stop)
        with pytest.raises(Stop):
            model.fit(sites)
    return model.fit(sites, resume=True)
