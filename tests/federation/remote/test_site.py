"""A site that is elsewhere: the model of one process, its state in files, and refusals that give nothing away."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from textwrap import dedent

import numpy as np
import polars as pl
import pytest

import fedhk
from fedhk.data.folders import write_site
from fedhk.errors import DataError, MessageError, QuorumError
from fedhk.estimators.heat_kernel_mvc import write_site_model
from fedhk.federation.engines.remote import RemoteSites
from fedhk.federation.entries import Terms
from fedhk.federation.gate import write_request
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases.deliver import Outcome
from fedhk.federation.phases.describe import Describe, DescribeRequest
from fedhk.federation.remote.greet import Greet, Greeting, check_version
from fedhk.federation.remote.site import KIND, RemoteSite, SiteFile
from fedhk.federation.stored import pack_bytes
from fedhk.privacy import DifferentialPrivacy, SecureSummation
from fedhk.protocols import FactorAveraging
from remote_sites import NAMES, QUICK, fit_remote, join_run, read_boards

# runs are cut short here on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*(did not|gives back):sklearn.exceptions.ConvergenceWarning")

CASES = {
    "sums": (fedhk.EFKMVC, {}),
    "two statistics passes and a gradient step": (fedhk.EFKMVC, {"heat_coef": "minmax", "personalization": 0.5}),
    "centres": (fedhk.EFKMVC, {"protocol": "centers"}),
    "factors with a blend": (
        fedhk.FedHKTucker,
        {"rank": (2, 2, 2), "protocol": FactorAveraging(passes=2, blend=0.3), "max_rounds": 3},
    ),
    "a basis sent once": (fedhk.FedHKParafac2, {"rank": 2, "protocol": "cores", "max_rounds": 4}),
    "calibration and offsets": (fedhk.FedHKPerson, {"max_rounds": 6}),
    "a share by site": (fedhk.FedHKPerson, {"max_rounds": 3, "personalization": {"rome": 0.4}}),
    "an embedding": (fedhk.FedHKDiffusion, {"max_rounds": 4, "calibration": 0.75, "personalization": 0.3}),
    "masks": (fedhk.EFKMVC, {"secure": True}),
    "masks and personalization": (fedhk.FedHKPerson, {"secure": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_gives_the_bits_of_one_process(case, wire, rows):
    estimator, parameters = CASES[case]
    here = estimator(3, **QUICK | parameters).fit(rows)
    there = fit_remote(wire, estimator, **{"view_weights": "auto"} | parameters)
    assert all(np.array_equal(a, b) for a, b in zip(here.cluster_centers_, there.cluster_centers_, strict=True))
    assert there.n_iter_ == here.n_iter_
    for site in NAMES:
        results = wire.state / site / "run"
        labels = pl.read_parquet(results / "labels" / f"{site}.parquet")["cluster"].to_numpy()
        assert np.array_equal(labels, here.labels_[site])
        own = fedhk.load(results / "sites" / f"{site}.safetensors")
        assert np.array_equal(own.predict(rows[site]), here.client_models_[site].predict(rows[site]))
    assert there.labels_ == there.client_models_ == {}  # they stay at the sites
    if "secure" in parameters:
        assert there.site_reports_ == {}
    elif estimator is fedhk.FedHKPerson:
        assert there.personalization_ == here.personalization_
        assert there.personal_objective_ == here.personal_objective_


def test_noise_and_masks_run_to_the_end_and_the_ledger_stays_at_the_site(wire):
    budget = DifferentialPrivacy(4.0, 1e-5, (-20, 20), rounds=3)
    with pytest.raises(QuorumError, match="knows no keys of the other sites, so it adds all of the noise itself"):
        fit_remote(wire, fedhk.FedHKPerson, secure=True, privacy=budget)
    here = fit_remote(wire, fedhk.FedHKPerson, secure=SecureSummation(shared_noise=False), privacy=budget)
    assert here.privacy_spent_[0] == pytest.approx(4.0, rel=1e-6)
    assert here.personal_objective_ == {}
    assert all((wire.state / site / "ledger.jsonl").stat().st_size > 0 for site in NAMES)


def test_rows_and_an_engine_exclude_each_other(wire, rows):
    engine = RemoteSites(wire)
    with pytest.raises(DataError, match=r"call fit\(\) without X"):
        fedhk.EFKMVC(3, engine=engine).fit(rows)


class TestState:
    def test_only_the_owner_can_read_it_and_no_row_is_in_it(self, wire, rows):
        fit_remote(wire, fedhk.FedHKPerson, max_rounds=3)
        path = wire.state / "rome" / "site.fedhk"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        content = path.read_bytes()
        values = next(iter(rows["rome"].values())).to_numpy()
        assert not any(row.tobytes() in content for row in values)
        assert not any(memory.has(Outcome) for memory in read_boards(wire.state, "rome"))

    def test_a_repeated_request_gets_the_same_bytes_and_moves_nothing(self, wire):
        fit_remote(wire, fedhk.FedHKPerson, max_rounds=2)
        last = wire.sent[-1]
        before = (wire.state / "rome" / "site.fedhk").read_bytes()
        node = 4
        first = wire.send({node: last[node]}, 1.0)
        assert first == wire.send({node: last[node]}, 1.0)
        assert decode(first[node]).kind == "deliver"
        assert (wire.state / "rome" / "site.fedhk").read_bytes() == before

    def test_a_site_that_was_killed_after_its_answer_goes_on_from_its_files(self, wire, rows):
        """The answer is lost, the state is kept: sent again, the round is as if nothing had happened."""
        lost = []

        def lose_one_round(payload, answer):
            if decode(payload).kind == "round" and not lost:
                lost.append(payload)
                return wire._answer(4, payload)  # a new process, the same request
            return answer

        wire.changed[4] = lose_one_round
        there = fit_remote(wire, fedhk.FedHKPerson, max_rounds=4)
        here = fedhk.FedHKPerson(3, max_rounds=4, view_weights="uniform", **QUICK).fit(rows)
        assert lost
        assert np.array_equal(np.hstack(there.cluster_centers_), np.hstack(here.cluster_centers_))

    def test_another_run_begins_anew(self, wire):
        fit_remote(wire, max_rounds=2)
        first = read_boards(wire.state, "rome")[0].get(Terms).run
        fit_remote(wire, max_rounds=2)
        assert read_boards(wire.state, "rome")[0].get(Terms).run != first

    def test_a_damaged_file_is_a_refusal_without_its_path(self, wire):
        fit_remote(wire, max_rounds=1)
        path = wire.state / "rome" / "site.fedhk"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
        request = encode(Message("round", "*", 9, {}, {}))
        answer = decode(wire.send({4: request}, 1.0)[4])
        assert answer.kind == "refusal"
        assert str(wire.state) not in answer.values["reason"]

    @pytest.mark.parametrize("content", [b"", b"damaged", pack_bytes(SiteFile("", b"", b"?", b""), KIND, "rome")])
    def test_a_file_that_cannot_be_used_does_not_keep_a_site_from_the_next_run(self, wire, content, caplog):
        fit_remote(wire, max_rounds=1)
        (wire.state / "rome" / "site.fedhk").write_bytes(content)
        assert fit_remote(wire, max_rounds=1).history_[0]["refused"] == {}
        assert "cannot use its file" in caplog.text

    def test_a_site_that_lost_its_file_in_a_run_is_sent_everything_again(self, wire):
        seen = []

        def lose_file(payload, answer):
            seen.append(decode(payload).kind)
            if seen.count("round") == 2 and seen[-1] == "round":
                (wire.state / "rome" / "site.fedhk").unlink()
            return answer

        wire.changed[4] = lose_file
        refused = [record["refused"] for record in fit_remote(wire, max_rounds=5, tol=0.0).history_]
        assert refused[:2] == [{}, {}]
        assert refused[2] == {"rome": "asked before the terms of the run were published"}
        assert refused[3:] == [{}, {}]

    def test_the_coordinator_can_be_killed_and_go_on_to_the_same_bits(self, wire, rows, tmp_path):
        here = fedhk.FedHKPerson(3, max_rounds=5, view_weights="uniform", **QUICK).fit(rows)
        calls = []
        engine = RemoteSites(wire, expected=NAMES, wait=0.0)
        exchange = engine.exchange

        def killed(requests):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return exchange(requests)

        engine.exchange = killed
        with pytest.raises(KeyboardInterrupt):
            fit_remote(wire, fedhk.FedHKPerson, engine, max_rounds=5, checkpoint=tmp_path / "checkpoint")
        again = RemoteSites(wire, expected=NAMES, wait=0.0)
        there = fit_remote(
            wire, fedhk.FedHKPerson, again, resume=True, max_rounds=5, checkpoint=tmp_path / "checkpoint"
        )
        assert np.array_equal(np.hstack(there.cluster_centers_), np.hstack(here.cluster_centers_))


class TestRefusals:
    def test_other_columns_are_refused_and_another_order_is_put_right(self, wire, rows, tmp_path):
        tables = {view: table.to_numpy() for view, table in rows["rome"].items()}
        names = {view: [f"{view}_{i}" for i in range(table.shape[1])] for view, table in tables.items()}
        turned = {view: table[:, ::-1] for view, table in tables.items()}
        write_site(tmp_path / "turned", turned, columns={view: own[::-1] for view, own in names.items()})
        wire.sites[4] = ("rome", tmp_path / "turned")
        model = fit_remote(wire, max_rounds=2)
        assert model.history_[0]["refused"] == {}
        write_site(tmp_path / "other", tables, columns=names | {"view0": [f"{n}x" for n in names["view0"]]})
        wire.sites[4] = ("rome", tmp_path / "other")
        model = fit_remote(wire, max_rounds=2)
        assert "view0' has other columns than other sites" in model.history_[0]["refused"]["rome"]

    def test_no_data_folder_is_said_without_its_path(self, wire, tmp_path):
        wire.sites[4] = ("rome", tmp_path / "nowhere")
        model = fit_remote(wire, max_rounds=1)
        reason = model.history_[0]["refused"]["rome"]
        assert "no data folder" in reason
        assert str(tmp_path) not in reason

    def test_exceptions_stay_at_the_site(self, wire, monkeypatch, caplog):
        private = "row 17 is 42.0 in /srv/secret"

        def broken(*_):
            raise RuntimeError(private)

        monkeypatch.setattr("fedhk.federation.remote.site.answer_message", broken)
        answer = decode(wire.send({4: join_run(Describe, DescribeRequest(False, False))}, 1.0)[4])
        assert answer.values["reason"] == "the site cannot answer this; its log says more"
        assert private in caplog.text

    def test_what_is_wrong_with_the_data_is_one_line_of_the_log(self, wire, tmp_path, caplog):
        wire.sites[4] = "rome", tmp_path / "rome"
        (tmp_path / "rome").mkdir()
        (tmp_path / "rome" / "view0.csv").write_text("x,y\n1,2\n1,two\n")
        answer = decode(wire.send({4: join_run(Describe, DescribeRequest(False, False))}, 1.0)[4])
        assert answer.values["reason"] == "the site cannot answer this; its log says more"
        (record,) = [record for record in caplog.records if record.name == "fedhk.site"]
        assert "view0.csv" in record.message
        assert record.exc_info is None
        assert "\n" not in record.message

    def test_another_version_is_refused_on_both_sides(self, wire):
        hello = encode(write_request(Greet.name, 0, Greeting("0.0.1"), Greeting, {}))
        answer = decode(wire.send({4: hello}, 1.0)[4])
        assert "'0.0.1'" in answer.values["reason"]
        with pytest.raises(MessageError, match="use one version"):
            check_version("9.9", "site 'rome'", "rome")

    def test_a_message_before_the_terms_of_the_run_is_refused(self, wire):
        request = encode(write_request("describe", 0, DescribeRequest(False, False), DescribeRequest, {}))
        answer = decode(wire.send({4: request}, 1.0)[4])
        assert "before the terms of the run were published" in answer.values["reason"]

    @pytest.mark.parametrize("name", ["", "a/b", ".hidden", "x" * 300, "line\nbreak"])
    def test_names_that_are_no_file_names_are_refused(self, name, tmp_path):
        with pytest.raises(DataError, match="name of a site"):
            RemoteSite(name, tmp_path, tmp_path, write_site_model)


def answer_in_new_process(wire, name, payload):
    """What a process answers that has imported the site's end and no estimator."""
    code = """
        import sys
        from fedhk.federation.remote.site import RemoteSite
        from pathlib import Path
        site = RemoteSite(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), print)
        sys.stdout.buffer.write(site.answer(sys.stdin.buffer.read()))
        assert not any(name.startswith("fedhk.estimators") for name in sys.modules)
    """
    folder = next(folder for site, folder in wire.sites.values() if site == name)
    words = [sys.executable, "-c", dedent(code), name, str(folder), str(wire.state)]
    return decode(subprocess.run(words, input=payload, capture_output=True, check=True).stdout)  # noqa: S603


@pytest.mark.parametrize("case", ["an embedding", "masks and personalization"])
def test_a_new_process_knows_every_phase_and_all_that_the_site_has_kept(case, wire):
    estimator, parameters = CASES[case]
    fit_remote(wire, estimator, **parameters | {"max_rounds": 2})
    finish = wire.sent[-2][4]
    assert "finish" in decode(finish).kind
    assert answer_in_new_process(wire, "rome", finish).kind == decode(finish).kind
