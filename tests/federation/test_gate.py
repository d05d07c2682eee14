"""The gate of a site: what is malformed or not allowed is refused before a row is looked at, and changes nothing."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federations import TestEngine, make_plan, make_sites, run_sites
from fedhk import datasets
from fedhk.errors import MessageError
from fedhk.federation.codec import TREE
from fedhk.federation.entries import FinalModel, References, Schema
from fedhk.federation.gate import ENTRIES, SEALED, Guard, answer_message, write_request
from fedhk.federation.messages import Message, decode
from fedhk.federation.phases import load_phases
from fedhk.federation.phases.base import Nothing
from fedhk.federation.phases.describe import Describe, DescribeRequest
from fedhk.federation.phases.finish import FinishRequest
from fedhk.personal.options import GradientStep

SITE = "oslo"
load_phases()


@pytest.fixture(scope="module")
def recorded():
    """The site before every exchange of a run, and what it was asked."""
    sites = datasets.make_sites(2, 20, n_clusters=2, n_features=(3, 4), random_state=0).sites
    named = dict(zip(["bern", SITE], sites.values(), strict=True))
    plan = make_plan(2, heat_coef="absdev", protocol="cores", calibration="auto", personal=GradientStep(), max_rounds=2)
    seen = []
    engine = TestEngine(named)
    before = engine.states[SITE]

    def keep(site, phase, exchange, answer):
        nonlocal before
        if site == SITE:
            seen.append(before)
            before = engine.states[SITE]
        return answer

    engine.tamper = keep
    run_sites(plan, engine)
    return [(site, decode(sent[SITE])) for site, sent in zip(seen, engine.sent, strict=True)]


class NoRows:
    """Stands for the rows of a site; whoever looks at them fails."""

    def __getattr__(self, name):
        raise AssertionError("a row was looked at")


class Noted(Guard):
    """A guard that keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def admit(self, site, request, entries):
        self.asked.append((request, [type(entry).__name__ for entry in entries]))


def is_unchanged(site, board, memory, views):
    return site.board is board and site.memory is memory and site.views is views


def assert_refused(site, message, match=".", guard=None):
    board, memory, views = site.board, site.memory, site.views
    with pytest.raises(MessageError, match=match) as caught:
        answer_message(site, guard or Guard(), message)
    assert caught.value.site == site.name
    assert is_unchanged(site, board, memory, views)


class TestWhatPasses:
    def test_a_request_is_answered_in_its_kind_and_round(self, recorded):
        for site, message in recorded:
            after, reply = answer_message(site, Guard(), message)
            assert (reply.kind, reply.site, reply.round) == (message.kind, SITE, message.round)
            assert after is not site

    def test_the_site_before_stays_as_it_was(self, recorded):
        """What an answer changed is kept by whoever sends it, and only then."""
        for site, message in recorded:
            board, memory, views = site.board, site.memory, site.views
            first = answer_message(site, Guard(), message)
            assert is_unchanged(site, board, memory, views)
            again = answer_message(site, Guard(), message)
            for name, array in first[1].arrays.items():
                assert array.tobytes() == again[1].arrays[name].tobytes()
            assert first[1].values == again[1].values

    def test_entries_are_on_the_board_before_the_request_is_answered(self, recorded):
        site, message = next((s, m) for s, m in recorded if "References" in m.values.get(ENTRIES, []))
        assert not site.board.has(References)
        after, _ = answer_message(site, Guard(), message)
        assert after.board.has(References)
        assert after.board.has(Schema)

    def test_an_entry_that_comes_again_changes_nothing(self, recorded):
        site, message = next((s, m) for s, m in recorded if "References" in m.values.get(ENTRIES, []))
        once, _ = answer_message(site, Guard(), message)
        twice, _ = answer_message(once, Guard(), message)
        assert twice.board is once.board

    def test_the_guard_sees_request_and_entries_before_the_board_does(self, recorded):
        guard = Noted()
        for site, message in recorded:
            answer_message(site, guard, message)
        kinds = [type(request).__name__ for request, _ in guard.asked]
        assert kinds[0] == "DescribeRequest"
        assert guard.asked[1][1] == ["Schema", "References"]


class TestWhatIsRefused:
    @pytest.mark.parametrize("kind", ["gossip", "given start ", "Describe", "sum", "x" * 200, "__class__"])
    def test_unknown_kinds(self, recorded, kind):
        for site, message in recorded:
            assert_refused(site, replace(message, kind=kind), "which this FedHK does not know")

    @pytest.mark.parametrize("kind", ["round", "finish", "anything"])
    def test_sums_with_noise_or_masks_where_the_site_was_not_set_up_for_them(self, recorded, kind):
        site, message = recorded[0]
        assert_refused(site, replace(message, kind=SEALED + kind), "not set up for them")

    @pytest.mark.parametrize(
        "entries",
        ["References", [3], [None], {"References": 1}, 5, [["References"]], True],
        ids=str,
    )
    def test_entries_that_are_not_listed_as_names(self, recorded, entries):
        site, message = recorded[1]
        assert_refused(site, replace(message, values=message.values | {ENTRIES: entries}))

    @pytest.mark.parametrize(
        "name", ["Minimisation", "Population", "Site", "Offset", "Outcome", "dict", "", "Shared", "Entry", "RowEntry"]
    )
    def test_entries_that_no_server_publishes(self, recorded, name):
        site, message = recorded[1]
        assert_refused(site, replace(message, values=message.values | {ENTRIES: [name]}))

    @pytest.mark.parametrize("name", ["Shared", "RowEntry"])
    def test_entries_of_a_type_that_others_are_derived_from(self, recorded, name):
        """Such an entry has no rows to apply to; with it on the board no later message could be answered."""
        site, message = recorded[0]
        values = {TREE: [message.values[TREE][0], []], ENTRIES: [name]}
        assert_refused(site, replace(message, values=values), f"there is no Shared called '{name}'")

    def test_entries_of_another_type_than_they_are_said_to_be(self, recorded):
        site, message = recorded[1]
        for names in (["References", "Schema"], ["Schema"], ["Schema", "References", "Basis"], ["Basis", "References"]):
            assert_refused(site, replace(message, values=message.values | {ENTRIES: names}), "not what was asked for")

    def test_the_request_of_another_phase(self, recorded):
        for site, message in recorded[:2]:
            for kind in ("deliver", "round"):
                assert_refused(site, replace(message, kind=kind), "not what was asked for")

    @pytest.mark.parametrize("kind", ["energy", "candidates", "finish", "deliver"])
    def test_a_request_that_comes_before_what_it_needs(self, recorded, kind):
        message = next(m for _, m in recorded if m.kind == kind)
        bare = replace(message, values={TREE: message.values[TREE][:1]})
        site, _ = recorded[0]
        sizes = {"f8": sum(array.size for array in bare.arrays.values())}
        if sizes["f8"]:
            bare = replace(bare, arrays={})
        assert_refused(site, bare, "asked before '(References|Schema|FinalModel)' was published|not what was asked for")

    def test_finish_before_the_final_model(self, recorded):
        site, _ = next((s, m) for s, m in recorded if m.kind == "round")
        assert not site.board.has(FinalModel)
        request = write_request("finish", 9, FinishRequest(summary=False), FinishRequest, {})
        assert_refused(site, request, "asked before 'FinalModel' was published")

    def test_what_the_guard_does_not_admit_is_refused_before_a_row_is_looked_at(self, recorded):
        class Closed(Guard):
            def admit(self, *_):
                raise MessageError("not today")

        for site, message in recorded:
            blind = replace(site, views=NoRows(), _cache={})
            assert_refused(blind, message, "site 'oslo': not today", Closed())

    def test_what_is_malformed_is_refused_before_a_row_is_looked_at(self, recorded):
        for site, message in recorded:
            blind = replace(site, views=NoRows(), _cache={})
            assert_refused(blind, replace(message, values={TREE: [[]]}))
            assert_refused(blind, replace(message, values={}))

    def test_refusals_say_nothing_of_rows(self, recorded):
        """The same text for whatever rows the site has."""
        other = next(iter(make_sites({SITE: [np.ones((3, 3)), np.ones((3, 4))]}).values()))
        for site, message in recorded[:3]:
            reasons = []
            for here in (site, replace(site, views=other.views, _cache={})):
                with pytest.raises(MessageError) as caught:
                    answer_message(here, Guard(), replace(message, values={TREE: [[1, 2, 3]]}))
                reasons.append(caught.value.reason)
            assert reasons[0] == reasons[1]


# ------------------------------------------------------------------------------------------------------------- garbage

leaves = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=6)
trees = st.recursive(
    leaves.filter(lambda leaf: not isinstance(leaf, float) or np.isfinite(leaf)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from([".", "a", "rows"]), inner, max_size=2),
    max_leaves=10,
)


def places(tree, path=()):
    """All places of a tree."""
    yield path
    parts = enumerate(tree) if isinstance(tree, list) else tree.items() if isinstance(tree, dict) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def put(tree, path, value):
    if not path:
        return value
    tree = json.loads(json.dumps(tree))
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


class TestGarbage:
    @given(data=st.data())
    @settings(max_examples=300)
    def test_any_tree_in_place_of_any_part_is_answered_or_refused(self, recorded, data):
        site, message = recorded[data.draw(st.integers(0, len(recorded) - 1))]
        paths = list(places(message.values[TREE]))
        path = paths[data.draw(st.integers(0, len(paths) - 1))]
        values = message.values | {TREE: put(message.values[TREE], path, data.draw(trees))}
        board, memory, views = site.board, site.memory, site.views
        with suppress(MessageError):
            answer_message(site, Guard(), replace(message, values=values))
        assert is_unchanged(site, board, memory, views)

    def test_arrays_that_are_cut_lengthened_or_of_another_type_are_refused(self, recorded):
        for site, message in recorded:
            for name, array in message.arrays.items():
                other = array.astype("f2" if name != "f2" else "f4")
                for changed in (array[:-1], np.append(array, array[:1]), array[:, None], other, array[:0]):
                    assert_refused(site, replace(message, arrays=message.arrays | {name: changed}))

    @given(st.text(min_size=1, max_size=20), st.dictionaries(st.text(max_size=5), trees, max_size=3))
    def test_any_message(self, recorded, kind, values):
        site, _ = recorded[-1]
        with suppress(MessageError):
            answer_message(site, Guard(), Message(kind, "*", 3, {}, values))


def test_messages_to_sites_that_lack_nothing_list_no_entries():
    message = write_request(Describe.name, 0, DescribeRequest(unit_rows=False, ranges=False), DescribeRequest, {})
    assert ENTRIES not in message.values
    assert write_request("energy", 0, Nothing(), Nothing, {}).arrays == {}
