"""Small federations for the checks: three sites, of which one lacks a view and one has missing cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.clients import check_clients
from fedhk.data.scaling import make_scaling
from fedhk.federation.site import Site
from fedhk.starts.settings import Settings

CLUSTERS, WIDTHS, ROWS = 3, (4, 3), 24

SETTINGS = Settings(
    n_clusters=CLUSTERS,
    heat_coef="uniform",
    scaling=make_scaling("standard"),
    heat_time=0.3,
    fuzzifier=1.1,
    view_weights="uniform",
    view_exponent=2.0,
    init="k-means++",
    n_init=2,
)
"""A plain model, for phases that run before the one that is checked."""

Tables = dict[str, FloatArray | None]


def make_tables(seed: int = 0) -> dict[str, Tables]:
    """Draw three clusters in two views at three sites; "pisa" lacks a view, "rome" has missing cells."""
    generator = np.random.default_rng(seed)
    centers = 3.0 * generator.standard_normal((CLUSTERS, sum(WIDTHS)))
    sites: dict[str, Tables] = {}
    for name in ("oslo", "pisa", "rome"):
        rows = centers[generator.integers(CLUSTERS, size=ROWS)] + generator.standard_normal((ROWS, sum(WIDTHS)))
        sites[name] = {"a": rows[:, : WIDTHS[0]], "b": rows[:, WIDTHS[0] :]}
    sites["pisa"]["b"] = None
    holes = generator.random((ROWS, WIDTHS[1])) < 0.2
    sites["rome"]["b"] = np.where(holes, np.nan, np.asarray(sites["rome"]["b"]))
    return sites


def make_sites(tables: Mapping[str, Any]) -> dict[str, Site]:
    """Give sites with these tables, as they are before a run."""
    return {name: Site(name, views) for name, views in check_clients(tables).items()}


def pool_tables(tables: Sequence[Tables]) -> Tables:
    """Put the rows of several sites together; a view that a site lacks becomes missing cells."""
    known = {name: part for own in tables for name, part in own.items() if part is not None}
    rows = [next(len(part) for part in own.values() if part is not None) for own in tables]

    def read(own: Tables, name: str, n_rows: int) -> FloatArray:
        part = own.get(name)
        return np.full((n_rows, known[name].shape[1]), np.nan) if part is None else part

    return {name: np.concatenate([read(own, name, n) for own, n in zip(tables, rows, strict=True)]) for name in known}
