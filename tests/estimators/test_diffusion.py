"""`FedHKDiffusion`: rows of all sites embedded by heat diffusion, and clustered there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import fedhk
from embedded_runs import ONE, make_phases, map_of
from federations import parameters_of, published, resumed_after, run_sites
from fedhk.data.clients import check_clients
from fedhk.datasets import make_sites
from fedhk.errors import CheckpointError, DataError, QuorumError
from fedhk.federation.entries import Result
from fedhk.federation.phases import diffuse
from fedhk.federation.phases.anchors import Anchors, Groups, StandIns, TieRows
from fedhk.federation.phases.cluster_means import ClusterMeans
from fedhk.model.passes import Passes
from fedhk.privacy import DifferentialPrivacy

NAMES = ("genoa", "oslo", "pisa", "rome")

BUDGET = DifferentialPrivacy(8.0, 1e-5, (-9, 9))
LARGE = replace(BUDGET, epsilon=500.0)


def pooled(model, of, sites):
    return np.concatenate([getattr(model, of)[site] for site in sites])


def fitted(sites, n_clusters=3, **parameters):
    return fedhk.FedHKDiffusion(n_clusters, random_state=0, **parameters).fit(sites)


@pytest.fixture(scope="module")
def data():
    found = make_sites(4, 70, n_clusters=3, shift=1.5, random_state=0)
    sites = dict(zip(NAMES, found.sites.values(), strict=True))
    return sites, np.concatenate(list(found.site_labels.values()))


@pytest.fixture(scope="module")
def model(data):
    return fitted(data[0], calibration=0.75)


def moons(n=400, seed=0):
    """Two half moons at three sites, the second view turned and in other units."""
    rows, labels = make_moons(n, noise=0.05, random_state=seed)
    turned = rows @ [[3.0, 4.0], [-4.0, 3.0]] + np.random.default_rng(seed).normal(scale=0.2, size=(n, 2))
    owner = np.arange(n) % 3
    sites = {f"site-{s}": [rows[owner == s], turned[owner == s]] for s in range(3)}
    return sites, np.concatenate([labels[owner == s] for s in range(3)])


@pytest.fixture(scope="module")
def run():
    sites, truth = moons(6000)
    return fitted(sites, 2, privacy=BUDGET), sites, truth


class TestNoise:
    """Clusters are put together from parts, which are private, by a private count of the rows between them."""

    def test_clusters_need_not_be_round(self, run):
        model, sites, truth = run
        # noise is drawn anew in every run, and one in about forty puts a part of a moon to the other
        models = [model, *(fitted(sites, 2, privacy=BUDGET) for _ in range(2))]
        assert np.median([adjusted_rand_score(truth, pooled(one, "labels_", sites)) for one in models]) > 0.9
        round_ones = fedhk.EFKMVC(2, privacy=BUDGET, random_state=0).fit(sites)
        assert adjusted_rand_score(truth, pooled(round_ones, "labels_", sites)) < 0.7

    def test_the_budget_is_spent_and_no_more(self, run):
        model = run[0]
        assert model.privacy_spent_ == (pytest.approx(8.0, rel=1e-4), 1e-5)
        assert model.privacy_spent_[0] <= 8.0
        assert [release["phase"] for release in model.releases_["site-0"]].count("ties") == 3

    def test_rows_are_placed_by_the_model_that_came_out(self, run):
        model, sites, _ = run
        for site, views in sites.items():
            assert_array_equal(model.client_models_[site].predict(views), model.labels_[site])
        assert model.cluster_sizes_.sum() == pytest.approx(6000, rel=0.1)
        assert [centers.shape for centers in model.cluster_centers_] == [(2, 2), (2, 2)]

    def test_a_model_is_saved_and_loaded(self, run, tmp_path):
        model, sites, _ = run
        model.save(tmp_path / "model.safetensors")
        again = fedhk.load(tmp_path / "model.safetensors")
        assert_array_equal(again.predict(sites["site-1"]), model.predict(sites["site-1"]))

    def test_where_noise_hides_all_there_is_one_cluster(self):
        sites, _ = moons(120)
        # a noisy count of the rows decides whether a start is looked for, and so which of the two is said
        said = "Noise hides|found 1 clusters that have rows"
        with pytest.warns(UserWarning, match="expected to find"), pytest.warns(ConvergenceWarning, match=said):
            model = fitted(sites, 2, privacy=replace(BUDGET, epsilon=0.01))
        assert model.n_clusters_ == 1
        assert not pooled(model, "labels_", sites).any()


class TestInterface:
    def test_what_is_fitted_has_the_shapes_of_other_estimators(self, data, model):
        sites, truth = data
        for site, views in sites.items():
            assert model.labels_[site].shape == (len(views[0]),)
            assert_allclose(model.memberships_[site].sum(axis=1), 1.0)
            assert_array_equal(model.labels_[site], model.memberships_[site].argmax(axis=1))
        assert adjusted_rand_score(truth, pooled(model, "labels_", sites)) > 0.9
        assert [c.shape for c in model.cluster_centers_] == [(3, v.shape[1]) for v in sites["oslo"]]
        assert_allclose(model.view_weights_, 0.5)
        assert model.n_features_in_ == sum(v.shape[1] for v in sites["oslo"])
        assert len(model.history_) == model.n_iter_
        assert all(record["bytes_up"] > 0 and record["bytes_down"] > 0 for record in model.history_)
        assert model.stop_reason_
        assert model.eigenvalues_[0] == pytest.approx(1.0, abs=1e-3)  # 1 but for rows that lack a view
        assert [a.shape[1] for a in model.anchors_] == [v.shape[1] for v in sites["oslo"]]
        assert clone(model).get_params() == model.get_params()

    def test_a_training_row_is_predicted_as_it_was_labelled(self, data, model):
        for site, views in data[0].items():
            own = model.client_models_[site]
            assert_array_equal(own.predict(views), model.labels_[site])
            assert_array_equal(own.predict_proba(views), model.memberships_[site])
            assert own.transform(views).shape == (len(views[0]), 3)
            assert 0.5 < own.score(views) <= 1  # a silhouette, of clusters that are well apart

    def test_centres_and_sizes_are_of_the_rows_in_input_units(self, data):
        sites = data[0]
        model = fitted(sites, fuzzifier=1.05)  # rounds and memberships have the same
        memberships = pooled(model, "memberships_", sites)
        assert_allclose(model.cluster_sizes_, memberships.sum(axis=0))
        for view, centers in enumerate(model.cluster_centers_):
            rows = np.concatenate([views[view] for views in sites.values()])
            assert_allclose(centers, memberships.T @ rows / memberships.sum(axis=0)[:, None], rtol=1e-9)

    @pytest.mark.parametrize(("fuzzifier", "power"), [("auto", 2.0), (1.25, 4.0)])
    def test_memberships_follow_from_distances(self, data, fuzzifier, power):
        model = fitted(data[0], fuzzifier=fuzzifier)
        for site, views in data[0].items():
            near = model.client_models_[site].transform(views) ** -power
            assert_allclose(model.memberships_[site], near / near.sum(axis=1, keepdims=True), rtol=1e-6, atol=1e-12)

    def test_how_certain_rows_are_does_not_move_clusters(self, data, model):
        crisp = replace(model._model.parameters, fuzzifier=1.01)
        for site, views in data[0].items():
            own = model.client_models_[site]
            with Passes(own._rows(views), 3) as scan:
                assert_array_equal(scan.assign(crisp)[1], model.labels_[site])

    def test_files_hold_the_embedding(self, data, model, tmp_path):
        model.save(tmp_path / "model.safetensors")
        model.client_models_["rome"].save(tmp_path / "rome.safetensors")
        again, own = fedhk.load(tmp_path / "model.safetensors"), fedhk.load(tmp_path / "rome.safetensors")
        assert isinstance(again, fedhk.FedHKDiffusion)
        rows = data[0]["rome"]
        assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
        assert_array_equal(own.predict_proba(rows), model.memberships_["rome"])
        assert_array_equal(np.hstack(again.cluster_centers_), np.hstack(model.cluster_centers_))
        assert_array_equal(again.cluster_sizes_, model.cluster_sizes_)
        assert_array_equal(again.eigenvalues_, model.eigenvalues_)
        assert again.calibration_ == model.calibration_

    def test_options_of_the_diffusion_are_used_and_kept(self, data, tmp_path):
        one = fedhk.Diffusion(n_anchors=20, neighbours=4)
        model = fitted(data[0], calibration=None, diffusion=one)
        assert len(model.anchors_[0]) == 20
        assert model._model.diffusion.graph.neighbours == 4
        model.save(tmp_path / "model.safetensors")
        assert fedhk.load(tmp_path / "model.safetensors").diffusion == model.diffusion

    def test_a_sites_model_reads_rows_in_its_own_frame(self, data, model):
        rows = data[0]["rome"]
        own, common = (np.hstack(m.cluster_centers_) for m in (model.client_models_["rome"], model))
        assert np.abs(own - common).max() > 0.1
        plain = fitted(data[0], calibration=None)
        assert plain.calibration_ is None
        assert_array_equal(np.hstack(plain.client_models_["rome"].cluster_centers_), np.hstack(plain.cluster_centers_))
        assert_array_equal(plain.predict(rows), plain.labels_["rome"])

    def test_clusters_that_are_not_round_are_found(self):
        sites, truth = moons()
        assert adjusted_rand_score(truth, pooled(fitted(sites, 2), "labels_", sites)) > 0.95
        assert adjusted_rand_score(truth, pooled(fedhk.EFKMVC(2, random_state=0).fit(sites), "labels_", sites)) < 0.7

    def test_clusters_far_apart_are_all_found(self):
        """Heat leaves none of them: their eigenvalues are equal, and none of the copies may be missed."""
        for seed in range(3):
            rng = np.random.default_rng(seed)
            truth = np.tile(np.arange(10), 90)
            views = [6.0 * rng.normal(size=(10, d))[truth] + rng.normal(size=(900, d)) for d in (8, 6)]
            sites = {f"site-{s}": [view[s::3] for view in views] for s in range(3)}
            model = fitted(sites, 10, calibration=None)
            truth = np.concatenate([truth[s::3] for s in range(3)])
            assert adjusted_rand_score(truth, pooled(model, "labels_", sites)) == 1.0

    def test_the_number_of_clusters_is_found_before_rows_are_embedded(self):
        data = make_sites(3, 120, n_clusters=4, separation=8.0, random_state=1)
        model = fitted(data.sites, "auto")
        assert model.n_clusters_ == 4
        assert [len(c) for c in model.cluster_centers_] == [4, 4]
        assert model.client_models_["site-00"].n_clusters_ == 4

    def test_evaluation_measures_all_kinds_of_models(self, data):
        records = fedhk.evaluate(fedhk.FedHKDiffusion(3, calibration=0.75, n_init=2, random_state=0), data[0])
        assert {record["model"] for record in records} == {"global", "personal", "alone"}
        assert all(np.isfinite(record["objective"]) for record in records)

    def test_other_protocols_and_gradient_steps_work_on_embedded_rows(self, data):
        half = fedhk.Participation(0.5)  # other sites in each round, so that no objective settles
        model = fitted(data[0], protocol="centers", personalization=0.5, participation=half, max_rounds=6, tol=0)
        for site, views in data[0].items():
            assert_array_equal(model.client_models_[site].predict(views), model.labels_[site])


class TestFederation:
    @pytest.mark.parametrize(
        "diffusion",
        [ONE, fedhk.Diffusion(), fedhk.Diffusion(anchors="synthetic")],
        ids=["rows alone", "default", "synthetic"],
    )
    def test_any_split_gives_what_pooled_rows_give(self, diffusion, monkeypatch):
        """Through real runs: anchors are made of what sites send, so those of the first run are kept for the others."""
        sites, _ = moons(240)
        begin, first_anchors = TieRows.begin, []

        def keep_anchors(phase, board):
            first_anchors.append(begin(phase, board))
            return board.put(*(first_anchors[0].get(kind) for kind in (Anchors, Groups, StandIns)))

        monkeypatch.setattr(TieRows, "begin", keep_anchors)
        monkeypatch.setattr(diffuse, "SUM_PRECISION", "double")
        phases = make_phases(2, max_rounds=4, diffusion=diffusion)
        views = [np.concatenate([part[view] for part in sites.values()]) for view in range(2)]
        owner = np.random.default_rng(0).integers(7, size=len(views[0]))
        splits = [sites, {f"part-{s}": [view[owner == s] for view in views] for s in range(7)}, {"all": views}]
        first, *others = [run_sites(phases, split)[0] for split in splits]
        for run in others:
            assert_allclose(map_of(run.board).values, map_of(first.board).values, atol=1e-8)
            assert_allclose(parameters_of(run).centers[0], parameters_of(first).centers[0], atol=1e-8)
            means, expected = (np.hstack(r.board.get(ClusterMeans).means) for r in (run, first))
            assert_allclose(means, expected, atol=1e-8)
            assert run.board.get(Result).objective == pytest.approx(first.board.get(Result).objective, abs=1e-8)

    def test_the_order_of_sites_changes_no_bit(self, data, model):
        turned = fitted(dict(reversed(data[0].items())), calibration=0.75)
        assert_array_equal(np.hstack(turned.cluster_centers_), np.hstack(model.cluster_centers_))
        assert all(np.array_equal(turned.labels_[site], model.labels_[site]) for site in NAMES)

    @pytest.mark.parametrize("last", [1, 2, 3, 4, 5, 6])
    def test_resuming_is_as_if_nothing_had_happened(self, last, data, model, tmp_path, monkeypatch):
        begun = fedhk.FedHKDiffusion(3, calibration=0.75, random_state=0, checkpoint=tmp_path / "run")
        again = resumed_after(last, begun, data[0], monkeypatch)
        assert_array_equal(np.hstack(again.cluster_centers_), np.hstack(model.cluster_centers_))
        assert [r["objective"] for r in again.history_] == [r["objective"] for r in model.history_]
        assert all(np.array_equal(again.memberships_[site], model.memberships_[site]) for site in NAMES)

    def test_a_checkpoint_of_another_diffusion_is_refused(self, data, tmp_path, monkeypatch):
        begun = fedhk.FedHKDiffusion(3, random_state=0, checkpoint=tmp_path / "run")
        resumed_after(3, begun, data[0], monkeypatch)
        with pytest.raises(CheckpointError, match="diffusion"):
            clone(begun).set_params(diffusion=fedhk.Diffusion(neighbours=5)).fit(data[0], resume=True)

    def test_a_site_that_comes_late_gets_all_it_needs(self, data):
        kinds = []

        def present(exchange):
            return NAMES if "round" in kinds else NAMES[:3]

        def watch(site, kind, exchange, answer):
            kinds.append(kind)
            return answer

        run, engine = run_sites(make_phases(max_rounds=6), data[0], present=present, tamper=watch)
        assert run.history[-1]["clients"] == 4
        assert not any(record["refused"] for record in run.history)
        joined = next(requests for requests in engine.sent if "rome" in requests)
        assert published(joined["rome"]) == ["Schema", "References", "Anchors", "Embedding"]

    def test_products_of_different_sites_are_not_mixed(self, data):
        """A site that is away for one exchange of the diffusion: what was asked before is asked again."""
        phases = make_phases(options={"tol": 1e-6, "max_exchanges": 6})
        asked = []

        def lose_second(site, kind, exchange, answer):
            if kind == "diffuse" and exchange not in asked:
                asked.append(exchange)
            away = kind == "diffuse" and site == "rome" and len(asked) == 2
            return None if away else answer

        run, engine = run_sites(phases, data[0], tamper=lose_second)
        whole, _ = run_sites(phases, data[0])
        assert engine.phases.count("diffuse") <= 6
        assert_allclose(map_of(run.board).values, map_of(whole.board).values, atol=1e-3)

    def test_too_few_sites_stop_the_diffusion(self, data):
        def silent(*asked):
            return None if asked[1] == "diffuse" else asked[-1]

        with pytest.raises(QuorumError, match="diffuse"):
            run_sites(make_phases(), data[0], tamper=silent)


class TestMissing:
    def test_a_site_without_a_view_and_rows_without_one(self, data):
        sites, truth = {site: list(views) for site, views in data[0].items()}, data[1]
        sites["oslo"][1] = None
        gaps = sites["rome"][0].copy()
        gaps[:20] = np.nan
        gaps[20:30, 0] = np.nan
        sites["rome"][0] = gaps
        model = fitted(sites, calibration=0.75, fuzzifier=1.05)
        assert adjusted_rand_score(truth, pooled(model, "labels_", sites)) > 0.7
        for site, views in sites.items():
            assert_array_equal(model.client_models_[site].predict(views), model.labels_[site])
        memberships, seen = pooled(model, "memberships_", sites), []
        for site, views in sites.items():
            seen.append(np.full((len(model.labels_[site]), model.cluster_centers_[0].shape[1]), np.nan))
            seen[-1][:] = views[0]
        rows = np.concatenate(seen)
        has = ~np.isnan(rows)
        means = memberships.T @ np.where(has, rows, 0.0) / (memberships.T @ has)
        assert_allclose(model.cluster_centers_[0], means, rtol=1e-9)

    def test_a_row_without_any_value_belongs_to_all_clusters_alike(self, model):
        empty = [np.full((1, c.shape[1]), np.nan) for c in model.cluster_centers_]
        assert_allclose(model.predict_proba(empty), 1 / 3)


class TestInput:
    def test_small_sites_copies_and_constants_take_part(self, data):
        sites = {site: list(views) for site, views in data[0].items()}
        sites["two"] = [view[:2] for view in sites["rome"]]
        sites["one"] = [view[:1] for view in sites["rome"]]
        sites["copies"] = [np.repeat(view[:1], 30, axis=0) for view in sites["rome"]]
        sites = {site: [np.column_stack([a, np.ones(len(a))]), b] for site, (a, b) in sites.items()}
        model = fitted(sites, calibration=None)
        assert len(set(model.labels_["copies"])) == 1
        assert model.labels_["one"].shape == (1,)
        assert_array_equal(model.cluster_centers_[0][:, -1], 1.0)
        assert check_clients(sites).keys() == model.labels_.keys()

    def test_fewer_rows_than_anchors(self):
        data = make_sites(2, 12, n_clusters=2, separation=8.0, random_state=0)
        model = fitted(data.sites, 2, diffusion=ONE)
        assert len(model.anchors_[0]) <= 12
        for site, views in data.sites.items():
            assert_array_equal(model.client_models_[site].predict(views), model.labels_[site])

    def test_one_cluster(self, data):
        model = fitted(data[0], 1)
        assert set(pooled(model, "labels_", data[0])) == {0}

    def test_auto_on_rows_that_are_all_alike(self):
        sites = {name: [np.ones((9, 2)) * (np.arange(9) % 2)[:, None]] for name in ("a", "b")}
        with pytest.warns(UserWarning, match="2 anchors instead of 6"):
            assert fitted(sites, "auto").n_clusters_ == 2

    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"n_clusters": 0}, "n_clusters"),
            ({"n_clusters": "many"}, "n_clusters"),
            ({"n_clusters": [2, 3, 4]}, "n_clusters"),
            ({"diffusion": 300}, "diffusion"),
            ({"personalization": fedhk.Personalization()}, "personalization"),
            ({"calibration": (0.5, 2.0)}, r"calibration=\(0.5, 2.0\).*numbers from 0 to 1"),
            ({"init": [np.zeros((3, 2))] * 2}, "init"),
            ({"view_weights": [1.0, 2.0]}, "view_weights"),
            ({"aggregator": "robust"}, r"aggregator='robust' does not go with FedHKDiffusion.*aggregator='sum'"),
            ({"privacy": LARGE, "n_clusters": "auto"}, "n_clusters='auto' does not go with privacy"),
            ({"privacy": LARGE, "max_rounds": 1}, "rounds=1.*at least 2"),
            ({"privacy": replace(LARGE, unit="site", epsilon=5000.0)}, "unit='site' does not go with a diffusion"),
            (
                {"privacy": LARGE, "diffusion": fedhk.Diffusion(anchors="synthetic")},
                "privacy does not go with.*anchors",
            ),
        ],
    )
    def test_errors_name_the_parameter(self, data, parameters, words):
        with pytest.raises(ValueError, match=words):
            fedhk.FedHKDiffusion(**{"n_clusters": 3, "random_state": 0} | parameters).fit(data[0])

    def test_more_clusters_than_rows_or_than_anchors_give_both_numbers(self, data):
        with pytest.raises(DataError, match=r"n_samples=280.*n_clusters=281"):
            fitted(data[0], 281)
        sites = {name: [np.repeat([[0.0], [1.0]], 20, axis=0)] for name in ("a", "b")}
        with pytest.raises(DataError, match=r"n_clusters=9.*2 different anchors"):
            fitted(sites, 9, calibration=None)

    def test_sites_of_single_rows_have_no_candidates(self):
        sites = {f"site-{s}": [np.full((1, 2), float(s))] for s in range(5)}
        with pytest.raises(DataError, match="no site has 2"):
            fitted(sites, 2)
