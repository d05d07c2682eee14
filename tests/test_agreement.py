"""Agreement of views: tables that add, adjusted mutual information, and the scaling that follows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_mutual_info_score

import fedhk
from fedhk.agreement import (
    FRAMES,
    Evidence,
    Witness,
    adjust,
    choose_frame,
    choose_options,
    choose_scalings,
    count_together,
    list_frame_witnesses,
    list_pairs,
    list_witnesses,
    share_information,
)
from fedhk.data.views import check_views
from fedhk.datasets import make_sites


def draw_labels(n_rows, n_clusters, seed):
    rng = np.random.default_rng(seed)
    first = rng.integers(n_clusters, size=n_rows)
    return first, np.where(rng.random(n_rows) < 0.4, first, rng.integers(n_clusters, size=n_rows))


def draw_text(n_rows=240, widths=(300, 250), n_clusters=4, seed=0):
    """Counts of words: documents of very different lengths about one of some topics."""
    rng = np.random.default_rng(seed)
    labels, views = rng.integers(n_clusters, size=n_rows), []
    for width in widths:
        common = rng.dirichlet(np.full(width, 0.1))
        topics = 0.5 * common + 0.5 * rng.dirichlet(np.full(width, 0.03), n_clusters)
        lengths = rng.lognormal(np.log(40), 0.7, n_rows).astype(int) + 5
        views.append(np.array([rng.multinomial(n, topics[k]) for n, k in zip(lengths, labels, strict=True)], float))
    return views, labels


def taken(model):
    return [choice["option"] for choice in model.choices_ if choice["taken"]]


# ------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(("n_rows", "n_clusters"), [(40, 3), (30, 25), (500, 6), (800, 60)])
def test_agreement_is_adjusted_mutual_information(n_rows, n_clusters):
    first, second = draw_labels(n_rows, n_clusters, seed=n_rows)
    found = adjust(*share_information(count_together(first, second, n_clusters)))
    assert_allclose(found, adjusted_mutual_info_score(first, second), atol=1e-9)


def test_tables_of_sites_add_up_to_the_table_of_all_rows():
    first, second = draw_labels(300, 5, seed=1)
    parts = [count_together(first[part], second[part], 5) for part in (slice(0, 40), slice(40, 45), slice(45, 300))]
    assert_allclose(sum(parts), count_together(first, second, 5), atol=1e-9)


def test_a_row_of_weight_2_counts_as_two_rows():
    first, second = draw_labels(50, 4, seed=2)
    weighted = count_together(first, second, 4, np.full(50, 2.0))
    assert_allclose(weighted, count_together(np.tile(first, 2), np.tile(second, 2), 4))


@pytest.mark.parametrize("table", [np.zeros((3, 3)), np.diag([5.0, 0.0, 0.0]), np.array([[3.0, 4.0], [0.0, 0.0]])])
def test_a_partition_with_one_cluster_agrees_with_none(table):
    assert adjust(*share_information(table)) == 0.0


def test_clusters_that_are_sites_agree_about_nothing_within_sites():
    site = np.repeat(np.arange(4), 50)
    tables = [count_together(site[site == s], site[site == s], 4) for s in range(4)]
    assert adjust(*share_information(sum(tables))) == 1.0
    assert adjust(*np.sum([share_information(table) for table in tables], axis=0)) == 0.0


# ------------------------------------------------------------------------------------------------------------- choices


def evidence_of(witnesses, value):
    pairs = {(i, j): value(witnesses[i].options[0], witnesses[j].options[0]) for i, j in list_pairs(witnesses)}
    return Evidence(witnesses, pairs, {})


def test_two_views_of_text_are_changed_together():
    witnesses = list_witnesses([("standard", "l2"), ("standard", "l2")])
    opinions = choose_options(evidence_of(witnesses, lambda a, b: 0.6 if a == b == "l2" else 0.0))
    assert [opinion.option for opinion in opinions if opinion.taken] == ["l2", "l2"]


def test_z_scores_are_kept_where_another_scaling_gains_little():
    witnesses = list_witnesses([("standard", "l2"), ("standard", "l2")])
    opinions = choose_options(evidence_of(witnesses, lambda a, b: 0.5 + 0.03 * (a == b == "l2")))
    assert [opinion.option for opinion in opinions if opinion.taken] == ["standard", "standard"]


def test_halves_of_a_single_view_are_compared_under_the_same_scaling():
    witnesses = list_witnesses([("standard", "l2")])
    pairs = [(witnesses[i], witnesses[j]) for i, j in list_pairs(witnesses)]
    assert pairs == [(Witness((0,), (name,), 0), Witness((0,), (name,), 1)) for name in ("standard", "l2")]


def test_with_very_many_views_a_choice_is_still_found():
    witnesses = list_witnesses([("standard", "none", "l2")] * 14)
    opinions = choose_options(evidence_of(witnesses, lambda a, b: 0.3 * (a == "l2") + 0.3 * (b == "l2")))
    assert sum(opinion.taken for opinion in opinions) == 14


@pytest.mark.parametrize(("gain", "taken"), [(0.01, FRAMES[0]), (0.2, FRAMES[1])])
def test_the_frame_of_all_sites_is_kept_unless_another_gains(gain, taken):
    witnesses = list_frame_witnesses(2, FRAMES)
    pairs = {pair: 0.4 + gain / 2 * (witnesses[pair[0]].frame == FRAMES[1]) for pair in list_pairs(witnesses)}
    alone = {i: 0.6 + gain / 2 * (w.frame == FRAMES[1]) for i, w in enumerate(witnesses) if w.alone}
    found, opinions = choose_frame(Evidence(witnesses, pairs, alone))
    assert found == taken
    assert [opinion.taken for opinion in opinions] == [frame == taken for frame in FRAMES]


def test_frames_are_compared_with_themselves_alone():
    witnesses = list_frame_witnesses(3, FRAMES)
    for i, j in list_pairs(witnesses):
        assert witnesses[i].frame == witnesses[j].frame
        assert not witnesses[i].alone
        assert not witnesses[j].alone


def test_features_that_share_no_unit_have_z_scores():
    table = np.random.default_rng(0).random((60, 4)) * [1.0, 1.0, 1.0, 100.0]
    model = fedhk.HeatKernelMVC(2, n_init=2, random_state=0).fit([table, table[:, ::-1] ** 2])
    assert {choice["option"] for choice in model.choices_} == {"standard"}


# ---------------------------------------------------------------------------------------------------------- estimators


def test_text_is_recognised_at_one_site_and_over_sites():
    views, _ = draw_text()
    alone = fedhk.HeatKernelMVC(4, scaling="auto", n_init=3, random_state=0).fit(views)
    sites = {name: [view[part::3] for view in views] for part, name in enumerate("abc")}
    model = fedhk.EFKMVC(4, scaling="auto", n_init=3, max_rounds=5, tol=0, random_state=0).fit(sites)
    for options in (taken(alone), taken(model)):
        assert set(options) <= {"l2", "root", "tfidf"}


def test_sparse_text_gives_what_dense_text_gives():
    views, _ = draw_text(n_rows=120)
    dense, sparse = (choose_scalings(check_views(v), 4, None)[0] for v in (views, [sp.csr_array(v) for v in views]))
    assert dense == sparse


@pytest.mark.parametrize("scaling", ["root", "tfidf"])
def test_new_rows_are_read_as_those_of_the_fit(scaling):
    views, _ = draw_text(n_rows=120)
    dense = fedhk.HeatKernelMVC(4, scaling=scaling, n_init=3, random_state=0).fit(views)
    sites = {name: [sp.csr_array(view[part::2]) for view in views] for part, name in enumerate("ab")}
    spread = fedhk.EFKMVC(4, scaling=scaling, n_init=3, random_state=0).fit(sites)
    assert_allclose(dense.predict(views), dense.labels_)
    for name, own in sites.items():
        assert_allclose(spread.predict(own), spread.global_labels_[name])
    assert_allclose(spread._model.references[0].shift, dense._model.references[0].shift, atol=1e-9)
    assert_allclose(spread._model.references[0].scale, dense._model.references[0].scale, rtol=1e-6)


@pytest.mark.parametrize("scaling", ["root", "tfidf"])
def test_negative_cells_are_refused_by_name(scaling):
    sites = make_sites(2, 30, n_clusters=2, random_state=0).sites
    with pytest.raises(ValueError, match=rf"site-00.*scaling='{scaling}'.*negative cells"):
        fedhk.EFKMVC(2, scaling=scaling).fit(sites)


def test_under_masks_views_have_z_scores_and_it_is_said():
    pytest.importorskip("cryptography")
    sites = make_sites(3, 30, n_clusters=2, random_state=0).sites
    model = fedhk.EFKMVC(2, scaling="auto", secure=True, max_rounds=2, tol=0, random_state=0).fit(sites)
    assert taken(model) == ["standard", "standard"]
    assert "secure=True" in model.choices_[0]["note"]


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "views",
    [
        pytest.param([np.arange(40.0).reshape(20, 2), np.ones((20, 3))], id="constants"),
        pytest.param([np.arange(40.0).reshape(20, 2)] * 3, id="alike"),
        pytest.param([np.random.default_rng(v).normal(size=(20, 3)) for v in range(2)], id="different rows"),
        pytest.param([np.random.default_rng(0).normal(size=(20, 1))], id="one feature"),
    ],
)
def test_views_that_say_nothing_keep_z_scores(views):
    assert set(taken(fedhk.HeatKernelMVC(2, scaling="auto", n_init=2, random_state=0).fit(views))) == {"standard"}
    sites = {str(part): [view[2 * part : 2 * part + 2] for view in views] for part in range(10)}
    assert set(taken(fedhk.EFKMVC(2, scaling="auto", n_init=2, random_state=0).fit(sites))) == {"standard"}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_that_lack_a_view_do_no_harm():
    views, _ = draw_text(n_rows=120)
    views[1][::4] = np.nan
    sites = {name: [view[part::2] for view in views] for part, name in enumerate("ab")}
    assert len(taken(fedhk.EFKMVC(4, scaling="auto", n_init=2, max_rounds=3, tol=0, random_state=0).fit(sites))) == 2


@pytest.mark.parametrize("aggregator", ["robust", "median"])
def test_a_site_that_lies_about_agreement_does_not_decide(aggregator):
    sites = make_sites(5, 40, n_clusters=2, random_state=0).sites
    model = fedhk.FedHKPerson(2, scaling="auto", aggregator=aggregator, n_init=2, random_state=0).fit(sites)
    assert taken(model)[:2] == ["standard", "standard"]


# -------------------------------------------------------------------------------------------------------------- frames


def frame_of(model):
    return next(choice["option"] for choice in model.choices_ if choice["choice"] == "frame" and choice["taken"])


@pytest.mark.parametrize("n_views", [1, 2])
def test_sites_that_measure_differently_are_calibrated(n_views):
    data = make_sites(6, 60, n_clusters=3, shift=2.0, random_state=0)
    sites = {name: views[:n_views] for name, views in data.sites.items()}
    for estimator in (fedhk.FedHKPerson, fedhk.FedHKDiffusion):
        model = estimator(3, n_init=3, random_state=0).fit(sites)
        assert model.calibration_["shift"] == 1.0
        assert frame_of(model) == "mean 1, spread 0.5"
        assert {choice["option"] for choice in model.choices_ if choice["choice"] == "frame"} == {
            "none",
            "mean 1, spread 0.5",
        }


def test_random_parts_of_one_set_are_not_even_compared():
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(200, width)) + 3 * rng.integers(2, size=(200, 1)) for width in (4, 60)]
    for seed in range(5):
        part = np.random.default_rng(seed).integers(5, size=200)
        sites = {str(site): [view[part == site] for view in views] for site in range(5)}
        model = fedhk.FedHKPerson(2, n_init=2, max_rounds=3, tol=0, random_state=0).fit(sites)
        assert frame_of(model) == "none"
        assert "do not differ" in model.choices_[-1]["note"]


def test_sites_that_differ_by_their_mix_of_clusters_are_not_calibrated():
    data = make_sites(6, 100, n_clusters=3, class_mix=0.5, shift=0.0, scale=0.0, random_state=0)
    model = fedhk.FedHKPerson(3, n_init=3, random_state=0).fit(data.sites)
    assert frame_of(model) == "none"
    assert all(choice["with_sites"] is not None for choice in model.choices_ if choice["choice"] == "frame")


def test_what_sites_are_asked_does_not_depend_on_the_seed():
    data = make_sites(4, 40, n_clusters=3, shift=1.0, random_state=0)
    first, second = (fedhk.FedHKPerson(3, n_init=2, random_state=seed).fit(data.sites) for seed in (0, 1))
    assert first.choices_ == second.choices_
