"""What the pages show is what happens: examples run, shown output is the output, links lead somewhere.

Examples of a page run in order, Python in one namespace, in a folder of their own. A block that is not run says why in
the comment above it, `<!-- not run: ... -->`; a page that needs an extra says so in `<!-- needs: package -->`. After
`print(...)` with a comment, the comment is what must be printed.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedhk
from fedhk.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
SYNTAX_ONLY = {"docs/deployment.md"}  # an app that Flower runs; tests/deploy runs the real one
SHELL_ELSEWHERE = {"docs/deployment.md", "docs/cli.md"}  # machines of their own; tests/cli
NEVER_RUN = {"text", "toml", "ini", "nginx", "csv", "bibtex", "{eval-rst}", "{toctree}"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    line: int
    reason: str  # why it is not run; empty where it is


def read_blocks(text):
    """The fenced blocks of a page, in order."""
    blocks, reason, lines = [], "", text.splitlines()
    inside = None
    for number, line in enumerate(lines, start=1):
        if inside is None and line.startswith("```"):
            inside = (line[3:].split(" ")[0].strip(), number, [])
        elif inside is not None and line.startswith("```"):
            language, start, code = inside
            blocks.append(Block(language, "\n".join(code) + "\n", start, reason))
            inside, reason = None, ""
        elif inside is not None:
            inside[2].append(line)
        elif found := re.fullmatch(r"<!-- not run: (.+) -->", line.strip()):
            reason = found.group(1)
        elif line.strip():
            reason = ""
    assert inside is None, "a fence is not closed"
    return blocks


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def runs(page, block):
    """Whether the tests run a block."""
    if block.reason or block.language in NEVER_RUN:
        return False
    if block.language == "python":
        return name_of(page) not in SYNTAX_ONLY
    return block.language == "sh" and name_of(page) not in SHELL_ELSEWHERE


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
run_pages = [page for page in PAGES if any(runs(page, block) for block in read_blocks(page.read_text("utf-8")))]


def run_python(code, namespace, where):
    """Run statements one by one; compare what each prints with the comment behind it."""
    comments = {
        token.start[0]: token.string[1:].strip()
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT
    }
    for statement in ast.parse(code, where).body:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code_of_statement = compile(ast.Module([statement], []), where, "exec", dont_inherit=True)
            exec(code_of_statement, namespace)  # noqa: S102 - the page's own code
        shown = comments.get(statement.end_lineno)
        if shown is not None and ast.unparse(statement).startswith("print("):
            assert printed.getvalue().strip() == shown, f"{where}, line {statement.lineno} of the block"


def run_shell(code, folder):
    """Run commands: those of `fedhk` in this process, which saves starting Python for each, others by bash."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["fedhk"] and not set(line) & set("|&;<>$*"):
            done = CliRunner().invoke(app, words[1:], catch_exceptions=False)
            assert done.exit_code == 0, f"{line}\n{done.output}"
        elif words:
            run_bash(line, folder)


def run_bash(line, folder):
    """Run a line as a user would, with the `fedhk` of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(  # noqa: S603 - the commands of our own pages
        ["bash", "-euo", "pipefail", "-c", line],  # noqa: S607 - whichever bash there is
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_page(text, folder, where="page", wanted=lambda block: not block.reason):
    """Run the blocks of a page."""
    namespace = {"__name__": "__page__"}
    for block in read_blocks(text):
        if wanted(block) and block.language == "python":
            run_python(block.code, namespace, f"{where}:{block.line}")
        elif wanted(block) and block.language == "sh":
            run_shell(block.code, folder)


@pytest.mark.parametrize("page", run_pages, ids=name_of)
def test_examples_run(page, tmp_path, monkeypatch):
    text = page.read_text("utf-8")
    for needed in re.findall(r"<!-- needs: (\S+) -->", text):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    run_page(text, tmp_path, name_of(page), lambda block: runs(page, block))


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in SYNTAX_ONLY], ids=name_of)
def test_examples_that_are_run_elsewhere_are_python(page):
    for block in read_blocks(page.read_text("utf-8")):
        if block.language == "python":
            compile(block.code, f"{name_of(page)}:{block.line}", "exec")


@every_page
def test_every_block_says_what_it_is(page):
    if name_of(page) in SHELL_ELSEWHERE:
        pytest.skip("commands of this page are tested in tests/cli and tests/deploy")
    known = {"python", "sh", *NEVER_RUN}
    unknown = [block for block in read_blocks(page.read_text("utf-8")) if block.language not in known]
    assert not unknown, "a block without a language the tests know would not be run"


class TestRunner:
    """The runner can fail."""

    def test_a_broken_block_fails(self, tmp_path):
        with pytest.raises(NameError):
            run_page("```python\nx = 1\n```\n```python\nprint(x + undefined)\n```\n", tmp_path)

    def test_another_output_fails(self, tmp_path):
        run_page("```python\nprint(1 + 1)  # 2\n```\n", tmp_path)
        with pytest.raises(AssertionError, match="line 1"):
            run_page("```python\nprint(1 + 1)  # 3\n```\n", tmp_path)

    def test_a_command_that_fails_fails(self, tmp_path):
        run_page("```sh\nfedhk --version\nfedhk --version | cat\n```\n", tmp_path)
        for command in ("fedhk info nowhere/", "fedhk info nowhere/ | cat", "ls nowhere/"):
            with pytest.raises(AssertionError, match="nowhere"):
                run_page(f"```sh\n{command}\n```\n", tmp_path)

    def test_only_a_reason_right_above_a_block_skips_it(self, tmp_path):
        run_page("<!-- not run: it is wrong -->\n```python\n1 / 0\n```\n", tmp_path)
        with pytest.raises(ZeroDivisionError):
            run_page("<!-- not run: it is wrong -->\nText.\n```python\n1 / 0\n```\n", tmp_path)


# ---------------------------------------------------------------------------------------------------------- docstrings

SOURCES = [
    path for path in sorted(Path(fedhk.__file__).parent.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_examples_of_docstrings_run(path):
    name = ".".join(["fedhk", *path.relative_to(Path(fedhk.__file__).parent).with_suffix("").parts])
    failed, tried = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert (failed, tried > 0) == (0, True)


def test_every_public_name_is_in_the_reference():
    text = (DOCS / "api.md").read_text("utf-8")
    names = [name for name in fedhk.__all__ if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"\bfedhk\.{name}\b", text)] == []


# -------------------------------------------------------------------------------------------------- names in the source

SOURCE = Path(fedhk.__file__).parent
CODE_PAGES = [DOCS / "architecture.md", DOCS / "extending.md", ROOT / "CONTRIBUTING.md"]


def names_of(path):
    """What a module defines: functions, classes, their methods, and names that are assigned."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def wrong_names(text):
    """Files of the source that a page names and that do not exist, and names that are not in their file."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for path in re.findall(r"`([\w/]+(?:\.py|/))`", text):
        wrong += [] if (SOURCE / path).exists() or (ROOT / path).exists() else [path]
    for name, path in re.findall(r"`([\w.]+)`\s+in\s+`([\w/]+\.py)`", text):
        here = (SOURCE / path).exists() and name in names_of(SOURCE / path)
        wrong += [] if here else [f"{name} in {path}"]
    return wrong


@pytest.mark.parametrize("page", CODE_PAGES, ids=name_of)
def test_files_and_names_of_the_source_are_there(page):
    assert wrong_names(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_files_of_tests_are_there(page):
    named = re.findall(r"(?<![\w/])(?:tests|benchmarks)/[\w/]+\.py", page.read_text("utf-8"))
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_a_name_that_is_not_there_is_seen():
    text = "`conduct` in `federation/run.py`, `Run.go` in\n`federation/run.py`, `nowhere.py`, `nowhere/`"
    assert wrong_names(text) == ["nowhere.py", "nowhere/", "Run.go in federation/run.py"]


# --------------------------------------------------------------------------------------------------------------- links


def links_of(text):
    """Targets of the links and pictures of a page, code left out."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]+`", "", text)
    return re.findall(r"\]\(<?([^)\s>]+)>?\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)


def anchors_of(text):
    """What headings of a page can be linked by, as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page, text):
    """Links of a page that lead nowhere."""
    broken = []
    for link in links_of(text):
        if re.match(r"https?:|mailto:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target) if target else page
        there = path.exists() and ROOT in path.resolve().parents
        if there and anchor:
            there = anchor in anchors_of(path.read_text("utf-8") if target else text)
        broken += [] if there else [link]
    return broken


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_somewhere(page):
    assert broken_links(page, page.read_text("utf-8")) == []


def test_a_link_to_nowhere_is_seen():
    text = "# One two\n[a](#one-two) [b](#three) [c](nowhere.md) [d](docs/api.md#nothing) ![e](docs/none.svg)\n"
    assert broken_links(ROOT / "README.md", text) == ["#three", "nowhere.md", "docs/api.md#nothing", "docs/none.svg"]


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for page in PAGES:
        for block in read_blocks(page.read_text("utf-8")):
            if block.language == "{toctree}":
                entries = [line.strip() for line in block.code.splitlines() if line.strip() and ":" not in line]
                listed |= {found for entry in entries for found in page.parent.glob(f"{entry}.md")}
    assert {page for page in PAGES if DOCS in page.parents} - listed == {DOCS / "index.md"}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CITATION.cff"], ids=name_of)
def test_pages_name_no_path_of_a_machine(page):
    text = page.read_text("utf-8")
    assert not re.search(r"(?<![\w./])/(?:work|home|root|tmp|Users)/|\.\./shared", text)


def test_the_citation_is_of_this_version():
    assert f"version: {fedhk.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
