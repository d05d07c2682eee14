"""Who may read a file follows from what it tells."""

from __future__ import annotations

import json
import os
import stat
import sys
from functools import partial

import polars as pl
import pytest

import fedhk
from cli.calls import call, refusal
from fedhk import EFKMVC
from fedhk._files import read_regular
from fedhk.cli.flower import keys, processes
from fedhk.errors import FedHKError
from fedhk.federation.remote.policy import read_policy
from security.conftest import BUDGET

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
ROWS = {"bern": 40, "oslo": 39, "rome": 38}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder):
    return {str(path.relative_to(folder)): mode(path) for path in folder.rglob("*")} | {".": mode(folder)}


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_run_is_for_its_owner_and_what_was_released_with_noise_for_all(hospitals, tmp_path):
    """Attack 20: labels were 0644 and the noisy model 0600, the wrong way round."""
    call("fit", hospitals, "-k", 2, "-o", tmp_path / "open")
    found = modes(tmp_path / "open")
    folders = {".", "sites", "labels"}
    assert found == {name: 0o700 if name in folders else 0o600 for name in found}
    call("fit", hospitals, "-k", 2, *BUDGET, "-o", tmp_path / "noisy")
    found = modes(tmp_path / "noisy")
    released = {"model.safetensors", "summary.json", "history.json", "history.parquet", "config.toml", "report.html"}
    expected = dict.fromkeys(found, 0o600) | dict.fromkeys({*released, "releases.json"}, 0o644)
    assert found == expected | {".": 0o755, "sites": 0o700, "labels": 0o700}
    call("report", tmp_path / "noisy", "--site", "oslo")
    assert mode(tmp_path / "noisy" / "report-oslo.html") == 0o600
    ledger = tmp_path / "hospitals.ledger"
    assert mode(ledger) == 0o700
    assert mode(ledger / "oslo.jsonl") == 0o600
    call("predict", tmp_path / "noisy", hospitals, "-o", tmp_path / "labels")
    assert modes(tmp_path / "labels") == {".": 0o700} | {f"{site}.parquet": 0o600 for site in ROWS}


def numbers(value):
    """All whole numbers in a JSON document."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return {number for part in parts for number in numbers(part)}
    return {value} if isinstance(value, int) and not isinstance(value, bool) else set()


def test_what_a_run_with_noise_publishes_tells_no_exact_number_of_rows(hospitals, tmp_path):
    """Attack 20: exact rows and clusters per site stood in `summary.json`."""
    run = tmp_path / "run"
    result = call("fit", hospitals, "-k", 2, *BUDGET, "-o", run)
    assert "not told" in result.stdout
    secret = {*ROWS.values(), sum(ROWS.values())}
    summary = json.loads((run / "summary.json").read_text())
    for site in summary["sites"].values():
        assert (site["rows"], site["clusters_found"]) == (None, None)
    for name in ("summary.json", "history.json", "releases.json"):
        assert not secret & numbers(json.loads((run / name).read_text())), name
    history = pl.read_parquet(read_regular(run / "history.parquet"))
    assert not {"rows", "clusters"} & set(history.columns)
    page = (run / "report.html").read_text()
    assert not any(f"{number} rows" in page for number in secret)


# ------------------------------------------------------------------------------------------- what is no regular file


def test_a_file_option_on_a_pipe_device_or_folder_is_refused_at_once(hospitals, tmp_path):
    """Attack 22: `--config` on a FIFO waited for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        assert "no regular file" in refusal("fit", hospitals, "--config", path, "-o", tmp_path / "run", code=3)
        for read in (fedhk.load, read_policy, read_regular):
            with pytest.raises((FedHKError, OSError), match="no regular file"):
                read(path)
    charged = tmp_path / "x.jsonl"
    os.mkfifo(charged)
    assert "no regular file" in refusal("ledger", charged, code=3)
    refusal("info", tmp_path / "pipe", code=3)
    refusal("predict", tmp_path / "pipe", hospitals, "-o", tmp_path / "labels", code=3)


# --------------------------------------------------------------------------------------------------- missing packages


@pytest.fixture
def hide(monkeypatch):
    """Make a package look as if it were not installed."""
    return lambda name: monkeypatch.setitem(sys.modules, name, None)


def test_masks_without_their_package_are_refused_before_anything_is_begun(hide, hospitals, tmp_path):
    """Attack 22: it failed per site, with exit code 4, and left half a run."""
    hide("cryptography")
    command = ("fit", hospitals, "-k", 2, "--secure", "-o", tmp_path / "run")
    assert "pip install 'fedhk[privacy]'" in refusal(*command, code=3)
    assert not (tmp_path / "run").exists()
    rows = [[[0.0], [1.0], [2.0]]]
    with pytest.raises(FedHKError, match=r"pip install 'fedhk\[privacy\]'"):
        EFKMVC(2, secure=True, checkpoint=tmp_path / "run").fit(dict.fromkeys("abc", rows))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("package", ["flwr", "cryptography"])
def test_flower_without_its_packages_starts_and_writes_nothing(package, hide, hospitals, tmp_path):
    """Attack 22, for deployments."""
    hide(package)
    before = set(tmp_path.iterdir())
    local = ("flower", "local", hospitals, "-k", 2, "-o", tmp_path / "run")
    site = ("flower", "site", hospitals / "oslo", "--name", "oslo", "--state", tmp_path / "state", "--insecure")
    link = ("flower", "link", tmp_path / "tls", "--database", tmp_path / "link.db")
    for command in (local, site, link):
        said = refusal(*command, code=3)
        assert package in said
        assert "pip install 'fedhk[flower,privacy]'" in said
    assert set(tmp_path.iterdir()) == before
    with pytest.raises(processes.FlowerError, match=package):
        processes.require_flower()


def test_keys_without_their_package_write_nothing(hide, tmp_path):
    hide("cryptography")
    for make in (keys.make_key, partial(keys.make_certificates, hosts=["localhost"], days=1)):
        with pytest.raises(FedHKError, match="pip install"):
            make(tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_pages_without_matplotlib_are_refused_before_the_fit(hide, hospitals, tmp_path):
    """Attack 22: the fit was done, and then there was no page."""
    hide("matplotlib.figure")
    hide("matplotlib")
    said = refusal("fit", hospitals, "-k", 2, *BUDGET, "-o", tmp_path / "run", code=3)
    assert 'pip install "fedhk[plot]"' in said
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "hospitals.ledger").exists()
