"""Facts made up for tests, and what is found on a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np

from fedhk.report.run import write_report
from fedhk.summary.facts import Assignment, Facts, Round, Rows, Site, View

HOSTILE = "<script>alert(1)</script>'\"&`${x}"


def dots(svg):
    """How many rows a map shows."""
    return len(re.findall(r"M[\d.-]+ [\d.-]+h\.1", svg))


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.source, self.tags, self.text = text, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_data(self, data):
        self.text.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)

    @property
    def words(self):
        """All text, with single spaces."""
        return " ".join(" ".join(self.text).split())

    @property
    def data(self):
        """What selectors read."""
        return json.loads(re.search(r'id="data">(.*?)</script>', self.source, re.DOTALL)[1])

    def section(self, name):
        """One section as a page of its own."""
        return Page(re.search(rf'<section id="section-{name}">.*?</section>', self.source, re.DOTALL)[0])


def page_of(folder, **options):
    """The page of a run folder."""
    return Page(write_report(folder, folder.parent / "page.html", **options).read_text("utf-8"))


def made_up(*, n_sites=3, n_clusters=4, widths=(6, 5), n_rows=30, rounds=5, seed=0, names=None):
    """Facts of a run that never was: rows around centres, all models alike."""
    rng = np.random.default_rng(seed)
    named = names or {}
    views = tuple(
        View(
            named.get("view", "view") + f" {h}",
            tuple(f"{named.get('feature', 'feature')} {j}" for j in range(width)),
            rng.normal(10, 3, (n_clusters, width)),
            1 / len(widths),
            np.full(width, 10.0),
            np.full(width, 3.5),
        )
        for h, width in enumerate(widths)
    )
    sites = []
    for s in range(n_sites):
        labels = rng.integers(n_clusters, size=n_rows)
        certainty = rng.uniform(1 / n_clusters, 1, n_rows)
        own = {view.name: view.centers + rng.normal(0, 0.5, view.centers.shape) for view in views}
        sites.append(
            Site(
                f"{named.get('site', 'site')} {s}",
                tuple(own),
                Assignment(labels, labels, certainty),
                own,
                {view.name: view.weight for view in views},
                rows=Rows({v.name: v.centers[labels] + rng.normal(0, 1, (n_rows, len(v.mean))) for v in views}, labels),
                separation=0.4,
            )
        )
    refused = {sites[0].name: named.get("reason", "its counts are negative")}
    return Facts(
        title=named.get("title", "run"),
        algorithm=named.get("algorithm", "e-fkmvc"),
        views=views,
        sites=tuple(sites),
        n_sites=n_sites,
        rounds=tuple(
            Round(r, 50 + 9 / r, 0.1, n_sites - (r == 1), 10_000 * n_sites, 9_000 * n_sites, refused if r == 1 else {})
            for r in range(1, rounds + 1)
        ),
        converged=True,
        stop_reason=named.get("stop", "Nothing changed."),
        fuzzifier=1.06,
        n_rows=n_sites * n_rows,
        config=named.get("config", "seed = 0"),
        command="fedhk fit --config config.toml --out again/",
        version="0",
    )
