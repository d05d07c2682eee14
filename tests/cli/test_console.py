"""What commands say: errors and warnings of one line, JSON that can be parsed, tables that are cut."""

from __future__ import annotations

import json
import warnings

import pytest
import typer
from sklearn.exceptions import ConvergenceWarning

from cli.calls import call, refusal
from fedhk.cli.console import (
    MOST_ROWS,
    OutputExistsError,
    exit_codes,
    format_bytes,
    make_table,
    show_progress,
    show_warnings,
    to_json,
)
from fedhk.errors import DataError, QuorumError
from fedhk.estimators import efkmvc


class TestWarnings:
    def test_a_fit_that_did_not_converge_is_one_plain_note(self, hospitals, tmp_path):
        result = call("fit", hospitals, "-k", 3, "--max-rounds", 1, "--out", tmp_path / "run", "--json")
        (line,) = result.stderr.strip().splitlines()
        assert line.startswith("Note: EFKMVC did not converge within max_rounds=1. ")
        assert "Warning" not in line
        assert ".py" not in line
        assert json.loads(result.stdout)["converged"] is False

    def test_a_fit_that_converged_says_nothing(self, hospitals, tmp_path):
        assert call("fit", hospitals, "-k", 3, "--out", tmp_path / "run", "--json").stderr == ""

    def test_of_several_fits_the_same_note_is_shown_once(self, hospitals, tmp_path):
        words = ("-k", 3, "--max-rounds", 1, "--evaluate", "--out", tmp_path / "run")
        lines = call("fit", hospitals, *words).stderr.strip().splitlines()
        assert all(line.startswith("Note: ") for line in lines)
        assert len(lines) == len(set(lines))

    def test_are_shown_at_once_and_before_an_error(self, capsys):
        def fit():
            warnings.warn("mind\n  the gap", ConvergenceWarning, stacklevel=1)
            assert capsys.readouterr().err == "Note: mind the gap\n"
            raise ValueError("too late")

        with pytest.raises(typer.Exit), exit_codes():
            fit()
        assert capsys.readouterr().err == "Error: too late\n"

    def test_python_has_its_own_way_back_afterwards(self, capsys):
        with show_warnings():
            pass
        with pytest.warns(UserWarning, match="as ever"):
            warnings.warn("as ever", UserWarning, stacklevel=1)
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("x"), 1),
        (DataError("x"), 3),
        (ValueError("x"), 3),
        (FileNotFoundError("x"), 3),
        (QuorumError("x"), 4),
        (OutputExistsError("x"), 5),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error, code):
    with pytest.raises(typer.Exit) as caught, exit_codes():
        raise error
    assert caught.value.exit_code == code


def test_unexpected_errors_are_one_line_unless_debugging(hospitals, tmp_path, monkeypatch):
    def crash(*arguments):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(efkmvc, "check_clients", crash)
    arguments = ("fit", hospitals, "-k", 2, "-o", tmp_path / "run")
    assert "RuntimeError: out of luck" in refusal(*arguments, code=1)
    monkeypatch.setenv("FEDHK_DEBUG", "1")
    assert "Traceback" in call(*arguments, code=1).stderr


def test_numbers_that_json_lacks_are_null():
    assert json.loads(to_json({"a": float("nan"), 1: [float("inf"), (2.0,)]})) == {"a": None, "1": [None, [2.0]]}


def test_long_tables_are_cut():
    table = make_table("sites", ("site",), [(str(i),) for i in range(MOST_ROWS + 3)])
    assert table.row_count == MOST_ROWS + 1
    assert list(table.columns[0].cells)[-1] == "and 3 more"


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.50 kB"), (2e6, "2.00 MB"), (3e9, "3.00 GB")]
)
def test_bytes(number, text):
    assert format_bytes(number) == text


def test_there_is_no_bar_where_nobody_watches():
    with show_progress("models", 3) as progress:
        assert progress is None
