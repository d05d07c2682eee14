"""Profiles with noise: numbers are possible ones, what noise hides is left out, and a warning comes first."""

import warnings

import numpy as np
import pytest
from scipy import stats

import fedhk
from after.hospitals import make_hospital
from fedhk._shares import share_out
from fedhk.after.columns import ClusterColumns, ColumnsRequest, SumColumns, bin_edges, read_quartiles
from fedhk.after.noisy_columns import ROWS_OVER_NOISE, expect_rows, read_noisy
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.ledger import Ledger, ledger_file
from sealed_runs import seeded_noise

RANGES = [([0, 0, 0, 1990], [120, 1, 1, 2020]), (-5, 5)]
COLUMNS = ColumnsRequest(("view",), (4,), np.array([-1, -1, 0, 0]))  # two numbers, a category of two levels
BINS = 10


def make_sums(rows, noise, rng):
    """Sums of generated rows of some clusters with noise, and the means without it."""
    parts, means = [], []
    for n in rows:
        values = np.column_stack([rng.beta(2, 5, n), rng.beta(20, 20, n)])
        level = rng.random(n) < 0.3
        cells = np.column_stack([values, level, ~level])
        bins = [np.bincount((column * BINS).astype(int), minlength=BINS) for column in values.T]
        parts.append((n, np.full(4, n), cells.sum(axis=0), np.square(cells).sum(axis=0), np.array(bins)))
        means.append(cells.mean(axis=0))

    def add(part):
        return part + noise * rng.normal(size=part.shape)

    total, seen, sums, squares, bins = (np.array(part, np.float64) for part in zip(*parts, strict=True))
    groups = seen.copy()
    groups[:, :3] = add(seen[:, :3])
    groups[:, 3] = groups[:, 2]  # a category has one count of known rows
    return ClusterColumns(add(total), groups, add(sums), add(squares), add(bins), noise), np.array(means)


def profile_with_noise(n, epsilon, monkeypatch, **options):
    seeded_noise(monkeypatch)
    rng = np.random.default_rng(0)
    made = {site: make_hospital(n, 0.0, rng) for site in "abc"}
    model = fedhk.EFKMVC(3, scaling="standard", random_state=0).fit(
        {site: {"record": views["record"]} for site, (views, _) in made.items()}
    )
    sites = {site: {"record": views["record"], "later": later} for site, (views, later) in made.items()}
    ranges = [RANGES[0], ([-5, 0, 0, 0], [5, 1, 1, 1])]
    budget = DifferentialPrivacy(epsilon, 1e-6, bounds=ranges, **options)
    return fedhk.profile(model, sites, privacy=budget, secure=True, bins=20), ranges


@pytest.mark.parametrize("noise", [1.0, 30.0, 300.0])
def test_numbers_with_noise_are_those_of_rows_between_the_bounds(noise):
    rng = np.random.default_rng(1)
    for _ in range(50):
        known = read_noisy(make_sums((5, 60, 900), noise, rng)[0], COLUMNS)
        columns, shown = known.columns, ~np.isnan(known.mean)
        assert (columns.seen <= columns.rows[:, None]).all()
        assert ((known.mean >= 0) & (known.mean <= 1))[shown].all()
        np.testing.assert_allclose(columns.sums[:, 2:].sum(axis=1), columns.seen[:, 2], atol=1e-6)
        np.testing.assert_allclose(columns.histograms.sum(axis=2), columns.seen[:, :2], atol=1e-6)
        assert (columns.histograms >= 0).all()
        assert not (known.spread <= 0).any()
        assert not (known.spread > 0.5 + 1e-9).any()


@pytest.mark.parametrize("noise", [5.0, 20.0, 50.0])
def test_means_are_as_near_as_is_said(noise):
    rng, inside = np.random.default_rng(2), []
    for _ in range(200):
        found, means = make_sums((400, 900, 3000), noise, rng)
        known = read_noisy(found, COLUMNS)
        shown = ~np.isnan(known.mean)
        inside.append((np.abs(known.mean - means) <= known.error)[shown])
    assert np.concatenate(inside).mean() > 0.94


def test_shown_spreads_and_medians_are_near():
    rng = np.random.default_rng(3)
    spreads, ranks = [], []
    true = np.sqrt([2 * 5 / (49 * 8), 20 * 20 / (1600 * 41)])
    for _ in range(100):
        known = read_noisy(make_sums((800, 2000, 6000), 20.0, rng)[0], COLUMNS)
        spreads.append((known.spread[:, :2] / true - 1)[~np.isnan(known.spread[:, :2])])
        medians = read_quartiles(known.columns.histograms, bin_edges(BINS, bounded=True))[1]
        ranks.append(stats.beta.cdf(medians, [2, 20], [5, 20])[known.quartiles])
    assert len(np.concatenate(spreads)) > 50
    assert np.mean(np.abs(np.concatenate(spreads)) < 1 / 3) > 0.94
    assert np.mean(np.abs(np.concatenate(ranks) - 0.5) < 0.25) > 0.94


def test_counts_are_shared_out_as_near_as_possible():
    given = np.array([[5.0, -3.0, 4.0], [1.0, 1.0, 1.0], [9.0, 0.0, -9.0]])
    shared = share_out(given, np.array([6.0, 6.0, 0.0]))
    np.testing.assert_allclose(shared, [[3.5, 0.0, 2.5], [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])


def test_few_rows_are_warned_of_before_the_budget_is_spent_and_show_dashes(monkeypatch, tmp_path):
    with pytest.warns(UserWarning, match=r"a cluster needs about \d+ rows .* clusters have 90 on average"):
        found, _ = profile_with_noise(90, 0.5, monkeypatch, ledger=tmp_path)
    assert np.isnan(found.mean).all()
    assert np.isnan([line["p"] for line in found.tests]).all()
    lines = {line[0].strip(): line[1:] for line in found.table().rows}
    assert set(lines["record: age*"]) == {"–"}
    assert "%" not in " ".join(lines["M"])

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="With epsilon")
        with pytest.raises(UserWarning, match="a cluster needs"):
            profile_with_noise(90, 0.5, monkeypatch, ledger=tmp_path / "other")
    assert not Ledger(ledger_file(tmp_path / "other", "a"), "a").releases()


def test_a_profile_of_many_rows_says_how_far_noise_moves_it(monkeypatch, recwarn):
    found, ranges = profile_with_noise(4000, 1.0, monkeypatch)
    assert not [warning for warning in recwarn if "a cluster needs" in str(warning.message)]
    low, high = (np.concatenate([pair[end] for pair in ranges]) for end in (0, 1))
    assert not np.isnan(found.mean).any()
    assert ((found.mean >= low) & (found.mean <= high)).all()
    quartiles = found.quartiles[:, :, [0, 3, 4]]
    assert ((quartiles >= low[[0, 3, 4]]) & (quartiles <= high[[0, 3, 4]])).all()
    text = str(found)
    assert " ± " in text
    assert "noise" in found.frame().columns


def test_rows_needed_are_those_at_which_means_begin_to_show(monkeypatch):
    found, ranges = profile_with_noise(4000, 1.0, monkeypatch)
    columns = ColumnsRequest(("record", "later"), (4, 4), np.array([-1, 0, 0, -1, -1, 1, 1, 1]))
    budget = DifferentialPrivacy(1.0, 1e-6, bounds=ranges)
    needed = expect_rows(SumColumns(columns, 3, 20), budget, True, 3)
    np.testing.assert_allclose(needed, ROWS_OVER_NOISE * found.noise, rtol=0.01)
    alone = expect_rows(SumColumns(columns, 3, 20), budget, False, 3)
    np.testing.assert_allclose(alone, np.sqrt(3) * needed)


@pytest.mark.parametrize("noise", [20.0, 50.0, 150.0])
def test_a_mean_is_shown_where_noise_moves_it_by_less_than_all_rows_differ(noise):
    rng, shown, exact = np.random.default_rng(4), [], []
    spread = np.sqrt([2 * 5 / (49 * 8), 20 * 20 / (1600 * 41)])
    for _ in range(50):
        known = read_noisy(make_sums((400, 900, 3000), noise, rng)[0], COLUMNS)
        error, is_shown = known.error[:, :2], ~np.isnan(known.mean[:, :2])
        shown.append(np.where(is_shown, error / spread, 0.0).max())
        possible = 2 * noise / np.array([400.0, 900.0, 3000.0])[:, None] / spread
        exact.append(is_shown[possible < 0.5])
    assert max(shown) < 2.0
    assert np.concatenate(exact).all()
