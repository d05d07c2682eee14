"""Under masks, sums in a basis give the model that full sums give, in far fewer and shorter numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC, FedHKPerson, FedHKTucker, HeatKernelMVC, datasets
from fedhk.federation.entries import Basis, References
from fedhk.federation.phases.scales import Counts
from fedhk.federation.phases.sum_basis import MOST_SKETCH, count_sketch
from fedhk.federation.phases.sum_start import count_leading
from fedhk.model.rows import joint_rows
from fedhk.privacy.secure_sum import MaskedNumbers
from fedhk.protocols import Statistics
from fedhk.starts.cells import score_products, sketch
from sealed_runs import read_reply, spied_fit

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SAFE = Statistics(basis=True, precision="double")


def wide(n_sites=4, n_samples=30, n_clusters=4, widths=(60, 50), seed=0, **options):
    return datasets.make_sites(
        n_sites, n_samples, n_clusters=n_clusters, n_features=widths, random_state=seed, **{"shift": 0} | options
    )


def pooled(model, data):
    names = sorted(data.sites)
    found, truth = (np.concatenate([part[name] for name in names]) for part in (model.labels_, data.site_labels))
    return adjusted_rand_score(truth, found)


def kilobytes(model):
    return sum(record["bytes_up"] + record["bytes_down"] for record in model.history_) / 1e3


def masked_words(spy):
    """Bytes of a masked number, by phase."""
    sealed = [message for _, message in spy.replies if message.kind.startswith("sealed.")]
    replies = [(message.kind.removeprefix("sealed."), read_reply(message)) for message in sealed]
    return {kind: reply.masked.dtype.itemsize for kind, reply in replies if isinstance(reply, MaskedNumbers)}


# ------------------------------------------------------------------------------------------------------ the same model


@pytest.mark.parametrize("options", [{}, {"heat_coef": "minmax"}, {"heat_coef": "absdev"}, {"view_weights": "learned"}])
@pytest.mark.parametrize("missing", [False, True])
def test_a_basis_of_all_directions_gives_the_model_of_full_sums(options, missing):
    data = wide(widths=(2, 3), n_clusters=3)
    sites = {name: [view.copy() for view in views] for name, views in data.sites.items()}
    if missing:
        sites["site-01"][0][::5, 1] = np.nan
        sites["site-02"] = [None, sites["site-02"][1]]
    init = [np.array(view[[0, 7, 14]]) for view in data.views]
    full, basis = (
        EFKMVC(3, protocol=protocol, init=init, secure=True, max_rounds=4, tol=0, random_state=0, **options).fit(sites)
        for protocol in ("statistics", SAFE)
    )
    if not missing and not options.get("heat_coef"):  # a step on the largest weight is shorter where weights differ
        for one, other in zip(full.cluster_centers_, basis.cluster_centers_, strict=True):
            assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert_allclose(basis.objective_, full.objective_, rtol=0.05)
    assert all(record["refused"] == {} for record in basis.history_)


def test_the_objective_never_rises_in_the_basis():
    data = wide()
    model = EFKMVC(4, protocol=SAFE, secure=True, max_rounds=15, tol=0, random_state=0).fit(data.sites)
    history = [record["objective"] for record in model.history_]
    assert np.all(np.diff(history) <= 1e-6 * history[0])


@pytest.mark.parametrize("estimator", [EFKMVC, FedHKTucker])
def test_rounds_end_where_full_sums_would_gain_no_more(estimator):
    data = wide(n_samples=60, separation=4.0)
    model = estimator(4, protocol=SAFE, secure=True, random_state=0).fit(data.sites)
    assert model.converged_
    common = {"fuzzifier": model.fuzzifier_, "view_weights": list(model.view_weights_)}
    full = EFKMVC(4, protocol="statistics", init=model.cluster_centers_, max_rounds=5, tol=0, **common)
    objectives = [record["objective"] for record in full.fit(data.sites).history_]
    assert_allclose(objectives[0], model.objective_, rtol=1e-4)
    assert objectives[-1] > (1 - 1e-3) * objectives[0]


def test_rounds_in_bytes_never_raise_the_objective_when_the_basis_is_made_anew():
    data = wide(n_samples=60, separation=4.0)
    model = EFKMVC(4, protocol="cores", secure=True, random_state=0).fit(data.sites)
    history = [record["objective"] for record in model.history_ if np.isfinite(record["objective"])]
    assert np.all(np.diff(history) <= 1e-5 * history[0])
    assert model.objective_ <= (1 + 1e-5) * min(history)


@pytest.mark.parametrize("protocol", ["statistics", "cores"])
def test_view_weights_are_those_of_pooled_rows(protocol):
    """Groups of rows that are near in all views together would hide what a single view says."""
    data = wide(n_samples=60, n_clusters=5, widths=(120, 100, 80), separation=6.0)
    rng, sites = np.random.default_rng(0), {}
    for name, views in data.sites.items():
        blurred = 0.6 * views[1] + rng.normal(size=views[1].shape) * views[1].std()
        sites[name] = [views[0], blurred, rng.normal(size=views[2].shape)]
    rows = [np.vstack([views[h] for views in sites.values()]) for h in range(3)]
    common = {"scaling": "standard", "random_state": 0}
    pooled_rows = HeatKernelMVC(5, max_iter=1, **common).fit(rows)
    masked = EFKMVC(5, protocol=protocol, secure=True, max_rounds=1, **common).fit(sites)
    assert_allclose(masked.view_weights_, pooled_rows.view_weights_, atol=0.05)


def test_view_weights_are_chosen_as_with_full_sums():
    data = wide(n_samples=60, n_clusters=4, widths=(60, 50), separation=8.0)
    sites = {
        name: [views[0], np.random.default_rng(0).normal(size=views[1].shape)] for name, views in data.sites.items()
    }
    for protocol in ("statistics", "cores"):
        model = EFKMVC(4, protocol=protocol, secure=True, random_state=0).fit(sites)
        assert model.view_weights_[0] > 1.5 * model.view_weights_[1]


@pytest.mark.parametrize("scaling", ["standard", "none", "l2"])
def test_units_are_those_of_full_sums(scaling, monkeypatch):
    data = wide()
    sites = {name: [view + 3.0 for view in views] for name, views in data.sites.items()}
    for views in sites.values():
        views[1][:, 4] *= 1e5 if scaling == "standard" else 1.0  # one column in other units
    found = []
    for protocol in ("statistics", "cores"):
        model = EFKMVC(4, protocol=protocol, secure=True, scaling=scaling, max_rounds=1, random_state=0)
        _, spy = spied_fit(monkeypatch, model, sites)
        found.append(spy.sites["site-01"].board.get(References).references)
    for full, few in zip(*found, strict=True):
        # of rows of length 1 the origin of the units is rounded more than that
        assert_allclose(few.scale, full.scale, rtol=1e-3)
        assert_allclose(few.shift, full.shift, rtol=1e-5 if scaling != "l2" else 1e-2, atol=1e-3)
        assert few.scale.dtype == np.float32 or scaling == "l2"


def test_rows_and_missing_cells_are_counted():
    data = wide(n_sites=3)
    sites = {name: [view.copy() for view in views] for name, views in data.sites.items()}
    sites["site-00"][0][3, :5] = np.nan
    sites["site-01"][0][4] = np.nan  # a row without the view
    counts = Counts(90.0, np.array([89.0, 90.0]), np.array([5.0, 0.0]))
    assert counts.incomplete == (True, False)
    model = EFKMVC(4, protocol="cores", secure=True, max_rounds=2, random_state=0).fit(sites)
    assert all(np.isfinite(centers).all() for centers in model.cluster_centers_)


# ------------------------------------------------------------------------------------------------------------ in bytes


def test_few_clusters_in_wide_views_take_an_eighth_of_the_bytes_of_full_sums():
    data = wide(n_sites=5, n_samples=40, n_clusters=5, widths=(400, 300), separation=8.0, seed=1)
    full = EFKMVC(5, protocol="statistics", secure=True, random_state=0).fit(data.sites)
    tucker = FedHKTucker(5, secure=True, random_state=0).fit(data.sites)
    assert kilobytes(full) > 8 * kilobytes(tucker)
    assert pooled(tucker, data) > pooled(full, data) - 0.01


def test_numbers_are_as_short_as_their_bound_allows(monkeypatch):
    data = wide()
    _, spy = spied_fit(monkeypatch, EFKMVC(4, protocol="cores", secure=True, max_rounds=2, random_state=0), data.sites)
    words = masked_words(spy)
    assert words == {
        "count rows": 8,
        "magnitudes": 1,
        "few moments": 8,
        "sum documents": 2,
        "neighbours": 8,
        "sketch": 2,
        "span": 2,
        "basis moments": 4,
        "own cells": 2,
        "basis groups": 4,
        "basis view distances": 8,
        "masked moves": 4,
        "finish": 8,
    }
    model = EFKMVC(4, protocol="statistics", secure=True, max_rounds=2, random_state=0)
    _, spy = spied_fit(monkeypatch, model, data.sites)
    words = masked_words(spy)
    assert {name for name, word in words.items() if word != 8} == {"sum documents", "own cells"}  # these are counts
    assert "masked round" in words


@pytest.mark.parametrize("precision", ["byte", "half", "single", "double"])
def test_every_precision_finds_the_clusters(precision):
    data = wide(separation=8.0)
    model = EFKMVC(4, protocol=Statistics(True, precision), secure=True, random_state=0).fit(data.sites)
    assert pooled(model, data) > 0.95


@pytest.mark.parametrize("seed", range(4))
def test_no_total_leaves_its_words_however_rows_are_spread(seed):
    """A total beyond its bound would be an error; rows far out, in other units, and nearly all in one direction."""
    rng = np.random.default_rng(seed)
    sites = {}
    for name in "abcd":
        tails = rng.standard_t(1.2, size=(25, 70)) * 10.0 ** rng.uniform(-6, 6, 70)
        line = rng.normal(size=(25, 1)) * np.ones((1, 80)) + 1e-6 * rng.normal(size=(25, 80))
        sites[name] = [np.clip(tails, -1e11, 1e11), line + 1e3]
    model = EFKMVC(3, protocol="cores", secure=True, max_rounds=5, heat_time=10.0 ** rng.uniform(-6, 2), random_state=0)
    model.fit(sites)
    assert all(record["refused"] == {} for record in model.history_)
    assert all(np.isfinite(centers).all() for centers in model.cluster_centers_)


# ----------------------------------------------------------------------------------------------------------- the basis


def test_the_basis_holds_the_directions_in_which_clusters_differ(monkeypatch):
    data = wide(n_samples=60, separation=8.0)
    _, spy = spied_fit(monkeypatch, EFKMVC(4, protocol="cores", secure=True, random_state=0), data.sites)
    site = spy.sites["site-00"]
    basis, references = site.board.get(Basis), site.board.get(References).references
    for columns, reference, centers in zip(basis.columns, references, data.truth.centers, strict=True):
        assert columns.shape[1] <= count_leading(4)
        inside = reference.to_model(centers)
        inside = inside - inside.mean(axis=0)
        assert np.linalg.norm(inside @ columns) > 0.9 * np.linalg.norm(inside)


def test_products_are_those_of_all_rows():
    data = wide(n_sites=1, n_samples=30, widths=(5, 4))
    rows = EFKMVC(2, random_state=0).fit(data.sites)._rows(data.sites["site-00"])
    joint = joint_rows(rows).astype(np.float64)
    directions = sketch(9, 0, 3)
    assert directions.shape == (9, 3)
    assert_allclose(directions.T @ directions, np.eye(3), atol=1e-12)
    assert_allclose(score_products(rows, directions), joint.T @ joint @ directions, atol=1e-9)


def test_a_form_is_fitted_to_sums_of_rows_and_not_to_the_cells_of_the_start():
    """The cells are along few directions, in which the centres of many clusters would seem to have a low rank."""
    data = wide(n_sites=4, n_samples=60, n_clusters=9, widths=(80, 70), separation=9.0)
    model = FedHKTucker(9, secure=True, random_state=0).fit(data.sites)
    assert model.rank_[0] >= 8
    assert pooled(model, data) > 0.95


def test_a_given_rank_binds_under_masks_too():
    data = wide(separation=8.0)
    model = FedHKTucker(4, secure=True, rank=(3, 3, 2), random_state=0).fit(data.sites)
    assert model.rank_ == (3, 3, 2)
    assert pooled(model, data) > 0.9


def test_own_models_follow_rounds_in_a_basis():
    data = wide(separation=8.0)
    model = FedHKPerson(4, protocol="cores", secure=True, random_state=0).fit(data.sites)
    assert sorted(model.client_models_) == sorted(data.sites)
    assert pooled(model, data) > 0.9


# ---------------------------------------------------------------------------------------------------- sizes of a sketch


@pytest.mark.parametrize(("n_clusters", "width"), [(2, 100), (7, 1622), (5, 6386), (40, 14150), (100, 192)])
def test_a_sketch_has_twice_its_directions_and_no_more_bytes_than_a_round_of_full_sums(n_clusters, width):
    count, fewest = count_sketch(n_clusters, width), 2 * count_leading(n_clusters)
    assert fewest <= count <= MOST_SKETCH
    assert count == fewest or count * (count + 1) <= 8 * n_clusters * width + count
