"""The checks for phases pass for those of FedHK and for a new one of a few lines, and fail for broken ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from fedhk.embedding.options import Diffusion
from fedhk.federation.aggregators import SumAggregator
from fedhk.federation.board import Entry
from fedhk.federation.entries import References, Schema
from fedhk.federation.phases.agreement import CompareClusters, FindPartitions, FirstCenters
from fedhk.federation.phases.anchors import ChooseAnchors, TieRows
from fedhk.federation.phases.base import Nothing, ServerPhase, SumPhase
from fedhk.federation.phases.candidates import ChooseStart
from fedhk.federation.phases.deliver import Deliver
from fedhk.federation.phases.describe import Describe, DescribeViews, Energy, SiteEffect
from fedhk.federation.phases.finish import Finish
from fedhk.federation.phases.publish_frame import GivenShares, PublishFrame, Shares
from fedhk.federation.phases.refine import FindEffects, FindRefined
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.phases.within import FindMetric
from fedhk.federation.protocols import make_protocol
from fedhk.federation.protocols.base import RoundContext
from fedhk.federation.remote.greet import Greet
from fedhk.personal.options import Personalization
from fedhk.testing.phases import PhaseChecks, SumPhaseChecks
from fedhk.testing.sites import SETTINGS

SUM = SumAggregator()


def rounds(protocol="statistics", max_rounds=2):
    return Rounds(make_protocol(protocol), RoundContext(SETTINGS, SUM), max_rounds, 0.0)


def started(protocol="statistics"):
    return [Describe(SETTINGS), ChooseStart(SETTINGS, make_protocol(protocol), SUM, 0)]


class TestDescribe(PhaseChecks):
    def before(self):
        return []

    def phase(self):
        return Describe(SETTINGS)


class TestDescribeViews(PhaseChecks):
    def before(self):
        return []

    def phase(self):
        return DescribeViews(SETTINGS)


class TestGreet(PhaseChecks):
    def before(self):
        return []

    def phase(self):
        return Greet()


@dataclass(frozen=True)
class Differing(ServerPhase):
    """Sites that surely differ."""

    name: ClassVar[str] = "differing"

    def begin(self, board):
        return board.put(SiteEffect(0.0))


class TestEnergy(SumPhaseChecks):
    def phase(self):
        return Energy()


class TestChooseStart(PhaseChecks):
    keeps_sites_apart = True  # starts are drawn among the candidates

    def phase(self):
        return ChooseStart(SETTINGS, make_protocol("statistics"), SUM, 0)


class TestPublishFrame(PhaseChecks):
    def before(self):
        return [Describe(SETTINGS), GivenShares(1.0, 0.5)]

    def phase(self):
        return PublishFrame(SETTINGS, offsets=True)


class TestFindPartitions(PhaseChecks):
    keeps_sites_apart = True  # starts are drawn among the means

    def before(self):
        return [Describe(SETTINGS), Differing()]

    def phase(self):
        return FindPartitions(SETTINGS.n_clusters, SETTINGS)


class TestCompareClusters(TestFindPartitions):
    keeps_sites_apart = False

    def before(self):
        return [*super().before(), super().phase()]

    def phase(self):
        return CompareClusters(super().phase())


@dataclass(frozen=True)
class Calibrated(ServerPhase):
    """A frame that was taken, and clusters of the rows in it."""

    name: ClassVar[str] = "calibrated"

    def begin(self, board):
        width = sum(board.get(References).widths)
        centers = np.random.default_rng(0).normal(size=(SETTINGS.n_clusters, width))
        return board.put(Shares(1.0, 0.5), FirstCenters(centers))


class TestFindEffects(PhaseChecks):
    def before(self):
        return [Describe(SETTINGS), Calibrated()]

    def phase(self):
        return FindEffects(FindPartitions(SETTINGS.n_clusters, SETTINGS))


class TestFindRefined(PhaseChecks):
    keeps_sites_apart = True  # starts are drawn among the means

    def before(self):
        return [Describe(SETTINGS), Calibrated(), TestFindEffects().phase()]

    def phase(self):
        return FindRefined(SETTINGS.n_clusters, SETTINGS)


class TestFindMetric(PhaseChecks):
    keeps_sites_apart = True  # first clusters are found among the means

    def before(self):
        given = (SETTINGS, make_protocol("statistics"), SUM, 0)
        return [Describe(SETTINGS), ChooseAnchors(*given, diffusion=Diffusion(), n_clusters=SETTINGS.n_clusters)]

    def phase(self):
        return FindMetric(TieRows(Diffusion(), SETTINGS.n_clusters, 0))


class TestStatisticsRounds(PhaseChecks):
    protocol = "statistics"

    def before(self):
        return started(self.protocol)

    def phase(self):
        return rounds(self.protocol)


class TestBasisRounds(TestStatisticsRounds):
    protocol = "cores"


class TestAveragingRounds(TestStatisticsRounds):
    protocol = "centers"


class TestFinish(SumPhaseChecks):
    def before(self):
        return [*started(), rounds()]

    def phase(self):
        return Finish(summary=True)


class TestDeliver(PhaseChecks):
    keeps_sites_apart = True  # the server keeps the report of each site

    def before(self):
        return [*started(), rounds(), Finish(summary=True)]

    def phase(self):
        return Deliver(Personalization(), learn_weights=False)


# ------------------------------------------------------------------------------------------------- a phase of one's own


@dataclass(frozen=True)
class ObservedCells(Entry):
    """Observed cells of each view, over all sites."""

    counts: tuple[float, ...]


@dataclass(frozen=True)
class CountObserved(SumPhase[Nothing]):
    """Count the observed cells of each view."""

    name: ClassVar[str] = "count observed"
    request_type: ClassVar[Any] = Nothing

    def request(self, board):
        return Nothing()

    def size(self, board):
        return len(board.get(Schema).names)

    @staticmethod
    def vector(site, request):
        tables = site.aligned_views().tables
        return np.array([0.0 if table is None else float(np.isfinite(table).sum()) for table in tables])

    def take(self, board, total, noise):
        return board.put(ObservedCells(tuple(total.tolist())))


class TestCountObserved(SumPhaseChecks):
    def phase(self):
        return CountObserved()


class Loose(CountObserved):
    name = "loose"

    @staticmethod
    def sensitivity(request, size, neighbours):
        return 0.5


class Mean(CountObserved):
    name = "mean"

    @staticmethod
    def vector(site, request):
        return CountObserved.vector(site, request) / site.views.n_rows


class Random(CountObserved):
    name = "random"

    @staticmethod
    def vector(site, request):
        return CountObserved.vector(site, request) + random.random()  # noqa: S311


class Trusting(CountObserved):
    name = "trusting"

    def check(self, board, reply, site):
        """Believe everything."""


class Brittle(CountObserved):
    name = "brittle"

    def check_vector(self, board, values, site):
        if values[0] < 0:
            raise KeyError(site)


class Endless(CountObserved):
    name = "endless"

    def is_done(self, board, exchanges):
        return False


class FirstOnly(CountObserved):
    name = "first only"

    def combine(self, board, replies):
        return self.take(board, next(iter(replies.values())).values, 0.0)


class Careless(CountObserved):
    name = "careless"

    def combine(self, board, replies):
        for reply in replies.values():
            reply.values.setflags(write=True)
            reply.values[:] = 0.0
        return board


class Borrowed(CountObserved):
    name = "energy"


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Loose, "test_no_row_moves_the_vector_further_than_the_sensitivity_says"),
        (Mean, "test_the_sums_of_sites_are_the_sum_of_the_pooled_rows"),
        (Random, "test_the_answer_depends_on_the_site_the_request_and_the_board_alone"),
        (Trusting, "test_damaged_replies_are_refused_with_a_message_error_or_do_no_harm"),
        (Brittle, "test_damaged_replies_are_refused_with_a_message_error_or_do_no_harm"),
        (Endless, "test_a_run_comes_to_the_end_of_the_phase_and_its_board_can_be_stored"),
        (FirstOnly, "test_the_same_replies_give_the_same_board_whichever_site_sent_which"),
        (Careless, "test_replies_and_the_board_before_are_not_changed"),
        (Borrowed, "test_a_site_finds_the_phase_by_its_name"),
    ],
)
def test_a_broken_phase_fails(broken, check):
    class Checks(SumPhaseChecks):
        def phase(self):
            return broken()

    with pytest.raises(AssertionError):
        getattr(Checks(), check)()
