"""What Algorithms 2 to 4 share beyond one client: options, the start, and the server's half of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedhk.reference._checks import Count, NotNegative, Options, Share
from fedhk.reference.aggregation import CoreReading, Divisor, aggregate_tensor_statistics, aggregate_view_weights
from fedhk.reference.algorithm_tensor_local import TensorOptions, TensorState
from fedhk.reference.arrays import client_weights, tensor_regularizer, tensor_statistics, tucker_to_tensor
from fedhk.reference.outcome import Start, TensorRound, read_start
from fedhk.reference.personalization import global_objective, view_regularizer
from fedhk.reference.tensors import untensorize


@dataclass(frozen=True)
class FederationOptions(Options):
    """Parameters of Algorithms 2 to 4, and the reading of every line that allows more than one."""

    ranks: tuple[int, int, int] | None = None
    """r1, r2, r3. None is (c, min(c, D), s): r1 = c as `lem:tensor_communication` counts, and the c centres of a view
    span no more than c directions of its features."""
    local: TensorOptions = field(default_factory=TensorOptions)
    rounds: Count = 5
    personalization: Share = 0.5
    """lambda of every client and part, before anything is learned."""
    quality_temperature: NotNegative = 1.0
    """tau."""
    center_pull: NotNegative = 1.0
    """gamma, read by the reported J_global alone."""
    view_pull: NotNegative = 1.0
    """eta, read by the reported J_global alone."""
    quality: Literal["sum", "mean"] = "sum"
    """Whether the quality weights compare the printed sums over samples or means per sample."""
    core_reading: CoreReading = "whole"
    divisor: Divisor = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranks is not None and (not isinstance(self.ranks, tuple | list) or len(self.ranks) != 3):
            raise ValueError(f"ranks={self.ranks!r} must be three whole numbers, r1, r2 and r3, or None.")


def start_parts(
    n_clusters: int,
    widths: Sequence[int],
    options: FederationOptions,
    random_state: np.random.Generator | int | None,
    start: Start | None = None,
) -> Start:
    """Take the given start, or draw the global parts (standard normal) and view weights (Algorithm 4, phase 1)."""
    sizes = (n_clusters, max(widths), len(widths))
    ranks = options.ranks or (n_clusters, min(n_clusters, max(widths)), len(widths))
    if not all(1 <= rank <= size for rank, size in zip(ranks, sizes, strict=True)):
        raise ValueError(f"ranks={ranks} should be three whole numbers from 1 to the sizes of the modes, {sizes}.")
    shapes = [tuple(ranks), *zip(sizes, ranks, strict=True)]
    if start is not None:
        return read_start(start, shapes, len(widths), "core and factors")
    rng = np.random.default_rng(random_state)
    parts = [rng.normal(size=shape) for shape in shapes]
    raw = rng.uniform(0.5, 1.5, size=len(widths))
    return parts, raw / raw.sum()


def aggregate(states: Sequence[TensorState], widths: Sequence[int], options: FederationOptions) -> TensorRound:
    """Bring the clients' parts and view weights together (Algorithm 4, phase 4)."""
    sizes = [len(state.memberships) for state in states]
    objectives = [state.objectives[-1] for state in states]
    omegas = client_weights(objectives, options.quality_temperature, sizes if options.quality == "mean" else None)
    statistics = [
        tensor_statistics(s.memberships, s.parts[0], s.parts[1:], options.local.fuzzifier, options.core_reading)
        for s in states
    ]
    core, factors = aggregate_tensor_statistics(statistics, omegas, sizes, options.divisor)
    parts = [core, *factors]
    if core.shape != states[0].parts[0].shape:
        raise ValueError(f"the clients' cores have shape {states[0].parts[0].shape}, the global one {core.shape}.")
    weights = aggregate_view_weights([state.view_weights for state in states], omegas, sizes)
    return TensorRound(
        objective=global_objective(
            objectives,
            omegas,
            [tensor_regularizer(state.parts, parts) for state in states],
            [view_regularizer(state.view_weights, weights) for state in states],
            center_pull=options.center_pull,
            view_pull=options.view_pull,
        ),
        client_objectives=np.array(objectives),
        client_weights=omegas,
        centers=untensorize(tucker_to_tensor(core, factors), widths),
        view_weights=weights,
        client_centers=[untensorize(tucker_to_tensor(s.parts[0], s.parts[1:]), widths) for s in states],
        client_view_weights=np.array([state.view_weights for state in states]),
        parts=parts,
        client_parts=[state.parts for state in states],
    )
