"""Local coefficients: each site has the ranges or the means of its own rows, and tells nobody (`eqn:fed_delta`)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from federations import make_plan, run_sites
from fedhk import EFKMVC, FedHKPerson, HeatKernelMVC, datasets, reference
from fedhk.federation.entries import Population
from fedhk.model.rows import joint_rows, split_joint
from fedhk.privacy import DifferentialPrivacy

RULES = ("minmax-local", "absdev-local")
LETTER = {"minmax-local": reference.minmax_coefficient, "absdev-local": reference.absdev_coefficient}


@pytest.fixture(scope="module")
def sites():
    return datasets.make_sites(3, 40, n_clusters=3, n_features=(4, 3), shift=2.0, random_state=0).sites


@pytest.mark.parametrize("rule", RULES)
def test_coefficients_are_those_of_each_client_alone(sites, rule):
    run, engine = run_sites(make_plan(heat_coef=rule, max_rounds=2), sites)
    for site in engine.states.values():
        rows = site.rows()
        for view, values in enumerate(split_joint(joint_rows(rows), rows.widths)):
            found = rows.references[view].coefficients(values)
            assert_allclose(found, LETTER[rule](values), atol=1e-5)
    # the extremes of a site are values of single rows: they stay there
    assert all(np.isnan(moments.low).all() for moments in run.board.get(Population).moments)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("estimator", [EFKMVC, FedHKPerson])
def test_a_sites_own_model_keeps_them(sites, rule, estimator):
    model = estimator(3, heat_coef=rule, n_init=2, random_state=0).fit(sites)
    for site, views in sites.items():
        own = model.client_models_[site]
        assert_array_equal(own.predict(views), model.labels_[site])
        # one row alone has no range of its own; it is placed by those of the site
        assert own.predict([view[:1] for view in views]) == model.labels_[site][:1]
    if estimator is EFKMVC:
        objectives = [record["objective"] for record in model.history_]
        assert np.all(np.diff(objectives) <= 1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_at_one_site_they_are_the_pooled_ones(sites, rule):
    views, settings = sites["site-00"], {"n_init": 2, "random_state": 0}
    local = HeatKernelMVC(3, heat_coef=rule, **settings).fit(views)
    pooled = HeatKernelMVC(3, heat_coef=rule.removesuffix("-local"), **settings).fit(views)
    assert local.objective_ == pooled.objective_
    assert_array_equal(local.labels_, pooled.labels_)


@pytest.mark.parametrize("rule", RULES)
def test_they_are_refused_with_noise(sites, rule):
    privacy = DifferentialPrivacy(5.0, 1e-5, bounds=(-10.0, 10.0))
    with pytest.raises(ValueError, match=f"heat_coef='uniform' or 'minmax', got '{rule}': with a site's own"):
        EFKMVC(3, heat_coef=rule, privacy=privacy).fit(sites)
