"""Questions after a fit to sites behind a transport: the answers of sites at hand, and what a site's policy forbids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedhk
from fedhk.after.binary import CountEvents
from fedhk.after.columns import ColumnsRequest, CountMagnitudes
from fedhk.after.comparison import CountPairs
from fedhk.after.run import ask_sites, reach_sites
from fedhk.after.stability import BaseModels, BatchRequest, RefitModels, SumSpread
from fedhk.data.dictionary import ColumnEntry, Dictionary
from fedhk.data.folders import write_site
from fedhk.data.named import NamedTable
from fedhk.errors import DataError, MessageError, QuorumError
from fedhk.federation.engines.remote import RemoteSites
from fedhk.federation.entries import Broadcast
from fedhk.federation.remote.policy import Policy
from fedhk.federation.remote.questions import SiteSecret
from fedhk.federation.remote.site import QUESTION_STATE, STATE
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.ledger import Ledger
from remote_sites import NAMES, QUICK, Wire, make_policies, read_boards

COLUMNS = ("days", "died", "walk")
ALLOWED = {"questions": ["profile", "outcomes", "stability", "compare", "limits"], "held_out": list(COLUMNS)}
OPEN = ALLOWED | {"open_questions": True, "least_rows": 1}
FIT = QUICK | {"view_weights": "uniform", "scaling": "standard"}
FIT_BUDGET = DifferentialPrivacy(5.0, 1e-5, (-20, 20))
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def draw_site(rng, n, shift):
    k = rng.integers(0, 3, n)
    views = {"lab": rng.normal(0, 1, (n, 3)) + 4 * k[:, None], "scan": rng.normal(0, 1, (n, 2)) - 5 * k[:, None]}
    died_at, seen_to = np.ceil(rng.exponential(20 + 25 * k)), rng.integers(5, 100, n)
    further = [np.minimum(died_at, seen_to), died_at <= seen_to, 400 - 15 * k + shift + rng.normal(0, 40, n)]
    table = np.column_stack(further).astype(np.float64)
    table[rng.random(n) < 0.05, 2] = np.nan
    return views, table


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    return {name: draw_site(rng, 60 + 10 * i, 20 * i) for i, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def folders(drawn, tmp_path_factory):
    """Folders of the sites, and of their further tables, which have the same rows in another order."""
    root, rng = tmp_path_factory.mktemp("federation"), np.random.default_rng(1)
    for name, (views, table) in drawn.items():
        ids = np.arange(len(table))
        write_site(root / "data" / name, views, ids, {"lab": ("a", "b", "c"), "scan": ("d", "e")})
        order = rng.permutation(ids)
        write_site(root / "also" / name, {"later": table[order]}, ids[order], {"later": COLUMNS})
    return {name: root / "data" / name for name in NAMES}, {name: root / "also" / name for name in NAMES}


@pytest.fixture(scope="module")
def here(drawn):
    """A model of the same rows at hand, and these rows with the further tables."""
    columns = {"lab": ("a", "b", "c"), "scan": ("d", "e")}
    sites = {n: {v: NamedTable(t, columns[v]) for v, t in views.items()} for n, (views, _) in drawn.items()}
    model = fedhk.EFKMVC(3, **FIT).fit(sites)
    return model, {n: views | {"later": NamedTable(drawn[n][1], COLUMNS)} for n, views in sites.items()}


@pytest.fixture
def reach(folders, tmp_path):
    """Fit over sites with some policies; the model and the engine."""

    def fitted(policies, fit=FIT, **parameters):
        data, also = folders
        wire = Wire(data, tmp_path / "state", {}, also)
        engine = RemoteSites(wire, expected=NAMES, wait=0.0)
        wire.policies = {name: replace(policy, bounds=None) for name, policy in policies.items()}
        model = fedhk.EFKMVC(3, engine=engine, **fit | parameters).fit()
        wire.policies = policies
        return model, engine, wire

    return fitted


def policies_with(**demands):
    return dict.fromkeys(NAMES, Policy(**demands))


def same(found, expected, names, **tolerances):
    for name in names:
        assert_allclose(getattr(found, name), getattr(expected, name), err_msg=name, **tolerances)


PROFILE = ("rows", "seen", "mean", "spread", "quartiles", "difference", "i_squared")
LIMIT = ("distance", "views", "columns")
SURVIVAL = ("curves", "lower", "upper", "at_risk", "events", "rows", "statistic", "p", "hazard_ratio")


class TestAnswers:
    def test_in_the_open_they_are_those_of_sites_at_hand(self, reach, here):
        _, engine, _ = fitted = reach(policies_with(**OPEN))
        model, sites = here
        far = fedhk.profile(fitted[0], engine=engine)
        near = fedhk.profile(model, sites)
        same(far, near, PROFILE, **EXACT)
        assert [c.label for c in far.columns] == [c.label for c in near.columns]
        assert [t["circular"] for t in far.tests] == [True] * 5 + [False] * 3
        for given in ({"event": "died"}, {"value": "walk"}):
            far = fedhk.outcomes(fitted[0], engine=engine, **given)
            near = fedhk.outcomes(model, {n: views | {"later": _frame(views)} for n, views in sites.items()}, **given)
            same(far, near, ("rows", "missing", "statistic", "p"), **EXACT)

    def test_under_masks_they_are_those_of_sites_at_hand(self, reach, here, tmp_path):
        policies = make_policies(tmp_path, NAMES, **ALLOWED)
        model, engine, _ = reach(policies)
        known, sites = here
        far, near = fedhk.profile(model, engine=engine, secure=True), fedhk.profile(known, sites, secure=True)
        same(far, near, PROFILE, **EXACT)
        asked = {"time": "days", "event": "died", "grid": range(101), "secure": True}
        far = fedhk.outcomes(model, engine=engine, **asked)
        frames = {name: views | {"later": _frame(views)} for name, views in sites.items()}
        same(far, fedhk.outcomes(known, frames, **asked), SURVIVAL, **EXACT)
        assert far.time_name == "days"

    @pytest.mark.parametrize("secure", [False, True])
    def test_limits_are_those_of_sites_at_hand(self, reach, here, tmp_path, secure):
        policies = make_policies(tmp_path, NAMES, **ALLOWED) if secure else policies_with(**OPEN)
        model, engine, _ = reach(policies)
        known, sites = here
        near = fedhk.find_limit(known, sites, rare=0.01, secure=secure)
        far = fedhk.find_limit(model, engine=engine, rare=0.01, secure=secure)
        same(far, near, LIMIT, **EXACT)
        assert far.table().rows == near.table().rows
        off = np.array([[0.0], [500.0]])
        new = {view: table.values[:2] + off for view, table in _without_later(sites)["rome"].items()}
        assert fedhk.place(model, new, limit=far).outlier.tolist() == [False, True]

    @pytest.mark.parametrize("secure", [False, True])
    def test_two_models_are_compared_as_at_hand(self, reach, here, tmp_path, secure):
        policies = make_policies(tmp_path, NAMES, **ALLOWED) if secure else policies_with(**OPEN)
        model, engine, _ = reach(policies)
        last_year = fedhk.EFKMVC(2, engine=engine, **FIT).fit()
        known, sites = here
        near = fedhk.compare(known, fedhk.EFKMVC(2, **FIT).fit(_without_later(sites)), sites)
        far = fedhk.compare(model, last_year, engine=engine, secure=secure)
        same(far, near, ("counts", "adjusted_rand", "stayed"), **EXACT)
        assert far.matched == near.matched

    def test_stability_is_that_of_sites_at_hand_with_the_same_halves(self, reach, here, monkeypatch):
        monkeypatch.setattr("fedhk.federation.remote.questions._keep_secret", lambda _: "")
        model, engine, _ = reach(policies_with(**OPEN))
        known, sites = here
        near, far = fedhk.stability(known, sites, n_resamples=6), fedhk.stability(model, engine=engine, n_resamples=6)
        same(far, near, ("halves", "jaccard", "consensus", "rows", "reference"), **EXACT)
        assert far.site_jaccard.keys() == set(NAMES)
        for site, values in near.site_jaccard.items():
            assert_allclose(far.site_jaccard[site], values, **EXACT)

    def test_stability_under_masks_tells_of_no_single_site(self, reach, here, tmp_path):
        model, engine, _ = reach(make_policies(tmp_path, NAMES, **ALLOWED))
        far = fedhk.stability(model, engine=engine, n_resamples=6, secure=True)
        near = fedhk.stability(here[0], here[1], n_resamples=6, secure=True)
        assert far.verdicts == near.verdicts == ["stable"] * 3
        assert far.site_jaccard == {}
        with pytest.raises(ValueError, match="show the sums of single sites"):
            fedhk.stability(model, engine=engine, secure=True, leave_sites_out=True)

    def test_with_noise_they_are_charged_to_the_ledger_of_the_fit(self, reach, tmp_path):
        policies = policies_with(epsilon=3.0, delta=1e-5, **ALLOWED)
        fit = DifferentialPrivacy(2.0, 1e-5, (-20, 20))
        model, engine, wire = reach(policies, privacy=fit, tol=1e-5, max_rounds=3)
        first = Ledger(wire.state / "rome" / "ledger.jsonl", "rome").spent(None, 1e-5, "replace")
        budget = DifferentialPrivacy(1.0, 1e-5, (0, 1))
        found = fedhk.outcomes(model, engine=engine, event="died", privacy=budget)
        assert found.noise > 0
        both = Ledger(wire.state / "rome" / "ledger.jsonl", "rome").spent(None, 1e-5, "replace")
        assert first < both <= 3.0
        assert found.privacy_spent[0] == pytest.approx(1.0, rel=1e-3)
        assert found.privacy_total[0] == pytest.approx(model.privacy_spent_[0] + found.privacy_spent[0])
        with pytest.raises(QuorumError, match="above what this site allows"):
            fedhk.outcomes(model, engine=engine, event="died", privacy=DifferentialPrivacy(2.5, 1e-5, (0, 1)))
        with pytest.raises(QuorumError, match="above what this site allows"):
            fedhk.find_limit(model, engine=engine, privacy=DifferentialPrivacy(2.5, 1e-5, (0, 1)))
        with pytest.raises(QuorumError, match="with noise only"):
            fedhk.stability(model, engine=engine, n_resamples=2)

    def test_a_run_that_is_under_way_is_left_as_it_is(self, reach):
        model, engine, wire = reach(policies_with(**OPEN))
        before = (wire.state / "rome" / STATE).read_bytes()
        fedhk.profile(model, engine=engine, bins=0)
        assert (wire.state / "rome" / STATE).read_bytes() == before
        assert (wire.state / "rome" / QUESTION_STATE).exists()

    def test_a_model_of_an_earlier_run_is_found_too(self, reach):
        model, engine, _ = reach(policies_with(**OPEN))
        fedhk.EFKMVC(2, engine=engine, **FIT).fit()
        assert len(fedhk.profile(model, engine=engine, bins=0).rows) == 3

    def test_small_clusters_of_a_site_are_left_out_in_the_open(self, reach, here):
        counts = {name: np.bincount(labels, minlength=3) for name, labels in here[0].labels_.items()}
        least = min(count.min() for count in counts.values()) + 1
        model, engine, _ = reach(policies_with(**OPEN | {"least_rows": int(least)}))
        expected = sum(np.where(count < least, 0, count) for count in counts.values())
        assert_allclose(fedhk.profile(model, engine=engine, bins=0).rows, expected)


def _frame(views):
    return pd.DataFrame(views["later"].values, columns=list(COLUMNS))


class TestPolicies:
    @pytest.mark.parametrize(
        ("demands", "reason"),
        [
            ({}, "does not answer such questions after a fit"),
            (OPEN | {"questions": ["profile"]}, "does not answer such questions after a fit"),
            (ALLOWED, "with masks or noise only"),
            (OPEN | {"held_out": ["days"]}, "or that its policy does not let out"),
        ],
    )
    def test_what_one_of_them_forbids_is_refused_with_its_name(self, reach, demands, reason):
        model, engine, _ = reach(policies_with(**OPEN) | {"oslo": Policy(**demands)})
        with pytest.raises(QuorumError, match=f"oslo: .*{reason}"):
            fedhk.outcomes(model, engine=engine, event="died")

    def test_the_others_can_be_asked_without_it(self, reach):
        model, _, wire = reach(policies_with(**OPEN) | {"oslo": Policy(**OPEN | {"held_out": []})})
        others = RemoteSites(wire, expected=("genoa", "pisa", "rome"), wait=0.0)
        assert fedhk.outcomes(model, engine=others, event="died").rows.sum() == 60 + 80 + 90

    def test_a_profile_has_the_columns_that_sites_let_out(self, reach):
        model, engine, _ = reach(policies_with(**OPEN | {"held_out": ["walk"]}))
        assert [c.name for c in fedhk.profile(model, engine=engine, bins=0).columns] == [
            "a",
            "b",
            "c",
            "d",
            "e",
            "walk",
        ]

    def test_a_dictionary_bounds_each_column_also_those_held_out(self, reach):
        model, engine, wire = reach(policies_with(epsilon=30.0, delta=1e-5, **OPEN), privacy=FIT_BUDGET, max_rounds=2)
        ranges = {"lab": dict.fromkeys("abc", (-10, 20)), "scan": dict.fromkeys("de", (-20, 10))}
        ranges["later"] = {"days": (0, 400), "died": (0, 1), "walk": (0, 900)}
        entries = {v: {c: ColumnEntry("number", range=pair) for c, pair in own.items()} for v, own in ranges.items()}
        budget, known = DifferentialPrivacy(20.0, 1e-5, "private"), Dictionary(entries)
        file = wire.state / "rome" / "ledger.jsonl"
        before = len(Ledger(file, "rome").releases())
        del known["later"]["walk"]
        with pytest.raises(DataError, match=r"no range for later\.walk"):
            fedhk.profile(model, engine=engine, privacy=budget, dictionary=known)
        assert len(Ledger(file, "rome").releases()) == before
        known["later"]["walk"] = ColumnEntry("number", range=(0, 900))
        found = fedhk.profile(model, engine=engine, privacy=budget, dictionary=known, bins=0)
        names = [column.name for column in found.columns]
        assert len(Ledger(file, "rome").releases()) == before + 1
        assert 0 <= found.overall_mean[names.index("died")] <= 1
        assert 200 < found.overall_mean[names.index("walk")] < 600

    def test_a_column_that_is_true_or_false_by_the_dictionary_has_no_quartiles(self, reach):
        open_to = OPEN | {"held_out": ["walk", "died"]}
        model, engine, _ = reach(policies_with(epsilon=90.0, delta=1e-5, **open_to), privacy=FIT_BUDGET, max_rounds=2)
        lab, scan = ({c: ColumnEntry("number", range=(-20, 20)) for c in names} for names in ("abc", "de"))
        later = {"walk": ColumnEntry("number", range=(0, 900)), "died": ColumnEntry("truth")}
        known = Dictionary({"lab": lab, "scan": scan, "later": later})
        budget = DifferentialPrivacy(60.0, 1e-5, "private")
        found = fedhk.profile(model, engine=engine, privacy=budget, dictionary=known, bins=10)
        names = [column.name for column in found.columns]
        died, walk = names.index("died"), names.index("walk")
        assert np.isnan(found.overall_quartiles[:, died]).all()
        assert np.isnan(found.quartiles[:, :, died]).all()
        assert not np.isnan(found.overall_quartiles[:, walk]).any()
        lines = [row[0] for row in found.table().rows]
        assert lines[lines.index("later: walk") + 1] == ""  # quartiles of the line before
        assert lines[lines.index("later: died") + 1] == "later: walk"

    def test_a_table_of_one_site_alone_is_left_out(self, reach):
        model, engine, _ = reach(policies_with(**OPEN | {"held_out": []}) | {"oslo": Policy(**OPEN)})
        assert [c.name for c in fedhk.profile(model, engine=engine, bins=0).columns] == ["a", "b", "c", "d", "e"]

    def test_a_site_that_lets_fewer_columns_out_than_most_is_named(self, reach):
        model, engine, _ = reach(policies_with(**OPEN) | {"oslo": Policy(**OPEN | {"held_out": ["walk"]})})
        with pytest.raises(QuorumError, match="oslo: view 'later' has 1 named columns, other sites have 3"):
            fedhk.profile(model, engine=engine, bins=0)

    def test_a_model_that_no_run_ended_with_is_refused(self, reach, here):
        _, engine, _ = reach(policies_with(**OPEN))
        other = fedhk.EFKMVC(4, **FIT).fit(_without_later(here[1]))
        with pytest.raises(QuorumError, match="has kept no run that ended with this model"):
            fedhk.profile(other, engine=engine)

    def test_a_question_about_outcomes_reads_outcomes_alone(self, reach):
        model, engine, _ = reach(policies_with(**OPEN))
        asked = reach_sites(model, None, engine, "outcomes", {"event": "died"})
        columns = ColumnsRequest(("lab",), (3,), np.full(3, -1))
        with pytest.raises(QuorumError, match="does not let the question read one of the views"):
            ask_sites(model, asked, [CountMagnitudes(columns)])

    def test_other_exchanges_and_other_numbers_of_clusters_are_refused(self, reach):
        model, engine, _ = reach(policies_with(**OPEN))
        asked = reach_sites(model, None, engine, "outcomes", {"event": "died"})
        with pytest.raises(QuorumError, match="takes no part in such an exchange"):
            ask_sites(model, asked, [CountPairs(3, 3)])
        with pytest.raises(QuorumError, match="more or fewer clusters than the model has"):
            ask_sites(model, asked, [CountEvents(10**9)])
        with pytest.raises(QuorumError, match="names no outcomes, or others"):
            ask_sites(model, reach_sites(model, None, engine, "outcomes", {"weight": "died"}), [CountEvents(3)])

    def test_the_server_learns_neither_halves_nor_the_sums_of_one_site_by_stability(self, reach, tmp_path):
        model, engine, wire = reach(make_policies(tmp_path, NAMES, **ALLOWED))
        asked = reach_sites(model, None, engine, "stability")
        parameters = replace(model._model.parameters.free(), sizes=None)
        refits = RefitModels(parameters, 2, ("rome",), 0)
        with pytest.raises(QuorumError, match="a model without one site would show the sums of that site"):
            ask_sites(model, asked, [SumSpread(parameters), refits], secure=True)
        with pytest.raises(ValueError, match="n_resamples=1200 is too many"):
            fedhk.stability(model, engine=engine, n_resamples=1200, secure=True)
        many = np.zeros((2400, 3, 5)), np.arange(2400), ("",) * 2400
        with pytest.raises(MessageError, match="more models than anybody needs"):
            BatchRequest(*many[1:], seed=0, model=Broadcast.of(parameters), centers=many[0])
        found = [fedhk.stability(model, engine=engine, n_resamples=2, secure=True).answer.board for _ in range(2)]
        tables = [board.get(BaseModels).centers for board in found]
        assert not np.allclose(*tables, atol=1e-6)  # the same seed, other halves
        _, memory = read_boards(wire.state, "rome", QUESTION_STATE)
        assert len(memory.get(SiteSecret).secret) == 32

    def test_what_does_not_fit_is_said_before_any_site_is_asked(self, reach, here):
        model, engine, _ = reach(policies_with(**OPEN))
        with pytest.raises(DataError, match="leave sites out, or engine"):
            fedhk.profile(model, here[1], engine=engine)
        with pytest.raises(DataError, match="the name of a column at the sites"):
            fedhk.outcomes(model, engine=engine, event=[1, 0])
        view, columns = next((view, names) for view, names in model.view_columns_.items() if names)
        with pytest.raises(DataError, match=f"is a column of view '{view}', which made the clusters"):
            fedhk.outcomes(model, engine=engine, event=columns[0])
        alone = fedhk.HeatKernelMVC(2, random_state=0).fit(np.arange(20.0).reshape(10, 2))
        with pytest.raises(TypeError, match="fitted over sites"):
            fedhk.profile(alone, engine=engine)


def _without_later(sites):
    return {name: {view: table for view, table in views.items() if view != "later"} for name, views in sites.items()}
