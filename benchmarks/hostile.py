"""Hostile sites: what 4 of 20 sites that lie can do to the model, by how the server adds up.

    python benchmarks/hostile.py

Sites answer rounds at the server's parameters; hostile ones know what the honest ones say and agree on a lie. All runs
of a seed begin at the start that 20 honest sites give, and go on for a fixed number of rounds, so that a lie has its
time. The agreement (ARI with the classes) is over the rows of the 16 honest sites; the figures are by how much it
differs from that of the 16 honest sites alone with a plain sum. The start itself is attacked in the last table.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from data import RESULTS, seeds, shared_sets
from fedhk import EFKMVC
from fedhk.data.clients import check_clients
from fedhk.datasets import make_sites, split_dirichlet, split_even, split_views
from fedhk.federation.aggregators import SumAggregator
from fedhk.federation.board import Board
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import Minimisation
from fedhk.federation.participation import Participation
from fedhk.federation.phases.candidates import AskCandidates
from fedhk.federation.run import Run, conduct
from fedhk.federation.site import Site
from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.statistics import Statistics
from fedhk.privacy import robust
from fedhk.privacy.trusted_candidates import trusted_candidates
from fedhk.starts.candidates import Candidates
from plots import save
from tables import spread, table

# other seeds than those by which variants were chosen, which were 0 to 4
SEEDS, N_SITES, N_HOSTILE = seeds(5, first=10), 20, 4
ROUNDS = 10

Answers = list[Statistics]
Total = Callable[[Answers, Parameters], Statistics]
Source = Callable[[int], tuple[list[np.ndarray], np.ndarray]]


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
class Listening(SumAggregator):
    """The plain sum, which keeps the candidates that sites sent."""

    heard: list[Candidates] = field(default_factory=list)

    def candidates(self, sites: Sequence[Candidates]) -> Sequence[Candidates]:
        self.heard.extend(sites)
        return sites


@dataclass(frozen=True)
class Federation:
    choice: AskCandidates
    """The phase that chooses the start."""
    board: Board
    candidates: dict[str, Candidates]
    sites: dict[str, Passes]
    labels: dict[str, np.ndarray]
    hostile: frozenset[str]

    @property
    def start(self) -> Parameters:
        """The start that all sites together give when they are honest."""
        return self.board.get(Minimisation).parameters

    def start_from(self, candidates: list[Candidates]) -> Parameters:
        """The start that the server chooses on candidates."""
        return self.choice.start(self.board, candidates, []).get(Minimisation).parameters


def federation(views: list[np.ndarray], labels: np.ndarray, mix: float, seed: int) -> Federation:
    """Sites up to the first round; all honest until then."""
    n_clusters = len(np.unique(labels))
    split = (
        split_even(labels, N_SITES, seed)
        if np.isinf(mix)
        else split_dirichlet(labels, N_SITES, mix, min_rows=3, random_state=seed)
    )
    clients = check_clients(split_views(views, split))
    listening = Listening()
    model = EFKMVC(n_clusters, aggregator=listening, random_state=seed)
    choices = model._choose(clients, 1)
    choice = model.start_phase(choices)
    engine = InProcessEngine({name: Site(name, tables) for name, tables in clients.items()})
    phases = [*model.describe_phases(choices), *model.calibrate_phases(choices), choice]
    board = conduct(phases, engine, Run(), seed=choices.seed, participation=Participation()).board
    passes = {name: Passes(site.rows(), n_clusters) for name, site in engine.states.items()}
    hostile = np.random.default_rng(1000 + seed).choice(sorted(clients), N_HOSTILE, replace=False)
    own = {name: labels[rows] for name, rows in split.items()}
    found = dict(zip(sorted(clients), listening.heard, strict=True))
    return Federation(choice, board, found, passes, own, frozenset(hostile.tolist()))


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


def false_candidates(fed: Federation, lie: str) -> list[Candidates]:
    """Candidates of all sites; the hostile ones put theirs where nothing is, and say that they have many rows."""
    joint = np.hstack(fed.start.centers)
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


Changes = dict[str, dict[str, list[float]]]
"""By attack and by way to add up: how much agreement differs from that of the honest sites alone, with each seed."""


def attacked(feds: list[Federation], ways: dict[str, Total], attacks: Sequence[str]) -> Changes:
    """Lies in every round."""
    honest = alone(feds)

    def change(total: Total, attack: str) -> list[float]:
        found = [rounds(fed, fed.start, total, attack) for fed in feds]
        return [a - b for a, b in zip(found, honest, strict=True)]

    return {attack: {name: change(total, attack) for name, total in ways.items()} for attack in attacks}


def attacked_starts(feds: list[Federation]) -> Changes:
    """Lies about candidates; rounds are honest then."""
    ways: dict[str, Callable[[Sequence[Candidates]], list[Candidates]]] = {
        "as they are": list,
        "trusted": trusted_candidates,
    }
    honest = alone(feds)

    def change(choose: Callable[[Sequence[Candidates]], list[Candidates]], lie: str) -> list[float]:
        found = [rounds(f, f.start_from(choose(false_candidates(f, lie))), WAYS["sum"], None) for f in feds]
        return [a - b for a, b in zip(found, honest, strict=True)]

    lies = ("nobody lies", "far away", "between two clusters", "random places")
    return {lie: {name: change(choose, lie) for name, choose in ways.items()} for lie in lies}


def alone(feds: list[Federation]) -> list[float]:
    """Agreement of the honest sites alone."""
    return [rounds(fed, fed.start, WAYS["sum"], None) for fed in feds]


def changes_table(title: str, changes: Changes) -> list[str]:
    ways = list(next(iter(changes.values())))
    rows = [(lie, *(spread(found, sign="+") for found in by_way.values())) for lie, by_way in changes.items()]
    return table(title, ("", *ways), rows)


def tables(name: str, kind: str, mix: float, source: Source) -> tuple[list[str], Changes]:
    """All tables of one way to split one set, and what its first one shows."""
    with threadpool_limits(1):
        feds = [federation(*source(seed), mix, seed) for seed in SEEDS]
        attacks = list(ATTACKS) if mix >= 1 else ["nobody lies", "permutation", "concentration"]
        changes = attacked(feds, WAYS, attacks)
        lines = changes_table(f"{name}, {kind}: honest sites alone {spread(alone(feds))}", changes)
        if name == "generated" and mix >= 0.5:
            lines += changes_table(f"{name}, {kind}: lies about candidates, then honest rounds", attacked_starts(feds))
        if name == "generated" and mix == 0.5:
            chosen = ["nobody lies", "permutation", "collapse on a centre", "mass inflation", "concentration"]
            lines += changes_table(f"{name}, {kind}: parts of it", attacked(feds, PARTS, chosen))
    print("\n".join(lines), file=sys.stderr, flush=True)
    return lines, changes


def plot(title: str, changes: Changes, path: Path) -> None:
    """Change of agreement by attack, a bar for each way to add up."""
    figure, axes = plt.subplots(figsize=(8, 3.6))
    colours = {"sum": "#999999", "robust": "#0072b2", "median": "#e69f00", "trimmed": "#cc79a7"}
    for place, (way, colour) in enumerate(colours.items()):
        found = [by_way[way] for by_way in changes.values()]
        at = np.arange(len(found)) + 0.2 * (place - 1.5)
        axes.bar(at, np.mean(found, axis=1), 0.2, yerr=np.std(found, axis=1), color=colour, label=way)
    axes.set_xticks(range(len(changes)), list(changes), rotation=30, ha="right")
    axes.set(ylabel="change of ARI", title=title)
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(figure, path)


def main() -> None:
    kinds = {"even split": np.inf, "Dirichlet(1)": 1.0, "Dirichlet(0.5)": 0.5, "Dirichlet(0.1)": 0.1}
    sources: dict[str, Source] = {"generated": made}
    sources |= {d.name: (lambda _, d=d: (d.views, d.labels)) for d in shared_sets() if d.name == "handwritten"}
    jobs = [
        (n, kind, mix, s) for n, s in sources.items() for kind, mix in kinds.items() if n == "generated" or mix >= 1
    ]
    found = Parallel(n_jobs=-1)(delayed(tables)(*job) for job in jobs)
    report = "\n".join(line for lines, _ in found for line in lines)
    print(report)
    (RESULTS / "hostile.md").write_text(report)
    shown = next(i for i, (_, kind, _, _) in enumerate(jobs) if kind == "Dirichlet(1)")
    plot("4 of 20 sites lie in every round (generated, Dirichlet(1))", found[shown][1], RESULTS / "hostile.svg")


if __name__ == "__main__":
    main()
