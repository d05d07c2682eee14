"""Scalings by neighbours that views have in common: sums that add, what chance gives, and the scaling that follows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

import fedhk
from fedhk.agreement.scalings import (
    HISTOGRAM_OPTIONS,
    NUMBERS,
    SAMPLE_ROWS,
    TEXT_OPTIONS,
    Witness,
    choose_options,
    choose_rows,
    choose_scalings,
    compare_neighbours,
    find_neighbours,
    find_options,
    list_pairs,
    list_witnesses,
    read_agreement,
)
from fedhk.data.moments import are_magnitudes
from fedhk.data.row_forms import count_rows_without_total
from fedhk.data.views import check_views
from fedhk.datasets import make_sites
from fedhk.model.preparation import site_moments


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


def draw_histograms(n_rows=240, widths=(40, 60), n_clusters=4, total=300, seed=3):
    """Counts of bins of equally many things in each row."""
    rng = np.random.default_rng(seed)
    labels, views = rng.integers(n_clusters, size=n_rows), []
    for width in widths:
        common = rng.dirichlet(np.full(width, 0.2))
        profiles = 0.6 * common + 0.4 * rng.dirichlet(np.full(width, 0.2), n_clusters)
        shares = np.array([rng.dirichlet(15 * profiles[label] + 1e-6) for label in labels])
        views.append(rng.multinomial(total, shares).astype(float))
    return views, labels


def draw_magnitudes(n_rows=300, n_clusters=4, *, seed=2, strength=1.2, spread=0.0):
    """What filters of a picture answer: columns lean to the right alike, and clusters differ in strength, too.

    With a `spread` rows also differ in strength, in each view in another way.
    """
    rng = np.random.default_rng(seed)
    labels, views = rng.integers(n_clusters, size=n_rows), []
    for width in (40, 60):
        common = rng.lognormal(0, strength, (n_clusters, 1)) * rng.lognormal(0, 0.5, width)
        means = rng.lognormal(0, 0.6, (n_clusters, width)) * common
        views.append(rng.lognormal(0, spread, (n_rows, 1)) * means[labels] * rng.gamma(0.7, size=(n_rows, width)))
    return views, labels


def taken(model):
    return [choice["option"] for choice in model.choices_ if choice["taken"]]


# ---------------------------------------------------------------------------------------------------------- neighbours


def test_neighbours_are_the_nearest_rows():
    points = np.arange(9.0)[:, None] ** 2
    found = find_neighbours(points, 0)
    assert found.sum(axis=1).tolist() == [3] * 9
    assert np.flatnonzero(found[0]).tolist() == [1, 2, 3]
    assert not found.diagonal().any()
    assert (find_neighbours(sp.csr_array(points), 0) == found).all()


def test_the_same_neighbours_agree_fully_and_others_by_chance():
    rng = np.random.default_rng(0)
    first, other = (find_neighbours(rng.normal(size=(400, 4)), seed) for seed in range(2))
    assert read_agreement(compare_neighbours([first, first])[0, 1])[0] == 1.0
    agreement, error = read_agreement(compare_neighbours([first, other])[0, 1])
    assert abs(agreement) < 2 * error < 0.05


def test_a_row_that_is_everybodys_neighbour_is_no_agreement():
    rng = np.random.default_rng(1)
    length = rng.uniform(0.2, 3.0, (300, 1))  # short rows are near to all, in any directions that two views have
    first, second = (find_neighbours(length * rng.normal(size=(300, 40)), seed) for seed in range(2))
    shared, _, by_chance, rows = compare_neighbours([first, second])[0, 1]
    assert by_chance / rows > 0.2
    assert read_agreement(compare_neighbours([first, second])[0, 1])[0] < shared / rows / 2


def test_equal_rows_are_in_no_order_that_views_could_share():
    first, second = (find_neighbours(np.zeros((200, 2)), seed) for seed in range(2))
    assert abs(read_agreement(compare_neighbours([first, second])[0, 1])[0]) < 0.05


def test_nobody_agrees_where_there_are_no_rows():
    assert read_agreement(np.zeros(NUMBERS)) == (0.0, 0.0)


def test_rows_that_are_looked_at_are_different_and_complete():
    table = np.random.default_rng(0).normal(size=(60, 3))
    table[5] = np.nan
    views = check_views([np.vstack([table, table]), np.ones((120, 2))])
    rows = choose_rows(views)
    assert len(rows) == 59
    assert 5 not in rows % 60
    many = check_views([np.random.default_rng(0).normal(size=(4 * SAMPLE_ROWS, 2))])
    assert len(np.unique(choose_rows(many))) == SAMPLE_ROWS


# ------------------------------------------------------------------------------------------------------------- choices


def sums_of(witnesses, value, error=0.01, rows=400.0):
    """Sums of pairs of witnesses with given agreements and errors, as if nothing were expected by chance."""
    found = []
    for i, j in list_pairs(witnesses):
        share = value(witnesses[i].option, witnesses[j].option)
        found.append([share * rows, (error**2 * rows + share**2) * rows, 0.0, rows])
    return np.array(found)


def chosen(witnesses, sums):
    return [opinion.option for opinion in choose_options(witnesses, sums) if opinion.taken]


def test_two_views_of_text_are_changed_together():
    witnesses = list_witnesses([("standard", "l2"), ("standard", "l2")])
    assert chosen(witnesses, sums_of(witnesses, lambda a, b: 0.6 if a == b == "l2" else 0.0)) == ["l2", "l2"]


@pytest.mark.parametrize(("error", "option"), [(0.01, "standard"), (0.005, "l2")])
def test_the_convention_is_kept_where_the_gain_may_be_chance(error, option):
    witnesses = list_witnesses([("standard", "l2"), ("standard", "l2")])
    sums = sums_of(witnesses, lambda a, b: 0.5 + 0.02 * (a == "l2") + 0.02 * (b == "l2"), error)
    assert chosen(witnesses, sums) == [option, option]


def test_halves_of_a_single_view_are_compared_under_the_same_scaling():
    witnesses = list_witnesses([("standard", "l2")])
    pairs = [(witnesses[i], witnesses[j]) for i, j in list_pairs(witnesses)]
    assert pairs == [(Witness(0, name, 0), Witness(0, name, 1)) for name in ("standard", "l2")]
    assert chosen(witnesses, sums_of(witnesses, lambda a, b: 0.5 * (a == b == "l2"))) == ["l2"]


def test_with_very_many_views_a_choice_is_still_found():
    witnesses = list_witnesses([("standard", "none", "l2")] * 14)
    assert chosen(witnesses, sums_of(witnesses, lambda a, b: 0.3 * (a == "l2") + 0.3 * (b == "l2"))) == ["l2"] * 14


def test_views_are_tried_under_what_their_cells_allow():
    rng = np.random.default_rng(0)
    table = rng.random((60, 4))

    def options(values, columns=None):
        moments = site_moments(check_views([values]), [values.shape[1]])[0]
        positive = np.nan_to_num(values).min() >= 0
        documents = (values > 0).sum(axis=0).astype(float) if positive else None
        return find_options(moments, documents, columns, count_rows_without_total(values))

    assert options(table) == ("standard", "none", "l2", "root")
    assert options(table - 0.5) == ("standard", "none")
    assert options(np.where(rng.random(table.shape) < 0.1, np.nan, table)) == ("standard", "none")
    assert options(table * (rng.random(table.shape) < 0.3)) == ("standard", "none", "l2", "root")
    assert options(table * (rng.random(table.shape) < 0.05)) == TEXT_OPTIONS
    assert options(table / table.sum(axis=1, keepdims=True)) == HISTOGRAM_OPTIONS
    assert options(table - table.mean(axis=1, keepdims=True)) == ("standard", "none")  # a total of 0 is no histogram
    assert options(table * [1.0, 1.0, 1.0, 100.0]) == ("standard",)
    assert options(np.ones((60, 4))) == ("standard",)
    assert options((table > 0.8).astype(float), ("sex = F", "sex = M", "ward = 1", "ward = 2")) == ("standard",)


def test_magnitudes_are_many_columns_that_lean_alike():
    rng = np.random.default_rng(0)
    table = rng.random((200, 12)) ** 4

    def are_found(values):
        return are_magnitudes(site_moments(check_views([values]), [values.shape[1]])[0])

    assert are_found(table)
    assert are_found(table * 10.0 ** np.arange(12))  # the unit of a column does not matter
    assert are_found(np.hstack([table, np.ones((200, 1))]))
    assert are_found(rng.poisson(table * 5).astype(float))
    assert not are_found(table[:, :9])  # so few may be alike by chance
    assert not are_found(table + 1.0)  # z-scores are as good where 0 is far away
    assert not are_found(table ** np.linspace(0.2, 4, 12))  # each leans in its own way
    assert not are_found(np.ones((200, 12)))
    parts = [site_moments(check_views([part]), [12])[0] for part in (table[:50], table[50:])]
    assert are_magnitudes(parts[0].merge(parts[1]))


def test_features_that_share_no_unit_have_z_scores():
    table = np.random.default_rng(0).random((60, 4)) * [1.0, 1.0, 1.0, 100.0]
    model = fedhk.HeatKernelMVC(2, n_init=2, random_state=0).fit([table, table[:, ::-1] ** 2])
    assert {choice["option"] for choice in model.choices_} == {"standard"}


# ---------------------------------------------------------------------------------------------------------- estimators


def draw_patients(seed, n_rows=600):
    """One complete table in clinical units, no cell below 0: age, weight, pressure, haemoglobin, pulse, creatinine."""
    random = np.random.default_rng(seed)
    groups = random.integers(3, size=n_rows)
    level = np.array([[48, 24, 120, 14.2, 70, 0.8], [62, 32, 148, 13.8, 78, 1.0], [71, 27, 128, 10.8, 90, 2.1]])
    return level[groups] + random.normal(size=(n_rows, 6)) * [9, 3, 11, 1.1, 10, 0.15], groups


@pytest.mark.parametrize("seed", range(5))
def test_a_table_in_several_units_has_z_scores(seed):
    """Halves of rows of length 1 know each other's length: a table of patients was read as if it were text."""
    table, groups = draw_patients(seed)
    model = fedhk.HeatKernelMVC(3, random_state=0).fit(table)
    assert taken(model) == ["standard"]
    assert len(model.choices_) == 4
    assert adjusted_rand_score(groups, model.labels_) > 0.85


def test_halves_of_unrelated_features_agree_by_chance_in_every_form():
    table = np.random.default_rng(0).gamma(4.0, size=(500, 8)) * [1, 2, 1, 3, 1, 2, 1, 2]
    model = fedhk.HeatKernelMVC(3, random_state=0).fit(table)
    assert len(model.choices_) == 4
    for choice in model.choices_:
        assert abs(choice["between_views"]) < 0.02


def test_text_is_recognised_at_one_site_and_over_sites():
    views, _ = draw_text()
    alone = fedhk.HeatKernelMVC(4, scaling="auto", n_init=3, random_state=0).fit(views)
    sites = {name: [view[part::3] for view in views] for part, name in enumerate("abc")}
    model = fedhk.EFKMVC(4, scaling="auto", n_init=3, max_rounds=5, tol=0, random_state=0).fit(sites)
    for options in (taken(alone), taken(model)):
        assert set(options) <= {"l2", "root", "tfidf"}


def test_sparse_text_gives_what_dense_text_gives():
    views, _ = draw_text(n_rows=120)
    dense, sparse = (choose_scalings(check_views(v), None)[0] for v in (views, [sp.csr_array(v) for v in views]))
    assert dense == sparse


@pytest.mark.parametrize("scaling", ["root", "histogram", "magnitude", "tfidf"])
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


@pytest.mark.parametrize("scaling", ["root", "histogram", "magnitude", "tfidf"])
def test_negative_cells_are_refused_by_name(scaling):
    sites = make_sites(2, 30, n_clusters=2, random_state=0).sites
    with pytest.raises(ValueError, match=rf"site-00.*scaling='{scaling}'.*negative cells"):
        fedhk.EFKMVC(2, scaling=scaling).fit(sites)


def test_histograms_are_found_at_one_site_and_over_sites_that_count_differently():
    views, labels = draw_histograms()
    alone = fedhk.HeatKernelMVC(4, random_state=0).fit(views)
    sites = {name: [(part + 1) * view[part::3] for view in views] for part, name in enumerate("abc")}
    model = fedhk.EFKMVC(4, random_state=0).fit(sites)
    assert taken(alone) == taken(model) == ["histogram", "histogram"]
    found = np.empty(len(labels), int)
    for part, name in enumerate("abc"):
        found[part::3] = model.labels_[name]
    assert adjusted_rand_score(labels, found) > 0.95


def test_a_site_whose_rows_have_other_totals_is_outvoted_by_more_rows():
    views, _ = draw_histograms()
    sites = {name: [view[part::3] for view in views] for part, name in enumerate("abc")}
    sites["c"] = [view * np.linspace(1, 9, len(view))[:, None] for view in sites["c"]]
    assert taken(fedhk.EFKMVC(4, max_rounds=2, tol=0, random_state=0).fit(sites)) == ["histogram", "histogram"]
    sites["b"] = [view * np.linspace(1, 9, len(view))[:, None] for view in sites["b"]]
    assert "histogram" not in taken(fedhk.EFKMVC(4, max_rounds=2, tol=0, random_state=0).fit(sites))


def test_magnitudes_are_found_at_one_site_and_over_sites_and_split_equals_pooled():
    views, labels = draw_magnitudes()
    alone = fedhk.HeatKernelMVC(4, n_init=2, random_state=0).fit(views)
    sites = {name: [view[part::3] for view in views] for part, name in enumerate("abc")}
    model = fedhk.EFKMVC(4, n_init=2, random_state=0).fit(sites)
    assert taken(alone) == taken(model) == ["magnitude", "magnitude"]
    assert {choice["option"] for choice in model.choices_} == {"magnitude", "histogram"}
    for first, second in zip(alone._model.references, model._model.references, strict=True):
        assert_allclose(second.shift, first.shift, rtol=1e-9)
        assert_allclose(second.scale, first.scale, rtol=1e-9)
    found = np.empty(len(labels), int)
    for part, name in enumerate("abc"):
        found[part::3] = model.labels_[name]
    plain = fedhk.HeatKernelMVC(4, scaling="standard", n_init=2, random_state=0).fit(views)
    assert adjusted_rand_score(labels, found) > 0.9
    assert adjusted_rand_score(labels, plain.labels_) < 0.7


@pytest.mark.parametrize("estimator", [fedhk.FedHKPerson, fedhk.FedHKDiffusion])
def test_other_estimators_find_magnitudes_too(estimator):
    views, labels = draw_magnitudes()
    sites = {name: [view[part::3] for view in views] for part, name in enumerate("abc")}
    truth = np.concatenate([labels[part::3] for part in range(3)])
    scores = {}
    for scaling in ("auto", "standard"):
        model = estimator(4, scaling=scaling, random_state=0).fit(sites)
        scores[scaling] = adjusted_rand_score(truth, np.concatenate([model.labels_[name] for name in "abc"]))
        assert ("magnitude" in taken(model)) == (scaling == "auto")
        for name, own in sites.items():
            assert_allclose(model.predict(own), model.global_labels_[name])
    assert scores["auto"] > scores["standard"]


def test_strength_of_rows_that_views_do_not_share_is_taken_out_of_magnitudes():
    views, labels = draw_magnitudes(strength=0.0, spread=0.8)
    model = fedhk.HeatKernelMVC(4, n_init=2, random_state=0).fit(views)
    assert taken(model) == ["histogram", "histogram"]
    plain = fedhk.HeatKernelMVC(4, scaling="standard", n_init=2, random_state=0).fit(views)
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    assert adjusted_rand_score(labels, plain.labels_) < 0.5


@pytest.mark.parametrize("seed", range(5))
def test_a_table_of_columns_of_several_kinds_has_no_roots(seed):
    """Years, mmHg, prices and counts: some lean, some do not, in units of their own."""
    rng = np.random.default_rng(seed)
    level = rng.normal(size=(300, 24)) + 2 * rng.normal(size=(3, 24))[rng.integers(3, size=300)]
    table = np.hstack([50 + 9 * level[:, :8], 10 * np.exp(level[:, 8:16]), rng.poisson(np.exp(level[:, 16:]))])
    model = fedhk.HeatKernelMVC(3, n_init=2, random_state=0).fit([table[:, ::2], table[:, 1::2]])
    assert not {"magnitude", "histogram"} & {choice["option"] for choice in model.choices_}


@pytest.mark.parametrize("kind", ["tfidf", "histogram", "magnitude", "neither"])
def test_under_masks_the_same_is_chosen(kind):
    pytest.importorskip("cryptography")
    drawn = {"tfidf": draw_text, "histogram": draw_histograms, "magnitude": draw_magnitudes}
    rng = np.random.default_rng(0)
    views = drawn[kind](n_rows=150)[0] if kind in drawn else [rng.normal(size=(150, 4)) for _ in range(2)]
    sites = {name: [view[part::3] for view in views] for part, name in enumerate("abc")}
    given = {"n_init": 2, "max_rounds": 2, "tol": 0, "random_state": 0}
    plain, masked = (fedhk.EFKMVC(4, secure=secure, **given).fit(sites) for secure in (False, True))
    assert taken(masked) == taken(plain)
    assert (kind in taken(plain)) == (kind in drawn)
    for first, second in zip(plain._model.references, masked._model.references, strict=True):
        assert_allclose(second.shift, first.shift, atol=1e-6)
        assert_allclose(second.scale, first.scale, rtol=1e-5)


def test_with_noise_views_have_z_scores_and_it_is_said():
    pytest.importorskip("cryptography")
    sites = make_sites(3, 60, n_clusters=2, random_state=0).sites
    privacy = fedhk.privacy.DifferentialPrivacy(epsilon=8.0, delta=1e-5, bounds=(-20.0, 20.0))
    model = fedhk.EFKMVC(2, privacy=privacy, secure=True, random_state=0).fit(sites)
    assert taken(model) == ["standard", "standard"]
    assert "privacy" in model.choices_[0]["note"]


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "views",
    [
        pytest.param(
            [np.arange(40.0).reshape(20, 2), np.ones((20, 3))],
            id="constants",
            marks=pytest.mark.filterwarnings("ignore:.*all rows have the same values in view 'view_1':UserWarning"),
        ),
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


def test_what_is_chosen_does_not_depend_on_the_number_of_clusters():
    views, _ = draw_text(n_rows=90)
    assert fedhk.HeatKernelMVC(2, n_init=1, random_state=0).fit(views).choices_ == (
        fedhk.HeatKernelMVC(6, n_init=1, random_state=1).fit(views).choices_
    )
