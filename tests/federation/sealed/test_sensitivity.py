"""Through the code that a site really runs, no row moves a release further than its noise is sized for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhk.data.scaling import Reference
from fedhk.data.views import check_views
from fedhk.embedding.affinity import AnchorGraph
from fedhk.errors import MessageError
from fedhk.federation.entries import Basis
from fedhk.federation.phases.base import Nothing
from fedhk.federation.phases.diffuse import CountTies, TiesRequest
from fedhk.federation.phases.scales import Lengths, Means, MeansRequest, Ranges, RangesRequest, Spreads, SpreadsRequest
from fedhk.federation.phases.sum_rounds import NoisyMoves, NoisyRounds, noisy_request
from fedhk.federation.phases.sum_start import MIDDLE_SHARE, Cells, CellsRequest, Directions, DirectionsRequest
from fedhk.federation.sealed import noise as sealed_noise
from fedhk.federation.sealed.messages import Header, NoisySum
from fedhk.federation.sealed.units import UNITS, LengthOfSum
from fedhk.federation.site import Site
from fedhk.federation.table import Table, round_arrays
from fedhk.model.passes import Passes
from fedhk.privacy.kernel_sensitivity import TYPICAL_MOVE, best_kernel_scale, kernel_reach, kernel_sensitivity
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.starts.cells import Landmarks
from sealed_runs import LoneSite, make_parameters, moves_request, plain_reference, scales

WITHIN = 1 + 1e-9
ROWS = 15  # per example of hypothesis: 105 pairs that replace a row and 15 that add one
PHASES = {
    "ranges": Ranges,
    "means": Means,
    "lengths": Lengths,
    "spreads": Spreads,
    "directions": Directions,
    "cells": Cells,
    "round": NoisyRounds,
    "moves": NoisyMoves,
    "ties": CountTies,
}
PRIVACY = {how: DifferentialPrivacy(1.0, 1e-5, (-1, 1), neighbours=how, rounds=1) for how in ("replace", "add-remove")}


@dataclass(frozen=True)
class Case:
    """A site's rows, rows that may be one more, and a request; everything in input units.

    `request` gives the request for what makes data sets neighbours.
    """

    phase: object
    request: object
    references: list
    names: tuple
    base: np.ndarray
    rows: np.ndarray
    widths: tuple
    absent: int | None
    dtype: type
    entries: tuple = ()

    def views(self, row=None):
        joint = self.base if row is None else np.vstack([self.base, row])
        parts = np.split(joint.astype(self.dtype), np.cumsum(self.widths)[:-1], axis=1)
        return check_views(
            {n: None if v == self.absent else p for v, (n, p) in enumerate(zip(self.names, parts, strict=True))},
            missing_views=True,
            min_rows=0,
        )


def released(case, row, privacy):
    """What a site would add noise to, and the noise: both as the real code has them, in grid units and in numbers."""
    kept, vector, request = {}, case.phase.vector, case.request(privacy.neighbours)

    def no_noise(sigma, size):
        kept["sigma"] = sigma
        return np.zeros(size, np.int64)

    def keep(*asked):
        kept["values"] = vector(*asked)
        return kept["values"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed_noise, "discrete_gaussian", no_noise)
        patch.setattr(case.phase, "vector", staticmethod(keep))
        site = LoneSite(case.views(row), privacy, name="a")
        sent = site.released(case.phase, request, *scales(case.references), *case.entries)
    sensitivity = case.phase.sensitivity(request, len(sent), privacy.neighbours)
    return sent, kept["sigma"] / privacy.multiplier(case.phase.name, 1), kept["values"], sensitivity


def farthest(case):
    """By how much of what is allowed two neighbours differ at most, of all pairs: numbers, and what leaves the site."""
    worst = [0.0, 0.0]
    for how, privacy in PRIVACY.items():
        of_rows = [released(case, row, privacy) for row in case.rows]
        alone = released(case, None, privacy)
        pairs = itertools.combinations(of_rows, 2) if how == "replace" else ((one, alone) for one in of_rows)
        for (sent, unit, values, sensitivity), (other_sent, _, other_values, _) in pairs:
            apart = np.linalg.norm(values - other_values) / sensitivity
            apart_sent = np.linalg.norm((sent - other_sent).astype(float)) / unit
            worst = [max(worst[0], apart), max(worst[1], apart_sent)]
    return worst


def adversarial_rows(rng, centers, heat_time, missing, count):
    """In model units: at the strongest pull on a centre, opposite, on centres, far away, with cells missing, twice."""
    joint = np.hstack(centers)
    best = (2 * heat_time) ** -0.5
    rows = []
    while len(rows) < count:
        anchor = joint[rng.integers(len(joint))]
        direction = rng.normal(size=joint.shape[1]) * (rng.random(joint.shape[1]) < 0.6)
        direction /= max(np.linalg.norm(direction), 1e-12)
        length = best * rng.choice([0.0, 0.5, 0.9, 1.0, 1.1, 2.0, 1e3, 1e6, 1e15])
        share = rng.choice([0.0, 0.0, 0.3, 0.8])
        for sign in (1.0, -1.0):
            row = anchor + sign * length * direction
            if missing:
                # one of two opposite rows lacks what does not pull, and may be what the height is of
                lacking = (direction == 0) & (sign < 0) if share == 0 else rng.random(len(row)) < share
                row[lacking] = np.nan
            rows.append(row)
        if rng.random() < 0.2:
            rows.append(rows[-1])
    return np.array(rows[:count])


def always(request):
    """A request that does not depend on what makes data sets neighbours."""
    return lambda _: request


@st.composite
def cases(draw, phase):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    widths = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    heat_coef = draw(st.sampled_from(["uniform", "minmax"]))
    heat_time = 10.0 ** draw(st.floats(-3, 1))
    n_clusters = draw(st.integers(1, 3))
    missing, unit_rows = draw(st.booleans()), draw(st.integers(0, 5)) == 0
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32]))
    names = tuple(f"view_{view}" for view in range(len(widths)))
    spread = draw(st.sampled_from([0.1, 1.0, 4.0])) * (2 * heat_time) ** -0.5
    centers = [rng.normal(size=(n_clusters, width)) * spread for width in widths]
    references = []
    for width in widths:
        low, span = rng.normal(size=width) * spread, rng.uniform(0.1, 5.0, width) * spread
        shift, scale = rng.normal(size=width) * 3, rng.uniform(0.1, 10.0, width)
        references.append(Reference(unit_rows, shift, scale, heat_coef, low, span, 1.0))
    rows = adversarial_rows(rng, centers, heat_time, missing, ROWS)
    base = adversarial_rows(rng, centers, heat_time, missing, draw(st.integers(0, 6)))
    base = base.reshape(-1, sum(widths))
    if missing and draw(st.booleans()):  # rows that hold up single features
        cells = rng.random((4, sum(widths))) < 0.5
        base = np.vstack([base, np.where(cells, np.hstack(centers)[rng.integers(n_clusters, size=4)], np.nan)])
    shifts, units = (np.concatenate([getattr(r, part) for r in references]) for part in ("shift", "scale"))
    weights = draw(st.sampled_from([np.ones(len(widths)), 10.0 ** rng.uniform(-9, 3, len(widths))]))
    entries = ()
    if phase in ("round", "moves"):
        if phase == "moves":
            entries = (draw_basis(rng, widths),)
            centers = [values @ e for values, e in zip(centers, entries[0].columns, strict=True)]
        parameters = make_parameters(
            centers,
            view_weights=weights,
            heat_time=heat_time,
            fuzzifier=draw(st.sampled_from([1 + 1e-9, 1.02, 1.0625, 2.0, 50.0])),
            view_exponent=draw(st.sampled_from([1.1, 2.0, 6.0])),
        )
        scaled_for = {"unit": UNITS[draw(st.sampled_from(["row", "site"]))], "rows": draw(st.sampled_from([1.0, 50.0]))}
        request = partial(noisy_request, parameters, **scaled_for)
        if phase == "moves":
            request = partial(moves_request, parameters, in_features=draw(st.booleans()))
    else:
        q, d = min(2, sum(widths)), sum(widths)
        landmarks = Landmarks(rng.normal(size=(d, q)) * spread, rng.normal(size=(25, q)) * spread)
        plain = {
            "ranges": RangesRequest(widths),
            "means": MeansRequest(spread),
            "lengths": Nothing(),
            "spreads": SpreadsRequest(widths, spread),
            "directions": DirectionsRequest(spread, 0),
            "cells": CellsRequest(landmarks),
            "ties": TiesRequest(draw_graph(rng, widths, spread)),
        }[phase]
        request = always(plain)
    absent = draw(st.sampled_from([None, None, len(widths) - 1])) if len(widths) > 1 else None
    base, rows = base * units + shifts, rows * units + shifts
    return Case(PHASES[phase], request, references, names, base, rows, widths, absent, dtype, entries)


def draw_graph(rng, widths, spread):
    """Anchors near rows, some of them the same, some of them as far out as a site allows."""
    parts = [rng.normal(size=(rng.integers(1, 7), width)) * spread for width in widths]
    places = rng.integers(len(parts[0]), size=6)
    anchors = tuple(part[places % len(part)] * rng.choice([1.0, 1.0, 1e4], size=(6, 1)) for part in parts)
    graph = AnchorGraph(anchors, int(rng.integers(1, 7)), float(10.0 ** rng.uniform(-2, 2)), joint_weight=1.0)
    return round_arrays(graph, str(rng.choice(["double", "half"])))


def draw_basis(rng, widths):
    """Some directions of each view, as nobody honest would send them: of any length, and far from a right angle."""
    tables = []
    for width in widths:
        rows = rng.normal(size=(rng.integers(1, width + 1), width)) + rng.choice([0.0, 3.0])
        rows *= 10.0 ** rng.uniform(-1, 1, (len(rows), 1))
        tables.append(Table.of(rows, str(rng.choice(["double", "half", "byte"]))))
    basis = Basis(tuple(tables))
    try:
        return basis if basis.columns else None
    except MessageError:  # so near to each other that they are none
        return draw_basis(rng, widths)


@pytest.mark.parametrize("phase", PHASES)
def test_no_pair_of_neighbours_is_further_apart_than_the_noise_is_sized_for(phase):
    pairs = []

    @given(cases(phase))
    @settings(max_examples=18)
    def check(case):
        values, sent = farthest(case)
        pairs.append(ROWS * (ROWS - 1) // 2 + ROWS)
        assert values <= WITHIN
        assert sent <= WITHIN

    check()
    assert sum(pairs) >= 2000


SITES = {how: replace(privacy, unit="site") for how, privacy in PRIVACY.items()}


def released_by_site(case, rows, phase, bound, privacy):
    """What a site with these rows and no others would add noise to, and the noise, both in grid units."""
    kept = {}

    def no_noise(sigma, size):
        kept["sigma"] = sigma
        return np.zeros(size, np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed_noise, "discrete_gaussian", no_noise)
        site = LoneSite(replace(case, base=rows[:0]).views(rows), privacy, name="a")
        header = Header(None, NoisySum(1, 1, bound=bound))
        request = case.request(privacy.neighbours)
        sent = site.released(phase, request, *scales(case.references), *case.entries, header=header)
    return sent.astype(float), kept["sigma"] / privacy.multiplier(phase.name, 1)


@pytest.mark.parametrize("how", SITES)
@pytest.mark.parametrize("phase", PHASES)
def test_no_two_sites_are_further_apart_than_the_noise_is_sized_for(phase, how):
    """Whatever the rows of a site are, and whatever length the server asks them to be cut to."""
    nearest_miss = []

    @given(cases(phase), st.floats(-4, 1).map(lambda power: 10**power), st.booleans())
    @settings(max_examples=12)
    def check(case, bound, asks_length):
        asked = LengthOfSum(case.phase) if asks_length else case.phase
        parts = [case.rows[:5], case.rows[5:6], case.rows[6:], np.repeat(case.rows[:1], 20, 0), case.rows[:0]]
        found = [released_by_site(case, rows, asked, bound, SITES[how]) for rows in parts]
        assert not found[-1][0].any()  # a site without rows adds nothing, as if it were not there
        pairs = itertools.combinations(found, 2) if how == "replace" else ((one, found[-1]) for one in found)
        for (sent, unit), (other, _) in pairs:
            nearest_miss.append(np.linalg.norm(sent - other) / unit)
            assert nearest_miss[-1] <= WITHIN

    check()
    assert max(nearest_miss) > 0.4  # vectors are cut to the bound, and not to less


def one_view(base, rows, centers, **options):
    """A case of one view in model units."""
    width = centers.shape[1]
    request = partial(noisy_request, make_parameters([centers], **options))
    base, rows = np.asarray(base, float), np.asarray(rows, float)
    return Case(NoisyRounds, request, [plain_reference(width)], ("view_0",), base, rows, (width,), None, np.float64)


def test_a_row_that_lacks_the_feature_of_the_height_moves_it_and_turns_the_pull_round_at_once():
    """What a bound with heights that cancel allows is exceeded: the other rows hold the second feature up."""
    t, nan = 0.3, np.nan
    r = (2 * t) ** -0.5
    case = one_view([[nan, 0.0]] * 3, [[0.9 * r, 0.0], [-r, nan]], np.zeros((1, 2)), heat_time=t)
    (_, _, one, bound), (_, _, other, _) = (released(case, row, PRIVACY["replace"]) for row in case.rows)
    apart = np.linalg.norm(one - other)
    reach = kernel_reach(t)
    assert apart <= bound * WITHIN
    # with a scale of the heights that costs nothing where heights cancel
    count = reach
    pulls, heights, costs = abs(one - other)[:2], (one - other)[2], (one - other)[3]
    scale = best_kernel_scale(reach, TYPICAL_MOVE, 2, 1, "replace")
    moved = np.sqrt(pulls @ pulls + (heights / scale * count) ** 2 + (costs / min(scale, 1) * min(count, 1)) ** 2)
    cancelling = np.sqrt(max(4 * reach**2, 2 * (reach**2 + count**2)))
    assert cancelling * 1.04 < moved <= kernel_sensitivity(reach, count, min(count, 1), 1, "replace")


@given(st.integers(0, 2**32 - 1), st.floats(-2, 1).map(lambda x: 10**x))
@settings(max_examples=10)
def test_a_row_of_other_levels_moves_a_round_no_further_than_any_other_row(seed, heat_time):
    """Blocks of zeros and ones need no bound of their own: that of the kernel holds for all of a row's cells."""
    rng = np.random.default_rng(seed)

    def rows(count):
        blocks = [np.eye(size)[rng.integers(size, size=count)] for size in (2, 3, 5)]
        for block in blocks:
            block[rng.random(count) < 0.2] = np.nan  # a missing cell is missing in all levels
        return np.hstack([*blocks, rng.normal(size=(count, 1))])

    centers = np.hstack([rng.dirichlet(np.ones(size), 2) for size in (2, 3, 5)] + [rng.normal(size=(2, 1))])
    values, sent = farthest(one_view(rows(6), rows(12), centers, heat_time=heat_time))
    assert values <= WITHIN
    assert sent <= WITHIN


@given(st.floats(0, 3), st.floats(0, 3), st.floats(-2, 2).map(lambda x: 10**x), st.integers(1, 3))
def test_the_bound_of_a_round_covers_every_pair_of_distances(s, s_other, ratio, n_views):
    """Two rows on opposite sides of one centre, the larger height counted whole: the worst case of the proof."""
    reach, count = 1.0, ratio
    e, e_other = np.exp(-(s**2) / 2), np.exp(-(s_other**2) / 2)
    pull = (s * e + s_other * e_other) * np.exp(0.5)
    apart = n_views * (pull**2 + count**2 * (max(e, e_other) ** 2 + (e - e_other) ** 2))
    assert np.sqrt(apart) <= kernel_sensitivity(reach, count, count, n_views, "replace") * WITHIN
    one = n_views * ((s * e) ** 2 * np.e + count**2 * (e**2 + (1 - e) ** 2))
    assert np.sqrt(one) <= kernel_sensitivity(reach, count, count, n_views, "add-remove") * WITHIN


@given(
    st.floats(-1, 1).map(lambda x: 10**x),
    st.floats(-1, 1).map(lambda x: 10**x),
    st.integers(1, 50),
    st.integers(1, 4),
    st.sampled_from(["replace", "add-remove"]),
)
def test_no_other_scale_of_the_heights_has_less_error(reach, norm, n_features, n_views, how):
    def error(scale):
        return kernel_sensitivity(reach, scale, 0.0, n_views, how) ** 2 * (n_features + (norm / scale) ** 2)

    best = best_kernel_scale(reach, norm, n_features, n_views, how)
    for factor in (0.3, 0.9, 0.999, 1.001, 1.1, 3):
        assert error(best) <= error(best * factor) * WITHIN


def test_the_bound_of_a_round_by_hand():
    assert kernel_reach(0.5) == pytest.approx(np.exp(-0.5))
    assert kernel_sensitivity(3.0, 4.0, 4.0, 1, "add-remove") == pytest.approx(5.0)
    assert kernel_sensitivity(1.0, 0.0, 0.0, 4, "replace") == pytest.approx(4.0)
    assert kernel_sensitivity(1.0, 2.0, 2.0, 1, "replace") == pytest.approx(np.sqrt(10))
    with pytest.raises(ValueError, match=r"cost_scale=2.0 must not be above count_scale=1.0"):
        kernel_sensitivity(1.0, 1.0, 2.0, 1)


def attained(phase, request, rows):
    """Which share of the bound two rows of two features differ by, one in the place of the other."""
    units = [plain_reference(2)]
    case = Case(phase, always(request), units, ("view_0",), np.ones((2, 2)), np.array(rows), (2,), None, np.float64)
    values = [released(case, row, PRIVACY["replace"])[2] for row in case.rows]
    return np.linalg.norm(values[0] - values[1]) / phase.sensitivity(request, 0, "replace")


def test_the_bound_of_second_moments_is_attained_by_rows_at_a_right_angle():
    """With the constant that each row has after the cut: so rows themselves are a little further apart."""
    cosine = -(MIDDLE_SHARE**2)
    for radius in (0.5, 2.0):
        rows = 5 * np.array([[radius, 0.0], [radius * cosine, radius * np.sqrt(1 - cosine**2)]])
        request = DirectionsRequest(radius, 0)
        assert attained(Directions, request, rows) == pytest.approx(1.0)
        # on the far side of the middle second moments are the same; only the sum of rows differs
        opposite = 2 * np.sqrt(2) * MIDDLE_SHARE / (np.sqrt(2) * (1 + MIDDLE_SHARE**2))
        assert attained(Directions, request, [rows[0], -rows[0]]) == pytest.approx(opposite)


def test_the_bound_of_means_is_attained_by_opposite_rows_of_which_one_is_as_long_as_counts():
    for radius in (0.5, 2.0):
        request, row = MeansRequest(radius), np.array([radius, 0.0])
        assert attained(Means, request, [9 * row, -row]) == pytest.approx(1.0)
        for other in (-9 * row, -0.99 * row, 0 * row, row):
            assert attained(Means, request, [9 * row, other]) < 1.0


@pytest.mark.parametrize("weight", [1e-9, 1e-5, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_row_on_a_centre_does_not_take_those_of_others_with_it(weight, dtype):
    """However little the server lets a view count: a distance of zero over zero would make all sums undefined."""
    center, others = np.array([[0.5, -0.25], [2.0, 1.0]]), np.tile([[1.0, 0.0]], (40, 1))
    case = one_view(others, [center[0], [0.6, 0.1]], center, view_weights=np.array([weight]), view_exponent=6.0)
    values, sent = farthest(replace(case, dtype=dtype))
    assert values <= WITHIN
    assert sent <= WITHIN


def test_a_basis_along_the_pull_of_a_row_attains_most_of_the_bound_and_one_across_it_little():
    """A projection shortens what is across it and leaves what is along it: so the bound cannot be lower."""
    r = (2 * 0.3) ** -0.5
    plain = one_view(np.zeros((2, 2)), [[r, 0.0], [-r, 0.0]], np.zeros((1, 2)), heat_time=0.3)
    parameters = make_parameters([np.zeros((1, 1))], heat_time=0.3)
    for direction, in_features, least, most in (
        ([7.0, 0.0], False, 0.9, WITHIN),
        ([0.0, 7.0], False, 0.0, 0.6),
        ([0.0, 7.0], True, 0.9, WITHIN),  # as in a round without a basis
    ):
        basis = Basis((Table.of(np.array([direction]), "double"),))
        request = partial(moves_request, parameters, in_features=in_features)
        case = replace(plain, phase=NoisyMoves, request=request, entries=(basis,))
        assert least < farthest(case)[0] <= most


def test_a_round_attains_most_of_its_bound():
    """Else noise is wasted, or the cases above are too tame."""
    r = (2 * 0.3) ** -0.5
    case = one_view(np.zeros((2, 2)), [[r, 0.0], [-r, 0.0]], np.zeros((1, 2)), heat_time=0.3)
    assert 0.95 < farthest(case)[0] <= WITHIN


# --------------------------------------------------------------------------------------- code that must be caught


def own_coefficients(rows, parameters):
    """Coefficients from the range of the site's own rows."""
    part = rows.views.tables[0]
    low, high = np.nanmin(part, axis=0), np.nanmax(part, axis=0)
    reference = replace(rows.references[0], heat_coef="minmax", low=low, span=np.maximum(high - low, 1e-9))
    return replace(rows, references=(reference,)), parameters


def two_passes(rows, parameters):
    with Passes(rows, parameters.n_clusters) as scan:
        found = scan.statistics(parameters)
    centers = [
        np.divide(n, w, out=a.copy(), where=np.broadcast_to(w > 1e-12, n.shape))
        for n, w, a in zip(found.numerators, found.weights, parameters.centers, strict=True)
    ]
    return rows, replace(parameters, centers=tuple(centers))


def own_weights(rows, parameters):
    with Passes(rows, parameters.n_clusters) as scan:
        costs = np.maximum(scan.statistics(parameters).costs, 1e-9)
    return rows, replace(parameters, view_weights=(1 / costs) / (1 / costs).sum())


def own_offset(rows, parameters):
    means = [np.nanmean(table, axis=0) for table in rows.views.tables]
    return rows, replace(parameters, centers=tuple(a + m for a, m in zip(parameters.centers, means, strict=True)))


def worlds():
    """Many rows that one row can move all at once, where the code lets it."""
    t = 0.3
    r = (2 * t) ** -0.5
    torn = np.tile([0.0, 6.0], (40, 1))  # near one centre in the first view, near the other in the second
    edge = np.tile([-2.2 * r, -2.2 * r], (40, 1))
    centers = [np.array([[0.0], [6.0]]), np.array([[0.0], [6.0]])]
    request, units = partial(noisy_request, make_parameters(centers, heat_time=t)), [plain_reference(1)] * 2
    rows = np.array([[r, r], [-r, -r], [0.0, 0.0], [60.0, 60.0], [0.01, 6.0], [3.0, 0.0]])
    names, base = ("view_0", "view_1"), np.vstack([torn, edge])
    both = Case(NoisyRounds, request, units, names, base, rows, (1, 1), None, np.float64)
    one = one_view(np.vstack([edge, -0.5 * edge]), [[60.0, 0.0], [0.0, 0.0]], np.zeros((1, 2)), heat_time=t)
    return [both, one]


@pytest.mark.parametrize("broken", [own_coefficients, two_passes, own_weights, own_offset])
def test_code_that_lets_a_row_act_on_others_is_caught(broken, monkeypatch):
    assert max(farthest(case)[0] for case in worlds()) <= WITHIN

    def collect(site, parameters):
        rows = site.rows()
        if rows.n_rows:  # a site counts its numbers without its rows first
            rows, parameters = broken(rows, parameters)
        with Passes(rows, parameters.n_clusters) as scan:
            return scan.statistics(parameters)

    monkeypatch.setattr(Site, "collect", collect)
    caught = [max(farthest(case)) for case in worlds() if broken is not own_coefficients or len(case.widths) == 1]
    assert max(caught) > 1.5
