"""The paper map names what exists: functions, their parameters, tests, and every label of the paper."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from fedhk import reference
from fedhk._names import PAPER_NAMES
from fedhk.reference.arrays import FORMULAS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "paper-map.md"
PAPER = ROOT.parent / "shared" / "paper" / "paper.tex"
COLUMNS = ["label", "what it says", "function", "test", "verdict", "why"]
VERDICTS = {"as written", "corrected", "false", "not shown"}
KINDS = ("eqn", "thm", "lem", "alg", "tab", "def", "prop")  # not figures and sections


def read_table(text):
    """The cells of the one table of the page; the header first."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return table[0], table[2:]


HEADER, ROWS = read_table(PAGE.read_text(encoding="utf-8"))
rows = pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("`") for row in ROWS])


def code(cell):
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def find(name):
    """What a dotted name under `fedhk` is: modules as far as they go, then attributes."""
    parts = name.split(".")
    module, found = "fedhk", importlib.import_module("fedhk")
    for i, part in enumerate(parts):
        if hasattr(found, part):
            found = getattr(found, part)
        elif inspect.ismodule(found):
            module = ".".join(["fedhk", *parts[: i + 1]])
            found = importlib.import_module(module)
        else:
            raise AttributeError(f"{type(found).__name__} has no {part!r}")
    return found


@cache
def names_in(path):
    """Names of the tests and classes of a test file, as pytest writes them after the file."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return {name for name in names if name.split("::")[-1].startswith(("test_", "Test"))}


def problems(row):
    """What is wrong with a row, in words."""
    if len(row) != len(COLUMNS):
        return [f"{len(row)} cells instead of {len(COLUMNS)}"]
    label, _, functions, tests, verdict, why = row
    found = [
        f"{label}: empty cell {name!r}" for name, cell in zip(COLUMNS, row, strict=True) if not cell.strip("`- –—")
    ]
    found += [f"{label}: {why!r} is not a sentence"] * (not why.endswith((".", ".)")))
    found += [f"{label}: verdict {verdict!r}"] * (verdict not in VERDICTS)
    found += [f"{label}: no function"] * (not code(functions)) + [f"{label}: no test"] * (not code(tests))
    return found + wrong_functions(label, functions) + wrong_tests(label, tests)


def wrong_functions(label, cell):
    found = []
    for name in code(cell):
        dotted, *parameters = re.split(r"[(), ]+", name.rstrip(")"))
        try:
            thing = find(dotted)
        except (AttributeError, ImportError) as error:
            found.append(f"{label}: fedhk.{dotted} does not exist: {error}")
        else:
            known = inspect.signature(thing).parameters if parameters else {}
            found += [f"{label}: fedhk.{dotted} has no parameter {p!r}" for p in parameters if p not in known]
    return found


def wrong_tests(label, cell):
    found = []
    for name in code(cell):
        path, _, test = name.partition("::")
        if not (ROOT / "tests" / path).is_file():
            found.append(f"{label}: tests/{path} does not exist")
        elif test not in names_in(path):
            found.append(f"{label}: tests/{path} has no {test}")
    return found


def test_the_table_has_its_columns():
    assert HEADER == COLUMNS
    assert len(ROWS) > 100


@rows
def test_every_row_is_complete_and_names_what_exists(row):
    assert problems(row) == []


def test_a_formula_that_is_in_two_files_is_named_with_its_file():
    names = {name.split("(")[0] for row in ROWS for name in code(row[2])}
    assert names & {f"reference.{formula}" for formula in FORMULAS} == set()


def test_every_label_has_one_row():
    labels = [row[0] for row in ROWS]
    assert sorted(labels) == sorted(set(labels))


@pytest.mark.parametrize("options", ["EfkmvcOptions", "TensorOptions", "FederationOptions", "PersonOptions"])
def test_every_reading_of_the_letter_is_explained(options):
    page = (PAGE.parent / "from-the-paper.md").read_text(encoding="utf-8")
    names = [part.name for part in fields(getattr(reference, options))]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_symbol_is_on_the_page_from_the_paper():
    page = (PAGE.parent / "from-the-paper.md").read_text(encoding="utf-8")
    table = page[page.index("## Symbols") : page.index("## Presets")]
    symbols = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    letters = set(re.findall(r"[A-Za-z]+(?:_\w+)?", symbols))
    spelt = {"lam", "lambda_", "lambda", "r", "r1", "r2", "r3"}  # other spellings of lambda_l and r_1
    assert set(PAPER_NAMES) - spelt <= letters | {letter.removesuffix("_l") for letter in letters}


def test_every_label_of_the_paper_is_there():
    if not PAPER.exists():
        pytest.skip("the paper's source is not here; the labels of the map are those it had")
    source = re.sub(r"(?<!\\)%.*", "", PAPER.read_text(encoding="utf-8"))
    labels = {label for label in re.findall(r"\\label\{([^}]+)\}", source) if label.split(":")[0] in KINDS}
    assert labels == {label for row in ROWS for label in code(row[0])}


GOOD = [
    "`eqn:KED`",
    "a",
    "`reference.ked`",
    "`model/test_passes.py::test_objective_never_rises`",
    "as written",
    "So.",
]


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        (1, "", "empty cell"),
        (1, "-", "empty cell"),
        (2, "words", "no function"),
        (2, "`reference.kde`", "does not exist"),
        (2, "`model.nowhere.ked`", "does not exist"),
        (2, "`reference.fked(lecture)`", "no parameter 'lecture'"),
        (3, "`model/test_two_pass.py::test_x`", "does not exist"),
        (3, "`model/test_passes.py::test_objective_rises`", "has no test_objective_rises"),
        (4, "perhaps", "verdict"),
        (5, "because", "not a sentence"),
    ],
)
def test_what_is_wrong_is_seen(column, cell, said):
    assert problems(GOOD) == []
    row = list(GOOD)
    row[column] = cell
    assert any(said in problem for problem in problems(row))
