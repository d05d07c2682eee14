"""A run that was stopped goes on to the same bits; one that cannot be used is refused with its path and why."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from federations import Stop, assert_same_model, make_plan, resumed_after, run_sites
from fedhk import EFKMVC, datasets
from fedhk.errors import CheckpointError, FedHKError, QuorumError
from fedhk.estimators import efkmvc
from fedhk.federation.checkpoint import FILE, KIND, OWNER, Checkpoint, load_run, peek, save_run
from fedhk.federation.codec import pack
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import Minimisation, Population, References, Result, Schema
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases.finish import Finish
from fedhk.federation.run import Run
from fedhk.federation.stored import pack_bytes, pack_entries
from scripts import load_benchmark

# runs are cut short here on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*(did not|gives back):sklearn.exceptions.ConvergenceWarning")

PLAN = {"n_clusters": 2, "seed": 0}


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(3, 20, n_clusters=2, n_features=(2, 3), missing_views=0.3, random_state=1)
    return data.sites


def same_fit(one, other):
    for a, b in zip(one.cluster_centers_, other.cluster_centers_, strict=True):
        assert_array_equal(a, b)
    assert_array_equal(one.view_weights_, other.view_weights_)
    assert (one.objective_, one.fuzzifier_, one.n_iter_) == (other.objective_, other.fuzzifier_, other.n_iter_)
    assert (one.converged_, one.stop_reason_) == (other.converged_, other.stop_reason_)
    for name in ("round", "objective", "clients", "bytes_up", "refused"):
        assert [r[name] for r in one.history_] == [r[name] for r in other.history_]
    for site, labels in one.labels_.items():
        assert_array_equal(labels, other.labels_[site])
        assert_array_equal(one.memberships_[site], other.memberships_[site])


@pytest.mark.parametrize("heat_coef", ["uniform", "absdev"])
@pytest.mark.parametrize("protocol", ["statistics", "centers"])
def test_a_fit_that_stops_after_any_exchange_goes_on_to_the_same_bits(
    sites, tmp_path, monkeypatch, protocol, heat_coef
):
    options = {"heat_coef": heat_coef, "protocol": protocol, "view_weights": "learned", "n_init": 2, "max_rounds": 3}
    options |= {"tol": 0, "personalization": 0.5, "random_state": 0}
    expected = EFKMVC(2, **options, checkpoint=tmp_path / "whole").fit(sites)
    exchanges = 5 if heat_coef == "uniform" else 6  # after the last one there is nothing to go on with

    for last in range(1, exchanges + 1):
        model = EFKMVC(2, **options, checkpoint=tmp_path / f"stopped-{last}")
        same_fit(resumed_after(last, model, sites, monkeypatch), expected)


def test_a_fit_that_stops_again_and_again_goes_on_to_the_same_bits(sites, tmp_path):
    """After every exchange a new process would find all it needs in the file."""
    plan = make_plan(2, heat_coef="minmax", view_weights="auto", fuzzifier=None, max_rounds=60, tol=1e-5)
    expected, _ = run_sites(plan, sites, fraction=0.7)
    run, steps = Run(), 0

    def save_then_stop(current):
        save_run(tmp_path, current, PLAN)
        raise Stop

    while True:
        try:
            run, _ = run_sites(plan, sites, fraction=0.7, run=run, after=[save_then_stop])
        except Stop:
            run, steps = load_run(tmp_path, PLAN)[0], steps + 1
        else:
            break
    assert steps > 6
    assert_same_model(run, expected)
    assert [r["clients"] for r in run.history] == [r["clients"] for r in expected.history]


def contents(entry):
    """What an entry is, as the codec writes it."""
    values, arrays = pack(entry, type(entry), named=True)
    return values, {name: array.tobytes() for name, array in arrays.items()}


def test_what_is_loaded_is_what_was_saved(sites, tmp_path):
    frames = {name: dict(zip(("ecg", "image"), views, strict=True)) for name, views in sites.items()}
    plan, runs, loaded = make_plan(2, heat_coef="minmax"), [], []

    def save_and_load(run):
        save_run(tmp_path, run, PLAN)
        runs.append(run)
        loaded.append(load_run(tmp_path, PLAN)[0])

    run_sites(plan, frames, after=[save_and_load])
    for run, again in zip(runs, loaded, strict=True):
        assert list(again.board.entries) == list(run.board.entries)
        for one, other in zip(again.board.entries.values(), run.board.entries.values(), strict=True):
            assert contents(one) == contents(other)
        assert again.history == run.history
        assert again.pending == run.pending
        assert (again.phase, again.exchanges, again.exchange) == (run.phase, run.exchanges, run.exchange)
        assert again.known == {}  # new sites know nothing
    last = loaded[-1].board
    assert last.get(Schema).names == ("ecg", "image")
    assert [r.heat_coef for r in last.get(References).references] == ["minmax", "minmax"]
    assert last.get(Population).n_sites == 3
    assert last.get(Minimisation).answered
    assert last.get(Result).rows == 60


def test_a_finished_run_is_not_run_again(sites, tmp_path, monkeypatch):
    model = EFKMVC(2, n_init=2, checkpoint=tmp_path / "run", random_state=0).fit(sites)
    monkeypatch.setattr(efkmvc, "save_run", lambda *_: pytest.fail("an exchange was made"))
    same_fit(EFKMVC(2, n_init=2, checkpoint=tmp_path / "run", random_state=0).fit(sites, resume=True), model)


def test_a_run_without_a_fixed_seed_goes_on_with_its_own(sites, tmp_path):
    model = EFKMVC(2, n_init=1, init="random", checkpoint=tmp_path / "run").fit(sites)
    path = tmp_path / "run" / FILE
    assert path.exists()
    same_fit(EFKMVC(2, n_init=1, init="random", checkpoint=str(tmp_path / "run")).fit(sites, resume=True), model)


def test_a_run_stopped_after_its_models_were_delivered_delivers_them_again(sites, tmp_path, monkeypatch):
    """Own models are in no checkpoint; a phase of one's own may come after them."""

    class AskedAgain(EFKMVC):
        def phases(self, run):
            return [*super().phases(run), Finish(summary=False)]

    exchange, calls = InProcessEngine.exchange, []

    def stopped(engine, requests):
        if {decode(request).kind for request in requests.values()} == {"finish"} and not calls:
            calls.append(1)
            raise KeyboardInterrupt
        return exchange(engine, requests)

    monkeypatch.setattr(InProcessEngine, "exchange", stopped)
    model = AskedAgain(3, random_state=0, max_rounds=3, tol=0.0, checkpoint=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        model.fit(sites)
    model.fit(sites, resume=True)
    assert sorted(model.labels_) == sorted(sites)


def test_a_run_below_its_quorum_can_be_resumed_when_sites_are_back(sites, tmp_path):
    plan, folder = make_plan(2), tmp_path / "run"
    names = list(sites)
    with pytest.raises(QuorumError):
        run_sites(
            plan,
            sites,
            min_sites=3,
            present=lambda exchange: names if exchange < 4 else names[1:],
            after=[lambda run: save_run(folder, run, PLAN)],
        )
    stored, _ = load_run(folder, PLAN)
    assert len(stored.history) == 2
    again, _ = run_sites(plan, sites, min_sites=3, run=stored)
    assert_same_model(again, run_sites(plan, sites)[0])


def test_a_long_history_and_many_refusals_fit_into_a_checkpoint(tmp_path):
    refused = {f"site-{i:05d}": "TimeoutError: no answer within 60 s" for i in range(1000)}
    record = {"round": 1, "objective": 0.1, "clients": 3, "bytes_up": 1, "bytes_down": 1, "seconds": 0.5}
    run = Run(history=(record | {"refused": refused},) * 100)
    save_run(tmp_path, run, PLAN)
    assert load_run(tmp_path, PLAN)[0].history == run.history


def test_progress_can_be_read_without_knowing_what_is_on_the_board(sites, tmp_path, monkeypatch):
    run, _ = run_sites(make_plan(2), sites, after=[lambda run: save_run(tmp_path, run, PLAN, ["schema", "round"])])
    monkeypatch.setattr("fedhk.federation.codec.subclasses", lambda _: [])
    reached, phases = peek(tmp_path)
    assert phases == ("schema", "round")
    assert reached.history == run.history
    assert reached.board.entries == {}
    assert peek(tmp_path / "nowhere") is None
    (tmp_path / FILE).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="cannot be read"):
        peek(tmp_path)


def checkpoint(**changes):
    """The bytes of a checkpoint with other parts than a good one."""
    parts = {"plan": PLAN, "phase": 0, "exchanges": 1, "exchange": 1, "board": pack_entries([], OWNER)}
    return pack_bytes(Checkpoint(**parts | {"history": (), "pending": {}} | changes), KIND, OWNER)


def with_tree(**changes):
    """The bytes of a checkpoint with other words in it; None leaves a part out."""
    values, arrays = pack(Checkpoint(PLAN, 0, 1, 1, pack_entries([], OWNER), (), {}), Checkpoint, named=True)
    tree = {name: part for name, part in (values["tree"] | changes).items() if part is not None}
    return encode(Message(KIND, OWNER, 0, arrays, {"tree": tree}))


class TestRefused:
    @pytest.fixture
    def folder(self, sites, tmp_path):
        EFKMVC(2, n_init=1, max_rounds=2, checkpoint=tmp_path / "run", random_state=0).fit(sites)
        return tmp_path / "run"

    def resume(self, folder, sites, **options):
        defaults = {"n_clusters": 2, "n_init": 1, "max_rounds": 2, "random_state": 0}
        return EFKMVC(**defaults | options, checkpoint=folder).fit(sites, resume=True)

    def refusal(self, folder, sites, **options):
        with pytest.raises(CheckpointError) as caught:
            self.resume(folder, sites, **options)
        assert str(folder / FILE) in str(caught.value)
        assert isinstance(caught.value, FedHKError | ValueError)
        return str(caught.value)

    def test_cut_anywhere(self, folder, sites):
        content = (folder / FILE).read_bytes()
        for length in [*range(0, len(content), 97), len(content) - 1]:
            (folder / FILE).write_bytes(content[:length])
            assert "cannot be used" in self.refusal(folder, sites)

    def test_a_flipped_bit(self, folder, sites):
        content = bytearray((folder / FILE).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / FILE).write_bytes(content)
        assert "digest" in self.refusal(folder, sites)

    def test_another_file(self, folder, sites):
        (folder / FILE).write_bytes(b"a text that somebody put here, longer than a frame")
        assert "not a FedHK message" in self.refusal(folder, sites)

    @pytest.mark.parametrize(
        "content",
        [
            encode(Message("round", "oslo", 3, {"sums": np.zeros(3)})),
            encode(Message(KIND, OWNER, 3)),
            encode(Message(KIND, OWNER, 3, {}, {"tree": [1]})),
            pack_bytes(Checkpoint(PLAN, 0, 1, 1, pack_entries([], OWNER), (), {}), "round", OWNER),
            pack_bytes(Checkpoint(PLAN, 0, 1, 1, pack_entries([], OWNER), (), {}), KIND, "oslo"),
            with_tree(history=None),
            with_tree(plan=None),
            checkpoint(plan={"n_clusters": 2}),
            with_tree(phase="describe"),
            checkpoint(board=b"nothing"),
            checkpoint(board=pack_entries([], "oslo")),
        ],
    )
    def test_a_message_that_is_no_checkpoint(self, folder, sites, content):
        (folder / FILE).write_bytes(content)
        assert "cannot be used" in self.refusal(folder, sites)

    def test_an_entry_that_this_version_does_not_know(self, folder, sites):
        board = pack_entries([Result(1.0, 2.0)], OWNER).replace(b"Result", b"Resalt")
        start, body = board[:8], board[24:]
        content = start + sha256(start + body).digest()[:16] + body
        (folder / FILE).write_bytes(checkpoint(board=content))
        assert "no Entry called 'Resalt'" in self.refusal(folder, sites)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"n_clusters": 3}, "n_clusters=2 there, 3 here"),
            ({"heat_coef": "minmax"}, "heat_coef='uniform' there, 'minmax' here"),
            ({"protocol": "centers"}, "protocol='statistics' there, 'centers' here"),
            ({"tol": 0.5}, "tol=1e-05 there, 0.5 here"),
            ({"view_weights": [0.5, 0.5]}, r"view_weights='auto' there, \[0.5, 0.5\] here"),
            ({"fuzzifier": 1.5}, "fuzzifier='auto' there, 1.5 here"),
            ({"max_rounds": 7, "heat_time": 1.0}, "max_rounds=2 there, 7 here"),
        ],
    )
    def test_other_settings_are_named(self, folder, sites, options, said):
        with pytest.raises(CheckpointError, match=f"other settings: .*{said}"):
            self.resume(folder, sites, **options)

    def test_other_given_centres(self, sites, tmp_path):
        views = next(views for views in sites.values() if all(view is not None for view in views))
        start = [view[:2] for view in views]
        turned = [centers[::-1] for centers in start]  # the same sum
        EFKMVC(2, init=start, checkpoint=tmp_path / "run").fit(sites)
        EFKMVC(2, init=start, checkpoint=tmp_path / "run").fit(sites, resume=True)
        with pytest.raises(CheckpointError, match="other settings: init="):
            EFKMVC(2, init=turned, checkpoint=tmp_path / "run").fit(sites, resume=True)

    def test_a_folder_that_is_not_empty_without_resume(self, folder, sites):
        before = (folder / FILE).read_bytes()
        with pytest.raises(CheckpointError, match=r"is not empty. Pass resume=True"):
            EFKMVC(2, checkpoint=folder).fit(sites)
        assert (folder / FILE).read_bytes() == before

    def test_a_folder_with_other_files_without_resume(self, sites, tmp_path):
        (tmp_path / "thesis.txt").write_text("mine")
        with pytest.raises(CheckpointError, match="is not empty"):
            EFKMVC(2, checkpoint=tmp_path).fit(sites)

    def test_a_file_in_place_of_the_folder(self, folder, sites):
        for resume in (False, True):
            with pytest.raises(CheckpointError, match="is a file; it must be a folder"):
                EFKMVC(2, checkpoint=folder / FILE).fit(sites, resume=resume)

    def test_resume_without_a_folder(self, sites):
        with pytest.raises(CheckpointError, match="resume=True needs checkpoint="):
            EFKMVC(2).fit(sites, resume=True)

    def test_resume_where_nothing_is_starts_anew(self, sites, tmp_path):
        model = EFKMVC(2, n_init=1, checkpoint=tmp_path / "new", random_state=0).fit(sites, resume=True)
        same_fit(model, EFKMVC(2, n_init=1, random_state=0).fit(sites))
        assert (tmp_path / "new" / FILE).exists()


def test_what_a_killed_writer_left_is_removed(sites, tmp_path):
    model = EFKMVC(2, n_init=1, checkpoint=tmp_path, random_state=0).fit(sites)
    (tmp_path / f".{FILE}.half").write_bytes(b"half")
    same_fit(EFKMVC(2, n_init=1, checkpoint=tmp_path, random_state=0).fit(sites, resume=True), model)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_the_plan_of_a_checkpoint_keeps_its_seed(tmp_path):
    save_run(tmp_path, Run(), {"seed": 5})
    _, plan = load_run(tmp_path, {"seed": 6})
    assert plan["seed"] == 5


def test_differences_of_options_are_named_after_the_option(tmp_path):
    save_run(tmp_path, Run(), {"seed": 5, "privacy": {"epsilon": 1.0, "delta": 1e-6}, "rank": None})
    said = r"privacy.epsilon=1.0 there, 2.0 here; rank=None there, \[2, 3\] here"
    with pytest.raises(CheckpointError, match=said):
        load_run(tmp_path, {"seed": 5, "privacy": {"epsilon": 2.0, "delta": 1e-6}, "rank": (2, 3)})
    load_run(tmp_path, {"seed": 5, "privacy": {"epsilon": 1.0, "delta": 1e-6}, "rank": None})


def test_eight_kills_at_random_moments_change_no_byte_of_the_models(tmp_path):
    done, runs, same = load_benchmark("kills").kill_and_resume(tmp_path, 8, seed=1)
    assert done == 8
    assert same == runs >= 1
