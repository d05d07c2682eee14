"""`fedhk info`: what a path is."""

from __future__ import annotations

import json

import fedhk
from cli.calls import call, refusal


def test_run_and_model(run):
    found = json.loads(call("info", run, "--json").stdout)
    assert (found["kind"], found["algorithm"], found["rows"], found["fedhk"]) == (
        *("run", "e-fkmvc", 120),
        fedhk.__version__,
    )
    assert "view weights" in call("info", run).stdout
    model = json.loads(call("info", run / "model.safetensors", "--json").stdout)
    assert (model["kind"], model["n_clusters"]) == ("model", 3)
    assert [(view["name"], view["width"]) for view in model["views"]] == [("ecg", 4), ("image", 3)]
    assert "EFKMVC" in call("info", run / "model.safetensors").stdout
    call("info", run / "sites" / "oslo.safetensors")


def test_data(hospitals):
    found = json.loads(call("info", hospitals, "--json").stdout)
    assert found["sites"]["rome"]["views"] == ["ecg"]
    assert found["rows"] == 120
    assert "missing cells" in call("info", hospitals).stdout
    assert json.loads(call("info", hospitals / "oslo", "--json").stdout)["sites"].keys() == {"oslo"}


def test_bad_paths(tmp_path, run):
    refusal("info", tmp_path / "nothing", code=3)
    (tmp_path / "empty").mkdir()
    assert "no site" in refusal("info", tmp_path / "empty", code=3)
    (run / "summary.json").write_text("{}")
    refusal("info", run, code=3)
