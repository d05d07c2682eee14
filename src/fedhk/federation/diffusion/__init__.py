"""The stage in front of the rounds that embeds the rows of all sites by heat diffusion.

After the candidates: the server makes anchors (`begin`), then asks as often as needed for products of the sites'
affinities with directions (`tell`, `answer`, `read`, `take`), and has a `Diffusion` when it is `done`. Sites then embed
their own rows (`hear`).
"""

from fedhk.federation.diffusion.server import as_matrix, begin, read, start_rows, take, tell, told_diffusion
from fedhk.federation.diffusion.site import answer, hear, hear_diffusion, site_count, sums
from fedhk.federation.diffusion.state import SiteStage, Stage, pack_stage, unpack_stage

__all__ = [
    "SiteStage",
    "Stage",
    "answer",
    "as_matrix",
    "begin",
    "hear",
    "hear_diffusion",
    "pack_stage",
    "read",
    "site_count",
    "start_rows",
    "sums",
    "take",
    "tell",
    "told_diffusion",
    "unpack_stage",
]
