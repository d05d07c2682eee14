"""What the server and a site keep during the diffusion stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.diffusion import Diffusion, DiffusionSettings
from fedhk.federation.payloads import Arrays, Values
from fedhk.model.rows import Rows


@dataclass(frozen=True, eq=False)
class Stage:
    """All that the server knows of the diffusion between exchanges.

    Parameters
    ----------
    settings : DiffusionSettings
        What was chosen.
    n_wanted : int
        Eigenvectors that must be good.
    graph : AnchorGraph
        The anchors, as sites read them.
    directions : array of shape (m, q)
        What sites are asked next, as they read it; with q = 0 the whole Gram matrix is asked for.
    known : tuple of (directions, products)
        What was asked and answered so far.
    diffusion : Diffusion or None
        The result, once it is good enough.
    stand_ins : CSR of shape (n, m) or None
        Affinities of rows that stand in for those of the sites, for the start of the rounds.
    exchanges : int
        How often sites were asked; more often than is `known` where sites came or went on the way.
    means, sizes : tuple of array of shape (c, d_h), array of shape (c,)
        At the end of the run: where clusters are in the views that came in, and how large they are.
    """

    settings: DiffusionSettings
    n_wanted: int
    graph: AnchorGraph
    directions: FloatArray
    known: tuple[tuple[FloatArray, FloatArray], ...] = ()
    diffusion: Diffusion | None = None
    stand_ins: Any = field(default=None, repr=False)
    exchanges: int = 0
    means: tuple[FloatArray, ...] = ()
    sizes: FloatArray | None = None

    @property
    def asks_gram(self) -> bool:
        """Whether the whole Gram matrix is asked for."""
        return int(self.directions.shape[1]) == 0

    @property
    def size(self) -> int:
        """Numbers of an answer: one vector that is a sum over rows."""
        columns = self.graph.n_columns
        return columns * (columns + 1) // 2 if self.asks_gram else self.directions.size

    @property
    def done(self) -> bool:
        """Whether rows can be embedded."""
        return self.diffusion is not None


@dataclass(frozen=True, eq=False)
class SiteStage:
    """What a site keeps of the diffusion.

    Parameters
    ----------
    graph : AnchorGraph
        The anchors from the server.
    affinities : CSR of shape (n, m)
        Those of the site's rows: computed once, a few numbers a row. None once rows are embedded.
    sample_weight : array of shape (n,) or None
        Weight of each row.
    diffusion : Diffusion or None
        The embedding, once the server has told it.
    embedded : Rows or None
        The site's rows in it: what rounds see.
    """

    graph: AnchorGraph
    affinities: Any = field(repr=False)
    sample_weight: FloatArray | None = None
    diffusion: Diffusion | None = None
    embedded: Rows | None = field(default=None, repr=False)


def pack_stage(stage: Stage) -> tuple[Arrays, Values]:
    """The server's stage for checkpoints."""
    arrays: Arrays = {f"stage.{view}.anchors": centers for view, centers in enumerate(stage.graph.anchors)}
    arrays["stage.directions"] = stage.directions
    for turn, (asked, told) in enumerate(stage.known):
        arrays |= {f"stage.{turn}.asked": asked, f"stage.{turn}.told": told}
    if stage.stand_ins is not None:
        parts = {"data": stage.stand_ins.data, "indices": stage.stand_ins.indices, "indptr": stage.stand_ins.indptr}
        arrays |= {f"stage.stand_ins.{name}": part for name, part in parts.items()}
    if stage.diffusion is not None:
        arrays |= {"stage.projection": stage.diffusion.projection, "stage.values": stage.diffusion.values}
    if stage.sizes is not None:
        arrays |= {f"stage.{view}.means": means for view, means in enumerate(stage.means)}
        arrays["stage.sizes"] = stage.sizes
    counts = {"views": len(stage.graph.anchors), "known": len(stage.known)}
    return arrays, counts | {"wanted": stage.n_wanted, "exchanges": stage.exchanges}


def unpack_stage(arrays: Arrays, values: Values, settings: DiffusionSettings) -> Stage:
    """What `pack_stage` packed."""
    n_views = int(values["views"])
    anchors = tuple(arrays[f"stage.{view}.anchors"] for view in range(n_views))
    graph = AnchorGraph(anchors, settings.neighbours, settings.scale, settings.joint_weight)
    known = tuple((arrays[f"stage.{turn}.asked"], arrays[f"stage.{turn}.told"]) for turn in range(int(values["known"])))
    stand_ins, diffusion = None, None
    if "stage.stand_ins.data" in arrays:
        data, indices, pointers = (arrays[f"stage.stand_ins.{name}"] for name in ("data", "indices", "indptr"))
        stand_ins = sp.csr_array((data, indices, pointers), shape=(len(pointers) - 1, graph.n_columns))
    if "stage.projection" in arrays:
        diffusion = Diffusion(graph, arrays["stage.projection"], arrays["stage.values"])
    means = tuple(arrays[name] for view in range(n_views) if (name := f"stage.{view}.means") in arrays)
    return Stage(
        settings,
        int(values["wanted"]),
        graph,
        arrays["stage.directions"],
        known,
        diffusion,
        stand_ins,
        int(values["exchanges"]),
        means,
        arrays.get("stage.sizes"),
    )
