"""A site derives things from entries of its board, once each."""

from __future__ import annotations

import numpy as np

from fedhk.data.views import check_views
from fedhk.federation.entries import Schema
from fedhk.federation.site import Site


def test_what_is_derived_from_an_entry_is_made_once_and_freed_when_a_newer_one_takes_its_place():
    site, made = Site("rome", check_views([np.ones((2, 1))])), []
    first, second = Schema(("a",), (None,)), Schema(("b",), (None,))
    for entry in (first, first, second, second, first):
        assert site.derive(entry, lambda entry=entry: made.append(entry) or entry.names) == entry.names
    assert made == [first, second, first]
    assert [entry for entry, _ in site._cache.values()] == [first]
    site.forget(first)
    assert not site._cache
