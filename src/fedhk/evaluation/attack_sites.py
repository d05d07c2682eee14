"""Membership attacks on models of sites: half of the rows are fitted, the other half are the rows that were not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedhk.data.named import NamedTable
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.evaluation.audit_attack import MembershipAttack, membership_attack
from fedhk.privacy.mechanism import DifferentialPrivacy

Tables = Mapping[str, NamedTable | None]
"""The views of a site by name; None is a view that it lacks."""


def attack_halves(
    sites: Mapping[str, Tables], n_clusters: int, privacy: DifferentialPrivacy | None, **options: Any
) -> MembershipAttack:
    """Fit `EFKMVC` to half of the rows of every site and attack the model.

    The attacker's models have the same budget. `options` are those of `membership_attack`; its `random_state` decides
    on the halves and the fits too.
    """
    seed = int(options["random_state"])
    model = EFKMVC(n_clusters, privacy=privacy, random_state=seed)
    inside, outside = split_rows(sites, seed)

    def fit_shadow(views: dict[str, Any]) -> Any:
        """Fit a model with noise: as many sites, each with its own noise."""
        parts = {name: np.array_split(table, len(inside)) for name, table in views.items()}
        shadow_sites = {str(i): {name: tables[i] for name, tables in parts.items()} for i in range(len(inside))}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # said once, of the model itself
            return EFKMVC(n_clusters, privacy=privacy, random_state=seed).fit(shadow_sites)

    fit = None if privacy is None else fit_shadow
    return membership_attack(model.fit(inside), pool_rows(inside), pool_rows(outside), fit=fit, **options)


def split_rows(sites: Mapping[str, Tables], seed: int) -> tuple[dict[str, Tables], dict[str, Tables]]:
    """Split the rows of every site into two halves by chance; of an odd number the first has one more."""
    generator = np.random.default_rng(seed)
    first, second = {}, {}
    for site, tables in sites.items():
        order = generator.permutation(count_rows(tables))
        cut = -(-len(order) // 2)
        first[site], second[site] = (take_rows(tables, np.sort(half)) for half in (order[:cut], order[cut:]))
    return first, second


def take_rows(tables: Tables, rows: Any) -> Tables:
    """Take some rows of a site."""
    return {
        name: None if table is None else NamedTable(table.values[rows], table.columns) for name, table in tables.items()
    }


def pool_rows(sites: Mapping[str, Tables]) -> dict[str, NamedTable | None]:
    """Pool the rows of all sites, by view; a view that a site lacks is NaN in its rows."""
    pooled: dict[str, NamedTable | None] = {}
    for name in next(iter(sites.values())):
        known = next((table for tables in sites.values() if (table := tables[name]) is not None), None)
        if known is None:
            pooled[name] = None
            continue
        parts = [
            np.full((count_rows(tables), *known.shape[1:]), np.nan) if (table := tables[name]) is None else table.values
            for tables in sites.values()
        ]
        pooled[name] = NamedTable(np.concatenate(parts), known.columns)
    return pooled


def count_rows(tables: Tables) -> int:
    """Count the rows of a site."""
    return next(table.shape[0] for table in tables.values() if table is not None)
