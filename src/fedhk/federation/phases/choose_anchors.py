"""Choose anchors: candidates of all sites, from which the server makes the anchors that rows are then tied to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedhk._typing import FloatArray
from fedhk.embedding.anchors import candidate_share
from fedhk.embedding.diffusion import Diffusion
from fedhk.federation.board import Board
from fedhk.federation.entries import Population, References, Schema
from fedhk.federation.phases.anchor_groups import AnchorGroups
from fedhk.federation.phases.anchors import MOST_CLUSTERS, PRECISION, anchors_wanted, put_anchors
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.candidates import AskCandidates, CandidatesRequest
from fedhk.federation.phases.frame import Frame
from fedhk.personal.frame import Search, choose_embedding_calibration
from fedhk.starts.candidates import Candidates, candidate_rows, count_by_share


@dataclass(frozen=True, kw_only=True)
class ChooseAnchors(AskCandidates):
    """Candidates of all sites, as many for each row so that anchors lie where rows do, and the anchors made of them.

    Parameters
    ----------
    diffusion : Diffusion
        How many anchors there are, and how rows are tied to them.
    n_clusters : int or None
        Number of clusters; None is found by the diffusion.
    """

    diffusion: Diffusion
    n_clusters: int | None

    def request(self, board: Board) -> CandidatesRequest:
        return CandidatesRequest(0, self._share(board), self.seed, PRECISION, self.wants_frame)

    def most_candidates(self, board: Board) -> int:
        """As if one site had all rows."""
        return count_by_share(int(board.get(Population).rows), self._share(board))

    def start(self, board: Board, found: list[Candidates], frames: list[FloatArray]) -> Board:  # noqa: ARG002
        rows = candidate_rows(found, board.get(References).references, board.get(Schema).names)
        return put_anchors(board, rows, self.diffusion, self.n_clusters, self.seed)

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return AnchorGroups(self.diffusion, self.n_clusters, self.seed).sealed(terms)

    def _share(self, board: Board) -> float:
        """Candidates that sites are asked for, for each of their rows."""
        return candidate_share(anchors_wanted(board, self.diffusion, self.n_clusters), board.get(Population).rows)


@dataclass(frozen=True, kw_only=True)
class ChooseCalibratedAnchors(ChooseAnchors):
    """The same with each site's own mean and spread, of which a share is taken out where sites measure differently.

    Parameters
    ----------
    shares : (float, float) or None
        Shares of mean and spread that were given; None chooses.
    """

    shares: tuple[float, float] | None = None

    wants_frame: ClassVar[bool] = True

    def start(self, board: Board, found: list[Candidates], frames: list[FloatArray]) -> Board:
        settings = self.settings
        if self.n_clusters is None:
            count = min(MOST_CLUSTERS, sum(len(candidates.sizes) for candidates in found))
            settings = replace(settings, n_clusters=count)
        references, names = board.get(References).references, board.get(Schema).names
        search = Search(found, frames, references, names, settings, self.seed, self.workers)
        calibrations, rows = choose_embedding_calibration(search, self.shares)
        board = board.put(*(Frame(calibration) for calibration in calibrations))
        return put_anchors(board, rows, self.diffusion, self.n_clusters, self.seed)

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        if self.shares is not None:
            raise ValueError(
                f"calibration={self.shares!r} has no effect with {terms.reason}: for it the server would see the mean "
                "and spread of each site. Use calibration='auto' or None, with which sites are not calibrated then."
            )
        return super().sealed(terms)
