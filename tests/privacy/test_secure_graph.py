"""Who masks with whom: enough partners for the stated chances, the same graph for everybody, steered by nobody."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import hypergeom

from fedhk.errors import MessageError
from fedhk.privacy import secure_graph
from fedhk.privacy.secure_graph import (
    CHANCE,
    FEW_SITES,
    TRIES,
    PartnerGraph,
    draw_graph,
    failure_chances,
    fewest_partners,
    shares_needed,
    upper_tail,
)
from fedhk.privacy.secure_server import ThresholdError, begin_sum, make_requests, open_session
from fedhk.privacy.secure_site import BAD_KEYS, BAD_PARTICIPANTS, BAD_SURVIVORS, UNSIGNED
from fedhk.privacy.secure_sum import default_threshold
from secure_sums import (
    ask,
    exchange,
    names_of,
    plain_sum,
    replies_of,
    server_step,
    signed_sites,
    start,
    vectors_of,
)

# ---------------------------------------------------------------------------------------------------- how many partners


def test_the_tail_counts_all_draws():
    marked = {0, 1, 2}
    draws = [len(marked & set(draw)) for draw in combinations(range(8), 4)]
    for least in range(-1, 6):
        expected = Fraction(sum(hits >= least for hits in draws), len(draws))
        assert upper_tail(8, len(marked), 4, least) == expected


@pytest.mark.parametrize(("total", "marked", "drawn", "least"), [(999, 100, 76, 20), (9999, 500, 91, 12)])
def test_the_tail_is_that_of_the_hypergeometric_distribution(total, marked, drawn, least):
    expected = hypergeom(total, marked, drawn).sf(least - 1)
    assert float(upper_tail(total, marked, drawn, least)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [101, 200, 500, 1_000, 3_000, 10_000, 100_000])
def test_both_stated_chances_hold_for_every_size_that_a_neighbourhood_may_have(n):
    threshold = default_threshold(n)
    fewest = fewest_partners(n, threshold)
    for partners in range(fewest, min(fewest + secure_graph.SPARE, n - 1) + 1):
        opened, lost = failure_chances(n, partners, threshold)
        assert opened * TRIES <= CHANCE
        assert lost <= CHANCE


@pytest.mark.parametrize("n", [1_000, 10_000, 100_000])
def test_one_partner_less_than_the_fewest_is_not_enough(n):
    opened, lost = failure_chances(n, fewest_partners(n, default_threshold(n)) - 1, default_threshold(n))
    assert opened * TRIES > CHANCE or lost > CHANCE


def test_partners_grow_with_the_logarithm_of_the_sites():
    found = [fewest_partners(n, default_threshold(n)) for n in (1_000, 10_000, 100_000, 1_000_000)]
    assert found == sorted(found)
    assert found[-1] < 1.5 * found[0]
    assert all(fewest_partners(n, default_threshold(n)) == n - 1 for n in range(3, FEW_SITES + 1))


def test_more_colluders_or_dropouts_than_stated_have_a_larger_chance():
    tenth, quarter = Fraction(1, 10), Fraction(1, 4)
    assert failure_chances(1_000, 80, 667, quarter)[0] > failure_chances(1_000, 80, 667, tenth)[0]
    assert failure_chances(1_000, 80, 667, tenth, quarter)[1] > failure_chances(1_000, 80, 667, tenth, tenth)[1]


def test_a_threshold_of_nearly_all_sites_makes_all_of_them_partners():
    assert fewest_partners(300, 299) == 299
    assert draw_graph(300, 299, "seed").is_complete
    assert fewest_partners(100_000, 99_999) == secure_graph.MOST_PARTNERS  # nobody is made to work without end


def test_a_neighbourhood_needs_the_part_of_it_that_the_threshold_is_of_all():
    assert shares_needed(67, 100, 100) == 67
    assert [shares_needed(667, 1_000, size) for size in (77, 78, 79)] == [52, 53, 53]
    graph = draw_graph(200, 134, "seed")
    assert graph.needed.tolist() == [shares_needed(134, 200, graph.near(i).size) for i in range(200)]


@pytest.mark.parametrize("dropouts", [0.26, 0.3])
def test_lost_sums_in_simulated_graphs_are_as_many_as_the_tail_says(dropouts):
    """At shares of dropouts at which failures can be seen."""
    rng, n, threshold, failed, expected = np.random.default_rng(0), 150, 101, 0, 0.0
    for run in range(60):
        graph = draw_graph(n, threshold, f"{dropouts} {run}")
        there = np.ones(n, bool)
        there[rng.choice(n, round(dropouts * n), replace=False)] = False
        failed += np.count_nonzero(graph.present(there) < graph.needed)
        for site in range(n):
            partners, needed = graph.near(site).size - 1, int(graph.needed[site])
            # a site that is there has a share of its own
            gone = round(dropouts * n)
            of_present = float(upper_tail(n - 1, gone, partners, partners + 1 - needed + 1))
            of_gone = float(upper_tail(n - 1, gone - 1, partners, partners - needed + 1))
            expected += (1 - dropouts) * of_present + dropouts * of_gone
    assert failed == pytest.approx(expected, rel=0.25)


def test_colluders_among_partners_in_simulated_graphs_are_as_many_as_the_tail_says():
    n, least, rng = 150, 30, np.random.default_rng(1)
    seen = expected = 0.0
    for run in range(60):
        graph = draw_graph(n, 101, str(run))
        collude = np.zeros(n, bool)
        collude[rng.choice(n, 50, replace=False)] = True
        honest = np.flatnonzero(~collude)
        seen += np.count_nonzero(graph.present(collude)[honest] >= least)
        expected += sum(float(upper_tail(n - 1, 50, graph.near(site).size - 1, least)) for site in honest)
    assert seen == pytest.approx(expected, rel=0.1)


# ------------------------------------------------------------------------------------------------------------ the graph


def test_everybody_has_enough_partners_and_is_theirs():
    graph = draw_graph(300, 201, "seed")
    sizes = np.diff(graph.starts)
    assert fewest_partners(300, 201) + 1 <= sizes.min()
    assert sizes.max() <= fewest_partners(300, 201) + 1 + secure_graph.SPARE
    for site in range(300):
        near = graph.near(site)
        assert site in near
        assert np.all(np.diff(near) > 0)
        assert all(site in graph.near(other) for other in near)
    np.testing.assert_array_equal(graph.members[graph.back], graph.owners)
    np.testing.assert_array_equal(graph.owners[graph.back], graph.members)


def test_the_graph_follows_from_the_digest_alone():
    draw_graph.cache_clear()
    first = draw_graph(200, 134, "seed").members.copy()
    draw_graph.cache_clear()
    np.testing.assert_array_equal(draw_graph(200, 134, "seed").members, first)
    assert not np.array_equal(draw_graph(200, 134, "other").members[:50], first[:50])


def test_parts_without_a_link_are_counted():
    pairs = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 1], [2, 2], [2, 3], [3, 2], [3, 3]])
    chain = PartnerGraph(3, np.array([0, 2, 5, 8, 10]), pairs[:, 1])
    assert chain.parts(np.array([True, True, True, True])) == 1
    assert chain.parts(np.array([True, False, True, True])) == 2


# ----------------------------------------------------------------------------------------------------------- sums on it


N, GONE = 130, [f"site {i:02d}" for i in range(0, 130, 19)]


@pytest.fixture(scope="module")
def session():
    """A session of many sites, up to the first of two sums."""
    vectors = vectors_of(N, 5)
    server, sites = start(vectors, default_threshold(N), sums=2)
    assert not server.graph.is_complete
    return server, sites, vectors


def few_links(monkeypatch, n, near):
    """All at the server and at sites in a graph that is given."""
    sizes = [len(members) for members in near]
    graph = PartnerGraph(default_threshold(n), np.cumsum([0, *sizes]), np.concatenate(near))
    for module in ("secure_server", "secure_site"):
        monkeypatch.setattr(f"fedhk.privacy.{module}.draw_graph", lambda *_: graph)


@pytest.mark.parametrize("late", [(), GONE[:3]])
def test_sums_on_a_sparse_graph_are_exact_whoever_drops_out(session, late):
    server, sites, vectors = session
    away = set(GONE) - set(late)
    server, sites, _ = exchange(server, sites, vectors, silent=away)
    server, sites, _ = exchange(server, sites, vectors, silent=set(GONE))
    assert set(server.survivors) == vectors.keys() - away
    np.testing.assert_array_equal(server.total, plain_sum(vectors, server.survivors))
    server = begin_sum(server, 5)
    for _ in ("input", "unmask"):
        server, sites, refused = exchange(server, sites, vectors)
        assert not refused
    np.testing.assert_array_equal(server.total, plain_sum(vectors, vectors))


def test_a_site_that_is_gone_before_shares_are_dealt_is_in_no_sum():
    vectors = vectors_of(N, 5)
    server, sites = start(vectors, default_threshold(N), silent=GONE)
    for _ in ("input", "unmask"):
        server, sites, _ = exchange(server, sites, vectors)
    assert len(server.survivors) == N - len(GONE)
    np.testing.assert_array_equal(server.total, plain_sum(vectors, server.survivors))


def test_signed_sums_on_a_sparse_graph_are_exact(monkeypatch):
    monkeypatch.setattr(secure_graph, "fewest_partners", lambda *_: 12)  # fewer signatures to check
    vectors = vectors_of(24, 3)
    server, sites = start(vectors, default_threshold(24), sites=signed_sites(24), silent=GONE[:1])
    assert not server.graph.is_complete
    for _ in ("input", "confirm", "unmask"):
        server, sites, _ = exchange(server, sites, vectors, silent=GONE[:2])
    assert len(server.survivors) == 22
    np.testing.assert_array_equal(server.total, plain_sum(vectors, server.survivors))


def test_what_a_site_gets_and_sends_is_for_its_partners_only(session):
    server, sites, _ = session
    near = server.graph.near(0).size
    assert near < 100
    request = make_requests(server)["site 00"]
    assert request.envelopes.shape[0] == near
    assert request.participants.size == -(-N // 8)
    assert server.locks["site 00"].shape == (near, 2, 32)
    assert sites["site 00"].session.shares.size == 0


def test_a_site_whose_partners_are_gone_makes_the_server_give_up_and_the_next_sum_is_there(session):
    server, sites, vectors = session
    partners = server.graph.near(7)
    away = {server.keys.names[i] for i in partners if i != 7}
    away = set(sorted(away)[: N - default_threshold(N)])
    after, replies = replies_of(server, sites, vectors, silent=away)
    with pytest.raises(ThresholdError, match=r"step 'input' of sum 0 is given up: \d+ of the \d+ sites that share the"):
        server_step(server, replies)
    server, sites = begin_sum(server, 5), after
    for _ in ("input", "unmask"):
        server, sites, _ = exchange(server, sites, vectors)
    np.testing.assert_array_equal(server.total, plain_sum(vectors, vectors))


def test_a_graph_that_falls_apart_makes_the_server_give_up_and_sites_refuse(monkeypatch):
    """Two groups that only site 05 links; it drops out."""
    near = [np.arange(6)] * 5 + [np.arange(11)] + [np.arange(5, 11)] * 5
    few_links(monkeypatch, 11, near)
    vectors = vectors_of(11, 4)
    server, sites = start(vectors, default_threshold(11), sums=2)
    after, replies = replies_of(server, sites, vectors, silent={"site 05"})
    with pytest.raises(ThresholdError, match="are in 2 parts that have no masks in common"):
        server_step(server, replies)
    taken, _ = server_step(server, replies_of(server, sites, vectors)[1])
    lie = make_requests(taken)["site 00"]
    marks = server.keys.mark([name for name in names_of(11) if name != "site 05"])
    with pytest.raises(MessageError, match=BAD_SURVIVORS):
        ask(after["site 00"], type(lie)(lie.session, lie.number, marks))
    server, sites = begin_sum(server, 4), after
    for _ in ("input", "unmask"):
        server, sites, _ = exchange(server, sites, vectors)
    np.testing.assert_array_equal(server.total, plain_sum(vectors, vectors))


# --------------------------------------------------------------------------------------------------- a server that lies


def roster_for(n=N, signed=True):
    server = open_session(names_of(n), default_threshold(n))
    sites = signed_sites(n) if signed else start(vectors_of(n, 1), default_threshold(n))[1]
    server, sites, _ = exchange(server, sites, {})
    return server, sites["site 00"], make_requests(server)


def changed(request, **parts):
    return type(request)(request.session, type(request.roster)(**vars_of(request.roster) | parts))


def vars_of(roster):
    return {name: getattr(roster, name) for name in ("names", "cipher_keys", "signatures")}


def test_a_server_cannot_hand_a_site_partners_of_its_choice():
    """Keys of a neighbourhood, fewer and more are refused; other keys are, or make a graph that is nobody else's."""
    server, site, asked = roster_for()
    request, keys, marks = asked["site 00"], server.keys.cipher_keys, server.keys.signatures
    everybody = np.arange(N)
    swapped = everybody.copy()
    swapped[server.graph.near(0)[1:3]] = server.graph.near(0)[2:0:-1]
    for rows in (everybody[::-1], server.graph.near(0), everybody[:-1], np.append(everybody, 0)):
        lie = changed(request, cipher_keys=keys[rows], signatures=marks[rows])
        with pytest.raises(MessageError, match=f"{BAD_KEYS}|{UNSIGNED}"):
            ask(site, lie)
    lie = changed(request, cipher_keys=keys[swapped], signatures=marks[swapped])
    try:
        after, _ = ask(site, lie)
    except MessageError:
        after = None
    # by the other keys, the two may be no partners any more
    assert after is None or after.session.seed != server.seed
    ask(site, request)


def test_other_keys_of_strangers_make_another_graph_so_that_sites_cannot_be_shown_different_lists():
    """Nobody checks the keys of sites that are no partners; what follows from them fits nobody else's."""
    server, site, asked = roster_for()
    keys = server.keys.cipher_keys.copy()
    keys[int(np.setdiff1d(np.arange(N), server.graph.near(0))[0])] ^= 1
    try:
        site, _ = ask(site, changed(asked["site 00"], cipher_keys=keys))
    except MessageError:  # the stranger has become a partner
        return
    assert site.session.seed != server.seed


def test_a_site_refuses_lists_in_which_too_few_of_its_partners_are(session):
    server, sites, vectors = session
    request = make_requests(server)["site 00"]
    near = server.graph.near(0)
    there = np.ones(N, bool)
    there[near[1 : near.size - int(server.graph.needed[0]) + 2]] = False
    assert there.sum() >= default_threshold(N)
    lie = type(request)(request.session, 0, 5, np.packbits(there), request.envelopes[there[near]])
    with pytest.raises(MessageError, match=BAD_PARTICIPANTS):
        ask(sites["site 00"], lie, vectors["site 00"])
    site, _ = ask(sites["site 00"], request, vectors["site 00"])
    taken, _ = server_step(server, replies_of(server, sites, vectors)[1])
    unmask = make_requests(taken)["site 00"]
    with pytest.raises(MessageError, match=BAD_SURVIVORS):
        ask(site, type(unmask)(unmask.session, 0, np.packbits(there)))
    ask(site, unmask)


def test_one_site_that_passes_on_wrong_shares_is_found_among_its_partners(session):
    server, sites, vectors = session
    server, sites, _ = exchange(server, sites, vectors, silent=GONE[1:])
    _, replies = replies_of(server, sites, vectors)
    shares = replies["site 02"].shares.copy()
    shares[3:9] ^= 1
    liar = type(replies["site 02"])(replies["site 02"].session, 0, shares)
    opened, refused = server_step(server, replies | {"site 02": liar})
    assert list(refused) == ["site 02"]
    np.testing.assert_array_equal(opened.total, plain_sum(vectors, server.survivors))
