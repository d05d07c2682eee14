"""An update over real processes: that of one process, on new rows with their columns in another order."""

from __future__ import annotations

import numpy as np
import pytest

import fedhk
from fedhk.cli.algorithms import list_tables
from fedhk.cli.flower.ask import call_asked
from fedhk.cli.flower.init import UPDATE
from fedhk.cli.flower.keys import CA
from fedhk.cli.flower.processes import connect
from fedhk.data.folders import read_federation, write_site
from fedhk.datasets import make_sites
from remote_sites import write_sites

NAMES = ("oslo", "pisa", "rome")

ROWS = dict(zip(NAMES, make_sites(3, 120, n_clusters=3, shift=1.0, random_state=0).sites.values(), strict=True))


@pytest.fixture
def folders(tmp_path):
    """Half of the rows of each site."""
    return write_sites({name: [view[::2] for view in views] for name, views in ROWS.items()}, tmp_path / "data")


def replace_rows(folders):
    """Give each site the other half of its rows, with columns from right to left; return them from left to right."""
    new = {name: {f"view{i}": view[1::2] for i, view in enumerate(views)} for name, views in ROWS.items()}
    for name, views in new.items():
        for file in folders[name].iterdir():
            file.unlink()
        columns = {view: [f"{view}_{i}" for i in range(rows.shape[1])][::-1] for view, rows in views.items()}
        write_site(folders[name], {view: rows[:, ::-1] for view, rows in views.items()}, columns=columns)
    return new


@pytest.mark.parametrize(
    ("algorithm", "estimator"),
    [
        pytest.param("e-fkmvc", fedhk.EFKMVC, marks=pytest.mark.slow),
        pytest.param("fedhk-diffusion", fedhk.FedHKDiffusion, marks=pytest.mark.deploy),
    ],
)
def test_a_run_goes_on_over_real_processes(folders, deployment, tmp_path, algorithm, estimator):
    before = list_tables(read_federation(folders["rome"].parent))
    parameters = {"n_clusters": 3, "max_rounds": 2, "tol": 0.0}
    deployment.run(parameters, algorithm)
    new, out = replace_rows(folders), tmp_path / "next"
    asked = {"kind": UPDATE, "given": {"half_life": 2.0}, "out": str(out), "privacy": None}
    with connect(deployment.running.address, tmp_path / "tls" / CA, insecure=False) as control:
        found = call_asked(control, tmp_path / "app", deployment.out, asked, watch=deployment.running.check)
    here = estimator(**parameters, random_state=0).fit(before).update(new, half_life=2.0)
    there = fedhk.load(out / "model.safetensors")
    for mine, theirs in zip(there.cluster_centers_, here.cluster_centers_, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-8)
    assert {line["site"] for line in found["drift"]} == {"all sites", *NAMES}
    assert [line["moved"] for line in found["drift"]] == [line["moved"] for line in here.drift_]
    assert found["updates"][0]["rows"] == here.updates_[0]["rows"]
    assert (out / "report.html").is_file()
    assert (tmp_path / "state" / "rome" / "run-1" / "labels").is_dir()  # of the fit
