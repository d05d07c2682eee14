"""What an estimator shows of itself in a notebook."""

from __future__ import annotations

from typing import Any

from fedhk.summary.charts import convergence
from fedhk.summary.drawing import MissingMatplotlibError
from fedhk.summary.facts import Facts
from fedhk.summary.html import Markup, frame, join, tag
from fedhk.summary.model import read_model
from fedhk.summary.narrative import paragraphs, tiles


def headline(facts: Facts) -> Markup:
    """Write the numbers that people ask for first, and the summary in words."""
    numbers = (tag("div", tag("b", value), tag("span", what)) for value, what in tiles(facts))
    texts = (join(tag("dt", about), tag("dd", text)) for about, text in paragraphs(facts))
    return join(tag("div", *numbers, class_="tiles"), tag("dl", *texts, class_="summary"))


def model_html(model: Any) -> str:
    """Describe a fitted estimator: the summary of its report and, with matplotlib installed, how it converged."""
    facts = read_model(model)
    return frame(tag("h3", facts.title), headline(facts), tag("div", _draw_rounds(facts), class_="figures"))


def _draw_rounds(facts: Facts) -> str:
    if len(facts.rounds) < 2:
        return ""
    try:
        return convergence(facts.rounds, unit=facts.step_name).to_html()
    except MissingMatplotlibError:
        return ""
