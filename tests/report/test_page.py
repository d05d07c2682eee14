"""Pages of runs: what they say is what the run holds, and names cannot do harm."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fedhk
from fedhk import plot
from fedhk.errors import DataError
from fedhk.report.features import choose_features
from fedhk.report.fitted import read_fitted
from fedhk.report.page import _to_safe_json, render
from fedhk.report.projection import MOST_POINTS, project_rows
from fedhk.report.rows import Rows
from fedhk.report.run import read_facts, write_report
from fedhk.summary.facts import Gain
from report.conftest import fit
from report.pages import Page, made_up

HOSTILE = "<script>alert(1)</script>'\"&`${x}"


def page_of(folder, **options):
    return Page(write_report(folder, folder.parent / "page.html", **options).read_text("utf-8"))


def test_the_same_run_gives_the_same_page(demo_run, tmp_path):
    first, second = (write_report(demo_run, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_the_page_of_the_demo_is_small_and_loads_nothing(demo_run, tmp_path):
    file = write_report(demo_run, tmp_path / "page.html")
    page = Page(file.read_text("utf-8"))
    assert file.stat().st_size < 400_000
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert attributes.get(name, "data:,").startswith(("data:", "#")), (tag, attributes)
    assert "@import" not in page.source
    assert "url(" not in page.source


def test_the_page_of_the_demo_has_every_part(demo_run):
    page = page_of(demo_run)
    names = {attributes.get("id") for _, attributes in page.tags}
    figures = {f"map-{h}" for h in range(3)} | {"certainty", "gains", "convergence", "traffic"}
    parts = {"clusters", "where", "maps", "sites", "view-weights", "rounds", "refused", "again"}
    assert figures | {f"section-{part}" for part in parts} <= names
    rows = json.loads((demo_run / "summary.json").read_text())["rows"]
    assert f"4 clusters among {rows:,} rows at 6 sites" in page.words
    for figure in re.findall(r"<figure.*?</figure>", page.source, re.DOTALL):
        assert 'aria-label="' in figure  # read aloud
        assert "<table>" in figure  # and as numbers
    assert fedhk.load(demo_run / "model.safetensors").stop_reason_ in page.words
    assert "heat_time = 0.3" in page.words


def test_sizes_are_those_of_the_labels(demo_run):
    page = page_of(demo_run)
    for s, name in enumerate(sorted(path.stem for path in (demo_run / "labels").iterdir())):
        labels = pl.read_parquet(demo_run / "labels" / f"{name}.parquet")["cluster"].to_numpy()
        assert page.data["sites"][str(s)]["sizes"] == np.bincount(labels, minlength=4).tolist()
        assert sum(page.data["sites"][str(s)]["certainty"]) == len(labels)


def test_tables_of_sites_are_those_of_the_run(demo_run):
    page = page_of(demo_run)
    labels = pl.read_parquet(demo_run / "labels" / "bergen.parquet")["cluster"].to_numpy()
    shares = 100 * np.bincount(labels, minlength=4) / len(labels)
    shown = ["<1" if share < 0.5 else f"{share:.0f}" for share in shares if share > 0]
    assert f"bergen {len(labels)} {' '.join(shown)} cairo" in page.section("where").words
    assert re.search(r"bergen [\d.]+ no data [\d.]+ cairo", page.section("view-weights").words)  # it lacks lab
    assert f"bergen {len(labels)} lab {len(np.unique(labels))} of 4" in page.section("sites").words


def test_the_top_feature_is_the_one_that_stands_out_in_input_units():
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, (300, 6)) * [1, 10, 100, 1000, 1, 1] + 5
    rows[:100, 3] += 20_000  # 20 spreads of noise: nothing else tells these rows
    model = fedhk.HeatKernelMVC(2, random_state=0).fit([rows])
    facts = read_fitted(model, [rows])
    cluster = int(model.labels_[0])
    assert choose_features(facts).chosen[cluster, 0][0] == 3
    card = Page(re.search(rf'<details class="card" data-k="{cluster}".*?</details>', render(facts), re.DOTALL)[0])
    assert "view_0[3]" in card.words.split("spreads")[1]
    assert f"{rows[model.labels_ == cluster, 3].mean():,.0f}"[:2] in card.words
    np.testing.assert_allclose(facts.views[0].mean, rows.mean(axis=0))
    np.testing.assert_allclose(facts.views[0].spread, rows.std(axis=0))


def test_spreads_of_the_model_are_those_of_the_rows_where_features_are_standardised(demo_run, tmp_path):
    run = fit(demo_run / "data", tmp_path / "run", "--clusters", 4)
    with_rows = read_facts(run)
    config = run / "config.toml"
    config.write_text(re.sub(r"(?m)^data = .*", 'data = "gone"', config.read_text()))
    without = read_facts(run)
    assert with_rows.spread_of_rows
    assert not without.spread_of_rows
    for a, b in zip(with_rows.views, without.views, strict=True):
        np.testing.assert_allclose(a.mean, b.mean, atol=1e-9)
        np.testing.assert_allclose(a.spread[a.spread > 0], b.spread[a.spread > 0], rtol=1e-9)


def test_without_rows_the_page_says_so_and_draws_centres(person_run):
    shutil.move(person_run.parent / "hospitals", person_run.parent / "moved")
    page = page_of(person_run)
    assert "The rows could not be read" in page.words
    assert "Centres only" in page.words
    assert "Dots are rows" not in page.words
    assert page.count("svg") >= 4


def test_rows_may_be_given_where_they_are_now(person_run):
    before = write_report(person_run, person_run.parent / "a.html").read_text("utf-8")
    moved = shutil.move(person_run.parent / "hospitals", person_run.parent / "moved")
    assert write_report(person_run, person_run.parent / "b.html", data=moved).read_text("utf-8") == before


def test_a_run_over_sites_that_are_elsewhere_says_what_the_coordinator_knows(person_run):
    for name in ("labels", "sites"):
        shutil.rmtree(person_run / name)
    shutil.rmtree(person_run.parent / "hospitals")
    config = person_run / "config.toml"
    config.write_text(re.sub(r"(?m)^data = .*\n", "", config.read_text()))
    page = page_of(person_run)
    rows = json.loads((person_run / "summary.json").read_text())["rows"]
    assert f"3 clusters among {rows:,} rows at 3 sites" in page.words
    assert "they stayed at the sites" in page.words
    assert "use the global model as it is" not in page.words
    assert page.count("svg") == 4


def test_rows_that_changed_are_not_taken_for_those_of_the_run(person_run):
    path = person_run.parent / "hospitals" / "oslo" / "ecg.parquet"
    pl.read_parquet(path).with_columns(pl.col("id") + "x").write_parquet(path)
    for other in (person_run.parent / "hospitals" / "oslo").glob("image.parquet"):
        pl.read_parquet(other).with_columns(pl.col("id") + "x").write_parquet(other)
    assert "rows of site 'oslo' are no longer those of the run" in page_of(person_run).words


def test_values_that_changed_are_noticed_by_their_clusters(person_run):
    for path in (person_run.parent / "hospitals" / "oslo").iterdir():
        pl.read_parquet(path).with_columns(pl.exclude("id").reverse()).write_parquet(path)
    assert "rows of site 'oslo' are no longer those of the run" in page_of(person_run).words


def test_many_views_begin_with_one_and_stay_small():
    text = render(made_up(n_sites=10, n_clusters=20, widths=(8,) * 30, n_rows=2000))
    assert Page(text).data["view"] == "0"
    assert Page(render(made_up())).data["view"] == ""
    assert len(text) < 1_500_000


def test_a_single_cluster_and_a_site_without_rows_have_a_page():
    facts = made_up(n_sites=2, n_clusters=1)
    none = replace(facts.sites[0].assignment, **dict.fromkeys(("labels", "global_labels"), np.zeros(0, int)))
    empty = replace(facts.sites[0], assignment=replace(none, certainty=np.zeros(0)))
    page = Page(render(replace(facts, sites=(empty, facts.sites[1]))))
    assert "nan" not in page.words
    assert "1 cluster among" in page.words


def test_gains_are_those_of_the_evaluation(tmp_path, person_run):
    run = fit(
        person_run.parent / "hospitals",
        tmp_path / "measured",
        "--clusters",
        3,
        "--algorithm",
        "fedhk-person",
        "--evaluate",
    )
    facts = read_facts(run)
    table = pl.read_csv(run / "evaluation.csv")
    assert facts.held_out
    for gain in facts.gains:
        own = table.filter((pl.col("site") == gain.site) & (pl.col("model") == "personal"))
        assert gain.objectives["personal"] == own["objective"].item()
    page = page_of(run)
    assert "rows that no model saw" in page.words
    assert "which favours them" not in page.words


def test_gains_without_an_evaluation_are_measured_on_the_rows_and_say_so(person_run):
    facts = read_facts(person_run)
    assert not facts.held_out
    assert {gain.site for gain in facts.gains} == {"bern", "oslo", "rome"}
    assert all(gain.objectives["personal"] < gain.objectives["global"] for gain in facts.gains)
    assert "which favours them" in page_of(person_run).words


@pytest.mark.parametrize("own", ["own", "global"])
def test_a_gain_is_told_with_its_sign(own):
    objectives = {"global": 0.4, "personal": 0.3 if own == "own" else 0.5}
    facts = replace(made_up(), gains=(Gain("site 0", 5, objectives),), held_out=True)
    words = Page(render(facts)).words
    assert ("better at 1 of 1 site" in words) == (own == "own")
    assert ("25 % lower" in words) == (own == "own")


def test_refusals_are_listed_with_round_site_and_reason():
    section = Page(render(made_up())).section("refused")
    assert "1 site 0 its counts are negative" in section.words
    assert "fewer than 3 sites counted" in section.words


def test_how_far_a_site_is_from_the_global_model_is_in_spreads():
    facts = made_up(n_sites=1, widths=(3,))
    view = facts.views[0]
    moved = replace(facts.sites[0], centers={view.name: view.centers + 2 * view.spread})
    assert facts.distances(moved) == {view.name: pytest.approx(2.0)}
    assert facts.distances(replace(moved, views=())) == {}
    assert not replace(facts, sites=(replace(moved, centers={view.name: view.centers}),)).personal


def test_hostile_names_are_text():
    names = dict.fromkeys(("view", "feature", "site", "reason", "title", "algorithm", "stop", "config"), HOSTILE)
    page = Page(render(made_up(names=names)))
    assert page.count("script") == 2
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    assert page.count("section") == Page(render(made_up())).count("section")
    for part in ("title", "sections"):  # each is there, as it was given
        assert HOSTILE in page.words, part
    titles = [attributes["title"] for tag, attributes in page.tags if tag == "th" and "title" in attributes]
    assert any(HOSTILE in title for title in titles)


def test_data_cannot_end_their_element():
    assert not set(_to_safe_json({"<!--": "</script>&"})) & set("<>&")


def test_hostile_names_of_a_real_fit_are_text(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    sites = {
        f"{HOSTILE}{s}": {HOSTILE: pandas.DataFrame(rng.normal(size=(40, 2)), columns=[HOSTILE, "b"])} for s in range(2)
    }
    model = fedhk.EFKMVC(2, random_state=0).fit(sites)
    page = Page(plot.report(model, sites).save(tmp_path / "page.html").read_text("utf-8"))
    assert page.count("script") == 2
    assert HOSTILE in page.words


def test_many_sites_and_clusters_make_a_readable_small_page():
    facts = made_up(n_sites=100, n_clusters=50, widths=(20, 30, 8, 12), n_rows=60, rounds=300)
    text = render(facts)
    page = Page(text)
    assert len(text) < 1_500_000
    for found in facts.maps.values():
        assert len(found.points) <= MOST_POINTS
    folded = [attributes["id"] for tag, attributes in page.tags if tag == "details" and "id" in attributes]
    assert {"sizes", "models", "weights"} <= set(folded)


def test_maps_are_a_fixed_sample_with_every_site():
    facts = made_up(n_sites=3)
    rng = np.random.default_rng(1)
    view = facts.views[0]
    rows = {
        s: Rows({view.name: rng.normal(size=(n, len(view.mean)))}, rng.integers(4, size=n))
        for s, n in enumerate((20_000, 4_000, 7))
    }
    first, second = (project_rows(facts, view, rows) for _ in range(2))
    np.testing.assert_array_equal(first.points, second.points)
    assert len(first.points) <= MOST_POINTS + 3 * 5
    assert set(first.sites) == {0, 1, 2}
    assert first.n_rows == 24_007


def test_a_map_keeps_as_much_variation_as_it_says():
    rng = np.random.default_rng(0)
    facts = made_up(n_clusters=2, widths=(4,))
    view = replace(facts.views[0], mean=np.zeros(4), spread=np.ones(4))
    facts = replace(facts, views=(view,))
    table = rng.normal(size=(500, 4)) * [5, 3, 1, 1]
    found = project_rows(facts, view, {0: Rows({view.name: table}, np.zeros(500, int))})
    assert sum(found.shares) == pytest.approx(found.points.var(axis=0).sum() / table.var(axis=0).sum())
    assert found.shares[0] > found.shares[1] > 0.2
    # a centre lies where a row with the same values would
    one = replace(view, centers=table[:2])
    again = project_rows(replace(facts, views=(one,)), one, {0: Rows({view.name: table}, np.zeros(500, int))})
    np.testing.assert_allclose(again.centers, again.points[:2], atol=1e-9)


def test_damaged_runs_are_refused_by_name(tmp_path, person_run):
    with pytest.raises(DataError, match="holds no finished run"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="no site 'paris'; it has 'bern'"):
        write_report(person_run, site="paris")
    labels = person_run / "labels" / "oslo.parquet"
    pl.read_parquet(labels).with_columns(cluster=pl.lit(7)).write_parquet(labels)
    with pytest.raises(DataError, match="clusters 7 to 7; the model has 3"):
        write_report(person_run)
    (person_run / "history.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        write_report(person_run)
