"""`FedHKDiffusion` under masks: the server sees sums only, and finds what it finds from plain ones."""

from __future__ import annotations

from types import GenericAlias

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

import fedhk
from federations import TestEngine, published
from fedhk.datasets import make_sites
from fedhk.estimators import efkmvc
from fedhk.federation.board import entry_type
from fedhk.federation.codec import unpack
from fedhk.federation.gate import SEALED
from fedhk.federation.messages import decode
from fedhk.federation.phases import diffuse
from fedhk.federation.phases.base import phase_named
from fedhk.federation.phases.cluster_means import FinishEmbedded
from fedhk.federation.phases.diffuse import Diffuse
from fedhk.federation.phases.sum_rounds import MaskedRounds
from fedhk.federation.phases.sum_start import Groups
from fedhk.federation.sealed.messages import Reply, request_type
from fedhk.privacy.secure_sum import InputRequest, MaskReply

NAMES = ("genoa", "oslo", "pisa", "rome")
KINDS = [SEALED + phase.name for phase in (Groups, Diffuse, MaskedRounds, FinishEmbedded)]


class Stop(Exception):  # noqa: N818
    """The process ends here."""


def make_model(n_clusters=3, **parameters):
    return fedhk.FedHKDiffusion(n_clusters, random_state=0, n_init=4, secure=True, **parameters)


def fit_watched(model, sites, monkeypatch, watch=lambda *_: False):
    """Fit; the engine with all messages. Where `watch` of a site and its request is true, the answer is lost."""
    engines = []

    class Watched(TestEngine):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            engines.append(self)

        def exchange(self, requests):
            lost = [site for site, request in requests.items() if watch(site, request)]
            return {site: answer for site, answer in super().exchange(requests).items() if site not in lost}

    with monkeypatch.context() as patch:
        patch.setattr(efkmvc, "InProcessEngine", Watched)
        model.fit(sites)
    return model, engines[0]


def masks_of(payload):
    """What a request says of masks."""
    message = decode(payload)
    types = [entry_type(name) for name in published(payload)]
    asked = request_type(phase_named(message.kind.removeprefix(SEALED)))
    return unpack(message.values, message.arrays, GenericAlias(tuple, (asked, *types)))[0][0].masks


@pytest.fixture(scope="module")
def data():
    found = make_sites(4, 60, n_clusters=3, separation=6.0, shift=0, scale=0, random_state=0)
    sites = dict(zip(NAMES, found.sites.values(), strict=True))
    return sites, np.concatenate(list(found.site_labels.values()))


@pytest.fixture(scope="module")
def model(data):
    return make_model().fit(data[0])


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


def test_masks_change_nothing_but_rounding(data, monkeypatch):
    """Synthetic anchors are made of sums, which masks leave as they are."""
    sites, _ = data
    monkeypatch.setattr(diffuse, "SUM_PRECISION", "double")
    synthetic = fedhk.Diffusion(anchors="synthetic")
    model = make_model(diffusion=synthetic).fit(sites)
    plain = fedhk.FedHKDiffusion(3, random_state=0, n_init=4, calibration=None, diffusion=synthetic).fit(sites)
    assert_allclose(model.eigenvalues_, plain.eigenvalues_, atol=1e-6)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-5)
    for site in sites:
        assert_allclose(model.memberships_[site], plain.memberships_[site], atol=1e-5)
    assert_allclose(np.hstack(model.cluster_centers_), np.hstack(plain.cluster_centers_), atol=1e-5)


def test_documents_are_found_as_in_the_open():
    """Points that are drawn around means of documents are like no document: anchors must be means of rows."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(400, 0.05), size=4)
    labels = np.repeat(np.arange(4), 60)
    sites = {}
    for site, rows in enumerate(np.array_split(rng.permutation(240), 4)):
        views = [np.array([rng.multinomial(40, topics[labels[row]]) for row in rows], float) for _ in range(2)]
        sites[NAMES[site]] = views, labels[rows]
    tables, truth = {site: views for site, (views, _) in sites.items()}, np.concatenate([y for _, y in sites.values()])
    assert adjusted_rand_score(truth, pooled(make_model(4).fit(tables), tables)) > 0.95


def test_nothing_but_masked_sums_leaves_a_site(data, monkeypatch):
    _, engine = fit_watched(make_model(), data[0], monkeypatch)
    assert set(KINDS) <= set(engine.phases)
    assert {kind for kind in engine.phases if not kind.startswith(SEALED)} == {"schema", "deliver"}
    for kind, answers in zip(engine.phases, engine.received, strict=True):
        for message in map(decode, answers.values()):
            if kind.startswith(SEALED):
                assert isinstance(unpack(message.values, message.arrays, Reply), MaskReply)
            else:
                assert not message.arrays, kind


def test_anchors_and_embedding_are_sent_once(data, monkeypatch):
    _, engine = fit_watched(make_model(), data[0], monkeypatch)
    for name in ("Anchors", "Embedding"):
        sent = [site for asked in engine.sent for site, request in asked.items() if name in published(request)]
        assert sorted(sent) == list(NAMES)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_site_that_drops_out_and_comes_back_does_not_stop_the_run(kind, data, monkeypatch):
    missed = []

    def drop_out(site, request):
        message = decode(request)
        if site == "oslo" and message.kind == kind and isinstance(masks_of(request), InputRequest) and not missed:
            missed.append(message.round)
            return True
        return False

    model, _ = fit_watched(make_model(), data[0], monkeypatch, drop_out)
    assert missed
    assert any("oslo" in record["refused"] for record in model.history_)
    assert adjusted_rand_score(data[1], pooled(model, data[0])) > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_stops_goes_on_to_the_same_result(kind, data, model, tmp_path, monkeypatch):
    asked = set()

    def stop(site, request):
        message = decode(request)
        asked.add(message.round)
        if message.kind == kind and len(asked) > 6:
            raise Stop
        return False

    again = make_model(checkpoint=tmp_path)
    with pytest.raises(Stop):
        fit_watched(again, data[0], monkeypatch, stop)
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
    model = make_model().fit(sites)
    assert model.labels_["alone"].shape == (1,)
    assert adjusted_rand_score(data[1], pooled(model, NAMES)) > 0.9


def test_the_number_of_clusters_can_be_found(data):
    assert make_model("auto").fit(data[0]).n_clusters_ == 3


def test_a_calibration_that_was_given_is_taken(data):
    model = make_model(calibration=0.75).fit(data[0])
    assert (model.calibration_["shift"], model.calibration_["spread"]) == (0.75, 0.75)
    assert adjusted_rand_score(data[1], pooled(model, NAMES)) > 0.9
