"""Figures as SVG: the same bytes, words as text, nothing that reaches beyond the drawing."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedhk
from fedhk import plot
from fedhk.errors import FedHKError
from fedhk.report.maps import view_map
from fedhk.report.run import write_report
from fedhk.summary.charts import convergence, gains, traffic
from fedhk.summary.drawing import (
    CLUSTER_COLOURS,
    DISC_HEIGHT,
    cluster_colour,
    describe,
    draw_grid,
    measure_lines,
    number_colour,
    page_axes,
    stack_discs,
    to_svg,
)
from fedhk.summary.facts import Gain
from report.pages import made_up


@pytest.fixture(scope="module")
def facts():
    return made_up()


def test_the_same_numbers_give_the_same_text(facts):
    assert convergence(facts.rounds).to_svg() == convergence(facts.rounds).to_svg()
    assert view_map(facts, 0).to_svg() == view_map(made_up(), 0).to_svg()


def test_words_are_text_and_marks_have_tooltips(facts):
    drawn = traffic(facts.rounds).to_svg()
    assert ">from sites</text>" in drawn
    assert "<title>round 2, to sites: 27.0 kB</title>" in drawn


def test_a_drawing_reaches_nothing_outside(facts):
    for name in ("<style", "<metadata", "url(", "http://www.w3.org/1999", "DOCTYPE"):
        assert name not in convergence(facts.rounds).to_svg()


def test_every_reference_is_to_an_id_of_its_own_drawing(facts):
    first, second = (view_map(facts, h).to_svg() for h in range(2))
    for drawn in (first, second):
        assert set(re.findall(r'href="#([^"]*)"', drawn)) == set(re.findall(r' id="([^"]*)"', drawn))
    assert not set(re.findall(r' id="([^"]*)"', first)) & set(re.findall(r' id="([^"]*)"', second))


@pytest.mark.parametrize("name", ["$x$ < &", "\x01\x02", "東京", "</svg><script>", "a" * 400])
def test_any_name_of_a_site_can_be_drawn(name):
    drawn = gains([Gain(name, 9, {"global": 0.5, "personal": 0.4})], held_out=True).to_svg()
    assert "script>" not in drawn.replace("&lt;/svg&gt;&lt;script&gt;", "")
    root = ElementTree.fromstring(re.sub("[\x01-\x08]", "", drawn))  # noqa: S314 - our own text
    assert root.get("role") == "img"


def test_marks_have_what_was_said_of_each():
    with page_axes() as ax:
        describe(ax.scatter([1, 2], [3, 4]), "mark", ["one", {"data-k": 7}], data_s=1)
    drawn = to_svg(ax.figure, "name", "about")
    assert re.search(r'<g class="mark" data-s="1"[^>]*>.*<title>one</title></use><use [^>]*data-k="7"', drawn)


def test_a_drawing_does_not_depend_on_the_users_settings(facts):
    matplotlib = pytest.importorskip("matplotlib")
    before = convergence(facts.rounds).to_svg()
    with matplotlib.rc_context({"font.size": 30, "text.color": "red", "lines.linewidth": 9, "axes.grid": True}):
        assert convergence(facts.rounds).to_svg() == before


def test_importing_fedhk_does_not_load_matplotlib():
    code = "import sys, fedhk, fedhk.plot; fedhk.EFKMVC; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


def test_a_missing_matplotlib_is_one_sentence_before_anything_is_written(monkeypatch, tmp_path, facts):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FedHKError, match=r'^Figures need matplotlib: pip install "fedhk\[plot\]"$'):
        convergence(facts.rounds)
    with pytest.raises(ImportError, match="fedhk"):
        write_report(tmp_path / "run", tmp_path / "page.html")
    model = fedhk.HeatKernelMVC(2, random_state=0).fit([[0.0], [0.1], [5.0], [5.1]])
    with pytest.raises(ImportError, match="fedhk"):
        plot.report(model).save(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cluster", range(len(CLUSTER_COLOURS)))
def test_numbers_can_be_read_on_the_colours_of_clusters(cluster):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted(map(luminance, (number_colour(cluster), cluster_colour(cluster))))
    assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2, level AA


@pytest.mark.parametrize("ends", [(12.81, 12.84), (76.5371, 76.5374), (0.0, 1.0), (900.0, 2100.0), (-3.0, 3.0)])
def test_ticks_differ(ends):
    with page_axes() as axes:
        axes.plot([0, 1], ends)
        draw_grid(axes, "y")
    axes.figure.canvas.draw()
    low, high = axes.get_ylim()
    texts = [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert len(texts) == len(set(texts)) > 2
    assert all("," in text for text in texts if len(text) > 3 and float(text.replace(",", "").replace("−", "-")) > 999)


def test_discs_that_would_hide_each_other_stand_one_above_the_other():
    values = np.array([[0.0, -2.0], [0.01, 2.0], [0.02, np.nan]])
    lines, places = stack_discs(values)
    assert np.all(np.diff(np.sort(places[:, 0])) > 0.7)  # a disc is 0.8 of a line high
    assert np.all(places[:2, 1] == lines[1])  # side by side
    assert places[:, 0].max() < places[0, 1]
    assert_allclose(places[:, 0].mean(), lines[0])
    assert_allclose(measure_lines(values), 1 + 2 * DISC_HEIGHT + 1, atol=0.2)
    assert measure_lines(values[:, :0]) == 1.0
    many = np.zeros((16, 9))
    assert measure_lines(many) <= 4 * 9  # close together, so that the picture has an end
