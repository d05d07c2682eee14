"""What was released is on disk before it is sent, is sent again as it was, and is never forgotten."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from fedhk.errors import FedHKError
from fedhk.privacy import accounting, ledger_store
from fedhk.privacy.ledger import Ledger, LedgerError

DELTA = 1e-5
# lines and separators of lines are allowed in what is sent
PAYLOADS = (b"first\n\x00 noisy numbers \xff", b"", b'{"third": 1}\n\n')
MULTIPLIERS = (4.0, 5.0, 6.0)


def fill(path, count=3, site="a"):
    kept = Ledger(path, site, clock=lambda: 0.0)
    for exchange in range(count):
        write(kept, exchange)
    return kept


def write(kept, exchange, payload=None, run="r", **changed):
    payload = PAYLOADS[exchange % 3] if payload is None else payload
    values = {"phase": "round", "multiplier": MULTIPLIERS[exchange % 3], "sensitivity": 2.5} | changed
    return kept.record(run=run, exchange=exchange, payload=payload, **values)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def quick_disk(monkeypatch):
    """Does not wait for the disk: a test that opens a thousand ledgers only reads what it wrote."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_retry_is_given_what_was_recorded_first(path, where):
    kept = fill(path if where == "file" else None)
    assert kept.payload("r", 1) == PAYLOADS[1]
    assert write(kept, 0, b"other noise") == PAYLOADS[0]
    assert kept.payload("r", 3) is None
    assert kept.payload("other run", 1) is None
    assert len(kept.releases()) == 3


@pytest.mark.parametrize("where", ["file", "memory"])
def test_what_was_spent_is_that_of_all_releases_of_a_run(path, where):
    kept = fill(path if where == "file" else None)
    write(kept, 0, run="s", multiplier=7.0)
    assert kept.multipliers("r") == list(MULTIPLIERS)
    assert kept.multipliers("s") == [7.0]
    assert kept.multipliers() == [*MULTIPLIERS, 7.0]
    assert kept.spent("r", DELTA) == accounting.spent(MULTIPLIERS, DELTA)
    assert kept.spent(None, DELTA) == accounting.spent([*MULTIPLIERS, 7.0], DELTA) > kept.spent("r", DELTA)
    assert kept.spent("no such run", DELTA) == 0


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
        "sha256": sha256(PAYLOADS[0]).hexdigest(),
        "time": "1970-01-01T00:00:00+00:00",
    }


def test_lines_are_only_added(path):
    fill(path, 2)
    before = path.read_bytes()
    write(Ledger(path, "a"), 2)
    assert path.read_bytes().startswith(before)


def test_it_is_on_disk_before_record_returns(path, monkeypatch):
    kept = Ledger(path, "a")
    events = []
    real = os.fsync

    def fsync(handle):
        events.append(Path(os.readlink(f"/proc/self/fd/{handle}")) if Path("/proc/self/fd").exists() else None)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write(kept, 0)
    if None in events:
        pytest.skip("this system does not tell the names of open files")
    forced = [event.parent.name == "ledger.jsonl.payloads" for event in events]
    assert forced[0]  # what is sent comes first
    assert events.index(path) > 0


@pytest.mark.usefixtures("quick_disk")
def test_a_ledger_that_was_cut_at_any_byte_counts_and_resends_everything(path):
    """A killed process leaves a part of the last line; even of more lines nothing is lost."""
    fill(path, 2)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        kept = Ledger(path, "a")
        assert path.read_bytes() == whole
    assert kept.multipliers("r") == list(MULTIPLIERS[:2])
    assert write(kept, 0, b"other noise") == PAYLOADS[0]


@pytest.mark.usefixtures("quick_disk")
def test_a_process_killed_in_any_write_of_a_release_leaves_a_ledger_that_can_go_on(path):
    """Before the release has its file, nothing was sent and nothing counts; from then on it counts."""
    fill(path, 2)
    lines, folder = path.read_bytes(), path.with_name("ledger.jsonl.payloads")
    fill(path, 3)
    line, file = path.read_bytes()[len(lines) :], (folder / "00000003").read_bytes()
    (folder / "00000003").unlink()
    path.write_bytes(lines)

    for length in range(len(file)):  # within the first write, which goes to a file of another name
        half = folder / ".00000003.half"
        half.write_bytes(file[:length])
        kept = Ledger(path, "a")
        assert kept.payload("r", 2) is None
        assert path.read_bytes() == lines
        assert not half.exists()

    for length in range(len(line)):  # between the writes and within the second
        (folder / "00000003").write_bytes(file)
        path.write_bytes(lines + line[:length])
        kept = Ledger(path, "a")
        assert write(kept, 2, b"other noise") == PAYLOADS[2]
        assert path.read_bytes() == lines + line
    assert kept.spent("r", DELTA) == accounting.spent(MULTIPLIERS, DELTA)


@pytest.mark.usefixtures("quick_disk")
def test_a_disk_that_is_full_at_any_write_leaves_a_ledger_that_can_go_on(path, monkeypatch):
    kept = fill(path, 1)
    real = ledger_store._sync_folder
    for failing in (1, 2):
        calls = []

        def fail(folder, calls=calls, failing=failing):
            calls.append(folder)
            if len(calls) == failing:
                raise OSError(28, "No space left on device")
            real(folder)

        monkeypatch.setattr(ledger_store, "_sync_folder", fail)
        with pytest.raises(OSError, match="No space left"):
            write(kept, failing)
        monkeypatch.setattr(ledger_store, "_sync_folder", real)
        assert kept.payload("r", failing) == PAYLOADS[failing]
        assert len(kept.multipliers("r")) == 1 + failing


KILLED = """
import sys
from fedhk.privacy.ledger import Ledger

kept = Ledger(sys.argv[1], "a")
for exchange in range(100_000):
    sent = kept.record(run="r", exchange=exchange, phase="p", multiplier=3.0, sensitivity=1.0, payload=b"x" * exchange)
    print(exchange, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_what_a_killed_process_had_recorded_is_there(path):
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        for _ in range(5):
            process.stdout.readline()
        process.kill()
        rest = process.stdout.read().splitlines()
    recorded = 5 + len([line for line in rest if line.isdigit()])
    kept = Ledger(path, "a")
    assert recorded <= len(kept.multipliers("r")) <= recorded + 1
    assert kept.payload("r", 4) == b"xxxx"


def test_a_ledger_of_another_site_is_refused(path):
    fill(path)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl belongs to site 'a', not to 'b'") as error:
        Ledger(path, "b")
    assert isinstance(error.value, FedHKError)


@pytest.mark.usefixtures("quick_disk")
def test_a_changed_byte_before_the_last_line_is_noticed(path):
    fill(path)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for place in range(0, last, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(LedgerError, match=r"is damaged: line [12] is not as it was written"):
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


def test_a_last_line_that_was_changed_or_removed_is_restored(path):
    fill(path)
    whole = path.read_bytes()
    first, second, third = whole.splitlines(keepends=True)
    for changed in (first + second, first + third, first + second + third.replace(b"6.0", b"9.0"), first, b""):
        path.write_bytes(changed)
        assert Ledger(path, "a").multipliers() == list(MULTIPLIERS)
        assert path.read_bytes() == whole


def test_half_a_line_without_its_release_is_an_error_and_not_forgotten(path):
    fill(path)
    path.write_bytes(path.read_bytes()[:-9])
    (path.with_name("ledger.jsonl.payloads") / "00000003").unlink()
    with pytest.raises(LedgerError, match=r"last line, 3, is not whole, and .*00000003"):
        Ledger(path, "a")


def test_a_release_whose_file_is_gone_or_damaged_counts_and_is_not_made_anew(path):
    kept = fill(path)
    file = path.with_name("ledger.jsonl.payloads") / "00000001"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(LedgerError, match=r"run 'r', exchange 0, cannot be sent again: .*00000001 is damaged"):
        kept.payload("r", 0)
    file.unlink()
    with pytest.raises(LedgerError, match=r"cannot be sent again: .*00000001 cannot be read"):
        write(kept, 0, b"other noise")
    assert kept.multipliers("r") == list(MULTIPLIERS)


def test_a_release_between_others_that_is_in_no_line_and_gone_is_noticed(path):
    fill(path)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    (path.with_name("ledger.jsonl.payloads") / "00000002").unlink()
    with pytest.raises(LedgerError, match="00000002 is missing"):
        Ledger(path, "a")


def test_the_same_exchange_with_another_noise_is_refused(path):
    kept = fill(path)
    with pytest.raises(
        LedgerError, match=r"exchange 1, was recorded with other values: multiplier=5\.0 there, 1\.0 here"
    ):
        write(kept, 1, multiplier=1.0)


def test_two_at_once_agree_on_what_is_sent(path):
    ledgers = [Ledger(path, "a") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        sent = list(pool.map(lambda i: write(ledgers[i], 0, f"noise of {i}".encode()), range(4)))
    assert len(set(sent)) == 1
    assert len(Ledger(path, "a").releases()) == 1


@pytest.mark.parametrize(("name", "value"), [("multiplier", 0.0), ("multiplier", float("inf")), ("sensitivity", -1.0)])
def test_noise_that_is_none_is_not_recorded(path, name, value):
    kept = Ledger(path, "a")
    with pytest.raises(ValueError, match=f"{name} must be"):
        write(kept, 0, **{name: value})
    assert kept.releases() == []


def test_a_copy_of_file_and_folder_is_a_whole_ledger(path, tmp_path):
    fill(path)
    other = tmp_path / "elsewhere" / "ledger.jsonl"
    shutil.copytree(path.with_name("ledger.jsonl.payloads"), other.with_name("ledger.jsonl.payloads"))
    shutil.copy(path, other)
    assert Ledger(other, "a").payload("r", 2) == PAYLOADS[2]
