"""With noise, a basis comes from sums with noise, costs less than full sums, and is believed by no site."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC, datasets
from fedhk.data.views import check_views
from fedhk.errors import MessageError
from fedhk.federation.entries import UNSOUND_BASIS, Basis
from fedhk.federation.phases.base import Nothing
from fedhk.federation.phases.sum_basis import BasisMoments, Sketch, SketchRequest, Span, SpanRequest
from fedhk.federation.phases.sum_rounds import UNBOUNDED, NoisyMoves, shrink_across
from fedhk.federation.table import Table
from fedhk.privacy.mechanism import DifferentialPrivacy
from sealed_runs import (
    LoneSite,
    make_parameters,
    moves_request,
    plain_reference,
    read_request,
    scales,
    seeded_noise,
    spied_fit,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:With epsilon"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

PRIVACY = DifferentialPrivacy(8.0, 1e-3, (-1, 1), rounds=1)


def lone_site(n_rows=20, widths=(4, 3)):
    rng = np.random.default_rng(0)
    tables = {f"view_{v}": rng.normal(size=(n_rows, w)) for v, w in enumerate(widths)}
    return LoneSite(check_views(tables, min_rows=0), PRIVACY)


def units(widths=(4, 3)):
    return scales([plain_reference(width) for width in widths])


def basis_of(*tables, precision="double"):
    return Basis(tuple(Table.of(np.asarray(rows, float), precision) for rows in tables))


def request_of(widths=(2, 2), *, in_features=False):
    centers = [np.zeros((2, width)) for width in widths]
    return moves_request(make_parameters(centers), "replace", in_features=in_features)


GOOD = np.eye(4)[:2], np.eye(3)[:2]


# -------------------------------------------------------------------------------------------------------- hostile bases


HOSTILE = {
    "not a number": basis_of([[np.nan, 0, 0, 0], [0, 1, 0, 0]], GOOD[1]),
    "infinite": basis_of([[np.inf, 0, 0, 0], [0, 1, 0, 0]], GOOD[1]),
    "huge": basis_of(1e300 * GOOD[0], GOOD[1]),
    "long": basis_of(1e6 * GOOD[0], GOOD[1]),
    "tiny": basis_of(1e-30 * GOOD[0], GOOD[1]),
    "no length": basis_of(0 * GOOD[0], GOOD[1]),
    "the same twice": basis_of(GOOD[0][[0, 0]], GOOD[1]),
    "more than there are": basis_of(np.ones((5, 4)) + np.eye(5, 4), GOOD[1]),
    "of a view too few": basis_of(GOOD[0]),
    "of a view too many": basis_of(*GOOD, GOOD[1]),
    "of another width": basis_of(np.eye(5)[:2], GOOD[1]),
    "missing bytes": Basis((Table(np.full((2, 4), -128, np.int8), np.ones(2)), Table.of(GOOD[1], "double"))),
    "one number": Basis((Table(np.ones(4), np.zeros(0)), Table.of(GOOD[1], "double"))),
}


@pytest.mark.parametrize("in_features", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_basis_that_is_none_is_refused_before_anything_is_charged_whatever_the_rows(name, in_features):
    for n_rows in (0, 20):
        site = lone_site(n_rows)
        with pytest.raises(MessageError) as caught:
            site.ask(NoisyMoves, request_of(in_features=in_features), *units(), HOSTILE[name])
        assert caught.value.reason == UNSOUND_BASIS
        assert not list(site.ledger.releases())


def test_parameters_of_another_basis_are_refused():
    site = lone_site()
    with pytest.raises(MessageError) as caught:
        site.ask(NoisyMoves, request_of((3, 2)), *units(), basis_of(*GOOD))
    assert caught.value.reason == UNBOUNDED
    assert not list(site.ledger.releases())


def test_a_crooked_basis_is_made_orthonormal_by_the_site():
    crooked = basis_of([[3.0, 0, 0, 0], [30.0, 0.5, 0, 0]], GOOD[1])
    for columns, width in zip(crooked.columns_of((4, 3)), (4, 3), strict=True):
        assert_allclose(columns.T @ columns, np.eye(2), atol=1e-12)
        assert len(columns) == width
    for in_features, width in ((False, 2 + 2), (True, 4 + 3)):
        sent = lone_site().released(NoisyMoves, request_of(in_features=in_features), *units(), crooked)
        assert sent.shape == (2 * width + 2 * 2 + 2,)


@pytest.mark.parametrize(
    ("phase", "request_"),
    [
        (Sketch, SketchRequest(0, 64)),
        (Span, SpanRequest(0, 64, np.zeros((7, 2)))),
        (BasisMoments, Nothing()),
    ],
)
def test_sums_for_masks_alone_never_leave_with_noise(phase, request_):
    site = lone_site()
    with pytest.raises(MessageError, match="no stated sensitivity"):
        site.ask(phase, request_, *units(), basis_of(*GOOD))
    assert not list(site.ledger.releases())


# ----------------------------------------------------------------------------------------------------- where it is from


def test_a_basis_needs_no_more_budget_than_full_sums(monkeypatch):
    seeded_noise(monkeypatch)
    data = datasets.make_sites(4, 60, n_clusters=2, n_features=(20, 20), random_state=0)
    budget = DifferentialPrivacy(4.0, 1e-3, (-12, 12), rounds=3)
    model = EFKMVC(2, protocol="cores", privacy=budget, random_state=0).fit(data.sites)
    assert model.privacy_spent_[0] == pytest.approx(4.0, rel=1e-3)
    phases = [release["phase"] for release in model.releases_["site-00"]]
    assert phases == ["means", "lengths", "spreads", "directions", "cells", *["noisy moves"] * 3]


EASY = {"n_samples": 1000, "n_clusters": 3, "n_features": (100, 100), "separation": 8.0}
HARD = {"n_samples": 3000, "n_clusters": 4, "n_features": (150, 150), "separation": 5.0}


@pytest.mark.parametrize(("sizes", "epsilon", "gain"), [(EASY, 0.8, 0.0), (HARD, 0.25, 0.2)])
def test_noise_costs_less_in_a_basis_than_in_all_features(sizes, epsilon, gain, monkeypatch):
    seeded_noise(monkeypatch)
    data = datasets.make_sites(5, shift=0, scale=0, class_mix=None, random_state=0, **sizes)
    truth = np.concatenate([data.site_labels[site] for site in sorted(data.sites)])
    found = {}
    for protocol in ("statistics", "cores"):
        budget = DifferentialPrivacy(epsilon, 1e-6, (-6, 6), neighbours="add-remove")
        model = EFKMVC(sizes["n_clusters"], protocol=protocol, privacy=budget, secure=True, n_init=2, random_state=0)
        labels = model.fit(data.sites).labels_
        found[protocol] = adjusted_rand_score(truth, np.concatenate([labels[site] for site in sorted(data.sites)]))
    assert found["cores"] >= found["statistics"] + gain


def test_all_rounds_but_the_last_have_pulls_in_all_features_and_widen_the_basis(monkeypatch):
    seeded_noise(monkeypatch)
    data = datasets.make_sites(4, 200, n_clusters=3, n_features=(40, 30), shift=0, scale=0, random_state=0)
    budget = DifferentialPrivacy(50.0, 1e-4, (-12, 12), rounds=4)
    model = EFKMVC(3, protocol="cores", privacy=budget, secure=True, random_state=0)
    _, spy = spied_fit(monkeypatch, model, data.sites)
    sent = [message for site, message in spy.requests if site == "site-00" and message.kind == "sealed.noisy moves"]
    rounds = [request for _, request in map(read_request, sent) if request is not None]
    assert [request.in_features for request in rounds] == [True, True, True, False]
    widths = [request.model.centers.values.shape[1] for request in rounds]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1] <= 2 * (3 + 3 * 3)


def test_what_noise_explains_is_taken_off_across_the_columns_and_nothing_along_them():
    rng = np.random.default_rng(0)
    columns, truth, noise = np.eye(400)[:, :2], np.zeros((3, 400)), np.array([0.1, 0.1, 0.0])
    truth[:, :4] = [[3, 1, 2, 0], [1, 2, 0, 0], [1, 0, 2, 1]]
    noisy = truth + noise[:, None] * rng.normal(size=truth.shape)
    found = shrink_across(noisy, columns, noise)
    assert_allclose(found[:, :2], noisy[:, :2])
    assert_allclose(found[2], truth[2])  # no noise: nothing is shrunk
    apart, before = (np.square(part - truth).sum(axis=1) for part in (found, noisy))
    assert np.all(apart[:2] < 0.6 * before[:2])
    assert np.linalg.norm(found[1, 2:]) < 0.1 * np.linalg.norm(noisy[1, 2:]) + 0.5  # there is nothing but noise
