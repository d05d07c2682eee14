"""The board: one entry of each type, in the order of publication, and what of it a site does not have yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhk.data.views import check_views
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry, Shared, align_views, entry_type
from fedhk.federation.entries import Basis, Minimisation, Population, References, Schema, Space


@dataclass(frozen=True)
class Secret(Entry):
    value: int


@dataclass(frozen=True)
class Open(Shared):
    value: int


@dataclass(frozen=True)
class Wide(Open):
    """Derived from another entry: it is an entry of its own, and is found with it."""


class TestEntries:
    def test_put_makes_a_new_board_and_leaves_the_old(self):
        board = Board()
        after = board.put(Open(1), Secret(2))
        assert not board.has(Open)
        assert (after.get(Open).value, after.get(Secret).value) == (1, 2)
        assert after.put(Open(3)).get(Open).value == 3
        assert after.get(Open).value == 1

    def test_what_is_not_there_is_an_error_that_names_it(self):
        with pytest.raises(MessageError, match="asked before 'Open' was published"):
            Board().put(Wide(1)).get(Open)

    def test_derived_entries_are_found_in_the_order_of_their_publication(self):
        board = Board().put(Wide(1)).put(Secret(2)).put(Open(3)).put(Wide(4))
        assert [entry.value for entry in board.find(Open)] == [4, 3]
        assert [entry.value for entry in board.find(Entry)] == [4, 2, 3]

    def test_what_is_dropped_is_gone_and_comes_back_as_a_new_version(self):
        board = Board().put(Open(1), Secret(2)).drop(Open)
        assert not board.has(Open)
        assert board.put(Open(1)).versions["Open"] == 2


class TestWhatASiteLacks:
    @given(st.lists(st.sampled_from([Open, Wide, Secret]), max_size=12), st.integers(0, 12))
    def test_is_what_was_shared_since_it_last_answered(self, kinds, when):
        boards = [Board()]
        for number, kind in enumerate(kinds):
            boards.append(boards[-1].put(kind(number)))
        known = boards[min(when, len(kinds))].versions
        since = {kind.__name__ for kind in kinds[when:] if issubclass(kind, Shared)}
        missing = boards[-1].missing(known)
        assert set(missing) == since
        assert all(entry is boards[-1].get(type(entry)) for entry in missing.values())

    def test_a_new_site_gets_all_that_is_shared_and_nothing_else(self):
        board = Board().put(Secret(1), Open(2), Wide(3))
        assert list(board.missing({})) == ["Open", "Wide"]
        assert board.missing(board.versions) == {}


@pytest.mark.parametrize("kind", [Schema, References, Basis, Open, Wide])
def test_a_shared_entry_is_found_by_its_name(kind):
    assert entry_type(kind.__name__) is kind


@pytest.mark.parametrize("name", ["Minimisation", "Population", "Space", "Secret", "Views", "", "__class__", "x" * 500])
def test_what_is_not_shared_cannot_be_sent(name):
    with pytest.raises(MessageError, match="there is no Shared called") as caught:
        entry_type(name)
    assert len(str(caught.value)) < 200
    assert not any(issubclass(kind, Shared) for kind in (Minimisation, Population, Space))


class TestAlignedViews:
    @pytest.fixture
    def views(self):
        return check_views({"image": np.ones((4, 3)), "ecg": np.zeros((4, 2))})

    def test_views_are_in_the_order_of_the_model_with_gaps(self, views):
        aligned = align_views(views, ("ecg", "age", "image"), (2, 5, 3), "oslo")
        assert aligned.names == ("ecg", "age", "image")
        assert [None if table is None else table.shape for table in aligned.tables] == [(4, 2), None, (4, 3)]
        assert aligned.n_rows == 4

    def test_a_view_that_the_model_does_not_know_is_left_out(self, views):
        assert align_views(views, ("ecg",), (2,), "oslo").names == ("ecg",)

    def test_another_width_is_refused_with_both(self, views):
        with pytest.raises(MessageError, match="site 'oslo': view 'image' has 3 features here, 7 in the model"):
            align_views(views, ("ecg", "image"), (2, 7), "oslo")
