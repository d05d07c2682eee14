"""What is chosen by agreement (scaling and frame) against z-scores and no calibration: quality, choices, bytes.

    python benchmarks/agreement.py shared       # shared sets and scikit-learn's, three seeds
    python benchmarks/agreement.py generated    # 60 generated federations
    python benchmarks/agreement.py imposed      # real data on which differences of sites are imposed
    python benchmarks/agreement.py parts        # five random parts of each set: nobody differs, nobody is calibrated
    python benchmarks/agreement.py own          # own models against their common model, by fuzzifier
    python benchmarks/agreement.py tables       # single tables whose columns are in several units, as of patients

Tables are printed; those of long runs are in results/agreement.md, with what was tried. Sites of the shared sets are
real where the data have them, else ten by Dirichlet(.5).
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import fedhk
from data import DataSet, balanced_kmeans, public_sets, seeds, shared_sets, site_rows
from fedhk.datasets import make_sites, split_dirichlet

EFFECTS = ("none", "shift", "gain", "mix", "shift+mix", "gain+mix", "scale", "shift+gain")
KINDS = ("gauss", "corr", "size", "counts", "image")
FUZZIFIERS = ("auto", 1.2, 1.5, 2.0)


def fit(sites: dict, labels: dict, n_clusters: int, seed: int, **options) -> tuple[float, float, str, float, float]:
    """ARI of own models and of the common one, what was taken, bytes and seconds."""
    start = time.perf_counter()
    model = fedhk.FedHKPerson(n_clusters, random_state=seed, **options).fit(sites)
    seconds = time.perf_counter() - start
    truth = np.concatenate([labels[site] for site in sites])
    scores = [
        float(adjusted_rand_score(truth, np.concatenate([found[site] for site in sites])))
        for found in (model.labels_, model.global_labels_)
    ]
    taken = ", ".join(choice["option"] for choice in model.choices_ if choice["taken"])
    sent = float(sum(record["bytes_up"] + record["bytes_down"] for record in model.history_))
    return scores[0], scores[1], taken, sent, seconds


def split(views: list[np.ndarray], labels: np.ndarray, parts: dict[str, np.ndarray]) -> tuple[dict, dict]:
    """Sites and their labels, from the rows of each."""
    sites = {site: [view[rows] for view in views] for site, rows in parts.items()}
    return sites, {site: labels[rows] for site, rows in parts.items()}


def parts_of(site: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of each site, from the number of the site of each row."""
    return {f"s{number:02d}": np.flatnonzero(site == number) for number in np.unique(site)}


# ------------------------------------------------------------------------------------------------------ generated data


def generated(count: int, first: int = 0) -> Iterator[tuple[str, list[np.ndarray], np.ndarray, np.ndarray]]:
    """Federations that differ in everything: clusters, views and their kinds, sites and what they differ by."""
    for number in range(first, first + count):
        rng = np.random.default_rng(1000 + number)
        c, n_views, n_sites = (int(rng.integers(*between)) for between in ((2, 9), (2, 5), (4, 15)))
        per_site, effect = int(rng.choice([20, 40, 80, 150])), EFFECTS[number % len(EFFECTS)]
        n, spread = n_sites * per_site, 0.5 if "mix" in effect else 50.0
        shares, site = rng.dirichlet(np.full(c, 3.0)), np.repeat(np.arange(n_sites), per_site)
        labels = np.concatenate(
            [rng.choice(c, size=per_site, p=rng.dirichlet(spread * c * shares + 1e-3)) for _ in range(n_sites)]
        )
        size, views, kinds = rng.normal(size=n), [], []
        for view in range(n_views):
            kinds.append(str(rng.choice([*KINDS, "gauss", "useless"] if view >= 2 else KINDS)))
            views.append(_draw_view(rng, kinds[-1], effect, labels, site=site, size=size))
        yield f"{number} {effect} {'/'.join(kinds)}, {c} clusters, {n_sites} x {per_site}", views, labels, site


def _draw_view(rng, kind: str, effect: str, labels: np.ndarray, *, site: np.ndarray, size: np.ndarray) -> np.ndarray:
    """One view: clusters, noise of its kind, and what sites differ by."""
    n, c, d = len(labels), int(labels.max()) + 1, int(rng.choice([6, 15, 40, 120]))
    means = rng.normal(size=(c, d)) * rng.uniform(1.5, 3.5) * 1.1 / np.sqrt(d)
    apart = 0.0 * means[labels] if kind == "useless" else means[labels]
    noise = rng.normal(size=(n, d))
    if kind in ("corr", "size"):  # noise in few directions; and a size that all such views measure
        noise = 0.7 * noise + 0.9 * rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) / np.sqrt(3)
    rows = apart + 0.6 * noise + (0.5 * size[:, None] * np.abs(rng.normal(size=d)) if kind == "size" else 0.0)
    offset, gain, directions = np.zeros((n, d)), np.ones((n, d)), rng.normal(size=(3, d)) / np.sqrt(3)
    for number in np.unique(site):
        here = site == number
        if "shift" in effect:
            offset[here] = rng.uniform(0.6, 1.5) * (rng.normal(size=3) @ directions + 0.5 * rng.normal(size=d))
        if "gain" in effect:
            gain[here] = np.exp(0.5 * rng.normal() + 0.3 * rng.normal(size=d))
        if effect == "scale":
            gain[here] = np.exp(0.4 * rng.normal(size=d))
    if kind in ("counts", "image"):
        rates = (
            np.exp(rng.normal(size=d) + 1.5 * apart + (0.2 * noise if kind == "image" else 0.0) + 0.6 * offset) * gain
        )
        if kind == "counts":
            lengths = rng.lognormal(np.log(60), 0.6, n).astype(int) + 5
            rates /= rates.sum(axis=1, keepdims=True)
            return np.array([rng.multinomial(length, own) for length, own in zip(lengths, rates, strict=True)], float)
        bright = rates * rng.lognormal(0, 0.4, n)[:, None]
        return bright * (bright > np.quantile(bright, 0.3))
    return ((rows + offset) * gain + 3 * rng.random(d)) * np.exp(0.7 * rng.normal(size=d)) + rng.normal(size=d)


def imposed(seed: int = 0) -> Iterator[tuple[str, list[np.ndarray], np.ndarray, np.ndarray]]:
    """Real data with sites that differ by what is added: gains, offsets, both, offsets and class mix."""
    wanted = ("snareseq", "wine", "breast", "msrcv1_5v", "iris")
    for data in [*shared_sets(), *public_sets()]:
        for effect in ("gain", "offset", "both", "offset+mix") if data.name in wanted else ():
            rng, n = np.random.default_rng([seed, len(effect), len(data.name)]), len(data.labels)
            n_sites = max(3, min(8, n // 40))
            site = rng.integers(n_sites, size=n)
            if "mix" in effect:
                parts = split_dirichlet(data.labels, n_sites, 0.5, random_state=seed)
                for number, rows in enumerate(parts.values()):
                    site[rows] = number
            views = []
            for view in data.views:
                moved, directions = np.array(view, float), rng.normal(size=(4, view.shape[1])) / 2
                for number in range(n_sites):
                    if effect in ("gain", "both"):
                        moved[site == number] *= np.exp(0.2 * rng.normal(size=view.shape[1]) + 0.4 * rng.normal())
                    if effect != "gain":
                        moved[site == number] += view.std(axis=0) * (rng.normal(size=4) @ directions)
                views.append(moved)
            yield f"{data.name} {effect}", views, data.labels, site


# --------------------------------------------------------------------------------------------------------------- tables


def compare(cases: Iterator[tuple[str, list[np.ndarray], np.ndarray, np.ndarray]]) -> None:
    """Print ARI with z-scores and no calibration, with each chosen, and with both."""
    options = {
        "neither": {"scaling": "standard", "calibration": None},
        "frame": {"scaling": "standard"},
        "scaling": {"calibration": None},
        "both": {},
    }
    print(f"| federation | {' | '.join(options)} | taken |\n|---{'|---' * len(options)}|---|")
    scores: list[list[float]] = []
    for name, views, labels, site in cases:
        sites, truth = split(views, labels, parts_of(site))
        found = [fit(sites, truth, len(np.unique(labels)), 0, **given) for given in options.values()]
        scores.append([own for own, *_ in found])
        print(f"| {name} | {' | '.join(f'{own:.3f}' for own in scores[-1])} | {found[-1][2]} |", flush=True)
    print(f"| mean | {' | '.join(f'{mean:.3f}' for mean in np.mean(scores, axis=0))} | |")


def shared(wanted: list[str]) -> None:
    """Print ARI and bytes on the shared sets and scikit-learn's: z-scores, text told by hand, the default."""
    print(
        "| set | z-scores | by hand | default | common model | bytes, of EFKMVC's | taken, by seed |\n"
        + "|---" * 7
        + "|"
    )
    for data in [*shared_sets(), *public_sets()]:
        if wanted and data.name not in wanted:
            continue
        rows: dict[str, list] = {"standard": [], data.scaling: [], "auto": []}
        plain = []
        for seed in seeds(3):
            sites, truth = split(data.views, data.labels, site_rows(data, seed))
            for scaling, results in rows.items():
                results.append(fit(sites, truth, data.n_classes, seed, scaling=scaling))
            model = fedhk.EFKMVC(data.n_classes, scaling=data.scaling, random_state=seed).fit(sites)
            plain.append(sum(record["bytes_up"] + record["bytes_down"] for record in model.history_))
        means = [np.mean([own for own, *_ in rows[scaling]]) for scaling in ("standard", data.scaling, "auto")]
        common, sent = (np.mean([result[place] for result in rows["auto"]]) for place in (1, 3))
        taken = "; ".join(dict.fromkeys(result[2] for result in rows["auto"]))
        cells = [*(f"{mean:.3f}" for mean in means), f"{common:.3f}", f"{sent / np.mean(plain):.2f}", taken]
        print(f"| {data.name} | {' | '.join(cells)} |", flush=True)


def random_parts() -> None:
    """Print how often five random parts of a set are calibrated."""
    fired = fits = 0
    for data in [*shared_sets(), *public_sets()]:
        found = [_is_calibrated(data, seed) for seed in seeds(5)]
        fired, fits = fired + sum(found), fits + len(found)
        print(f"{data.name}: calibrated in {sum(found)} of {len(found)}", flush=True)
    print(f"all: {fired} of {fits}")


def _is_calibrated(data: DataSet, seed: int) -> bool:
    site = np.random.default_rng(seed).integers(5, size=len(data.labels))
    sites, _ = split(data.views, data.labels, parts_of(site))
    model = fedhk.FedHKPerson(data.n_classes, max_rounds=2, random_state=seed).fit(sites)
    return model.calibration_["shift"] > 0


def own_models() -> None:
    """Print how far own models are from their common model, by fuzzifier, on two families of generated federations."""
    families = {"make_sites, 20": [*_made_sites(20)], "generated, 40": [*_generated_sites(40)]}
    for fuzzifier in FUZZIFIERS:
        for name, cases in families.items():
            found = [fit(*case, 0, fuzzifier=fuzzifier)[:2] for case in cases]
            gains = [own - common for own, common in found]
            text = f"own - common, worst {min(gains):+.3f}, mean {np.mean(gains):+.3f}"
            print(f"fuzzifier={fuzzifier}, {name}: {text}", flush=True)


def _generated_sites(count: int) -> Iterator[tuple[dict, dict, int]]:
    """Sites, labels and the number of clusters of `generated`."""
    for _, views, labels, site in generated(count):
        yield *split(views, labels, parts_of(site)), len(np.unique(labels))


def _made_sites(count: int) -> Iterator[tuple[dict, dict, int]]:
    """The same of `make_sites`: with and without site effects and class mix, small, wide."""
    effects = (
        {"shift": 0.0, "scale": 0.0, "class_mix": None},
        {"shift": 1.0, "scale": 0.0, "class_mix": None},
        {"shift": 0.0, "scale": 0.0, "class_mix": 0.5},
        {"shift": 1.0, "scale": 0.2, "class_mix": 1.0},
    )
    for number in range(count):
        rng = np.random.default_rng(number)
        c, separation = int(rng.integers(2, 7)), float(rng.choice([2.5, 4, 5]))
        sizes = int(rng.integers(3, 8)), int(rng.choice([30, 80, 200]))
        widths = [(10, 10), (4, 6, 30)][number % 2]
        data = make_sites(
            *sizes, c, widths, separation=separation, random_state=number, **effects[number % len(effects)]
        )
        yield data.sites, data.site_labels, c


def measure_tables(count: int = 30) -> None:
    """One view at four sites, no cell below 0, every column in units of its own: `EFKMVC` with and without a choice."""
    scores: list[list[float]] = []
    for number in range(count):
        table, labels = draw_table(np.random.default_rng(number))
        sites, parts = split([table], labels, parts_of(np.arange(len(table)) % 4))
        truth, c = np.concatenate(list(parts.values())), int(labels.max()) + 1
        pooled = DataSet("table", [np.vstack([views[0] for views in sites.values()])], truth)
        ours = [fedhk.EFKMVC(c, scaling=scaling, random_state=0).fit(sites) for scaling in ("auto", "standard")]
        ways = [balanced_kmeans(pooled, 0), *(np.concatenate([m.labels_[site] for site in sites]) for m in ours)]
        scores.append([float(adjusted_rand_score(truth, way)) for way in ways])
        taken = ", ".join(choice["option"] for choice in ours[0].choices_ if choice["taken"])
        print(f"| {number} | {' | '.join(f'{score:.3f}' for score in scores[-1])} | {taken} |", flush=True)
    print(f"| mean | {' | '.join(f'{mean:.3f}' for mean in np.mean(scores, axis=0))} | |")


def draw_table(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two to five clusters in 4 to 15 columns, some of them lognormal; means differ by up to 400 times."""
    c, n, width = int(rng.integers(2, 6)), int(rng.integers(200, 1500)), int(rng.integers(4, 16))
    labels = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    level, spread = np.exp(rng.uniform(np.log(0.5), np.log(200), width)), rng.uniform(0.05, 0.4, width)
    means = rng.normal(0, 1.2, (c, width)) * (rng.random((c, width)) < 0.7)
    rows = means[labels] + rng.normal(size=(n, width))
    skewed = rng.random(width) < 0.3
    return np.where(skewed, level * np.exp(spread * rows), np.maximum(level * (1 + spread * rows), 0)), labels


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    table, *wanted = sys.argv[1:] or ["shared"]
    if table == "generated":
        compare(generated(*map(int, wanted or [60])))
    elif table == "imposed":
        compare(imposed())
    elif table == "parts":
        random_parts()
    elif table == "own":
        own_models()
    elif table == "tables":
        measure_tables(*map(int, wanted))
    else:
        shared(wanted)


if __name__ == "__main__":
    main()
