"""Read a model file of any estimator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedhk._text import printable
from fedhk.errors import ModelFileError
from fedhk.estimators.base import HeatKernelModel
from fedhk.estimators.diffusion import FedHKDiffusion
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.persistence import explain_class, read_model_file
from fedhk.estimators.person import FedHKPerson
from fedhk.estimators.stored_model import check_stored
from fedhk.estimators.tensor_centers import FedHKParafac2, FedHKTucker
from fedhk.federation.codec import subclasses
from fedhk.model.fitted import FittedModel

ESTIMATORS: tuple[type[HeatKernelModel], ...] = (
    EFKMVC,
    FedHKDiffusion,
    FedHKParafac2,
    FedHKPerson,
    FedHKTucker,
    HeatKernelMVC,
)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    An estimator, aggregator, scaling, option or decomposition of one's own is found by the name of its class, so that
    the module that defines it must be imported first.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    estimator
        A fitted estimator of the class that was saved. It has no `labels_` and `memberships_`: files hold no rows.

    Raises
    ------
    fedhk.errors.ModelFileError
        If the file is damaged, is no model, needs a class that is not imported, or holds a model that no fit can give,
        whoever wrote it.
    """
    file = read_model_file(path)
    estimator = _find_estimator(file.name)
    if estimator is None:
        raise ModelFileError(f"{os.fspath(path)!r}: {explain_class(file.name[:100])}")
    try:
        check_stored(file, estimator._get_param_names(), estimator._stored)
        return estimator.from_file(file)
    except Exception as error:  # whatever was forged: it must not pass for a mistake of ours
        text = printable(str(error)[:300])
        raise ModelFileError(f"{os.fspath(path)!r} lacks a part of a {file.name}: {text}") from error


def _find_estimator(name: str) -> type[HeatKernelModel] | None:
    """Find an estimator of FedHK by its name, or one that is derived from these; of several the latest."""
    ours: dict[str, type[HeatKernelModel]] = {estimator.__name__: estimator for estimator in ESTIMATORS}
    derived = {found.__name__: found for estimator in ESTIMATORS for found in subclasses(estimator)}
    return (derived | ours).get(name)


def read_site_model(path: Path) -> FittedModel:
    """Read the model in a file that a site kept from a run."""
    model: FittedModel = load(path)._model
    return model
