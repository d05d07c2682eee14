"""Secure sums give what plain sums give; sites that are lost are named and missed; too few stop the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from federations import Stop
from fedhk import EFKMVC, FedHKPerson, datasets
from fedhk.errors import FedHKError, MessageError, QuorumError
from fedhk.federation.entries import Broadcast
from fedhk.federation.phases.scales import MomentsRequest, SumMoments
from fedhk.federation.phases.sum_rounds import MaskedRoundRequest, MaskedRounds
from fedhk.federation.sealed.messages import ExactSum, Header, Numbers
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.privacy.secure_site import OUT_OF_ORDER, SecureSite
from fedhk.privacy.secure_sum import InputRequest, MaskReply
from sealed_runs import LoneSite, make_parameters, plain_reference, scales, spied_fit, step_of, with_reply

N_CLUSTERS, WIDTHS = 3, (3, 4)


def rows(seed=0, n_rows=90):
    """Clusters of rows whose features all reach from -4 to 4: powers of two, which ranges under masks find exactly."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-2.5, 2.5, (N_CLUSTERS, sum(WIDTHS)))
    joint = np.clip(centers[rng.integers(N_CLUSTERS, size=n_rows)] + 0.7 * rng.normal(size=(n_rows, 7)), -4, 4)
    joint[np.arange(7), np.arange(7)], joint[np.arange(7, 14), np.arange(7)] = -4.0, 4.0
    return joint, [np.ascontiguousarray(part) for part in np.split(centers, [3], axis=1)]


def split(joint, ends, change=lambda _, views: views):
    parts = np.split(joint, ends)
    return {f"s{i}": change(i, [part[:, :3].copy(), part[:, 3:].copy()]) for i, part in enumerate(parts)}


def with_holes(i, views):
    rng = np.random.default_rng(i)
    views[0][rng.random(views[0].shape) < 0.2] = np.nan
    return [views[0], None if i == 1 else views[1]]


def fits(sites, start, **options):
    # units are named: they are chosen in the open only
    common = {
        "init": start,
        "scaling": "standard",
        "fuzzifier": 1.1,
        "view_weights": "uniform",
        "max_rounds": 6,
        "tol": 0,
    }
    options = common | options
    return EFKMVC(N_CLUSTERS, **options).fit(sites), EFKMVC(N_CLUSTERS, **options, secure=True).fit(sites)


def assert_same(plain, secure, atol=1e-8):
    for one, other in zip(plain.cluster_centers_, secure.cluster_centers_, strict=True):
        assert_allclose(other, one, atol=atol)
    assert_allclose(secure.view_weights_, plain.view_weights_, atol=atol)
    assert secure.objective_ == pytest.approx(plain.objective_, rel=1e-8)
    assert secure.n_iter_ == plain.n_iter_
    for site, labels in plain.labels_.items():
        assert_array_equal(secure.labels_[site], labels)


@pytest.mark.parametrize("ends", [[30, 60], [1, 3, 80], [20, 20, 40, 60], list(range(8, 90, 8))])
def test_any_split_under_masks_gives_what_plain_sums_give(ends):
    joint, start = rows()
    assert_same(*fits(split(joint, ends), start))


VARIANTS = {
    "missing cells and views": (with_holes, {}),
    "sparse": (lambda _, views: [sp.csr_array(np.where(np.abs(views[0]) > 1, views[0], 0.0)), views[1]], {}),
    "sparse, rows of length 1": (lambda _, views: [sp.csr_array(np.maximum(views[0], 0)), views[1]], {"scaling": "l2"}),
    "rows of length 1": (lambda _, views: views, {"scaling": "l2"}),
    "between 0 and 1": (lambda _, views: views, {"scaling": "minmax"}),
    "minmax": (lambda _, views: views, {"heat_coef": "minmax"}),
    "minmax, missing cells": (with_holes, {"heat_coef": "minmax", "tol": 1e-5, "max_rounds": 30}),
    "absdev": (lambda _, views: views, {"heat_coef": "absdev"}),
    "no scaling": (lambda _, views: views, {"scaling": "none"}),
    "learned weights": (with_holes, {"view_weights": "learned"}),
    "single precision": (lambda _, views: [view.astype(np.float32) for view in views], {}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_whatever_the_rows_are_masks_change_nothing(variant):
    change, options = VARIANTS[variant]
    joint, start = rows(1)
    joint = joint[::-1]  # the ends of the ranges are at a site that keeps all its cells
    sites = split(joint, [30, 60], lambda i, views: views if i == 2 and change is with_holes else change(i, views))
    assert_same(*fits(sites, start, **options))


@pytest.mark.parametrize(("size", "offset"), [(1e-7, 0.0), (1e9, 0.0), (1.0, 3000.0)])
def test_units_far_from_one_lose_few_digits(size, offset):
    joint, start = rows(2)
    sites = split(size * (offset + joint), [30, 60])
    plain, secure = fits(sites, [size * (offset + part) for part in start])
    for one, other in zip(plain.cluster_centers_, secure.cluster_centers_, strict=True):
        assert_allclose(other / size, one / size, atol=1e-5)


def test_a_feature_that_varies_by_a_millionth_of_itself_is_not_taken_for_constant():
    joint, start = rows(3)
    joint[:, 0] = 1e9 + 1e3 * joint[:, 0]
    start[0][:, 0] = 1e9 + 1e3 * start[0][:, 0]
    plain, secure = fits(split(joint, [30, 60]), start)
    assert_allclose(secure.cluster_centers_[0][:, 0], plain.cluster_centers_[0][:, 0], atol=10.0)
    assert np.ptp(secure.cluster_centers_[0][:, 0]) > 1e3


def test_sites_of_a_million_rows_fit_in_the_sums():
    """Rows that are all there is to a sum: the counts of a million rows at each of ten sites."""
    table = np.zeros((1_000_000, 1), np.float32)
    table[1::2] = 1.0
    model = EFKMVC(2, secure=True, init=[np.array([[0.0], [1.0]])], max_rounds=1, tol=0)
    model.fit({f"s{i}": [table if i < 2 else table[:10]] for i in range(10)})
    assert all(record["refused"] == {} for record in model.history_)
    assert_allclose(model.cluster_centers_[0], [[0.0], [1.0]], atol=1e-6)


def test_own_models_under_masks_are_those_of_plain_sums():
    joint, start = rows(4)
    options = {"init": start, "fuzzifier": 1.1, "view_weights": "uniform", "max_rounds": 3, "tol": 0}
    options |= {"protocol": "statistics", "personalization": 0.5}
    plain, secure = (FedHKPerson(3, **options, secure=s).fit(split(joint, [30, 60])) for s in (False, True))
    for site, labels in plain.labels_.items():
        assert_array_equal(secure.labels_[site], labels)
        own, other = (m.client_models_[site].cluster_centers_ for m in (plain, secure))
        assert_allclose(np.hstack(other), np.hstack(own), atol=1e-6)


def test_a_start_from_sums_alone_finds_the_clusters():
    data = datasets.make_sites(5, 60, n_clusters=3, n_features=(3, 4), shift=0, scale=0, random_state=0)
    model = EFKMVC(3, secure=True, random_state=0, n_init=3).fit(data.sites)
    found, labels = (np.concatenate(list(part.values())) for part in (model.labels_, data.site_labels))
    assert adjusted_rand_score(labels, found) > 0.95


# -------------------------------------------------------------------------------------------------------- dropouts


@pytest.fixture(scope="module")
def sites():
    joint, _ = rows(5, 84)
    return split(joint, np.arange(12, 84, 12))  # seven sites, of which five are needed


START = rows(5, 84)[1]


def make_model(**changes):
    options = {"init": START, "fuzzifier": 1.1, "view_weights": "uniform", "max_rounds": 2, "tol": 0, "secure": True}
    return EFKMVC(N_CLUSTERS, **options | changes)


@pytest.mark.parametrize("step", ["keys", "shares", "input", "unmask"])
@pytest.mark.parametrize("kind", ["ranges", "masked round"])
def test_two_of_seven_sites_may_drop_out_at_any_step_and_are_named(kind, step, sites, monkeypatch):
    gone = ["s2", "s5"]
    monkeypatch.setattr("fedhk.federation.sealed.masks.SUMS_PER_SESSION", 1)

    def down(site, request):
        return site in gone and request.kind == f"sealed.{kind}" and step_of(request) == step

    model, _ = spied_fit(monkeypatch, make_model(), sites, down=down)
    records = model.history_[:1] if kind == "ranges" else model.history_
    for record in records:
        assert sorted(record["refused"]) == gone
        assert all("down" in reason for reason in record["refused"].values())
    if kind == "ranges":
        assert all(record["refused"] == {} for record in model.history_[1:])
    assert np.isfinite(np.hstack(model.cluster_centers_)).all()
    if step == "unmask":  # a sum is over all whose numbers came
        expected = make_model(secure=False).fit(sites)
        assert_allclose(np.hstack(model.cluster_centers_), np.hstack(expected.cluster_centers_), atol=1e-8)


def test_a_site_that_missed_a_sum_is_in_the_next(sites, monkeypatch):
    def down(site, request):
        return site == "s3" and request.kind == "sealed.ranges" and step_of(request) == "input"

    model, _ = spied_fit(monkeypatch, make_model(), sites, down=down)
    # the values of the other sites have the same ranges
    assert_allclose(
        np.hstack(model.cluster_centers_),
        np.hstack(make_model(secure=False).fit(sites).cluster_centers_),
        atol=1e-8,
    )
    assert list(model.history_[0]["refused"]) == ["s3"]


@pytest.mark.parametrize("step", ["keys", "shares", "input", "unmask"])
def test_below_the_threshold_the_run_stops_and_says_how_many_there_were(step, sites, monkeypatch):
    gone = {"s1", "s2", "s3"}
    monkeypatch.setattr("fedhk.federation.sealed.masks.SUMS_PER_SESSION", 1)

    def down(site, request):
        return site in gone and request.kind == "sealed.masked round" and step_of(request) == step

    with pytest.raises(
        QuorumError, match=rf"In phase 'sealed.masked round' .*'{step}'.*: 4 sites answered, 5 are needed.*s1: .*down"
    ):
        spied_fit(monkeypatch, make_model(), sites, down=down)


def test_a_threshold_of_all_sites_needs_all(sites, monkeypatch):
    model = make_model(secure=SecureSummation(threshold=7))
    with pytest.raises(QuorumError, match="6 sites answered, 7 are needed"):
        spied_fit(monkeypatch, model, sites, down=lambda site, r: site == "s0" and step_of(r) == "input")
    model.fit(sites)


def test_a_site_that_was_not_there_at_the_start_is_left_out_of_the_run(sites, monkeypatch):
    model, spy = spied_fit(
        monkeypatch, make_model(), sites, down=lambda site, request: site == "s0" and request.kind == "schema"
    )
    assert not any(site == "s0" for site, request in spy.requests if request.kind not in ("schema", "deliver"))
    assert list(model.history_[0]["refused"]) == ["s0"]


# ------------------------------------------------------------------------------------------------------------- lies


def lying(change, step="input"):
    def tamper(site, request, answer):
        if (
            site != "s4"
            or request.kind != "sealed.masked round"
            or step_of(request) != step
            or not isinstance(answer, bytes)
        ):
            return answer
        return change(answer)

    return tamper


def with_masked(change):
    return with_reply(lambda reply: replace(reply, masked=change(reply.masked)))


LIES = {
    "another length": (with_masked(lambda masked: masked[1:]), "'masked' is uint64 of shape"),
    "NaN": (with_masked(lambda masked: np.full(masked.shape, np.nan)), "'masked' is float64"),
    "nothing": (with_reply(lambda reply: MaskReply(reply.session)), "'MaskReply' is no answer to the step 'input'"),
    "garbage": (lambda _: b"garbage", "not a FedHK message"),
    "in the open": (
        with_reply(lambda _: Numbers(np.zeros(3, np.int64))),
        "sums in the open, where masked ones were asked for",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_masked_sum_is_refused_by_name_and_the_others_go_on(lie, sites, monkeypatch):
    change, reason = LIES[lie]
    model, _ = spied_fit(monkeypatch, make_model(), sites, tamper=lying(change))
    away, _ = spied_fit(monkeypatch, make_model(), sites, tamper=lying(lambda _: TimeoutError("no answer")))
    assert_allclose(np.hstack(model.cluster_centers_), np.hstack(away.cluster_centers_), atol=1e-12)
    for record in model.history_:
        assert list(record["refused"]) == ["s4"]
        assert reason in record["refused"]["s4"]


def test_masked_numbers_that_are_none_break_the_range_of_the_sum(sites, monkeypatch):
    """One lie in 2^62 would pass; what it does then is bounded by nothing, as `secure_sum` says."""
    wild = with_masked(lambda masked: masked + np.uint64(2**63))
    with pytest.raises(FedHKError, match=r"beyond|within|bound|range"):
        spied_fit(monkeypatch, make_model(), sites, tamper=lying(wild))


def test_without_masks_numbers_that_cannot_be_added_are_refused(monkeypatch):
    joint, start = rows(6)
    model = EFKMVC(3, init=start, privacy=DifferentialPrivacy(50.0, 1e-4, (-4, 4), rounds=2))

    def tamper(site, request, answer):
        if site != "s1" or request.kind != "sealed.noisy round":
            return answer
        return with_reply(lambda reply: Numbers(np.full(reply.values.shape, 2**62)))(answer)

    model, _ = spied_fit(monkeypatch, model, split(joint, [30, 60]), tamper=tamper)
    assert model.history_[0]["refused"] == {"s1": "numbers that are too large to be added"}
    assert model.history_[0]["clients"] == 2


# --------------------------------------------------------------------------------------------- sites by themselves


ROUND = MaskedRoundRequest(Broadcast.of(make_parameters([np.zeros((2, 2))])), (False,))
SCALES = scales([plain_reference(2)])


def make_site(table=None, **options):
    rows = np.arange(8.0).reshape(4, 2) if table is None else table
    return LoneSite([rows], **{"masks": SecureSite("oslo")} | options)


def test_a_site_gives_masked_sums_only():
    step = ExactSum(2.0**-30)
    with pytest.raises(MessageError, match="asks for sums in the open, this site gives masked ones only"):
        make_site().ask(MaskedRounds, ROUND, *SCALES, header=Header(None, step))
    masked = Header(InputRequest("session", 0, 7), step)
    with pytest.raises(MessageError, match="this site was not set up for them"):
        make_site(masks=None).ask(MaskedRounds, ROUND, *SCALES, header=masked)
    with pytest.raises(MessageError, match=OUT_OF_ORDER):
        make_site().ask(MaskedRounds, ROUND, *SCALES, header=masked)


def test_values_beyond_the_grid_are_refused_by_the_site_with_what_to_change_and_without_the_value():
    site = make_site(np.array([[1.0, 2.0**41]]))
    site.site.board = site.site.board.put(*SCALES)
    request = MomentsRequest((2,), -np.ones(2), np.ones(2), unit_rows=False)
    with pytest.raises(MessageError, match=r"no room for: up to 2\^40 in size. Rescale the view"):
        SumMoments.vector(site.site, request)
    SumMoments.vector(site.site, replace(request, unit_rows=True))


# ------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("last", [1, 2, 3, 5, 6, 8, 11, 12])
def test_a_masked_run_that_stops_goes_on_to_the_same_result(last, tmp_path, monkeypatch):
    joint, start = rows(7)
    parts = split(joint, [30, 60])
    options = {"init": start, "fuzzifier": 1.1, "max_rounds": 3, "tol": 0, "secure": True, "heat_coef": "minmax"}
    expected = EFKMVC(3, **options).fit(parts)

    def tamper(_, request, answer):
        if request.round == last:
            raise Stop
        return answer

    model = EFKMVC(3, **options, checkpoint=tmp_path)
    with pytest.raises(Stop):
        spied_fit(monkeypatch, model, parts, tamper=tamper)
    model.fit(parts, resume=True)
    assert_allclose(np.hstack(model.cluster_centers_), np.hstack(expected.cluster_centers_), atol=1e-12)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-12)
    assert [r["objective"] for r in model.history_] == pytest.approx([r["objective"] for r in expected.history_])
