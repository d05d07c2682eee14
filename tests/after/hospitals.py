"""A generated federation with mixed columns, gaps and columns held out, for tests of what comes after a fit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

import fedhk

SEX = pd.CategoricalDtype(["F", "M"])
DRUG = pd.CategoricalDtype(["a", "b", "c"])
SIZES = {"athens": 90, "bergen": 140, "cairo": 120}


def make_hospital(n, shift, rng):
    k = rng.integers(0, 3, n)
    record = pd.DataFrame(
        {
            "age": 50 + 10 * k + rng.normal(0, 4, n),
            "sex": pd.Categorical(np.where(rng.random(n) < 0.3 + 0.2 * k, "F", "M"), dtype=SEX),
            "year": 2000.0 + rng.integers(0, 8, n) + k,
        }
    )
    record.loc[rng.random(n) < 0.1, "age"] = np.nan
    later = pd.DataFrame(
        {
            "quality": rng.normal(0.3 * k + shift, 1.0, n),
            "drug": pd.Categorical(rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]), dtype=DRUG),
        }
    )
    later.loc[rng.random(n) < 0.05, "drug"] = np.nan
    return {"record": record, "lab": rng.normal(0, 1, (n, 3)) + 4 * k[:, None]}, later


@cache
def make_federation(seed=0):
    """A model, the rows that it was fitted to, and the same rows with a view that was held out."""
    rng = np.random.default_rng(seed)
    made = {site: make_hospital(n, 0.4 * i, rng) for i, (site, n) in enumerate(SIZES.items())}
    sites = {site: views for site, (views, _) in made.items()}
    model = fedhk.EFKMVC(3, scaling="standard", random_state=0).fit(sites)
    return model, sites, {site: views | {"later": later} for site, (views, later) in made.items()}


def pool(sites):
    """All rows at one site."""
    views = next(iter(sites.values()))
    return {
        "all": {
            view: pd.concat([site[view] for site in sites.values()], ignore_index=True)
            if isinstance(table, pd.DataFrame)
            else np.vstack([site[view] for site in sites.values()])
            for view, table in views.items()
        }
    }


def pooled_labels(model):
    return np.concatenate([model.global_labels_[site] for site in sorted(model.labels_)])
