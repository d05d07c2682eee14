"""The figures of the report, for notebooks: each function takes a fitted estimator and returns a `Plot`.

What a report of the coordinator does not show, figures do not show either: with privacy or secure sums, give `site` to
draw one site's rows and model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from fedhk._files import write_atomically
from fedhk.report import charts, features, maps, tables
from fedhk.report.facts import Facts
from fedhk.report.fitted import facts_of_model
from fedhk.report.notebook import framed, standalone_html, standalone_svg
from fedhk.report.page import headline, render
from fedhk.report.svg import Figure

__all__ = [
    "Plot",
    "certainty",
    "cluster_features",
    "cluster_sizes",
    "convergence",
    "gains",
    "report",
    "traffic",
    "view_map",
    "view_weights",
]


@dataclass(frozen=True)
class Plot:
    """A figure: notebooks show it, `save` writes it.

    Parameters
    ----------
    title : str
        What it shows.
    html : str
        The figure with its caption and table.
    svg : str or None
        The drawing alone, where it is one.
    page : str or None
        The whole page, where it is one.
    """

    title: str
    html: str
    svg: str | None = None
    page: str | None = None

    def _repr_html_(self) -> str:
        return framed(self.html)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as a page (`.html`) or as a drawing (`.svg`), by the ending of the name."""
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix == ".svg" and self.svg is not None:
            text = standalone_svg(self.svg)
        elif suffix == ".html":
            text = self.page or standalone_html(self.title, self.html)
        else:
            allowed = ".html" if self.svg is None else ".html or .svg"
            raise ValueError(f"path={str(path)!r} must end in {allowed}.")
        write_atomically(target, text.encode())
        return target

    def __repr__(self) -> str:
        return f"Plot({self.title!r})"


def _facts(model: Any, sites: Any = None, site: str | None = None) -> Facts:
    check_is_fitted(model)
    return facts_of_model(model, sites, site)


def _drawn(figure: Figure) -> Plot:
    return Plot(figure.title, figure.to_html(), figure.svg)


def _need(found: object, what: str, why: str) -> None:
    if not found:
        raise ValueError(f"The model has no {what} to draw: {why}.")


NO_ROUNDS = "it has no history"
NO_LABELS = (
    "it was loaded from a file, which holds no labels, or it was fitted with privacy or secure sums, with which only a "
    "site may see its labels: give site="
)


def convergence(model: Any) -> Plot:
    """The objective by round.

    Parameters
    ----------
    model : estimator
        Any fitted FedHK estimator.
    """
    facts = _facts(model)
    _need(facts.rounds, "rounds", NO_ROUNDS)
    return _drawn(charts.convergence(facts.rounds))


def traffic(model: Any) -> Plot:
    """Bytes by round and direction.

    Parameters
    ----------
    model : estimator
        A federated estimator that was fitted in this process.
    """
    rounds = _facts(model).rounds
    counted = rounds and all(record.bytes_up is not None for record in rounds)
    _need(counted, "traffic", "it was fitted at one site, or loaded from a file, which does not keep it")
    return _drawn(charts.traffic(rounds))


def certainty(model: Any, site: str | None = None) -> Plot:
    """How certain memberships are.

    Parameters
    ----------
    model : estimator
        An estimator that was fitted in this process.
    site : str, optional
        This site's rows alone.
    """
    facts = _facts(model, site=site)
    _need(facts.assigned, "memberships", NO_LABELS)
    return _drawn(charts.certainty_chart(facts))


def cluster_sizes(model: Any, site: str | None = None) -> Plot:
    """Share of each site's rows in each cluster, as a table. `model` and `site` are as in `certainty`."""
    facts = _facts(model, site=site)
    _need(facts.assigned, "labels", NO_LABELS)
    return Plot("Where the clusters are", tables.sizes_table(facts))


def view_weights(model: Any, site: str | None = None) -> Plot:
    """View weights of the global model and of each site's own, as a table. `model` and `site` are as in `certainty`."""
    return Plot("View weights", tables.weights_table(_facts(model, site=site)))


def cluster_features(model: Any, cluster: int | None = None) -> Plot:
    """What characterises clusters: the features in which centres are furthest from the mean of all rows.

    Parameters
    ----------
    model : estimator
        Any fitted FedHK estimator.
    cluster : int, optional
        One cluster; by default all.
    """
    facts = _facts(model)
    if cluster is not None and cluster not in range(facts.n_clusters):
        raise ValueError(f"cluster={cluster!r} must be from 0 to {facts.n_clusters - 1}.")
    chosen = range(facts.n_clusters) if cluster is None else [cluster]
    marked = features.highlights(facts)
    cards = "".join(features.cluster_card(facts, marked, k, unfolded=cluster is not None) for k in chosen)
    return Plot("What makes clusters", f'<div class="cards">{cards}</div>')


def view_map(model: Any, view: str | int = 0, sites: Any = None, site: str | None = None) -> Plot:
    """A view in two dimensions.

    Parameters
    ----------
    model : estimator
        Any fitted FedHK estimator.
    view : str or int, default=0
        Name or number of the view.
    sites : dict or list of sites, optional
        The rows that the model was fitted to, as for `fit`; without them only centres are drawn.
    site : str, optional
        This site's rows alone.
    """
    facts = _facts(model, sites, site)
    names = [part.name for part in facts.views]
    name = names[view] if isinstance(view, int) and view in range(len(names)) else view
    if name not in names:
        raise ValueError(f"view={view!r} is not a view of the model; it has {names}.")
    return _drawn(maps.view_map(facts, str(name)))


def gains(model: Any, sites: Any, site: str | None = None) -> Plot:
    """Objective per row of each site under the global and its own model.

    Parameters
    ----------
    model : estimator
        A federated estimator that was fitted in this process.
    sites : dict or list of sites
        The rows that it was fitted to; `fedhk.evaluate` compares on rows that no model saw.
    site : str, optional
        This site alone.
    """
    facts = _facts(model, sites, site)
    _need(facts.gains, "gains", "all sites have the global model, or only a site may see its own: give site=")
    return _drawn(charts.gains_chart(facts.gains, held_out=facts.held_out))


def report(model: Any, sites: Any = None, site: str | None = None) -> Plot:
    """The whole report of a fitted estimator; `save` writes the page that `fedhk report` makes of a run.

    Parameters
    ----------
    model : estimator
        Any fitted FedHK estimator.
    sites : dict or list of sites, optional
        The rows that it was fitted to, as for `fit`.
    site : str, optional
        The page of this site alone.
    """
    facts = _facts(model, sites, site)
    return Plot(f"Report of {facts.title}", headline(facts), page=render(facts))
