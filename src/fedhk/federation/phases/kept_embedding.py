"""Kept embedding: an update of embedded rows goes on in the embedding of the fit, which follows its clusters.

Sites of the fit have kept its anchors and directions; only others are sent them. From there on, means of clusters in
the original views are all that travels: they say where anchors have moved (`fedhk.embedding.carried`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.embedding.carried import Origin
from fedhk.embedding.diffusion import EmbeddedModel, make_embedded_rows, of_means
from fedhk.embedding.map import DiffusionMap
from fedhk.federation.board import Board, Entry, RowEntry, Shared
from fedhk.federation.codec import pack
from fedhk.federation.entries import Broadcast, FinalModel, FinalParameters, References, Remembered, Space
from fedhk.federation.phases.anchors import Anchors
from fedhk.federation.phases.base import Phase, ServerPhase
from fedhk.federation.phases.cluster_means import ClusterMeans, Limits
from fedhk.federation.phases.diffuse import DIRECTION_PRECISION, Embedding
from fedhk.federation.plausible import ROUNDING
from fedhk.federation.site import Site
from fedhk.federation.table import Table
from fedhk.model.fitted import FittedModel
from fedhk.model.memory import PlacedRows
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows


@dataclass(frozen=True, eq=False)
class FoundEmbedding(Shared):
    """The embedding of a fit, and its clusters: what updates start from for years."""

    anchors: Anchors
    embedding: Embedding
    centers: FloatArray  # of clusters, in the embedding, (c, k)
    means: FloatArray  # of clusters in model units of the calibrated rows, (c, d)

    @classmethod
    def of(cls, model: EmbeddedModel) -> FoundEmbedding:
        """Make the entry of a fitted model: its numbers are those that were sent, so that rounding changes none."""
        origin = model.origin
        found = origin.diffusion
        directions = Table.of(found.projection.T, DIRECTION_PRECISION)
        embedding = Embedding(directions, found.values, model.parameters.fuzzifier)
        return cls(Anchors.of(found.graph), embedding, origin.centers, origin.means)

    @classmethod
    def at(cls, site: Site) -> FoundEmbedding:
        """Make the entry at a site, at the end of a fit."""
        board = site.board
        centers = board.get(FinalModel).model.centers.read()
        means = np.hstack(board.get(ClusterMeans).in_units(board))
        return cls(board.get(Anchors), board.get(Embedding), centers, means)

    @cached_property
    def origin(self) -> Origin:
        """The embedding, as server and sites read it."""
        found = DiffusionMap(self.anchors.graph, self.embedding.projection, self.embedding.values)
        return Origin(found, self.centers, self.means)

    @cached_property
    def digest(self) -> str:
        """What a server and a site tell by that they mean the same embedding."""
        values, arrays = pack(self, FoundEmbedding)
        parts = [json.dumps(values, sort_keys=True).encode()]
        parts += [name.encode() + np.ascontiguousarray(arrays[name]).tobytes() for name in sorted(arrays)]
        return sha256(b"".join(parts)).hexdigest()


@dataclass(frozen=True, eq=False)
class OwnEmbedding(Entry):
    """A site's copy of the embedding of its last run."""

    found: FoundEmbedding


@dataclass(frozen=True, eq=False)
class Roots(Entry):
    """Where clusters have their anchors from, and how far from anchors rows may be.

    Parameters
    ----------
    parents : tuple of int
        Of each cluster that came after the fit: the one whose anchors it has copies of.
    limits : array of shape (c,)
        Squared distance to the nearest anchor beyond which a row fits nowhere, for each cluster of the fit.
    """

    parents: tuple[int, ...]
    limits: FloatArray

    def extend(self, parameters: Parameters) -> Roots:
        """Give clusters that are new the anchors of the cluster that is nearest to them."""
        means, parents = np.hstack(parameters.centers), list(self.parents)
        left = np.setdiff1d(np.arange(len(self.limits) + len(parents)), parameters.gone)
        new = means[len(self.limits) + len(parents) :]
        parents += [int(left[np.square(means[left] - place).sum(axis=1).argmin()]) for place in new]
        return replace(self, parents=tuple(parents))

    def squares(self, origin: Origin) -> FloatArray:
        """Return the limit of each cluster."""
        return np.asarray(self.limits[origin.roots(self.parents)])


@dataclass(frozen=True, eq=False)
class FollowedEmbedding(RowEntry):
    """The embedding after an update, by the means of its clusters: from here on a row is its place in it."""

    model: Broadcast  # means of the clusters
    parents: tuple[int, ...]
    sizes: FloatArray  # rows of each cluster, those of earlier runs included as far as they are remembered

    def apply_at(self, site: Any, rows: Rows) -> Rows:
        means, origin = self.model.parameters(rows.widths), site.board.get(FoundEmbedding).origin
        found, _ = origin.carry(np.hstack(means.centers), self.parents, means.gone)
        return make_embedded_rows(found.embed(rows), rows.sample_weight)

    def undo(self, parameters: Parameters, board: Board) -> Parameters:
        return of_means(parameters, self.model.parameters(board.get(References).widths).centers)

    def wrap(self, model: FittedModel, board: Board) -> FittedModel:
        found = board.get(FoundEmbedding)
        return EmbeddedModel(
            replace(model.parameters, fuzzifier=found.embedding.fuzzifier),
            model.references,
            model.view_names,
            model.columns,
            diffusion=found.origin.diffusion,
            means=self.model.parameters(model.widths).centers,
            sizes=self.sizes,
            starts=found.means,
            parents=self.parents,
            limits=next((entry.squares for entry in board.find(Limits)), np.zeros(0)),
        )


def place_embedded(
    site: Site, found: FoundEmbedding, means: Parameters, parents: tuple[int, ...]
) -> tuple[PlacedRows, FloatArray, FloatArray]:
    """Place a site's rows in the embedding that follows these means.

    Returns them with their features, their distances to the nearest anchor, and what `PlacedRows.count_between` says of
    the embedded rows.
    """
    if not site.memory.has(OwnEmbedding):
        site.keep(OwnEmbedding(found))
    rows = site.rows()
    carried, centers = found.origin.carry(np.hstack(means.centers), parents, means.gone)
    embedded, inner = make_embedded_rows(carried.embed(rows)), of_means(means, (centers,))
    with Passes(embedded, means.n_clusters, site.workers) as scan:
        labels = scan.assign(inner)[1]
    placed, between = PlacedRows.of(rows, means, labels), PlacedRows.of(embedded, inner, labels).count_between(inner)
    return placed, np.sqrt(carried.graph.nearest_squares(placed.rows)), between


@dataclass(frozen=True)
class DigestRequest:
    """Ask whether a site has kept the embedding with this digest."""

    digest: str


@dataclass(frozen=True)
class DigestReply:
    """Whether it has."""

    kept: bool


@dataclass(frozen=True, eq=False)
class RecallEmbedding(Phase[DigestRequest, DigestReply]):
    """Put the embedding on the board, and ask which sites have kept it: these are not sent it."""

    name: ClassVar[str] = "recall embedding"

    found: FoundEmbedding
    roots: Roots

    def begin(self, board: Board) -> Board:
        return board.put(self.roots, Limits(self.roots.limits))

    def request(self, board: Board) -> DigestRequest:
        return DigestRequest(self.found.digest)

    @staticmethod
    def answer(site: Site, request: DigestRequest) -> DigestReply:
        for own in site.memory.find(OwnEmbedding):
            if own.found.digest == request.digest:
                site.board = site.board.put(own.found)
                return DigestReply(kept=True)
            site.memory = site.memory.drop(OwnEmbedding)
        return DigestReply(kept=False)

    def check(self, board: Board, reply: DigestReply, site: str) -> None:
        """Do nothing: a site that says that it has what it lacks is refused later, and then sent it."""

    def combine(self, board: Board, replies: Mapping[str, DigestReply]) -> Board:
        return board.put(self.found)

    def kept(self, replies: Mapping[str, DigestReply]) -> dict[str, list[type[Entry]]]:
        return {site: [FoundEmbedding] for site, reply in replies.items() if reply.kept}

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [GiveEmbedding(self.found, self.roots)]


@dataclass(frozen=True, eq=False)
class GiveEmbedding(ServerPhase):
    """Put the embedding on the board: under masks sites say nothing but sums, and all are sent it."""

    name: ClassVar[str] = "give embedding"

    found: FoundEmbedding
    roots: Roots

    def begin(self, board: Board) -> Board:
        return board.put(self.roots, Limits(self.roots.limits), self.found)


@dataclass(frozen=True, eq=False)
class FollowClusters(ServerPhase):
    """Publish the embedding where the clusters are after an update, and the final model of embedded rows."""

    name: ClassVar[str] = "follow clusters"

    before: Parameters  # of embedded rows

    def begin(self, board: Board) -> Board:
        sent, means = board.get(FinalModel).model, board.get(FinalParameters).parameters
        parents = board.get(Roots).extend(means).parents
        _, centers = board.get(FoundEmbedding).origin.carry(np.hstack(means.centers), parents, means.gone)
        final = replace(self.before, centers=(centers,), sizes=means.sizes)
        sizes = board.get(Remembered).memory.spread.rows
        return board.put(
            FollowedEmbedding(sent, parents, sizes),
            FinalModel(Broadcast.of(final)),
            FinalParameters(final),
            Space((np.full(centers.shape[1], 1.0 + ROUNDING),)),
        )

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [self]
