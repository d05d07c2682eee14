"""Strategies and data that several tests use."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The same cases in every run, so that a change and not luck decides; HYPOTHESIS_PROFILE=explore draws new ones.
ALWAYS = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}
settings.register_profile("fedhk", derandomize=True, max_examples=50, **ALWAYS)
settings.register_profile("explore", **ALWAYS)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fedhk"))

SHARED = Path(os.environ.get("FEDHK_BENCHMARK_DATA", Path(__file__).parents[2] / "shared" / "data"))


def pytest_collection_modifyitems(items):
    """The run over Flower is the longest and waits for its processes: it is first, and all else goes on meanwhile."""
    items.sort(key=lambda item: item.path.parent.name != "deploy")


@pytest.fixture(scope="session")
def benchmark_data():
    """Loads one of the benchmark data sets, which are not part of the project."""

    def load(name):
        path = SHARED / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"benchmark data {name!r} is not here; set FEDHK_BENCHMARK_DATA to its folder")
        with np.load(path) as file:
            views = [file[f"view_{i}"] for i in range(sum(key.startswith("view_") for key in file))]
            return views, file["labels"], file.get("client")

    return load


@pytest.fixture(scope="module")
def short_first_fit(request):
    """Less time for the first fit of a low-rank form: a poor start leaves more to do for the steps.

    A module may say how many sweeps it needs for the first fit (`FIRST_SWEEPS`) and for a step (`STEP_SWEEPS`); none of
    them raises the objective, so that fewer are as good for what does not depend on how far they get.
    """
    first = getattr(request.module, "FIRST_SWEEPS", 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedhk.tensors.low_rank.FIRST_SWEEPS", first)
        patch.setattr("fedhk.tensors.low_rank.FIRST_STARTS", 1)
        patch.setattr("fedhk.tensors.ranks._SWEEPS", first)
        if hasattr(request.module, "STEP_SWEEPS"):
            patch.setattr("fedhk.tensors.low_rank.STEP_SWEEPS", request.module.STEP_SWEEPS)
        yield
