"""Audits must pass what is right and catch what is wrong: each mutant below is a way to break the bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhk.data.scaling import StandardScaling
from fedhk.evaluation.audit import audit_release, separation, spending
from fedhk.evaluation.audit_worlds import worst_worlds
from fedhk.federation.sealed import noise as sealed_noise
from fedhk.federation.site import Site
from fedhk.model.descent import improve
from fedhk.model.preparation import references_from_moments, site_moments
from fedhk.model.rows import Rows
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.accounting import delta_of, epsilon_of

# the round alone spends epsilon = 1
PUBLIC = spending(DifferentialPrivacy(1.0, 1e-5, bounds=(-1, 1)))
PRIVATE = DifferentialPrivacy(1.0, 1e-5, bounds="private", rounds=1)

# Few releases, so that tests are quick; a confidence with which a right release fails once in a million runs.
CONFIDENCE = 0.998


class TestRelease:
    @pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
    def test_the_real_release_is_within_its_budget(self, neighbours):
        found = audit_release(replace(PUBLIC, neighbours=neighbours), releases=600, confidence=CONFIDENCE)
        assert found.stated == pytest.approx(1.0, rel=1e-6)
        assert found.epsilon <= found.stated
        assert found.epsilon_any_noise <= found.stated
        assert found.holds
        assert "consistent" in found.verdict

    def test_a_whole_run_states_its_whole_budget(self):
        phases = ["round", "cells", "ranges", "directions", "means", "lengths", "spreads"]
        found = audit_release(PRIVATE, phases, releases=100)
        assert found.stated == pytest.approx(1.0, rel=1e-6)
        assert found.phases == ("ranges", "means", "lengths", "spreads", "directions", "cells", "round")

    @pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
    @pytest.mark.parametrize(
        ("phase", "least"),
        [("round", 0.95)]
        + [(phase, 0.999) for phase in ("ranges", "means", "lengths", "spreads", "directions", "cells")],
    )
    def test_the_data_sets_are_as_far_apart_as_the_bound_allows(self, phase, least, neighbours):
        privacy = replace(PRIVATE, neighbours=neighbours)
        share = worst_worlds(privacy, [phase]).distance * privacy.multiplier(phase, 1)
        assert least < share <= 1

    def test_scores_differ_by_what_is_said(self):
        worlds = worst_worlds(replace(PUBLIC, epsilon=50.0), ["round"])
        scores = np.array([[worlds.release(world) for world in (0, 1)] for _ in range(150)])
        # a log-likelihood ratio of Gaussians at distance mu differs by mu^2 between worlds, and has variance mu^2
        assert np.diff(scores.mean(axis=0))[0] == pytest.approx(-(worlds.distance**2), rel=0.1)
        assert scores.std(axis=0) == pytest.approx([worlds.distance] * 2, rel=0.2)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"phases": ["rounds"]}, "phases"),
            ({"phases": "round"}, "phases"),
            ({"phases": []}, "phases"),
            ({"phases": ["round", "round"]}, "each once"),
            ({"phases": ["ranges"]}, "bounds='private'"),
            ({"releases": 50}, "releases"),
            ({"confidence": 1.0}, "confidence"),
        ],
    )
    def test_bad_input(self, change, reason):
        with pytest.raises(ValueError, match=reason):
            audit_release(PUBLIC, **change)


class TestMutants:
    """Every one is caught by what is told, and those that let a row do too much also by how far the row moves it."""

    def broken(self, *, moves, releases=600):
        found = audit_release(PUBLIC, releases=releases, confidence=CONFIDENCE)
        assert found.epsilon > found.stated
        assert not found.holds
        assert found.verdict.startswith("BROKEN")
        assert (found.distance > 2) == moves

    def test_noise_ten_times_too_small(self, monkeypatch):
        real = sealed_noise.discrete_gaussian
        monkeypatch.setattr(sealed_noise, "discrete_gaussian", lambda sigma, size: real(sigma / 10, size))
        self.broken(moves=False)

    def test_scales_from_own_rows(self, monkeypatch):
        def from_own_rows(rows):
            moments = site_moments(rows.views, rows.widths, unit_rows=False)
            return references_from_moments(moments, rows.views.names, StandardScaling(), "uniform")

        self.with_references(monkeypatch, from_own_rows, releases=900)

    def test_coefficients_from_own_rows(self, monkeypatch):
        def from_own_rows(rows):
            pairs = zip(rows.references, rows.views.tables, strict=True)
            return tuple(
                replace(r, heat_coef="minmax", low=table.min(axis=0), span=np.ptp(table, axis=0) + 1e-9)
                for r, table in pairs
            )

        self.with_references(monkeypatch, from_own_rows)

    def with_references(self, monkeypatch, make, **options):
        real = Site.rows

        def own(site):
            rows = real(site)
            # a site counts its numbers without its rows first
            return Rows(rows.views, make(rows)) if rows.n_rows else rows

        monkeypatch.setattr(Site, "rows", own)
        self.broken(moves=True, **options)

    def test_two_passes(self, monkeypatch):
        real = Site.collect

        def twice(site, parameters):
            return real(site, improve(parameters, real(site, parameters), learn_weights=False))

        monkeypatch.setattr(Site, "collect", twice)
        self.broken(moves=True)

    def test_view_weights_from_own_rows(self, monkeypatch):
        real = Site.collect

        def own_weights(site, parameters):
            better = improve(parameters, real(site, parameters), learn_weights=True)
            return real(site, replace(parameters, view_weights=better.view_weights))

        monkeypatch.setattr(Site, "collect", own_weights)
        self.broken(moves=True, releases=900)


class TestBounds:
    @pytest.mark.parametrize("mu", [0.0, 0.25, 1.0, 3.0])
    def test_bounds_are_below_the_truth_and_not_far(self, mu):
        generator = np.random.default_rng(0)
        found = [
            separation(generator.normal(mu, size=2000), generator.normal(size=2000), 1e-5, 0.95) for _ in range(200)
        ]
        shown_mu, shown_epsilon = np.transpose(found)
        assert (shown_mu > mu).mean() <= 0.05
        assert (shown_epsilon > epsilon_of(1e-5, mu)).mean() <= 0.05
        assert shown_mu.mean() > mu - (0.3 if mu < 3 else 0.8)

    def test_epsilon_for_any_noise_holds_for_noise_that_is_not_gaussian(self):
        # true answers with probability 3/4: epsilon is log 3, whatever delta
        generator = np.random.default_rng(0)
        scores = [(generator.random(20_000) < p).astype(float) + 1e-3 * generator.random(20_000) for p in (0.75, 0.25)]
        _, epsilon = separation(*scores, 1e-9, 0.95)
        assert np.log(3) - 0.15 < epsilon < np.log(3)

    def test_delta_of_the_shown_mu_is_delta(self):
        assert delta_of(epsilon_of(1e-5, 0.3), 0.3) == pytest.approx(1e-5, rel=1e-6)
