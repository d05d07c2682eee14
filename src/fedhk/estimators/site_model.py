"""A site's own model as a file: what the site's end of a federation writes when a run is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.model.fitted import FittedModel


def write_site_model(path: Path, model: FittedModel, dtype: np.dtype[Any], objective: float) -> None:
    """Write a model that was fitted over sites as a `HeatKernelMVC`, which `fedhk.load` reads.

    Parameters
    ----------
    path : Path
        The file.
    model : FittedModel
        The global model, or a site's own.
    dtype : numpy.dtype
        The precision of what it gives back.
    objective : float
        J of the site's rows; NaN where it is not known.
    """
    parameters = model.parameters
    params = {
        "n_clusters": parameters.n_clusters,
        "heat_time": parameters.heat_time,
        "fuzzifier": parameters.fuzzifier,
        "view_exponent": parameters.view_exponent,
    }
    HeatKernelMVC.from_model(model, dtype, params, objective).save(path)
