"""Low-rank centres as a user of `HeatKernelMVC` asks for them; `tests/tensors` has what must be true of them."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk import HeatKernelMVC, datasets
from fedhk.tensors import DECOMPOSITIONS


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(1, 90, n_clusters=3, n_features=(9, 7, 6), shift=0, separation=4, random_state=1)


@pytest.mark.parametrize(
    "rank", [0, -1, 1.5, 1.0, "big", True, False, np.nan, (0, 1, 1), (1, 1.5, 1), (), (True, 1, 1)]
)
@pytest.mark.parametrize("name", sorted(DECOMPOSITIONS))
def test_a_rank_that_is_no_number_of_dimensions_is_refused(data, name, rank):
    with pytest.raises(ValueError, match="rank") as caught:
        HeatKernelMVC(3, decomposition=name, rank=rank, n_init=1).fit(data.views)
    said = str(caught.value)
    assert f"rank={rank!r} must be" in said or f"Got {rank!r} instead" in said


def test_an_unknown_decomposition_is_refused(data):
    with pytest.raises(ValueError, match="'decomposition'"):
        HeatKernelMVC(3, decomposition="tt").fit(data.views)


def test_a_rank_that_the_views_cannot_have_is_refused_with_the_name_of_the_view(data):
    with pytest.raises(ValueError, match="widest view, 'view_0' with 9 features; at most 9"):
        HeatKernelMVC(3, decomposition="tucker", rank=(3, 10, 2), n_init=1).fit(data.views)


def test_a_choice_of_the_number_of_clusters_keeps_the_form(data):
    model = HeatKernelMVC([2, 3], decomposition="tucker", rank=0.9, n_init=1, random_state=0).fit(data.views)
    assert model.cluster_factor_.shape[0] == model.n_clusters_ == len(model.cluster_centers_[0])


@pytest.mark.parametrize(("name", "rank"), [("tucker", (2, 3, 2)), ("parafac2", 2), ("cp", 3)])
def test_rank_and_error_of_the_form_are_attributes(data, name, rank):
    model = HeatKernelMVC(3, decomposition=name, rank=rank, n_init=1, max_iter=3, random_state=0).fit(data.views)
    assert model.rank_ == (rank if isinstance(rank, tuple) else (rank,))
    assert 0 < model.reconstruction_error_ < 1
