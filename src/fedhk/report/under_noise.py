"""A run with noise beside one without: what the sites released, and how far it is from what they keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedhk._typing import FloatArray
from fedhk.report.facts import Facts
from fedhk.report.fitted import with_center_maps
from fedhk.report.maps import view_map
from fedhk.report.narrative import privacy_words
from fedhk.report.svg import Figure, Table, escape, tag
from fedhk.report.words import fixed, number, short

WORDS = (
    "The same sites were clustered once more, with noise. The rest of the page is of the run without noise, and made "
    "where all rows can be read. This section is made of what the sites released under noise, which is all that the "
    "page of a coordinator would show: no rows, no sizes, no models of single sites. Noise is given in units of the "
    "most that one row can change. Clusters have the number of the nearest above."
)


def under_noise(facts: Facts, private: Facts) -> tuple[str, str]:
    """What the section says first, and its content.

    Parameters
    ----------
    facts : Facts
        The run without noise.
    private : Facts
        The same sites under noise; nothing but what was released.
    """
    matched = with_center_maps(_renumbered(private, nearest(facts, private)))
    figures = [_apart(view_map(matched, view.name)) for view in matched.views]
    moved = tag(
        "p", "Beside the run above: how far released centres are from its global ones, in spreads.", class_="why"
    )
    content = (
        tag("p", escape(privacy_words(private)))
        + tag("div", released_table(private) + spent_table(private), class_="figures")
        + moved
        + _distance_table(facts, matched)
        + tag("div", "".join(figure.to_html() for figure in figures), class_="figures")
    )
    return WORDS, content


def released_table(facts: Facts) -> str:
    """What one site released, how often and with how much noise."""
    rows = [(phase, count, number(multiplier)) for phase, count, multiplier in facts.releases]
    return Table(("release", "times", "noise"), rows).to_html() if rows else tag("p", "The run kept no ledger.")


def spent_table(facts: Facts) -> str:
    """Epsilon by site, as its own ledger has it; nothing where there is none."""
    assert facts.privacy is not None  # noqa: S101 - asked of a run with a budget only
    rows = [(site, short(epsilon), f"{facts.privacy[1]:g}") for site, epsilon in facts.spent.items()]
    return Table(("spent at", "epsilon", "delta"), rows).to_html() if rows else ""


def nearest(facts: Facts, private: Facts) -> list[int]:
    """For each cluster of the one run the cluster of the other that stands for it, such that all are closest."""
    order: list[int] = linear_sum_assignment(_distances(facts, private).sum(axis=0))[1].tolist()
    return order


def _distances(facts: Facts, private: Facts) -> FloatArray:
    """Mean square distance of centres in spreads of the first run, of shape (views, clusters, clusters)."""
    other = {view.name: view.centers for view in private.views}
    pairs = [(view.deviations(view.centers), view.deviations(other[view.name])) for view in facts.views]
    return np.array([np.mean(np.square(a[:, None] - b[None]), axis=2) for a, b in pairs])


def _renumbered(facts: Facts, order: list[int]) -> Facts:
    return replace(facts, views=tuple(replace(view, centers=view.centers[order]) for view in facts.views))


def _distance_table(facts: Facts, matched: Facts) -> str:
    apart = np.sqrt(np.diagonal(_distances(facts, matched), axis1=1, axis2=2))
    rows = [(f"cluster {k}", *(fixed(float(d)) for d in apart[:, k])) for k in range(facts.n_clusters)]
    return Table(("", *(view.name for view in facts.views)), rows).to_html()


def _apart(figure: Figure) -> Figure:
    """A figure whose name is not that of the same figure of the run without noise."""
    return replace(figure, name=f"released-{figure.name}", title=f"{figure.title}, as released")
