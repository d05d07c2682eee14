"""Read a model file of any estimator."""

from __future__ import annotations

import os
from typing import Any

from fedhk.estimators.diffusion import FedHKDiffusion
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.persistence import load_model
from fedhk.estimators.person import FedHKPerson
from fedhk.estimators.tensor_centers import FedHKParafac2, FedHKTucker

ESTIMATORS = (EFKMVC, FedHKDiffusion, FedHKParafac2, FedHKPerson, FedHKTucker, HeatKernelMVC)


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
    return load_model(path, {estimator.__name__: estimator for estimator in ESTIMATORS})
