"""The form that centres are constrained to; the one here leaves them free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics


@dataclass(frozen=True)
class CenterForm:
    """Centres that are free: any centres will do.

    A subclass constrains them; `fedhk.tensors.low_rank.LowRankForm` does.
    """

    def constrain(
        self,
        start: Parameters,
        view_names: Sequence[str],  # noqa: ARG002
        statistics: Callable[[], Statistics] | None = None,  # noqa: ARG002
    ) -> Parameters:
        """Give parameters whose centres have this form, as near to a start as possible.

        Parameters
        ----------
        start : Parameters
            With free centres.
        view_names : sequence of str
            Names of the views, for errors.
        statistics : callable, optional
            Makes a pass over the rows at `start` and gives the statistics, which say how much each centre matters. It
            is called only if the form needs it. Without it all centres matter alike.
        """
        return start

    def is_exact(self, n_clusters: int, widths: Sequence[int], view_names: Sequence[str]) -> bool:  # noqa: ARG002
        """Whether the user gave a rank that constrains nothing, because any centres have it."""
        return False
