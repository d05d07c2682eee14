"""Tables of sites say what the run holds."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl

from fedhk.report.page import render
from report.pages import Page, made_up, page_of


def test_tables_of_sites_are_those_of_the_run(demo_run):
    page = page_of(demo_run)
    labels = pl.read_parquet(demo_run / "labels" / "bergen.parquet")["cluster"].to_numpy()
    shares = 100 * np.bincount(labels, minlength=4) / len(labels)
    shown = ["<1" if share < 0.5 else f"{share:.0f}" for share in shares if share > 0]
    assert f"bergen {len(labels)} {' '.join(shown)} cairo" in page.section("where").words
    assert re.search(r"bergen [\d.]+ no data [\d.]+ cairo", page.section("view-weights").words)  # it lacks lab
    assert f"bergen {len(labels)} lab {len(np.unique(labels))} of 4" in page.section("sites").words


def test_refusals_are_listed_with_round_site_and_reason():
    section = Page(render(made_up())).section("refused")
    assert "1 site 0 its counts are negative" in section.words
    assert "fewer than 3 sites counted" in section.words


def test_every_cluster_heads_its_column_of_sizes():
    section = Page(render(made_up(n_clusters=4))).section("where")
    assert section.words.startswith("Where the clusters are")
    assert "site rows 0 1 2 3 site 0" in section.words


def test_answers_have_a_section_only_where_some_were_refused_or_missing():
    facts = made_up()
    rounds = tuple(replace(record, refused={}, sites=facts.n_sites) for record in facts.rounds)
    page = Page(render(replace(facts, rounds=rounds)))
    assert "section-refused" not in page.source
    assert "no answer was refused" in page.section("rounds").words
