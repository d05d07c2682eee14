"""Configurations: what is written is what is read."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedhk
from cli.calls import call, refusal, usage
from fedhk.cli.algorithms import ALGORITHMS
from fedhk.cli.config import Config, ConfigError, read_config
from fedhk.estimators.from_paper import PRESETS

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
NUMBERS = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.booleans() | NUMBERS | TEXT,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(TEXT, parts, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES, max_size=4), st.integers(0, 2**32 - 1))
def test_any_value_is_read_as_it_was_written(parameters, seed):
    content = tomllib.loads(Config(seed=seed, parameters=parameters).to_toml())
    assert content["parameters"] == parameters
    assert content["seed"] == seed


def test_names_of_sites_may_be_anything():
    shares = {"centers": {"st. gallen": 0.5, "münchen": 0.25, 'the "old" town': 1.0}}
    content = tomllib.loads(Config(parameters={"personalization": shares}).to_toml())
    assert content["parameters"]["personalization"] == shares


def test_none_is_left_out_and_what_toml_lacks_is_refused():
    assert "rank" not in Config(parameters={"rank": None, "privacy": {"ledger": None}}).to_toml()
    with pytest.raises(ConfigError, match="no place"):
        Config(parameters={"tol": float("nan")}).to_toml()


def test_relative_data_folders_count_from_the_file(tmp_path):
    (tmp_path / "config.toml").write_text('data = "../rows"\n')
    assert read_config(tmp_path / "config.toml").data == tmp_path / "../rows"


def test_another_version_is_a_note(tmp_path, capsys):
    (tmp_path / "config.toml").write_text('fedhk = "0.0.1"\n')
    read_config(tmp_path / "config.toml")
    assert capsys.readouterr().err.startswith("Note: the configuration is of fedhk 0.0.1")


class TestPresets:
    """`--paper N`: the settings of the paper's algorithms."""

    @pytest.mark.parametrize("algorithm", PRESETS)
    def test_the_configuration_makes_the_preset(self, algorithm):
        config = Config(parameters={"n_clusters": 3, "fuzzifier": 1.1}).with_preset(algorithm).complete()
        content = tomllib.loads(config.to_toml())
        found = ALGORITHMS[content["algorithm"]].make(content["parameters"])
        wanted = fedhk.from_paper(algorithm, n_clusters=3, fuzzifier=1.1)
        assert type(found) is type(wanted)
        assert found.get_params(deep=False) == wanted.get_params(deep=False)

    @pytest.mark.parametrize(
        ("algorithm", "parameters", "said"),
        [
            (1, {"heat_coef": "uniform"}, "heat_coef='minmax-local' or .* got 'uniform'"),
            (1, {"protocol": {"name": "centers", "weights": "mass"}}, "protocol=Averaging"),
            (1, {"alpha": 2}, "alpha is view_exponent"),
            (0, {}, "algorithm=0 must be one of"),
        ],
    )
    def test_what_contradicts_it_is_refused(self, algorithm, parameters, said):
        with pytest.raises(ConfigError, match=said):
            Config(parameters={"n_clusters": 3} | parameters).with_preset(algorithm)

    def test_options_of_its_protocol_can_be_given(self, hospitals, tmp_path):
        given = ["--clusters", "2", "--paper", "1", "--fuzzifier", "1.1", "--local-passes", "2", "--max-rounds", "2"]
        call("fit", hospitals, *given, "--out", tmp_path / "run")
        parameters = read_config(tmp_path / "run" / "config.toml").parameters
        assert parameters["protocol"] == {"name": "centers", "passes": 2, "weights": "rows"}
        assert parameters["view_weights"] == "learned"

    @pytest.mark.parametrize(("algorithm", "given"), [(1, {"passes": 2}), (2, {"temperature": 3}), (4, {"step": 0.02})])
    def test_single_options_leave_the_others_as_the_preset_has_them(self, algorithm, given):
        content = tomllib.loads(Config(parameters=given).with_preset(algorithm).complete().to_toml())
        found = ALGORITHMS[content["algorithm"]].make(content["parameters"])
        assert found.protocol == fedhk.from_paper(algorithm, **given).protocol

    def test_it_says_which_algorithm_it_is(self, hospitals, tmp_path):
        given = ["--clusters", "2", "--paper", "1", "--algorithm", "e-fkmvc", "--out", tmp_path / "run"]
        assert "leave --algorithm out" in usage("fit", hospitals, *given)


class TestOptionsOfATable:
    def test_keeps_the_rest_of_a_table(self):
        config = Config(parameters={"participation": {"fraction": 0.5}})
        found = config.with_options("participation", min_sites=2).parameters["participation"]
        assert found == {"fraction": 0.5, "min_sites": 2}

    def test_makes_a_word_the_name_of_the_table(self):
        config = Config(parameters={"protocol": "factors"}).with_options("protocol", passes=2)
        assert config.parameters["protocol"] == {"name": "factors", "passes": 2}

    def test_begins_a_table_where_there_is_none(self):
        found = Config().with_options("participation", fraction=0.5, min_sites=None)
        assert found.parameters == {"participation": {"fraction": 0.5}}

    def test_leaves_it_alone_where_nothing_is_given(self):
        assert Config().with_options("participation", fraction=None).parameters == {}


@pytest.mark.parametrize(
    "text",
    [
        "x = [",
        "flavour = 'mint'",
        "seed = 'one'",
        "seed = true",
        "algorithm = 'k-means'",
        "[parameters]\nn_cluster = 3",
        "[parameters]\nprotocol = { name = 'gossip' }",
    ],
)
def test_bad_configuration(hospitals, tmp_path, text):
    (tmp_path / "config.toml").write_text(text)
    refusal("fit", hospitals, "-k", 2, "--config", tmp_path / "config.toml", "-o", tmp_path / "run", code=3)


def test_a_run_is_written_beside_its_configuration_by_default(hospitals, tmp_path):
    (tmp_path / "new").mkdir()
    text = f'data = "../{hospitals.name}"\n[parameters]\nn_clusters = 3\n'
    (tmp_path / "new" / "config.toml").write_text(text)
    call("fit", "--config", tmp_path / "new" / "config.toml", code=5)  # the folder is not empty, and no run
    (tmp_path / "config.toml").write_text(text.replace("../", ""))
    call("fit", "--config", tmp_path / "config.toml", "--out", tmp_path / "run")
