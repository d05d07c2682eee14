"""A project that uses FedHK passes mypy in its strict mode: what users call has types."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROJECT = """
import fedhk
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy

sites = make_sites(3, 60, n_clusters=3, random_state=0).sites
model = fedhk.FedHKPerson(n_clusters=3, random_state=0).fit(sites)
model.save("model.safetensors")
labels = model.labels_["site-00"]
budget = DifferentialPrivacy(epsilon=2.0, delta=1e-5, bounds=(-20, 20))
private = fedhk.EFKMVC(n_clusters=3, privacy=budget, secure=True, random_state=0)
accuracy: float = fedhk.metrics.matched_accuracy([0, 1], [1, 0])
fedhk.plot.convergence(model).save("rounds.svg")
table = fedhk.profile(model, sites).table()
one = fedhk.HeatKernelMVC("auto").fit([[0.0], [1.0]])
again = fedhk.load("model.safetensors")
"""


def check(text, folder):
    """What mypy says of a module."""
    (folder / "project.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "project.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)  # noqa: S603 - ours


@pytest.mark.slow
def test_a_project_that_uses_fedhk_is_typed(tmp_path):
    done = check(PROJECT, tmp_path)
    assert done.returncode == 0, done.stdout
    wrong = check(PROJECT + "accuracy = fedhk.metrics.matched_accuracy([0], [0]).upper()\n", tmp_path)
    assert '"float" has no attribute "upper"' in wrong.stdout
