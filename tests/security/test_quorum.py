"""A quorum decides names, columns and widths: one site that is odd is refused, and costs the others nothing."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from federations import make_settings
from fedhk import EFKMVC, Participation
from fedhk.data.folders import write_site
from fedhk.data.scaling import Reference
from fedhk.datasets import make_sites
from fedhk.errors import MessageError, QuorumError
from fedhk.estimators.heat_kernel_mvc import write_site_model
from fedhk.federation.board import Board
from fedhk.federation.codec import pack, unpack
from fedhk.federation.engines.remote import RemoteSites
from fedhk.federation.entries import References, Schema, Terms
from fedhk.federation.gate import write_request
from fedhk.federation.messages import decode, encode
from fedhk.federation.phases.base import Nothing
from fedhk.federation.phases.describe import (
    DescribeViews,
    Energy,
    ViewDescription,
    ViewsReply,
    agree_on_views,
    check_descriptions,
    select_alike,
)
from fedhk.federation.plausible import MOST_FEATURES, MOST_WIDTH
from fedhk.federation.remote.greet import Introduction
from fedhk.federation.remote.site import RemoteSite
from remote_sites import NAMES, Wire, fit_remote

MEGABYTE = 2**20

# runs are cut short here on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge:sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def wire(tmp_path):
    """Four sites with named columns; the first by name has other names, as after a mistake in an export."""
    data = make_sites(4, 40, n_clusters=3, n_features=(3,), shift=0, random_state=0)
    for name, (view,) in zip(NAMES, data.sites.values(), strict=True):
        columns = ("x", "y", "other") if name == NAMES[0] else ("x", "y", "z")
        write_site(tmp_path / "data" / name, {"view0": view}, columns={"view0": columns})
    return Wire({name: tmp_path / "data" / name for name in NAMES}, tmp_path / "state")


def described(**widths):
    return ViewsReply(tuple(ViewDescription(name, width, None) for name, width in widths.items()))


def with_views(change):
    """A wire's change of what a site says of its views when it is greeted."""

    def changed(payload, answer):
        message = decode(answer)
        if message.kind != "hello":
            return answer
        reply = unpack(message.values, message.arrays, Introduction)
        values, arrays = pack(replace(reply, views=change(reply.views)), Introduction)
        return encode(replace(message, values=values, arrays=arrays))

    return changed


# ----------------------------------------------------------------------------------------------------------- columns


def test_the_columns_of_most_sites_count_and_not_those_of_the_first_by_name(wire):
    """Attack 7."""
    model = fit_remote(wire, max_rounds=2)
    assert model.history_[0]["clients"] == 3
    assert model.history_[0]["refused"] == {
        "genoa": "view 'view0' has other columns than other sites: missing ['z'], unexpected ['other']"
    }


def test_an_odd_site_that_comes_late_is_refused_too(wire):
    """Attack 7."""
    wire.gone = {1}
    engine = RemoteSites(wire, expected=NAMES, wait=0.0)
    engine.describe()
    wire.gone = set()
    engine.exchange({})
    assert "genoa" not in engine.known
    assert "unexpected ['other']" in str(engine.exchange({"genoa": b""})["genoa"])


def test_one_vote_is_taken_in_the_engine_and_in_the_run():
    """Attack 7: majorities are the same whoever asks."""
    replies = {"a": described(x=3), "b": described(x=2), "c": described(x=2), "d": ViewsReply(())}
    good, refused = select_alike(replies)
    assert list(good) == ["b", "c", "d"]
    assert refused == {"a": "view 'x' has 3 features, other sites have 2 features"}


def test_over_a_network_more_than_half_of_the_sites_must_answer(wire):
    """Attack 7: a run does not succeed on the one site that was right, unless that was asked for."""
    wire.gone = {3, 4}
    with pytest.raises(QuorumError, match=r"min_sites=3 are needed"):
        fit_remote(wire, max_rounds=2)
    fit_remote(wire, max_rounds=2, participation=Participation(min_sites=1))


def test_in_one_process_one_site_may_be_alone():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    EFKMVC(2, random_state=0, max_rounds=1).fit({"alone": [rows]})
    assert Participation().resolve(in_process=True).fewest_answers(20) == 1
    assert [Participation().fewest_answers(asked) for asked in (1, 2, 3, 20)] == [1, 2, 2, 11]
    assert Participation(min_sites=4).resolve(in_process=True).fewest_answers(20) == 4


# ------------------------------------------------------------------------------------------------------------ widths


@pytest.mark.parametrize("widths", [{"a": 10**9}, {"a": 2 * 10**7}, {"a": MOST_WIDTH + 1}])
def test_a_view_wider_than_any_is_refused_before_anything_is_made_for_it(widths):
    """Attack 11."""
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match="a view with more than"):
            check_descriptions(described(**widths).views, "mallory")
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()


def test_many_wide_views_are_refused_as_well():
    """Attack 11: views that are possible one by one."""
    most = MOST_FEATURES // MOST_WIDTH
    check_descriptions(described(**{f"v{i}": MOST_WIDTH for i in range(most)}).views, "large")
    with pytest.raises(MessageError, match="in all"):
        check_descriptions(described(**{f"v{i}": MOST_WIDTH for i in range(most + 1)}).views, "mallory")


def test_sites_together_have_no_more_features_than_there_is_room_for():
    """Attack 11: two hostile sites name as many views as they like; those that most sites have stay."""
    honest = described(a=3)
    wide = described(a=3, **{f"v{i}": MOST_WIDTH for i in range(2)})
    assert "a" in agree_on_views([wide, wide, honest, honest, honest], 2)
    assert sum(width for width, _ in agree_on_views([wide, wide, honest, honest, honest], 2).values()) <= MOST_FEATURES


def test_a_coordinator_survives_a_site_that_claims_a_view_of_a_thousand_million_features(wire):
    """Attack 11: the site is named, and nobody needs memory for it."""
    wire.changed[4] = with_views(lambda views: (*views, ViewDescription("huge", 10**9, None)))
    tracemalloc.start()
    try:
        model = fit_remote(wire, max_rounds=2, participation=Participation(min_sites=2))
        assert tracemalloc.get_traced_memory()[1] < 50 * MEGABYTE
    finally:
        tracemalloc.stop()
    assert "a view with more than" in model.history_[0]["refused"]["rome"]


def wide_reference(width):
    even = np.broadcast_to(np.ones(1), (width,))
    return Reference(False, np.zeros(width), even, "uniform", np.zeros(width), even, 1.0)


def test_a_site_makes_no_room_for_references_wider_than_a_federation_can_have(tmp_path):
    """Attack 11: a site that lacks the view would keep numbers for each of its features."""
    write_site(tmp_path / "data", {"a": np.ones((5, 2))})
    site = RemoteSite("oslo", tmp_path / "data", tmp_path / "state", write_site_model)
    entries = {"Terms": Terms("a-run", {"a": None}), "Schema": Schema(("a", "b"), (None, None))}
    good = References((wide_reference(2), wide_reference(1)))
    object.__setattr__(good, "references", (wide_reference(2), wide_reference(MOST_WIDTH + 1)))
    request = encode(write_request(Energy.name, 0, Nothing(), Nothing, entries | {"References": good}))
    assert "wider views than a federation can have" in decode(site.answer(request)).values["reason"]


# ------------------------------------------------------------------------------------------------------ lone views


def test_over_a_network_a_view_of_one_site_alone_is_left_out_and_named(wire):
    """Attack 11: what one site alone says of a view, nobody can compare."""
    wire.changed.clear()
    write_site(
        wire.sites[4][1].parent / "turin",
        {"view0": np.random.default_rng(0).normal(size=(40, 3)), "own": np.random.default_rng(1).normal(size=(40, 2))},
        columns={"view0": ("x", "y", "z")},
    )
    wire.sites[4] = ("rome", wire.sites[4][1].parent / "turin")
    with pytest.warns(UserWarning, match="fewer than 2 sites have are left out.*'own'"):
        model = fit_remote(wire, max_rounds=2)
    assert model.view_names_ == ["view0"]
    assert "rome" not in model.history_[0]["refused"]


def test_in_one_process_a_site_may_have_a_view_of_its_own():
    """The example of the design: one hospital alone has images."""
    data = make_sites(3, 40, n_clusters=2, n_features=(3, 2), shift=0, random_state=0)
    sites = {name: {"a": views[0]} for name, views in data.sites.items()}
    name = next(iter(sites))
    sites[name]["b"] = data.sites[name][1]
    model = EFKMVC(2, random_state=0, max_rounds=2).fit(sites)
    assert list(model.view_names_) == ["a", "b"]


def test_with_masks_or_noise_a_lone_view_is_left_out_too():
    replies = {"a": described(x=2, y=3), "b": described(x=2)}
    phase = DescribeViews(make_settings(), 2)
    with pytest.warns(UserWarning, match="'y'"):
        board = phase.combine(Board(), replies)
    assert board.get(Schema).names == ("x",)
