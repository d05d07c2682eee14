"""`fedhk flower profile` and the other questions refuse what cannot be asked before any site is asked."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedhk.errors import DataError
from flower_cli import call_flower

BUDGET = ("--insecure", "--epsilon", 0.5, "--delta", 1e-6)


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


@pytest.mark.parametrize("bounds", ["private", "dictionary"])
@pytest.mark.parametrize("question", [("profile",), ("outcomes", "--event", "died")])
def test_words_for_bounds_that_no_question_takes(app, tmp_path, question, bounds):
    name, *options = question
    code, output = call_flower(name, app, tmp_path / "run", *options, *BUDGET, "--bounds", bounds)
    assert code == 2
    assert f"{bounds!r} does not go with questions" in " ".join(output.replace("│", " ").split())


def test_a_dictionary_with_other_bounds(app, tmp_path):
    words = ("profile", app, tmp_path / "run", "--dictionary", tmp_path / "dictionary.toml")
    for more in ((*BUDGET, "--bounds", "0,1"), ("--insecure",)):
        code, output = call_flower(*words, *more)
        assert code == 2
        assert "no other --bounds" in " ".join(output.replace("│", " ").split())


class TestBeforeSitesAreAsked:
    @pytest.fixture(autouse=True)
    def nobody(self, monkeypatch):
        def connect(*_):
            raise DataError("now the sites would be asked")

        monkeypatch.setattr("fedhk.cli.flower.ask.connect", connect)

    def write(self, tmp_path, columns, view="image"):
        lines = [f"[ecg.ecg_{i}]\nkind = 'number'\nrange = [-20, 20]\n" for i in range(4)]
        lines += [f"[{view}.image_{i}]\nkind = 'number'\nrange = [-20, 20]\n" for i in range(columns)]
        (tmp_path / "dictionary.toml").write_text("\n".join(lines))
        return "--dictionary", tmp_path / "dictionary.toml"

    def test_rows_that_a_budget_needs_are_told(self, app, run):
        code, output = call_flower("profile", app, run, *BUDGET, "--bounds=-20,20")
        assert code == 3
        told = " ".join(output.split())
        assert "With epsilon=0.5 and 7 columns a cluster needs about" in told
        assert "clusters have 40 on average" in told
        assert told.index("a cluster needs") < told.index("now the sites would be asked")

    def test_a_dictionary_has_the_range_of_each_column(self, app, run, tmp_path):
        code, output = call_flower("profile", app, run, *BUDGET, *self.write(tmp_path, 3))
        assert code == 3
        assert "now the sites would be asked" in " ".join(output.split())
        code, output = call_flower("profile", app, run, *BUDGET, *self.write(tmp_path, 1))
        assert code == 3
        told = " ".join(output.split())
        assert "no range for image.image_1, image.image_2" in told
        assert "now the sites" not in told

    def test_bounds_that_no_run_takes(self, app, run):
        code, output = call_flower("profile", app, run, *BUDGET, "--bounds", "3,1")
        assert code == 3  # as of a fit
        assert "low < high" in " ".join(output.split())
        assert "now the sites" not in output
