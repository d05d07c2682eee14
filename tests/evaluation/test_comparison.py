"""Five ways to cluster the same sites: by hand, and on rows that none of them saw."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.datasets import make_hospitals, make_two_view_shapes
from fedhk.evaluation.attack_sites import count_rows
from fedhk.evaluation.comparison import ALONE, OWN, POOLED, PRIVATE, Measured, compare_methods, hold_out_rows
from fedhk.privacy import DifferentialPrivacy


def test_scores_by_hand():
    truth = {"a": np.array([0, 0, 1, 1]), "b": np.array([0, 1])}
    same = Measured({"a": np.array([1, 1, 0, 0]), "b": np.array([1, 0])}, 2.0, rows_sent=6)
    assert same.score(truth) == {
        "ari_per_site": 1.0,
        "ari": 1.0,
        "accuracy": 1.0,
        "rows_sent": 6,
        "bytes_sent": 0,
        "seconds": 2.0,
    }
    swapped = Measured({"a": np.array([1, 1, 0, 0]), "b": np.array([0, 1])}, 2.0)
    assert swapped.score(truth)["ari_per_site"] == 1.0
    assert swapped.score(truth)["ari"] < 1.0
    assert swapped.score(truth)["accuracy"] == pytest.approx(4 / 6)
    assert Measured(swapped.labels, 2.0, common_names=False).score(truth)["ari"] is None


def test_a_fifth_of_every_site_is_held_out():
    data = make_hospitals(60)
    rows = hold_out_rows(data)
    for site, labels in data.site_labels.items():
        cut = len(labels) * 4 // 5
        assert (count_rows(rows.train[site]), count_rows(rows.test[site])) == (cut, len(labels) - cut)
        np.testing.assert_array_equal(rows.truth[site], labels[cut:])
        np.testing.assert_array_equal(rows.test[site]["ecg"].values, data.sites[site][0][cut:])
    assert rows.train["bergen"]["lab"] is None
    assert rows.train["athens"]["scan"].columns == ("scan_0", "scan_1", "scan_2", "scan_3")


def test_data_without_sites_is_refused():
    with pytest.raises(ValueError, match="no sites"):
        hold_out_rows(make_two_view_shapes(40, random_state=0))


def test_every_way_is_measured_on_the_same_rows():
    rows = hold_out_rows(make_hospitals(80))
    budget = DifferentialPrivacy(epsilon=100.0, delta=1e-4, bounds=(-8, 8))
    said = []
    found = compare_methods(rows, n_clusters=4, random_state=0, noise={"privacy": budget}, report=said.append)
    assert len(found.methods) == 5
    assert len(said) == 4
    for measured in found.methods.values():
        assert {site: len(part) for site, part in measured.labels.items()} == {
            site: len(part) for site, part in rows.truth.items()
        }
    sent = {name: measured.rows_sent for name, measured in found.methods.items()}
    assert sent.pop(POOLED) == sum(map(count_rows, rows.train.values()))
    assert set(sent.values()) == {0}
    assert found.methods[ALONE].bytes_sent == 0 < min(found.methods[name].bytes_sent for name in (OWN, PRIVATE))
    assert found.private.privacy_spent_[0] <= 100.0 * (1 + 1e-6)
    assert {record["model"] for record in found.evaluation} == {"global", "personal", "alone"}
