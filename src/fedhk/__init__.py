"""Personalized federated multi-view clustering with heat-kernel distances."""

from __future__ import annotations

import os
from typing import Any

from fedhk import datasets, metrics
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.persistence import load_model

__version__ = "0.1.0.dev0"

__all__ = ["EFKMVC", "HeatKernelMVC", "__version__", "datasets", "load", "metrics"]


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    estimator
        A fitted estimator of the class that was saved. It has no `labels_` and `memberships_`: files hold no rows.
    """
    return load_model(path, {"EFKMVC": EFKMVC, "HeatKernelMVC": HeatKernelMVC})
