"""`fedhk dictionary`: what it writes is what is then enforced."""

import numpy as np

from cli.calls import call, usage
from fedhk import read_dictionary
from fedhk.cli.config import read_config
from fedhk.data.folders import read_site
from fedhk.federation.remote.policy import read_policy
from fedhk.privacy import DifferentialPrivacy


def make_folder(folder, sex="F"):
    (folder / "oslo").mkdir(parents=True)
    (folder / "oslo" / "lab.csv").write_text("id;age;sex\n1;40,5;F\n2;51;M\n3;62;M\n")
    (folder / "rome").mkdir()
    (folder / "rome" / "lab.csv").write_text(f"id,age,sex\n1,39,{sex}\n2,61,M\n")


def test_what_is_written_is_enforced(tmp_path):
    make_folder(tmp_path / "a")
    said = call("dictionary", tmp_path / "a").stdout
    assert "2 columns" in said
    text = (tmp_path / "a" / "dictionary.toml").read_text()
    assert text.splitlines()[:2] == ["[lab.age]", 'kind = "number"']
    assert 'levels = ["F", "M"]' in text
    call("info", tmp_path / "a")
    (tmp_path / "a" / "rome" / "lab.csv").write_text("id,age,sex\n1,39,W\n")
    error = call("info", tmp_path / "a", code=3).stderr
    assert "site 'rome', file 'lab.csv': column 'sex' holds text, 'W' in row 1" in error


def test_a_dictionary_is_not_written_over(tmp_path):
    make_folder(tmp_path / "a")
    call("dictionary", tmp_path / "a", "--out", tmp_path / "d.toml")
    assert "--force replaces it" in call("dictionary", tmp_path / "a", "--out", tmp_path / "d.toml", code=5).stderr


def test_doubts_are_notes_or_with_strict_errors(tmp_path):
    make_folder(tmp_path / "a")
    (tmp_path / "a" / "rome" / "Thumbs.db").write_text("")
    fit = ("fit", tmp_path / "a", "--clusters", 2, "--scaling", "standard")
    error = call(*fit, "--out", tmp_path / "run", "--strict", code=3).stderr
    assert "--strict: site 'rome': passed over 'Thumbs.db'." in error
    assert not (tmp_path / "run").exists()
    assert "passed over" in call(*fit, "--out", tmp_path / "run").stderr


def make_dated(folder):
    rng = np.random.default_rng(0)
    for site in ("bern", "oslo", "rome"):
        (folder / site).mkdir(parents=True)
        group = rng.integers(2, size=60)
        rows = [
            f"{i},{40 + 20 * g + rng.normal():.2f},{'FM'[g]},2026-01-{1 + i % 28:02d},{g + i % 2 if i % 9 else -999}"
            for i, g in enumerate(group)
        ]
        (folder / site / "lab.csv").write_text("\n".join(["id,age,sex,day,score", *rows]))


def test_dates_and_codes_are_found(tmp_path):
    make_dated(tmp_path / "a")
    assert "lab/score: -999 is taken for a missing cell" in call("dictionary", tmp_path / "a").stderr
    known = read_dictionary(tmp_path / "a" / "dictionary.toml")["lab"]
    assert [entry.kind for entry in known.values()] == ["number", "category", "date", "number"]
    assert known["score"].missing == ("-999",)
    assert "missing = [-999]" in (tmp_path / "a" / "dictionary.toml").read_text()


def test_codes_are_written_as_files_have_them(tmp_path):
    """All digits, all codes of a column, and dates as dates; then such cells are missing."""
    for site, code, day in (("bern", "9999999", "31.12.9999"), ("oslo", "-1", "1900-01-01"), ("rome", "", "")):
        rows = [f"{2 + i / 40:g};2026-01-{1 + i % 28:02d}" for i in range(30)] + [f"{code};{day}"] * 4
        folder = tmp_path / "a" / site
        folder.mkdir(parents=True)
        (folder / "lab.csv").write_text("\n".join(["x;day", *rows]))
    call("dictionary", tmp_path / "a")
    known = read_dictionary(tmp_path / "a" / "dictionary.toml")["lab"]
    assert known["x"].missing == ("9999999",)  # -1 is not far enough from the others
    assert known["day"].missing == ("1900-01-01", "9999-12-31")
    for site in ("bern", "oslo"):
        assert np.isnan(read_site(tmp_path / "a" / site).views["lab"][-4:, 1]).all()


def test_ranges_of_the_dictionary_are_the_bounds_of_a_private_run(tmp_path):
    folder = tmp_path / "a"
    make_dated(folder)
    fit = ("fit", folder, "--clusters", 2, "--epsilon", 8, "--delta", 1e-3, "--secure", "--seed", 0)
    assert "needs --bounds too: there is no dictionary.toml" in usage(*fit, "--out", tmp_path / "run")
    call("dictionary", folder)
    path = folder / "dictionary.toml"
    assert "has no range for lab.age, lab.day, lab.score" in call(*fit, "--out", tmp_path / "run", code=3).stderr
    ranges = {"age": "[0, 120]", "day": "[2026-01-01, 2026-12-31]", "score": "[0, 3]"}
    text = path.read_text()
    for name, limits in ranges.items():
        text = text.replace(f"[lab.{name}]\n", f"[lab.{name}]\nrange = {limits}\n")
    path.write_text(text)
    call(*fit, "--out", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "What the columns are" in page
    assert "2026-01-01 to 2026-12-31" in page
    privacy = read_config(tmp_path / "run" / "config.toml").parameters["privacy"]
    assert privacy["bounds"] == [[[0.0, 0.0, 0.0, 20454.0, 0.0], [120.0, 1.0, 1.0, 20818.0, 3.0]]]
    app = ("flower", "init", tmp_path / "app", "--clusters", 2, "--epsilon", 8, "--delta", 1e-3)
    call(*app, "--dictionary", path)
    assert read_config(tmp_path / "app" / "fedhk.toml").parameters["privacy"]["bounds"] == privacy["bounds"]
    policy = tmp_path / "policy.toml"
    policy.write_text(f"epsilon = 8\nbounds = '{path}'\n")
    assert read_policy(policy).bounds == DifferentialPrivacy(8, 1e-3, privacy["bounds"]).bounds


def test_a_unit_error_names_the_unit(tmp_path):
    rng = np.random.default_rng(0)
    for number, site in enumerate(("bern", "oslo", "pisa", "rome")):
        (tmp_path / site).mkdir()
        rows = [f"{i},{(140 + 5 * rng.normal()) * (1000 if number == 3 else 1):.3f}" for i in range(40)]
        (tmp_path / site / "lab.csv").write_text("\n".join(["id,sodium", *rows]))
    (tmp_path / "dictionary.toml").write_text("[lab.sodium]\nunit = 'mmol/l'\n")
    said = " ".join(call("info", tmp_path).stdout.split())
    assert "rome: lab/sodium is about 1,000 times larger than elsewhere: another unit?" in said
    assert "By the data dictionary it is in mmol/l." in said


def test_the_page_has_units_and_dates(tmp_path):
    make_dated(tmp_path / "a")
    call("dictionary", tmp_path / "a")
    path = tmp_path / "a" / "dictionary.toml"
    path.write_text(path.read_text().replace("[lab.age]\n", "[lab.age]\nunit = 'years'\n"))
    call("fit", tmp_path / "a", "--clusters", 2, "--seed", 0, "--out", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "age (years)" in page
    assert "<td>2026-01-1" in page
