"""AnnData and MuData: sites from them, clusters back into them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC, HeatKernelMVC, from_anndata, to_anndata
from fedhk.errors import DataError

anndata = pytest.importorskip("anndata")
mudata = pytest.importorskip("mudata")

N = 90


@pytest.fixture
def truth():
    return np.random.default_rng(0).integers(3, size=N)


def modality(truth, width, kept=N, seed=0, sparse=False):
    rng = np.random.default_rng(seed)
    values = 6 * rng.normal(size=(3, width))[truth] + rng.normal(size=(N, width))
    values = np.maximum(values, 0) if sparse else values
    obs = pd.DataFrame({"donor": np.array(["a", "b", "c"])[np.arange(N) % 3]}, index=[f"cell-{i}" for i in range(N)])
    part = anndata.AnnData(
        sp.csr_matrix(values) if sparse else values,
        obs=obs,
        var=pd.DataFrame(index=[f"g{seed}-{j}" for j in range(width)]),
    )
    return part[:kept].copy()


@pytest.fixture
def cells(truth):
    with mudata.set_options(pull_on_update=False):
        data = mudata.MuData({"rna": modality(truth, 8), "protein": modality(truth, 4, kept=80, seed=1)})
        data.obs["donor"] = data["rna"].obs["donor"]
        yield data


def test_modalities_are_views_and_lacking_cells_are_missing(cells):
    sites = from_anndata(cells, site="donor")
    assert list(sites) == ["a", "b", "c"]
    assert list(sites["a"]) == ["rna", "protein"]
    assert list(sites["b"]["rna"].index[:2]) == ["cell-1", "cell-4"]
    assert int(sites["a"]["protein"].isna().all(axis=1).sum()) == 3


def test_clusters_come_back_by_cell(cells, truth):
    model = EFKMVC(3, random_state=0).fit(from_anndata(cells, site="donor"))
    to_anndata(model, cells, site="donor")
    assert adjusted_rand_score(truth, cells.obs["fedhk"]) > 0.9
    assert cells.obs["fedhk"].dtype == "category"
    np.testing.assert_allclose(cells.obsm["X_fedhk"].sum(axis=1), 1)
    frame = model.labels_frame().set_index("row").reindex(cells.obs_names)
    assert (frame["cluster"].astype(str) == cells.obs["fedhk"].astype(str)).all()
    np.testing.assert_allclose(cells.obs["fedhk_certainty"], frame["certainty"])


def test_a_round_trip_through_a_file_keeps_them(cells, tmp_path):
    model = EFKMVC(3, random_state=0).fit(from_anndata(cells, site="donor"))
    to_anndata(model, cells, site="donor", key="groups")
    cells.write_h5mu(tmp_path / "cells.h5mu")
    again = mudata.read_h5mu(tmp_path / "cells.h5mu")
    assert again.obs["groups"].tolist() == cells.obs["groups"].tolist()
    np.testing.assert_array_equal(again.obsm["X_groups"], cells.obsm["X_groups"])


@pytest.mark.parametrize("sparse", [False, True])
def test_one_object_is_one_view(truth, sparse):
    part = modality(truth, 8, sparse=sparse)
    model = HeatKernelMVC(3, random_state=0).fit(from_anndata(part))
    to_anndata(model, part)
    assert adjusted_rand_score(truth, part.obs["fedhk"]) > 0.9
    sites = from_anndata(part, site="donor")
    assert sp.issparse(sites["a"]["table"]) == sparse
    to_anndata(EFKMVC(3, random_state=0).fit(sites), part, site="donor")


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_matched_by_name_in_any_order(truth, sparse):
    part = modality(truth, 8, sparse=sparse)
    usual, turned = part[:45].copy(), part[45:, ::-1].copy()
    model = EFKMVC(3, random_state=0).fit({"a": from_anndata(usual), "b": from_anndata(turned)})
    assert adjusted_rand_score(truth, np.concatenate([model.labels_["a"], model.labels_["b"]])) > 0.9
    np.testing.assert_array_equal(model.predict(from_anndata(turned)), model.labels_["b"])
    assert model.labels_frame()["row"].tolist() == part.obs_names.tolist()
    assert model.centers_frame()["column"].tolist()[:8] == part.var_names.tolist()


def test_new_sparse_cells_that_lack_a_feature_are_refused_by_its_name(truth):
    part = modality(truth, 8, sparse=True)
    model = HeatKernelMVC(3, random_state=0).fit(from_anndata(part))
    with pytest.raises(ValueError, match="missing \\['g0-7'\\]"):
        model.predict(from_anndata(part[:, :7].copy()))


def test_an_object_in_the_place_of_views_is_refused_with_what_makes_views_of_it(truth):
    part = modality(truth, 8)
    model = HeatKernelMVC(3, random_state=0).fit(from_anndata(part))
    for call in (
        lambda: HeatKernelMVC(3).fit(part),
        lambda: EFKMVC(3).fit(part),
        lambda: EFKMVC(3).fit({"a": part, "b": part}),
        lambda: EFKMVC(3).fit({"a": [part], "b": [part]}),
        lambda: model.predict(part),
    ):
        with pytest.raises(ValueError, match=r"fedhk\.from_anndata"):
            call()


def test_features_of_one_name_are_refused(truth):
    part = modality(truth, 8)
    part.var_names = ["CD4"] * 8
    with pytest.raises(DataError, match="names of the features of 'table' must differ"):
        from_anndata(part)


def test_other_matrices_are_used_by_name(cells):
    cells["rna"].obsm["X_pca"] = np.asarray(cells["rna"].X)[:, :2]
    cells["protein"].layers["log"] = 2 * np.asarray(cells["protein"].X)
    views = from_anndata(cells, use={"rna": "X_pca", "protein": "log"})
    assert list(views["rna"].columns) == ["X_pca_0", "X_pca_1"]
    np.testing.assert_array_equal(views["protein"].to_numpy()[:80], 2 * np.asarray(cells["protein"].X))


def test_what_cannot_be_is_refused_by_name(cells, truth):
    model = EFKMVC(3, random_state=0).fit(from_anndata(cells, site="donor"))
    for call, said in (
        (lambda: from_anndata(cells, site="lab"), "site='lab' is no column of obs"),
        (lambda: from_anndata(cells, use="X_umap"), "'X_umap' is neither in obsm nor a layer of 'rna'"),
        (lambda: from_anndata(cells, use={"atac": "X_pca"}), "'atac' is no modality"),
        (lambda: from_anndata(np.ones((3, 2))), "must be an AnnData or MuData object, got ndarray"),
        (lambda: to_anndata(model, cells), "site=None: the model was fitted to several sites"),
        (lambda: to_anndata(model, modality(truth, 8, kept=50), site="donor"), "has 17 cells here"),
    ):
        with pytest.raises(DataError, match=said):
            call()
    cells.obs["donor"] = cells.obs["donor"].where(np.arange(N) != 4)
    with pytest.raises(DataError, match="is missing for 1 cells, the first is 'cell-4'"):
        from_anndata(cells, site="donor")
