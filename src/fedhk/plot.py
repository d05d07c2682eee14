"""The figures of the report, for notebooks: each function takes a fitted estimator and returns a `Plot`.

All functions have the same arguments first: `sites`, the rows that the model was fitted to (as for `fit`), and `site`,
to show that site alone. What a report of the coordinator does not show, figures do not show either: with privacy or
secure sums, give `site` to draw one site's rows and model. Drawings go on the matplotlib axes `ax`, by default on new
ones. They need matplotlib: `pip install "fedhk[plot]"`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedhk._files import write_atomically
from fedhk._version import __version__
from fedhk.after import drawings
from fedhk.after.comparison import Comparison, compare
from fedhk.after.outcomes import outcomes as find_outcomes
from fedhk.after.profile import Profile
from fedhk.after.profile import profile as find_profile
from fedhk.after.run import Answered, check_model
from fedhk.after.stability import Stability
from fedhk.after.stability import stability as find_stability
from fedhk.after.survival import Survival
from fedhk.data.clients import name_sites
from fedhk.estimators.efkmvc import are_sites
from fedhk.privacy.mechanism import refuse_budget
from fedhk.report import drawings as pictures
from fedhk.report import maps, page
from fedhk.report.after import describe_answers
from fedhk.report.rows import read_fitted
from fedhk.summary import charts
from fedhk.summary.drawing import Figure
from fedhk.summary.facts import Facts
from fedhk.summary.html import Markup, document, frame
from fedhk.summary.narrative import headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.figure import SubFigure

T = TypeVar("T")

__all__ = [
    "Plot",
    "certainty",
    "cluster_features",
    "cluster_sizes",
    "comparison",
    "convergence",
    "gains",
    "profile",
    "report",
    "selection",
    "stability",
    "survival",
    "traffic",
    "view_map",
    "view_weights",
]


def __dir__() -> list[str]:
    return __all__


NO_LABELS = (
    "it was loaded from a file, which holds no labels, or it was fitted with privacy or secure sums, with which only a "
    "site may see its labels: give site="
)


@dataclass(frozen=True)
class Plot:
    """A drawing or a page: notebooks show it, `save` writes it.

    Parameters
    ----------
    title : str
        What it shows.
    content : fedhk.summary.drawing.Figure or str
        A drawing with its words and numbers, or HTML.
    page : str or None
        The whole page, where it is one.
    """

    title: str
    content: Figure | str
    page: str | None = None

    @property
    def ax(self) -> Axes | None:
        """The matplotlib axes; None for pages."""
        return self.content.ax if isinstance(self.content, Figure) else None

    @property
    def figure(self) -> Canvas | SubFigure | None:
        """The matplotlib figure; None for pages."""
        return None if self.ax is None else self.ax.figure

    @property
    def svg(self) -> str | None:
        """The drawing alone; None for pages."""
        return self.content.to_svg() if isinstance(self.content, Figure) else None

    @property
    def html(self) -> str:
        """What notebooks show: a drawing with its caption and numbers, or the beginning of a page."""
        return self.content.to_html() if isinstance(self.content, Figure) else self.content

    def _repr_html_(self) -> str:
        return frame(Markup(self.html))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as a page (`.html`) or as a drawing (`.svg`, `.pdf`, `.png`), by the ending of the name."""
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix in (".pdf", ".png") and isinstance(self.content, Figure):
            self.content.ax.figure.figure.savefig(target, dpi=300)
            return target
        if suffix == ".svg" and isinstance(self.content, Figure):
            text = self.content.to_file()
        elif suffix == ".html":
            text = self.page or document(self.title, Markup(self.html))
        else:
            allowed = ".html, .svg, .pdf or .png" if isinstance(self.content, Figure) else ".html"
            raise ValueError(f"path={str(path)!r} must end in {allowed}.")
        write_atomically(target, text.encode())
        return target

    def __repr__(self) -> str:
        return f"Plot({self.title!r})"


def _read(model: Any, sites: Any, site: str | None) -> Facts:
    check_model(model)
    return replace(read_fitted(_place_rows(model, sites), sites, site), version=__version__)


def _place_rows(model: Any, sites: Any) -> Any:
    """Return a model with labels of the sites: of one from a file, a copy that has those of `predict`."""
    if sites is None or hasattr(model, "labels_") or not hasattr(model, "predict_proba"):
        return model
    found = copy(model)
    if not are_sites(sites):
        found.labels_, found.memberships_ = model.predict(sites), model.predict_proba(sites)
        return found
    named = name_sites(sites)
    found.labels_ = {site: model.predict(views) for site, views in named.items()}
    found.memberships_ = {site: model.predict_proba(views) for site, views in named.items()}
    found.global_labels_, found.client_models_ = found.labels_, dict.fromkeys(named, model)
    return found


def _need(found: object, what: str, why: str) -> None:
    if not found:
        raise ValueError(f"The model has no {what} to draw: {why}.")


def _draw(figure: Figure) -> Plot:
    return Plot(figure.title, figure)


def convergence(model: Any, sites: Any = None, *, site: str | None = None, ax: Axes | None = None) -> Plot:
    """Draw the objective by round."""
    facts = _read(model, sites, site)
    _need(facts.rounds, "rounds", "it has no history")
    return _draw(charts.convergence(facts.rounds, ax, facts.step_name, noisy=facts.privacy is not None))


def selection(model: Any, sites: Any = None, *, site: str | None = None, ax: Axes | None = None) -> Plot:
    """Draw what speaks for each number of clusters, of an estimator that found the number itself."""
    tried = _read(model, sites, site).selection
    _need(tried, "numbers of clusters", "its number was given; n_clusters='auto' finds one")
    return _draw(charts.selection(tried, ax))


def traffic(model: Any, sites: Any = None, *, site: str | None = None, ax: Axes | None = None) -> Plot:
    """Draw bytes by round and direction, of a federated estimator that was fitted in this process."""
    rounds = _read(model, sites, site).rounds
    counted = rounds and all(record.bytes_up is not None for record in rounds)
    _need(counted, "traffic", "it was fitted at one site, or loaded from a file, which does not keep it")
    return _draw(charts.traffic(rounds, ax))


def certainty(model: Any, sites: Any = None, *, site: str | None = None, ax: Axes | None = None) -> Plot:
    """Draw how certain memberships are, of an estimator that was fitted in this process."""
    facts = _read(model, sites, site)
    _need(facts.assigned, "memberships", NO_LABELS)
    return _draw(charts.certainty(facts, ax))


def gains(model: Any, sites: Any = None, *, site: str | None = None, ax: Axes | None = None) -> Plot:
    """Draw the objective per row of each site under the global and its own model.

    It is measured on `sites`, the rows that the models were fitted to; `fedhk.evaluate` compares on rows that no model
    saw.
    """
    facts = _read(model, sites, site)
    _need(sites is not None, "gains", "they are measured on rows: give sites=")
    _need(facts.gains, "gains", "all sites have the global model, or only a site may see its own: give site=")
    return _draw(charts.gains(facts.gains, ax, held_out=facts.held_out))


def view_map(
    model: Any, sites: Any = None, *, view: str | int = 0, site: str | None = None, ax: Axes | None = None
) -> Plot:
    """Draw a view, given by name or number, in two dimensions; without `sites` only centres are drawn."""
    facts = _read(model, sites, site)
    names = [part.name for part in facts.views]
    if view not in names and view not in range(len(names)):
        raise ValueError(f"view={view!r} is not a view of the model; it has {names}.")
    return _draw(maps.view_map(facts, names.index(view) if isinstance(view, str) else view, ax))


def cluster_sizes(model: Any, sites: Any = None, *, site: str | None = None, ax: Axes | None = None) -> Plot:
    """Draw the share of each site's rows in each cluster."""
    facts = _read(model, sites, site)
    _need(facts.assigned, "labels", NO_LABELS)
    return _draw(pictures.draw_sizes(facts, ax))


def view_weights(model: Any, sites: Any = None, *, site: str | None = None, ax: Axes | None = None) -> Plot:
    """Draw view weights of the global model and of each site's own."""
    return _draw(pictures.draw_weights(_read(model, sites, site), ax))


def cluster_features(
    model: Any, sites: Any = None, *, cluster: int | None = None, site: str | None = None, ax: Axes | None = None
) -> Plot:
    """Draw what characterises all clusters or one: the features in which centres are furthest from the mean."""
    facts = _read(model, sites, site)
    if cluster is not None and cluster not in range(facts.n_clusters):
        raise ValueError(f"cluster={cluster!r} must be from 0 to {facts.n_clusters - 1}.")
    chosen = range(facts.n_clusters) if cluster is None else [cluster]
    return _draw(pictures.draw_features(facts, chosen, ax))


def profile(
    model: Any, sites: Any = None, *, found: Profile | None = None, site: str | None = None, ax: Axes | None = None
) -> Plot:
    """Draw what is special about clusters, in standard deviations from the rest.

    It is `found`, which `fedhk.profile` gives, or that of `sites`.
    """
    if found is None:
        found = _ask_sites(find_profile, model, sites, site)
    return _draw(drawings.draw_profile(_check_found(found, Profile, "fedhk.profile gives"), ax))


def comparison(
    model: Any,
    sites: Any = None,
    *,
    other: Any = None,
    found: Comparison | None = None,
    site: str | None = None,
    ax: Axes | None = None,
) -> Plot:
    """Draw how rows go from the clusters of a model to those of an `other` one.

    It is `found`, which `fedhk.compare` gives, or that of `sites`.
    """
    if found is None:
        _need(sites is not None and other is not None, "comparison", "give sites= and other=, or found=")
        found = compare(model, other, _choose(sites, site), **_as_fitted(model, site))
    return _draw(drawings.draw_comparison(_check_found(found, Comparison, "fedhk.compare gives"), ax))


def stability(
    model: Any, sites: Any = None, *, found: Stability | None = None, site: str | None = None, ax: Axes | None = None
) -> Plot:
    """Draw how often rows of each pair of clusters are together when halves of the rows are clustered anew.

    It is `found`, which `fedhk.stability` gives, or that of `sites`.
    """
    if found is None:
        found = _ask_sites(find_stability, model, sites, site)
    return _draw(drawings.draw_stability(_check_found(found, Stability, "fedhk.stability gives"), ax))


def survival(
    model: Any,
    sites: Any = None,
    *,
    time: Any = None,
    event: Any = None,
    found: Survival | None = None,
    site: str | None = None,
    ax: Axes | None = None,
) -> Plot:
    """Draw survival by cluster, with intervals and rows at risk.

    It is `found`, which `fedhk.outcomes` gives, or that of `sites` with `time` and `event` as there.
    """
    if found is None:
        _need(sites is not None and time is not None, "survival", "give sites=, time= and event=, or found=")
        chosen = _choose(sites, site)
        parts = {"time": _choose_values(time, site), "event": _choose_values(event, site)}
        found = find_outcomes(model, chosen, **parts, **_as_fitted(model, site))  # type: ignore[assignment]
    source = "fedhk.outcomes gives with time and event; other outcomes have a table only"
    return _draw(drawings.draw_survival(_check_found(found, Survival, source), ax))


def _check_found(found: Any, kind: type[T], source: str) -> T:
    if not isinstance(found, kind):
        raise TypeError(f"found must be a {kind.__name__}, which {source}, got {type(found).__name__}.")
    return found


def _ask_sites(find: Callable[..., T], model: Any, sites: Any, site: str | None) -> T:
    """Ask all sites, or one of them, a question about a fitted model."""
    _need(sites is not None, find.__name__, f"it is of rows: give sites=, or found=fedhk.{find.__name__}(...)")
    return find(model, _choose(sites, site), **_as_fitted(model, site))


def _choose_values(values: Any, site: str | None) -> Any:
    return values if site is None or isinstance(values, str) else {site: values[site]}


def _choose(sites: Any, site: str | None) -> Any:
    """Return all sites, or one of them."""
    if site is None:
        return sites
    if site not in sites:
        raise ValueError(f"site={site!r} is not in sites; it has {list(sites)[:10]}.")
    return {site: sites[site]}


def _as_fitted(model: Any, site: str | None) -> dict[str, Any]:
    """Return the masks with which the model was fitted; refuse to spend a budget by drawing."""
    if site is not None:
        return {}
    refuse_budget(model, "The model was fitted with privacy: ask with a budget, and give the answer as found=.")
    return {"secure": getattr(model, "secure", False)}


def report(
    model: Any, sites: Any = None, *, found: Answered | Sequence[Answered] = (), site: str | None = None
) -> Plot:
    """Make the whole report of a fitted estimator; `save` writes the page that `fedhk report` makes of a run.

    `found` is what `fedhk.profile`, `outcomes`, `stability` and `compare` gave, one or several; each gets a section. A
    model from a file has no labels: `sites` are placed by it, as by `predict`.
    """
    answers: Sequence[Any] = found if isinstance(found, list | tuple) else [found]
    facts = replace(_read(model, sites, site), after=describe_answers(answers))
    return Plot(f"Report of {facts.title}", headline(facts), page.render(facts))
