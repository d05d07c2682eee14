"""What is released is written down before rows are read, is sent again as it was, and is never forgotten."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedhk.errors import FedHKError
from fedhk.privacy import accounting
from fedhk.privacy.ledger import Ledger, LedgerError, Release, spent_on

DELTA = 1e-5
# lines and separators of lines are allowed in what is sent
PAYLOADS = (b"first\n\x00 noisy numbers \xff", b"", b'{"third": 1}\n\n')
MULTIPLIERS = (4.0, 5.0, 6.0)


def fill(path, count=3, site="a"):
    kept = Ledger(path, site, clock=lambda: 0.0)
    for exchange in range(count):
        charge(kept, exchange)
        kept.keep("r", exchange, PAYLOADS[exchange % 3])
    return kept


def charge(kept, exchange, run="r", **changed):
    values = {"phase": "round", "multiplier": MULTIPLIERS[exchange % 3], "sensitivity": 2.5, "neighbours": "replace"}
    kept.charge(run=run, exchange=exchange, **values | changed)


def multipliers(kept, run=None):
    return [release.multiplier for release in kept.releases(run)]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "rome").mkdir()
    return tmp_path / "rome" / "ledger.jsonl"


@pytest.fixture
def quick_disk(monkeypatch):
    """Does not wait for the disk: a test that opens a thousand ledgers only reads what it wrote."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_retry_is_given_what_was_sent_and_no_exchange_is_charged_twice(path, where):
    kept = fill(path if where == "file" else None)
    assert [kept.payload("r", exchange) for exchange in range(3)] == list(PAYLOADS)
    assert kept.payload("r", 3) is None
    assert kept.payload("other run", 1) is None
    with pytest.raises(LedgerError, match=r"Run 'r', exchange 0, was charged before"):
        charge(kept, 0)
    assert len(kept.releases()) == 3


@pytest.mark.parametrize("where", ["file", "memory"])
def test_what_was_charged_and_not_kept_counts_and_is_not_made_anew(path, where):
    kept = Ledger(path if where == "file" else None, "a")
    charge(kept, 0)
    assert multipliers(kept) == [4.0]
    with pytest.raises(LedgerError, match="counts as spent"):
        kept.payload("r", 0)
    with pytest.raises(LedgerError, match="was not charged"):
        kept.keep("r", 1, b"")


@pytest.mark.parametrize("where", ["file", "memory"])
def test_what_was_spent_is_that_of_all_releases_of_a_run(path, where):
    kept = fill(path if where == "file" else None)
    charge(kept, 0, run="s", multiplier=7.0)
    assert multipliers(kept, "r") == list(MULTIPLIERS)
    assert multipliers(kept) == [*MULTIPLIERS, 7.0]
    assert kept.spent("r", DELTA) == accounting.spent(MULTIPLIERS, DELTA)
    assert kept.spent(None, DELTA) == accounting.spent([*MULTIPLIERS, 7.0], DELTA) > kept.spent("r", DELTA)
    assert kept.spent("no such run", DELTA) == 0


def test_noise_for_added_rows_protects_exchanged_rows_half_as_well():
    added = Release("a", "r", 0, "round", 8.0, 1.0, "add-remove", "now")
    exchanged = Release("a", "r", 1, "round", 8.0, 1.0, "replace", "now")
    assert spent_on([added], DELTA, "replace") == accounting.spent([4.0], DELTA)
    assert spent_on([added], DELTA, "add-remove") == accounting.spent([8.0], DELTA)
    assert spent_on([exchanged], DELTA, "add-remove") == accounting.spent([8.0], DELTA)
    assert spent_on([added, exchanged], DELTA) == accounting.spent([4.0, 8.0], DELTA)


def test_another_process_finds_everything(path):
    before = fill(path).releases()
    again = Ledger(path, "a")
    assert again.releases() == before
    assert [again.payload("r", exchange) for exchange in range(3)] == list(PAYLOADS)


def test_a_line_says_who_released_what_when_and_with_which_noise(path):
    fill(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 3
    del lines[0]["chain"]
    assert lines[0] == {
        "site": "a",
        "run": "r",
        "exchange": 0,
        "phase": "round",
        "multiplier": 4.0,
        "sensitivity": 2.5,
        "neighbours": "replace",
        "time": "1970-01-01T00:00:00+00:00",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_are_only_added(path):
    fill(path, 2)
    before = path.read_bytes()
    charge(Ledger(path, "a"), 2)
    assert path.read_bytes().startswith(before)


def test_a_charge_is_on_disk_before_it_returns(path, monkeypatch):
    kept = Ledger(path, "a")
    forced = []
    real = os.fsync

    def fsync(handle):
        forced.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    charge(kept, 0)
    assert path.stat().st_ino == forced[0]


@pytest.mark.usefixtures("quick_disk")
def test_a_process_killed_while_it_adds_a_line_leaves_a_ledger_that_can_go_on(path):
    """Nothing is sent before the line is whole."""
    fill(path, 2)
    lines = path.read_bytes()
    tip = (path.parent.parent / "rome.ledger.tip").read_bytes()
    fill_one_more = json.loads(lines.splitlines()[-1])
    line = json.dumps(fill_one_more | {"exchange": 2}).encode() + b"\n"
    for length in range(len(line) - 1):
        path.write_bytes(lines + line[:length])
        assert multipliers(Ledger(path, "a")) == list(MULTIPLIERS[:2])
        assert path.read_bytes() == lines
    assert (path.parent.parent / "rome.ledger.tip").read_bytes() == tip


def test_a_disk_that_is_full_leaves_a_ledger_that_can_go_on(path, monkeypatch):
    kept = fill(path, 1)
    real = os.fsync

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        charge(kept, 1)
    monkeypatch.setattr(os, "fsync", real)
    assert multipliers(Ledger(path, "a"))[:1] == [4.0]
    charge(Ledger(path, "a"), 2)


KILLED = """
import sys
from fedhk.privacy.ledger import Ledger

kept = Ledger(sys.argv[1], "a")
for exchange in range(100_000):
    kept.charge(run="r", exchange=exchange, phase="p", multiplier=3.0, sensitivity=1.0, neighbours="replace")
    kept.keep("r", exchange, b"x" * exchange)
    print(exchange, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_what_a_killed_process_had_charged_is_there(path):
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        for _ in range(5):
            process.stdout.readline()
        process.kill()
        rest = process.stdout.read().splitlines()
    charged = 5 + len([line for line in rest if line.isdigit()])
    kept = Ledger(path, "a")
    assert charged <= len(kept.releases("r")) <= charged + 1
    assert kept.payload("r", 4) == b"xxxx"


def test_a_ledger_of_another_site_is_refused(path):
    fill(path)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl belongs to site 'a', not to 'b'") as error:
        Ledger(path, "b")
    assert isinstance(error.value, FedHKError)


@pytest.mark.usefixtures("quick_disk")
def test_a_changed_byte_is_noticed(path):
    fill(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(LedgerError, match=r"is damaged: line [123] is not as it was written|it had 3"):
            Ledger(path, "a")


def test_a_line_that_was_taken_out_or_made_milder_is_noticed(path):
    fill(path)
    first, second, third = path.read_bytes().splitlines(keepends=True)
    for changed in (second + third, second + first + third, first + first + second + third):
        path.write_bytes(changed)
        with pytest.raises(LedgerError, match="is damaged: line"):
            Ledger(path, "a")
    path.write_bytes(first + second.replace(b"5.0", b"9.0") + third)
    with pytest.raises(LedgerError, match="is damaged: line 2"):
        Ledger(path, "a")


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_ledger_that_was_cut_at_the_end_is_noticed(path, left):
    fill(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))
    with pytest.raises(LedgerError, match="was cut, deleted, or replaced by an older copy"):
        Ledger(path, "a")


def test_a_deleted_ledger_and_a_restored_folder_are_noticed(path, tmp_path):
    fill(path, 1)
    shutil.copytree(path.parent, tmp_path / "backup")
    charge(Ledger(path, "a"), 1)
    shutil.rmtree(path.parent)
    with pytest.raises(LedgerError, match="has 0 lines"):
        Ledger(path, "a")
    shutil.rmtree(path.parent)
    shutil.copytree(tmp_path / "backup", path.parent)
    with pytest.raises(LedgerError, match="has 1 lines"):
        Ledger(path, "a")


def test_a_ledger_that_was_begun_anew_after_the_tip_is_noticed(path):
    fill(path, 2)
    other = fill(path.parent.parent / "elsewhere" / "ledger.jsonl", 3)
    assert len(other.releases()) == 3
    path.write_bytes((path.parent.parent / "elsewhere" / "ledger.jsonl").read_bytes().replace(b"1970", b"1971"))
    with pytest.raises(LedgerError):
        Ledger(path, "a")


def test_a_damaged_tip_is_noticed_and_a_missing_one_is_made(path):
    fill(path)
    tip = path.parent.parent / "rome.ledger.tip"
    tip.write_bytes(b"{")
    with pytest.raises(LedgerError, match=r"rome\.ledger\.tip, which guards the ledger .*, is damaged"):
        Ledger(path, "a")
    tip.unlink()
    assert len(Ledger(path, "a").releases()) == 3
    assert json.loads(tip.read_bytes())["lines"] == 3


def test_a_tip_may_be_anywhere(path, tmp_path):
    Ledger(path, "a", tip=tmp_path / "other.tip")
    charge(Ledger(path, "a", tip=tmp_path / "other.tip"), 0)
    assert (tmp_path / "other.tip").exists()
    assert not (tmp_path / "rome.ledger.tip").exists()


def test_a_release_whose_file_is_gone_or_damaged_counts_and_is_not_made_anew(path):
    kept = fill(path)
    file = path.with_name("ledger.jsonl.payloads") / "00000001"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(LedgerError, match=r"Run 'r', exchange 0, counts as spent"):
        kept.payload("r", 0)
    file.unlink()
    with pytest.raises(LedgerError, match=r"Run 'r', exchange 0, counts as spent"):
        kept.payload("r", 0)
    assert multipliers(kept, "r") == list(MULTIPLIERS)


def test_of_two_at_once_one_is_charged(path):
    ledgers = [Ledger(path, "a") for _ in range(4)]

    def attempt(kept):
        try:
            charge(kept, 0)
        except LedgerError:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, ledgers)) == 1
    assert len(Ledger(path, "a").releases()) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("multiplier", 0.0), ("multiplier", float("inf")), ("sensitivity", -1.0), ("neighbours", "none")],
)
def test_noise_that_is_none_is_not_charged(path, name, value):
    kept = Ledger(path, "a")
    with pytest.raises(ValueError, match=f"{name} must be"):
        charge(kept, 0, **{name: value})
    assert kept.releases() == []
