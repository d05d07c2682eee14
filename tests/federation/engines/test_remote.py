"""Sites behind a transport: who takes part, who is named when something is wrong, and who comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedhk
from fedhk import EFKMVC, FedHKDiffusion, FedHKPerson
from fedhk.data.folders import read_federation, write_site
from fedhk.data.named import named_views
from fedhk.errors import DataError
from fedhk.federation.engines import remote
from fedhk.federation.engines.remote import RemoteSites, SitesError
from fedhk.federation.entries import OwnPast
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.remote.policy import Policy
from fedhk.privacy import DifferentialPrivacy
from remote_sites import NAMES, QUICK, Wire, fit_remote, read_boards, write_sites

# runs are cut short here on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge:sklearn.exceptions.ConvergenceWarning")


class TestFaults:
    def test_a_site_that_never_came_is_named_and_the_others_go_on(self, wire):
        wire.gone = {4}
        model = fit_remote(wire, engine=RemoteSites(wire, expected=NAMES, wait=0.0))
        assert model.history_[0]["refused"] == {"rome": "not connected"}
        assert model.history_[0]["clients"] == 3

    def test_too_few_sites_are_an_error_that_says_why(self, wire):
        wire.gone = {2, 3, 4}
        with pytest.raises(SitesError, match=r"1 sites .* 2 are needed"):
            fit_remote(wire, engine=RemoteSites(wire, expected=NAMES, wait=0.0, wait_for=2))

    def test_who_waits_for_sites_is_told_who_came(self, wire, monkeypatch):
        monkeypatch.setattr(remote, "LOOK_EVERY", 0.0)
        told, send = [], wire.send
        wire.gone = {3, 4}

        def join(payloads, timeout):
            wire.gone.clear()
            return send(payloads, timeout)

        wire.send = join
        RemoteSites(wire, expected=NAMES, wait=60.0, wait_for=3, tell=told.append).describe()
        assert told == [
            "0 of 4 sites are there. Waiting for genoa, oslo, pisa, rome, at most 60 s; 3 are needed.",
            "2 of 4 sites are there: genoa, oslo. Waiting for pisa, rome, at most 60 s; 3 are needed.",
            "4 of 4 sites are there: genoa, oslo, pisa, rome.",
        ]

    def test_what_the_transport_tells_of_a_node_is_told_with_the_name_of_the_site(self, wire):
        told, wire.tell = [], None
        engine = RemoteSites(wire, expected=NAMES, wait=0.0, tell=told.append)
        wire.tell(4, "it is slow.")
        engine.describe()
        wire.tell(4, "it is slow.")
        assert [told[0], told[-1]] == ["a site that has not said its name: it is slow.", "rome: it is slow."]

    def test_sites_that_differ_are_named_where_too_few_are_alike(self, wire, tmp_path):
        others = write_sites({"rome": [np.ones((20, 9)), np.ones((20, 2))]}, tmp_path / "other")
        wire.sites[4] = ("rome", others["rome"])
        with pytest.raises(SitesError, match=r"3 sites .* can take part, 4 are needed. rome: "):
            RemoteSites(wire, expected=NAMES, wait=0.0, wait_for=4).describe()

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
        model = fit_remote(wire, tol=0.0, max_rounds=5)
        refused = [record["refused"].get("rome") for record in model.history_]
        assert "killed" in refused[0]
        assert refused[1] == "not connected"
        assert refused[2:] == [None, None, None]

    @pytest.mark.parametrize("returns", [True, False])
    def test_a_site_that_left_between_two_exchanges_is_asked_once_as_if_it_were_there(self, wire, returns):
        def leave(payload, answer):  # once it has answered a round
            was_gone = 4 in wire.gone
            if decode(payload).kind == "round":
                wire.gone.add(4)
            return ConnectionError("went away") if was_gone and not returns else answer

        wire.changed[4] = leave
        model = fit_remote(wire, tol=0.0, max_rounds=4)
        refused = [record["refused"].get("rome") for record in model.history_]
        away = [None, "went away", *["not connected"] * 2]
        assert refused == ([None] * 4 if returns else away)

    @pytest.mark.parametrize("rubbish", [b"", b"FedHK\x00rubbish", b"x" * 5000, encode(Message("round", "oslo", 0))])
    def test_rubbish_is_refused_with_the_name_of_the_site(self, wire, rubbish):
        wire.changed[4] = lambda payload, answer: rubbish if decode(payload).kind == "round" else answer
        model = fit_remote(wire, max_rounds=2)
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
        model = fit_remote(wire, max_rounds=2)
        assert "NaN or infinite" in model.history_[0]["refused"]["rome"]

    def test_a_name_that_is_taken_or_unknown_is_not_let_in(self, wire, folders):
        wire.sites[5] = ("rome", folders["oslo"])
        wire.sites[6] = ("paris", folders["oslo"])
        engine = RemoteSites(wire, expected=NAMES, wait=0.0)
        model = fit_remote(wire, engine=engine, max_rounds=2)
        assert {site: known.node for site, known in engine.known.items()} == dict(zip(NAMES, (1, 2, 3, 4), strict=True))
        assert model.history_[0]["clients"] == 4


class TestCategories:
    """Levels that a site lacks are levels there too, over a transport as in one process."""

    def folders(self, tmp_path):
        rng = np.random.default_rng(0)
        for number, name in enumerate(NAMES):
            (tmp_path / "data" / name).mkdir(parents=True)
            lines = [f"{x:.3f},{'uvw'[(number + k) % 2 + (number == 3)]}" for k, x in enumerate(rng.normal(size=20))]
            (tmp_path / "data" / name / "lab.csv").write_text("\n".join(["x,kind", *lines]))
        return {name: tmp_path / "data" / name for name in NAMES}

    def test_remote_sites_cluster_what_one_process_clusters(self, tmp_path):
        model = fit_remote(Wire(self.folders(tmp_path), tmp_path / "state"), max_rounds=3, scaling="standard")
        federation = read_federation(tmp_path / "data")
        tables = {name: named_views(site) for name, site in federation.sites.items()}
        pooled = EFKMVC(3, max_rounds=3, scaling="standard", view_weights="uniform", **QUICK).fit(tables)
        assert model.view_columns_["lab"] == ("x", "kind = u", "kind = v", "kind = w")
        np.testing.assert_allclose(model.cluster_centers_[0], pooled.cluster_centers_[0])

    def test_a_site_with_a_policy_does_not_tell_levels_that_it_read_off_its_rows(self, tmp_path):
        wire = Wire(self.folders(tmp_path), tmp_path / "state", {"rome": Policy(secure=True)})
        model = fit_remote(wire, max_rounds=2, scaling="standard")
        assert "rome" in model.history_[0]["refused"]
        assert "w" not in model.history_[0]["refused"]["rome"].split()
        assert model.view_columns_["lab"] == ("x", "kind = u", "kind = v")

    def test_an_update_takes_rows_without_one_of_the_levels_and_refuses_a_new_level(self, tmp_path):
        folders = self.folders(tmp_path)
        model = fit_remote(Wire(folders, tmp_path / "state"), max_rounds=3, scaling="standard")
        for folder in folders.values():
            text = (folder / "lab.csv").read_text()
            (folder / "lab.csv").write_text(text.replace(",w", ",v"))  # no site has "w" any longer
        engine = RemoteSites(Wire(folders, tmp_path / "state"), expected=NAMES, wait=0.0)
        model.set_params(engine=engine).update()
        assert model.view_columns_["lab"] == ("x", "kind = u", "kind = v", "kind = w")
        assert model.history_[-1]["refused"] == {}
        text = (folders["rome"] / "lab.csv").read_text()
        (folders["rome"] / "lab.csv").write_text(text.replace(",v", ",z"))
        engine = RemoteSites(Wire(folders, tmp_path / "state"), expected=NAMES, wait=0.0)
        model.set_params(engine=engine).update()
        assert "its log says more" in model.history_[0]["refused"]["rome"]


class TestUpdates:
    """A model goes on over a transport as it does in one process."""

    @pytest.fixture
    def months(self, rows):
        """Rows of two months."""
        return [
            {site: {name: view.values[start::2] for name, view in views.items()} for site, views in rows.items()}
            for start in range(2)
        ]

    @pytest.fixture
    def wires(self, months, tmp_path):
        """Wires to the same sites in both months."""
        folders = (
            write_sites({site: list(views.values()) for site, views in month.items()}, tmp_path / f"month-{number}")
            for number, month in enumerate(months)
        )
        return [Wire(sites, tmp_path / "state") for sites in folders]

    @pytest.mark.parametrize("secure", [False, True])
    @pytest.mark.parametrize("estimator", [EFKMVC, FedHKPerson, FedHKDiffusion])
    def test_gives_the_update_of_one_process(self, months, wires, tmp_path, secure, estimator):
        fit_remote(wires[0], estimator, secure=secure).save(tmp_path / "model")
        model = fedhk.load(tmp_path / "model").set_params(engine=RemoteSites(wires[1], expected=NAMES, wait=0.0))
        model.update(half_life=2)
        pooled = estimator(3, view_weights="uniform", secure=secure, **QUICK).fit(months[0])
        pooled.update(months[1], half_life=2)
        for mine, theirs in zip(model.cluster_centers_, pooled.cluster_centers_, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-10)
        assert model.updates_[0]["rows"] == pytest.approx(pooled.updates_[0]["rows"])
        assert {line["site"] for line in model.drift_} == {"all sites", *([] if secure else NAMES)}
        for mine, theirs in zip(model.drift_, pooled.drift_, strict=True):
            assert (mine["site"], mine["cluster"], mine["moved"]) == (theirs["site"], theirs["cluster"], False)
            assert mine["distance"] == pytest.approx(theirs["distance"], abs=1e-9)
        assert (tmp_path / "state" / "oslo" / "run-1" / "model.safetensors").is_file()  # of the fit

    def test_sites_compare_with_the_run_before_if_it_was_of_this_model(self, months, wires, tmp_path):
        model = fit_remote(wires[0])
        model.set_params(engine=RemoteSites(wires[1], expected=NAMES, wait=0.0)).update()
        model.set_params(engine=RemoteSites(wires[0], expected=NAMES, wait=0.0)).update()  # with what the update left
        assert len({line["site"] for line in model.drift_}) == 5
        model.save(tmp_path / "model")
        fit_remote(wires[0], n_init=1, scaling="none")
        other = fedhk.load(tmp_path / "model").set_params(engine=RemoteSites(wires[1], expected=NAMES, wait=0.0))
        assert list(other.update().drift_) == []

    def test_sites_of_an_embedding_have_kept_it_between_runs(self, months, wires, tmp_path):
        model = fit_remote(wires[0], FedHKDiffusion)
        model.save(tmp_path / "model")
        model.set_params(engine=RemoteSites(wires[1], expected=NAMES, wait=0.0)).update()
        pooled = fedhk.load(tmp_path / "model").update(months[1])
        assert model.updates_[0]["bytes_down"] < 1.1 * pooled.updates_[0]["bytes_down"]

    def test_a_site_that_missed_the_comparison_starts_its_memory_anew(self, months, wires):
        model, (last, wire), kinds = fit_remote(wires[0]), (NAMES[-1], wires[1]), []
        answer = wire._answer

        def miss_the_first(node, payload):
            kinds.extend([decode(payload).kind] if wire.sites[node][0] == last else [])
            is_missed = kinds[-1:] == ["revise"] and wire.sites[node][0] == last
            return TimeoutError("missed") if is_missed else answer(node, payload)

        wire._answer = miss_the_first
        model.set_params(engine=RemoteSites(wire, expected=NAMES, wait=0.0)).update()
        assert kinds == ["hello", "revise", "finish+deliver"]
        for site, past in ((last, 0), (NAMES[0], len(months[0][NAMES[0]]["view0"]))):
            rows = read_boards(wire.state, site)[1].get(OwnPast).past.rows.sum()
            assert rows == pytest.approx(past + len(months[1][site]["view0"]), abs=4)  # clusters of few rows not

    @pytest.mark.parametrize("secure", [False, True])
    def test_columns_in_another_order_are_those_of_the_model(self, months, wires, tmp_path, secure):
        fit_remote(wires[0], secure=secure).save(tmp_path / "model")
        for number, (site, views) in enumerate(months[1].items()):
            # sites have different orders, and none has that of the model
            orders = {name: np.roll(np.arange(rows.shape[1])[::-1], number % 2) for name, rows in views.items()}
            columns = {name: [f"{name}_{place}" for place in order] for name, order in orders.items()}
            tables = {name: views[name][:, order] for name, order in orders.items()}
            write_site(tmp_path / "turned" / site, tables, columns=columns)
        turned = Wire({site: tmp_path / "turned" / site for site in NAMES}, tmp_path / "state-2")
        usual, other = (
            fedhk.load(tmp_path / "model").set_params(engine=RemoteSites(wire, expected=NAMES, wait=0.0)).update()
            for wire in (wires[1], turned)
        )
        assert other.history_[-1]["refused"] == {}
        assert other.view_columns_ == usual.view_columns_
        for mine, theirs in zip(other.cluster_centers_, usual.cluster_centers_, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-10)

    def test_noise_adds_up(self, wires):
        model = fit_remote(wires[0], privacy=DifferentialPrivacy(30.0, 1e-5, (-30, 30)))
        epsilon, delta = model.privacy_spent_
        model.set_params(engine=RemoteSites(wires[1], expected=NAMES, wait=0.0)).update()
        assert epsilon < model.privacy_spent_[0] <= 2 * 30 * (1 + 1e-6)
        assert model.privacy_spent_[1] == 2 * delta

    def test_other_columns_and_no_rows_are_refused_by_name(self, wires, months, tmp_path):
        model = fit_remote(wires[0])
        for what, change, said in (
            ("narrow", lambda view: view[:, :-1], r"'genoa': view 'view0' has"),
            ("empty", lambda view: view[:0], "No site has a new row"),
        ):
            sites = {site: [change(view) for view in views.values()] for site, views in months[1].items()}
            wire = Wire(write_sites(sites, tmp_path / what), tmp_path / "state")
            with pytest.raises(DataError, match=said):
                model.set_params(engine=RemoteSites(wire, expected=NAMES, wait=0.0)).update()
        assert model.updates_ == []
