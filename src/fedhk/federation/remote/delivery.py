"""Writes the results of a run at a site: its own model and the clusters of its rows. The files stay there."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk._files import replacing
from fedhk.data.named import LABELS, SITES, write_labels
from fedhk.federation.entries import fitted_model
from fedhk.federation.phases.finish import final_parameters
from fedhk.federation.site import Site
from fedhk.model.fitted import FittedModel
from fedhk.personal.outcome import SiteOutcome

MODEL = "model.safetensors"

WriteModel = Callable[[Path, FittedModel, "np.dtype[Any]", float], None]
"""Writes a model to a file that `fedhk.load` reads, with the precision of its numbers and the objective of the rows."""


def write_outcome(
    folder: Path, site: Site, outcome: SiteOutcome, ids: NDArray[Any] | None, write_model: WriteModel
) -> None:
    """Write the files that `fedhk fit` writes for a site; what was there before is replaced once they are complete.

    They are the global model, `sites/<name>.safetensors`, and `labels/<name>.parquet` with `ids`, whose the rows are.
    """
    dtype = site.views.dtype
    common = fitted_model(site.board, final_parameters(site), outcome.model.columns)
    with replacing(folder) as draft:
        for part in (SITES, LABELS):
            (draft / part).mkdir()
        write_model(draft / MODEL, common, dtype, math.nan)  # of all rows together, which a site does not know
        write_model(draft / SITES / f"{site.name}.safetensors", outcome.model, dtype, outcome.objective)
        certainty = outcome.memberships.max(axis=1, initial=0.0)
        write_labels(draft / LABELS / f"{site.name}.parquet", ids, outcome.labels, certainty, outcome.global_labels)
