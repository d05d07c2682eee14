"""Outcomes by cluster: federated equals pooled, and what lifelines, scipy and statsmodels say of the pooled rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import restricted_mean_survival_time
from numpy.testing import assert_allclose
from statsmodels.duration.survfunc import survdiff
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.contingency_tables import StratifiedTable
from statsmodels.stats.meta_analysis import combine_effects

import fedhk
from after.hospitals import make_federation, pool
from fedhk.after.common_effects import CommonEffects
from fedhk.after.survival import LEAST_SIGNAL, _smooth_curve
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy
from fedhk.report.after import describe_answers
from fedhk.summary.words import number
from sealed_runs import seeded_noise

DAYS = range(101)


def draw_outcomes(model, seed=0):
    """Days, deaths, an event and a number for each row, which depend on cluster and site."""
    rng = np.random.default_rng(seed)
    drawn = {}
    for i, (site, labels) in enumerate(sorted(model.global_labels_.items())):
        n = len(labels)
        died_at = np.ceil(rng.exponential(20 + 25 * labels))
        seen_to = rng.integers(5, 100, n)
        time = np.minimum(died_at, seen_to).astype(float)
        time[rng.random(n) < 0.05] = np.nan
        number = 400 - 15 * labels + 30 * i + rng.normal(0, 40, n)
        number[rng.random(n) < 0.1] = np.nan
        drawn[site] = pd.DataFrame(
            {
                "days": time,
                "died": (died_at <= seen_to).astype(float),
                "relapse": (rng.random(n) < 0.2 + 0.15 * labels + 0.1 * i).astype(float),
                "walk": number,
                "cluster": labels,
                "site": site,
            }
        )
    return drawn


@pytest.fixture(scope="module")
def case():
    model, sites, _ = make_federation()
    drawn = draw_outcomes(model)
    return model, {site: views | {"later": drawn[site]} for site, views in sites.items()}, pd.concat(drawn.values())


@pytest.fixture(scope="module")
def survival(case):
    model, sites, _ = case
    return fedhk.outcomes(model, sites, time="days", event="died", grid=DAYS, least_rows=1)


def same(ours, theirs, names, **tolerances):
    for name in names:
        assert_allclose(getattr(ours, name), getattr(theirs, name), err_msg=name, **tolerances)


CURVES = (
    "curves",
    "lower",
    "upper",
    "at_risk",
    "events",
    "rows",
    "missing",
    "restricted_mean",
    "restricted_mean_error",
)
TEST = ("statistic", "df", "p", "hazard_ratio", "hazard_lower", "i_squared", "sites_more")
BINARY = ("rows", "events", "odds_ratio", "odds_lower", "odds_upper", "cluster_p", "statistic", "p", "i_squared")
CONTINUOUS = ("rows", "mean", "spread", "error", "adjusted_mean", "statistic", "p", "eta_squared", "i_squared")


# ----------------------------------------------------------------------------------------------------------- survival


def test_curves_over_sites_are_those_of_pooled_rows(case, survival):
    model, sites, _ = case
    pooled = fedhk.outcomes(model, pool(sites), time="days", event="died", grid=DAYS, least_rows=1)
    same(survival, pooled, CURVES, rtol=1e-9, atol=1e-9)


def test_curves_are_those_of_lifelines(case, survival):
    rows = case[2].dropna(subset="days")
    for k, part in rows.groupby("cluster"):
        oracle = KaplanMeierFitter().fit(part["days"], part["died"], timeline=list(DAYS))
        known = ~np.isnan(survival.curves[k])
        assert_allclose(survival.curves[k][known], oracle.survival_function_["KM_estimate"][known], rtol=1e-6)
        ends = oracle.confidence_interval_survival_function_.to_numpy()[known]
        inner = survival.curves[k][known] < 1
        assert_allclose(survival.lower[k][known][inner], ends[inner, 0], rtol=1e-6)
        assert_allclose(survival.upper[k][known][inner], ends[inner, 1], rtol=1e-6)
        assert survival.at_risk[k, 0] == len(part)
        expected = restricted_mean_survival_time(oracle, t=survival.horizon)
        assert_allclose(survival.restricted_mean[k], expected, rtol=1e-6)


def test_the_error_of_a_restricted_mean_is_that_of_resampled_rows(case, survival):
    part = case[2].dropna(subset="days").query("cluster == 1")
    days, died = part["days"].to_numpy(), part["died"].to_numpy()
    rng, means = np.random.default_rng(0), []
    for _ in range(300):
        some = rng.integers(0, len(days), len(days))
        times = np.unique(days[some])
        times = times[times <= survival.horizon]
        at_risk = (days[some] >= times[:, None]).sum(axis=1)
        deaths = ((days[some] == times[:, None]) * died[some]).sum(axis=1)
        alive = np.cumprod(np.r_[1.0, 1 - deaths / at_risk])
        means.append(alive @ np.diff(np.r_[0.0, times, survival.horizon]))
    assert_allclose(survival.restricted_mean_error[1], np.std(means), rtol=0.2)


def test_the_log_rank_test_is_that_of_statsmodels_stratified_by_site(case, survival):
    rows = case[2].dropna(subset="days")
    statistic, p = survdiff(rows["days"], rows["died"], rows["cluster"], strata=rows["site"])
    assert_allclose(survival.statistic, statistic, rtol=1e-9)
    assert_allclose(survival.p, p, rtol=1e-9, atol=1e-12)  # theirs is 1 - cdf
    assert survival.df == 2
    assert survival.stratified


def test_at_one_site_the_log_rank_test_is_that_of_lifelines(case):
    model, sites, rows = case
    rows = rows.query("site == 'cairo'").dropna(subset="days")
    ours = fedhk.outcomes(model, {"cairo": sites["cairo"]}, time="days", event="died")
    oracle = multivariate_logrank_test(rows["days"], rows["cluster"], rows["died"])
    assert_allclose([ours.statistic, ours.p], [oracle.test_statistic, oracle.p_value], rtol=1e-6)
    assert np.isnan(ours.i_squared).all()


def test_a_grid_that_nobody_gave_has_whole_days(case, survival):
    model, sites, _ = case
    found = fedhk.outcomes(model, sites, time="days", event="died")
    assert found.times[-1] == 128
    for day in (10, 40, 80):
        assert_allclose(found.survival_at(day), survival.survival_at(day), rtol=1e-9)
    assert_allclose(found.p, survival.p)


def test_survival_at_a_time_is_that_of_the_step_before_and_unknown_beyond_the_grid(survival):
    assert_allclose(survival.survival_at(10.5), survival.curves[:, 10])
    assert np.isnan(survival.survival_at(101)).all()
    for time in (-1, "x", np.nan):
        with pytest.raises(ValueError, match="time must be a finite number of at least 0"):
            survival.survival_at(time)


def test_clusters_that_live_longer_are_found(survival):
    assert np.all(np.diff(survival.restricted_mean) > 5)
    assert survival.hazard_ratio[0] > 1.5
    assert survival.hazard_upper[2] < 1
    assert np.all((survival.i_squared >= 0) & (survival.i_squared <= 1))


def test_hazard_ratios_are_those_of_mantel_and_haenszel_in_statsmodels(case):
    model, sites, rows = case
    apart = np.random.default_rng(0).permutation(len(rows)) * 1e-6  # no two events at one time
    days = rows["days"] + apart
    time = {site: days[(rows["site"] == site).to_numpy()] for site in sites}
    event = {site: views["later"]["died"] for site, views in sites.items()}
    found = fedhk.outcomes(model, sites, time=time, event=event)
    rows = rows.assign(days=days).dropna(subset="days")
    for k in range(3):
        tables = []
        for _, part in rows.groupby("site"):
            for day in part.loc[part["died"] > 0, "days"]:
                at_risk = part[part["days"] >= day]
                died = (at_risk["days"] == day) & (at_risk["died"] > 0)
                inside = at_risk["cluster"] == k
                tables.append([[(side & died).sum(), (side & ~died).sum()] for side in (inside, ~inside)])
        oracle = StratifiedTable([np.array(table, float) for table in tables])
        assert_allclose(found.hazard_ratio[k], oracle.riskratio_pooled, rtol=1e-9)


@pytest.mark.parametrize("secure", [False, True])
def test_hazard_ratios_of_pooled_rows_by_site_are_the_same_under_masks(case, survival, secure):
    model, sites, _ = case
    found = fedhk.outcomes(model, sites, time="days", event="died", grid=DAYS, least_rows=1, secure=secure)
    same(found, survival, ("hazard_ratio", "hazard_lower", "hazard_upper"), rtol=1e-6)
    same(found, survival, ("sites_more", "sites_known"))


def draw_unequal_lives(ratio, seed, whole=None):
    """A model of two clusters, of which the first has a fifth of the rows and so many times the hazard."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(1500) > 0.2).astype(int)
    rows = rng.normal(0, 1, (1500, 2)) + 12 * labels[:, None]
    life, seen_to = rng.exponential(1 / np.where(labels == 0, ratio, 1.0)), rng.uniform(0.2, 2, 1500)
    time = np.minimum(life, seen_to)
    time = time if whole is None else np.ceil(time / whole) * whole
    sites, parts = {}, np.arange(1500) % 3
    for i in range(3):
        sites[f"site-{i}"] = {"lab": rows[parts == i]}
    model = fedhk.EFKMVC(2, init=[np.array([[0.0, 0.0], [12.0, 12.0]])], scaling="none", random_state=0).fit(sites)
    split = [{site: part[parts == i] for i, site in enumerate(sites)} for part in (time, life <= seen_to)]
    frame = pd.DataFrame({"days": time, "died": life <= seen_to, "first": (labels == 0) * 1.0, "site": parts})
    return model, sites, dict(zip(("time", "event"), split, strict=True)), frame


@pytest.mark.parametrize("whole", [None, 0.1])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 2.0, 5.0])
def test_hazard_ratios_far_from_one_are_those_of_cox_but_for_chance(ratio, whole):
    logs, errors, theirs = [], [], []
    for seed in range(6):
        model, sites, outcome, rows = draw_unequal_lives(ratio, seed, whole)
        found = fedhk.outcomes(model, sites, **outcome)
        oracle = CoxPHFitter().fit(rows, "days", "died", strata=["site"])
        logs.append(np.log(found.hazard_ratio[0]))
        errors.append(np.log(found.hazard_upper[0] / found.hazard_lower[0]) / (2 * 1.96))
        theirs.append((oracle.params_["first"], oracle.standard_errors_["first"]))
        assert_allclose(found.hazard_ratio[0] * found.hazard_ratio[1], 1.0)
    theirs = np.array(theirs)
    # both estimate the same; the estimate of Mantel and Haenszel is a little less exact
    assert np.all(np.abs(np.array(logs) - theirs[:, 0]) < 1.5 * theirs[:, 1])
    assert_allclose(np.mean(logs), theirs[:, 0].mean(), atol=0.1)
    assert_allclose(np.mean(errors), theirs[:, 1].mean(), rtol=0.25)


def test_a_cluster_without_an_event_has_a_hazard_ratio_of_zero(case):
    model, sites, _ = case
    event = {site: v["later"]["died"].where(v["later"]["cluster"] > 0, 0.0) for site, v in sites.items()}
    time = {site: v["later"]["days"] for site, v in sites.items()}
    found = fedhk.outcomes(model, sites, time=time, event=event)
    assert found.hazard_ratio[0] == 0
    assert np.isnan([found.hazard_lower[0], found.hazard_upper[0]]).all()
    said = describe_answers([found])[0].content
    assert "Cluster 0 never has the event, which others at the same site have." in said
    assert found.sites_more[0] == 0
    one = {site: v["later"]["died"].where(v["later"]["cluster"] == 0, 0.0) for site, v in sites.items()}
    alone = fedhk.outcomes(model, sites, time=time, event=one)
    assert np.isinf(alone.hazard_ratio[0])
    said = describe_answers([alone])[0].content
    assert "Cluster 0 has the event, which no others at the same site have." in said


def test_it_is_said_at_how_many_sites_a_cluster_has_more_events(case):
    model, sites, _ = case
    for question in ({"time": "days", "event": "died"}, {"event": "relapse"}):
        found = fedhk.outcomes(model, sites, **question)
        more = np.zeros(3)
        for site, views in sites.items():
            own = fedhk.outcomes(model, {site: views}, **question)
            more += (own.hazard_ratio if "time" in question else own.odds_ratio) > 1
        assert_allclose(found.sites_more, more)
        assert_allclose(found.sites_known, 3)
        said = str(describe_answers([found])[0].content)
        clear = (found.sites_more == 3) & ((found.hazard_lower if "time" in question else found.odds_lower) > 1)
        assert clear.any()
        assert said.count("), at all 3 sites.") >= clear.sum()
        assert [row[-1] for row in found.table().rows] == [f"{count:.0f} of 3" for count in found.sites_more]
        alone = fedhk.outcomes(model, {"cairo": sites["cairo"]}, **question)
        assert {row[-1] for row in alone.table().rows} == {"–"}


def test_a_horizon_that_no_curve_reaches_is_said(case):
    model, sites, _ = case
    found = fedhk.outcomes(model, sites, time="days", event="died", horizon=5000)
    assert np.isnan(found.restricted_mean).all()
    assert "There is no mean up to 5,000: no curve goes so far." in found.notes
    assert "no curve goes so far" not in str(fedhk.outcomes(model, sites, time="days", event="died").notes)


def test_small_cells_of_curves_are_not_shown(case):
    model, sites, _ = case
    found = fedhk.outcomes(model, sites, time="days", event="died", grid=DAYS)
    small = found.at_risk < 5
    assert small.any()
    assert np.isnan(found.curves[small]).all()
    assert np.isfinite(found.curves[~small]).all()
    frame = found.frame()
    assert not ((frame["at_risk"] > 0) & (frame["at_risk"] < 5)).any()
    assert "< 5" not in str(found.table().columns)
    assert found.horizon <= found.times[~small.any(axis=0)][-1]


@pytest.mark.parametrize("question", [{"event": "relapse"}, {"value": "walk"}])
def test_frames_have_a_line_for_each_cluster_and_hide_what_tables_hide(case, question):
    model, sites, _ = case
    found = fedhk.outcomes(model, sites, **question)
    frame = found.frame()
    assert list(frame["cluster"]) == list(range(model.n_clusters_))
    for name in frame.columns.drop(["cluster", "lower", "upper", "p"], errors="ignore"):
        assert_allclose(frame[name], getattr(found, name), err_msg=name)
    rows = np.where(np.arange(len(found.rows)) == 0, 4.0, found.rows)
    hidden = replace(found, least_rows=5, rows=rows).frame().drop(columns=["cluster", "events"], errors="ignore")
    assert hidden.loc[0].isna().all()
    assert hidden.loc[1].notna().all()


def test_a_cluster_without_an_event_has_a_flat_curve(case):
    model, sites, _ = case
    none = {
        s: v["later"].assign(died=v["later"]["died"].where(v["later"]["cluster"] > 0, 0.0)) for s, v in sites.items()
    }
    event = {site: frame["died"] for site, frame in none.items()}
    found = fedhk.outcomes(model, sites, time="days", event=event, grid=DAYS)
    known = ~np.isnan(found.curves[0])
    assert_allclose(found.curves[0][known], 1.0)
    assert np.isfinite(found.p)
    assert found.events[0].sum() == 0
    nothing = {site: np.zeros(len(frame)) for site, frame in none.items()}
    quiet = fedhk.outcomes(model, sites, time="days", event=nothing, grid=DAYS)
    assert np.isnan(quiet.p)
    assert "–" in str(quiet)


# ------------------------------------------------------------------------------------------------------------- events


def test_odds_ratios_are_those_of_statsmodels(case):
    model, sites, rows = case
    ours = fedhk.outcomes(model, sites, event="relapse")
    for k in range(3):
        tables = []
        for _, part in rows.groupby("site"):
            inside, event = part["cluster"] == k, part["relapse"] > 0
            tables.append(
                [[(inside & event).sum(), (inside & ~event).sum()], [(~inside & event).sum(), (~inside & ~event).sum()]]
            )
        oracle = StratifiedTable([np.array(table) for table in tables])
        assert_allclose(ours.odds_ratio[k], oracle.oddsratio_pooled, rtol=1e-9)
        assert_allclose([ours.odds_lower[k], ours.odds_upper[k]], oracle.oddsratio_pooled_confint(), rtol=1e-9)
        assert_allclose(ours.cluster_p[k], oracle.test_null_odds(correction=False).pvalue, rtol=1e-6)
    assert_allclose(ours.events, rows.groupby("cluster")["relapse"].sum())


def test_the_joint_test_of_two_clusters_is_that_of_one(case):
    _, sites, _ = case
    views = {site: {"lab": site_views["lab"]} for site, site_views in sites.items()}
    model = fedhk.EFKMVC(2, scaling="standard", random_state=0).fit(views)
    event = {site: site_views["later"]["relapse"] for site, site_views in sites.items()}
    found = fedhk.outcomes(model, views, event=event)
    assert_allclose(found.p, found.cluster_p)


def test_a_cluster_without_events_has_odds_of_zero_and_no_interval(case):
    model, sites, _ = case
    event = {site: v["later"]["relapse"].where(v["later"]["cluster"] > 0, 0.0) for site, v in sites.items()}
    found = fedhk.outcomes(model, sites, event=event)
    assert found.odds_ratio[0] == 0
    assert np.isnan(found.odds_upper[0])
    assert found.p < 1e-6


# ------------------------------------------------------------------------------------------------------------ numbers


def test_the_analysis_of_variance_is_that_of_statsmodels(case):
    model, sites, rows = case
    ours = fedhk.outcomes(model, sites, value="walk")
    fitted = smf.ols("walk ~ C(site) + C(cluster)", rows).fit()
    oracle = anova_lm(fitted, typ=2).loc["C(cluster)"]
    assert_allclose([ours.statistic, ours.df, ours.p], [oracle["F"], oracle["df"], oracle["PR(>F)"]], rtol=1e-6)
    known = rows.dropna(subset="walk")
    assert_allclose(ours.mean, known.groupby("cluster")["walk"].mean())
    assert_allclose(np.diff(ours.adjusted_mean), np.diff([0.0, *fitted.params.filter(like="cluster")]), rtol=1e-6)
    weights = known.groupby("cluster").size() / len(known)
    assert_allclose(ours.adjusted_mean @ weights, known["walk"].mean())
    effects, variances = [], []
    counts = rows.groupby("cluster").size()
    signs = np.array([-counts[0], -counts[1], counts[0] + counts[1]]) / (counts[0] + counts[1])
    for _, part in known.groupby("site"):
        by_cluster = part.groupby("cluster")["walk"]
        effects.append(signs @ by_cluster.mean())
        variances.append(signs**2 @ (by_cluster.var() / by_cluster.count()))
    assert_allclose(ours.i_squared[2], max(combine_effects(np.array(effects), np.array(variances)).i2, 0), atol=1e-6)


# ------------------------------------------------------------------------------------------------- sites, masks, noise


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ({"time": "days", "event": "died", "grid": DAYS}, CURVES + TEST),
        ({"event": "relapse"}, BINARY),
        ({"value": "walk"}, CONTINUOUS),
    ],
    ids=["survival", "event", "value"],
)
def test_masks_change_nothing(case, question, names):
    model, sites, _ = case
    masked = fedhk.outcomes(model, sites, **question, secure=True)
    same(masked, fedhk.outcomes(model, sites, **question), names, rtol=1e-5, atol=1e-6)


def test_events_and_numbers_over_sites_are_those_of_pooled_rows(case):
    model, sites, _ = case
    pooled = pool(sites)
    ours, theirs = (fedhk.outcomes(model, rows, event="relapse") for rows in (sites, pooled))
    same(ours, theirs, ("rows", "events", "missing"))
    ours, theirs = (fedhk.outcomes(model, rows, value="walk") for rows in (sites, pooled))
    same(ours, theirs, ("rows", "mean", "spread", "error", "difference"), rtol=1e-9)


@pytest.fixture(scope="module")
def large():
    """Ten sites, 15,000 rows, three clusters that are well apart, and exponential lives."""
    rng = np.random.default_rng(3)
    sites, time, event, truth = {}, {}, {}, {}
    for i in range(10):
        labels = rng.integers(0, 3, 1500)
        site = f"s{i}"
        sites[site] = [rng.normal(0, 1, (1500, 2)) + 10 * np.eye(3)[labels][:, :2]]
        life, seen_to = rng.exponential(1.5 + 1.5 * labels), rng.uniform(1, 6, 1500)
        time[site], event[site], truth[site] = np.minimum(life, seen_to), (life <= seen_to) * 1.0, labels
    model = fedhk.EFKMVC(3, scaling="standard", random_state=0).fit(sites)
    which = [
        int(np.bincount(np.concatenate([truth[s][model.labels_[s] == k] for s in sites])).argmax()) for k in range(3)
    ]
    return model, sites, time, event, 1.5 + 1.5 * np.array(which)


@pytest.mark.parametrize("secure", [False, True])
def test_curves_with_noise_are_near_the_true_ones_and_their_intervals_hold(large, secure, monkeypatch):
    seeded_noise(monkeypatch)
    model, sites, time, event, means = large
    budget = DifferentialPrivacy(1.0, 1e-5, bounds=(0, 6))
    found = fedhk.outcomes(model, sites, time=time, event=event, privacy=budget, secure=secure)
    true = np.exp(-found.times / means[:, None])
    known = ~np.isnan(found.curves)
    assert known.mean() > 0.6
    assert np.abs(found.curves - true)[known].max() < 0.05
    assert np.mean((found.lower <= true + 1e-9) & (true <= found.upper + 1e-9), where=known) > 0.85  # one run
    plain = fedhk.outcomes(model, sites, time=time, event=event, grid=found.times)
    assert (found.upper - found.lower)[known].mean() > (plain.upper - plain.lower)[known].mean()
    assert not found.stratified
    assert found.p < 1e-6
    assert 0.99 < found.privacy_spent[0] <= 1.0 + 1e-6
    assert np.all(np.diff(found.curves[:, known.all(axis=0)], axis=1) <= 1e-12)
    fewest = LEAST_SIGNAL * found.noise
    assert found.at_risk[known].min() >= fewest > found.least_rows
    assert f"fewer than {number(fewest)} rows are at risk, 30 times the noise in a count;" in str(found)
    assert f"fewer than {plain.least_rows} rows are at risk;" in str(plain)


def test_events_and_numbers_with_noise(large, monkeypatch):
    seeded_noise(monkeypatch)
    model, sites, _, event, _ = large
    budget = DifferentialPrivacy(1.0, 1e-5, bounds=(0, 6))
    plain, noisy = (fedhk.outcomes(model, sites, event=event, privacy=b) for b in (None, budget))
    assert np.all((noisy.odds_lower < plain.odds_ratio) & (plain.odds_ratio < noisy.odds_upper))
    assert np.all(noisy.odds_upper / noisy.odds_lower > plain.odds_upper / plain.odds_lower)
    value = {site: 2 + 0.2 * model.labels_[site] + np.linspace(-1, 1, 1500) for site in sites}
    plain, noisy = (fedhk.outcomes(model, sites, value=value, privacy=b) for b in (None, budget))
    assert np.abs(noisy.mean - plain.mean).max() < 0.15
    assert np.all(noisy.error > plain.error)


def test_tests_with_noise_are_not_alarmed_by_noise(large, monkeypatch):
    seeded_noise(monkeypatch)
    model, sites, _, _, _ = large
    rng = np.random.default_rng(0)
    budget = DifferentialPrivacy(1.0, 1e-5, bounds=(0, 6))
    alarms = 0
    for _ in range(40):
        time = {site: rng.uniform(0, 6, 1500) for site in sites}
        event = {site: rng.integers(0, 2, 1500) for site in sites}
        found = fedhk.outcomes(model, sites, time=time, event=event, privacy=budget)
        alarms += found.p < 0.05
    assert alarms <= 7  # of 40 at 5 %: more than 7 in one of 500 tries


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64", "Int64", "UInt8", "float32", "object"])
def test_numbers_of_every_kind_without_gaps_are_outcomes(case, dtype):
    model, sites, _ = case
    whole = {site: views["later"][["days", "died"]].fillna(7.0) for site, views in sites.items()}
    asked = {site: views | {"later": whole[site].astype(dtype)} for site, views in sites.items()}
    plain = {site: views | {"later": whole[site]} for site, views in sites.items()}
    for question in ({"event": "died"}, {"value": "days"}, {"time": "days", "event": "died"}):
        assert fedhk.outcomes(model, asked, **question).p == fedhk.outcomes(model, plain, **question).p


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("time", -1.0, "time is -1 in row 3; it must be from 0 on"),
        ("time", np.inf, "time is inf in row 3"),
        ("event", 2.0, "event is 2 in row 3; it must be 0 or 1"),
    ],
)
def test_wrong_outcomes_are_named_by_site_and_row(case, column, value, text):
    model, sites, _ = case
    given = {"time": {s: v["later"]["days"].to_numpy().copy() for s, v in sites.items()}}
    given["event"] = {s: v["later"]["died"].to_numpy().copy() for s, v in sites.items()}
    given[column]["bergen"][3] = value
    with pytest.raises(DataError, match=text) as raised:
        fedhk.outcomes(model, sites, **given)
    assert "Site 'bergen'" in str(raised.value)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ({}, "no outcome was given"),
        ({"time": "days"}, "time needs event"),
        ({"value": "walk", "event": "died"}, "value is an outcome of its own"),
        ({"event": "died", "grid": 10}, "grid and horizon have no effect"),
        ({"event": "age"}, "'age' is a column of view 'record', which made the clusters"),
        ({"event": "nothing"}, "Site 'athens' has no column 'nothing' for event. Give every site one more view"),
        ({"event": "dyed"}, "has no column 'dyed' for event. Did you mean 'died'?"),
        ({"event": {"cairo": [1, 0]}}, "event has no values for site 'athens'. Give a dict from the name of each site"),
        ({"event": {"athens": [1], "bergen": [1], "cairo": [1]}}, "event has 1 values, the site has 90 rows"),
        (
            {"event": {"athens": ["yes"], "bergen": [1], "cairo": [1]}},
            "event must be 0 and 1, or true and false.* column == 'yes'",
        ),
        ({"time": "days", "event": "died", "grid": [3, 2]}, "rising times from 0 on"),
        ({"time": "days", "event": "died", "grid": 0}, "grid must be a whole number of at least 1"),
        ({"time": "days", "event": "died", "horizon": 0}, "horizon must be a finite number above 0"),
        ({"time": "days", "event": "died", "grid": "days"}, "grid='days' must be a whole number of intervals"),
        ({"time": "days", "event": "died", "grid": 10**8}, "grid=100,000,000 is too many intervals; at most 100,000"),
        ({"time": "days", "event": "died", "grid": range(10**6)}, "grid has 1,000,000 times; at most 100,000"),
        (
            {"time": "days", "event": "died", "privacy": DifferentialPrivacy(1.0, 1e-5, bounds=(-10, -3))},
            r"bounds=\(-10, -3\) must end above 0",
        ),
        ({"event": 1}, "event has no values for site 'athens'. Give a dict"),
    ],
)
def test_questions_that_make_no_sense_are_refused(case, question, text):
    model, sites, _ = case
    with pytest.raises(ValueError, match=text):
        fedhk.outcomes(model, sites, **question)


@pytest.mark.parametrize(
    ("option", "text"),
    [({"privacy": 1.0}, "privacy=1.0 must be a fedhk"), ({"secure": "yes"}, "secure='yes' must be True, False or a")],
)
def test_options_of_the_wrong_type_are_named(case, option, text):
    model, sites, _ = case
    for ask in (fedhk.profile, partial(fedhk.outcomes, event="died")):
        with pytest.raises(TypeError, match=text):
            ask(model, sites, **option)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pd.Series(pd.date_range("2020", periods=90)), "value has values of type datetime64"),
        (pd.Series(pd.to_timedelta(np.arange(90), unit="D")), "value has values of type timedelta64"),
        (np.full(90, 1j), "value has values of type complex128; it must be real numbers"),
        (
            np.full(90, 1e200),
            r"value is 1e\+200 in row 0, and wrong in 90 rows in all; it must be at most 1e\+30 in size",
        ),
    ],
)
def test_what_is_no_number_is_refused(case, values, text):
    model, sites, _ = case
    given = {site: views["later"]["walk"] for site, views in sites.items()} | {"athens": values}
    with pytest.raises(DataError, match=f"Site 'athens': {text}"):
        fedhk.outcomes(model, sites, value=given)


def test_a_column_of_two_views_that_were_held_out_is_refused(case):
    model, sites, _ = case
    twice = {site: views | {"again": views["later"]} for site, views in sites.items()}
    with pytest.raises(DataError, match="is a column of 2 views that were not clustered"):
        fedhk.outcomes(model, twice, event="died")


def test_one_site_may_ask_about_its_own_rows():
    rng = np.random.default_rng(0)
    table = np.vstack([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 6])
    model = fedhk.HeatKernelMVC(2, random_state=0).fit(table)
    died = np.r_[np.ones(30), np.zeros(10), np.ones(8), np.zeros(32)]
    found = fedhk.outcomes(model, table, event=died)
    assert_allclose(found.events[model.labels_[0]], 30)
    ratio = found.odds_ratio[model.labels_[0]]
    assert_allclose(ratio, (30 * 32) / (10 * 8))


# ------------------------------------------------------------------------------------------ clusters that do not meet


def make_separate(by_site):
    """Sites with clusters of their own, so many rows of each, and outcomes of the rows."""
    rng, c = np.random.default_rng(1), sum(map(len, by_site.values()))
    corners = 20.0 * np.eye(c)
    labels = {site: np.repeat(list(sizes), list(sizes.values())) for site, sizes in by_site.items()}
    sites = {site: [corners[own] + rng.normal(0, 0.5, (len(own), c))] for site, own in labels.items()}
    model = fedhk.EFKMVC(c, init=[corners], scaling="none", random_state=0).fit(sites)
    for site, own in labels.items():
        assert np.array_equal(model.labels_[site], own)
    outcomes = {
        "time": {site: rng.integers(1, 30, len(own)) for site, own in labels.items()},
        "event": {site: rng.integers(0, 2, len(own)) for site, own in labels.items()},
        "value": {site: rng.normal(size=len(own)) for site, own in labels.items()},
    }
    return model, sites, outcomes


QUESTIONS = [("time", "event"), ("event",), ("value",)]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("names", QUESTIONS, ids="-".join)
def test_clusters_that_no_site_connects_are_compared_within_their_sites(names, secure):
    model, sites, outcomes = make_separate({"rome": {0: 31, 1: 40}, "oslo": {2: 23, 3: 37}, "bonn": {4: 17, 5: 29}})
    question = {name: outcomes[name] for name in names}
    both = fedhk.outcomes(model, sites, **question, secure=secure)
    assert both.df == 3  # one comparison at each site
    if names == ("value",):
        rows = pd.concat([pd.DataFrame({"y": outcomes["value"][s], "k": model.labels_[s], "site": s}) for s in sites])
        left = [smf.ols(formula, rows).fit() for formula in ("y ~ C(site)", "y ~ C(k)")]  # a cluster has one site
        f = (left[0].ssr - left[1].ssr) / 3 / (left[1].ssr / left[1].df_resid)
        assert_allclose([both.statistic, both.df_rest], [f, left[1].df_resid], rtol=1e-6)
        assert np.isnan(both.adjusted_mean).all()  # clusters of three sites cannot be compared
    else:
        each = [fedhk.outcomes(model, {site: sites[site]}, **question).statistic for site in sites]
        assert_allclose(both.statistic, sum(each), rtol=1e-6)
        ratio = "hazard_ratio" if "time" in names else "odds_ratio"
        assert np.isfinite(getattr(both, ratio)).all()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("names", QUESTIONS, ids="-".join)
def test_clusters_that_are_alone_at_their_sites_are_not_compared(names, secure):
    model, sites, outcomes = make_separate({"rome": {0: 31}, "oslo": {1: 23}, "bonn": {2: 17}})
    found = fedhk.outcomes(model, sites, **{name: outcomes[name] for name in names}, secure=secure)
    assert found.df == 0
    assert np.isnan(found.p)
    if names != ("value",):
        assert np.isnan(found.hazard_ratio if "time" in names else found.odds_ratio).all()
    assert names == ("value",) or all(row[4 if "time" in names else 3] == "–" for row in found.table().rows)
    assert "there is nothing to compare." in str(found)


def test_a_number_that_clusters_explain_wholly_has_an_eta_of_one_and_a_constant_none():
    model, sites, _ = make_separate({"rome": {0: 31, 1: 40}})
    whole = fedhk.outcomes(model, sites, value={"rome": 0.1 * model.labels_["rome"]})
    assert (whole.statistic, whole.p) == (np.inf, 0)
    assert_allclose(whole.eta_squared, 1)
    constant = fedhk.outcomes(model, sites, value={"rome": np.full(71, 0.1)})
    assert np.isnan([constant.statistic, constant.p, constant.eta_squared]).all()


def test_a_mean_that_no_curve_goes_to_is_left_out_and_no_mean_exceeds_the_horizon(case):
    model, sites, _ = case
    far = fedhk.outcomes(model, sites, time="days", event="died", grid=DAYS, horizon=5000).table().rows
    assert all(row[3] == "–" and row[4] != "–" for row in far)
    early = {site: np.r_[1.0, np.zeros(len(views["later"]) - 1)] for site, views in sites.items()}
    found = fedhk.outcomes(model, sites, time="days", event=early, grid=DAYS, horizon=4)
    for row in found.table().rows:
        assert float(row[3].rpartition(", ")[2].rstrip(")")) <= 4


# ------------------------------------------------------------------------------------------- few rows and much noise


def test_what_noise_hides_is_not_shown(case, monkeypatch):
    seeded_noise(monkeypatch)
    model, sites, _ = case
    budget = DifferentialPrivacy(0.1, 1e-5, bounds=(0, 600))
    survival = fedhk.outcomes(model, sites, time="days", event="died", privacy=budget)
    assert all(set(row[3:]) == {"–"} for row in survival.table().rows)
    assert any(row[1].startswith("<") for row in survival.table().rows)
    assert "The rows of a cluster are right within ±" in str(survival)
    relapse = fedhk.outcomes(model, sites, event="relapse", privacy=budget)
    hidden = relapse.rows < 2 * np.sqrt(2) * relapse.noise
    assert hidden.any()
    assert [row[3] == "–" for row in relapse.table().rows] == hidden.tolist()
    walk = fedhk.outcomes(model, sites, value="walk", privacy=budget)
    assert np.isnan(walk.mean).all()
    assert np.isnan([walk.eta_squared, walk.p, walk.df]).all()
    assert "Welch's test over all sites together: there is nothing to compare." in str(walk)


def test_with_noise_curves_begin_at_one_and_rows_that_end_at_time_0_are_in_the_first_interval(large, monkeypatch):
    seeded_noise(monkeypatch)
    model, sites, time, event, _ = large
    early = {site: np.where(np.arange(1500) < 300, 0.0, own) for site, own in time.items()}
    found = fedhk.outcomes(model, sites, time=early, event=event, privacy=DifferentialPrivacy(1.0, 1e-5, bounds=(0, 6)))
    plain = fedhk.outcomes(model, sites, time=early, event=event, grid=found.times)
    assert_allclose(found.curves[:, 0], 1.0)
    assert_allclose(found.at_risk[:, 0], found.rows)
    assert np.abs(found.rows - plain.rows).max() < 5 * found.noise * np.sqrt(2 * len(found.times))
    assert np.abs(found.events[:, 1] - plain.events[:, :2].sum(axis=1)).max() < 5 * found.noise


def test_means_with_noise_are_between_the_bounds(large, monkeypatch):
    seeded_noise(monkeypatch)
    model, sites, time, _, _ = large
    found = fedhk.outcomes(model, sites, value=time, privacy=DifferentialPrivacy(0.05, 1e-5, bounds=(0, 6)))
    known = ~np.isnan(found.mean)
    assert np.all((found.mean[known] >= 0) & (found.mean[known] <= 6))


# --------------------------------------------------------------------------------------------- curves from noisy counts


def count_lives(hazards, noise, seed, rows=4000):
    """Counts by interval of rows with such hazards, nobody lost from sight, with noise: (1, intervals + 2, 2)."""
    rng, left, counts = np.random.default_rng(seed), rows, np.zeros((1, len(hazards) + 2, 2))
    for place, hazard in enumerate(hazards, start=1):
        counts[0, place, 1] = rng.binomial(left, hazard)
        left -= int(counts[0, place, 1])
    counts[0, -1, 0] = left
    return counts + noise * rng.standard_normal(counts.shape)


def curve_error(hazards, seed, *, smoothed):
    grid, noise = np.arange(len(hazards) + 1.0), 15.0
    counts = count_lives(hazards, noise, seed)
    shown = np.full((1, len(grid)), smoothed)
    true = np.cumprod([1.0, *(1.0 - np.array(hazards))])
    return np.abs(_smooth_curve(counts, grid, noise, shown) - true).max()


def test_smoothing_halves_the_error_of_a_constant_hazard_and_leaves_a_changing_one():
    constant, changing = [0.1] * 10, [0.01, 0.01, 0.3, 0.3, 0.3, 0.02, 0.02, 0.02, 0.02, 0.02]
    errors = {
        (name, smoothed): np.mean([curve_error(hazards, seed, smoothed=smoothed) for seed in range(40)])
        for name, hazards in {"constant": constant, "changing": changing}.items()
        for smoothed in (False, True)
    }
    assert errors["constant", True] < 0.7 * errors["constant", False]
    assert errors["changing", True] < 1.1 * errors["changing", False]


def test_a_hazard_that_slowly_rises_is_not_taken_for_constant():
    rising = list(np.linspace(0.0, 0.06, 12))
    smoothed, not_smoothed = (
        np.mean([curve_error(rising, seed, smoothed=smoothed) for seed in range(40)]) for smoothed in (True, False)
    )
    assert smoothed < not_smoothed


def test_smoothed_curves_begin_at_most_at_one_and_never_rise():
    grid, counts = np.arange(13.0), count_lives([0.05] * 12, 40.0, 0, rows=500)
    curve = _smooth_curve(counts, grid, 40.0, np.ones((1, 13), bool))
    assert curve.max() <= 1.0
    assert np.all(np.diff(curve) <= 0)


def test_without_change_the_rate_is_that_of_all_intervals_whatever_their_length():
    grid = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    survival = np.exp(-0.2 * grid)
    counts = np.zeros((1, 6, 2))
    counts[0, 1:5, 1], counts[0, 5, 0] = -1e5 * np.diff(survival), 1e5 * survival[-1]
    assert_allclose(_smooth_curve(counts, grid, 1.0, np.ones((1, 5), bool))[0], survival, rtol=1e-9)


def test_tables_say_of_which_outcome_they_are(case, survival):
    model, sites, _ = case
    start = "What becomes of the clusters"
    assert survival.table().title == f"{start}: died, by days"
    assert fedhk.outcomes(model, sites, event="relapse").table().title == f"{start}: relapse"
    assert fedhk.outcomes(model, sites, value="walk").table().title == f"{start}: walk"
    values = {name: views["later"]["walk"] for name, views in sites.items()}
    assert fedhk.outcomes(model, sites, value=values).table().title == start


MIXES = {"a": [0.7, 0.2, 0.1], "b": [0.2, 0.6, 0.2], "c": [0.1, 0.3, 0.6], "d": [0.34, 0.33, 0.33]}


def make_mixes(seed, special=1.0):
    """Sites with other shares of clusters, whose hazards have the same ratios at all but one site."""
    rng, sites, times, events, ill = np.random.default_rng(seed), {}, {}, {}, {}
    for i, (site, mix) in enumerate(MIXES.items()):
        group = rng.choice(3, 300, p=mix)
        sites[site] = [6 * np.eye(3)[group] + rng.normal(size=(300, 3))]
        ratio = np.array([1.0, 3.0 * (special if site == "a" else 1.0), 9.0])[group]
        life, seen = rng.exponential(1 / (0.01 * (1 + i) * ratio)), rng.uniform(10, 120, 300)
        times[site], events[site] = np.minimum(life, seen), (life <= seen).astype(int)
        odds = 0.2 * (1 + i) * ratio
        ill[site] = (rng.random(300) < odds / (1 + odds)).astype(int)
    model = fedhk.EFKMVC(3, init=[6 * np.eye(3)], scaling="none", random_state=0).fit(sites)
    return model, sites, times, events, ill


def test_sites_with_other_mixes_of_the_same_clusters_do_not_disagree():
    surely, likely = [], []
    for seed in range(6):
        model, sites, times, events, ill = make_mixes(seed)
        for found in (
            fedhk.outcomes(model, sites, time=times, event=events),
            fedhk.outcomes(model, sites, event=ill),
        ):
            surely.append(found.sites_p < 0.01)
            likely.append(found.i_squared > 0.5)
    assert np.mean(surely) <= 0.05
    assert np.mean(likely) <= 0.25


def test_a_site_where_a_cluster_fares_otherwise_is_noticed():
    model, sites, times, events, _ = make_mixes(0, special=3.0)
    found = fedhk.outcomes(model, sites, time=times, event=events)
    assert np.argmin(found.sites_p) == 1
    assert "Sites disagree on how much" in str(describe_answers([found])[0].content)
    masked = fedhk.outcomes(model, sites, time=times, event=events, secure=True)
    assert_allclose(masked.sites_p, found.sites_p, rtol=1e-4)


def test_common_effects_are_those_of_a_stratified_cox_model():
    model, sites, times, events, _ = make_mixes(0)
    frames = [
        pd.DataFrame({"time": times[site], "event": events[site], "site": site, "cluster": model.labels_[site]})
        for site in sites
    ]
    table = pd.get_dummies(pd.concat(frames, ignore_index=True), columns=["cluster"], drop_first=True, dtype=float)
    cox = CoxPHFitter().fit(table, "time", "event", strata=["site"])
    found = fedhk.outcomes(model, sites, time=times, event=events)
    effects = found.answer.board.get(CommonEffects).effects
    assert_allclose(effects[1:] - effects[0], cox.params_, atol=1e-3)


def test_a_cluster_without_events_at_any_site_has_no_endless_effect():
    model, sites, times, events, _ = make_mixes(1)
    none = {site: np.where(model.labels_[site] == 0, 0, own) for site, own in events.items()}
    found = fedhk.outcomes(model, sites, time=times, event=none)
    assert np.isfinite(found.answer.board.get(CommonEffects).effects).all()
    assert np.isnan(found.sites_p[0]) or found.sites_p[0] > 0.05


def test_outcomes_of_one_site_do_not_speak_of_sites():
    model, sites, times, events, _ = make_mixes(0)
    alone = {"a": sites["a"]}
    found = fedhk.outcomes(model, alone, time={"a": times["a"]}, event={"a": events["a"]})
    assert not found.stratified
    for answer in (
        found,
        fedhk.outcomes(model, alone, event={"a": events["a"]}),
        fedhk.outcomes(model, alone, value={"a": times["a"]}),
    ):
        text = str(answer) + str(describe_answers([answer])[0].content)
        assert not any(
            word in text for word in ("by site", "within sites (", "within sites:", "same site", "all sites")
        )


def test_events_of_nearly_all_rows_do_not_tell_the_few_without(case):
    model, sites, _ = case
    event = {site: views["later"]["relapse"].where(views["later"]["cluster"] > 0, 1.0) for site, views in sites.items()}
    first = next(iter(sites))
    event[first] = event[first].copy()
    event[first][np.flatnonzero(model.global_labels_[first] == 0)[:2]] = 0.0
    found = fedhk.outcomes(model, sites, event=event)
    assert found.rows[0] - found.events[0] == 2
    assert found.table().rows[0][2] == "–"
    assert np.isnan(found.frame()["events"][0])
    assert found.table().rows[1][2] != "–"
    shown = fedhk.outcomes(model, sites, event=event, least_rows=2)
    assert shown.table().rows[0][2].startswith(f"{found.events[0]:.0f} (")
