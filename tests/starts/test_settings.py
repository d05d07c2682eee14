"""Settings: the start is drawn or given, and has the form that was asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhk.data.scaling import make_scaling
from fedhk.data.views import check_views
from fedhk.errors import DataError
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.starts.settings import Settings, collect_parts
from fedhk.tensors import LowRankForm, LowRankParameters

SETTINGS = Settings(3, "uniform", make_scaling("standard"), 0.3, 1.1, "uniform", 2.0, "k-means++", 2)
FORM = LowRankForm("tucker", (2, 2, 2))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    which = rng.integers(3, size=60)
    views = check_views([4 * rng.normal(size=(3, width))[which] + rng.normal(size=(60, width)) for width in (5, 4)])
    return Rows(views, prepare(views, "standard", "uniform", None))


def test_centres_are_free_unless_a_form_is_given(rows):
    plain = SETTINGS.start(rows, np.random.RandomState(0), 1)
    formed = replace(SETTINGS, form=FORM).start(rows, np.random.RandomState(0), 1)
    assert type(plain) is Parameters
    assert type(formed) is LowRankParameters
    assert formed.form.rank == (2, 2, 2)


def test_a_drawn_start_is_constrained_by_what_its_centres_matter(rows):
    plain = SETTINGS.start(rows, np.random.RandomState(0), 1)
    statistics = collect_parts(rows, plain, 2, 1)
    expected = FORM.constrain(plain, rows.views.names, lambda: statistics)
    found = replace(SETTINGS, form=FORM).start(rows, np.random.RandomState(0), 1)
    for one, other in zip(found.centers, expected.centers, strict=True):
        np.testing.assert_array_equal(one, other)


def test_given_centres_are_constrained_alike_at_one_site_and_at_many(rows):
    given = replace(SETTINGS, init=tuple(np.asarray(table)[:3] for table in rows.views.tables), form=FORM)
    one = given.start(rows, np.random.RandomState(0), 1)
    many = given.given_start(rows.references, rows.views.names)
    for a, b in zip(one.centers, many.centers, strict=True):
        np.testing.assert_array_equal(a, b)


def test_given_centres_of_other_views_are_refused(rows):
    given = replace(SETTINGS, init=(np.zeros((3, 5)), np.zeros((3, 9))))
    with pytest.raises(DataError, match=r"init has centres with \[5, 9\] features"):
        given.given_start(rows.references, rows.views.names)
