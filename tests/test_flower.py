"""The site's end of a Flower app: what its node-config lacks is told to both sides, its paths to neither."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import adjusted_rand_score

pytest.importorskip("flwr", reason="Flower is not installed")

import fedhk
from fedhk import __version__
from fedhk.federation.engines.remote import RemoteSites
from fedhk.federation.gate import write_request
from fedhk.federation.messages import decode, encode
from fedhk.federation.remote.greet import Greet, Greeting
from fedhk.flower import answer_as_site
from remote_sites import Wire

HELLO = encode(write_request(Greet.name, 0, Greeting(__version__), Greeting, {}))


def test_what_is_missing_is_told_to_both_sides(caplog):
    answer = decode(answer_as_site({"site": "rome"}, HELLO))
    assert answer.values["reason"] == "its SuperNode's --node-config lacks data, state"
    assert "lacks ['data', 'state']" in caplog.text


def test_a_policy_that_cannot_be_read_stays_at_the_site(tmp_path, caplog):
    config = {"site": "rome", "data": str(tmp_path), "state": str(tmp_path), "policy": str(tmp_path / "none.toml")}
    answer = decode(answer_as_site(config, HELLO))
    assert str(tmp_path) not in answer.values["reason"]
    assert "none.toml" in caplog.text


class Nodes(Wire):
    """SuperNodes with a node-config each, without a network."""

    def _answer(self, node, payload):
        name, folder = self.sites[node]
        places = {"data": folder, "state": self.state, "also": self.also[name], "policy": self.state / "policy.toml"}
        return answer_as_site({"site": name, "id": "PatNr"} | {key: str(path) for key, path in places.items()}, payload)


def test_the_column_of_ids_of_a_site_is_read_in_fits_and_questions(tmp_path):
    rng, folders, further = np.random.default_rng(0), {}, {}
    for site in ("oslo", "pisa", "rome"):
        ids = [f"{site}-{i}" for i in rng.permutation(60)]
        group = np.array([int(name.split("-")[1]) % 2 for name in ids])
        for name, table in (("data", {"crp": 9 * group + rng.normal(size=60)}), ("also", {"died": group})):
            folder = tmp_path / name / site
            folder.mkdir(parents=True)
            order = rng.permutation(60)
            frame = pl.DataFrame(
                {"PatNr": np.array(ids)[order]} | {key: column[order] for key, column in table.items()}
            )
            frame.write_csv(folder / f"{name}.csv")
            (folders if name == "data" else further)[site] = folder
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "policy.toml").write_text(
        'questions = ["outcomes"]\nheld_out = ["died"]\nopen_questions = true\n'
    )
    wire = Nodes(folders, tmp_path / "state", also=further)
    model = fedhk.EFKMVC(2, engine=RemoteSites(wire, expected=folders, wait=0.0), random_state=0).fit()
    labels = pl.read_parquet(tmp_path / "state" / "rome" / "run" / "labels" / "rome.parquet")
    truth = labels["id"].str.split("-").list.last().cast(pl.Int64) % 2
    assert adjusted_rand_score(truth, labels["cluster"]) > 0.9
    engine = RemoteSites(wire, expected=folders, wait=0.0)
    assert fedhk.outcomes(model, engine=engine, event="died").p < 1e-9


def test_a_site_does_not_load_the_command_line():
    code = "import fedhk.flower, sys; print([name for name in sys.modules if name.startswith('fedhk.cli')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert done.stdout == "[]\n"
