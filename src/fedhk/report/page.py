"""The page: sections in the order in which people ask, in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from fedhk.data.named import ALL_SITES
from fedhk.report.columns import dictionary_table
from fedhk.report.features import Highlights, choose_features, cluster_card, site_values
from fedhk.report.maps import own_centers, view_map
from fedhk.report.noise import NO_RELEASES, WORDS, show_noise, show_releases
from fedhk.report.tables import models_table, refusals_table, sizes_table, weights_table
from fedhk.summary.charts import WORTH_A_LABEL, certainty, convergence, count_certainty, gains, selection, traffic
from fedhk.summary.facts import Facts, TriedNumber, Update
from fedhk.summary.html import Markup, escape, join, style_sheet, table, tag
from fedhk.summary.narrative import ALGORITHMS, banner, headline, tell_number
from fedhk.summary.words import brief, describe_no_drift, join_names, number, plural, two_digits

# Up to so many clusters, cards are open on paper.
MOST_PRINTED = 12

# With more views than this, the page begins with the first one chosen.
MOST_VIEWS = 6

# p-values below this one are not told apart.
TINY = 1e-4

UNITS = (
    "A spread is the standard deviation of a feature over all rows; bars say how many spreads a cluster's centre lies "
    "above (right) or below (left) the mean of all rows. Centres and means are in the units of the data."
)


def render(facts: Facts) -> str:
    """Write the whole page. The same facts give the same text."""
    here = Path(__file__)
    script = here.with_name("page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # nothing is loaded from anywhere, and no script runs but our own: even where a name were not escaped
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    shown = choose_features(facts)
    sections = list(_sections(facts, shown))
    title = facts.title if facts.own_page_of is None else f"{facts.title}, site {facts.own_page_of}"
    return Template(here.with_name("page.html").read_text("utf-8")).substitute(
        title=escape(title),
        policy=escape(policy),
        style=style_sheet(),
        head=_head(facts, title, sections),
        choices=_choices(facts),
        sections=join(*(section.to_html() for section in sections)),
        data=_to_safe_json(_data(facts, shown)),
        script=script,
        foot=escape(f"FedHK {facts.version}".strip()),
    )


@dataclass(frozen=True)
class _Section:
    """A part of the page: its name in links, its title, and what it shows."""

    name: str
    title: str
    content: Markup

    def to_html(self) -> Markup:
        return tag("section", tag("h2", self.title), self.content, id=f"section-{self.name}")

    def to_link(self) -> Markup:
        return tag("a", self.title, href=f"#section-{self.name}")


def _head(facts: Facts, title: str, sections: Sequence[_Section]) -> Markup:
    notice = banner(facts)
    return join(
        tag("h1", title),
        tag("p", f"FedHK report · {ALGORITHMS.get(facts.algorithm, facts.algorithm)}", class_="what"),
        tag("p", facts.about, class_="about") if facts.about else "",
        tag("p", _mark_code(notice), class_="banner") if notice else "",
        headline(facts),
        *(tag("p", _mark_code(note), class_="note") for note in facts.notes),
        tag("p", "On this page: ", *(section.to_link() for section in sections), class_="contents"),
    )


def _mark_code(text: str) -> Markup:
    """Set `commands` in a text as such."""
    return join(*(tag("code", part) if i % 2 else part for i, part in enumerate(text.split("`"))))


def _choices(facts: Facts) -> Markup:
    """Make the selectors of what can be chosen on this page."""
    sites = {s: facts.sites[s].name for s in facts.assigned} if facts.own_page_of is None else {}
    offered = (
        ("s", "Site", "all sites", sites),
        ("k", "Cluster", "all clusters", {k: f"cluster {k}" for k in range(facts.n_clusters)}),
        ("v", "View", "all views", {h: view.name for h, view in enumerate(facts.views)}),
    )
    parts = []
    for key, name, everything, entries in offered:
        if len(entries) > 1:
            options = (tag("option", text, value=value) for value, text in entries.items())
            select = tag("select", tag("option", everything, value=""), *options, id=f"choose-{key}", data_key=key)
            parts.append(tag("label", tag("span", name), select))
    return join(*parts)


def _sections(facts: Facts, shown: Highlights) -> Iterator[_Section]:
    if facts.scores is not None:
        yield _section("scores", "Beside other ways", facts.scores.note, table(facts.scores.columns, facts.scores.rows))
    yield _clusters(facts, shown)
    if facts.update is not None:
        yield _update(facts.update)
    yield from (_number(facts, one) for one in facts.selection if one.taken)
    yield from (_section(f"after-{e.name}", e.title, e.words, Markup(e.content)) for e in facts.after)
    if len(facts.sizes) > 1:
        words = "Share of a site's rows in each cluster, in per cent; empty where it has none."
        yield _section("where", "Where the clusters are", words, sizes_table(facts))
    maps = [view_map(facts, h).to_html() for h in range(len(facts.views))]
    abreast = "figures" if len(maps) == 3 else "figures wide"  # three maps stand in one line
    yield _section("maps", "Maps of the views", _map_words(facts), tag("div", *maps, class_=abreast))
    yield from _sites(facts)
    if facts.private is not None:
        yield _section("under-noise", "With noise: the privacy spent", WORDS, show_noise(facts, facts.private))
    if facts.dictionary:
        parts = (tag("div", tag("h3", view), dictionary_table(known)) for view, known in facts.dictionary.items())
        yield _section("columns", "What the columns are", "By the data dictionary that all sites share.", *parts)
    if len(facts.views) > 1:
        yield _section("view-weights", "View weights", _weight_words(facts), weights_table(facts))
    yield from _rounds(facts)
    if facts.privacy is not None:
        yield _releases(facts, *facts.privacy)
    if facts.config:
        yield _repeat(facts)


def _rounds(facts: Facts) -> Iterator[_Section]:
    refusals = refusals_table(facts)
    if facts.rounds:
        figures = [convergence(facts.rounds, unit=facts.step_name, noisy=facts.privacy is not None).to_html()]
        if facts.traffic:
            figures.append(traffic(facts.rounds).to_html())
        title = "Rounds and bytes" if facts.step_name == "round" else "Iterations"
        everyone = facts.traffic and not refusals
        words = (
            "All sites answered in every round that they were asked in, and no answer was refused." if everyone else ""
        )
        yield _section("rounds", title, words, tag("div", *figures, class_="figures wide"))
    if refusals:
        words = "The server checks answers. One that cannot be right is left out, and the round goes on."
        yield _section("refused", "Answers that were refused or missing", words, refusals)


def _section(name: str, title: str, words: str, *content: Any) -> _Section:
    why = tag("p", _mark_code(words), class_="why") if words else ""
    return _Section(name, title, join(why, *content))


def _update(update: Update) -> _Section:
    words = "The model was updated with new rows. Clusters that were there before keep their numbers."
    lists = (("New", update.new), ("Gone", update.gone), ("Moved", sorted({m.cluster for m in update.moved})))
    found = [f"{word}: {join_names([f'cluster {k}' for k in clusters])}." for word, clusters in lists if clusters]
    if not update.moved:
        found.append(describe_no_drift(compared=update.compared))
    said = tag("ul", *(tag("li", text) for text in found))
    if not update.moved:
        return _section("update", "What is new since the run before", words, said)
    words += (
        " Distance is how far the rows of a cluster have moved on average, in standard deviations; beside it is what "
        "chance alone would give. p is adjusted for the number of tests."
    )
    rows = [
        (m.site, m.cluster, *map(two_digits, (m.distance, m.by_chance)), number(m.p, 2) if m.p >= TINY else "< 0.0001")
        for m in update.moved
    ]
    columns = ("where", "cluster", "distance", "by chance", "p")
    everywhere = table(columns, [row for row in rows if row[0] == ALL_SITES])
    single = [row for row in rows if row[0] != ALL_SITES]
    by_site = tag("details", tag("summary", "By site"), table(columns, single)) if single else ""
    return _section("update", "What is new since the run before", words, said, everywhere, by_site)


def _number(facts: Facts, chosen: TriedNumber) -> _Section:
    words = f"{plural(chosen.n_clusters, 'cluster')}. {tell_number(chosen)}"
    figure = tag("div", selection(facts.selection).to_html(), class_="figures wide")
    return _section("number", "How many clusters there are", words, figure)


def _clusters(facts: Facts, shown: Highlights) -> _Section:
    words = UNITS
    if facts.assigned and facts.n_sites > 1:
        mark = "mean of its rows in the cluster" if facts.has_rows else "centre of its own model"
        own = facts.own_page_of is not None
        words += f" The line marks this site: the {mark}." if own else f" Choose a site, and a line marks the {mark}."
    if facts.unit_rows:
        words += " Rows were divided by their length first, so that numbers are shares of it."
    if rooted := [view.name for view in facts.views if view.form.root and not view.form.unit]:
        words += f" Numbers of {join_names(rooted)} are square roots of the cells."
    if facts.privacy is not None:
        noisy = "Centres" if facts.spread_of_rows or facts.unit_rows else "Centres, means and spreads"
        words += f" {noisy} were released with noise and are not exact, least of all in clusters with few rows."
        words += " Levels of a category are moved to the nearest shares that add up to 1."
        words += " A centre lies where the rows of its cluster are densest, so that it may have the commonest level of"
        words += ' a category alone: for the shares of levels ask a profile ("Table 1").'
    cards = (cluster_card(facts, shown, k, unfolded=facts.n_clusters == 1) for k in range(facts.n_clusters))
    printed = str(facts.n_clusters <= MOST_PRINTED).lower()
    content = tag("div", *cards, class_="cards", data_print=printed)
    return _section("clusters", "Clusters and what makes them", words, content)


def _map_words(facts: Facts) -> str:
    what = "rows" if facts.has_rows else "centres"
    words = f"Each map shows the two directions in which {what} of a view differ most, in spreads. "
    words += "Dots are rows, numbers are centres of clusters" if facts.has_rows else "Numbers are centres of clusters"
    words += "; where they would hide each other, they are moved apart."
    if any(own_centers(facts, view) for view in facts.views):
        own = facts.own_page_of is not None
        words += " The centres of the common model may lie beside the rows of a site that measures differently."
        words += " Rings are" if own else " Choose a site to see, as rings, where"
        words += " the centres of the site's own model." if own else " the centres of its own model are."
    if facts.n_clusters > 10:
        words += " Colours repeat after ten clusters; choose one to see it alone."
    return words


def _sites(facts: Facts) -> Iterator[_Section]:
    if facts.deviations:
        words = "By location and spread of their columns these sites differ from the others by more than sites do."
        yield _section("deviations", "Sites to look at", words, tag("ul", *(tag("li", d) for d in facts.deviations)))
    if facts.assigned:
        yield _site_models(facts)


def _site_models(facts: Facts) -> _Section:
    terms = {"certainty": "largest membership of a row, on average"}
    if facts.has_rows:
        terms["separation"] = "1 where rows lie on the means of their clusters, 0 where they are between two"
    if facts.n_moved:
        terms["rows moved"] = "share of rows that are in another cluster than in the global model"
    if facts.personal:
        terms["Δ"] = "how far the centres of the site's own model are from the global ones, in spreads"
    if any(site.shares for site in facts.sites):
        terms["own"] = "how much of its own offset, scale, cluster sizes and so on the site keeps, from 0 to 1"
    explained = tag("dl", *(join(tag("dt", term), tag("dd", text)) for term, text in terms.items()), class_="terms")
    title = "The site and its model" if len(facts.assigned) == 1 else "Sites and their models"
    parts = [models_table(facts), certainty(facts).to_html()]
    if facts.gains:
        parts.append(gains(facts.gains, held_out=facts.held_out).to_html())
    above = 1 if facts.gains or facts.personal else 0  # a narrow table has room beside the figure
    return _section("sites", title, "", explained, *parts[:above], tag("div", *parts[above:], class_="figures wide"))


def _weight_words(facts: Facts) -> str:
    words = "How much each view counts; the weights of a model sum to 1."
    same = all(site.weights.get(v.name, v.weight) == v.weight for site in facts.sites for v in facts.views)
    if facts.n_sites > 1 and (facts.released_only or (same and facts.assigned)):
        words += " All sites have those of the global model; a site without a view does without."
    return words


def _releases(facts: Facts, epsilon: float, delta: float) -> _Section:
    updated = facts.update is not None
    if facts.releases:
        whose = "the site" if facts.own_page_of is not None else "a site"
        which = "in this run and the runs that it goes on from" if updated else "in this run"
        if updated and facts.elsewhere:  # then the site's ledger is read for this update alone
            which = "in this update"
        words = (
            f"The table lists all that left {whose} with noise {which}. The unit of noise is the most that one row can "
            "change in the release; less noise costs more of the budget. What other runs and questions released is not "
            "in it: `fedhk ledger` adds up everything."
        )
    else:
        words = NO_RELEASES
    what = "Together with the runs that this update goes on from" if updated else "Together"
    together = tag("p", f"{what}: epsilon {brief(epsilon)} at delta {brief(delta)}.")
    return _section("privacy", "What was released", words, show_releases(facts), together)


def _code(text: str) -> Markup:
    """Show a command or a file; keys scroll it where a line is wider than the page."""
    return tag("pre", text, tabindex=0)


def _repeat(facts: Facts) -> _Section:
    if facts.own_page_of is not None and facts.elsewhere:
        return _section("again", "What was run", "Only the coordinator can run it again.", _code(facts.config))
    if facts.update is not None:
        words = (
            "This run is an update of a model with new rows. The file has the settings of the fit that it goes on "
            "from: it can make a new fit, and not this update."
        )
        words += " The privacy budget in it is that of this update." if facts.privacy else ""
        return _section("again", "What was run", words, _code(facts.config))
    if not facts.command:
        return _section("again", "Run it again", "", _code(facts.config))
    words = "Run this command in the folder of the run. "
    if "PATH" in facts.command:
        words = "Run these commands in the folder of the run. PATH is the folder of your certificates. "
    words += "Noise differs from run to run." if facts.privacy else "The same data and this file give the same model."
    folded = tag("details", tag("summary", "config.toml"), _code(facts.config))
    return _section("again", "Run it again", words, _code(facts.command), folded)


def _data(facts: Facts, shown: Highlights) -> dict[str, Any]:
    """Collect what selectors need: per site, sizes, certainty and where it is in the features that are shown."""
    sites = {
        s: {
            "sizes": sizes.tolist(),
            "certainty": count_certainty(facts.assigned[s].certainty).tolist(),
            "features": site_values(facts, shown, s),
        }
        for s, sizes in facts.sizes.items()
    }
    site, view = "0" if facts.own_page_of is not None else "", "0" if len(facts.views) > MOST_VIEWS else ""
    return {"reach": shown.reach, "least": WORTH_A_LABEL, "site": site, "view": view, "sites": sites}


def _to_safe_json(document: Any) -> str:
    """Write JSON that cannot end the element it stands in."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
