"""All methods on one's own sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedhk import EFKMVC, HeatKernelMVC, from_paper
from fedhk.datasets import make_sites
from fedhk.errors import DataError
from fedhk.evaluation.bench import ABLATIONS, ALONE, METHODS, QUALITY, bench
from fedhk.evaluation.citations import BIBTEX

QUICK = ["balanced k-means", "k-FED", "EFKMVC"]


@pytest.fixture(scope="module")
def data():
    return make_sites(3, 60, n_clusters=3, n_features=(4, 3), separation=9, random_state=0)


def test_every_method_runs_and_is_measured(data):
    found = bench(data.sites, data.site_labels, n_seeds=1, ablations=True)
    assert [record["method"] for record in found.records] == [*METHODS, *ABLATIONS]
    for record in found.records:
        assert np.isnan(record["ARI"]) == (record["rows"] == ALONE)
        assert record["site ARI"] <= 1
        assert np.isnan(record["kB a site"]) == (record["rows"] != "federated")
    best = {record["method"]: record["ARI"] for record in found.records}
    assert best["EFKMVC"] > 0.95
    assert best["balanced k-means"] > 0.95


def test_seeds_spread_and_table(data, tmp_path):
    found = bench(data.sites, data.site_labels, methods=QUICK, n_seeds=2, random_state=5)
    assert [record["seed"] for record in found.records] == [5, 6] * len(QUICK)
    (kmeans, *_), table = found.summary(), found.table()
    expected = [record["ARI"] for record in found.records[:2]]
    assert kmeans["ARI"] == np.mean(expected)
    assert kmeans["ARI ±"] == pytest.approx(np.std(expected, ddof=1))
    assert "180 rows at 3 sites, 3 clusters, 2 seeds" in table.title
    assert r"\toprule" in table.to_latex()
    assert table.save(tmp_path / "table.tex").is_file()
    assert [text.get_text() for text in found.draw().get_yticklabels()] == QUICK[::-1]


def test_labels_are_only_for_measuring(data):
    numbers = bench(data.sites, data.site_labels, methods=["EFKMVC"], n_seeds=1).records[0]
    words = {site: [f"class {c}" for c in classes] for site, classes in data.site_labels.items()}
    words["site-00"][0] = None
    named = bench(data.sites, words, methods=["EFKMVC"], n_seeds=1).records[0]
    assert named["kB a site"] == numbers["kB a site"]
    assert named["ARI"] == pytest.approx(numbers["ARI"], abs=0.05)


@pytest.fixture
def with_gaps(data):
    sites = {site: [view.copy() for view in views] for site, views in data.sites.items()}
    sites["site-00"][0][0, 0] = np.nan
    sites["site-01"][1] = None
    return sites


def test_gaps_are_taken_by_all_but_the_paper_and_the_table_says_so(data, with_gaps):
    said = []
    methods = [*QUICK, "each site alone", "HeatKernelMVC", "the paper's Algorithm 1"]
    found = bench(with_gaps, data.site_labels, methods=methods, n_seeds=1, report=said.append)
    assert [record["method"] for record in found.records] == methods
    *others, paper = found.summary()
    assert not any(np.isnan(record["site ARI"]) for record in others)
    assert all(np.isnan(paper[name]) for name in QUALITY)
    why = "the paper has no rule for missing cells and views, and site 'site-00' has some in view 'view_0'"
    assert said[-1] == f"the paper's Algorithm 1 is not run: {why}"
    note = f"Not run: the paper's Algorithm 1; {why}."
    table = found.table()
    assert table.rows[-1] == ("the paper's Algorithm 1", "federated", *["–"] * 7)
    assert note in str(table)
    assert "Not run: the paper" in table.to_html()
    assert "Not run: the paper's Algorithm 1; the paper has no rule" in table.to_latex()
    drawn = [text.get_text() for text in found.draw().get_yticklabels()]
    assert "the paper's Algorithm 1" not in drawn


def test_sites_that_none_of_the_methods_takes_are_refused(data, with_gaps):
    paper = ["the paper's Algorithm 1", "the paper's Algorithm 2"]
    with pytest.raises(DataError, match=r"None of the methods can be run.*Algorithm 2: the paper has no rule"):
        bench(with_gaps, data.site_labels, methods=paper, n_seeds=2)
    with pytest.raises(DataError, match=r"None of the methods can be run.*No method was given"):
        bench(data.sites, data.site_labels, methods=[])


def test_cells_are_written_as_in_the_table(data):
    found = bench(data.sites, data.site_labels, methods=["each site alone", "k-FED"], n_seeds=2)
    (_, k_fed), rows = found.summary(), found.table().rows
    assert found.cells("ARI") == {row[0]: row[2] for row in rows}
    assert found.cells("ARI", 2) == {"each site alone": "–", "k-FED": f"{k_fed['ARI']:.2f} ± {k_fed['ARI ±']:.2f}"}
    with pytest.raises(ValueError, match="did you mean 'ARI'"):
        found.cells("ARL")


def test_tables_have_the_columns_and_digits_that_are_asked_for(data):
    found = bench(data.sites, data.site_labels, methods=["balanced k-means", "k-FED", "EFKMVC"], n_seeds=2)
    table = found.table(["site ARI", "rows"], digits=1)
    assert table.columns == ("method", "site ARI", "rows")
    assert [row[2] for row in table.rows] == ["pooled", "federated", "federated"]
    assert all(row[1] == cell for row, cell in zip(table.rows, found.cells("site ARI", 1).values(), strict=True))
    assert "ARI, NMI" not in str(table)
    assert "Rows are pooled for balanced k-means." in table.notes
    assert any(note.startswith("Mean ± sample standard deviation over seeds of the methods") for note in table.notes)
    with pytest.raises(ValueError, match=r"table has no measure 'ARl'; did you mean 'ARI'"):
        found.table(["ARl"])
    with pytest.raises(TypeError, match=r"columns='ARI' must be a sequence of names"):
        found.table("ARI")


def test_latex_has_what_a_page_has_room_for_and_the_best_in_bold(data):
    found = bench(data.sites, data.site_labels, methods=["each site alone", "k-FED", "EFKMVC"], n_seeds=1)
    table, best = found.table(), max(record["NMI"] for record in found.summary()[1:])
    latex, page = table.to_latex(), table.to_html()
    assert "method & ARI & NMI & ACC & site ARI" in latex
    assert "kB a site" in page
    for text, bold in ((latex, rf"\textbf{{{best:.3f}}}"), (page, f"<b>{best:.3f}</b>")):
        assert bold in text
    column = table.columns.index("NMI")
    for line, row in enumerate(table.rows):
        assert ((line, column) in table.bold) == (row[column] == f"{best:.3f}")
    assert "kB a site" in found.table(["ARI", "kB a site"]).to_latex()
    assert not bench(data.sites, data.site_labels, methods="EFKMVC", n_seeds=1).table().bold


def test_figures_keep_their_names_within_the_page(data):
    alone = bench(data.sites, data.site_labels, methods=["each site alone"], n_seeds=1)
    both = bench(
        data.sites, data.site_labels, methods=["k-FED", "balanced k-means", "federated fuzzy c-means"], n_seeds=1
    )
    for found, name in ((alone, "adjusted Rand index, mean of sites"), (both, "adjusted Rand index")):
        axes = found.draw()
        figure = axes.figure
        figure.draw_without_rendering()
        assert axes.texts[0].get_text().startswith(name)
        for text in (*axes.texts, *axes.get_yticklabels()):
            box = text.get_window_extent()
            assert box.x0 >= 0
            assert box.x1 <= figure.bbox.x1
            assert box.y1 <= figure.bbox.y1


def test_rows_that_are_not_measured_are_said(data):
    labels = dict(data.site_labels) | {"site-02": [None] * len(data.site_labels["site-02"])}
    n_known = 180 - len(labels["site-02"])
    found = bench(data.sites, labels, methods=["k-FED"], n_seeds=1)
    assert found.notes == (
        f"Measured on the {n_known} of 180 rows that have a class; no row of site 'site-02' has one.",
    )
    assert bench(data.sites, data.site_labels, methods=["k-FED"], n_seeds=1).notes == ()


def test_methods_that_did_not_converge_are_said(data):
    own = {"a short fit": EFKMVC(max_rounds=1, tol=1e-12, n_init=1, init="random")}
    found = bench(data.sites, data.site_labels, methods=[], estimators=own, n_seeds=2)
    assert "a short fit, 2 of 2 seeds: did not converge within max_rounds=1." in found.notes


def test_a_fit_that_gives_back_its_start_or_a_model_between_is_said():
    hard = make_sites(5, 25, n_clusters=3, n_features=(9, 6), shift=1.0, random_state=1)
    own = {name: from_paper(n, fuzzifier=1.1, scaling="standard") for name, n in (("a", 2), ("b", 3))}
    found = bench(hard.sites, hard.site_labels, methods=[], estimators=own, n_seeds=1)
    assert "a, 1 of 1 seed: gives back its start: none of its rounds lowered the objective." in found.notes
    assert "b, 1 of 1 seed: did not converge: the model with the lowest objective is kept." in found.notes


def test_methods_that_find_the_same_are_said(data):
    found = bench(data.sites, data.site_labels, methods=["EFKMVC", "k-FED", "FedHKTucker"], n_seeds=1)
    same = "Same measures: EFKMVC, FedHKTucker; a decomposition of full rank leaves centres as they are."
    assert found.notes == (same,)


def test_works_of_other_authors_are_cited_where_their_method_is_in_the_table(data):
    cited = bench(data.sites, data.site_labels, methods=["k-FED", "EFKMVC"], n_seeds=1).references()
    assert "dennis2021kfed" in cited
    assert "sinaga2026fedhk" in cited
    assert "bezdek" not in cited
    assert "@article{sinaga" not in cited  # an article needs a journal
    assert "lloyd1982" in bench(data.sites, data.site_labels, methods="balanced k-means", n_seeds=1).references()


def test_estimators_of_ones_own_are_compared_beside_the_methods(data):
    own = {"a short fit": EFKMVC(max_rounds=1), "preset 1": from_paper(1, fuzzifier=1.1)}
    found = bench(data.sites, data.site_labels, methods=["EFKMVC"], estimators=own, n_seeds=1)
    assert [record["method"] for record in found.records] == ["EFKMVC", "a short fit", "preset 1"]
    assert found.records[1]["rounds"] == 1
    assert own["a short fit"].n_clusters == EFKMVC().n_clusters  # the estimator itself is left as it was
    with pytest.raises(TypeError, match=r"estimators\['mine'\] must be a federated estimator"):
        bench(data.sites, data.site_labels, estimators={"mine": HeatKernelMVC(3)})
    with pytest.raises(ValueError, match=r"estimators\['k-FED'\] has the name of a method"):
        bench(data.sites, data.site_labels, estimators={"k-FED": EFKMVC()})


def test_one_seed_has_no_spread(data):
    found = bench(data.sites, data.site_labels, methods=["EFKMVC"], n_seeds=1)
    assert "±" not in str(found)
    assert str(found) == str(found.table())


def test_refusals(data):
    with pytest.raises(ValueError, match="did you mean 'k-FED'"):
        bench(data.sites, data.site_labels, methods=["k-FAD"])
    with pytest.raises(DataError, match="labels lack site 'site-02'"):
        bench(data.sites, {site: data.site_labels[site] for site in ("site-00", "site-01")})
    with pytest.raises(DataError, match="'site-00': labels have shape"):
        bench(data.sites, data.site_labels | {"site-00": [1, 2]})
    with pytest.raises(DataError, match="at least 2 classes, got 1"):
        bench(data.sites, {site: np.zeros(len(labels)) for site, labels in data.site_labels.items()})
    with pytest.raises(
        DataError, match=r"labels must be a dict .* \('site-00', 'site-01', 'site-02', ...\), got ndarray"
    ):
        bench(data.sites, np.concatenate(list(data.site_labels.values())))
    with pytest.raises(TypeError, match=r"estimators must be a dict, such as {'name in the table'.*, got list"):
        bench(data.sites, data.site_labels, estimators=[EFKMVC()])
    with pytest.raises(ValueError, match="n_seeds=0 must be at least 1"):
        bench(data.sites, data.site_labels, n_seeds=0)


def test_what_to_cite_is_that_of_the_citation_file():
    text = " ".join((Path(__file__).parents[2] / "CITATION.cff").read_text("utf-8").split())
    cited = " ".join(BIBTEX.split())
    for part in ("Sinaga", "Personalized Federated Heat-Kernel Enhanced Multi-View Clustering", "FedHK: personalized"):
        assert part in text
        assert part in cited
