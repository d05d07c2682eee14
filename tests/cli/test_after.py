"""`fedhk after` and `fedhk report --after`: from a run folder and tables that clustering did not see."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedhk
from cli.calls import call, refusal
from fedhk.datasets import make_sites


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A federation with ids, a run, and a folder with what happened later, in another order."""
    root, rng = tmp_path_factory.mktemp("after"), np.random.default_rng(0)
    data = make_sites(3, 60, n_clusters=3, separation=9, shift=0.2, random_state=0)
    for name, views in data.sites.items():
        ids = np.arange(len(views[0])) + 1000
        for folder in ("data", "later"):
            (root / folder / name).mkdir(parents=True)
        for view, values in zip(("ecg", "lab"), views, strict=True):
            frame = pd.DataFrame(values, columns=[f"{view}-{i}" for i in range(values.shape[1])])
            frame.insert(0, "id", ids)
            frame.to_csv(root / "data" / name / f"{view}.csv", index=False)
        labels = data.site_labels[name]
        later = pd.DataFrame({"id": ids, "days": np.ceil(rng.exponential(20 + 40 * labels)), "died": 1})
        later["seen"] = "2024-03-01"
        later["walk"] = 400 - 50 * labels + rng.normal(size=len(labels))
        later.sample(frac=1, random_state=0).to_csv(root / "later" / name / "follow-up.csv", index=False)
    call("fit", root / "data", "--clusters", 3, "--seed", 0, "--out", root / "run")
    return root, data


def test_a_table_is_shown_and_written(folders, tmp_path):
    root, _ = folders
    said = call("after", "profile", root / "run", "--also", root / "later", "--out", tmp_path / "table.tex").stdout
    assert "follow-up: walk" in said
    assert "2024-03-01 (0 days)" in said
    assert "Circular" in said
    assert r"\toprule" in (tmp_path / "table.tex").read_text("utf-8")
    assert "exists already" in call("after", "profile", root / "run", "--out", tmp_path / "table.tex", code=5).stderr


def test_rows_of_two_folders_are_paired_by_id(folders):
    root, _ = folders
    call("after", "outcomes", root / "run", "--also", root / "later", "--time", "days", "--event", "died")
    said = call("after", "outcomes", root / "run", "--also", root / "later", "--value", "walk", "--json").stdout
    means = sorted(float(line["mean"].split()[0]) for line in json.loads(said)["table"])
    assert_allclose(means, [300, 350, 400], atol=5)


def test_stability_and_comparison_of_runs(folders, tmp_path):
    root, _ = folders
    found = json.loads(call("after", "stability", root / "run", "--halves", 4, "--json").stdout)
    assert found["verdicts"] == ["stable"] * 3
    call("fit", root / "data", "--clusters", 2, "--seed", 0, "--out", tmp_path / "two")
    found = json.loads(call("after", "compare", root / "run", tmp_path / "two", "--json").stdout)
    assert len(found["matched"]) == 2


def test_the_page_answers_what_a_clinician_asks(folders, tmp_path):
    root, _ = folders
    options = ("--after", "--also", root / "later", "--time", "days", "--event", "died")
    call("report", root / "run", *options, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    for words in (
        "Can the clusters be trusted?",
        "is stable and can be trusted",
        "What is special about each cluster?",
        "What becomes of each cluster?",
        "has the event (died) sooner than the others at the same site",
        "Sites agree on that, as far as chance lets one tell",
        "at risk",
    ):
        assert words in page, words


def test_what_does_not_go_together_is_refused(folders, tmp_path):
    root, _ = folders
    assert "no effect without --after" in call("report", root / "run", "--time", "days", code=2).stderr
    assert "does not go with --site" in call("report", root / "run", "--after", "--site", "site-00", code=2).stderr
    run, later = root / "run", root / "later"
    assert (
        "is no column of the further tables"
        in call("after", "outcomes", run, "--also", later, "--event", "x", code=3).stderr
    )
    assert "have a view 'ecg'" in call("after", "profile", run, "--also", root / "data", code=3).stderr
    (tmp_path / "few" / "site-00").mkdir(parents=True)
    pd.DataFrame({"id": [1000], "died": [1]}).to_csv(tmp_path / "few" / "site-00" / "later.csv", index=False)
    assert "have no site 'site-01'" in call("after", "profile", run, "--also", tmp_path / "few", code=3).stderr
    assert "--data" in call("after", "profile", run, "--data", tmp_path / "nothing", code=3).stderr


def test_what_clustering_saw_is_no_outcome(folders, tmp_path):
    root, _ = folders
    for site in sorted((root / "data").iterdir()):
        shutil.copytree(site, tmp_path / "data" / site.name)
        later = pd.read_csv(root / "later" / site.name / "follow-up.csv")
        later[["id", "days", "died"]].to_csv(tmp_path / "data" / site.name / "record.csv", index=False)
    run = tmp_path / "run"
    call("fit", tmp_path / "data", "--clusters", 3, "--seed", 0, "--out", run)
    asked = ("--also", root / "later", "--time", "days", "--event", "died")
    said = refusal("after", "outcomes", run, *asked, code=3)
    assert "time='days' is a column of view 'record', which made the clusters" in said
    said = refusal("report", run, "--after", *asked, code=3)
    assert "'days' is in view 'record', which made the clusters" in said
    call("after", "outcomes", run, "--also", root / "later", "--value", "walk")


def test_a_column_of_two_further_tables_is_refused(folders, tmp_path):
    root, _ = folders
    for site in sorted((root / "later").iterdir()):
        shutil.copytree(site, tmp_path / site.name)
        shutil.copy(site / "follow-up.csv", tmp_path / site.name / "again.csv")
    said = refusal("after", "outcomes", root / "run", "--also", tmp_path, "--event", "died", code=3)
    assert "'died' is a column of 2 further tables, again and follow-up" in said


@pytest.mark.parametrize("said_by", ["dictionary", "option"])
def test_further_tables_have_the_ids_of_the_run(folders, tmp_path, said_by):
    root, _ = folders
    for folder in ("data", "later"):
        for path in (root / folder).glob("*/*.csv"):
            target = tmp_path / folder / path.relative_to(root / folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            pd.read_csv(path).rename(columns={"id": "patient_id"}).to_csv(target, index=False)
    data, run = tmp_path / "data", tmp_path / "run"
    named = ("--id", "patient_id")
    if said_by == "dictionary":
        call("dictionary", data, *named)
        named = ()
    call("fit", data, "--clusters", 3, "--seed", 0, *named, "--out", run)
    asked = ("after", "outcomes", run, "--value", "walk", "--json", "--also")
    expected = call("after", "outcomes", root / "run", "--value", "walk", "--json", "--also", root / "later").stdout
    assert call(*asked, tmp_path / "later").stdout == expected
    assert "Say which it is (--id NAME)" in refusal(*asked, root / "later", code=3)
    assert call(*asked, root / "later", "--id", "id").stdout == expected
    page = ("report", run, "--out", tmp_path / "page.html")
    call(*page, "--after", "--also", tmp_path / "later", "--value", "walk")
    assert "--id has no effect without --after" in call(*page, "--force", "--id", "id", code=2).stderr
    data.rename(tmp_path / "moved")
    (tmp_path / "moved" / "dictionary.toml").unlink(missing_ok=True)
    assert call(*asked, tmp_path / "later", "--data", tmp_path / "moved").stdout == expected


def test_a_run_with_a_budget_is_not_asked_without_one(folders, tmp_path):
    root, _ = folders
    options = ("--epsilon", 50, "--delta", 1e-3, "--bounds", "-20,20", "--max-rounds", 2)
    call("fit", root / "data", "--clusters", 2, "--seed", 0, *options, "--out", tmp_path / "private")
    assert "needs one of its own" in call("after", "profile", tmp_path / "private", code=3).stderr


def test_a_report_of_a_model_has_what_was_found_after_it(folders):
    _, data = folders
    model = fedhk.EFKMVC(3, random_state=0).fit(data.sites)
    found = [fedhk.profile(model, data.sites), fedhk.outcomes(model, data.sites, event=_events(data))]
    other = fedhk.EFKMVC(2, random_state=0).fit(data.sites)
    found += [fedhk.compare(model, other, data.sites), fedhk.outcomes(model, data.sites, value=_events(data))]
    page = fedhk.plot.report(model, data.sites, found=found).page
    for title in ("What is special", "How often does it happen", "Beside another model", "How does it differ"):
        assert title in page
    with pytest.raises(TypeError, match="found has a str"):
        fedhk.plot.report(model, data.sites, found=["profile"])


def _events(data):
    return {site: (labels == 0).astype(float) for site, labels in data.site_labels.items()}


def test_new_rows_are_placed_with_reasons(folders, tmp_path):
    root, data = folders
    new = tmp_path / "new" / "site-00"
    shutil.copytree(root / "data" / "site-00", new)
    table = pd.read_csv(new / "lab.csv")
    table.loc[4, "lab-1"] = 1e6
    table.to_csv(new / "lab.csv", index=False)
    shutil.copytree(root / "data" / "site-01", tmp_path / "new" / "elsewhere")
    out = tmp_path / "placed.csv"
    said = call("after", "place", root / "run", tmp_path / "new", "--out", out).stdout
    assert "belongs nowhere" in said
    placed = pd.read_csv(out)
    assert placed["row"].str.startswith("elsewhere: 1").sum() == len(data.site_labels["site-01"])
    placed = placed[placed["row"].str.startswith("site-00")].reset_index(drop=True)
    assert placed["row"].tolist() == [f"site-00: {i}" for i in range(1000, 1000 + len(placed))]
    assert "lab: lab-1" in placed.loc[4, "too far"]
    assert placed["too far"].notna().sum() <= 2
    assert placed["reasons"].notna().all()
    labels = data.site_labels["site-00"]
    assert all(placed["cluster"][labels == k].drop(4, errors="ignore").nunique() == 1 for k in range(3))
    found = json.loads(call("after", "place", root / "run", new, "--json").stdout)
    assert found["outliers"] >= 1
    assert found["table"][0]["row"] == "1000"
    assert "rare=2.0 must be above 0 and below 1" in refusal("after", "place", root / "run", new, "--rare", 2, code=3)
