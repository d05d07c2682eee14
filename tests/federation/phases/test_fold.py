"""Federations with a view of very many columns."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score

import fedhk
from fedhk.data.folds import FOLDED_WIDTH, WIDEST
from fedhk.data.row_forms import RowForm, count_documents, inverse_document_frequencies
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.phases.fold import FoldReply, FoldViews, WideSums, WordCounts

COLUMNS, TOPICS = WIDEST + 500, 3


def make_documents(n_rows: int, seed: int) -> tuple[sp.csr_array, np.ndarray]:
    """Documents of 30 words, of which 20 are among the 80 of their topic."""
    rng = np.random.default_rng(seed)
    topics = rng.permutation(np.arange(n_rows) % TOPICS)
    own = topics[:, None] * 80 + rng.integers(80, size=(n_rows, 20))
    words = np.hstack([own, rng.integers(COLUMNS, size=(n_rows, 10))])
    shape = (n_rows, COLUMNS)
    table = sp.csr_array((np.ones(words.size), (np.repeat(np.arange(n_rows), 30), words.ravel())), shape)
    table.sum_duplicates()
    return table, topics


@pytest.fixture(scope="module")
def federation() -> tuple[dict[str, dict[str, sp.csr_array]], dict[str, np.ndarray]]:
    made = {name: make_documents(60, seed) for seed, name in enumerate(("lima", "oslo", "rome"))}
    return {name: {"text": table} for name, (table, _) in made.items()}, {name: y for name, (_, y) in made.items()}


def weighed(sites: dict[str, dict[str, sp.csr_array]]) -> np.ndarray:
    table = sp.vstack([site["text"] for site in sites.values()])
    weights = inverse_document_frequencies(count_documents(table), table.shape[0]).astype(np.float16)
    return RowForm(unit=True, root=False, weights=weights).sparse(table).toarray()


@pytest.mark.parametrize("estimator", ["EFKMVC", "FedHKPerson", "FedHKDiffusion"])
def test_topics_are_found_and_new_rows_placed_by_any_estimator(federation, estimator: str, tmp_path) -> None:
    sites, topics = federation
    model = getattr(fedhk, estimator)(n_clusters=TOPICS, random_state=0).fit(sites)
    assert adjusted_rand_score(np.concatenate([*topics.values()]), np.concatenate([*model.labels_.values()])) > 0.9
    labels = model.client_models_["rome"].predict(sites["rome"])
    np.testing.assert_array_equal(labels, model.labels_["rome"])
    assert model.view_widths_ == [COLUMNS]
    assert model.n_features_in_ == COLUMNS
    model.save(tmp_path / "model.safetensors")
    loaded = fedhk.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(sites["lima"]), model.predict(sites["lima"]))
    np.testing.assert_array_equal(loaded.cluster_centers_[0], model.cluster_centers_[0])


def test_centres_are_means_of_rows_in_all_columns(federation) -> None:
    sites, _ = federation
    model = fedhk.EFKMVC(n_clusters=TOPICS, random_state=0).fit(sites)
    rows, labels = weighed(sites), np.concatenate([*model.global_labels_.values()])
    means = np.stack([rows[labels == k].mean(axis=0) for k in range(TOPICS)])
    np.testing.assert_allclose(model.cluster_centers_[0], means, atol=1e-6)
    own, here = model.client_models_["oslo"].cluster_centers_[0], model.labels_["oslo"]
    np.testing.assert_allclose(own[0], rows[60:120][here == 0].mean(axis=0), atol=1e-6)


def test_a_run_costs_less_than_one_broadcast_of_wide_centres_a_round(federation) -> None:
    sites, _ = federation
    history = fedhk.EFKMVC(n_clusters=TOPICS, random_state=0, max_rounds=4, tol=0).fit(sites).history_
    for record in history[1:-1]:  # set-up is in the first record, the sums of words in the last
        for direction in ("bytes_up", "bytes_down"):
            assert record[direction] / len(sites) < 1.1 * 8 * TOPICS * FOLDED_WIDTH


def test_one_site_alone_folds_too(federation) -> None:
    sites, topics = federation
    model = fedhk.HeatKernelMVC(n_clusters=TOPICS, random_state=0).fit(sites["oslo"])
    assert adjusted_rand_score(topics["oslo"], model.labels_) > 0.8
    np.testing.assert_array_equal(model.predict(sites["oslo"]), model.labels_)
    assert model.cluster_centers_[0].shape == (TOPICS, COLUMNS)
    counts = fedhk.HeatKernelMVC(n_clusters=TOPICS, scaling="tfidf", random_state=0).fit(sites["oslo"])
    assert adjusted_rand_score(topics["oslo"], counts.labels_) > 0.8


def test_a_view_beside_a_folded_one_is_as_ever(federation) -> None:
    sites, topics = federation
    both = {name: {**site, "size": topics[name][:, None] * [1.0, 2.0]} for name, site in sites.items()}
    model = fedhk.EFKMVC(n_clusters=TOPICS, scaling="tfidf", random_state=0).fit(both)
    assert model.view_widths_ == [COLUMNS, 2]
    assert adjusted_rand_score(np.concatenate([*topics.values()]), np.concatenate([*model.labels_.values()])) > 0.9


def test_z_scores_of_columns_are_not_folded(federation) -> None:
    sites, _ = federation
    few = {name: {"text": site["text"][:12]} for name, site in sites.items()}
    model = fedhk.EFKMVC(n_clusters=TOPICS, scaling="standard", max_rounds=1, tol=0, random_state=0).fit(few)
    assert model._model.references[0].width == COLUMNS


def test_a_run_goes_on_from_its_checkpoint(federation, tmp_path) -> None:
    sites, _ = federation
    given = {"n_clusters": TOPICS, "random_state": 0}
    whole = fedhk.EFKMVC(**given).fit(sites)
    fedhk.EFKMVC(**given, checkpoint=tmp_path).fit(sites)
    again = fedhk.EFKMVC(**given, checkpoint=tmp_path).fit(sites, resume=True)
    np.testing.assert_array_equal(again.cluster_centers_[0], whole.cluster_centers_[0])


@pytest.mark.parametrize(
    ("words", "counts", "rows"),
    [([3, 2], [1, 1], 5), ([2, 3], [1, 6], 5), ([2, 3], [0, 1], 5), ([2, 9], [1, 1], 5), ([-1, 3], [1, 1], 5)],
)
def test_counts_that_no_rows_can_have_are_refused(words, counts, rows: int) -> None:
    phase = FoldViews({"text": (9, None)}, None)
    reply = FoldReply({"text": WordCounts(rows, False, np.array(words, np.int32), np.array(counts, np.uint8))})
    with pytest.raises(MessageError, match="counts of words"):
        phase.check(Board(), reply, "oslo")


@pytest.mark.parametrize(
    ("places", "values", "rows"),
    [
        ([0, 30], [1.0, 1.0], [1.0, 1.0]),
        ([4, 3], [1.0, 1.0], [1.0, 1.0]),
        ([0], [np.nan], [1.0, 1.0]),
        ([0], [1.0], [1.0]),
    ],
)
def test_sums_that_no_rows_can_have_are_refused(places, values, rows) -> None:
    sums = WideSums(np.array(places, np.int32), np.array(values, np.float32), np.array(rows))
    with pytest.raises(MessageError, match="sums of rows by cluster"):
        sums.check(2, 10, "oslo")


def test_questions_after_the_fit_are_answered(federation) -> None:
    sites, _ = federation
    model = fedhk.FedHKPerson(n_clusters=TOPICS, random_state=0).fit(sites)
    placed = fedhk.place(model, sites["lima"])
    np.testing.assert_array_equal(placed.labels, model.predict(sites["lima"]))
    assert placed.reasons(0)[0][1].startswith("folded ")
    again = model.personalize(sites["oslo"]).predict(sites["oslo"])
    np.testing.assert_array_equal(again, model.client_models_["oslo"].predict(sites["oslo"]))
    assert "clusters" in model._repr_html_()


def test_folded_rows_have_the_folded_width(federation) -> None:
    sites, _ = federation
    model = fedhk.EFKMVC(n_clusters=TOPICS, random_state=0).fit(sites)
    assert [part.shape[1] for part in model._model.parameters.centers] == [FOLDED_WIDTH]
