"""The page: sections in the order in which people ask, in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from fedhk.report.charts import certainty_chart, convergence, gains_chart, histogram, traffic
from fedhk.report.facts import Facts
from fedhk.report.features import cluster_card, highlights, site_values
from fedhk.report.maps import view_map
from fedhk.report.narrative import ALGORITHMS, banner, mean_separation, paragraphs
from fedhk.report.svg import Figure, Table, escape, tag
from fedhk.report.tables import models_table, refusals, sizes_table, weights_table
from fedhk.report.under_noise import released_table, spent_table, under_noise
from fedhk.report.words import number, short, size

# Up to so many clusters, cards are open on paper.
MOST_PRINTED = 12

# With more views than this, the page begins with the first one chosen.
MOST_VIEWS = 6

UNITS = (
    "A spread is the standard deviation of a feature over all rows; bars say how many spreads a cluster's centre lies "
    "above (right) or below (left) the mean of all rows. Centres and means are in the units of the data."
)


def resource(name: str) -> str:
    """A file of this package."""
    return files("fedhk.report").joinpath(name).read_text("utf-8")


def render(facts: Facts) -> str:
    """The whole page. The same facts give the same text."""
    script, data = resource("page.js"), _safe_json(_data(facts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # nothing is loaded from anywhere, and no script runs but our own: even where a name were not escaped
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    parts = {
        "title": escape(_title(facts)),
        "policy": escape(policy),
        "style": resource("style.css"),
        "head": _head(facts),
        "choices": _choices(facts),
        "sections": "".join(_sections(facts)),
        "data": data,
        "script": script,
        "foot": escape(f"FedHK {facts.version}"),
    }
    return Template(resource("page.html")).substitute(parts)


def _title(facts: Facts) -> str:
    return facts.title if facts.own_page_of is None else f"{facts.title}, site {facts.own_page_of}"


def _head(facts: Facts) -> str:
    told = banner(facts)
    return (
        tag("h1", escape(_title(facts)))
        + tag("p", escape(f"FedHK report · {ALGORITHMS.get(facts.algorithm, facts.algorithm)}"), class_="what")
        + (tag("p", _code(told), class_="banner") if told else "")
        + headline(facts)
        + "".join(tag("p", escape(note), class_="note") for note in facts.notes)
    )


def headline(facts: Facts) -> str:
    """The numbers that people ask for first, and the summary in words."""
    separation = mean_separation(facts)
    federated = any(r.bytes_up is not None for r in facts.rounds)
    tiles = [
        (f"{facts.n_clusters:,}", "cluster" if facts.n_clusters == 1 else "clusters"),
        (f"{facts.n_rows:,}" if facts.n_rows else "", "rows"),
        (f"{facts.n_sites:,}" if facts.n_sites > 1 else "", "sites"),
        (f"{len(facts.views):,}", "view" if len(facts.views) == 1 else "views"),
        (number(separation, 2) if separation is not None else "", "separation, 0 to 1"),
        (f"{len(facts.rounds):,}" if facts.rounds else "", "rounds" if federated else "iterations"),
        (size(facts.bytes_up + facts.bytes_down) if federated else "", "sent, both ways"),
        (f"ε {short(facts.privacy[0])}" if facts.privacy else "", "privacy spent"),
        (_private_epsilon(facts), "privacy, with noise"),
    ]
    shown = "".join(tag("div", tag("b", escape(v)) + tag("span", escape(w))) for v, w in tiles if v)
    told = "".join(tag("dt", escape(about)) + tag("dd", escape(text)) for about, text in paragraphs(facts))
    return tag("div", shown, class_="tiles") + tag("dl", told, class_="summary")


def _private_epsilon(facts: Facts) -> str:
    """What the run with noise spent, where the page has one."""
    spent = facts.private.privacy if facts.private is not None else None
    return "" if spent is None else f"ε {short(spent[0])}"


def _code(text: str) -> str:
    """Escaped text in which `commands` are set as such."""
    return "".join(tag("code", escape(part)) if i % 2 else escape(part) for i, part in enumerate(text.split("`")))


def _choices(facts: Facts) -> str:
    """The selectors: what can be chosen on this page."""
    sites = [(s, facts.sites[s].name) for s in facts.assigned] if facts.own_page_of is None else []
    offered = (
        ("s", "Site", "all sites", sites),
        ("k", "Cluster", "all clusters", [(k, f"cluster {k}") for k in range(facts.n_clusters)]),
        ("v", "View", "all views", [(h, view.name) for h, view in enumerate(facts.views)]),
    )
    parts = []
    for key, name, everything, entries in offered:
        if len(entries) > 1:
            found = tag("option", everything, value="") + "".join(
                tag("option", escape(text), value=value) for value, text in entries
            )
            parts.append(tag("label", tag("span", name) + tag("select", found, id=f"choose-{key}", data_key=key)))
    return "".join(parts)


def _sections(facts: Facts) -> list[str]:
    marked = highlights(facts)
    unfolded = facts.n_clusters == 1
    cards = "".join(cluster_card(facts, marked, k, unfolded=unfolded) for k in range(facts.n_clusters))
    shown = []
    if facts.scores is not None:
        table = Table(facts.scores.columns, facts.scores.rows).to_html()
        shown.append(_section("scores", "Beside other ways", facts.scores.note, table))
    shown.append(
        _section(
            "clusters",
            "Clusters and what makes them",
            UNITS + _unit_notes(facts),
            tag("div", cards, class_="cards", data_print=str(facts.n_clusters <= MOST_PRINTED).lower()),
        )
    )
    if len(facts.sizes) > 1:
        shown.append(
            _section(
                "where",
                "Where the clusters are",
                "Share of a site's rows in each cluster, in per cent; empty where it has none.",
                sizes_table(facts),
            )
        )
    shown.append(
        _section(
            "maps", "Maps of the views", _map_words(facts), _figures([view_map(facts, v) for v in facts.maps], "wide")
        )
    )
    if facts.assigned:
        shown.append(_certainty_section(facts))
    if facts.private is not None:
        shown.append(_section("under-noise", "With noise: the privacy spent", *under_noise(facts, facts.private)))
    shown.append(_section("view-weights", "View weights", _weight_words(facts), weights_table(facts)))
    if facts.rounds:
        federated = any(r.bytes_up is not None for r in facts.rounds)
        unit, title = ("round", "Rounds and bytes") if federated or facts.n_sites > 1 else ("iteration", "Iterations")
        figures = [convergence(facts.rounds, unit), *([traffic(facts.rounds)] if federated else [])]
        shown.append(_section("rounds", title, "", _figures(figures, "wide")))
        if federated:
            shown.append(
                _section(
                    "refused",
                    "Refusals",
                    "Messages are checked; one that cannot be right is left out, and the round goes on.",
                    refusals(facts),
                )
            )
    if facts.privacy is not None:
        shown.append(_section("privacy", "What was released", *_released(facts)))
    if facts.config:
        shown.append(_section("again", "Run it again", *_again(facts)))
    return shown


def _section(name: str, title: str, words: str, content: str) -> str:
    said = tag("p", _code(words), class_="why") if words else ""
    return tag("section", tag("h2", escape(title)) + said + content, id=f"section-{name}")


def _figures(figures: Sequence[Figure], class_: str = "") -> str:
    return tag("div", "".join(figure.to_html() for figure in figures), class_=f"figures {class_}".strip())


def _unit_notes(facts: Facts) -> str:
    """How a site is marked in the tables of features, and what their numbers are where they are not plain."""
    mark = "mean of its rows in the cluster" if facts.measured is not None else "centre of its own model"
    if not facts.assigned or facts.n_sites == 1:
        marked = ""
    elif facts.own_page_of is not None:
        marked = f" The line marks this site: the {mark}."
    else:
        marked = f" Choose a site to see it beside: a line marks the {mark}."
    return marked + _what_numbers_are(facts)


def _what_numbers_are(facts: Facts) -> str:
    if facts.unit_rows:
        return " Rows were divided by their length first, so that numbers are shares of it."
    if not facts.spread_of_rows and facts.privacy is not None:
        return " Means and spreads are those that were released, with noise."
    return ""


def _map_words(facts: Facts) -> str:
    words = "The two directions in which {} of a view differ most, in spreads. Numbers are the centres of clusters."
    if any(len(found.points) for found in facts.maps.values()):
        words = words.format("rows") + " Dots are rows."
    else:
        words = words.format("centres")
    if any(found.own_centers for found in facts.maps.values()):
        own = facts.own_page_of is not None
        words += " Rings are" if own else " Choose a site to see, as rings, where"
        words += " the centres of the site's own model." if own else " the centres of its own model are."
    if facts.n_clusters > 10:
        words += " Colours repeat after ten clusters; choose one to see it alone."
    return words


def _certainty_section(facts: Facts) -> str:
    figures = [certainty_chart(facts)]
    if facts.gains:
        figures.append(gains_chart(facts.gains, held_out=facts.held_out))
    words = "Certainty: largest membership of a row."
    if facts.measured is not None:
        words += " Separation: 1 where rows lie on their centres, 0 where they are between two."
    if facts.personal:
        words += " Δ: how far the centres of the site's own model are from the global ones, in spreads."
    if facts.shares:
        words += (
            " Own: the share (0 to 1) of its own offset, scale, cluster sizes and so on that held-out rows let it keep."
        )
    if any((a.labels != a.global_labels).any() for a in facts.assigned.values()):
        words += " Rows moved: share that is in another cluster than in the global model."
    title = "The site and its model" if len(facts.assigned) == 1 else "Sites and their models"
    table, drawn = models_table(facts), "".join(figure.to_html() for figure in figures)
    if len(figures) == 1 and not facts.personal:  # a narrow table has room beside the figure
        return _section("sites", title, words, tag("div", table + drawn, class_="figures wide"))
    return _section("sites", title, words, table + tag("div", drawn, class_="figures wide"))


def _weight_words(facts: Facts) -> str:
    words = "How much each view counts; the weights of a model sum to 1."
    same = all(site.weights.get(v.name, v.weight) == v.weight for site in facts.sites for v in facts.views)
    if facts.n_sites > 1 and (facts.released_only or (same and facts.assigned)):
        words += " All sites have those of the global model; a site without a view does without."
    return words


def _released(facts: Facts) -> tuple[str, str]:
    assert facts.privacy is not None  # noqa: S101 - asked of a run with a budget only
    words = (
        "All that left a site under noise. Noise is given in units of the most that one row can change; the smaller, "
        "the more a release costs."
    )
    epsilon, delta = facts.privacy
    tables = tag("div", released_table(facts) + spent_table(facts), class_="figures")
    return words, tables + tag("p", f"Together: epsilon {short(epsilon)} at delta {delta:g}.")


def _again(facts: Facts) -> tuple[str, str]:
    if not facts.command:
        return "", tag("pre", escape(facts.config))
    words = (
        "A run with noise is not the same twice."
        if facts.privacy
        else "In the folder of the run. The same data and this file give the same model."
    )
    folded = tag("details", tag("summary", "config.toml") + tag("pre", escape(facts.config)))
    return words, tag("pre", escape(facts.command)) + folded


def _data(facts: Facts) -> dict[str, Any]:
    """What selectors need: per site, sizes, certainty and where it is in the features that are shown."""
    marked = highlights(facts)
    own_page, many_views = facts.own_page_of is not None, len(facts.views) > MOST_VIEWS
    numbers = {
        s: {
            "sizes": [int(n) for n in facts.sizes[s]],
            "certainty": [int(n) for n in histogram(assignment.certainty)],
            "features": site_values(facts, marked, s),
        }
        for s, assignment in facts.assigned.items()
    }
    first = {"site": "0" if own_page else "", "view": "0" if many_views else ""}
    return {"reach": marked.reach, **first, "sites": numbers}


def _safe_json(document: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
