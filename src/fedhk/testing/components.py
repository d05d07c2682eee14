"""Checks that every component of a site's own model must pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fedhk._typing import FloatArray
from fedhk.data.views import check_views
from fedhk.model.cluster_summary import ClusterSummary, summarise_clusters
from fedhk.model.descent import learned_view_weights
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows, joint_rows, split_joint, take
from fedhk.personal.component import Component, OwnModel
from fedhk.testing._values import check

WIDTHS = (4, 3)
CLUSTERS = 3


@dataclass(frozen=True)
class Evidence:
    """What a component learns from: the model so far, and what two halves and all of the rows say of it."""

    own: OwnModel
    halves: Sequence[Any]
    whole: Any


def make_common(seed: int = 0) -> tuple[Rows, Parameters, ClusterSummary]:
    """Make rows of three clusters in two views, a model that has their centres, and its summary."""
    generator = np.random.default_rng(seed)
    centers = 3.0 * generator.standard_normal((CLUSTERS, sum(WIDTHS)))
    labels = generator.integers(CLUSTERS, size=3000)
    joint = centers[labels] + generator.standard_normal((len(labels), sum(WIDTHS)))
    views = check_views(list(split_joint(joint, WIDTHS)))
    rows = Rows(views, prepare(views, "standard", "uniform", None))
    units = joint_rows(rows)
    means = np.stack([units[labels == cluster].mean(axis=0) for cluster in range(CLUSTERS)])
    common = Parameters(split_joint(means, WIDTHS), np.array([0.5, 0.5]), 0.3, 1.1, 2.0, np.ones(2))
    with Passes(rows, CLUSTERS) as scan:
        costs = scan.statistics(common).costs
    common = replace(common, view_weights=learned_view_weights(costs, common.view_shares, common.view_exponent))
    return rows, common, summarise_clusters(rows, common, labels)


def make_site(rows: Rows, seed: int, *, differs: bool) -> Rows:
    """Draw 200 of the rows as those of a site; one that differs has other values, scales and cluster sizes."""
    generator = np.random.default_rng(seed)
    order = np.argsort(np.asarray(rows.views.tables[0])[:, 0])
    own = take(rows, generator.choice(order[: rows.n_rows // 2] if differs else order, 200, replace=False))
    if not differs:
        return own
    tables = [np.asarray(table) for table in own.views.tables]
    tables = [table * generator.uniform(0.6, 1.6, table.shape[1]) + generator.uniform(1, 2) for table in tables]
    return replace(own, views=replace(own.views, tables=tuple(tables)))


class ComponentChecks:
    """Checks of one component; a subclass says how it is made."""

    @abstractmethod
    def component(self, common: Parameters, summary: ClusterSummary) -> Component[Any]:
        """Make the component, with `share="auto"`."""

    def constrain(self, common: Parameters) -> Parameters:
        """Give the common model in the form that the component needs; most need none."""
        return common

    def collect(self, own: OwnModel) -> Evidence:
        """Collect what the component learns from: statistics of the rows, unless the subclass says otherwise."""
        parts = []
        for half in (np.arange(0, own.rows.n_rows, 2), np.arange(1, own.rows.n_rows, 2)):
            with Passes(take(own.rows, half), own.common.n_clusters) as scan:
                parts.append(scan.statistics(own.current))
        return Evidence(own, parts, parts[0] + parts[1])

    def test_shares_are_from_0_to_1_and_do_not_depend_on_the_order_of_the_halves(self) -> None:
        for differs in (False, True):
            component, evidence = self._case(1, differs=differs)
            first, second = (component.learn(evidence.own, half) for half in evidence.halves)
            shares = component.confirm(evidence.own, first, second)
            check(tuple(shares) == component.parts, f"shares are {tuple(shares)}, parts {component.parts}")
            check(all(0 <= share <= 1 for share in shares.values()), f"shares {shares} are not from 0 to 1")
            other = component.confirm(evidence.own, second, first)
            assert_allclose(list(other.values()), list(shares.values()), atol=1e-6)

    def test_sites_like_all_others_take_next_to_nothing(self) -> None:
        shares: list[float] = []
        for seed in range(8):
            component, evidence = self._case(seed, differs=False)
            found = component.fit(evidence.own, evidence.halves, evidence.whole).shares
            shares += [found[part] for part in component.parts]
        check(float(np.mean(shares)) <= 0.15, f"the mean share is {np.mean(shares):.3f}")

    def test_a_share_of_0_and_a_site_that_holds_out_no_rows_have_the_global_model(self) -> None:
        component, evidence = self._case(1, differs=True)
        nothing = replace(component, share=0.0).fit(evidence.own, evidence.halves, evidence.whole)
        for own in (nothing, component.fit(evidence.own, (), evidence.whole)):
            check(not any(own.shares.values()), f"shares are {own.shares}")
            kept = component.finish(own)
            assert_allclose(_numbers(kept), _numbers(evidence.own), atol=1e-9)

    def test_a_given_share_is_taken_and_the_model_stays_usable(self) -> None:
        component, evidence = self._case(1, differs=True)
        own = replace(component, share=1.0).fit(evidence.own, evidence.halves, evidence.whole)
        check(all(own.shares[part] == 1.0 for part in component.parts), f"shares are {own.shares}")
        kept = component.finish(own)
        shapes, expected = ([a.shape for a in of.centers] for of in (kept.parameters, evidence.own.common))
        check(shapes == expected, f"centres have shapes {shapes}")
        with Passes(kept.rows, CLUSTERS) as scan:
            memberships = scan.assign(kept.parameters)[0]
        assert_allclose(memberships.sum(axis=1), 1.0, atol=1e-9)
        assert_allclose(kept.parameters.view_weights.sum(), 1.0)

    def test_what_is_given_is_not_changed_and_the_same_comes_again(self) -> None:
        component, evidence = self._case(1, differs=True)
        before = _numbers(evidence.own)
        one, other = (component.fit(evidence.own, evidence.halves, evidence.whole) for _ in range(2))
        assert_array_equal(_numbers(evidence.own), before)
        check(one.shares == other.shares, f"shares are {one.shares}, then {other.shares}")
        assert_array_equal(_numbers(one), _numbers(other))

    def _case(self, seed: int, *, differs: bool) -> tuple[Component[Any], Evidence]:
        rows, common, summary = make_common()
        common = self.constrain(common)
        own = OwnModel.start(make_site(rows, seed, differs=differs), common)
        return self.component(common, summary), self.collect(own)


def _numbers(own: OwnModel) -> FloatArray:
    """All numbers of a model that decide where rows go, as one vector."""
    parameters = own.current
    sizes = np.ones(parameters.n_clusters) if parameters.sizes is None else parameters.sizes
    references = [part for reference in own.rows.references for part in (reference.shift, reference.scale)]
    return np.concatenate([np.ravel(p) for p in (*parameters.centers, parameters.view_weights, sizes, *references)])
