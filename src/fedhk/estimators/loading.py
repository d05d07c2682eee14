"""Read a model file of any estimator."""

from __future__ import annotations

import os
from typing import Any

from fedhk.estimators.diffusion import FedHKDiffusion
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.persistence import read_model_file
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
    file = read_model_file(path)
    known = {estimator.__name__: estimator for estimator in ESTIMATORS}
    if file.name not in known:
        raise ValueError(f"{os.fspath(path)!r} holds a {file.name!r}; known are {sorted(known)}.")
    try:
        return known[file.name].from_file(file)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ValueError(f"{os.fspath(path)!r} lacks a part of a {file.name}: {error}") from error
