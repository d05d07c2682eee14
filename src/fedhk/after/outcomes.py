"""What becomes of the rows of each cluster: survival, an event, or a number that clustering did not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedhk._names import suggest
from fedhk.after.binary import BinaryOutcome, CompareEvents, CompareOdds, CountEvents, read_binary
from fedhk.after.continuous import ContinuousOutcome, continuous_phases, read_continuous
from fedhk.after.run import Answer, AskedSites, ask_sites, is_one_site, reach_sites, read_sites, take_sites
from fedhk.after.survival import Survival, read_survival, survival_phases
from fedhk.after.tables import LEAST_ROWS
from fedhk.data.checks import check_count, check_number
from fedhk.data.clients import name_sites
from fedhk.data.levels import is_frame
from fedhk.data.outcomes import OUTCOMES, check_outcome, refuse_seen
from fedhk.errors import DataError
from fedhk.estimators.sealing import check_question_options
from fedhk.federation.engines.base import RemoteEngine
from fedhk.federation.phases.base import Phase
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation, read_bounds
from fedhk.summary.model import ONLY_SITE


def outcomes(
    model: Any,
    sites: Any = None,
    *,
    engine: RemoteEngine | None = None,
    time: Any = None,
    event: Any = None,
    value: Any = None,
    grid: Any = None,
    horizon: float | None = None,
    least_rows: int = LEAST_ROWS,
    privacy: DifferentialPrivacy | None = None,
    secure: bool | SecureSummation = False,
) -> Survival | BinaryOutcome | ContinuousOutcome:
    """Say what becomes of the rows of each cluster, by an outcome that clustering did not see.

    Parameters
    ----------
    model : estimator
        A fitted clusterer of FedHK. Rows are placed by their site's own model, where it has one, and with `privacy` by
        the global one.
    sites : dict or list of sites
        As in `fit`; of an estimator for one site, its views. Left out with `engine`.
    engine : fedhk.federation.engines.RemoteEngine or None, default=None
        What leads to sites that have their own rows, as in `fit`. Outcomes are then names of columns in the further
        tables of the sites.
    time, event : str, dict or list of arrays
        Time until the event or the end of observation, and whether the event happened (0 or 1); missing where it is not
        known. A name is that of a column in a data frame of `sites` whose view the model does not know; else an array
        for each site. `event` alone is an outcome that happens or not.
    value : str, dict or list of arrays
        A number, instead.
    grid : int or sequence of float, optional
        Times at which curves are known, or how many intervals (1,024 up to the power of two above all times; with
        `privacy` 12 up to its bound). Where it has all times that occur, such as whole days, curves are exactly those
        of Kaplan and Meier; rows whose observation ends between two times are at risk for half of that interval.
    horizon : float, optional
        Up to where the restricted mean survival is taken. By default as far as all curves go.
    least_rows : int, default=5
        Smaller counts are not shown, and curves end where fewer rows are at risk.
    privacy : fedhk.privacy.DifferentialPrivacy or None, default=None
        A budget for this question. `bounds` is the range of times, or of the number; of an event any pair. Tests are
        then over all sites together, and intervals include the noise.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only.

    Returns
    -------
    Survival, BinaryOutcome or ContinuousOutcome
        With `time`, with `event` alone, or with `value`.

    Examples
    --------
    >>> import fedhk, numpy as np
    >>> data = fedhk.datasets.make_sites(3, 60, n_clusters=3, random_state=0)
    >>> model = fedhk.EFKMVC(n_clusters=3, random_state=0).fit(data.sites)
    >>> rng = np.random.default_rng(0)
    >>> days = {site: rng.integers(1, 100, len(labels)) for site, labels in data.site_labels.items()}
    >>> died = {site: rng.integers(0, 2, len(labels)) for site, labels in data.site_labels.items()}
    >>> found = fedhk.outcomes(model, data.sites, time=days, event=died, grid=range(101))
    >>> found.df, found.curves.shape
    (2, (3, 101))
    """
    least_rows = check_count(least_rows, "least_rows")
    _check_choice(time, event, value)
    if time is None and (grid is not None or horizon is not None):
        raise ValueError("grid and horizon have no effect without time: leave them out.")
    if horizon is not None:
        horizon = check_number(horizon, "horizon", open_below=True)
    check_question_options(privacy, secure)
    if time is not None and privacy is not None:
        _check_range(privacy)
    given = {name: each for name, each in (("time", time), ("event", event), ("value", value)) if each is not None}
    asked = _read_outcomes(model, sites, given) if engine is None else _reach_outcomes(model, sites, engine, given)
    c = int(model.n_clusters_)

    def ask(*phases: Phase[Any, Any]) -> Answer:
        return ask_sites(model, asked, phases, privacy=privacy, secure=secure)

    if value is not None:
        return replace(read_continuous(ask(*continuous_phases(c)), least_rows), name=_name(value))
    if time is None:
        return replace(
            read_binary(ask(CountEvents(c), CompareEvents(c), CompareOdds(c)), least_rows), name=_name(event)
        )
    found = read_survival(ask(*survival_phases(c, grid)), horizon, least_rows)
    names = [each if isinstance(each, str) else name for name, each in given.items()]
    return replace(found, time_name=names[0], event_name=names[1])


def _check_range(privacy: DifferentialPrivacy) -> None:
    """Refuse bounds that no time is between."""
    if privacy.public and np.max(read_bounds(privacy.bounds)[0][1]) <= 0:
        raise ValueError(f"bounds={privacy.bounds!r} must end above 0: they are the range of times.")


def _name(given: Any) -> str:
    return given if isinstance(given, str) else ""


def _check_choice(time: Any, event: Any, value: Any) -> None:
    if value is not None and (time is not None or event is not None):
        raise ValueError("value is an outcome of its own: leave time and event out, or ask twice.")
    if value is None and event is None:
        missing = (
            "no outcome was given" if time is None else "time needs event: whether it happened, or was observation over"
        )
        raise ValueError(f"{missing}. Give time and event, event alone, or value.")


def _reach_outcomes(model: Any, sites: Any, engine: RemoteEngine, given: Mapping[str, Any]) -> AskedSites:
    """Name the outcomes for sites elsewhere, which have them as columns of their further tables."""
    for name, column in given.items():
        if not isinstance(column, str):
            raise DataError(f"{name} must be the name of a column at the sites, where engine leads to them.")
        refuse_seen(name, column, model.view_columns_)
    return reach_sites(model, sites, engine, "outcomes", given)


def _read_outcomes(model: Any, sites: Any, given: Mapping[str, Any]) -> AskedSites:
    """Check the outcomes, and return the sites with each as a view."""
    if is_one_site(model, sites):
        given = {name: values if isinstance(values, str) else {ONLY_SITE: values} for name, values in given.items()}
    by_name, asked = take_sites(model, sites), read_sites(model, sites, "outcomes")
    known = set(model.view_names_)
    columns = {name: _by_site(name, values, by_name, known) for name, values in given.items()}
    for name, by_site in columns.items():
        tables = {site: check_outcome(name, by_site[site], site)[:, None] for site in asked.sites}
        for site, views in asked.sites.items():
            if len(tables[site]) != views.n_rows:
                raise DataError(
                    f"Site {site!r}: {name} has {len(tables[site])} values, the site has {views.n_rows} rows."
                )
        asked = asked.with_view(OUTCOMES[name], (name,), tables)
    return asked


def _by_site(name: str, given: Any, sites: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """Return the values of each site: as given, or the column of that name in a view that the model lacks."""
    if not isinstance(given, str):
        values = name_sites(given) if isinstance(given, Mapping | list | tuple) else {}
        if missing := sorted(set(sites) - set(values)):
            raise DataError(
                f"{name} has no values for site {missing[0]!r}. Give a dict from the name of each site to the values "
                "of its rows, or the name of a column in a view that the model does not know."
            )
        return values
    found: dict[str, Any] = {}
    for site, views in sites.items():
        frames = {v: t for v, t in views.items() if is_frame(t)} if isinstance(views, Mapping) else {}
        refuse_seen(name, given, {view: table.columns for view, table in frames.items() if view in known})
        there = [table[given] for view, table in frames.items() if view not in known and given in table.columns]
        if not there:
            others = [str(column) for view, table in frames.items() if view not in known for column in table.columns]
            raise DataError(
                f"Site {site!r} has no column {given!r} for {name}.{suggest(given, others)} Give every site one more "
                f"view, a data frame with this column, beside the views that were clustered; or give {name} as a dict "
                "of arrays by site."
            )
        if len(there) > 1:
            raise DataError(
                f"Site {site!r}: {name}={given!r} is a column of {len(there)} views that were not clustered; leave it "
                "in one of them only."
            )
        found[site] = there[0]
    return found
