"""The coordinator's process, over a wire without a network."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedhk.cli.config import ConfigError, read_config
from fedhk.cli.flower.coordinate import coordinate
from fedhk.cli.flower.init import NEWS, UPDATE
from fedhk.cli.runs import is_run
from fedhk.datasets import make_sites
from fedhk.errors import QuorumError
from fedhk.federation.messages import decode
from fedhk.federation.remote.policy import Policy
from fedhk.privacy.ledger import read_ledger
from flower_cli import call_flower
from remote_sites import Wire, make_policies, write_sites
from report.pages import page_of


class TestCoordinate:
    @pytest.fixture
    def wire(self, tmp_path):
        return Wire(
            write_sites(make_sites(3, 40, n_clusters=2, random_state=0).sites, tmp_path / "d"), tmp_path / "state"
        )

    def settings(self, tmp_path, **more):
        return {"out": str(tmp_path / "run"), "failure": str(tmp_path / "failure"), "wait": 0.0} | more

    def check_exchanges(self, tmp_path):
        """What has no checkpoint tells of every exchange, so that whoever waits sees that it goes on."""
        told = [line for line in (tmp_path / NEWS).read_text().splitlines() if line.startswith("exchange")]
        started = max(place for place, line in enumerate(told) if line.startswith("exchange 1:"))
        assert len(told) > started + 2
        assert told[started:] == [f"exchange {n}: 3 of 3 sites answered" for n in range(1, len(told) - started + 1)]

    def test_leaves_a_run_folder(self, wire, tmp_path):
        call_flower("init", tmp_path / "app", "--clusters", 2, "--seed", 0)
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        assert is_run(tmp_path / "run")
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert summary["rows"] == 120
        assert summary["data"] is None
        assert not (tmp_path / "failure").exists()

    def test_says_why_it_failed_and_with_which_code(self, wire, tmp_path):
        call_flower("init", tmp_path / "app", "--clusters", 2, "--min-sites", 3)
        wire.gone = {1}
        with pytest.raises(Exception, match="3 are needed"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        told = json.loads((tmp_path / "failure").read_text())
        assert told["code"] == 4
        assert not (tmp_path / "run").exists()

    def test_a_site_that_refuses_for_its_budget_is_named_where_too_few_are_left(self, wire, tmp_path):
        words = ["--secure", "--epsilon", 2.5, "--delta", 1e-6, "--bounds=-20,20"]
        call_flower("init", tmp_path / "app", "--clusters", 2, *words)
        names = [name for name, _ in wire.sites.values()]
        wire.policies = make_policies(tmp_path, names)
        wire.policies[names[1]] = replace(wire.policies[names[1]], epsilon=2.0)
        with pytest.raises(QuorumError, match="min_sites=3 are needed"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path, sites=",".join(names)))
        told = json.loads((tmp_path / "failure").read_text())
        assert told["code"] == 4
        assert f"{names[1]}: the run's budget, with what was spent before, is above" in told["text"]
        assert names[0] not in told["text"]
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(("words", "needed"), [([], 3), (["--secure"], 3), (["--set", "secure={threshold=4}"], 4)])
    def test_says_for_whom_it_waits_and_how_many_are_needed(self, wire, tmp_path, words, needed):
        call_flower("init", tmp_path / "app", "--clusters", 2, *words)
        wire.gone = {1, 2, 3}
        with pytest.raises(QuorumError, match=f"{needed} are needed"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path, sites="bern,oslo,pisa,rome"))
        said = (tmp_path / NEWS).read_text()
        assert (
            said == f"0 of 4 sites are there. Waiting for bern, oslo, pisa, rome, at most 0 s; {needed} are needed.\n"
        )

    def test_a_run_that_needs_more_sites_than_are_named_is_refused(self, wire, tmp_path):
        call_flower("init", tmp_path / "app", "--clusters", 2, "--secure")
        with pytest.raises(ConfigError, match="secure needs at least 3 sites, and 2 are named: oslo, rome"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path, sites="oslo,rome"))
        assert not (tmp_path / NEWS).exists()

    @pytest.mark.parametrize("secure", [False, True])
    def test_as_many_sites_are_needed_in_an_exchange_as_before_it(self, wire, tmp_path, secure):
        call_flower("init", tmp_path / "app", "--clusters", 2, *(["--secure"] if secure else []))
        names = ",".join(name for name, _ in wire.sites.values())
        settings = self.settings(tmp_path, sites=names)
        wire.changed = dict.fromkeys((1, 2), lambda sent, answer: answer if decode(sent).kind == "hello" else b"")
        with pytest.raises(QuorumError, match=f"min_sites={3 if secure else 2} are needed"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, settings)

    def test_a_question_goes_to_the_sites_of_the_run_whatever_the_app_names(self, wire, tmp_path):
        names = [name for name, _ in wire.sites.values()]
        call_flower("init", tmp_path / "app", "--clusters", 2, "--seed", 0)
        app = tmp_path / "app" / "fedhk.toml"
        coordinate(app, wire, self.settings(tmp_path, sites=",".join(names)))
        allowed = Policy(questions=["limits"], open_questions=True, least_rows=1)
        wire.policies = dict.fromkeys(names, allowed)
        asked = {"kind": "limits", "given": {}, "secure": False, "privacy": None, "run": str(tmp_path / "run")}
        for expected, sites in ((3, []), (2, names[:2])):
            (tmp_path / "question").write_text(json.dumps(asked | {"sites": sites, "answer": str(tmp_path / "answer")}))
            (tmp_path / NEWS).unlink(missing_ok=True)
            question = str(tmp_path / "question")
            coordinate(app, wire, self.settings(tmp_path, sites=names[2], question=question))
            assert f"{expected} of {expected} sites answered" in (tmp_path / NEWS).read_text()

    def test_the_page_has_the_units_of_the_dictionary_that_the_app_was_made_with(self, wire, tmp_path):
        lines = [f'[view{h}.view{h}_{j}]\nkind = "number"\nunit = "mmol/l"\n' for h in (0, 1) for j in range(8)]
        (tmp_path / "columns.toml").write_text("\n".join(lines))
        call_flower("init", tmp_path / "app", "--clusters", 2, "--dictionary", tmp_path / "columns.toml")
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        assert re.search(r"view1_\d \(mmol/l\)", page_of(tmp_path / "run").section("clusters").words)

    def test_goes_on_from_its_checkpoint(self, wire, tmp_path):
        words = ["--set", "max_rounds=4", "--set", "tol=0.0", "--min-sites", 3]
        call_flower("init", tmp_path / "app", "--clusters", 2, *words)
        seen = []

        def silent(payload, answer):
            kind = decode(payload).kind
            seen.append(kind)
            return TimeoutError("gone") if kind == "round" and seen.count("round") == 2 else answer

        wire.changed[1] = silent
        with pytest.raises(Exception, match="are needed"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        assert json.loads((tmp_path / "failure").read_text())["code"] == 4
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path, resume=True))
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 4

    def test_a_question_is_asked_in_place_of_a_fit(self, wire, tmp_path):
        call_flower("init", tmp_path / "app", "--clusters", 2, "--seed", 0)
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        asked = {"kind": "profile", "given": {}, "secure": False, "privacy": None}
        asked |= {"run": str(tmp_path / "run"), "sites": [], "answer": str(tmp_path / "answer")}
        (tmp_path / "question").write_text(json.dumps(asked))
        question = self.settings(tmp_path, question=str(tmp_path / "question"))
        with pytest.raises(Exception, match="site-00: this site does not answer such questions"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, question)
        assert json.loads((tmp_path / "failure").read_text())["code"] == 4
        allowed = Policy(questions=["profile"], open_questions=True, least_rows=1)
        wire.policies = dict.fromkeys([name for name, _ in wire.sites.values()], allowed)
        coordinate(tmp_path / "app" / "fedhk.toml", wire, question)
        told = json.loads((tmp_path / "answer").read_text())
        assert told["table"]["rows"][0][:2] == ["rows", "120"]
        self.check_exchanges(tmp_path)
        assert all(test["circular"] for test in told["facts"]["tests"])

    def test_sites_decide_on_an_update_as_on_a_fit(self, wire, tmp_path):
        words = ["--epsilon", 20, "--delta", 1e-4, "--bounds=-20,20", "--min-sites", 3]
        call_flower("init", tmp_path / "app", "--clusters", 2, "--seed", 0, *words)
        app, out, ledger = tmp_path / "app" / "fedhk.toml", tmp_path / "next", tmp_path / "state/site-01/ledger.jsonl"
        coordinate(app, wire, self.settings(tmp_path))
        asked = {"kind": UPDATE, "given": {"half_life": 2.0}, "out": str(out), "privacy": None}
        asked |= {"run": str(tmp_path / "run"), "sites": [], "answer": str(tmp_path / "answer")}
        (tmp_path / "question").write_text(json.dumps(asked))
        settings, released = self.settings(tmp_path, question=str(tmp_path / "question")), ledger.read_text()
        wire.policies["site-01"] = Policy(epsilon=25.0, delta=1e-4)
        with pytest.raises(QuorumError, match="site-01: the run's budget, with what was spent before, is above"):
            coordinate(app, wire, settings)
        assert json.loads((tmp_path / "failure").read_text())["code"] == 4
        assert ledger.read_text() == released
        assert not out.exists()
        assert not (tmp_path / "answer").exists()
        privacy = read_config(tmp_path / "run" / "config.toml").parameters["privacy"]
        smaller = asked | {"privacy": privacy | {"epsilon": 4.0}}
        (tmp_path / "smaller").write_text(json.dumps(smaller | {"out": str(tmp_path / "cheap")}))
        coordinate(app, wire, settings | {"question": str(tmp_path / "smaller")})
        assert json.loads((tmp_path / "answer").read_text())["privacy_spent"][0] <= 24 * (1 + 1e-6)
        assert read_config(tmp_path / "cheap" / "config.toml").parameters["privacy"]["epsilon"] == 4.0
        released = ledger.read_text()
        wire.policies["site-01"] = Policy(epsilon=50.0, delta=1e-4)
        coordinate(app, wire, settings)
        found = json.loads((tmp_path / "answer").read_text())
        assert 20 < found["privacy_spent"][0] <= 40 * (1 + 1e-6)
        self.check_exchanges(tmp_path)
        assert found["drift"] == []
        assert ledger.read_text().startswith(released)
        assert {release.phase for release in read_ledger(ledger)[0][released.count("\n") :]} == {"update round"}
        assert is_run(out)

    def test_the_page_of_the_coordinator_says_where_ledgers_are_and_that_of_a_site_has_its_own(self, wire, tmp_path):
        words = ["--epsilon", 20, "--delta", 1e-4, "--bounds=-20,20"]
        call_flower("init", tmp_path / "app", "--clusters", 2, "--seed", 0, *words)
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        page = page_of(tmp_path / "run").section("privacy")
        assert "A site on a machine of its own has it in its state folder" in page.words
        assert "The table lists" not in page.words
        own = tmp_path / "state" / "site-01"
        page = page_of(tmp_path / "run", site="site-01", own=own / "run").section("privacy")
        assert "The table lists all that left the site" in page.words
        assert "in its state folder" not in page.words
        made = Counter(release.phase for release in read_ledger(own / "ledger.jsonl")[0])
        assert all(f"{phase} {count} " in page.words for phase, count in made.items())

    @pytest.mark.parametrize("secure", [False, True])
    def test_a_run_that_goes_on_spends_a_lost_sum_again_under_masks_and_not_in_the_open(self, wire, tmp_path, secure):
        words = ["--epsilon", 20, "--delta", 1e-4, "--bounds=-20,20", "--min-sites", 3]
        masks = ["--set", "secure={ shared_noise = false }"] if secure else []
        call_flower("init", tmp_path / "app", "--clusters", 2, "--seed", 0, *words, *masks)
        seen = []

        def silent(payload, answer):
            kind = decode(payload).kind
            seen.append(kind)
            return TimeoutError("gone") if "nois" in kind and seen.count(kind) == 2 else answer

        wire.changed[1] = silent
        with pytest.raises(Exception, match="are needed"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path, resume=True))
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        releases = read_ledger(tmp_path / "state" / "site-01" / "ledger.jsonl")[0]
        rounds = [release.exchange for release in releases if release.phase == "noisy round"]
        assert len(rounds) == len(set(rounds)) == 6
        assert summary["privacy_spent"][0] == pytest.approx(20.0)
        assert summary["rounds"] == (5 if secure else 6)
        assert ("answers were lost" in summary["stop_reason"]) == secure

    @pytest.mark.parametrize(
        ("kind", "given", "fact"),
        [
            ("stability", {"n_resamples": 4}, "verdicts"),
            ("compare", {"other": "model.safetensors"}, "adjusted_rand"),
            ("limits", {"rare": 0.01}, "distance"),
        ],
    )
    def test_every_question_has_a_table_and_facts(self, wire, tmp_path, kind, given, fact):
        call_flower("init", tmp_path / "app", "--clusters", 2, "--seed", 0)
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        given = {name: str(tmp_path / "run" / value) if name == "other" else value for name, value in given.items()}
        asked = {"kind": kind, "given": given, "secure": False, "privacy": None}
        asked |= {"run": str(tmp_path / "run"), "sites": [], "answer": str(tmp_path / "answer")}
        (tmp_path / "question").write_text(json.dumps(asked))
        allowed = Policy(questions=[kind], open_questions=True, least_rows=1)
        wire.policies = dict.fromkeys([name for name, _ in wire.sites.values()], allowed)
        question = self.settings(tmp_path, question=str(tmp_path / "question"))
        coordinate(tmp_path / "app" / "fedhk.toml", wire, question)
        told = json.loads((tmp_path / "answer").read_text())
        assert told["table"]["rows"]
        assert told["facts"][fact] is not None
