"""Who takes part in a round is drawn by the seed alone, never fewer than the quorum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhk import EFKMVC, Participation
from fedhk.datasets import make_sites
from fedhk.federation import participation
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.participation import SAMPLE_SITES

NAMES = [f"s{i}" for i in range(10)]


def test_a_fraction_never_asks_fewer_than_the_quorum():
    for fraction, min_sites, count in ((0.01, 1, 1), (0.25, 1, 2), (0.25, 4, 4), (0.25, 40, 10), (0.99, 1, 10)):
        asked = Participation(fraction, min_sites).draw(NAMES, [0, 3])
        assert len(asked) == count
        assert asked == sorted(set(asked) & set(NAMES))


@given(
    names=st.permutations(NAMES),
    fraction=st.floats(0.01, 1),
    min_sites=st.integers(1, 12),
    seed=st.lists(st.integers(0, 2**31), min_size=1, max_size=2),
)
def test_sites_are_drawn_without_regard_to_their_order(names, fraction, min_sites, seed):
    participation = Participation(fraction, min_sites)
    asked = participation.draw(names, seed)
    assert asked == participation.draw(NAMES, seed)
    assert len(asked) == len(set(asked)) >= min(min_sites, len(NAMES))


def test_all_are_asked_unless_a_fraction_is_given():
    assert Participation().draw(["b", "a"], [0]) == ["a", "b"]
    assert Participation().draw([], [0]) == []


def test_other_sites_are_drawn_in_every_exchange():
    drawn = {tuple(Participation(0.5).draw(NAMES, [0, exchange])) for exchange in range(10)}
    assert len(drawn) > 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fraction": 0.0}, "fraction=0.0 must be a number above 0 and at most 1"),
        ({"fraction": 1.1}, "fraction=1.1 must be"),
        ({"fraction": float("nan")}, "fraction=nan must be"),
        ({"fraction": True}, "fraction=True must be"),
        ({"fraction": "half"}, "fraction='half' must be"),
        ({"min_sites": 0}, "min_sites=0 must be None or a whole number from 1 on"),
        ({"min_sites": 1.5}, "min_sites=1.5 must be"),
        ({"min_sites": True}, "min_sites=True must be"),
        ({"timeout": 0}, "timeout=0 must be None or a number of seconds above 0"),
        ({"timeout": -1.0}, "timeout=-1.0 must be"),
        ({"timeout": float("nan")}, "timeout=nan must be"),
        ({"timeout": "soon"}, "timeout='soon' must be"),
    ],
)
def test_what_is_not_allowed_is_named_with_its_value(options, said):
    with pytest.raises(ValueError, match=said):
        Participation(**options)


def test_what_a_sample_of_sites_tells_is_asked_of_few_of_many_sites():
    many = [f"s{i:05d}" for i in range(5 * SAMPLE_SITES)]
    asked = Participation().draw_sample(many, [0, 3])
    assert len(asked) == SAMPLE_SITES
    assert asked == Participation().draw_sample(many[::-1], [0, 3])
    assert asked != Participation().draw_sample(many, [0, 4])
    assert Participation().draw_sample(NAMES, [0, 3]) == NAMES
    assert len(Participation(min_sites=2 * SAMPLE_SITES).draw_sample(many, [0, 3])) == 2 * SAMPLE_SITES


def test_a_run_asks_few_of_many_sites_for_candidates(monkeypatch):
    asked = []
    exchange = InProcessEngine.exchange
    monkeypatch.setattr(participation, "SAMPLE_SITES", 6)
    monkeypatch.setattr(InProcessEngine, "exchange", lambda *args: asked.append(len(args[1])) or exchange(*args))
    data = make_sites(10, 20, n_clusters=3, random_state=0)
    model = EFKMVC(3, random_state=0).fit(data.sites)
    assert asked[:4] == [10, 6, 6, 10]
    assert model.history_[0]["clients"] == 10
