"""A run with noise beside one without: what the sites released, and how far it is from what they keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedhk._typing import FloatArray
from fedhk.report.maps import view_map
from fedhk.summary.facts import Facts
from fedhk.summary.html import Markup, join, table, tag
from fedhk.summary.narrative import tell_privacy
from fedhk.summary.words import brief, number, two_digits

WORDS = (
    "The same sites were clustered once more, with noise. The rest of the page is of the run without noise, and made "
    "where all rows can be read. This section is made of what the sites released under noise, which is all that the "
    "page of a coordinator would show: no rows, no sizes, no models of single sites. Noise is given in units of the "
    "most that one row can change. Clusters have the number of the nearest above."
)


def show_noise(facts: Facts, private: Facts) -> Markup:
    """Show what the sites of a run released when they ran again with noise: `private` holds nothing else."""
    order = match_clusters(facts, private)
    matched = replace(private, views=tuple(replace(v, centers=v.centers[order]) for v in private.views))
    apart = np.sqrt(np.diagonal(_distances(facts, matched), axis1=1, axis2=2))
    rows = [(f"cluster {k}", *map(two_digits, apart[:, k])) for k in range(facts.n_clusters)]
    maps = (view_map(matched, h) for h in range(len(matched.views)))
    figures = (replace(m, name=f"released-{m.name}", title=f"{m.title}, as released").to_html() for m in maps)
    why = "Beside the run above: how far released centres are from its global ones, in spreads."
    return join(
        tag("p", tell_privacy(private)),
        show_releases(private),
        tag("p", why, class_="why"),
        table(("", *(view.name for view in facts.views)), rows),
        tag("div", *figures, class_="figures"),
    )


NO_RELEASES = (
    "Each site has written what it released with noise into its own ledger, which is not in the folder of this run. A "
    "site on a machine of its own has it in its state folder, as ledger.jsonl. There, `fedhk ledger` adds it up, and "
    "`fedhk report` with `--site` and `--own` lists it."
)


def show_releases(facts: Facts) -> Markup:
    """Show what one site released, how often and with how much noise, and what the ledger of each says it spent."""
    releases = [(phase, count, number(multiplier)) for phase, count, multiplier in facts.releases]
    delta = brief(facts.privacy[1]) if facts.privacy else ""
    spent = [(site, brief(epsilon), delta) for site, epsilon in facts.spent.items()]
    return tag(
        "div",
        table(("release", "times", "noise"), releases) if releases else "",
        table(("spent at", "epsilon", "delta"), spent) if spent else "",
        class_="figures",
    )


def match_clusters(facts: Facts, private: Facts) -> list[int]:
    """Find for each cluster of the one run the cluster of the other that stands for it, such that all are closest."""
    order: list[int] = linear_sum_assignment(_distances(facts, private).sum(axis=0))[1].tolist()
    return order


def _distances(facts: Facts, private: Facts) -> FloatArray:
    """Mean square distance of centres in spreads of the first run, of shape (views, clusters, clusters)."""
    other = {view.name: view.centers for view in private.views}
    pairs = [(view.deviations(view.centers), view.deviations(other[view.name])) for view in facts.views]
    return np.array([np.mean(np.square(a[:, None] - b[None]), axis=2) for a, b in pairs])
