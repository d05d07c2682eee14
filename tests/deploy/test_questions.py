"""A question after a fit over real processes: the answer of the rows at hand, and a site that refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedhk
from fedhk.cli.algorithms import list_tables
from fedhk.cli.flower.ask import ask_app
from fedhk.cli.flower.keys import CA
from fedhk.cli.flower.local import federation, make_policies
from fedhk.cli.flower.processes import connect
from fedhk.cli.flower.run import CoordinatorError
from fedhk.data.folders import read_federation, write_site

NAMES = ("oslo", "pisa", "rome")

pytestmark = pytest.mark.slow

DEMANDS = """questions = ["profile", "outcomes", "stability", "compare", "limits"]
open_questions = true
held_out = {held_out}
"""


@pytest.fixture
def further(folders, tmp_path):
    """An event of every row, in further tables of the sites."""
    rng = np.random.default_rng(0)
    rows = {name: site.n_rows for name, site in read_federation(folders["rome"].parent).sites.items()}
    events = {name: rng.integers(0, 2, (rows[name], 1)).astype(float) for name in NAMES}
    for name, values in events.items():
        write_site(tmp_path / "also" / name, {"later": values}, columns={"later": ("died",)})
    return events, {name: tmp_path / "also" / name for name in NAMES}


def test_sites_answer_after_a_run_as_their_policies_say(folders, further, deployed, tmp_path):
    events, also = further
    policies = make_policies(tmp_path / "policies", list(NAMES))
    for name, path in policies.items():
        allowed = [] if name == "rome" else ["died"]
        path.write_text(DEMANDS.format(held_out=json.dumps(allowed)) + path.read_text("utf-8"), "utf-8")
    parameters = {"n_clusters": 3, "max_rounds": 2, "tol": 0.0}
    with federation(tmp_path, folders, policies=policies, also=also) as running:
        deployment = deployed(tmp_path, running)
        deployment.run(parameters)

        def ask(**asked):
            question = {"kind": "outcomes", "given": {"event": "died"}, "secure": True, "privacy": None} | asked
            with connect(running.address, tmp_path / "tls" / CA, insecure=False) as control:
                return ask_app(control, tmp_path / "app", deployment.out, question, watch=running.check)

        with pytest.raises(CoordinatorError, match=r"rome: .* its policy does not let out"):
            ask()
        policies["rome"].write_text(policies["rome"].read_text("utf-8").replace("[]", '["died"]'), "utf-8")
        told = ask()
        # in the open: under masks there are three times as many exchanges
        sure = ask(kind="stability", given={"n_resamples": 2}, secure=False)
        model = str(deployment.out / "model.safetensors")
        both = ask(kind="compare", given={"other": model})
        limits = ask(kind="limits", given={"rare": 0.01})
    here = fedhk.EFKMVC(**parameters, random_state=0).fit(list_tables(read_federation(folders["rome"].parent)))
    expected = fedhk.outcomes(
        here,
        list_tables(read_federation(folders["rome"].parent)),
        event={n: v[:, 0] for n, v in events.items()},
        secure=True,
    )
    assert told["table"].rows == expected.table().rows
    assert told["facts"]["p"] == pytest.approx(expected.p, abs=1e-6)
    sites = list_tables(read_federation(folders["rome"].parent))
    assert len(sure["facts"]["verdicts"]) == 3  # halves are drawn from secrets of the sites
    assert all(row[-1].endswith(("(oslo)", "(pisa)", "(rome)")) for row in sure["table"].rows)
    assert both["table"].rows == fedhk.compare(here, here, sites).table().rows
    assert limits["table"].rows == fedhk.find_limit(here, sites, rare=0.01).table().rows
