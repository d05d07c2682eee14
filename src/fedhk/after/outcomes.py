"""What becomes of the rows of each cluster: survival, an event, or a number that clustering did not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.after.binary import BinaryOutcome, CompareEvents, CountEvents, read_binary
from fedhk.after.columns import ColumnsRequest, CountMagnitudes, SumColumns
from fedhk.after.continuous import COLUMN, ContinuousOutcome, continuous_phases, read_continuous
from fedhk.after.run import AskedSites, ask_sites, is_one_site, read_sites, take_sites
from fedhk.after.survival import (
    GRID,
    NOISY_GRID,
    OUTCOME,
    CountSurvival,
    SumLogRank,
    Survival,
    check_grid,
    read_survival,
)
from fedhk.after.tables import LEAST_ROWS
from fedhk.data.checks import check_count, check_number
from fedhk.data.clients import name_sites
from fedhk.data.levels import is_frame
from fedhk.errors import DataError
from fedhk.federation.phases.base import Phase
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation, read_bounds
from fedhk.summary.model import ONLY_SITE


def outcomes(
    model: Any,
    sites: Any,
    *,
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
        As in `fit`; of an estimator for one site, its views.
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
    given = (
        {"value": value}
        if value is not None
        else {"time": time, "event": event}
        if time is not None
        else {"event": event}
    )
    asked = _read_outcomes(model, sites, given)
    c = int(model.n_clusters_)
    phases: list[Phase[Any, Any]]
    if value is not None:
        phases = continuous_phases(c, None if privacy is None else _range(privacy))
        last = next(phase for phase in phases if isinstance(phase, SumColumns))
        return read_continuous(ask_sites(model, asked, phases, privacy=privacy, secure=secure), last, least_rows)
    if time is None:
        phases = [CountEvents(c)] if privacy is not None else [CountEvents(c), CompareEvents(c)]
        return read_binary(ask_sites(model, asked, phases, privacy=privacy, secure=secure), least_rows)
    phases = _survival_phases(c, grid, privacy)
    found = read_survival(ask_sites(model, asked, phases, privacy=privacy, secure=secure), horizon, least_rows)
    names = [value if isinstance(value, str) else name for name, value in given.items()]
    return replace(found, time_name=names[0], event_name=names[1])


def _check_choice(time: Any, event: Any, value: Any) -> None:
    if value is not None and (time is not None or event is not None):
        raise ValueError("value is an outcome of its own: leave time and event out, or ask twice.")
    if value is None and event is None:
        missing = (
            "no outcome was given" if time is None else "time needs event: whether it happened, or was observation over"
        )
        raise ValueError(f"{missing}. Give time and event, event alone, or value.")


def _survival_phases(c: int, grid: Any, privacy: DifferentialPrivacy | None) -> list[Phase[Any, Any]]:
    times: tuple[float, ...] = ()
    count = GRID if privacy is None else NOISY_GRID
    if isinstance(grid, Integral):
        count = check_count(grid, "grid")
    elif grid is not None:
        times = check_grid(list(grid) if isinstance(grid, range) else grid)
    if privacy is not None:
        if not times:
            times = tuple(np.linspace(0.0, float(_range(privacy)[1][0]), count + 1).tolist())
        return [CountSurvival(c, count, times, kinds=2)]
    largest = [] if times else [CountMagnitudes(ColumnsRequest((OUTCOME,), (2,), np.array([-1, -1])))]
    return [*largest, CountSurvival(c, count, times), SumLogRank(c)]


def _range(privacy: DifferentialPrivacy) -> tuple[FloatArray, FloatArray]:
    if not privacy.public:
        raise ValueError("bounds='private' does not go with outcomes: give the range of times, or of the number.")
    ((low, high),) = read_bounds(privacy.bounds, COLUMN.widths)
    return low, high


def _read_outcomes(model: Any, sites: Any, given: Mapping[str, Any]) -> AskedSites:
    """The sites with a view of their outcomes, which are checked."""
    if is_one_site(model, sites):
        given = {name: values if isinstance(values, str) else {ONLY_SITE: values} for name, values in given.items()}
    by_name, asked = take_sites(model, sites), read_sites(model, sites, used=True)
    known = set(model.view_names_)
    columns = {name: _by_site(name, values, by_name, known) for name, values in given.items()}
    tables = {}
    for site, views in asked.sites.items():
        table = np.column_stack([_check_column(name, columns[name][site], site) for name in columns])
        if len(table) != views.n_rows:
            raise DataError(
                f"Site {site!r}: {next(iter(columns))} has {len(table)} values, the site has {views.n_rows} rows."
            )
        tables[site] = table
    return asked.with_view(OUTCOME, tuple(columns), tables)


def _by_site(name: str, given: Any, sites: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """The values of each site: those that were given, or the column of that name in a view that the model lacks."""
    if not isinstance(given, str):
        values = name_sites(given)
        if missing := sorted(set(sites) - set(values)):
            raise DataError(f"{name} has no values for site {missing[0]!r}; it has some for {sorted(values)[:10]}.")
        return values
    found: dict[str, Any] = {}
    for site, views in sites.items():
        frames = {v: t for v, t in views.items() if is_frame(t)} if isinstance(views, Mapping) else {}
        if inside := [view for view, table in frames.items() if view in known and given in table.columns]:
            raise DataError(
                f"{name}={given!r} is a column of view {inside[0]!r}, which made the clusters: what clustering saw is "
                "no outcome. Leave it out of the views that are clustered."
            )
        there = [table[given] for view, table in frames.items() if view not in known and given in table.columns]
        if len(there) != 1:
            raise DataError(
                f"Site {site!r}: {name}={given!r} is a column of {len(there)} data frames that the model does not "
                "know; it must be one of exactly one."
            )
        found[site] = there[0]
    return found


def _check_column(name: str, values: Any, site: str) -> FloatArray:
    """An outcome of one site as numbers; refuses negative times, and events that are not 0 or 1."""
    try:
        column = np.asarray(
            values.to_numpy(na_value=np.nan) if hasattr(values, "convert_dtypes") else values, np.float64
        )
    except (TypeError, ValueError) as error:
        raise DataError(f"Site {site!r}: {name} must be numbers, missing where it is not known. ({error})") from error
    if column.ndim != 1:
        raise DataError(f"Site {site!r}: {name} has shape {column.shape}; it must be one number for each row.")
    if name == "event":
        wrong, allowed = ~np.isnan(column) & (column != 0) & (column != 1), "0 or 1, and missing where it is not known"
    elif name == "time":
        wrong, allowed = (column < 0) | np.isinf(column), "from 0 on and finite, and missing where it is not known"
    else:
        wrong, allowed = np.isinf(column), "finite, and missing where it is not known"
    if wrong.any():
        row = int(wrong.argmax())
        count = int(wrong.sum())
        raise DataError(
            f"Site {site!r}: {name} is {column[row]:g} in row {row}, and wrong in {count} rows in all; it must be "
            f"{allowed}."
        )
    return column
