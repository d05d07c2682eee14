"""The end of a run at a site: the global model comes, the site makes its own of it, and keeps both as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk._files import replacing
from fedhk.data.named import write_results
from fedhk.data.views import Views
from fedhk.errors import MessageError
from fedhk.federation.messages import Message

MODEL = "model.safetensors"


def delivered(
    request: Message, site: str, views: Views, ids: NDArray[Any] | None, folder: Path, *, workers: int
) -> dict[str, Any]:
    """Write a site's results and say what may be told of them.

    Parameters
    ----------
    request : Message
        With the file of the global model.
    site : str
        The site.
    views : Views
        Its rows.
    ids : array or None
        Whose the rows are.
    folder : Path
        Gets the files that `fedhk fit` writes for a site; what was there before is replaced once they are complete.
    workers : int
        Threads.
    """
    import fedhk  # noqa: PLC0415 - estimators are needed at the end of a run only

    content = request.arrays.get("model")
    if content is None or content.dtype != np.uint8 or content.ndim != 1:
        raise MessageError("no model came with the end of the run", site)
    with replacing(folder) as draft:
        (draft / MODEL).write_bytes(content.tobytes())
        outcome = fedhk.load(draft / MODEL).site_outcome(site, views, workers)
        parts = outcome.labels, outcome.memberships.max(axis=1), outcome.global_labels
        write_results(draft, site, outcome.model, ids, parts)
    told: dict[str, Any] = outcome.report.to_json()
    return told
