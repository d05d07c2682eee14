"""Tables of sites: which clusters and views they have, how their models differ, and who was refused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedhk.report.facts import Facts
from fedhk.report.svg import escape, tag
from fedhk.report.words import counted, fixed, number, percent

# Longer tables are folded.
MOST_ROWS = 15

# What a site took of its own rows, in words.
COMPONENTS = {
    "shift": "offset",
    "spread": "scale",
    "sizes": "sizes",
    "centers": "centres",
    "view_weights": "view weights",
    "core": "core",
    "cluster_factor": "cluster factor",
    "feature_factors": "feature factors",
    "view_factor": "view factor",
}


def shaded(value: float, text: str) -> str:
    """A cell whose background says how large its number is, 0 to 1."""
    if not math.isfinite(value):
        return tag("td", escape(text), class_="none")
    level = f"{min(max(value, 0.0), 1.0):.2f}".removeprefix("0")
    return f"<td>{escape(text)}</td>" if level == ".00" else f'<td style="--s:{level}">{escape(text)}</td>'


def site_table(name: str, columns: Sequence[str], rows: Sequence[tuple[int | None, str, Sequence[str]]]) -> str:
    """A table with a row per site; rows are (number of the site, its name, cells as markup). Long ones are folded."""
    head = "".join(tag("th", escape(column), scope="col") for column in columns)
    body = "".join(
        tag("tr", tag("th", escape(site), scope="row", title=site) + "".join(cells), data_s=s)
        for s, site, cells in rows
    )
    table = tag("div", tag("table", tag("thead", tag("tr", head)) + tag("tbody", body)), class_="scroll")
    if len(rows) <= MOST_ROWS:
        return tag("div", table, id=name)
    return tag("details", tag("summary", f"{counted(len(rows), 'row')} by site") + table, id=name)


def sizes_table(facts: Facts) -> str:
    """Share of each site's rows that is in each cluster, in per cent."""
    rows = []
    most = max(float((sizes / max(int(sizes.sum()), 1)).max()) for sizes in facts.sizes.values()) or 1.0
    for s, sizes in facts.sizes.items():
        total = max(int(sizes.sum()), 1)
        cells = [
            shaded(n / total / most, "" if n == 0 else "<1" if n / total < 0.005 else f"{100 * n / total:.0f}")
            for n in sizes
        ]
        rows.append((s, facts.sites[s].name, [tag("td", f"{sizes.sum():,}"), *cells]))
    return site_table("sizes", ("site", "rows", *map(str, range(facts.n_clusters))), rows)


def weights_table(facts: Facts) -> str:
    """View weights by site; a site without a view has none."""
    names = [view.name for view in facts.views]
    rows: list[tuple[int | None, str, Sequence[str]]] = [
        (
            None,
            "global model" if facts.n_sites > 1 else "model",
            [shaded(view.weight, number(view.weight)) for view in facts.views],
        )
    ]
    for s, site in enumerate(facts.sites):
        if not site.views or facts.n_sites == 1:
            continue
        weights = [site.weights.get(view.name, view.weight) for view in facts.views]
        cells = [
            shaded(weight, number(weight)) if name in site.views else tag("td", "no data", class_="none")
            for name, weight in zip(names, weights, strict=True)
        ]
        rows.append((s, site.name, cells))
    return site_table("weights", ("", *names), rows)


def models_table(facts: Facts) -> str:
    """Each site: rows, clusters, certainty, separation, and how far its own model is from the global one."""
    components = [c for c in COMPONENTS if any(share.get(c, 0.0) > 0 for share in facts.shares.values())]
    names = [view.name for view in facts.views] if facts.personal else []
    separation = facts.measured.separation if facts.measured is not None else {}
    moves = any(np.any(a.labels != a.global_labels) for a in facts.assigned.values())
    lacking = {site.name: [v.name for v in facts.views if v.name not in site.views] for site in facts.sites}
    lacks = any(lacking.values())
    rows = []
    for s, site in enumerate(facts.sites):
        found = site.assignment
        if found is None:
            continue
        n_rows = len(found.labels)
        cells = [
            tag("td", f"{n_rows:,}"),
            *([tag("td", escape(", ".join(lacking[site.name])))] if lacks else []),
            tag("td", f"{len(np.unique(found.labels))} of {facts.n_clusters}"),
            tag("td", fixed(float(found.certainty.mean())) if n_rows else "–"),
        ]
        if separation:
            cells.append(tag("td", fixed(separation.get(s, math.nan))))
        if moves:
            cells.append(tag("td", percent(float(np.mean(found.labels != found.global_labels))) if n_rows else "–"))
        distances = facts.distances(site)
        cells += [shaded(d := distances.get(name, math.nan), fixed(d)) for name in names]
        taken = facts.shares.get(site.name, {})
        cells += [shaded(value := taken.get(c, 0.0), fixed(value)) for c in components]
        rows.append((s, site.name, cells))
    columns = (
        "site",
        "rows",
        *(("lacks",) if lacks else ()),
        "clusters found",
        "certainty",
        *(("separation",) if separation else ()),
        *(("rows moved",) if moves else ()),
        *(f"Δ {name}" for name in names),
        *(f"own {COMPONENTS[c]}" for c in components),
    )
    return site_table("models", columns, rows)


def refusals(facts: Facts) -> str:
    """Which answers were refused, when and why, and when sites did not answer."""
    rows = [(r.number, site, why) for r in facts.rounds for site, why in r.refused.items()]
    most = max((r.sites or 0 for r in facts.rounds), default=0)
    short = [r for r in facts.rounds if r.sites is not None and r.sites < most]
    told = ""
    if short:
        told = tag(
            "p",
            f"In {counted(len(short), 'round')} fewer than {most} sites counted; the least were "
            f"{min(r.sites or 0 for r in short)}.",
        )
    if not rows:
        return told + tag("p", "No answer was refused.", id="refusals")
    body = "".join(
        tag(
            "tr",
            tag("th", str(n), scope="row")
            + tag("td", escape(site), class_="text")
            + tag("td", escape(why), class_="text"),
        )
        for n, site, why in rows
    )
    head = "".join(tag("th", text, scope="col") for text in ("round", "site", "reason"))
    table = tag("div", tag("table", tag("thead", tag("tr", head)) + tag("tbody", body)), class_="scroll")
    if len(rows) <= MOST_ROWS:
        return told + tag("div", table, id="refusals")
    return told + tag("details", tag("summary", f"{len(rows):,} refusals") + table, id="refusals")
