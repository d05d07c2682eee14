"""`make_hospitals`: six sites that differ, two without a view."""

from __future__ import annotations

import numpy as np

from fedhk.data.hospitals import HOSPITALS, MISSING_VIEWS, VIEW_WIDTHS
from fedhk.datasets import make_hospitals, make_sites


def test_sites_have_their_views_but_for_those_they_lack():
    data = make_hospitals(50)
    assert tuple(data.sites) == HOSPITALS
    for site, views in data.sites.items():
        for (name, width), view in zip(VIEW_WIDTHS.items(), views, strict=True):
            lacks = MISSING_VIEWS.get(site) == name
            assert (view is None) == lacks
            assert lacks or view.shape == (len(data.site_labels[site]), width)


def test_pooled_rows_are_those_of_the_sites_with_nan_for_what_a_site_lacks():
    data = make_hospitals(50)
    ends = np.cumsum([len(labels) for labels in data.site_labels.values()])[:-1]
    np.testing.assert_array_equal(data.labels, np.concatenate(list(data.site_labels.values())))
    for h, view in enumerate(data.views):
        for part, views in zip(np.split(view, ends), data.sites.values(), strict=True):
            np.testing.assert_array_equal(part, np.full_like(part, np.nan) if views[h] is None else views[h])


def test_is_make_sites_under_other_names():
    plain = make_sites(6, 50, 4, VIEW_WIDTHS.values(), shift=1.2, class_mix=1.5, random_state=3)
    data = make_hospitals(50, random_state=3)
    np.testing.assert_array_equal(data.sites["athens"][0], plain.sites["site-00"][0])
    np.testing.assert_array_equal(data.truth.shift["florence"][2], plain.truth.shift["site-05"][2])
