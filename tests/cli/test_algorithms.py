"""Algorithms get the options of a configuration: tables become option objects, through the file and back."""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter

import pytest

import fedhk
from cli.calls import assert_same_files, call, refusal
from fedhk import Diffusion, Participation, Personalization
from fedhk.cli.algorithms import TABLES, make_option
from fedhk.cli.config import Config, read_config
from fedhk.errors import DataError
from fedhk.federation.protocols import PROTOCOLS
from fedhk.privacy import DifferentialPrivacy, SecureSummation

# Another value than the default for every option of every part.
OTHERS = {
    "diffusion": {
        "n_anchors": 200,
        "neighbours": 5,
        "scale": 2.5,
        "joint_weight": 0.25,
        "anchors": "means",
        "groups": False,
        "stretch": False,
    },
    "participation": {"fraction": 0.5, "min_sites": 2, "timeout": 90.0, "deviating": "warn"},
    "personalization": {
        "centers": {"st. gallen": 0.5},
        "view_weights": 0.25,
        "components": ["centers", "view_weights"],
        "clusters": {"st. gallen": 2},
    },
    "privacy": {
        "epsilon": 2.0,
        "delta": 1e-6,
        "bounds": [[[0, 0], [1, 9]], [-4, 4]],
        "neighbours": "add-remove",
        "unit": "site",
        "rounds": 4,
        "colluders": 1,
        "ledger": "ledgers",
        "plan": [3.0, 5],
    },
    "secure": {"threshold": 3, "shared_noise": False},
}
PULLS = {"center_pull": 5.0, "view_pull": 2.0}
PROTOCOL_OPTIONS = {
    "auto": {"precision": "half", "refresh_every": 3},
    "statistics": {"basis": True, "precision": "single"},
    "cores": {"precision": "half", "refresh_every": 2},
    "centers": {"passes": 3, "weights": "quality", "temperature": 0.5},
    "factors": {"passes": 2, "aggregation": "factors", "blend": 0.25, "precision": "half"},
    "personalized": {"passes": 3, "centers": {"rome": 0.5}, "step": 0.01, "held_out": 0.0, "center_pull": 2.0},
}


def find_class(parameter):
    """The class that a table of this parameter becomes."""
    return attrgetter(TABLES[parameter])(fedhk)


def through_a_file(tmp_path, parameter, value):
    """The value as it comes back from a configuration."""
    (tmp_path / "config.toml").write_text(Config(parameters={parameter: value}).to_toml(), "utf-8")
    return read_config(tmp_path / "config.toml").parameters[parameter]


@pytest.mark.parametrize(
    ("parameter", "table"), [*OTHERS.items(), ("personalization", PULLS)], ids=[*OTHERS, "personalization pulls"]
)
def test_every_option_comes_back_from_the_file(tmp_path, parameter, table):
    kind = find_class(parameter)
    assert make_option(parameter, through_a_file(tmp_path, parameter, table)) == kind(**table)
    if parameter != "personalization":  # a pull and a share exclude each other
        assert table.keys() == {part.name for part in fields(kind)}, "an option has no value to try here"


def test_every_part_has_a_table():
    parts = [Diffusion, Participation, Personalization, DifferentialPrivacy, SecureSummation]
    assert [find_class(parameter) for parameter in TABLES] == parts
    assert (OTHERS["personalization"] | PULLS).keys() == {part.name for part in fields(Personalization)}


@pytest.mark.parametrize(("name", "options"), PROTOCOL_OPTIONS.items(), ids=list(PROTOCOL_OPTIONS))
def test_every_protocol_comes_back_with_its_options(tmp_path, name, options):
    wanted = replace(PROTOCOLS[name], **options)
    assert make_option("protocol", through_a_file(tmp_path, "protocol", {"name": name} | options)) == wanted
    assert wanted != PROTOCOLS[name]
    assert make_option("protocol", {"name": name}) == PROTOCOLS[name]


def test_every_protocol_is_tried():
    assert PROTOCOL_OPTIONS.keys() == PROTOCOLS.keys()


def test_what_is_no_table_stays():
    assert make_option("protocol", "centers") == "centers"
    assert make_option("personalization", 0.5) == 0.5
    assert make_option("init", {"ecg": [[0.0]]}) == {"ecg": [[0.0]]}


def test_shares_by_site_are_no_options():
    assert make_option("personalization", {"rome": 0.5, "oslo": "auto"}) == {"rome": 0.5, "oslo": "auto"}


@pytest.mark.parametrize(
    ("parameter", "table", "said"),
    [
        ("participation", {"share": 0.5}, "no option 'share'. Options are fraction, min_sites, timeout"),
        ("participation", {"fraction": 2.0}, "fraction=2.0"),
        ("privacy", {"epsilon": 1.0}, "needs delta, bounds"),
        ("personalization", {"centers": 0.5, "pull": 1}, "no option 'pull'"),
        ("protocol", {"passes": 3}, "name must be one of auto, statistics"),
        ("protocol", {"name": "gossip"}, "name must be one of"),
        ("protocol", {"name": "centers", "precision": "half"}, "no option 'precision'"),
        ("diffusion", {"n_anchors": 1}, "n_anchors=1"),
    ],
)
def test_what_cannot_be_is_refused_with_its_table(parameter, table, said):
    with pytest.raises(DataError, match=parameter) as caught:
        make_option(parameter, table)
    assert said in str(caught.value)


# ------------------------------------------------------------------------------------------------------- in real runs

RUNS = {
    "participation": ("e-fkmvc", ["participation={ fraction = 0.6, min_sites = 2 }"]),
    "protocol": ("e-fkmvc", ['protocol={ name = "centers", passes = 3 }']),
    "factors": ("fedhk-tucker", ['protocol={ name = "factors", passes = 2, blend = 0.1 }', "rank=2"]),
    "personalization": ("fedhk-person", ["personalization={ center_pull = 5.0 }"]),
    "shares": ("fedhk-person", ['personalization={ bern = 0.5, rome = "auto" }']),
    "secure": ("e-fkmvc", ["secure={ threshold = 3 }"]),
    "diffusion": ("fedhk-diffusion", ["diffusion={ n_anchors = 30, neighbours = 5 }"]),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_with_tables_repeats_from_its_configuration(hospitals, tmp_path, kind):
    algorithm, settings = RUNS[kind]
    words = [word for setting in settings for word in ("--set", setting)]
    first, second = tmp_path / "first", tmp_path / "second"
    call("fit", hospitals, "-k", 3, "--algorithm", algorithm, "--n-init", 2, *words, "--out", first)
    call("fit", "--config", first / "config.toml", "--out", second)
    assert_same_files(first, second)
    (name,) = {setting.partition("=")[0] for setting in settings} - {"rank"}
    assert isinstance(read_config(first / "config.toml").parameters[name], dict)


def test_a_table_decides(hospitals, tmp_path):
    for passes in (1, 5):
        words = ("--set", f'protocol={{ name = "centers", passes = {passes} }}', "--seed", 0)
        call("fit", hospitals, "-k", 3, *words, "--out", tmp_path / str(passes))
    first, second = ((tmp_path / str(n) / "sites" / "rome.safetensors").read_bytes() for n in (1, 5))
    assert first != second


def test_a_wrong_table_is_refused_before_anything_is_written(hospitals, tmp_path):
    words = ("fit", hospitals, "-k", 3, "-o", tmp_path / "run", "--set", "participation={ fraction = 0.5, sites = 2 }")
    assert "'sites'" in refusal(*words, code=3)
    assert not (tmp_path / "run").exists()
