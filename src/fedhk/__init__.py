"""Personalized federated multi-view clustering with heat-kernel distances."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedhk._version import __version__

if TYPE_CHECKING:
    from fedhk import datasets, metrics, plot, privacy, protocols, testing
    from fedhk.after.comparison import compare
    from fedhk.after.outcomes import outcomes
    from fedhk.after.placement import find_limit, place
    from fedhk.after.profile import profile
    from fedhk.after.stability import stability
    from fedhk.data.cells import from_anndata, to_anndata
    from fedhk.data.dictionary import read_dictionary
    from fedhk.data.frames import from_frame
    from fedhk.data.multi_view import MultiView
    from fedhk.embedding.options import Diffusion
    from fedhk.estimators.diffusion import FedHKDiffusion
    from fedhk.estimators.efkmvc import EFKMVC
    from fedhk.estimators.from_paper import from_paper
    from fedhk.estimators.heat_diffusion import HeatDiffusion
    from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
    from fedhk.estimators.loading import load
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
    "MultiView",
    "Participation",
    "Personalization",
    "__version__",
    "compare",
    "datasets",
    "evaluate",
    "find_limit",
    "from_anndata",
    "from_frame",
    "from_paper",
    "load",
    "metrics",
    "outcomes",
    "place",
    "plot",
    "privacy",
    "profile",
    "protocols",
    "read_dictionary",
    "stability",
    "testing",
    "to_anndata",
]

# Loaded when first used, so that `fedhk --help` and shell completion need not wait for scikit-learn.
_HOMES = {
    "Diffusion": "fedhk.embedding.options",
    "EFKMVC": "fedhk.estimators.efkmvc",
    "FedHKDiffusion": "fedhk.estimators.diffusion",
    "FedHKParafac2": "fedhk.estimators.tensor_centers",
    "FedHKPerson": "fedhk.estimators.person",
    "FedHKTucker": "fedhk.estimators.tensor_centers",
    "HeatDiffusion": "fedhk.estimators.heat_diffusion",
    "HeatKernelMVC": "fedhk.estimators.heat_kernel_mvc",
    "MultiView": "fedhk.data.multi_view",
    "Participation": "fedhk.federation.participation",
    "Personalization": "fedhk.personal.options",
    "compare": "fedhk.after.comparison",
    "evaluate": "fedhk.evaluation",
    "find_limit": "fedhk.after.placement",
    "from_anndata": "fedhk.data.cells",
    "from_frame": "fedhk.data.frames",
    "from_paper": "fedhk.estimators.from_paper",
    "load": "fedhk.estimators.loading",
    "outcomes": "fedhk.after.outcomes",
    "place": "fedhk.after.placement",
    "profile": "fedhk.after.profile",
    "read_dictionary": "fedhk.data.dictionary",
    "to_anndata": "fedhk.data.cells",
    "stability": "fedhk.after.stability",
}
_MODULES = ("datasets", "metrics", "plot", "privacy", "protocols", "testing")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"fedhk.{name}")
    else:
        raise AttributeError(f"module 'fedhk' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
