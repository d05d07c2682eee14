"""Text that comes from sites and files commands no terminal and no browser."""

from __future__ import annotations

import json
import logging

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cli.calls import call, refusal
from fedhk import EFKMVC, HeatKernelMVC
from fedhk._text import is_printable, printable
from fedhk.cli import console
from fedhk.data.folders import write_site
from fedhk.errors import DataError, MessageError
from fedhk.federation.engines.remote import RemoteSites, SitesError
from fedhk.federation.messages import Message, encode
from fedhk.federation.phases.describe import ViewDescription, check_descriptions
from fedhk.federation.remote.site import refusal as refuse
from fedhk.report.rows import read_fitted
from fedhk.summary.html import escape, table

# ESC, BEL, a new line, a carriage return, the one-byte CSI, RTL override, line separator, delete
HOSTILE = ["\x1b[2J", "\x07", "\nError: pay", "\r", "\x9b31m", "\u202etxt.exe", "\u2028", "\x7f"]


def is_safe(text):
    return all(is_printable(line) for line in text.split("\n"))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_does_not_show_is_written_out(hostile):
    assert not is_printable(hostile)
    assert is_printable(printable(hostile))
    assert hostile.strip("\n\r\x07\x1b\x9b\u202e\u2028\x7f") in printable(hostile)


def test_other_letters_and_spaces_stay_as_they_are():
    for text in ("", "Zürich", "東京", "α-β [1] *", "no\u00a0break", "wide\u3000space"):
        assert is_printable(text)
        assert printable(text) == text


class Liar:
    """A transport whose only site answers with a reason of its choice."""

    def __init__(self, reason):
        self.reason = reason

    def nodes(self):
        return [1]

    def send(self, payloads, timeout):
        return {node: refuse("oslo", 0, self.reason) for node in payloads}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_reasons_of_sites_are_printable_where_they_arrive(hostile, caplog):
    """Attack 16: ESC in a refusal reached the coordinator's terminal."""
    engine = RemoteSites(Liar(f"no {hostile} rows"), expected=["oslo"], wait=0.0)
    with caplog.at_level(logging.DEBUG), pytest.raises(SitesError) as caught:
        engine.describe()
    assert is_printable(str(caught.value))
    assert "rows" in str(caught.value)
    assert all(is_printable(record.getMessage()) for record in caplog.records)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_reasons_in_the_history_are_printable(hostile, monkeypatch):
    """Attack 16, in a run: whatever a site or a transport says, what is kept of it is printable."""
    rows = {name: [np.random.default_rng(number).normal(size=(20, 2))] for number, name in enumerate("abc")}
    real = __import__("fedhk.federation.engines.inprocess", fromlist=["x"]).InProcessEngine.exchange

    def exchange(self, requests):
        answers = real(self, requests)
        answers["b"] = MessageError(f"no {hostile} rows") if hostile != "\x07" else RuntimeError(hostile)
        return answers

    monkeypatch.setattr("fedhk.federation.engines.inprocess.InProcessEngine.exchange", exchange)
    model = EFKMVC(2, n_init=1, random_state=0, max_rounds=2, tol=0).fit(rows)
    reasons = [why for record in model.history_ for why in record["refused"].values()]
    assert reasons
    assert all(map(is_printable, reasons))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_of_views_and_columns_that_do_not_show_are_refused(hostile, tmp_path):
    """Attack 16: ESC in the name of a view."""
    for view in (ViewDescription(hostile, 1, None), ViewDescription("ecg", 1, (hostile,))):
        with pytest.raises(MessageError, match="characters that do not show") as caught:
            check_descriptions((view,), "oslo")
        assert is_printable(str(caught.value))
    rows = np.arange(6.0).reshape(3, 2)
    with pytest.raises(ValueError, match="characters that do not show"):
        HeatKernelMVC(2).fit({hostile: rows})
    with pytest.raises(DataError, match="characters that do not show"):
        EFKMVC(2).fit({"oslo": {"ecg": pd.DataFrame(rows, columns=["a", hostile])}})
    write_site(tmp_path / "data" / "oslo", {"ecg": rows}, columns={"ecg": ["a", f"b{hostile}c"]})
    said = refusal("info", tmp_path / "data", code=3)
    assert "must be printable" in said
    assert is_printable(said)


@pytest.mark.parametrize("hostile", [*HOSTILE, "[red]", "[link=http://x]", "[/]"])
def test_terminals_get_text_and_no_commands(hostile, capsys):
    """Attack 16: neither the terminal's own nor those of rich."""
    console.say(f"Error: {hostile}")
    console.say_notes([hostile])
    console.show(console.make_table(hostile, ("site",), [(hostile,)]))
    console.show(console.make_facts_table(hostile, [(hostile, hostile)]))
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert printable(hostile).strip()[:6] in out
    found = console.to_json({hostile: [hostile]})
    assert is_safe(found)
    assert json.loads(found) == {hostile: [hostile]}


def test_commands_that_read_a_hostile_run_folder_print_text(hospitals, tmp_path):
    """Attack 16: run folders come from elsewhere too."""
    run, hostile = tmp_path / "run", "".join(HOSTILE)
    call("fit", hospitals, "-k", 2, "-o", run)
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"stop_reason": hostile, "algorithm": hostile, "refused": {"oslo": hostile}}
    summary["sites"][f"x{hostile}"] = summary["sites"].pop("oslo")
    summary["views"][0]["name"] = hostile
    (run / "summary.json").write_text(json.dumps(summary))
    for options in ((), ("--json",)):
        assert is_safe(call("info", run, *options).output)
    history = json.loads((run / "history.json").read_text())
    history[0]["refused"] = {"oslo": f"{hostile}<script>"}
    (run / "history.json").write_text(json.dumps(history))
    summary["sites"]["oslo"] = summary["sites"].pop(f"x{hostile}")
    (run / "summary.json").write_text(json.dumps(summary))
    call("report", run, "--force")
    page = (run / "report.html").read_text("utf-8")
    assert not set(page) & {"\x1b", "\x07", "\x9b", "\u202e", "\u2028", "\x7f"}
    assert "&lt;script&gt;" in page


def test_an_error_is_one_printable_line(tmp_path):
    result = CliRunner().invoke(__import__("fedhk.cli", fromlist=["app"]).app, ["info", str(tmp_path / "a\x1b[2Jb\nc")])
    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1
    assert is_safe(result.stderr)


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '" onmouseover="x'])
def test_pages_show_names_and_run_nothing(hostile):
    """Attack 16, on pages: names are text there."""
    assert not set("<>\"'") & set(escape(hostile))
    rows = {
        f"{hostile[:20]}{n}": {f"v{hostile}": np.random.default_rng(n).normal(size=(20, 2)) + 5 * (n % 2)}
        for n in range(3)
    }
    model = EFKMVC(2, n_init=1, random_state=0, max_rounds=2, tol=0).fit(rows)
    from fedhk.report.page import render  # noqa: PLC0415 - slow to load

    page = render(read_fitted(model, rows))
    assert hostile not in page
    assert hostile not in model._repr_html_()


def test_pages_have_no_characters_that_do_not_show():
    for hostile in HOSTILE:
        shown = str(table(("site",), [(f"a{hostile}",)]))
        assert is_safe(shown)


def test_a_message_cannot_have_a_site_name_that_does_not_show():
    for hostile in HOSTILE:
        with pytest.raises(MessageError):
            encode(Message("hello", f"a{hostile}", 0))
