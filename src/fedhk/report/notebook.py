"""Parts of a page for notebooks: what an estimator shows of itself, and frames for single figures."""

from __future__ import annotations

from typing import Any

from fedhk.report.charts import convergence
from fedhk.report.fitted import facts_of_model
from fedhk.report.page import headline, resource
from fedhk.report.svg import Table, escape, tag


def framed(content: str) -> str:
    """Markup with the style of a page, which touches nothing outside."""
    return tag("div", tag("style", resource("style.css")) + content, class_="fedhk")


def model_html(model: Any) -> str:
    """A fitted estimator in a notebook: the summary of a page and how it converged."""
    facts = facts_of_model(model)
    drawn = convergence(facts.rounds).to_html() if len(facts.rounds) > 1 else ""
    return framed(tag("h3", escape(type(model).__name__)) + headline(facts) + tag("div", drawn, class_="figures"))


def table_html(columns: list[str], rows: list[list[str]]) -> str:
    """A table in a notebook, as on a page."""
    return framed(Table(columns, rows).to_html())


def standalone_svg(svg: str) -> str:
    """A drawing that is a file of its own: the style comes inside, in a frame of the same size."""
    box = svg.split('viewBox="', 1)[1].split('"', 1)[0]
    width, height = box.split()[2:]
    return tag(
        "svg",
        tag("style", resource("style.css")) + svg,
        xmlns="http://www.w3.org/2000/svg",
        class_="fedhk",
        viewBox=box,
        width=width,
        height=height,
    )


def standalone_html(title: str, content: str) -> str:
    """A page with one figure."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    body = tag("body", framed(content))
    return f'<!doctype html><html lang="en"><head>{head}{tag("title", escape(title))}</head>{body}</html>'
