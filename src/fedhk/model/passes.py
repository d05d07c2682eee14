"""One read of the rows: memberships, costs and the sums of every update, for one model or for several at once.

Arrays are laid out clusters by rows, so that every reduction over clusters runs along memory. A block of rows and all
that is computed from it stay in the cache; buffers are made once per thread. Blocks are summed in groups whose bounds
depend on the shape of the data only, and groups in their order: the number of threads changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, reduce
from operator import add
from threading import Lock
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.model.parameters import Parameters
from fedhk.model.readers import Exponents
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics

T = TypeVar("T")

# Below this heat time, and always in float64, 1 - exp(-phi) is taken by expm1: exp alone would lose its leading digits.
FINE_HEAT_TIME = 0.01

# Groups in which blocks are added up: as many threads can be busy, and the order of the sums is the same with fewer.
GROUPS = 16

# Multiplications a row and view from which it is worth searching for rows that belong to one cluster alone: with fewer
# the search cost more than it saved (8 to 100 clusters; views of 10 to 160 features, one to three of them). How many
# rows are searched first, and the share of such rows from which it is worth searching on, are set by judgement: they
# decide on time only.
WORTH_SEARCHING, FIRST_ROWS, WORTH_SHARE = 500, 128, 0.5
# Rows that are many beside those that are searched first.
MANY_ROWS = 16 * FIRST_ROWS

# Clusters down to this share of the mean size lose no digit by what is not added up; where one is smaller, all is.
SMALLEST_CLUSTER = 1e-4


class Nearest(NamedTuple):
    """The nearest centre of each row of a block, and which rows belong to its cluster alone."""

    clusters: IntArray
    kernels: FloatArray  # of each row and that centre, per view, of shape (s, rows)
    distances: FloatArray  # of each row and that centre, summed over views
    alone: BoolArray


# Memberships (n, c), labels (n,) and objective of rows.
Assignment: TypeAlias = tuple[FloatArray, IntArray, float]


@dataclass
class _Sums:
    """What is added up over rows, per view where it says so."""

    lifted: tuple[FloatArray, ...]  # of rows by cluster, in the form in which each reader adds them; per view
    totals: FloatArray  # of weights by view and cluster
    costs: FloatArray  # by view
    masses: FloatArray  # by cluster
    objective: FloatArray  # by model

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            tuple(a + b for a, b in zip(self.lifted, other.lifted, strict=True)),
            self.totals + other.totals,
            self.costs + other.costs,
            self.masses + other.masses,
            self.objective + other.objective,
        )


class Workspace:
    """The buffers of one thread, and the memberships of the block of rows that it holds.

    Several models are one with the clusters of all, but that each has memberships of its own.
    """

    def __init__(self, rows: Rows, n_clusters: int, block_rows: int) -> None:
        self._rows, self._limits = rows, np.finfo(rows.dtype)
        self._readers = rows.readers(block_rows)
        self._kernels = np.empty((len(self._readers), n_clusters * block_rows), rows.dtype)
        self._buffers = np.empty((2, n_clusters * block_rows), rows.dtype)

    def use(self, parameters: Parameters, *, search: bool, n_models: int = 1) -> None:
        """Take the parameters of the next pass; `search` says whether rows of one cluster alone are looked for.

        The centres may be those of several models, one model after the other.
        """
        dtype = self._rows.dtype
        self._n_clusters, self._n_models = parameters.n_clusters, n_models
        self._precise = dtype == np.float64 or parameters.heat_time < FINE_HEAT_TIME
        for reader, centers in zip(self._readers, parameters.centers, strict=True):
            reader.use(centers, parameters.heat_time)
        self._factors = parameters.view_factors.astype(dtype)
        self._total = self._factors.sum()
        # with small factors the product would be 0, and a row on a centre undefined
        self._floor = np.maximum(dtype.type(self._limits.tiny * 1e3) * self._total, self._limits.tiny)
        clusters = parameters.cluster_factors
        self._clusters = None if clusters is None else clusters.astype(dtype)[:, None]
        # a cluster that is left out is infinitely far and has no weight
        self._finite_clusters = None if self._clusters is None else np.nan_to_num(self._clusters, posinf=0.0)
        self._fuzzifier = parameters.fuzzifier
        self._power = dtype.type(1.0 / (parameters.fuzzifier - 1.0))
        # Distances with this ratio or less have memberships that all together change no digit of a sum. A membership
        # has as many times the rounding error of a distance as its power says: digits beyond that are not known.
        digits = self._power * self._limits.eps * SMALLEST_CLUSTER / parameters.n_clusters
        self._margin = float(digits ** (1.0 / self._power)) if search and clusters is None else 0.0
        # a power of two is raised to by squaring, any other by logarithms
        squarings = np.log2(self._power)
        self._squarings = int(squarings) if squarings in range(1, 9) else 0

    def kernel_distances(self, block: slice) -> tuple[FloatArray, FloatArray]:
        """Load rows; their kernels per view (s, c, b) and their distances summed over views (c, b).

        A kernel is exp(-phi), or exp(-phi) - 1 where digits would be lost.
        """
        return self._distances([reader.load(block) for reader in self._readers])

    def _distances(self, exponents: Sequence[Exponents]) -> tuple[FloatArray, FloatArray]:
        count = len(exponents[0].products)
        kernels = self._kernels[:, : self._n_clusters * count]
        distances = self._buffers[0, : self._n_clusters * count]
        shape = (self._n_clusters, count)
        for view, kernel in zip(exponents, kernels, strict=True):
            view.write(kernel.reshape(shape))
        if self._precise:
            np.minimum(kernels, 0, out=kernels)
        (np.expm1 if self._precise else np.exp)(kernels, out=kernels)
        np.dot(self._factors, kernels, out=distances)
        np.subtract(0 if self._precise else self._total, distances, out=distances)
        if distances.min() < self._floor:  # rows on centres
            np.maximum(distances, self._floor, out=distances)
        distances = distances.reshape(shape)
        if self._clusters is not None:
            np.multiply(distances, self._clusters, out=distances)
        return kernels.reshape(len(kernels), *shape), distances

    def memberships(self, distances: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Unnormalised memberships (d_min / d_k)^(1/(m-1)), their sums over clusters, d_min / d_k, and d_min.

        The distances, of shape (c, rows) or (models, c, rows), are overwritten.

        A row on a centre has distance 0 there, raised to the smallest positive number: it belongs to that cluster, or
        in equal parts to all clusters whose centres it is on.
        """
        raised = self._buffers[1, : distances.size].reshape(distances.shape)
        nearest = distances.min(axis=-2)
        ratio = np.divide(nearest[..., None, :], distances, out=distances)
        if self._squarings:
            np.multiply(ratio, ratio, out=raised)
            for _ in range(self._squarings - 1):
                np.multiply(raised, raised, out=raised)
        else:
            with np.errstate(divide="ignore"):  # a cluster that is left out has ratio 0
                np.log(ratio, out=raised)
            np.multiply(raised, self._power, out=raised)
            np.exp(raised, out=raised)
        return raised, raised.sum(axis=-2), ratio, nearest

    def sums(self, blocks: list[slice]) -> _Sums:
        """Add up blocks of rows."""
        n_views, n_clusters = len(self._readers), self._n_clusters
        sums = _Sums(
            lifted=tuple(np.zeros((n_clusters, reader.sum_width)) for reader in self._readers),
            totals=np.zeros((n_views, n_clusters)),
            costs=np.zeros(n_views),
            masses=np.zeros(n_clusters),
            objective=np.zeros(self._n_models),
        )
        search = self._margin > 0
        for block in blocks:
            exponents = [reader.load(block) for reader in self._readers]
            weight = None if self._rows.sample_weight is None else self._rows.sample_weight[block]
            if search:
                found = self._find_nearest(exponents)
                search = found.alone.mean() > WORTH_SHARE
                self._add_crisp(sums, found, found.alone * (1.0 if weight is None else weight))
                rows = np.flatnonzero(~found.alone)
                if len(rows):
                    weight = None if weight is None else weight[rows]
                    self._add(sums, [view.take(rows) for view in exponents], weight, rows)
            else:
                self._add(sums, exponents, weight, slice(None))
        return sums

    def _add(
        self, sums: _Sums, exponents: Sequence[Exponents], sample_weight: FloatArray | None, rows: IntArray | slice
    ) -> None:
        """Add some rows of the block that is loaded."""
        kernels, distances = self._distances(exponents)
        shape = distances.shape
        raised, summed, ratio, nearest = self.memberships(distances.reshape(self._n_models, -1, shape[1]))
        # mu^m = (raised / summed)^m, and raised^m = raised * ratio because m / (m-1) = 1 / (m-1) + 1
        power = summed**-self._fuzzifier
        if sample_weight is not None:
            power *= sample_weight.astype(power.dtype)
        weights = np.multiply(raised, ratio, out=raised)
        weights = np.multiply(weights, power[:, None], out=weights).reshape(shape)
        if self._finite_clusters is not None:
            np.multiply(weights, self._finite_clusters, out=weights)
        sums.masses += weights.sum(axis=1)
        for view, (reader, kernel) in enumerate(zip(self._readers, kernels, strict=True)):
            if self._precise:
                sums.costs[view] -= np.vdot(weights, kernel)
                np.add(kernel, 1, out=kernel)
            np.multiply(kernel, weights, out=kernel)
            sums.totals[view] += kernel.sum(axis=1)
            sums.lifted[view][...] += reader.sums(kernel, rows)
        # sum_k mu^m d = d_min * summed^(1-m): no further product
        sums.objective += np.vecdot(nearest, power * summed)

    def is_worth_searching(self, rows: slice) -> bool:
        """Whether enough of some rows belong to one cluster alone."""
        alone = self._find_nearest([reader.load(rows) for reader in self._readers]).alone
        return bool(self._margin > 0 and alone.mean() > WORTH_SHARE)

    def _find_nearest(self, exponents: Sequence[Exponents]) -> Nearest:
        """Nearest centres, and rows that belong to one cluster alone as far as the precision of the rows tells.

        Whatever the squared distance of a row to a centre in all views together is, its kernel distance is least if all
        of it is in the view that counts least: 1 - exp(-phi) is concave. Where a row is nearer to its own centre than
        that for all others, by so much that their memberships are below rounding, these need not be computed.
        """
        count = len(exponents[0].products)
        total = self._buffers[1, : self._n_clusters * count].reshape(self._n_clusters, count)
        known = [view for view, factor in zip(exponents, self._factors, strict=True) if factor > 0]
        products = known[0].products
        for view in known[1:]:
            products = products + view.products
        np.add(products.T, sum(view.constants for view in known), out=total)
        places, clusters = np.flatnonzero(total == total.max(axis=0, initial=-np.inf)), np.zeros(count, np.int32)
        found = places // max(count, 1)
        clusters[places - count * found] = found
        total.reshape(-1)[places] = -np.inf
        others = np.minimum(total.max(axis=0, initial=-np.inf) + sum(view.offsets for view in known), 0)
        least = (1 - np.exp(others)) * self._factors[self._factors > 0].min()
        kernels = np.minimum([view.pick(clusters) for view in exponents], 0)
        (np.expm1 if self._precise else np.exp)(kernels, out=kernels)
        distances = np.maximum((0 if self._precise else self._total) - self._factors @ kernels, self._floor)
        # where a row is between two equal centres, the search has lost one of them
        alone = distances <= (self._margin if len(places) == count else -1.0) * least
        return Nearest(clusters, kernels, distances, alone)

    def _add_crisp(self, sums: _Sums, nearest: Nearest, sample_weight: FloatArray) -> None:
        """Add rows of the block that belong to one cluster alone; the others have weight 0."""
        weight = sample_weight.astype(self._rows.dtype)
        starts, shape = np.arange(len(weight) + 1, dtype=np.int32), (self._n_clusters, len(weight))
        chosen = sp.csc_array((np.empty_like(weight), nearest.clusters, starts), shape)
        sums.masses += np.bincount(nearest.clusters, weight, self._n_clusters)
        for view, (reader, kernel) in enumerate(zip(self._readers, nearest.kernels, strict=True)):
            if self._precise:
                sums.costs[view] -= float(weight @ kernel)
            np.multiply(kernel + 1 if self._precise else kernel, weight, out=chosen.data)
            sums.totals[view] += np.bincount(nearest.clusters, chosen.data, self._n_clusters)
            sums.lifted[view][...] += reader.sums(chosen)
        sums.objective += weight @ nearest.distances

    def objectives(self, blocks: list[slice]) -> FloatArray:
        """Compute the objective of each model, of all rows of some blocks."""
        total: FloatArray = np.zeros(self._n_models)
        for block in blocks:
            _, distances = self.kernel_distances(block)
            _, summed, _, nearest = self.memberships(distances.reshape(self._n_models, -1, distances.shape[1]))
            power = summed**-self._fuzzifier
            if self._rows.sample_weight is not None:
                power *= self._rows.sample_weight[block].astype(power.dtype)
            total += np.vecdot(nearest, power * summed)
        return total

    def finish(self, sums: _Sums) -> Statistics:
        """Make statistics of the sums of all rows."""
        views = zip(self._readers, sums.lifted, sums.totals, strict=True)
        numerators, weights = zip(*(reader.unlift(lifted, totals) for reader, lifted, totals in views), strict=True)
        rows = self._rows.n_rows if self._rows.sample_weight is None else self._rows.sample_weight.sum()
        costs = sums.costs if self._precise else sums.masses.sum() - sums.totals.sum(axis=1)
        return Statistics(numerators, weights, costs, sums.masses, float(sums.objective.sum()), float(rows))


class Passes(AbstractContextManager["Passes"]):
    """Passes over one site's rows with some threads; threads and buffers live as long as the object."""

    def __init__(self, rows: Rows, n_clusters: int, workers: int = 1, n_models: int = 1) -> None:
        self.rows, self.n_models = rows, n_models
        n_clusters *= n_models
        blocks = rows.blocks(n_clusters)
        per_group = max(1, -(-len(blocks) // GROUPS))
        self._groups = [blocks[i : i + per_group] for i in range(0, len(blocks), per_group)]
        workers = max(1, min(workers, len(self._groups)))
        self._spaces = [Workspace(rows, n_clusters, blocks[0].stop if blocks else 0) for _ in range(workers)]
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def statistics(self, parameters: Parameters) -> Statistics:
        """Statistics of all rows at the given parameters, with the best memberships for them."""
        if not self._groups:
            return Statistics.zero(parameters.n_clusters, self.rows.widths)
        cells = parameters.n_clusters * sum(self.rows.widths)
        search = cells >= WORTH_SEARCHING * len(self.rows.widths) and self.rows.n_rows >= MANY_ROWS
        if search:
            self._spaces[0].use(parameters, search=True)
            search = self._spaces[0].is_worth_searching(slice(0, min(FIRST_ROWS, self._groups[0][0].stop)))
        sums = reduce(add, self._map(parameters, Workspace.sums, search=search))
        if search and sums.masses.min() < SMALLEST_CLUSTER * sums.masses.mean():
            sums = reduce(add, self._map(parameters, Workspace.sums))
        return self._spaces[0].finish(sums)

    def statistics_of(self, parameters: Parameters, n_models: int) -> tuple[Statistics, FloatArray]:
        """Statistics of all rows for several models in one pass, and the objective of each, of shape (models,).

        The models differ in their centres only, which stand in `parameters` one model after the other: so do those of
        the statistics, and one product with all centres is faster than one for each model. There are `n_models` of the
        constructor at most.
        """
        sums = reduce(add, self._map(parameters, Workspace.sums, n_models=n_models))
        return self._spaces[0].finish(sums), sums.objective

    def objectives_of(self, parameters: Parameters, n_models: int) -> FloatArray:
        """Objective of each of several models, as in `statistics_of`: half of the work, where no centre is to move."""
        return np.asarray(sum(self._map(parameters, Workspace.objectives, n_models=n_models)))

    def assign(self, parameters: Parameters) -> Assignment:
        """Memberships (n, c), labels (n,) and objective of all rows at the given parameters."""
        rows = self.rows
        memberships = np.empty((rows.n_rows, parameters.n_clusters), rows.dtype)
        labels = np.empty(rows.n_rows, np.int32)

        def of_group(space: Workspace, group: list[slice]) -> float:
            objective = 0.0
            for block in group:
                raised, sums, _, nearest = space.memberships(space.kernel_distances(block)[1])
                np.divide(raised.T, sums[:, None], out=memberships[block])
                labels[block] = raised.argmax(axis=0)
                weight = 1.0 if rows.sample_weight is None else rows.sample_weight[block]
                objective += float(np.sum(weight * nearest * sums ** (1.0 - parameters.fuzzifier), dtype=np.float64))
            return objective

        objective = sum(self._map(parameters, of_group))
        return memberships, labels, objective

    def distances(self, parameters: Parameters) -> FloatArray:
        """Kernel distances of all rows to all centres, summed over views with their factors, shape (n, c)."""
        result = np.empty((self.rows.n_rows, parameters.n_clusters), self.rows.dtype)

        def of_group(space: Workspace, group: list[slice]) -> None:
            for block in group:
                result[block] = space.kernel_distances(block)[1].T

        self._map(parameters, of_group)
        return result

    def row_mean(self, parameters: Parameters, measure: Callable[[FloatArray, FloatArray], FloatArray]) -> float:
        """Mean over rows of a measure of the kernel distances to the nearest and the second nearest centre."""

        def of_group(space: Workspace, group: list[slice]) -> FloatArray:
            total = np.zeros(2)
            for block in group:
                nearest, second = np.partition(space.kernel_distances(block)[1], 1, axis=0)[:2]
                weight = np.ones(len(nearest)) if self.rows.sample_weight is None else self.rows.sample_weight[block]
                total += weight @ measure(nearest, second), weight.sum()
            return total

        total, count = reduce(add, self._map(parameters, of_group))
        return float(total / count)

    def silhouette(self, parameters: Parameters) -> float:
        """Simplified silhouette of Hruschka, mean of 1 - d_1 / d_2: 1 where rows are on centres, 0 between two."""
        return self.row_mean(parameters, lambda nearest, second: 1.0 - nearest / second)

    def _map(
        self,
        parameters: Parameters,
        function: Callable[[Workspace, list[slice]], T],
        *,
        search: bool = False,
        n_models: int = 1,
    ) -> list[T]:
        """Results of a function for every group of blocks, in the order of the rows."""
        for space in self._spaces:
            space.use(parameters, search=search, n_models=n_models)

        def run(group: list[slice]) -> T:
            space = self._spaces.pop()
            try:
                return function(space, group)
            finally:
                self._spaces.append(space)

        return list(map(run, self._groups) if self._pool is None else self._pool.map(run, self._groups))


# Looking for the libraries takes time: it is done once, and not at import.
_find_libraries = cache(ThreadpoolController)


class _BlasLimit:
    """Keeps BLAS to one thread while any fit is under way, and gives it back its threads after the last one.

    The setting is one for the whole process. If every fit put back what it found, of two fits at the same time in
    threads of a user the second would find the limit of the first, and leave it behind for good.
    """

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0

    def enter(self) -> int:
        """Set the limit; return how many threads BLAS had until now."""
        with self._lock:
            blas = _find_libraries().select(user_api="blas")
            workers = max((library["num_threads"] for library in blas.info()), default=1)
            if not self._users:
                self._limit = blas.limit(limits=1)
            self._users += 1
            return workers

    def leave(self) -> None:
        """Put back what was set before, if nobody else needs the limit."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limit.restore_original_limits()
            # threadpoolctl lets only the thread that set a limit change it, until that thread has left such a block
            with _find_libraries().select(user_api="blas").limit(limits=None):
                pass


_blas_limit = _BlasLimit()


@contextmanager
def own_threads() -> Iterator[int]:
    """Keep BLAS to one thread and yield how many threads to use instead.

    The number is what BLAS would have used, so that `OMP_NUM_THREADS` and `threadpoolctl` are respected.
    """
    workers = _blas_limit.enter()
    try:
        yield workers
    finally:
        _blas_limit.leave()
