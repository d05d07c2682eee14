"""Personalized federated multi-view clustering with heat-kernel distances."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from fedhk._version import __version__

if TYPE_CHECKING:
    from fedhk import datasets, metrics, plot, privacy, protocols, testing
    from fedhk.embedding.diffusion import Diffusion
    from fedhk.estimators.diffusion import FedHKDiffusion
    from fedhk.estimators.efkmvc import EFKMVC
    from fedhk.estimators.heat_diffusion import HeatDiffusion
    from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
    from fedhk.estimators.person import FedHKPerson
    from fedhk.estimators.tensor_centers import FedHKParafac2, FedHKTucker
    from fedhk.evaluation import evaluate
    from fedhk.federation.participation import Participation
    from fedhk.personal.options import Personalization

__all__ = [
    "EFKMVC",
    "Diffusion",
    "FedHKDiffusion",
    "FedHKParafac2",
    "FedHKPerson",
    "FedHKTucker",
    "HeatDiffusion",
    "HeatKernelMVC",
    "Participation",
    "Personalization",
    "__version__",
    "datasets",
    "evaluate",
    "load",
    "metrics",
    "plot",
    "privacy",
    "protocols",
    "testing",
]

# Loaded when first used, so that `fedhk --help` and shell completion need not wait for scikit-learn.
_ESTIMATORS = {
    "EFKMVC": "fedhk.estimators.efkmvc",
    "FedHKDiffusion": "fedhk.estimators.diffusion",
    "FedHKParafac2": "fedhk.estimators.tensor_centers",
    "FedHKPerson": "fedhk.estimators.person",
    "FedHKTucker": "fedhk.estimators.tensor_centers",
    "HeatKernelMVC": "fedhk.estimators.heat_kernel_mvc",
}
_TRANSFORMERS = {"HeatDiffusion": "fedhk.estimators.heat_diffusion"}
_OPTIONS = {
    "Diffusion": "fedhk.embedding.diffusion",
    "Participation": "fedhk.federation.participation",
    "Personalization": "fedhk.personal.options",
}
_MODULES = ("datasets", "metrics", "plot", "privacy", "protocols", "testing")


def __getattr__(name: str) -> Any:
    homes = _ESTIMATORS | _TRANSFORMERS | _OPTIONS
    if name in homes:
        value = getattr(importlib.import_module(homes[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"fedhk.{name}")
    elif name == "evaluate":
        value = importlib.import_module("fedhk.evaluation").evaluate
    else:
        raise AttributeError(f"module 'fedhk' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
    persistence = importlib.import_module("fedhk.estimators.persistence")
    return persistence.load_model(path, {name: __getattr__(name) for name in _ESTIMATORS})
