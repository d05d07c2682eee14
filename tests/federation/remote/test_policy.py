"""What a site demands of any run is demanded of every message, and what it cannot read as a policy it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedhk.errors import DataError, QuorumError
from fedhk.federation.entries import Terms
from fedhk.federation.messages import decode
from fedhk.federation.phases.base import Nothing
from fedhk.federation.phases.describe import Describe, DescribeRequest, DescribeViews
from fedhk.federation.remote.policy import Policy, read_policy
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.identity import make_identity, save_identity
from remote_sites import NAMES, fit_remote, join_run, make_policies, read_boards

# runs are cut short here on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge:sklearn.exceptions.ConvergenceWarning")


class TestPolicy:
    def reason(self, wire, policy, **terms):
        wire.policies = {"rome": policy}
        request = join_run(Describe, DescribeRequest(False, False), **terms)
        return decode(wire.send({4: request}, 1.0)[4]).values.get("reason", "")

    def test_a_site_can_demand_masks_and_noise(self, wire):
        assert "masked sums only" in self.reason(wire, Policy(secure=True))
        assert "noise only" in self.reason(wire, Policy(epsilon=1.0))

    def test_what_all_runs_spend_together_is_limited(self, wire):
        budget = DifferentialPrivacy(2.0, 1e-6, (-20, 20), rounds=2)
        wire.policies = {site: Policy(epsilon=2.5) for site in NAMES}
        fit_remote(wire, privacy=budget)
        with pytest.raises(QuorumError, match="with what was spent before, is above what this site allows"):
            fit_remote(wire, privacy=budget)

    def test_the_terms_of_a_run_cannot_change_on_the_way(self, wire):
        budget = DifferentialPrivacy(1.0, 1e-6, (-20, 20)).describe()
        assert self.reason(wire, Policy(), privacy=budget).startswith("the server asks")  # joined; asks in the open
        fit_remote(wire, max_rounds=1)
        terms = read_boards(wire.state, "rome")[0].get(Terms)
        looser = {"run": terms.run, "columns": terms.columns, "privacy": budget | {"epsilon": 100.0}}
        answer = wire.send({4: join_run(Describe, DescribeRequest(False, False), **looser)}, 1.0)[4]
        assert "have changed" in decode(answer).values["reason"]

    def test_a_delta_is_compared_with_the_policy_and_never_with_the_rows(self, wire, caplog):
        def reason(delta, policy):
            wire.policies = {"rome": policy}
            privacy = DifferentialPrivacy(1.0, delta, (-20, 20)).describe()
            answer = wire.send({4: join_run(DescribeViews, Nothing(), privacy=privacy)}, 1.0)[4]
            return decode(answer).values.get("reason")

        assert reason(0.5, Policy(epsilon=1.0)) == "the run's delta is larger than this site allows"
        assert reason(0.5, Policy()) is None
        assert "delta=0.5 of the run is not below 1 over the rows of site 'rome'" in caplog.text

    def test_long_term_keys_keep_strangers_out_of_masked_sums(self, wire, tmp_path, caplog):
        wire.policies = make_policies(tmp_path, NAMES, secure=True)
        assert fit_remote(wire, secure=True, max_rounds=2).history_[0]["refused"] == {}
        stranger, _ = make_identity()
        save_identity(tmp_path / "stranger.pem", stranger)
        wire.policies["rome"] = replace(wire.policies["rome"], identity=str(tmp_path / "stranger.pem"))
        with pytest.raises(QuorumError, match="keys that are not signed by the long-term key that their operator gave"):
            fit_remote(wire, secure=True, max_rounds=2)
        assert "site 'oslo' refuses: site 'rome': the list of keys has keys that are not signed" in caplog.text

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
            ('identity = "mask.pem"', "names .*mask.pem', from its own folder: it is not there"),
            ('bounds = "dictionary.toml"', "names .*dictionary.toml', from its own folder: it is not there"),
            ("questions = ['rows']", "questions has 'rows'; it may have 'profile', 'outcomes', 'stability'"),
            ("held_out = 'died'", "held_out='died' must be a list of names"),
            ("open_questions = 1", "open_questions=1 must be true or false"),
        ],
    )
    def test_a_policy_that_cannot_be_used_says_why(self, text, message, tmp_path):
        (tmp_path / "policy.toml").write_text(text)
        with pytest.raises(DataError, match=message):
            read_policy(tmp_path / "policy.toml")
