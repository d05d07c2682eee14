"""Tables of sites say what the run holds."""

from __future__ import annotations

import re

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
