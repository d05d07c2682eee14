"""Sites behind a transport: the same model as in one process, state in files, and refusals that say who and why."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fedhk
from fedhk.data.folders import read_federation, write_site
from fedhk.data.named import named_views
from fedhk.datasets import make_sites
from fedhk.errors import DataError, MessageError
from fedhk.federation.engines.remote import RemoteSites, SitesError
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.payloads import pack_text
from fedhk.federation.remote.policy import Policy, read_policy
from fedhk.federation.remote.site import RemoteSite, check_version
from fedhk.federation.remote.site_file import load_site
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.identity import make_identity, save_identity
from remote_sites import Wire, written

NAMES = ("genoa", "oslo", "pisa", "rome")
QUICK = {"n_init": 2, "random_state": 0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    data = make_sites(4, 60, n_clusters=3, shift=1.0, random_state=0)
    sites = dict(zip(NAMES, data.sites.values(), strict=True))
    return written(sites, tmp_path_factory.mktemp("federation"))


@pytest.fixture(scope="module")
def rows(folders):
    federation = read_federation(folders["rome"].parent)
    return {site.name: named_views(site) for site in federation.sites.values()}


@pytest.fixture
def wire(folders, tmp_path):
    return Wire(folders, tmp_path / "state")


def fitted(wire, estimator=fedhk.EFKMVC, engine=None, resume=False, **parameters):
    engine = RemoteSites(wire, expected=NAMES, wait=0.0) if engine is None else engine
    return estimator(3, engine=engine, **QUICK | {"view_weights": "uniform"} | parameters).fit(resume=resume)


CASES = {
    "sums": (fedhk.EFKMVC, {}),
    "two statistics passes and a gradient step": (fedhk.EFKMVC, {"heat_coef": "minmax", "personalization_step": 0.5}),
    "centres": (fedhk.EFKMVC, {"protocol": "centers"}),
    "factors with a blend": (
        fedhk.FedHKTucker,
        {"rank": (2, 2, 2), "protocol": "factors", "personalization": 0.3, "local_passes": 2, "max_rounds": 3},
    ),
    "a basis sent once": (fedhk.FedHKParafac2, {"rank": 2, "protocol": "cores", "max_rounds": 4}),
    "calibration and offsets": (fedhk.FedHKPerson, {"max_rounds": 6}),
    "a share by site": (fedhk.FedHKPerson, {"max_rounds": 3, "personalization": {"rome": 0.4}}),
    "an embedding": (fedhk.FedHKDiffusion, {"max_rounds": 4, "calibration": 0.75, "personalization_step": 0.3}),
    "masks": (fedhk.EFKMVC, {"secure": True}),
    "masks and personalization": (fedhk.FedHKPerson, {"secure": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_gives_the_bits_of_one_process(case, wire, rows):
    estimator, parameters = CASES[case]
    here = estimator(3, **QUICK | parameters).fit(rows)
    there = fitted(wire, estimator, **{"view_weights": "auto"} | parameters)
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
    here = fitted(wire, fedhk.FedHKPerson, secure=True, privacy=budget)
    assert here.privacy_spent_[0] == pytest.approx(4.0, rel=1e-6)
    assert here.personal_objective_ == {}
    assert all((wire.state / site / "ledger.jsonl").stat().st_size > 0 for site in NAMES)


def test_rows_and_an_engine_exclude_each_other(wire, rows):
    engine = RemoteSites(wire)
    with pytest.raises(DataError, match=r"call fit\(\) without any"):
        fedhk.EFKMVC(3, engine=engine).fit(rows)


class TestState:
    def test_only_the_owner_can_read_it_and_no_row_is_in_it(self, wire, rows):
        fitted(wire, fedhk.FedHKPerson, max_rounds=3)
        path = wire.state / "rome" / "site.fedhk"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        content = path.read_bytes()
        values = next(iter(rows["rome"].values())).to_numpy()
        assert not any(row.tobytes() in content for row in values)

    def test_a_repeated_request_gets_the_same_bytes_and_moves_nothing(self, wire):
        fitted(wire, fedhk.FedHKPerson, max_rounds=2)
        last = next(p for p in reversed(wire.sent) if all(decode(b).kind == "finish" for b in p.values()))
        before = (wire.state / "rome" / "site.fedhk").read_bytes()
        node = 4
        assert wire.send({node: last[node]}, 1.0) == wire.send({node: last[node]}, 1.0)
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
        there = fitted(wire, fedhk.FedHKPerson, max_rounds=4)
        here = fedhk.FedHKPerson(3, max_rounds=4, view_weights="uniform", **QUICK).fit(rows)
        assert lost
        assert np.array_equal(np.hstack(there.cluster_centers_), np.hstack(here.cluster_centers_))

    def test_another_run_begins_anew(self, wire):
        fitted(wire, max_rounds=2)
        first = load_site(wire.state / "rome" / "site.fedhk", "rome").join.run
        fitted(wire, max_rounds=2)
        assert load_site(wire.state / "rome" / "site.fedhk", "rome").join.run != first

    def test_a_damaged_file_is_a_refusal_without_its_path(self, wire):
        fitted(wire, max_rounds=1)
        path = wire.state / "rome" / "site.fedhk"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
        request = encode(Message("round", "*", 9, {}, {}))
        answer = decode(wire.send({4: request}, 1.0)[4])
        assert answer.kind == "refusal"
        assert str(wire.state) not in answer.values["reason"]

    def test_the_coordinator_can_be_killed_and_go_on_to_the_same_bits(self, wire, rows, tmp_path):
        memory = tmp_path / "checkpoint" / "run-name"
        here = fedhk.FedHKPerson(3, max_rounds=5, view_weights="uniform", **QUICK).fit(rows)
        calls = []
        engine = RemoteSites(wire, expected=NAMES, wait=0.0, memory=memory)
        exchange = engine.exchange

        def killed(requests):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return exchange(requests)

        engine.exchange = killed
        with pytest.raises(KeyboardInterrupt):
            fitted(wire, fedhk.FedHKPerson, engine, max_rounds=5, checkpoint=tmp_path / "checkpoint")
        again = RemoteSites(wire, expected=NAMES, wait=0.0, memory=memory)
        there = fitted(wire, fedhk.FedHKPerson, again, resume=True, max_rounds=5, checkpoint=tmp_path / "checkpoint")
        assert np.array_equal(np.hstack(there.cluster_centers_), np.hstack(here.cluster_centers_))


class TestFaults:
    def test_a_site_that_never_came_is_named_and_the_others_go_on(self, wire):
        wire.gone = {4}
        model = fitted(wire, engine=RemoteSites(wire, expected=NAMES, wait=0.0))
        assert model.history_[0]["refused"] == {"rome": "ConnectionError: not connected"}
        assert model.history_[0]["clients"] == 3

    def test_too_few_sites_are_an_error_that_says_why(self, wire):
        wire.gone = {2, 3, 4}
        with pytest.raises(SitesError, match=r"1 sites .* 2 are needed"):
            fitted(wire, engine=RemoteSites(wire, expected=NAMES, wait=0.0, wait_for=2))

    def test_a_site_that_goes_away_and_comes_back_under_another_number_takes_part_again(self, wire):
        seen = []

        def move(payload, answer):
            seen.append(decode(payload).kind)
            if seen.count("round") == 1 and 4 not in wire.gone:
                wire.gone.add(4)
                wire.sites[9] = wire.sites[4]
                return TimeoutError("killed")
            return answer

        wire.changed[4] = move
        model = fitted(wire, tol=0.0, max_rounds=5)
        refused = [record["refused"].get("rome") for record in model.history_]
        assert "killed" in refused[0]
        assert refused[1] == "ConnectionError: not connected"
        assert refused[2:] == [None, None, None]

    @pytest.mark.parametrize("rubbish", [b"", b"FedHK\x00rubbish", b"x" * 5000, encode(Message("round", "oslo", 0))])
    def test_rubbish_is_refused_with_the_name_of_the_site(self, wire, rubbish):
        wire.changed[4] = lambda payload, answer: rubbish if decode(payload).kind == "round" else answer
        model = fitted(wire, max_rounds=2)
        assert list(model.history_[0]["refused"]) == ["rome"]
        assert model.history_[0]["clients"] == 3

    def test_nan_is_refused(self, wire):
        def poison(payload, answer):
            message = decode(answer)
            if message.kind != "round":
                return answer
            arrays = {name: array * np.nan for name, array in message.arrays.items() if array.dtype.kind == "f"}
            return encode(replace(message, arrays=message.arrays | arrays))

        wire.changed[4] = poison
        model = fitted(wire, max_rounds=2)
        assert "NaN or infinite" in model.history_[0]["refused"]["rome"]

    def test_a_name_that_is_taken_or_unknown_is_not_let_in(self, wire, folders):
        wire.sites[5] = ("rome", folders["oslo"])
        wire.sites[6] = ("paris", folders["oslo"])
        engine = RemoteSites(wire, expected=NAMES, wait=0.0)
        model = fitted(wire, engine=engine, max_rounds=2)
        assert {site: known.node for site, known in engine.known.items()} == dict(zip(NAMES, (1, 2, 3, 4), strict=True))
        assert model.history_[0]["clients"] == 4

    def test_other_columns_are_refused_and_another_order_is_put_right(self, wire, rows, tmp_path):
        tables = {view: table.to_numpy() for view, table in rows["rome"].items()}
        names = {view: [f"{view}_{i}" for i in range(table.shape[1])] for view, table in tables.items()}
        turned = {view: table[:, ::-1] for view, table in tables.items()}
        write_site(tmp_path / "turned", turned, columns={view: own[::-1] for view, own in names.items()})
        wire.sites[4] = ("rome", tmp_path / "turned")
        model = fitted(wire, max_rounds=2)
        assert model.history_[0]["refused"] == {}
        write_site(tmp_path / "other", tables, columns=names | {"view0": [f"{n}x" for n in names["view0"]]})
        wire.sites[4] = ("rome", tmp_path / "other")
        model = fitted(wire, max_rounds=2)
        assert "DataError at the site" in model.history_[0]["refused"]["rome"]

    def test_no_data_folder_is_said_without_its_path(self, wire, tmp_path):
        wire.sites[4] = ("rome", tmp_path / "nowhere")
        model = fitted(wire, max_rounds=1)
        reason = model.history_[0]["refused"]["rome"]
        assert "no data folder" in reason
        assert str(tmp_path) not in reason

    def test_exceptions_stay_at_the_site(self, wire, monkeypatch, caplog):
        private = "row 17 is 42.0 in /srv/secret"

        def broken(*_):
            raise RuntimeError(private)

        monkeypatch.setattr("fedhk.federation.remote.site.client_step", broken)
        answer = decode(wire.send({4: _joining("describe")}, 1.0)[4])
        assert answer.values["reason"] == "an error at the site; its log says more"
        assert private in caplog.text

    def test_another_version_is_refused_on_both_sides(self, wire):
        hello = encode(Message("hello", "*", 0, {}, {"fedhk": "0.0.1"}))
        answer = decode(wire.send({4: hello}, 1.0)[4])
        assert "'0.0.1'" in answer.values["reason"]
        with pytest.raises(MessageError, match="use one version"):
            check_version("9.9", "site 'rome'", "rome")

    def test_a_message_before_the_terms_of_the_run_is_refused(self, wire):
        answer = decode(wire.send({4: encode(Message("describe", "*", 0, {}, {}))}, 1.0)[4])
        assert "before it was told of the run" in answer.values["reason"]

    @pytest.mark.parametrize("name", ["", "a/b", ".hidden", "x" * 300, "line\nbreak"])
    def test_names_that_are_no_file_names_are_refused(self, name, tmp_path):
        with pytest.raises(DataError, match="name of a site"):
            RemoteSite(name, tmp_path, tmp_path)


def _joining(kind, privacy=None, secure=False):
    terms = ["a-run", {"view0": None, "view1": None}, privacy, secure]
    inner = encode(Message(kind, "*", 0, {}, {"scaling": "standard", "ranges": False}))
    arrays = {"join": pack_text(terms), "request": np.frombuffer(inner, np.uint8)}
    return encode(Message("join", "*", 0, arrays, {"fedhk": fedhk.__version__}))


class TestPolicy:
    def reason(self, wire, policy, **terms):
        wire.policies = {"rome": policy}
        return decode(wire.send({4: _joining("describe", **terms)}, 1.0)[4]).values.get("reason", "")

    def test_a_site_can_demand_masks_and_noise(self, wire):
        assert "masked sums only" in self.reason(wire, Policy(secure=True))
        assert "noise only" in self.reason(wire, Policy(epsilon=1.0))

    def test_what_all_runs_spend_together_is_limited(self, wire):
        budget = DifferentialPrivacy(2.0, 1e-6, (-20, 20), rounds=2)
        wire.policies = {site: Policy(epsilon=2.5) for site in NAMES}
        fitted(wire, privacy=budget)
        with pytest.raises(fedhk.federation.run.QuorumError, match="is spent already"):
            fitted(wire, privacy=budget)

    def test_the_terms_of_a_run_cannot_change_on_the_way(self, wire):
        budget = DifferentialPrivacy(1.0, 1e-6, (-20, 20)).describe()
        assert self.reason(wire, Policy(), privacy=budget).startswith("the server asks")  # joined; asks in the open
        fitted(wire, max_rounds=1)
        join = load_site(wire.state / "rome" / "site.fedhk", "rome").join
        inner = encode(Message("describe", "*", 0, {}, {}))
        looser = replace(join, privacy=replace_epsilon(budget, 100.0))
        arrays = {"join": pack_text(looser.to_json()), "request": np.frombuffer(inner, np.uint8)}
        answer = wire.send({4: encode(Message("join", "*", 0, arrays, {"fedhk": fedhk.__version__}))}, 1.0)[4]
        assert "have changed" in decode(answer).values["reason"]

    def test_delta_that_a_row_exceeds_is_refused_without_the_number_of_rows(self, wire):
        reason = self.reason(wire, Policy(), privacy=DifferentialPrivacy(1.0, 0.5, (-20, 20)).describe())
        assert reason == "delta=0.5 is not below 1 over the number of its rows"

    def test_long_term_keys_keep_strangers_out_of_masked_sums(self, wire, tmp_path):
        public = {}
        for site in NAMES:
            private, public[site] = make_identity()
            save_identity(tmp_path / f"{site}.pem", private)
        known = {site: key.hex() for site, key in public.items()}
        wire.policies = {s: Policy(secure=True, identity=str(tmp_path / f"{s}.pem"), known=known) for s in NAMES}
        assert fitted(wire, secure=True, max_rounds=2).history_[0]["refused"] == {}
        stranger, _ = make_identity()
        save_identity(tmp_path / "stranger.pem", stranger)
        wire.policies["rome"] = replace(wire.policies["rome"], identity=str(tmp_path / "stranger.pem"))
        with pytest.raises(fedhk.federation.run.QuorumError, match="not signed by the long-term key"):
            fitted(wire, secure=True, max_rounds=2)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("epsilon = -1", "epsilon=-1 must be"),
            ("delta = 2", "delta=2 must be"),
            ("secure = 1", "secure=1 must be"),
            ("threshold = 1", "threshold=1 must be"),
            ("colour = 3", "unknown"),
            ("epsilon =", "no TOML"),
            ('known = { rome = "zz" }', "hexadecimal"),
        ],
    )
    def test_a_policy_that_cannot_be_used_says_why(self, text, message, tmp_path):
        (tmp_path / "policy.toml").write_text(text)
        with pytest.raises(DataError, match=message):
            read_policy(tmp_path / "policy.toml")


def replace_epsilon(budget, epsilon):
    return budget | {"epsilon": epsilon}
