from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.embedding.diffusion import DiffusionSettings
from fedhk.errors import DataError, MessageError
from fedhk.federation.diffusion import (
    answer,
    as_matrix,
    begin,
    hear,
    hear_diffusion,
    pack_stage,
    read,
    site_count,
    start_rows,
    sums,
    take,
    tell,
    told_diffusion,
    unpack_stage,
)
from fedhk.federation.messages import Message, decode, encode
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.privacy.fixed_point import to_grid
from fedhk.starts.candidates import candidate_rows, site_candidates
from fedhk.starts.seeding import take as take_rows

SMALL = DiffusionSettings(n_anchors=40)


def sent(kind, arrays, values, site="oslo"):
    return decode(encode(Message(kind, site, 0, arrays, values)))


def make_rows(n=240, *, seed=0, missing=False, apart=5.0):
    n_clusters, widths = 3, (4, 3)
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_clusters, size=n)
    views = [apart * rng.normal(size=(n_clusters, width))[labels] + rng.normal(size=(n, width)) for width in widths]
    if missing:
        views[0][rng.random(views[0].shape) < 0.1] = np.nan
        views[1][rng.random(n) < 0.2] = np.nan
    checked = check_views(views)
    return Rows(checked, prepare(checked, "standard", "uniform", None)), labels


def started(rows, n_clusters=3, chosen=SMALL):
    found = site_candidates(rows, 100, np.random.RandomState(0))
    candidates = candidate_rows([found], rows.references, rows.views.names)
    return begin(candidates, rows.references, n_clusters, rows.n_rows, chosen, seed=0)


def conducted(stage, sites, n_clusters=3):
    """The stage at its end, over encoded messages, with the sites in the order of their names."""
    held = {}
    while not stage.done:
        answers = []
        for name in sorted(sites):
            request = sent("diffuse", *tell(stage, holds=name in held), name)
            held[name] = hear(held.get(name), sites[name], request)
            answers.append(read(stage, sent("diffuse", *answer(held[name], request), name)))
        stage = take(stage, answers, n_clusters)
    return stage, held


@given(
    seed=st.integers(0, 10_000),
    apart=st.sampled_from([0.0, 1.0, 9.0]),
    n_sites=st.integers(1, 8),
    missing=st.booleans(),
    whole=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_any_split_gives_what_pooled_rows_give(seed, apart, n_sites, missing, whole):
    rows, _ = make_rows(seed=seed, missing=missing, apart=apart)
    stage = started(rows)
    if whole:
        stage = replace(stage, directions=stage.directions[:, :0])
    pooled, _ = conducted(stage, {"all": rows})
    owner = np.random.default_rng(seed).integers(n_sites, size=rows.n_rows)
    sites = {f"site-{i}": take_rows(rows, np.flatnonzero(owner == i)) for i in range(n_sites)}
    split, _ = conducted(stage, sites)
    assert_allclose(split.diffusion.values, pooled.diffusion.values, atol=1e-8)
    assert_allclose(split.diffusion.embed(rows), pooled.diffusion.embed(rows), atol=1e-8)


def test_the_gram_matrix_and_directions_lead_to_one_embedding():
    rows, _ = make_rows(apart=1.0)
    exact = replace(SMALL, tol=1e-7, max_exchanges=30)
    stage = started(rows, 3, exact)
    assert not stage.asks_gram
    by_directions, _ = conducted(stage, {"all": rows})
    by_gram, _ = conducted(replace(stage, directions=stage.directions[:, :0]), {"all": rows})
    assert_allclose(by_directions.diffusion.values[:3], by_gram.diffusion.values[:3], atol=1e-6)
    # what is sent in half precision is off by a thousandth
    assert_allclose(by_directions.diffusion.embed(rows), by_gram.diffusion.embed(rows), atol=5e-3)


def test_the_gram_matrix_is_asked_for_where_it_is_smaller():
    rows, _ = make_rows()
    few, many = started(rows, 3), started(rows, 40)
    assert not few.asks_gram
    assert many.asks_gram
    assert many.size == many.graph.n_columns * (many.graph.n_columns + 1) // 2


def test_sites_embed_rows_as_the_server_does_and_new_rows_alike():
    rows, _ = make_rows(missing=True)
    sites = {"a": take_rows(rows, np.arange(100)), "b": take_rows(rows, np.arange(100, 240))}
    stage, held = conducted(started(rows), sites)
    request = sent("round", *told_diffusion(stage, holds=True))
    _, diffusion = hear_diffusion(held["a"], sites["a"], request)
    assert_array_equal(diffusion.embed(sites["a"]), stage.diffusion.embed(sites["a"]))
    assert_allclose(diffusion.embed(take_rows(rows, np.array([3]))), stage.diffusion.embed(rows)[3:4], atol=1e-12)
    late = sent("round", *told_diffusion(stage, holds=False))
    _, joined = hear_diffusion(None, sites["b"], late)
    assert_array_equal(joined.embed(sites["b"]), diffusion.embed(sites["b"]))


def test_stand_ins_are_near_the_clusters_that_rows_are_in():
    rows, labels = make_rows(n=600)
    stage, _ = conducted(started(rows), {"all": rows})
    embedding = stage.diffusion.embed(rows)
    centres = np.stack([embedding[labels == k].mean(axis=0) for k in range(3)])
    stand_ins = start_rows(stage).views.tables[0]
    assert np.mean((stand_ins @ centres.T).max(axis=1)) > 0.9


def test_a_site_with_two_rows_one_without_rows_in_a_view_and_duplicates_take_part():
    rows, _ = make_rows()
    two = take_rows(rows, np.array([0, 1]))
    lacking = take_rows(rows, np.arange(50))
    lacking = replace(lacking, views=replace(lacking.views, tables=(lacking.views.tables[0], None)))
    same = take_rows(rows, np.zeros(30, int))
    stage, _ = conducted(started(rows), {"two": two, "lacking": lacking, "same": same, "rest": rows})
    for part in (two, lacking, same):
        assert_allclose(np.linalg.norm(stage.diffusion.embed(part), axis=1), 1.0)


def test_the_number_of_clusters_is_found_by_the_eigengap():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 60)
    checked = check_views([20.0 * np.eye(4)[labels] + rng.normal(size=(240, 4))])
    rows = Rows(checked, prepare(checked, "standard", "uniform", None))
    stage, _ = conducted(started(rows, None), {"a": take_rows(rows, np.arange(0, 240, 2)), "b": rows}, None)
    assert stage.diffusion.n_components == 4


def test_too_few_different_rows_for_the_clusters_is_an_error_with_both_numbers():
    checked = check_views([np.repeat([[0.0], [1.0]], 20, axis=0)])
    rows = Rows(checked, prepare(checked, "standard", "uniform", None))
    with pytest.raises(DataError, match=r"n_clusters=9.*2 different anchors"):
        started(rows, 9)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda values: values[:-1], "shape"),
        (lambda values: np.full_like(values, np.nan), "NaN"),
        (lambda values: -values, "below zero"),
        (lambda values: np.where(np.arange(values.size) % 5 == 1, 1e6, values), "larger than"),
        (lambda values: values.astype(np.float32), "dtype"),
    ],
)
def test_sums_that_no_rows_have_are_refused(change, reason):
    rows, _ = make_rows()
    stage = started(rows)
    request = sent("diffuse", *tell(stage, holds=False))
    honest, _ = answer(hear(None, rows, request), request)
    with pytest.raises(MessageError, match=reason):
        read(stage, sent("diffuse", {"sum": change(honest["sum"])}, {}))


def test_a_later_answer_larger_than_all_rows_can_give_is_refused():
    rows, _ = make_rows()
    stage = started(rows, 3, replace(SMALL, tol=0.0))
    request = sent("diffuse", *tell(stage, holds=False))
    stage = take(stage, [read(stage, sent("diffuse", *answer(hear(None, rows, request), request)))], 3)
    assert not stage.done
    with pytest.raises(MessageError, match="larger than"):
        read(stage, sent("diffuse", {"sum": np.full(stage.size, 1e5)}, {}))


def test_a_site_says_what_it_lacks_and_what_does_not_fit():
    rows, _ = make_rows()
    stage = started(rows)
    with pytest.raises(MessageError, match="before anchors came"):
        hear(None, rows, sent("diffuse", *tell(stage, holds=True)))
    request = sent("diffuse", *tell(stage, holds=False))
    other = replace(rows, references=rows.references[:1], views=check_views([rows.views.tables[0]]))
    with pytest.raises(MessageError, match="4 features"):
        hear(None, other, request)
    held = hear(None, rows, request)
    with pytest.raises(MessageError, match="before the embedding came"):
        hear_diffusion(held, rows, sent("round", {}, {}))
    with pytest.raises(MessageError, match="directions must be"):
        sums(held, sent("diffuse", {"directions": np.ones((3, 2))}, {}))


def test_a_checkpoint_holds_the_stage():
    rows, _ = make_rows()
    stage = started(rows, 3, replace(SMALL, tol=0.0, max_exchanges=3))
    request = sent("diffuse", *tell(stage, holds=False))
    stage = take(stage, [read(stage, sent("diffuse", *answer(hear(None, rows, request), request)))], 3)
    message = sent("checkpoint", *pack_stage(stage))
    again = unpack_stage(message.arrays, message.values, stage.settings)
    ended, _ = conducted(stage, {"all": rows})
    resumed, _ = conducted(again, {"all": rows})
    assert_array_equal(resumed.diffusion.projection, ended.diffusion.projection)
    assert_array_equal(start_rows(resumed).views.tables[0], start_rows(ended).views.tables[0])


def test_an_answer_is_one_vector_that_masks_can_sum():
    """On the grid of a sealed sum, the total of the sites is that of the pooled rows."""
    rows, _ = make_rows()
    stage = started(rows)
    request = sent("diffuse", *tell(stage, holds=False))
    parts = [take_rows(rows, np.arange(0, 90)), take_rows(rows, np.arange(90, 240))]
    step = 2.0**-30
    total = sum(to_grid(sums(hear(None, part, request), request), step) for part in parts) * step
    assert total.shape == (stage.size,)
    assert_allclose(total, sums(hear(None, rows, request), request), atol=1e-6)
    assert take(stage, [as_matrix(stage, total)], 3).known[0][1].shape == stage.directions.shape


def test_candidates_are_asked_for_in_proportion_to_the_rows():
    assert [site_count(n, 0.3) for n in (1000, 101, 2)] == [300, 31, 10]
