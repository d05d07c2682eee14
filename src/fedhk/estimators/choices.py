"""The parameters that all estimators share: their allowed values, and the settings made from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions

from fedhk._records import Records
from fedhk._typing import FloatArray
from fedhk.agreement.number import FEW_CLUSTERS
from fedhk.agreement.opinions import Opinion
from fedhk.agreement.scalings import STANDARD, keep_conventions
from fedhk.data.scaling import AUTO, HEAT_COEFS, SCALINGS, HeatCoef, Scaling, make_scaling
from fedhk.data.views import is_view_collection
from fedhk.federation.aggregators import Aggregator, SumAggregator
from fedhk.federation.protocols.averaging import Averaging
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.protocols.factors import FactorAveraging
from fedhk.federation.protocols.personalized import Personalized
from fedhk.model.parameters import CenterForm
from fedhk.starts.seeding import SEEDERS
from fedhk.starts.settings import Settings
from fedhk.tensors.low_rank import LowRankForm

# What n_clusters="auto" chooses among. So many were measured (benchmarks/results/number.md); 500 points have five for
# each cluster.
AUTO_CLUSTERS = range(2, 101)

# Under masks it chooses among fewer: points are drawn from a mixture, which has three components for each of them.
# What comes before the number is found is made for so many, too.
FEW_AUTO_CLUSTERS = range(2, FEW_CLUSTERS + 1)

# Rows for each of the largest number of clusters that "auto" tries, at least.
AUTO_ROWS = 4

WHOLE_FROM_ONE = Interval(Integral, 1, None, closed="left")
SHARE = Interval(Real, 0, 1, closed="both")

RANK_CONSTRAINT: list[Any] = [
    StrOptions({"auto"}),
    WHOLE_FROM_ONE,
    Interval(RealNotInt, 0, 1, closed="neither"),
    "array-like",
]

MODEL_CONSTRAINTS: dict[str, list[Any]] = {
    "n_clusters": [WHOLE_FROM_ONE, str, "array-like", range],
    "heat_coef": [StrOptions(set(HEAT_COEFS))],
    "heat_time": [Interval(Real, 0, None, closed="neither")],
    "fuzzifier": [StrOptions({"auto"}), Interval(Real, 1, None, closed="neither")],
    "view_weights": [StrOptions({"auto", "uniform", "learned"}), "array-like"],
    "view_exponent": [Interval(Real, 1, None, closed="neither")],
    "scaling": [StrOptions({AUTO, *SCALINGS}), Scaling],
    "init": [StrOptions(set(SEEDERS)), "array-like", dict],
    "n_init": [WHOLE_FROM_ONE],
    "tol": [Interval(Real, 0, None, closed="left")],
    "random_state": ["random_state", np.random.Generator],
    "verbose": ["verbose"],
}


@dataclass(eq=False, repr=False)
class ModelParameters:
    """The constructor parameters that all estimators share; `HeatKernelMVC` describes them."""

    n_clusters: Any = 8
    _: KW_ONLY
    heat_coef: HeatCoef = "uniform"
    heat_time: float = 0.3
    fuzzifier: float | str = "auto"
    view_weights: Any = "auto"
    view_exponent: float = 2.0
    scaling: str | Scaling = AUTO
    init: Any = "k-means++"
    n_init: int = 20
    tol: float = 1e-5
    random_state: Any = None
    verbose: int | bool = 0


def make_settings(
    estimator: Any, names: Sequence[str], shapes: Sequence[tuple[int, ...]], *, single_table: bool
) -> Settings:
    """Make settings from an estimator's parameters, given the names of the views and the shape of a row of each."""
    init = estimator.init
    if not isinstance(init, str):
        if estimator.n_init not in (1, ModelParameters.n_init):
            raise ValueError(f"n_init={estimator.n_init} has no effect where init gives centres: leave it out, or 1.")
        init = check_centers(init, names, shapes, estimator.n_clusters, single_table=single_table)
    return Settings(
        n_clusters=(FEW_AUTO_CLUSTERS if is_auto(estimator.n_clusters) else read_numbers(estimator.n_clusters))[-1],
        heat_coef=estimator.heat_coef,
        scaling=make_scaling(estimator.scaling),
        heat_time=float(estimator.heat_time),
        fuzzifier=None if estimator.fuzzifier == "auto" else float(estimator.fuzzifier),
        view_weights=check_view_weights(estimator.view_weights, len(names)),
        view_exponent=float(estimator.view_exponent),
        init=init,
        n_init=int(estimator.n_init),
        form=make_form(getattr(estimator, "decomposition", None), getattr(estimator, "rank", "auto")),
    )


def make_form(decomposition: str | None, rank: Any) -> CenterForm:
    """Make the constraint on centres: none, or a decomposition of some rank."""
    if decomposition is not None:
        return LowRankForm(decomposition, check_rank_like(rank))
    if not isinstance(rank, str) or rank != "auto":
        raise ValueError(
            f"rank={rank!r} has no effect with decomposition=None: give decomposition='tucker' or 'parafac2', or leave "
            "rank='auto'."
        )
    return CenterForm()


def check_rank_like(rank: Any) -> int | float | str | tuple[int, ...]:
    """Check the type and sign of a rank; whether views can have it is checked once they are known."""
    if isinstance(rank, str):
        if rank != "auto":
            raise ValueError(f"rank={rank!r} must be 'auto', a number between 0 and 1, or whole numbers.")
        return rank
    if isinstance(rank, Real) and not isinstance(rank, bool):
        if isinstance(rank, Integral) and int(rank) >= 1:
            return int(rank)
        if not isinstance(rank, Integral) and 0 < float(rank) < 1:
            return float(rank)
        raise ValueError(f"rank={rank!r} must be at least 1 as a whole number, or between 0 and 1 as a fraction.")
    numbers = list(rank) if isinstance(rank, Sequence | np.ndarray) else []
    if not numbers or any(isinstance(r, bool) or not isinstance(r, Integral) or int(r) < 1 for r in numbers):
        raise ValueError(f"rank={rank!r} must be 'auto', a number between 0 and 1, or whole numbers of at least 1.")
    return tuple(int(r) for r in numbers)


def check_together(protocol: Protocol, aggregator: Aggregator, settings: Settings) -> None:
    """Refuse a protocol, an aggregator and settings that do not work together, by name."""
    protocol.check_settings(settings)
    if isinstance(protocol, Personalized) and not isinstance(aggregator, SumAggregator):
        raise ValueError(  # noqa: TRY004
            f"aggregator={aggregator!r} compares sums at one model; protocol={protocol!r} sends those of own models, "
            "weighed by their quality. Use aggregator='sum'."
        )
    averages = isinstance(protocol, Averaging)
    if averages and not isinstance(aggregator, SumAggregator):
        raise ValueError(
            f"aggregator={aggregator!r} works on statistics; protocol={protocol!r} sends centres. Use "
            "aggregator='sum', or an estimator with protocol='statistics', such as EFKMVC."
        )
    constrained = isinstance(settings.form, LowRankForm)
    if isinstance(protocol, FactorAveraging):
        if not constrained:
            raise ValueError(
                "protocol='factors' sends factors of a decomposition: give decomposition='tucker' or 'parafac2'."
            )
    elif averages and constrained:
        raise ValueError(
            f"protocol={protocol!r} has no place for a decomposition: an average of centres has not its form. Use "
            "protocol='factors', or 'statistics'."
        )


def read_numbers(n_clusters: Any) -> range:
    """Return the numbers of clusters to choose among; just one if a number was given."""
    if isinstance(n_clusters, Integral) and not isinstance(n_clusters, bool) and int(n_clusters) > 0:
        return range(int(n_clusters), int(n_clusters) + 1)
    if is_auto(n_clusters):
        return AUTO_CLUSTERS
    ends: list[int] = []
    if isinstance(n_clusters, range):
        ends = [n_clusters[0], n_clusters[-1]] if len(n_clusters) and n_clusters.step == 1 else []
    elif isinstance(n_clusters, str):
        ends = [int(part) if part.strip().isdecimal() else -1 for part in n_clusters.split("-")]
    elif isinstance(n_clusters, list | tuple | np.ndarray) and np.ndim(n_clusters) == 1:
        ends = [int(part) if isinstance(part, Integral) else -1 for part in n_clusters]
    if len(ends) != 2 or not 2 <= ends[0] <= ends[1]:
        swapped = len(ends) == 2 and 2 <= ends[1] < ends[0]
        hint = f" The range is reversed: did you mean ({ends[1]}, {ends[0]})?" if swapped else ""
        raise ValueError(
            f"n_clusters={n_clusters!r} must be a whole number from 1 on, 'auto', or the least and the largest number "
            f"to try, from 2 on, as (2, 8) or '2-8'.{hint}"
        )
    return range(ends[0], ends[1] + 1)


def limit_numbers(n_clusters: Any, n_rows: int, *, masked: bool = False) -> range:
    """Return the numbers of clusters to choose among, of so many rows; 0 rows are an unknown number of them.

    "auto" tries fewer numbers where rows are few, and under masks.
    """
    numbers = read_numbers(n_clusters)
    if is_auto(n_clusters):
        largest = (FEW_AUTO_CLUSTERS if masked else AUTO_CLUSTERS)[-1]
        return range(2, max(min(largest, n_rows // AUTO_ROWS if n_rows else largest), 2) + 1)
    if not n_rows:
        return numbers
    if len(numbers) > 1 and n_rows < 2 * numbers[-1]:
        raise ValueError(
            f"n_clusters={n_clusters!r}: to try {numbers[-1]} clusters takes two rows for each, {2 * numbers[-1]}; "
            f"there are {n_rows}."
        )
    return numbers


def is_auto(n_clusters: Any) -> bool:
    """Tell whether no numbers are given to choose among."""
    return isinstance(n_clusters, str) and n_clusters == "auto"


def is_chosen(n_clusters: Any) -> bool:
    """Tell whether the number of clusters is to be found."""
    return not isinstance(n_clusters, Integral)


def describe_choices(
    scaling: str | Scaling, names: Sequence[str], opinions: Sequence[Opinion], *, sealed: bool = False
) -> Records:
    """List what was chosen and why, as records; empty where a scaling and a calibration were given.

    Their keys: choice ("scaling" or "frame"), view (None for a frame), option, between_views (agreement), with_sites
    (agreement with what sites find alone), taken, note.
    """
    found = list(opinions)
    if isinstance(scaling, str) and scaling == AUTO and all(opinion.view < 0 for opinion in found):
        found = [*keep_conventions([(STANDARD,)] * len(names)), *found]
    note = "not compared: with privacy all views have z-scores" if sealed else "not compared"
    alike = "not compared: sites do not differ by more than chance"
    return Records(
        {
            "choice": "frame" if opinion.view < 0 else "scaling",
            "view": None if opinion.view < 0 else names[opinion.view],
            "option": opinion.option,
            "between_views": None if math.isnan(opinion.agreement) else opinion.agreement,
            "with_sites": None if math.isnan(opinion.alone) else opinion.alone,
            "taken": opinion.taken,
            "note": opinion.note if not math.isnan(opinion.agreement) else alike if opinion.view < 0 else note,
        }
        for opinion in found
    )


def check_view_weights(view_weights: Any, n_views: int) -> str | tuple[float, ...]:
    """Check view weights: the name of a rule, or one non-negative number per view."""
    if isinstance(view_weights, str):
        return view_weights
    weights = np.asarray(view_weights, dtype=np.float64)
    if weights.shape != (n_views,) or not np.all(np.isfinite(weights)) or weights.min() < 0 or weights.sum() <= 0:
        raise ValueError(
            f"view_weights={view_weights!r} must be {n_views} finite non-negative numbers, one per view, "
            "not all of them 0."
        )
    return tuple(float(weight) for weight in weights)


def check_centers(
    given: Any, names: Sequence[str], shapes: Sequence[tuple[int, ...]], n_clusters: Any, *, single_table: bool
) -> tuple[FloatArray, ...]:
    """Check centres given as `init`, in input units: one finite array per view, flattened to (c, d_h)."""
    if not isinstance(n_clusters, Integral):
        message = f"init gives centres, so n_clusters must be their number, got {n_clusters!r}."
        raise ValueError(message)  # noqa: TRY004
    if isinstance(given, Mapping):
        given = [given.get(name) for name in names]
    elif single_table and not is_view_collection(given):
        given = [given]
    if len(given) != len(names):
        raise ValueError(f"init has {len(given)} arrays of centres, but X has {len(names)} views.")
    centers = []
    for name, shape, values in zip(names, shapes, given, strict=True):
        array = np.asarray(values, dtype=np.float64)
        flat, own = (n_clusters, math.prod(shape)), (n_clusters, *shape)
        if array.shape not in (flat, own) or not np.all(np.isfinite(array)):
            raise ValueError(
                f"init for view {name!r} has shape {array.shape}; it must be finite with shape "
                f"(n_clusters, n_features)={flat}{'' if own == flat else f' or {own}'}."
            )
        centers.append(array.reshape(flat))
    return tuple(centers)


def check_calibration(given: Any) -> str | tuple[float, float] | None:
    """Check a calibration: shares of mean and spread, "auto", or None."""
    if given is None or isinstance(given, str):
        return given
    shares = (given, given) if isinstance(given, Real) else tuple(np.asarray(given, dtype=np.float64).ravel().tolist())
    if len(shares) != 2 or not all(0 <= float(share) <= 1 for share in shares):
        raise ValueError(f"calibration={given!r} must be 'auto', None, or one or two numbers from 0 to 1.")
    return float(shares[0]), float(shares[1])
