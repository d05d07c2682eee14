"""Pages: every part is there, they stay small, and names cannot do harm."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fedhk
from fedhk.datasets import make_sites
from fedhk.report.maps import MOST_POINTS, project
from fedhk.report.page import _to_safe_json, render
from fedhk.report.run import write_report
from fedhk.summary.facts import Update
from report.pages import HOSTILE, Page, made_up, page_of


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
    parts = {"clusters", "where", "maps", "sites", "view-weights", "rounds", "again"}
    assert figures | {f"section-{part}" for part in parts} <= names
    rows = json.loads((demo_run / "summary.json").read_text())["rows"]
    assert f"4 clusters among {rows:,} rows at 6 sites" in page.words
    for figure in re.findall(r"<figure.*?</figure>", page.source, re.DOTALL):
        assert 'aria-label="' in figure  # read aloud
        assert "<table>" in figure  # and as numbers
    assert fedhk.load(demo_run / "model.safetensors").stop_reason_ in page.words
    assert "heat_time = 0.3" in page.words


def test_keys_reach_whatever_may_be_wider_than_the_page(demo_run):
    wide = [attributes for tag, attributes in page_of(demo_run).tags if tag == "pre"]
    assert len(wide) == 2  # the command and the configuration
    assert all(attributes.get("tabindex") == "0" for attributes in wide)


def test_sizes_are_those_of_the_labels(demo_run):
    page = page_of(demo_run)
    for s, name in enumerate(sorted(path.stem for path in (demo_run / "labels").iterdir())):
        labels = pl.read_parquet(demo_run / "labels" / f"{name}.parquet")["cluster"].to_numpy()
        assert page.data["sites"][str(s)]["sizes"] == np.bincount(labels, minlength=4).tolist()
        assert sum(page.data["sites"][str(s)]["certainty"]) == len(labels)


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


def test_many_sites_and_clusters_make_a_readable_small_page():
    facts = made_up(n_sites=100, n_clusters=50, widths=(20, 30, 8, 12), n_rows=60, rounds=300)
    text = render(facts)
    page = Page(text)
    assert len(text) < 1_500_000
    for view in facts.views:
        assert len(project(facts, view).points) <= MOST_POINTS
    folded = [attributes["id"] for tag, attributes in page.tags if tag == "details" and "id" in attributes]
    assert {"sizes", "models", "weights"} <= set(folded)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_the_page_of_an_update_with_noise_says_which_releases_are_counted_and_repeats_no_fit(elsewhere):
    found = Update((), (), (), compared=False)
    noisy = {"privacy": (3.5, 2e-6), "releases": (("update round", 3, 7.32),), "spent": {"oslo": 0.963}}
    facts = replace(made_up(), update=found, elsewhere=elsewhere, config="seed = 1", command="fedhk fit", **noisy)
    page = Page(render(facts))
    assert "for one row in this update and the runs that it goes on from" in page.words
    released = page.section("privacy").words
    assert ("with noise in this update." in released) == elsewhere
    assert "Together with the runs that this update goes on from: epsilon 3.5 at delta 2e−06." in released
    assert "fedhk ledger adds up everything" in released
    assert "fedhk fit" not in page.section("again").words
    assert "seed = 1" in page.section("again").words


def test_the_page_of_a_run_with_noise_over_a_network_says_what_is_noise_and_where_ledgers_are():
    facts = replace(made_up(), sites=(), privacy=(2.0, 1e-6), released_only=True, elsewhere=True)
    page = Page(render(facts))
    assert "Centres, means and spreads were released with noise" in page.words
    assert "it may have the commonest level of a category alone" in page.words
    assert "After the first round it" not in page.words
    assert "rises and falls are noise" in page.words
    assert "narrower kernel than the model has" in page.words
    released = page.section("privacy")
    assert "`" not in released.words
    assert "<code>fedhk ledger</code>" in released.source
    assert "--own STATE/NAME/run --data DATA</code> makes, there, the page of a site" in page.source


def test_the_top_of_the_page_says_which_clusters_can_be_trusted_where_that_was_asked():
    sites = make_sites(3, 60, n_clusters=3, separation=9, random_state=0).sites
    model = fedhk.EFKMVC((2, 5), random_state=0).fit(sites)
    plain = fedhk.plot.report(model, sites)
    assert "ask how stable clusters are" in plain.html
    assert "3 clusters" in plain.html
    assert "The number was found, not given; no other number comes near" in plain.html
    sure = fedhk.stability(model, sites, n_resamples=4)
    asked = fedhk.plot.report(model, sites, found=sure)
    assert "All clusters are stable: halves of the rows, clustered anew, find them again." in asked.html
    assert "ask how stable clusters are" not in asked.html
    halves = sure.halves.copy()
    halves[:, 1] = 0.1
    mixed = fedhk.plot.report(model, sites, found=replace(sure, halves=halves))
    assert "find clusters 0 and 2 again; cluster 1 should not be trusted." in mixed.html
    halves[:] = 0.1
    assert "No cluster is stable" in fedhk.plot.report(model, sites, found=replace(sure, halves=halves)).html
