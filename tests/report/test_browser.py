"""Pages in a real browser: everything is drawn, selectors work, nothing is asked of the network."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date

import pytest

from fedhk.report.page import render
from fedhk.report.run import REPORT
from fedhk.summary.facts import Gain
from report.pages import made_up

WIDTHS = (1280, 390)
HOSTILE = "</script><img src=http://127.0.0.1:9/x onerror=window.harm=1><script>window.harm=1</script>"

# Marks of a drawing that have no size or lie outside, and texts that stick out of their drawing.
BAD_DRAWINGS = """
(() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect(), bad = [];
  const name = svg.closest('figure').id;
  if (frame.width < 200 || frame.height < 80) bad.push(name + ' is small');
  if (!svg.querySelector('path, polyline, rect[height], circle')) bad.push(name + ' is empty');
  for (const text of svg.querySelectorAll('text')) {
    const box = text.getBoundingClientRect();
    if (!text.textContent || getComputedStyle(text).display === 'none') continue;
    const aside = box.left < frame.left - 1 || box.right > frame.right + 1;
    if (aside || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      bad.push(name + ': ' + text.textContent);
  }
  return bad;
}))()
"""
TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"
SHOWN = (
    "[...document.querySelectorAll('{}')].filter(e => e.getClientRects().length).map(e => e.dataset.k ?? e.dataset.v)"
)
SIZES = "[...document.querySelectorAll('.card .size')].map(e => e.textContent)"
MAIN = """
JSON.stringify([
  document.querySelector('main').innerText,
  [...document.querySelectorAll('.meter b, #certainty .bin path, td.bar i, figure')]
    .map(e => e.getBoundingClientRect()),
])
"""


@pytest.fixture(scope="module")
def demo_page(demo_run):
    return demo_run / REPORT


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_the_demo_is_drawn_and_quiet(browser, demo_page, width, dark):
    browser.open(demo_page, width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.run("document.querySelectorAll('figure svg').length") == 10  # a map of each view, twice
    assert browser.run(BAD_DRAWINGS) == []
    assert browser.run(TOO_WIDE) <= 0
    assert browser.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 24, 31)" if dark else "rgb(255, 255, 255)"
    )


def test_what_the_page_says_first_is_what_it_says_without_scripts(browser, demo_page):
    browser.open(demo_page)
    written = re.findall(r'<span class="size">(.*?)</span>', demo_page.read_text("utf-8"))
    assert browser.run(SIZES) == written


def test_choosing_a_site_shows_its_rows(browser, demo_page):
    browser.open(demo_page)
    everything = browser.run(SIZES)
    browser.choose("s", "1")  # bergen
    sizes = browser.run("JSON.parse(document.getElementById('data').textContent).sites['1'].sizes")
    assert [int(text.split(" row")[0].replace(",", "")) for text in browser.run(SIZES)] == sizes
    assert browser.run(SIZES) != everything
    heights = "[...document.querySelectorAll('#certainty {} path')].map(bar => bar.getBBox().height)"
    axis = browser.run(heights.format(".frame"))[0]
    assert sum(browser.run(heights.format(".bin"))) == pytest.approx(axis)  # all of its rows are there
    dots = "[...document.querySelectorAll('#map-0 .dots path')].filter(p => getComputedStyle(p).opacity > .5)"
    assert browser.run(f"[...new Set({dots}.map(p => p.dataset.s))]") == ["1"]
    marks = "[...document.querySelectorAll('td.bar i')].filter(i => getComputedStyle(i).display === 'block').length"
    assert browser.run(marks) > 30
    assert browser.complaints() == []


def test_a_site_is_told_in_input_units(browser, tmp_path):
    facts = made_up(n_sites=2, n_clusters=2, widths=(3,))
    (tmp_path / "page.html").write_text(render(facts), "utf-8")
    browser.open(tmp_path / "page.html")
    browser.choose("s", "1")
    first = browser.run("document.querySelector('.card tbody tr .here').textContent")
    name = browser.run("document.querySelector('.card tbody tr th').textContent")
    rows = facts.sites[1].rows
    own = rows.tables[facts.views[0].name][rows.labels == 0, facts.views[0].features.index(name)].mean()
    assert float(first.replace("−", "-")) == pytest.approx(own, abs=0.005 * 3.5 + 0.05)


def test_dates_of_a_site_are_told_as_dates(browser, tmp_path):
    facts = made_up(n_sites=2, n_clusters=2, widths=(1,))
    (view,) = facts.views
    (tmp_path / "page.html").write_text(render(replace(facts, views=(replace(view, dates=view.features),))), "utf-8")
    browser.open(tmp_path / "page.html")
    browser.choose("s", "1")
    told = browser.run("[...document.querySelectorAll('.card tbody tr .here')].map(cell => cell.textContent)")
    rows = facts.sites[1].rows
    for cluster, day in enumerate(told):
        own = rows.tables[view.name][rows.labels == cluster].mean()
        assert (date.fromisoformat(day) - date(1970, 1, 1)).days == pytest.approx(own, abs=1)


def test_choosing_a_cluster_or_a_view_shows_it_alone(browser, demo_page):
    browser.open(demo_page)
    browser.choose("k", "3")
    assert browser.run(SHOWN.format(".card")) == ["3"]
    assert browser.run("document.querySelector('.card[data-k=\"3\"]').open") is True
    assert browser.run("document.querySelectorAll('#map-0 .number:not(.off)').length") == 1
    browser.choose("v", "2")
    assert browser.run(SHOWN.format("figure[data-v]")) == ["2", "2"]  # of the rows, and as released
    assert browser.run(SHOWN.format(".features")) == ["2"]
    assert browser.complaints() == []


def test_choosing_everything_again_restores_the_page(browser, demo_page):
    browser.open(demo_page)
    browser.run("document.querySelectorAll('.card').forEach(card => { card.open = true; })")
    browser.choose("s", "")
    before = browser.run(MAIN)
    for key, value in (("s", "2"), ("k", "3"), ("v", "1")):
        browser.choose(key, value)
    assert browser.run(MAIN) != before
    for key in "skv":
        browser.choose(key, "")
    assert browser.run(MAIN) == before
    assert browser.run("document.querySelectorAll('.off').length") == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_of_many_sites_and_clusters_stays_in_its_frame(browser, tmp_path, width):
    facts = made_up(
        n_sites=100, n_clusters=50, n_rows=60, rounds=300, names={"site": "a hospital with a very long name"}
    )
    gains = tuple(Gain(site.name, 60, {"global": 0.5 + s / 100, "personal": 0.5}) for s, site in enumerate(facts.sites))
    (tmp_path / "page.html").write_text(render(replace(facts, gains=gains)), "utf-8")
    browser.open(tmp_path / "page.html", width=width)
    browser.choose("s", "99")
    browser.choose("k", "49")
    assert browser.complaints() == []
    assert browser.run(BAD_DRAWINGS) == []
    assert browser.run(TOO_WIDE) <= 0
    assert browser.run(SHOWN.format(".card")) == ["49"]


def test_hostile_names_do_nothing(browser, tmp_path):
    names = dict.fromkeys(("view", "feature", "site", "reason", "title", "algorithm", "stop", "config"), HOSTILE)
    (tmp_path / "page.html").write_text(render(made_up(names=names)), "utf-8")
    browser.open(tmp_path / "page.html", width=390)
    browser.choose("s", "1")
    assert browser.run("window.harm") is None
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.requests() == []
    assert browser.complaints() == []
    assert browser.run(TOO_WIDE) <= 0
    assert browser.run("document.querySelector('h1').textContent") == HOSTILE


def test_requests_and_errors_would_be_seen(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<img src='http://127.0.0.1:9/x'><script>undefined.x</script>", "utf-8")
    browser.open(page)
    assert browser.requests() == ["http://127.0.0.1:9/x"]
    assert browser.complaints()


def test_the_policy_of_the_page_holds_back_what_is_not_its_own(browser, demo_page, tmp_path):
    text = demo_page.read_text("utf-8")
    foreign = "<script>window.harm = 1</script><img src='http://127.0.0.1:9/x'>"
    page = tmp_path / "page.html"
    page.write_text(text.replace("<main>", f"<main>{foreign}"), "utf-8")
    browser.open(page)
    assert browser.run("window.harm") is None
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_the_page_prints_with_all_clusters_open(browser, demo_page, tmp_path):
    browser.open(demo_page)
    count = "document.querySelectorAll('.card[open]').length"
    browser.run(f"addEventListener('beforeprint', () => {{ window.printed = {count}; }})")
    before = browser.run(count)
    browser.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 50_000
    assert browser.run("window.printed") == 4
    assert browser.run(count) == before  # the screen is as it was
