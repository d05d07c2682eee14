"""Records are a list, and show themselves as a table."""

import copy
import json
import pickle

import pandas as pd
import polars as pl
import pytest

import fedhk
from fedhk._records import MOST_SHOWN, Records
from fedhk.datasets import make_sites


@pytest.fixture(scope="module")
def fitted():
    data = make_sites(3, 40, n_clusters=3, random_state=0)
    return fedhk.FedHKPerson(3, n_init=2, random_state=0).fit(data.sites)


def test_columns_stand_under_their_names_with_numbers_to_the_right():
    table = Records([{"site": "oslo", "value": 0.5}, {"site": "a", "value": 12.25}])
    assert repr(table).splitlines() == ["site  value", "oslo    0.5", "a     12.25"]


def test_a_field_that_a_record_lacks_is_empty_and_a_mapping_shows_its_keys():
    table = Records([{"round": 1, "refused": {"oslo": "late"}}, {"round": 2, "refused": {}, "more": None}])
    assert repr(table).splitlines() == ["round  refused  more", "    1  oslo", "    2"]


def test_a_long_table_shows_its_ends():
    lines = repr(Records({"round": i} for i in range(1000))).splitlines()
    assert len(lines) == MOST_SHOWN + 2
    assert lines[-1].strip() == "999"
    assert "…" in lines[MOST_SHOWN // 2 + 1]


@pytest.mark.parametrize("taken", [0, MOST_SHOWN // 2, 500, 999])
def test_a_long_table_shows_what_was_taken_too(taken):
    lines = repr(Records({"number": i, "taken": i == taken} for i in range(1000))).splitlines()
    assert [line.split()[0] for line in lines if line.endswith("True")] == [str(taken)]
    assert len(lines) <= MOST_SHOWN + 4


def test_markup_in_a_value_is_text_in_a_notebook():
    assert "<b>" not in Records([{"site": "<b>"}])._repr_html_()


def test_nothing_is_shown_as_an_empty_list():
    assert repr(Records()) == "[]"
    assert "[]" in Records()._repr_html_()


def test_a_history_is_a_table_and_still_a_list(fitted, tmp_path):
    history = fitted.history_
    assert isinstance(history, list)
    assert repr(history).split()[:2] == ["round", "objective"]
    assert history._repr_html_().count("<tr>") == len(history) + 1
    assert isinstance(history[:1], Records)
    assert isinstance(history[0], dict)
    for again in (copy.deepcopy(history), pickle.loads(pickle.dumps(history)), json.loads(json.dumps(history))):  # noqa: S301
        assert again == history
    assert list(pd.DataFrame(history)["objective"]) == [record["objective"] for record in history]
    assert pl.DataFrame(history.copy()).height == len(history)
    fitted.save(tmp_path / "model.safetensors")
    assert repr(fedhk.load(tmp_path / "model.safetensors").history_) == repr(history)


def test_what_sites_learned_and_what_was_measured_are_tables(fitted):
    assert "component" in fitted.personalization_._repr_html_()
    data = make_sites(2, 40, n_clusters=2, random_state=0)
    found = fedhk.evaluate(fedhk.EFKMVC(2, n_init=1, random_state=0), data.sites, random_state=0)
    assert repr(found).split()[:2] == ["site", "model"]


def test_of_numbers_that_were_compared_the_first_are_shown_and_the_one_taken():
    lines = repr(Records({"n_clusters": k, "taken": k == 40} for k in range(2, 92))).splitlines()
    shown = [line.split()[0] for line in lines[1:]]
    assert shown == [*map(str, range(2, 14)), "…", "40", "…"]
