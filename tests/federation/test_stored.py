"""Files of a run: what was written is read again, all else is refused, and what ends with a process is in none."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

import pytest

from fedhk.errors import MessageError
from fedhk.federation.board import Passing
from fedhk.federation.entries import Result, Schema, Terms
from fedhk.federation.stored import pack_bytes, pack_entries, read_file, unpack_board, unpack_bytes, write_file


@dataclass(frozen=True)
class Secret(Passing):
    """Something that ends with the process."""

    key: bytes


def test_a_file_is_read_again_by_its_owner_alone(tmp_path):
    terms = Terms("a-run", {"ecg": ("x", "y"), "image": None}, {"epsilon": 1.0, "bounds": [-1, 1]}, True)
    write_file(tmp_path / "file", terms, "kind", "rome")
    assert read_file(tmp_path / "file", "kind", "rome", Terms) == terms
    assert stat.S_IMODE(os.stat(tmp_path / "file").st_mode) == 0o600


@pytest.mark.parametrize(
    ("kind", "owner", "wanted"), [("other", "a", Terms), ("kind", "b", Terms), ("kind", "a", Schema)]
)
def test_what_is_something_else_is_refused(kind, owner, wanted):
    content = pack_bytes(Terms("a-run"), "kind", "a")
    with pytest.raises(MessageError):
        unpack_bytes(content, kind, owner, wanted)


def test_entries_of_a_board_stay_in_their_order_without_those_that_end_with_the_process():
    entries = [Result(1.0, 2.0), Secret(b"key"), Terms("a-run")]
    board = unpack_board(pack_entries(entries, "rome"), "rome")
    assert list(board.entries) == [Result, Terms]
    assert board.get(Terms) == Terms("a-run")
    assert b"key" not in pack_entries(entries, "rome")
