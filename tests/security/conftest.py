"""Folders that tests of files share."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.data.folders import write_site

BUDGET = ("--epsilon", 40, "--delta", "1e-4", "--bounds=-15,15", "--set", "max_rounds=2")


@pytest.fixture
def write_hospitals(tmp_path):
    """Write sites of some names, with 40, 39, 38, ... rows; give their folder."""

    def write(*names, folder="hospitals"):
        draw = np.random.default_rng(0)
        for number, name in enumerate(names):
            size = 40 - number
            middle = np.where(np.arange(size) % 2, 4.0, -4.0)[:, None]
            write_site(
                tmp_path / folder / name,
                {"ecg": middle + draw.normal(size=(size, 3)), "image": middle + draw.normal(size=(size, 2))},
            )
        return tmp_path / folder

    return write


@pytest.fixture
def hospitals(write_hospitals):
    """Three sites with 40, 39 and 38 rows."""
    return write_hospitals("bern", "oslo", "rome")
