"""Public rows at the coordinator: a private run starts from them, sites never see them, and others are refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedhk import EFKMVC, FedHKTucker
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy
from sealed_runs import seeded_noise

MEANS = np.array([[0.0, 0.0, 1.0], [0.0, 3.0, 0.0], [4.0, 3.0, 2.0]])
BUDGET = DifferentialPrivacy(1.0, 1e-4, (-3, 7))


def draw(n_rows, seed):
    rng = np.random.default_rng(seed)
    return MEANS[rng.integers(3, size=n_rows)] + 0.4 * rng.normal(size=(n_rows, 3))


def make_sites():
    rows = draw(900, 0)
    return {f"s{site}": [rows[site::3, :2], rows[site::3, 2:]] for site in range(3)}


def public(n_rows=60):
    rows = draw(n_rows, 1)
    return [rows[:, :2], rows[:, 2:]]


def test_a_run_starts_from_public_rows_and_its_rounds_have_all_of_the_budget(monkeypatch):
    seeded_noise(monkeypatch)
    sites = make_sites()
    model = EFKMVC(3, privacy=BUDGET, secure=True, random_state=0).fit(sites, public=public())
    assert [release["phase"] for release in model.releases_["s0"]] == ["means", "lengths", "spreads"] + [
        "noisy round"
    ] * 6
    assert 0.999 < model.privacy_spent_[0] <= 1.0
    centers = np.hstack(model.cluster_centers_)
    assert np.linalg.norm(centers[:, None] - MEANS, axis=2).min(axis=0).max() < 0.5


def test_what_sites_are_sent_does_not_grow_with_public_rows():
    sites = make_sites()
    sent = []
    for n_rows in (10, 1000):
        model = EFKMVC(3, privacy=BUDGET, random_state=0).fit(sites, public=public(n_rows))
        sent.append(sum(record["bytes_down"] for record in model.history_))
    assert sent[1] == pytest.approx(sent[0], rel=0.01)


def test_columns_are_found_by_name_and_others_are_refused():
    sites = {
        name: {"a": pd.DataFrame(views[0], columns=["x", "y"]), "b": views[1]} for name, views in make_sites().items()
    }
    first, second = public()
    model = EFKMVC(3, privacy=BUDGET, random_state=0)
    turned = {"b": second, "a": pd.DataFrame(first[:, ::-1], columns=["y", "x"])}
    assert model.fit(sites, public=turned).n_iter_ == 6
    with pytest.raises(DataError, match=r"public rows: view 'a' has other columns than site 's0': missing \['y'\]"):
        model.fit(sites, public={"a": pd.DataFrame(first, columns=["x", "z"]), "b": second})
    with pytest.raises(DataError, match="public rows: view 'b' has 2 features, at site 's0' 1 features"):
        model.fit(sites, public={"a": first, "b": first})
    with pytest.raises(DataError, match=r"public rows have the views \['a'\], the sites have \['a', 'b'\]"):
        model.fit(sites, public={"a": first})


def test_public_rows_without_effect_are_refused():
    sites = make_sites()
    with pytest.raises(ValueError, match="public rows have no effect without privacy"):
        EFKMVC(3, secure=True).fit(sites, public=public())
    with pytest.raises(ValueError, match="public rows have no effect where init gives centres"):
        EFKMVC(3, privacy=BUDGET, init=[MEANS[:, :2], MEANS[:, 2:]]).fit(sites, public=public())
    with pytest.raises(ValueError, match="public has 2 rows, which should be >= n_clusters=3"):
        EFKMVC(3, privacy=BUDGET).fit(sites, public=public(2))
    with pytest.raises(ValueError, match="public rows do not go with protocol="):
        FedHKTucker(3, privacy=BUDGET, protocol="cores").fit(sites, public=public())
