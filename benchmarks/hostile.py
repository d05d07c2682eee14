"""Hostile sites: what 4 of 20 sites that lie can do to the model, by how the server adds up.

    python benchmarks/hostile.py

Sites answer rounds at the server's parameters; hostile ones know what the honest ones say and agree on a lie. All runs
of a seed begin at the start that 20 honest sites give, and go on for a fixed number of rounds, so that a lie has its
time. The agreement (ARI with the classes) is over the rows of the 16 honest sites; the figures are by how much it
differs from that of the 16 honest sites alone with a plain sum. The start itself is attacked in the last table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from data import RESULTS, seeds, shared_sets
from fedhk import EFKMVC
from fedhk.data.clients import check_clients
from fedhk.datasets import make_sites, split_dirichlet, split_even, split_views
from fedhk.federation.payloads import unpack_candidates
from fedhk.federation.server import next_request, server_step
from fedhk.federation.site import SiteState, client_step
from fedhk.federation.state import Plan, ServerState
from fedhk.model.candidates import Candidates, candidate_rows, candidate_starts, candidates_per_site
from fedhk.model.loop import improve
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.privacy import robust
from fedhk.privacy.trusted_candidates import trusted_candidates

KEPT = "### Tried before"
# other seeds than those by which variants were chosen, which were 0 to 4
SEEDS, N_SITES, N_HOSTILE = seeds(5, first=10), 20, 4
ROUNDS = 10

Answers = list[Statistics]
Total = Callable[[Answers, Parameters], Statistics]


# ------------------------------------------------------------------------------------------------------------ attacks


def implied(answer: Statistics, parameters: Parameters) -> list[np.ndarray]:
    """A site's own centres."""
    parts = zip(answer.numerators, answer.weights, parameters.centers, strict=True)
    return [np.divide(n, w, out=np.array(a, float), where=np.broadcast_to(w > 0, n.shape)) for n, w, a in parts]


def moved(answer: Statistics, centers: Sequence[np.ndarray]) -> Statistics:
    """The answer with other centres."""
    return replace(answer, numerators=tuple(w * a for w, a in zip(answer.weights, centers, strict=True)))


def sign_flip(own: Answers, _: Answers, parameters: Parameters, times: float = 1.0) -> Answers:
    """Moves of the centres the other way."""
    return [
        moved(s, [a - times * (b - a) for a, b in zip(parameters.centers, implied(s, parameters), strict=True)])
        for s in own
    ]


def permutation(own: Answers, _: Answers, parameters: Parameters) -> Answers:
    """Every cluster is said to be the next."""
    order = np.roll(np.arange(parameters.n_clusters), 1)
    return [
        replace(
            s,
            numerators=tuple(n[order] for n in s.numerators),
            weights=tuple(w[order] for w in s.weights),
            masses=s.masses[order],
        )
        for s in own
    ]


def collapse(own: Answers, _: Answers, parameters: Parameters, *, on_a_center: bool = False) -> Answers:
    """All centres at the grand mean, or at the first centre."""
    return [moved(s, [np.tile(on_a_center * a[:1], (len(a), 1)) for a in parameters.centers]) for s in own]


def merge(own: Answers, _: Answers, parameters: Parameters) -> Answers:
    """The two nearest clusters are one."""
    joint = np.hstack(parameters.centers)
    apart = np.square(joint[:, None] - joint).sum(axis=2) + np.diag(np.full(len(joint), np.inf))
    pair = list(np.unravel_index(apart.argmin(), apart.shape))

    def merged(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        values[pair] = values[pair].mean(axis=0)
        return values

    return [
        replace(
            s,
            numerators=tuple(map(merged, s.numerators)),
            weights=tuple(map(merged, s.weights)),
            masses=merged(s.masses),
        )
        for s in own
    ]


def a_little(own: Answers, honest: Answers, parameters: Parameters, z: float = 1.5) -> Answers:
    """ALIE: the honest mean less some standard deviations, with the mass of a mean site."""
    views = [np.stack(view) for view in zip(*(implied(s, parameters) for s in honest), strict=True)]
    mean = reduce(add, honest).scaled(1 / len(honest))
    return [moved(mean, [view.mean(axis=0) - z * view.std(axis=0) for view in views])] * len(own)


def inflation(own: Answers, _: Answers, parameters: Parameters) -> Answers:
    """A thousand times the rows, all centres mirrored at the grand mean."""
    return [moved(s, [-b for b in implied(s, parameters)]).scaled(1000.0) for s in own]


def concentration(own: Answers, honest: Answers, parameters: Parameters) -> Answers:
    """A thousand times the rows, all in the smallest cluster, nearly half of the way to the largest."""
    masses = reduce(add, honest).masses
    small, large = masses.argmin(), masses.argmax()
    lies = []
    for s in own:
        centers = [a.copy() for a in parameters.centers]
        for a in centers:
            a[small] = 0.55 * a[small] + 0.45 * a[large]
        alone = (np.arange(len(masses)) == small)[:, None] + 1e-9
        weights = tuple(alone * w.sum(axis=0) for w in s.weights)
        lie = replace(s, weights=weights, masses=s.masses.sum() * alone[:, 0] / alone.sum())
        lies.append(moved(lie, centers).scaled(1000.0))
    return lies


ATTACKS: dict[str, Callable[[Answers, Answers, Parameters], Answers]] = {
    "nobody lies": lambda own, _, __: own,
    "sign flip": sign_flip,
    "sign flip x 10": partial(sign_flip, times=10.0),
    "permutation": permutation,
    "collapse": collapse,
    "collapse on a centre": partial(collapse, on_a_center=True),
    "merge": merge,
    "ALIE": a_little,
    "mass inflation": inflation,
    "concentration": concentration,
}


# --------------------------------------------------------------------------------------------------------------- runs


@dataclass(frozen=True)
class Federation:
    plan: Plan
    state: ServerState
    candidates: dict[str, Candidates]
    sites: dict[str, Passes]
    labels: dict[str, np.ndarray]
    hostile: frozenset[str]


def federation(views: list[np.ndarray], labels: np.ndarray, mix: float, seed: int) -> Federation:
    """Sites up to the first round; all honest until then."""
    n_clusters = len(np.unique(labels))
    split = (
        split_even(labels, N_SITES, seed)
        if np.isinf(mix)
        else split_dirichlet(labels, N_SITES, mix, min_rows=3, random_state=seed)
    )
    clients = check_clients(split_views(views, split))
    plan = EFKMVC(n_clusters, random_state=seed)._plan(clients)
    sites, state, found = {name: SiteState(name, tables) for name, tables in clients.items()}, ServerState(), {}
    while state.phase != "round":
        request, replies = next_request(plan, state, informed=False, holds=False), []
        for name, site in sites.items():
            sites[name], reply = client_step(site, request, 1)
            replies.append(reply)
            if state.phase == "candidates":
                count = candidates_per_site(n_clusters, N_SITES)
                found[name] = unpack_candidates(reply, state.widths, count)
        state, _ = server_step(plan, state, replies)
    passes = {name: Passes(site.rows, n_clusters) for name, site in sites.items()}
    hostile = np.random.default_rng(1000 + seed).choice(sorted(sites), N_HOSTILE, replace=False)
    own = {name: labels[rows] for name, rows in split.items()}
    return Federation(plan, state, found, passes, own, frozenset(hostile.tolist()))


def rounds(fed: Federation, start: Parameters, total: Total, attack: str | None) -> float:
    """Agreement of the honest sites' rows after all rounds; without an attack the hostile sites are not there."""
    parameters = start
    for _ in range(ROUNDS):
        said = {name: scan.statistics(parameters) for name, scan in fed.sites.items()}
        honest = [s for name, s in said.items() if name not in fed.hostile]
        own = [s for name, s in said.items() if name in fed.hostile]
        lies = [] if attack is None else ATTACKS[attack](own, honest, parameters)
        parameters = improve(parameters, total([*honest, *lies], parameters), learn_weights=False)
    names = [name for name in fed.sites if name not in fed.hostile]
    found = np.concatenate([fed.sites[name].assign(parameters)[1] for name in names])
    return float(adjusted_rand_score(np.concatenate([fed.labels[name] for name in names]), found))


def sums(how: str, **changed: Any) -> Total:
    """A way to add up; parts of it may be replaced, to see what they are for."""

    def total(answers: Answers, parameters: Parameters) -> Statistics:
        with patch.dict(vars(robust), changed):
            return robust.robust_total(answers, parameters, how)

    return total


WAYS = {how: sums(how) for how in robust.AGGREGATIONS}
PARTS = {
    "robust": sums("robust"),
    "without matching of clusters": sums("robust", match_clusters=lambda answer, _: answer),
    "without a cap on masses": sums("robust", cap_masses=list),
    "without even pulls": sums("robust", even_pulls=np.ones_like),
    "without both caps": sums("robust", cap_masses=list, even_pulls=np.ones_like),
    "smoothing 1": sums("robust", SMOOTHING=1.0),
    "smoothing 0.001": sums("robust", SMOOTHING=0.001),
    "pull up to 0.45": sums("robust", MOST_PULL=0.45),
}


# --------------------------------------------------------------------------------------------------------- the start


def start_of(fed: Federation, candidates: list[Candidates]) -> Parameters:
    """The start that the server chooses on candidates."""
    rows = candidate_rows(candidates, fed.state.references, fed.state.names)
    settings = fed.plan.settings
    count = candidate_starts(settings.n_init, rows.n_rows, sum(fed.state.widths), settings.n_clusters)
    return settings.start(rows, np.random.RandomState(fed.plan.seed), 1, n_init=count)


def false_candidates(fed: Federation, lie: str) -> list[Candidates]:
    """Candidates of all sites; the hostile ones put theirs where nothing is, and say that they have many rows."""
    joint = np.hstack(fed.state.parameters.centers)
    away = {"far away": 3 * joint[0] - 2 * joint[1], "between two clusters": (joint[0] + joint[1]) / 2}
    result = []
    for name, own in fed.candidates.items():
        if name in fed.hostile and lie == "random places":
            places = joint.std() * 3 * np.random.default_rng(0).normal(size=own.points.shape)
            result.append(replace(own, points=places, sizes=1000 * own.sizes))
        elif name in fed.hostile and lie in away:
            places = np.tile(away[lie], (len(own.sizes), 1))
            result.append(replace(own, points=places, sizes=1000 * own.sizes))
        else:
            result.append(own)
    return result


# -------------------------------------------------------------------------------------------------------------- tables


def made(seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Five clusters in three views that overlap a little."""
    data = make_sites(
        1, 2000, 5, (8, 6, 4), class_mix=None, shift=0.0, scale=0.0, size_spread=0.0, separation=3.4, random_state=seed
    )
    return list(data.views), data.labels


def cell(values: list[float]) -> str:
    return f"{np.mean(values):+.3f} ± {np.std(values):.3f}"


def table(title: str, feds: list[Federation], ways: dict[str, Total], attacks: Sequence[str]) -> list[str]:
    """By how much agreement differs from that of the honest sites alone: mean and spread over seeds."""
    honest = [rounds(fed, fed.state.parameters, WAYS["sum"], None) for fed in feds]
    lines = [f"### {title}: honest sites alone {np.mean(honest):.3f} ± {np.std(honest):.3f}", ""]
    lines += ["| | " + " | ".join(ways) + " |", "|" + "---|" * (len(ways) + 1)]
    for attack in attacks:
        cells = []
        for total in ways.values():
            found = [rounds(fed, fed.state.parameters, total, attack) for fed in feds]
            cells.append(cell([a - b for a, b in zip(found, honest, strict=True)]))
        lines.append(f"| {attack} | " + " | ".join(cells) + " |")
    print("\n".join(lines), flush=True)
    return [*lines, ""]


def start_table(title: str, feds: list[Federation]) -> list[str]:
    """Lies about candidates; rounds are honest then."""
    ways: dict[str, Callable[[Sequence[Candidates]], list[Candidates]]] = {
        "as they are": list,
        "trusted": trusted_candidates,
    }
    honest = [rounds(fed, fed.state.parameters, WAYS["sum"], None) for fed in feds]
    lines = [f"### {title}: lies about candidates, then honest rounds", ""]
    lines += ["| | " + " | ".join(ways) + " |", "|" + "---|" * (len(ways) + 1)]
    for lie in ("nobody lies", "far away", "between two clusters", "random places"):
        cells = []
        for choose in ways.values():
            found = [rounds(f, start_of(f, choose(false_candidates(f, lie))), WAYS["sum"], None) for f in feds]
            cells.append(cell([a - b for a, b in zip(found, honest, strict=True)]))
        lines.append(f"| {lie} | " + " | ".join(cells) + " |")
    print("\n".join(lines), flush=True)
    return [*lines, ""]


def main() -> None:
    kinds = {"even split": np.inf, "Dirichlet(1)": 1.0, "Dirichlet(0.5)": 0.5, "Dirichlet(0.1)": 0.1}
    lines: list[str] = []
    sources = {"generated": made}
    sources |= {d.name: (lambda _, d=d: (d.views, d.labels)) for d in shared_sets() if d.name == "handwritten"}
    with threadpool_limits(1):
        for name, source in sources.items():
            for kind, mix in kinds.items():
                if name != "generated" and mix < 1:
                    continue
                feds = [federation(*source(seed), mix, seed) for seed in SEEDS]
                attacks = list(ATTACKS) if mix >= 1 else ["nobody lies", "permutation", "concentration"]
                lines += table(f"{name}, {kind}", feds, WAYS, attacks)
                if name == "generated" and mix >= 0.5:
                    lines += start_table(f"{name}, {kind}", feds)
                if name == "generated" and mix == 0.5:
                    chosen = ["nobody lies", "permutation", "collapse on a centre", "mass inflation", "concentration"]
                    lines += table(f"{name}, {kind}, parts of it", feds, PARTS, chosen)
    path = RESULTS / "hostile.md"
    before = path.read_text().partition(KEPT) if path.exists() else ("", "", "")
    path.write_text("\n".join(lines) + "\n" + before[1] + before[2])


if __name__ == "__main__":
    main()
