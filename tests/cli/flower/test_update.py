"""`fedhk flower update` refuses what cannot be updated before any site is asked, and starts the app otherwise."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

import fedhk
from cli.calls import call
from fedhk.cli.flower.coordinate import coordinate
from flower_cli import call_flower
from remote_sites import Wire


@pytest.fixture
def app(tmp_path):
    call_flower("init", tmp_path / "app", "--clusters", 3)
    return tmp_path / "app"


class TestRefusals:
    """One sentence and an exit code; no SuperLink is looked for."""

    @pytest.fixture(autouse=True)
    def nobody(self, monkeypatch):
        def connect(*_):
            raise AssertionError("the SuperLink would be asked now")

        monkeypatch.setattr("fedhk.cli.flower.update.connect", connect)

    def refuse(self, app, run, *options, code=3):
        found, output = call_flower("update", app, run, "--insecure", *options)
        assert found == code
        return " ".join(output.replace("│", " ").split())

    def test_a_run_that_is_not_there(self, app, tmp_path):
        assert "holds no finished run" in self.refuse(app, tmp_path / "run")

    def test_an_output_that_is_there(self, app, run, tmp_path):
        shutil.copytree(run, tmp_path / "other")
        assert "exists already" in self.refuse(app, run, "--out", tmp_path / "other", code=5)
        assert "is for --out" in self.refuse(app, run, "--force", code=2)

    def test_settings(self, app, run):
        assert "half_life" in self.refuse(app, run, "--half-life", 0)
        assert "level" in self.refuse(app, run, "--level", 1)
        assert "--rounds" in self.refuse(app, run, "--rounds", 0, code=2)
        assert "the run had no noise" in self.refuse(app, run, "--epsilon", 1, code=2)

    def test_a_model_that_cannot_be_updated(self, app, run, hospitals, tmp_path):
        model = fedhk.load(run / "model.safetensors")
        model._memory = None
        model.save(run / "model.safetensors")
        assert "an older FedHK fitted it" in self.refuse(app, run)
        shutil.copytree(hospitals / "oslo", tmp_path / "alone" / "oslo")
        call("fit", tmp_path / "alone", "-k", 2, "--algorithm", "heat-kernel-mvc", "--out", tmp_path / "one")
        assert "clusters one site" in self.refuse(app, tmp_path / "one")


class TestUpdate:
    @pytest.fixture
    def wire(self, run, hospitals, tmp_path, monkeypatch):
        """Sites without a network; the app is run in this process."""
        names = sorted(json.loads((run / "summary.json").read_text())["sites"])
        wire = Wire({name: hospitals / name for name in names}, tmp_path / "state")

        def call_app(control, folder, settings, look, is_done, *, hint=""):
            coordinate(folder / "fedhk.toml", wire, settings | {"wait": 0.0})
            assert is_done()

        monkeypatch.setattr("fedhk.cli.flower.ask.call_app", call_app)
        monkeypatch.setattr("fedhk.cli.flower.update.connect", lambda *_: nullcontext())
        return wire

    def test_a_new_run_takes_its_place_and_the_earlier_one_stays(self, app, run, wire):
        before = (run / "model.safetensors").read_bytes()
        code, output = call_flower("update", app, run, "--insecure", "--half-life", 2)
        assert code == 0
        assert "it is not known whether clusters have moved" in output  # these sites took no part in the fit
        assert (run.parent / "run-1" / "model.safetensors").read_bytes() == before
        assert (run / "report.html").is_file()
        (line,) = fedhk.load(run / "model.safetensors").updates_
        assert line["keep"] == pytest.approx(0.5**0.5)
        code, output = call_flower("update", app, run, "--insecure")
        assert "No cluster has moved by more than chance explains." in output

    def test_another_folder_and_json(self, app, run, wire, tmp_path):
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        code, output = call_flower("update", app, run, "--insecure", "--out", tmp_path / "next", "--json")
        assert code == 0
        found = json.loads(output)
        assert found["updates"][0]["rows"] == found["rows"]
        assert found["data"] is None
        assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        assert (tmp_path / "next" / "summary.json").is_file()

    def test_sites_are_those_of_the_run_or_those_that_are_named(self, app, run, wire, tmp_path):
        names = [name for name, _ in wire.sites.values()]
        for number, options in enumerate(((), ("--sites", ",".join(names[:2])))):
            words = ("--insecure", "--out", tmp_path / f"out-{number}", "--json", *options)
            found = json.loads(call_flower("update", app, run, *words)[1])
            assert sorted(found["sites"]) == names[: 2 if options else None]
