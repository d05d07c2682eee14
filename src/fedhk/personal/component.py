"""A site's own model: the global one, changed by components as far as the site's own rows justify.

The site's centres are s (A_k + b + d_k): the global ones on the site's own scale s, with an offset b that all clusters
of the site share, and what is left per cluster, d_k. Besides, its clusters are as frequent as they are there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import ClassVar, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows, split_joint, take
from fedhk.model.statistics import Statistics
from fedhk.personal.shares import LEAST_ROWS, Move, agreement

Share: TypeAlias = float | Literal["auto"]
"""A share from 0 (the global model) to 1 (the site's own rows alone), or "auto": learned on held-out rows."""

Shares: TypeAlias = dict[str, float]
"""Shares by name."""

Part = TypeVar("Part")

# Passes over the rows; memberships follow the centres, so that one is not enough. Where all shares are given, passes go
# on until no coordinate of a centre moves by more than this, in model units: the minimum of J + gamma R_person is one.
PASSES, MOST_PASSES, SETTLED_MOVE = 10, 500, 1e-7

# Components whose shares every site reports, in this order.
REPORTED = ("shift", "spread", "sizes", "centers", "view_weights")


@dataclass(frozen=True)
class OwnModel:
    """A site's own model, while components add to it and at the end.

    Parameters
    ----------
    common : Parameters
        The global model.
    rows : Rows
        The site's rows, with references on the site's own scale.
    parameters : Parameters
        The site's own. While components are learned, its centres are in `offset` and `step` instead; `finish` of the
        component that moves them puts them here.
    offset : array of shape (d,)
        What is added to all centres, all views side by side.
    step : array of shape (c, d)
        What is added to each centre besides.
    shares : dict of str to float
        How much of the site's own rows is in the model, by name.
    view_distance : float
        R_view: what a row at the common view weights costs more in the site's own model.
    tensor_distance : float
        R_tensor: the same for the common parts of a form, where own models live through the rounds.
    """

    common: Parameters
    rows: Rows
    parameters: Parameters
    offset: FloatArray
    step: FloatArray
    shares: Shares
    view_distance: float = 0.0
    tensor_distance: float = 0.0

    @classmethod
    def start(cls, rows: Rows, common: Parameters) -> OwnModel:
        """Return the model before any component is fitted: the global one."""
        step = np.zeros((common.n_clusters, sum(rows.widths)))
        return cls(common, rows, common, step[0], step, dict.fromkeys(REPORTED, 0.0))

    @property
    def current(self) -> Parameters:
        """Parameters with centres A_k + b + d_k, without a form, as used in a pass over the rows."""
        centers = np.hstack(self.common.centers) + self.offset + self.step
        return replace(self.parameters.free(), centers=split_joint(centers, self.rows.widths))

    @property
    def center_distance(self) -> float:
        """R_person: what a row at the common centres, apart from the offset, costs more in the site's own model."""
        return self.common.heat_time * float(self.common.view_factors.max()) * float(np.sum(self.step**2))


@dataclass(frozen=True, kw_only=True)
class Component(ABC, Generic[Part]):
    """One part of a site's own model: learned on one half of its rows, confirmed on the other, then applied.

    A new component is one file with a subclass that has a `name`, `learn` and `apply`, and its place in
    `Personalization.list_components`. `fedhk.testing.components.ComponentChecks` has tests for it.

    A component is asked again in every pass over the rows. It replaces its own part of the model and leaves the others;
    what it starts from is always `own.common`.

    Parameters
    ----------
    share : float or "auto"
        How much of what the rows ask for is taken; "auto" is what held-out rows confirm.
    """

    name: ClassVar[str]
    share: Share = "auto"

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the shares: one, unless parts of the component have shares of their own."""
        return (self.name,)

    @abstractmethod
    def learn(self, own: OwnModel, part: Part) -> Move:
        """Find the move of this component that some of the rows support.

        Parameters
        ----------
        own : OwnModel
            The site's model so far.
        part : Statistics, or what else the component learns from
            Of some of the rows at that model.
        """

    def confirm(self, own: OwnModel, first: Move, second: Move) -> Shares:  # noqa: ARG002
        """Find the share of the move of one half that the other half confirms, and the other way round."""
        return {self.name: agreement(first, second)}

    @abstractmethod
    def apply(self, own: OwnModel, part: Part, shares: Mapping[str, float]) -> OwnModel:
        """Return the model with these shares of the move of all rows (`part`); shares of 0 give the global model."""

    def finish(self, own: OwnModel) -> OwnModel:
        """Return the final model; called once, after the last pass."""
        return own

    def fit(self, own: OwnModel, halves: Sequence[Part], whole: Part) -> OwnModel:
        """Learn on each of two halves of the rows, confirm on the other, and apply the share that was confirmed.

        A site with too few rows to hold out any has no halves; then nothing is learned.
        """
        shares = dict.fromkeys(self.parts, 0.0)
        if not isinstance(self.share, str):
            shares = dict.fromkeys(self.parts, self.share)
        elif halves:
            first, second = (self.learn(own, half) for half in halves)
            shares = self.confirm(own, first, second)
        return self.apply(replace(own, shares=own.shares | shares), whole, shares)


def fit_components(
    own: OwnModel, components: Sequence[Component[Statistics]], *, passes: int = PASSES, workers: int = 1
) -> OwnModel:
    """Fit components of a site's own model in this order: what comes later explains what is left."""
    n_rows = own.rows.n_rows
    if n_rows == 0:
        return own
    order = np.random.default_rng(0).permutation(n_rows)
    halves = [np.sort(half) for half in (order[::2], order[1::2]) if len(half)]
    with ExitStack() as stack:
        scans = [stack.enter_context(Passes(take(own.rows, half), own.common.n_clusters, workers)) for half in halves]
        learned = any(isinstance(component.share, str) for component in components)
        for number in range(passes if learned else MOST_PASSES):
            before = own.step
            statistics = [scan.statistics(own.current) for scan in scans]
            whole, held_out = reduce(add, statistics), statistics if n_rows >= LEAST_ROWS else []
            for component in components:
                own = component.fit(own, held_out, whole)
            if not learned and number + 1 >= passes and np.abs(own.step - before).max() <= SETTLED_MOVE:
                break
    for component in components:
        own = component.finish(own)
    return own


def keep_clusters(common: OwnModel, own: OwnModel, workers: int) -> OwnModel:
    """Return a site's own model, or the global one where that tells the clusters of the site's rows further apart.

    With a large fuzzifier a row pulls at all centres, and fuzzy memberships cost least where centres lie on each other.
    Common centres of sums with noise are apart nevertheless, and both halves of a site's rows then confirm that they
    should not be: the own model would lose clusters. So a row's distance to its nearest centre, divided by that to the
    next one, decides, as a mean over rows; it is 1 where centres coincide. It is computed at the site and stays there.
    """
    if own.common.n_clusters == 1 or not own.rows.n_rows:
        return own
    with Passes(own.rows, own.common.n_clusters, workers) as scan:
        before, after = (
            scan.row_mean(replace(model, sizes=own.common.sizes), _divide_by_second)
            for model in (own.common, own.parameters)
        )
    return own if after <= before else replace(common, shares=dict.fromkeys(own.shares, 0.0) | common.shares)


def _divide_by_second(nearest: FloatArray, second: FloatArray) -> FloatArray:
    """Divide distances to the nearest centre by those to the second nearest; 1 where both are 0."""
    return np.divide(nearest, second, out=np.ones_like(nearest), where=second > 0)


def join_sums(statistics: Statistics, common: Parameters) -> tuple[FloatArray, FloatArray]:
    """Put N and W of all views side by side, in rows of the site: multiplied by the view's share of J."""
    factors = common.view_factors / common.view_factors.max()
    numerators = [factor * part for factor, part in zip(factors, statistics.numerators, strict=True)]
    weights = [
        factor * np.broadcast_to(weight, part.shape)
        for factor, weight, part in zip(factors, statistics.weights, statistics.numerators, strict=True)
    ]
    return np.hstack(numerators), np.hstack(weights)
