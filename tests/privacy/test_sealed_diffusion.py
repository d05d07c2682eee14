"""`FedHKDiffusion` under masks: the server sees sums only, and finds what it finds from plain ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

import fedhk
from fedhk.datasets import make_sites
from fedhk.federation.diffusion import phase
from fedhk.federation.diffusion import sealed as module
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.starts.candidates import candidate_rows, site_candidates
from sealed_runs import spied_fit, step_of

NAMES = ("genoa", "oslo", "pisa", "rome")


class Stop(Exception):  # noqa: N818
    """The process ends here."""


def fitted(sites, n_clusters=3, **parameters):
    return fedhk.FedHKDiffusion(n_clusters, random_state=0, n_init=4, secure=True, **parameters).fit(sites)


@pytest.fixture(scope="module")
def data():
    found = make_sites(4, 60, n_clusters=3, separation=6.0, shift=0, scale=0, random_state=0)
    sites = dict(zip(NAMES, found.sites.values(), strict=True))
    return sites, np.concatenate(list(found.site_labels.values()))


@pytest.fixture(scope="module")
def model(data):
    return fitted(data[0])


def pooled(model, sites):
    return np.concatenate([model.labels_[site] for site in sites])


def test_it_finds_the_clusters_and_says_what_they_look_like(data, model):
    sites, truth = data
    labels = pooled(model, sites)
    assert adjusted_rand_score(truth, labels) > 0.95
    assert_allclose(model.cluster_sizes_, np.bincount(labels), atol=3)
    for view, centers in enumerate(model.cluster_centers_):
        rows = np.vstack([sites[site][view] for site in sites])
        assert_allclose(centers, [rows[labels == k].mean(axis=0) for k in range(3)], atol=0.3)


def test_with_the_same_anchors_masks_change_nothing(data, monkeypatch):
    sites, _ = data
    views = fedhk.data.views.check_views([np.vstack([sites[s][view] for s in sites]) for view in range(2)])
    rows = Rows(views, prepare(views, "standard", "uniform", None))
    found = site_candidates(rows, 80, np.random.RandomState(0))
    begin = phase.with_anchors

    def same(plan, state, candidates):
        return begin(plan, state, candidate_rows([found], state.references, state.names))

    for place in (phase, module):
        monkeypatch.setattr(place, "with_anchors", same)
    masked = fitted(sites)
    plain = fedhk.FedHKDiffusion(3, random_state=0, n_init=4, calibration=None).fit(sites)
    assert_allclose(masked.eigenvalues_, plain.eigenvalues_, atol=1e-8)
    assert masked.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    for site in sites:
        assert_allclose(masked.memberships_[site], plain.memberships_[site], atol=1e-6)
    assert_allclose(np.hstack(masked.cluster_centers_), np.hstack(plain.cluster_centers_), atol=1e-6)


def test_nothing_but_masked_sums_leaves_a_site(data, monkeypatch):
    _, spy = spied_fit(monkeypatch, fedhk.FedHKDiffusion(3, random_state=0, n_init=4, secure=True), data[0])
    kinds = {message.kind for _, message in spy.replies}
    assert {"anchors", "diffuse", "round", "finish"} <= kinds
    for _, message in spy.replies:
        if message.kind != "describe":
            assert all(name.startswith("mask.") for name in (*message.arrays, *message.values))


def test_anchors_and_embedding_are_told_once(data, monkeypatch):
    _, spy = spied_fit(monkeypatch, fedhk.FedHKDiffusion(3, random_state=0, n_init=4, secure=True), data[0])
    for name in ("anchors", "projection"):
        told = [site for site, message in spy.requests if any(part.startswith(name) for part in message.arrays)]
        assert sorted(told) == list(NAMES)


@pytest.mark.parametrize("kind", ["anchors", "diffuse", "round"])
def test_a_site_that_drops_out_and_comes_back_does_not_stop_the_run(kind, data, monkeypatch):
    missed = []

    def down(site, request):
        if site == "oslo" and request.kind == kind and step_of(request) == "input" and len(missed) < 1:
            missed.append(request.round)
            return True
        return False

    model = fedhk.FedHKDiffusion(3, random_state=0, n_init=4, secure=True)
    model, _ = spied_fit(monkeypatch, model, data[0], down=down)
    assert missed
    assert any("oslo" in record["refused"] for record in model.history_)
    assert adjusted_rand_score(data[1], pooled(model, data[0])) > 0.95


@pytest.mark.parametrize("kind", ["anchors", "diffuse", "round", "finish"])
def test_a_run_that_stops_goes_on_to_the_same_result(kind, data, model, tmp_path, monkeypatch):
    asked = []

    def tamper(_, request, answer):
        asked.append(request.round)
        if request.kind == kind and len(set(asked)) > 6:
            raise Stop
        return answer

    again = fedhk.FedHKDiffusion(3, random_state=0, n_init=4, secure=True, checkpoint=tmp_path)
    with pytest.raises(Stop):
        spied_fit(monkeypatch, again, data[0], tamper=tamper)
    again.fit(data[0], resume=True)
    for site in NAMES:
        assert_allclose(again.memberships_[site], model.memberships_[site], atol=1e-9)
    assert again.objective_ == pytest.approx(model.objective_, rel=1e-9)


def test_sites_of_one_row_and_without_a_view_take_part(data):
    sites = dict(data[0])
    sites["alone"] = [view[:1] for view in sites["oslo"]]
    sites["pisa"] = {"view_0": sites["pisa"][0]}
    sites = {
        site: views if isinstance(views, dict) else {f"view_{h}": v for h, v in enumerate(views)}
        for site, views in sites.items()
    }
    model = fitted(sites)
    assert model.labels_["alone"].shape == (1,)
    assert adjusted_rand_score(data[1], pooled(model, NAMES)) > 0.9


def test_the_number_of_clusters_can_be_found(data):
    assert fitted(data[0], "auto").n_clusters_ == 3


def test_a_site_refuses_points_that_are_none(data, monkeypatch):
    def tell(self, plan, state):
        arrays, values = original(self, plan, state)
        return {name: array[:, :1] for name, array in arrays.items()}, values

    original = module.Anchors.tell
    monkeypatch.setattr(module.Anchors, "tell", tell)
    with pytest.raises(Exception, match="points must be finite numbers of"):
        fitted(data[0])
