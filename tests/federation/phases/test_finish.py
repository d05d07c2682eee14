"""Finish: the objective at the final parameters, and what clusters are made of, are sums over all rows."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from federations import assert_same_model, make_plan, parameters_of, read_reply, run_sites, with_field
from fedhk import Personalization, datasets
from fedhk.data.views import check_views
from fedhk.federation.entries import FinalParameters, References, Result, Space, Summary
from fedhk.model.cluster_summary import summarise_clusters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows

LIAR = "oslo"


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(4, 30, n_clusters=3, n_features=(3, 4), random_state=3)
    return dict(zip(["bern", LIAR, "rome", "turin"], data.sites.values(), strict=True))


def summarised(**changes):
    return make_plan(max_rounds=3, personal=Personalization(), **changes)


def lying(change):
    return lambda site, phase, _, answer: change(answer) if (site, phase) == (LIAR, "finish") else answer


def pooled_rows(sites, run):
    views = check_views([np.vstack(parts) for parts in zip(*sites.values(), strict=True)])
    return Rows(views, run.board.get(References).references)


@pytest.mark.parametrize("heat_coef", ["uniform", "absdev"])
@pytest.mark.parametrize("protocol", ["statistics", "cores", "centers"])
def test_the_objective_is_that_of_all_rows_at_the_final_parameters(sites, protocol, heat_coef):
    run, _ = run_sites(make_plan(max_rounds=3, protocol=protocol, heat_coef=heat_coef), sites)
    rows, parameters = pooled_rows(sites, run), parameters_of(run)
    with Passes(rows, 3) as scan:
        assert run.board.get(Result).objective == pytest.approx(scan.assign(parameters)[2], rel=1e-9)
    assert run.board.get(Result).rows == rows.n_rows


def test_the_summary_is_that_of_all_rows(sites):
    run, _ = run_sites(summarised(), sites)
    rows, parameters = pooled_rows(sites, run), parameters_of(run)
    with Passes(rows, 3) as scan:
        labels, masses = scan.assign(parameters)[1], scan.statistics(parameters).masses
    expected = replace(summarise_clusters(rows, parameters, labels), counts=masses).to_array()
    assert_allclose(run.board.get(Summary).summary.to_array(), expected, rtol=1e-9)


def test_without_own_models_nothing_but_objective_rows_and_sums_per_cluster_is_sent(sites):
    plan = make_plan(max_rounds=1)
    run, engine = run_sites(plan, sites)
    assert not run.board.has(Summary)
    c, views = run.board.get(FinalParameters).parameters.n_clusters, len(run.board.get(Space).widths)
    assert read_reply(engine.received[-1][LIAR]).values.shape == (2 + c * (views + 3),)
    assert read_reply(engine.received[-1][LIAR]).values[1] == len(sites[LIAR][0])


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


LIES = {
    "NaN": (put(0, np.nan), "NaN or infinite"),
    "huge": (put(0, 1e300), "objective"),
    "negative": (put(0, -1.0), "below zero"),
    "rows beyond counting": (put(1, 1e300), "rows is not possible"),
    "a number less": (lambda a: a[:-1], "sums have shape"),
    "a table": (lambda a: a[:, None], "sums have shape"),
    "whole numbers": (lambda a: a.astype(np.int64), "type int64"),
    "more rows in clusters than there are": (put(2, 1e6), "more rows than"),
    "rows further out than any row": (put(-1, 1e30), "further from their centres|more rows than"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_as_no_answer(sites, lie):
    change, reason = LIES[lie]
    run, _ = run_sites(summarised(), sites, tamper=lying(with_field("values", change)))
    away, _ = run_sites(summarised(), sites, tamper=lying(lambda _: None))
    assert_same_model(run, away)
    assert run.history[-1]["refused"][LIAR] != away.history[-1]["refused"][LIAR]
    assert re.search(reason, run.history[-1]["refused"][LIAR]), run.history[-1]["refused"]


def test_a_site_that_says_an_impossible_makeup_is_refused_and_the_others_go_on(sites):
    run, _ = run_sites(summarised(), sites, tamper=lying(with_field("values", lambda a: put(2, a[2] + 1e6)(a))))
    honest, _ = run_sites(summarised(), sites)
    assert "more rows than" in run.history[-1]["refused"][LIAR]
    n_rows = {name: len(views[0]) for name, views in sites.items()}
    assert honest.board.get(Summary).summary.seen.max() == sum(n_rows.values())
    assert run.board.get(Summary).summary.seen.max() == sum(n_rows.values()) - n_rows[LIAR]
