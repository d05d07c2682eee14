"""Where heat on the graph of rows and anchors stays longest: leading eigenvectors, from sums over rows.

With Z the affinities (n, m) and d = Z^T 1 their column sums, heat goes from anchors to rows and back by
G = R Z^T Z R, where R is the root of d^(-1), or of what groups of anchors make of it (`fedhk.embedding.groups`).
Rows of Z sum to 1, so that d = Z^T Z 1: column sums are a product too. Sites need d for nothing. They get directions V
and answer with Z^T Z V, a sum over rows. The server has rows that stand in for those of the sites, and so a model of G.
It corrects the model by what was answered, takes its eigenvectors, and asks next for what they have outside of the
directions so far: every product is one exchange. The Gram matrix is the answer to V = I. Where all rows are here and
nothing stands in for them, the best approximation in the span of the directions is taken instead (Rayleigh-Ritz), and
the next directions are those of its error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd

from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.groups import NO_GROUPS, AnchorGroups, Root, partition_anchors
from fedhk.embedding.options import Diffusion
from fedhk.embedding.parts import Parts, weigh_parts
from fedhk.model.rows import Rows

# Multiplication of columns by a matrix that is not written out.
Multiply = Callable[[FloatArray], FloatArray]

# Directions beyond those of the clusters that count in the embedding (`weigh_directions`). Of none, one, two and as
# many as clusters, one was best on 18 real data sets, and then gained on 25 others
# (benchmarks/results/diffusion-tried.md).
NEXT_DIRECTIONS = 1

# Directions beyond the wanted ones in the first exchange, at least: the vector after the last wanted one is what it is
# most easily confused with.
EXTRA_DIRECTIONS = NEXT_DIRECTIONS

# Directions of a basis that hold less than this share of the longest are left out: products that come rounded to 2^-11
# would say more about their rounding than about them.
SPAN = 0.02

# Eigenvalues nearer than this are equal but for the rounding of products, and so many beyond the wanted are looked at
# for equal ones.
SAME_VALUE, BEYOND = 1e-4, 8

# Of rows that are all here, up to so many columns the whole Gram matrix is solved: 8 MB.
GRAM_COLUMNS = 1000

# Graphs up to this size are solved whole.
DENSE_COLUMNS = 400

# Larger ones by so many products with a block that has so many directions more than are wanted.
BLOCK_PASSES, BLOCK_EXTRA = 30, 10

# By fewer where vectors are near: each makes what is off about half as long, and 0.02 is good enough.
NEAR_PASSES = 10

# Eigenvalues below this share of the first are noise; dividing by their roots would make it large.
LEAST_VALUE = 1e-8


@dataclass(frozen=True)
class Eigenvectors:
    """The best approximation to leading eigenvectors in the span of what is known."""

    values: FloatArray  # largest first, from 0 to 1
    vectors: FloatArray  # of shape (m, k), orthonormal, in the rotation of `canonical_rotation`
    errors: FloatArray  # where to look next, as long as the error that is left
    root: Root  # R, by which directions that sites know become those of G, and back

    def projection(self, n_components: int) -> FloatArray:
        """What affinities are multiplied by to embed rows: R q / sqrt(value), shape (m, n_components)."""
        values = np.maximum(self.values[:n_components], LEAST_VALUE)
        return np.asarray(self.root.apply(self.vectors[:, :n_components]) / np.sqrt(values))

    def cluster_projection(self, n_clusters: int) -> FloatArray:
        """The projection in which rows are clustered: a direction for each cluster, and the next by its weight."""
        count = min(n_clusters + NEXT_DIRECTIONS, len(self.values))
        return self.projection(count) * weigh_directions(self.values[:count], n_clusters)

    def as_directions(self) -> FloatArray:
        """The vectors but the first, after ones, as sites get them."""
        ones = np.ones((len(self.vectors), 1))
        return normalise_columns(np.hstack([ones, self.root.apply(self.vectors[:, 1:])]))

    def next_directions(self, n_wanted: int, tol: float) -> FloatArray:
        """The errors that are longer than `tol`, as sites get them; no column if there is none.

        Those of vectors after the wanted ones count as much as these do in `cluster_projection`.
        """
        errors = np.linalg.norm(self.errors, axis=0) * weigh_directions(self.values, n_wanted)
        off = np.flatnonzero(errors > tol)
        return normalise_columns(self.root.apply(self.errors[:, off]))


def products(affinities: Any, directions: FloatArray, sample_weight: FloatArray | None = None) -> FloatArray:
    """Compute Z^T Z V of some rows, a sum over them, shape (m, q)."""
    spread = affinities @ directions
    if sample_weight is not None:
        spread = spread * sample_weight[:, None]
    return np.asarray(affinities.T @ spread, dtype=np.float64)


def gram(affinities: Any, sample_weight: FloatArray | None = None) -> FloatArray:
    """Compute Z^T Z of some rows, a sum over them, shape (m, m)."""
    weighted = affinities if sample_weight is None else sp.diags_array(sample_weight) @ affinities
    return np.asarray((affinities.T @ weighted).toarray(), dtype=np.float64)


def weigh_directions(values: FloatArray, n_clusters: int) -> FloatArray:
    """Weights of directions with these eigenvalues: 1 for as many as there are clusters, less for those after them.

    Heat leaves a direction at the rate 1 - value. When 1 / e of it is left in the direction of the last cluster, the
    weight of the next is what is left there, compared with that. Where clusters are apart it is 0. Where heat leaves
    the next direction as slowly, both say as much: a tight part of one cluster may come before another cluster.
    """
    rates = 1.0 - values
    last = float(rates[min(n_clusters, len(rates)) - 1])
    beyond = np.maximum(rates - last, 0.0) / max(last, SAME_VALUE)
    beyond[:n_clusters] = 0.0
    return np.asarray(np.exp(-beyond))


def product_sensitivity(directions: FloatArray) -> float:
    """Bound how far one row more or less moves the products.

    A row adds z (z^T V). Its shares z are not negative and sum to 1 (or 0), so that |z| <= 1 and z^T V is a mean of
    rows of V, no longer than the longest of them. With V = I this is |z z^T| <= 1, the bound for the Gram matrix.
    """
    return float(np.linalg.norm(directions, axis=1).max(initial=0.0))


def first_directions(affinities: Any, n_wanted: int, groups: AnchorGroups, tol: float) -> FloatArray:
    """First directions, from rows that stand in for those of the sites: ones, and their leading eigenvectors.

    There are more than the wanted ones where eigenvalues are nearly the same, as where clusters are long: a vector that
    may be off by `tol` cannot be told from those whose eigenvalue is less than that below its own.
    """
    root = _stand_in_root(affinities, groups)
    scaled = _apply_to_rows(affinities, root)
    vectors = _leading_vectors(scaled, min(n_wanted + BEYOND, affinities.shape[1]))
    values = np.square(scaled @ vectors).sum(axis=0)
    same = int((values > values[:n_wanted][-1] - tol).sum())
    vectors = vectors[:, : max(same, n_wanted + EXTRA_DIRECTIONS)]
    # heat that is spread evenly is 1 in all columns, and more in the last ones where there are groups of these
    even = np.ones((len(vectors), 1 + bool(len(root.joint))))
    even[: len(vectors) - len(root.joint), 1:] = 0.0
    return normalise_columns(np.column_stack([even, root.apply(vectors[:, 1:])]))


def find_groups(
    affinities: Any,
    graph: AnchorGraph,
    n_clusters: int,
    options: Diffusion,
    seed: int,
    *,
    sample_weight: FloatArray | None = None,
) -> AnchorGroups:
    """Groups of anchors, and how much heat passes by them, from the affinities of rows or of rows that stand in.

    Of the heat of a cluster, 1 - value leaves it in one step, with the eigenvalue of the last cluster. Where clusters
    are apart nothing leaves, and nothing passes by groups; where nothing stays, plain groups say no more. So the share
    is value (1 - value). Parts are plain groups, too: as far as levels of categories say more than numbers, they take
    the place of these.
    """
    count, joint_weight = graph.n_anchors, graph.weights[-1]
    if not options.groups or not joint_weight or not 1 < n_clusters < count:
        return NO_GROUPS
    value, sums = find_value(affinities, n_clusters, sample_weight)
    labels = partition_anchors(graph.stretched, sums[-count:], n_clusters, seed)
    return share_heat(AnchorGroups(labels, 0.0, joint_weight), graph, value)


def share_heat(groups: AnchorGroups, graph: AnchorGraph, value: float) -> AnchorGroups:
    """Return groups of anchors by which as much heat passes as the eigenvalue of the last cluster says."""
    return replace(groups, share=value * (1.0 - value) * (1.0 - graph.parts.share) if len(groups.labels) else 0.0)


def find_value(affinities: Any, n_clusters: int, sample_weight: FloatArray | None = None) -> tuple[float, FloatArray]:
    """The eigenvalue of the last cluster without any groups, 0 to 1, and the sums of the columns of affinities.

    It is 0 where no row is tied to anything.
    """
    weight = np.ones(affinities.shape[0]) if sample_weight is None else sample_weight
    sums = np.asarray(affinities.T @ weight).ravel()
    if not sums.any():
        return 0.0, sums
    scaled = sp.csr_array(sp.diags_array(np.sqrt(weight)) @ _apply_to_rows(affinities, Root.of(sums, NO_GROUPS)))
    last = _leading_vectors(scaled, n_clusters)[:, -1]
    return float(np.clip(np.square(scaled @ last).sum(), 0.0, 1.0)), sums


def tie_to_parts(
    graph: AnchorGraph, rows: Rows, parts: Parts, n_clusters: int, sample_weight: FloatArray | None = None
) -> AnchorGraph:
    """The graph with parts, which weigh as `weigh_parts` says, by the affinities of rows or of rows that stand in."""
    if not parts:
        return graph
    values = []
    for weight in (0.0, 1.0):
        alone = replace(graph, parts=replace(parts, weight=weight)).affinities(rows)
        values.append(find_value(alone, min(n_clusters, alone.shape[1]), sample_weight)[0])
    return replace(graph, parts=replace(parts, weight=weigh_parts(parts.share, *values)))


def approximate_eigenvectors(
    known: Sequence[tuple[FloatArray, FloatArray]],
    n_wanted: int,
    groups: AnchorGroups = NO_GROUPS,
    stand_ins: Any = None,
) -> Eigenvectors:
    """Leading eigenvectors of what is known of G, and where to look next.

    Parameters
    ----------
    known : sequence of (directions, products)
        Directions and their products, summed over all rows; the first direction of all is 1.
    n_wanted : int
        How many vectors. Without stand-ins they are fewer where directions have fewer dimensions.
    groups : AnchorGroups
        Groups of anchors.
    stand_ins : sparse array of shape (n, m) or None
        Affinities of rows that stand in for those of the sites. The model of G that they make is changed as little as
        gives the known products (the least symmetric change: Powell's), and the vectors are its own. What they have
        outside of the directions, o, follows from the model alone. It is off there as it was where it could be
        compared, by about |G v - value v| of the part v inside, so that |G v - value v| |o| is left of their error.
        None is Rayleigh-Ritz: the best vectors in the span of the directions, whose error is G v - value v.
    """
    directions, sums = (np.hstack(parts) for parts in zip(*known, strict=True))
    root = Root.of(sums[:, 0], groups)
    basis = root.remove(directions)
    lengths = np.linalg.norm(basis, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    left, sizes, right = scipy.linalg.svd(basis / lengths, full_matrices=False, lapack_driver="gesvd")
    kept = sizes > SPAN * sizes.max(initial=0.0)
    span, mix = left[:, kept], right[kept].T / sizes[kept]
    images = root.apply(sums / lengths) @ mix
    values, turns = _solve_symmetric(span.T @ images)
    vectors = span @ turns
    if stand_ins is None:
        return _choose_leading(values, vectors, images @ turns - values * vectors, root, n_wanted)
    multiply = _correct_model(_multiply_by_model(stand_ins, groups), span, images)
    count = n_wanted + BEYOND
    near = vectors[:, :count][:, values[:count] > SAME_VALUE]  # products with others are rounding
    values, vectors = _leading_pairs(multiply, near, count)
    outside = vectors - span @ (span.T @ vectors)
    left = np.linalg.norm(multiply(outside) - values * outside, axis=0)  # the same outside and inside, but for its sign
    return _choose_leading(values, vectors, outside * left, root, n_wanted)


def restrict_eigenvectors(
    directions: FloatArray, sums: FloatArray, inner: FloatArray, n_wanted: int, groups: AnchorGroups = NO_GROUPS
) -> Eigenvectors:
    """Compute the best leading eigenvectors in the span of directions V, from V^T Z^T Z V and the sums of columns.

    Errors are not known, because nothing is known outside of the span.
    """
    root = Root.of(sums, groups)
    basis = root.remove(directions)
    lengths = np.linalg.norm(basis, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    left, sizes, right = scipy.linalg.svd(basis / lengths, full_matrices=False, lapack_driver="gesvd")
    kept = sizes > SPAN * sizes.max(initial=0.0)
    mix = right[kept].T / sizes[kept] / lengths[:, None]
    values, turns = _solve_symmetric(mix.T @ inner @ mix)
    vectors = left[:, kept] @ turns
    return _choose_leading(values, vectors, np.zeros_like(vectors), root, n_wanted)


def solve_gram(total: FloatArray, n_wanted: int, groups: AnchorGroups = NO_GROUPS) -> Eigenvectors:
    """Compute eigenvectors from the Gram matrix of all rows, exactly."""
    root = Root.of(total.sum(axis=1), groups)
    normal = root.apply(root.apply(total).T)
    size = len(normal)
    few = max(0, size - n_wanted - BEYOND)
    values, vectors = scipy.linalg.eigh((normal + normal.T) / 2, subset_by_index=[few, size - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    return _choose_leading(values, vectors, normal @ vectors - values * vectors, root, n_wanted)


def find_eigenvectors(
    affinities: Any,
    n_wanted: int,
    groups: AnchorGroups,
    sample_weight: FloatArray | None = None,
    *,
    tol: float,
    most_products: int,
) -> Eigenvectors:
    """Compute eigenvectors of the rows of one site: from the whole Gram matrix if it is small, else as sites do."""
    if affinities.shape[1] <= GRAM_COLUMNS:
        return solve_gram(gram(affinities, sample_weight), n_wanted, groups)
    known: list[tuple[FloatArray, FloatArray]] = []
    rooted = affinities if sample_weight is None else sp.csr_array(sp.diags_array(np.sqrt(sample_weight)) @ affinities)
    directions = first_directions(rooted, n_wanted, groups, tol)
    while True:
        known.append((directions, products(affinities, directions, sample_weight)))
        found = approximate_eigenvectors(known, n_wanted, groups)
        directions = found.next_directions(n_wanted, tol)
        if not directions.shape[1] or len(known) >= most_products:
            return found


def embed_affinities(affinities: Any, projection: FloatArray) -> FloatArray:
    """Embed rows of length 1 from their affinities, shape (n, k)."""
    values = np.asarray(affinities @ projection)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(np.divide(values, lengths, out=np.zeros(values.shape), where=lengths > 0))


def canonical_rotation(values: FloatArray, vectors: FloatArray) -> FloatArray:
    """The rotation, of shape (k, k), after which vectors do not depend on how they were computed.

    An eigenvector is known up to its sign, and those of one eigenvalue (groups that heat does not leave) up to a
    rotation. In every group of equal eigenvalues, the first vector is turned to where the group is largest, the second
    to where it is largest apart from the first, and so on; alone, a vector's largest component becomes positive.
    """
    turn = np.zeros((len(values), len(values)))
    starts = np.flatnonzero(np.append(True, np.abs(np.diff(values)) > SAME_VALUE))
    for start, stop in zip(starts, np.append(starts[1:], len(values)), strict=True):
        left = vectors[:, start:stop].copy()
        for column in range(start, stop):
            row = left[np.argmax(np.round(np.linalg.norm(left, axis=1), 9))]
            axis = row / max(float(np.linalg.norm(row)), 1e-300)
            turn[start:stop, column] = axis
            left -= np.outer(left @ axis, axis)
    return turn


def normalise_columns(directions: FloatArray) -> FloatArray:
    """Columns whose largest component is 1 or -1, so that few digits hold them; those of zeros stay."""
    largest = np.abs(directions).max(axis=0, initial=0.0)
    return np.asarray(directions / np.where(largest > 0, largest, 1.0))


def _choose_leading(
    values: FloatArray, vectors: FloatArray, errors: FloatArray, root: Root, n_wanted: int
) -> Eigenvectors:
    """The first vectors in their canonical rotation; a group of equal eigenvalues is turned before it is cut."""
    count = min(n_wanted + BEYOND, len(values))
    turn = canonical_rotation(values[:count], vectors[:, :count])[:, :n_wanted]
    values = np.clip(values[:n_wanted], 0.0, 1.0)
    return Eigenvectors(values, vectors[:, :count] @ turn, errors[:, :count] @ turn, root)


def _stand_in_root(affinities: Any, groups: AnchorGroups) -> Root:
    """R of rows that stand in; an anchor that none of them is near to may still be near to rows."""
    sums = np.asarray(affinities.sum(axis=0)).ravel()
    near = sums > 1e-12 * max(float(sums.max(initial=0.0)), 1e-300)
    return Root.of(np.where(near, sums, sums[near].mean() if near.any() else 1.0), groups)


def _multiply_by_model(stand_ins: Any, groups: AnchorGroups) -> Multiply:
    """Multiplication by the model of G that rows that stand in make."""
    root = _stand_in_root(stand_ins, groups)
    return lambda values: root.apply(products(stand_ins, root.apply(values)))


def _correct_model(model: Multiply, span: FloatArray, images: FloatArray) -> Multiply:
    """Multiplication by the symmetric matrix nearest to the model that maps an orthonormal span to given images."""
    missed = images - model(span)
    inner = span.T @ missed
    inner = (inner + inner.T) / 2

    def multiply(values: FloatArray) -> FloatArray:
        inside = span.T @ values
        return np.asarray(model(values) + missed @ inside + span @ (missed.T @ values - inner @ inside))

    return multiply


def _leading_pairs(multiply: Multiply, near: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Leading eigenvalues, largest first, and eigenvectors of a symmetric matrix, given vectors that are near to them.

    A small matrix is solved whole, of a larger one a block that begins with the vectors is multiplied.
    """
    size = len(near)
    block = np.eye(size)
    if size > DENSE_COLUMNS:
        more = np.random.RandomState(0).normal(size=(size, BLOCK_EXTRA))
        block = np.linalg.qr(np.hstack([near, more]))[0]
        for _ in range(NEAR_PASSES):
            block = np.linalg.qr(multiply(block))[0]
    values, turns = _solve_symmetric(block.T @ multiply(block))
    return values[:count], block @ turns[:, :count]


def _solve_symmetric(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues, largest first, and eigenvectors of a matrix that is symmetric but for rounding."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return values[::-1], vectors[:, ::-1]


def _apply_to_rows(affinities: Any, root: Root) -> Any:
    """Z R, CSR; the last columns are dense where there are groups."""
    scaled = sp.csr_array(affinities @ sp.diags_array(root.scales))
    if not len(root.joint):
        return scaled
    count = len(root.joint)
    return sp.csr_array(sp.hstack([scaled[:, :-count], sp.csr_array(affinities[:, -count:] @ root.joint)]))


def _leading_vectors(scaled: Any, count: int) -> FloatArray:
    """Compute the leading eigenvectors of Z^T Z, largest eigenvalue first."""
    size = scaled.shape[1]
    if size > max(DENSE_COLUMNS, 2 * count):
        # all vectors at once: one after the other, copies of equal eigenvalues are missed, and groups that heat does
        # not leave have such
        found = randomized_svd(
            scaled,
            count,
            n_oversamples=BLOCK_EXTRA,
            n_iter=BLOCK_PASSES,
            power_iteration_normalizer="QR",
            random_state=0,
        )
        return np.asarray(found[2].T)
    return np.asarray(np.linalg.eigh((scaled.T @ scaled).toarray())[1][:, : -count - 1 : -1])
