"""All methods on one's own sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedhk import EFKMVC, HeatKernelMVC, from_paper
from fedhk.datasets import make_sites
from fedhk.errors import DataError
from fedhk.evaluation.bench import ABLATIONS, ALONE, BIBTEX, METHODS, bench

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
    assert kmeans["ARI ±"] == np.std(expected)
    assert "180 rows at 3 sites, 2 seeds" in table.title
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


def test_gaps_are_taken_by_all_but_the_paper(data):
    sites = {site: [view.copy() for view in views] for site, views in data.sites.items()}
    sites["site-00"][0][0, 0] = np.nan
    sites["site-01"][1] = None
    said = []
    methods = [*QUICK, "each site alone", "HeatKernelMVC", "the paper's Algorithm 1"]
    found = bench(sites, data.site_labels, methods=methods, n_seeds=1, report=said.append)
    assert {record["method"] for record in found.records} == set(methods[:-1])
    assert said[-1] == "the paper's Algorithm 1 does not take these rows"


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
    with pytest.raises(ValueError, match="n_seeds=0 must be at least 1"):
        bench(data.sites, data.site_labels, n_seeds=0)


def test_what_to_cite_is_that_of_the_citation_file():
    text = " ".join((Path(__file__).parents[2] / "CITATION.cff").read_text("utf-8").split())
    cited = " ".join(BIBTEX.split())
    for part in ("Sinaga", "Personalized Federated Heat-Kernel Enhanced Multi-View Clustering", "FedHK: personalized"):
        assert part in text
        assert part in cited
