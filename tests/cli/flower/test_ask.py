"""`fedhk flower profile` and the other questions refuse what cannot be asked before any site is asked."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flower_cli import call_flower


@pytest.fixture
def app(tmp_path):
    call_flower("init", tmp_path / "app", "--clusters", 3)
    return tmp_path / "app"


@pytest.mark.parametrize("question", ["profile", "stability", "limits"])
def test_a_run_that_is_not_there(app, tmp_path, question):
    code, output = call_flower(question, app, tmp_path / "run", "--insecure")
    assert code == 3
    assert "holds no finished run" in output


def test_another_run_that_is_not_there(app, tmp_path):
    code, output = call_flower("compare", app, tmp_path / "run", tmp_path / "last-year", "--insecure")
    assert code == 3
    assert "There is no model" in output


def test_a_budget_without_the_range_of_its_columns(app, tmp_path):
    words = ("outcomes", app, tmp_path / "run", "--event", "died", "--insecure", "--epsilon", 1, "--delta", 1e-5)
    code, output = call_flower(*words)
    assert code == 2
    assert "--bounds: is needed" in output


def test_a_table_that_is_there_already(app, tmp_path):
    (tmp_path / "table.csv").write_text("mine")
    assert call_flower("profile", app, tmp_path / "run", "--insecure", "--out", tmp_path / "table.csv")[0] == 5
    assert (tmp_path / "table.csv").read_text() == "mine"
