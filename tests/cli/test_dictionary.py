"""`fedhk dictionary`: what it writes is what is then enforced."""

from cli.calls import call


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
