"""What fits give, case by case: a record from before a change to the code, and a comparison with one from after it.

    python benchmarks/record.py make new.json
    python benchmarks/record.py make new.json --only person --only remote
    python benchmarks/record.py compare benchmarks/results/record.json new.json
    python benchmarks/record.py compare benchmarks/results/record.json new.json --only person

A change that is only inside leaves labels equal, objectives equal to 1e-9 of themselves, and bytes not more; `compare`
exits with 1 where one of these does not hold, where a case failed, or where the new record lacks one. Other numbers
(view weights, means of centres, shares that sites learned) are compared too, and shown. `--only` takes a part of the
names of cases.

Parameters have the names that estimators had when the record was first made; `translated` turns them into those of
today. Noise is drawn anew in every run: with it only rounds and bytes are recorded.

Rows were chosen so that their last digits do not matter: where each is changed by 1e-15 of itself, labels stay and
objectives move by 1e-12 at most. There are two exceptions, tucker/rank and parafac2/rank: a rank that binds and numbers
rounded to a byte make 1e-6 of it and move a row or two; with -double after the name they do not. Bytes may change by a
few in a thousand, since some numbers are sent as text, which has as many digits as the number needs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, paths in (("make", ["out"]), ("compare", ["old", "new"])):
        command = commands.add_parser(name)
        for path in paths:
            command.add_argument(path, type=Path)
        command.add_argument("--only", action="append", default=[], metavar="NAME", help="part of the name of cases")
    options = parser.parse_args()

import importlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import scipy
import sklearn
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

import fedhk
from fedhk.data.folders import write_site
from fedhk.datasets import MultiViewData, make_sites
from fedhk.privacy import DifferentialPrivacy
from tables import grid

# How much an objective may differ, as a share of itself.
MOST_DIFFERENCE = 1e-9

CLUSTERS = 4
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

Sites = dict[str, list[Any]]
Result = dict[str, Any]


# ------------------------------------------------------------------------------------------ names of parameters, by age

# Where options have gone, and what they are called there.
AVERAGING = {"local_passes": "passes", "client_weights": "weights", "quality_temperature": "temperature"}
FACTOR_AVERAGING = AVERAGING | {"aggregation": "aggregation", "precision": "precision"}
STATISTICS = {"precision": "precision", "refresh_every": "refresh_every"}
BASIS = {"auto": "auto", "cores": True, "statistics": False}
PARTICIPATION = {name: name for name in ("fraction", "min_sites", "timeout")}
PERSONALIZATION = {
    "personalization": "centers",
    "view_personalization": "view_weights",
    "center_pull": "center_pull",
    "view_pull": "view_pull",
}
DIFFUSION = {name: name for name in ("n_anchors", "neighbours", "scale", "joint_weight")}


def translated(estimator: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters under the names that the installed estimator has; unchanged where it still has the old ones."""
    accepted, given = getattr(fedhk, estimator)._get_param_names(), dict(parameters)
    given.setdefault("scaling", "standard")  # the default when the record was made
    is_person = estimator == "FedHKPerson"

    def moved(names: Mapping[str, str]) -> dict[str, Any]:
        return {new: given.pop(old) for old, new in names.items() if old in given}

    old_protocol = given.get("protocol") != "personalized" and given.keys() & {
        "protocol",
        *FACTOR_AVERAGING,
        *STATISTICS,
    }
    if "local_passes" not in accepted and old_protocol:
        protocols, old = importlib.import_module("fedhk.protocols"), given.pop("protocol", "auto")
        if old == "centers":
            given["protocol"] = protocols.Averaging(**moved(AVERAGING))
        elif old == "factors":
            blend = {"blend": given["personalization"]} if "personalization" in given else {}
            if not is_person:
                given.pop("personalization", None)
            given["protocol"] = protocols.FactorAveraging(**moved(FACTOR_AVERAGING), **blend)
        else:
            given["protocol"] = protocols.Statistics(basis=BASIS[old], **moved(STATISTICS))
    if "fraction" not in accepted and given.keys() & PARTICIPATION:
        given["participation"] = fedhk.Participation(**moved(PARTICIPATION))
    if is_person and "center_pull" not in accepted and given.keys() & PERSONALIZATION:
        given["personalization"] = fedhk.Personalization(**moved(PERSONALIZATION))
    if "personalization_step" not in accepted:
        given |= moved({"personalization_step": "personalization"})
    if "n_anchors" not in accepted and given.keys() & DIFFUSION:
        given["diffusion"] = fedhk.Diffusion(**moved(DIFFUSION))
    return given


# ------------------------------------------------------------------------------------------------------------- the data


def generated(**changes: Any) -> MultiViewData:
    """Four sites that overlap enough for labels to depend on every step."""
    options = {"n_sites": 4, "n_samples": 60, "n_clusters": CLUSTERS, "n_features": (6, 5), "separation": 4.0}
    return make_sites(**options | {"random_state": 1} | changes)


def of_sites(**changes: Any) -> Callable[[], Sites]:
    """What makes the sites of such data; they are made anew for every case."""
    return lambda: _sites(generated(**changes))


def _sites(data: MultiViewData) -> Sites:
    assert data.sites is not None
    return data.sites


WIDE: dict[str, Any] = {"n_features": (50, 30, 20), "separation": 6.0, "shift": 0.2, "scale": 0.1}

plain = of_sites()
wide = of_sites(**WIDE)
seven = of_sites(n_sites=7, n_samples=40, separation=5.0)
shifted = of_sites(n_sites=6, shift=1.0, scale=0.6, class_mix=None)  # means and spreads of sites are taken out
alike = of_sites(shift=0.0, scale=0.0, class_mix=0.5)  # sites differ by which clusters they have
without_views = of_sites(missing_views=0.3)
many_rows = of_sites(n_sites=3, n_samples=400)


def with_gaps() -> Sites:
    """Views and single cells are missing."""
    sites, rng = without_views(), np.random.default_rng(1)
    for views in sites.values():
        for view in (view for view in views if view is not None):
            view[rng.random(view.shape) < 0.1] = np.nan
    return sites


def moved_clusters() -> Sites:
    """Each site has every cluster at a place of its own."""
    data, rng = generated(n_samples=80), np.random.default_rng(1)
    assert data.site_labels is not None
    return {
        site: [view + rng.standard_normal((CLUSTERS, view.shape[1]))[data.site_labels[site]] for view in views]
        for site, views in _sites(data).items()
    }


def with_tensor() -> Sites:
    """One view is of matrices."""
    sites = _sites(generated(n_features=(12, 5)))
    return {site: [first.reshape(-1, 4, 3), second] for site, (first, second) in sites.items()}


def single_precision() -> Sites:
    return {site: [view.astype(np.float32) for view in views] for site, views in plain().items()}


def sparse() -> Sites:
    """Most cells are 0."""
    sites = _sites(generated(n_features=(30, 20), separation=8.0))
    return {site: [csr_matrix(np.maximum(view - 0.5, 0.0)) for view in views] for site, views in sites.items()}


def one_site() -> list[Any]:
    return list(generated(n_samples=80).views)


def one_table() -> Any:
    table = np.hstack(one_site())
    table[np.random.default_rng(1).random(table.shape) < 0.05] = np.nan
    return table


def centers(**changes: Any) -> list[Any]:
    """The centres that data were drawn around, as a start."""
    data = generated(**changes)
    assert data.truth is not None
    return list(data.truth.centers)


# ------------------------------------------------------------------------------------------------------- ways to run it


def in_one_process(case: Case, folder: Path) -> Result:  # noqa: ARG001
    model = case.make().fit(case.data())
    own, common = model.labels_, getattr(model, "global_labels_", model.labels_)
    return labelled(own, common) | fitted(model)


def under_noise(case: Case, folder: Path) -> Result:  # noqa: ARG001
    """What does not depend on the noise that was drawn."""
    model = case.make().fit(case.data())
    return {"rounds": int(model.n_iter_)} | traffic(model.history_)


def embedded(case: Case, folder: Path) -> Result:  # noqa: ARG001
    """Rows that a transformer embeds are clustered then: its directions have no sign of their own."""
    transformer = getattr(fedhk, case.estimator)(**translated(case.estimator, {"random_state": 0} | case.parameters))
    model = fedhk.HeatKernelMVC(CLUSTERS, random_state=0).fit(transformer.fit_transform(case.data()))
    values = {"eigenvalues": np.asarray(transformer.eigenvalues_).tolist()}
    return labelled(model.labels_, model.labels_) | {"objective": float(model.objective_), "numbers": values}


def resumed(case: Case, folder: Path) -> Result:
    """A run that is stopped when it has kept its state four times, and goes on.

    `FedHKPerson` finds the offsets of sites anew then, so that its result depends on when it was stopped.
    """
    model, sites = case.make(checkpoint=folder / "run"), case.data()
    with stopping(folder / "run", after=4):
        model.fit(sites)
    model.fit(sites, resume=True)
    return labelled(model.labels_, model.global_labels_) | fitted(model)


class Stopped(BaseException):
    """What stops a run: no error that anybody would handle."""


@contextmanager
def stopping(folder: Path, after: int) -> Iterator[None]:
    """Stop what runs here as soon as so many whole files have come to be in a folder, one in place of the other."""
    replace, seen = os.replace, 0

    def replace_and_stop(source: Any, target: Any, **options: Any) -> None:
        nonlocal seen
        replace(source, target, **options)
        seen += Path(target).parent == folder
        if seen == after:
            raise Stopped

    try:
        with mock.patch("os.replace", replace_and_stop):
            yield
    except Stopped:
        return
    raise RuntimeError(f"the run ended before it had kept its state {after} times")


def by_command_line(case: Case, folder: Path) -> Result:
    """`fedhk fit` on a folder of files."""
    testing, cli = importlib.import_module("typer.testing"), importlib.import_module("fedhk.cli")
    algorithms = {"EFKMVC": "e-fkmvc", "FedHKPerson": "fedhk-person", "FedHKDiffusion": "fedhk-diffusion"}
    write_folders(case.data(), folder / "sites")
    options = {"algorithm": algorithms[case.estimator], "clusters": CLUSTERS, "seed": 0, "out": folder / "run"}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    done = testing.CliRunner().invoke(cli.app, ["fit", str(folder / "sites"), *words])
    if done.exit_code:
        raise RuntimeError(f"exit code {done.exit_code}: {done.stderr}")
    summary = json.loads((folder / "run" / "summary.json").read_text("utf-8"))
    return labelled(*read_labels((folder / "run" / "labels").glob("*.parquet"))) | {
        "objective": summary["objective"],
        "rounds": summary["rounds"],
        "bytes_up": summary["bytes_up"],
        "bytes_down": summary["bytes_down"],
        "numbers": {"view weights": [view["weight"] for view in summary["views"]]},
    }


def by_transport(case: Case, folder: Path) -> Result:
    """Sites that keep their rows and get bytes; the transport is that of the tests."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    wire = importlib.import_module("remote_sites").Wire
    remote = importlib.import_module("fedhk.federation.engines.remote").RemoteSites
    folders = write_folders(case.data(), folder / "sites")
    engine = remote(wire(folders, folder / "state"), expected=tuple(folders), wait=0.0)
    model = case.make(engine=engine).fit()
    return labelled(*read_labels((folder / "state").glob("*/run/labels/*.parquet"))) | fitted(model)


def write_folders(sites: Sites, folder: Path) -> dict[str, Path]:
    """Sites as folders of files."""
    for site, views in sites.items():
        write_site(folder / site, {f"view{h}": view for h, view in enumerate(views)})
    return {site: folder / site for site in sites}


def read_labels(paths: Iterator[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Labels of the own and of the common model, by site."""
    tables = {path.stem: pl.read_parquet(path) for path in sorted(paths)}
    own, common = ({site: table[name] for site, table in tables.items()} for name in ("cluster", "global_cluster"))
    return own, common


# ----------------------------------------------------------------------------------------------------- what is recorded


def labelled(own: Any, common: Any) -> Result:
    """A text per site with a digit per row; those of the common model where they are others."""
    texts, others = ({site: _text(found) for site, found in _by_site(labels).items()} for labels in (own, common))
    return {"labels": texts} | ({"global_labels": others} if others != texts else {})


def _by_site(labels: Any) -> Mapping[str, Any]:
    return labels if isinstance(labels, Mapping) else {"all": labels}


def _text(labels: Any) -> str:
    return "".join(DIGITS[label] for label in labels)


def fitted(model: Any) -> Result:
    """What a fitted model says of itself."""
    tables = model.cluster_centers_ if isinstance(model.cluster_centers_, list) else [model.cluster_centers_]
    numbers: dict[str, list[Any]] = {"view weights": model.view_weights_.tolist(), "fuzzifier": [model.fuzzifier_]}
    numbers |= {
        f"centres of view {h}": np.mean(table.reshape(len(table), -1), axis=1, dtype=np.float64).tolist()
        for h, table in enumerate(tables)
    }
    calibration = getattr(model, "calibration_", None)
    if calibration is not None:
        values = calibration.values() if isinstance(calibration, Mapping) else calibration
        numbers["calibration"] = np.hstack(list(values)).tolist()
    for site, own in getattr(model, "client_models_", {}).items():
        numbers[f"own objective of {site}"] = [float(own.objective_)]
    for record in getattr(model, "personalization_", ()):
        numbers.setdefault(f"shares of {record['site']}", []).append(float(record["value"]))
    found = {"objective": float(model.objective_), "rounds": int(model.n_iter_), "numbers": numbers}
    return found | (traffic(model.history_) if "bytes_up" in model.history_[0] else {})


def traffic(history: Sequence[Mapping[str, Any]]) -> Result:
    return {name: sum(int(record[name]) for record in history) for name in ("bytes_up", "bytes_down")}


# ------------------------------------------------------------------------------------------------------------ the cases


@dataclass(frozen=True)
class Case:
    """One fit.

    Parameters
    ----------
    estimator : str
        Its class in `fedhk`.
    data : callable
        Makes the rows.
    parameters : dict
        Under their old names.
    run : callable, optional
        From the case and an empty folder to what is recorded.
    """

    estimator: str
    data: Callable[[], Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    run: Callable[[Case, Path], Result] = in_one_process

    def make(self, **others: Any) -> Any:
        """The estimator; `others` have the names of today."""
        given = {"n_clusters": CLUSTERS, "random_state": 0} | self.parameters
        return getattr(fedhk, self.estimator)(**translated(self.estimator, given) | others)


RANK = (3, 2, 2)
BUDGET = DifferentialPrivacy(20.0, 1e-5, (-12, 12), rounds=4)
SIX_ROUNDS: dict[str, Any] = {"max_rounds": 6, "tol": 0.0}  # where objectives need not fall, which else is the end
AVERAGE = SIX_ROUNDS | {"protocol": "centers"}
CHOSEN = {"scaling": "auto"}
FACTORS = SIX_ROUNDS | {"protocol": "factors", "rank": RANK, "local_passes": 2}

CASES = {
    "efkmvc/default": Case("EFKMVC", plain),
    "efkmvc/wide": Case("EFKMVC", wide),
    "efkmvc/missing": Case("EFKMVC", with_gaps),
    "efkmvc/heat-minmax": Case("EFKMVC", plain, {"heat_coef": "minmax"}),
    "efkmvc/heat-absdev": Case("EFKMVC", plain, {"heat_coef": "absdev"}),
    "efkmvc/scaling-l2": Case("EFKMVC", plain, {"scaling": "l2"}),
    "efkmvc/scaling-minmax": Case("EFKMVC", plain, {"scaling": "minmax"}),
    "efkmvc/scaling-none": Case("EFKMVC", plain, {"scaling": "none"}),
    "efkmvc/view-weights-learned": Case("EFKMVC", plain, {"view_weights": "learned"}),
    "efkmvc/view-weights-given": Case("EFKMVC", plain, {"view_weights": [0.7, 0.3], "fuzzifier": 1.2}),
    "efkmvc/init-centers": Case("EFKMVC", plain, {"init": centers()}),
    "efkmvc/init-random": Case("EFKMVC", plain, {"init": "random", "n_init": 3}),
    "efkmvc/average": Case("EFKMVC", plain, {"protocol": "centers"}),
    "efkmvc/average-mass": Case("EFKMVC", plain, AVERAGE | {"client_weights": "mass"}),
    "efkmvc/average-rows": Case("EFKMVC", plain, AVERAGE | {"client_weights": "rows", "local_passes": 2}),
    "efkmvc/average-quality": Case(
        "EFKMVC", plain, AVERAGE | {"client_weights": "quality", "quality_temperature": 5.0}
    ),
    "efkmvc/own-step": Case("EFKMVC", plain, {"personalization_step": 0.5}),
    "efkmvc/fraction": Case("EFKMVC", seven, {"fraction": 0.5, "min_sites": 2, "max_rounds": 15}),
    "efkmvc/robust": Case("EFKMVC", seven, SIX_ROUNDS | {"aggregator": "robust"}),
    "efkmvc/median": Case("EFKMVC", seven, SIX_ROUNDS | {"aggregator": "median"}),
    "efkmvc/trimmed": Case("EFKMVC", seven, SIX_ROUNDS | {"aggregator": "trimmed"}),
    "efkmvc/secure": Case("EFKMVC", plain, {"secure": True}),
    "efkmvc/secure-missing": Case("EFKMVC", with_gaps, {"secure": True, "heat_coef": "minmax"}),
    "efkmvc/tensor": Case("EFKMVC", with_tensor),
    "efkmvc/float32": Case("EFKMVC", single_precision),
    "efkmvc/sparse": Case("EFKMVC", sparse),
    "efkmvc/sparse-l2": Case("EFKMVC", sparse, {"scaling": "l2"}),
    "efkmvc/resumed": Case("EFKMVC", plain, {"heat_coef": "absdev", "personalization_step": 0.5}, resumed),
    "efkmvc/command-line": Case("EFKMVC", plain, run=by_command_line),
    "efkmvc/remote": Case("EFKMVC", plain, run=by_transport),
    "efkmvc/remote-secure": Case("EFKMVC", plain, {"secure": True}, by_transport),
    "efkmvc/noise": Case("EFKMVC", many_rows, {"privacy": BUDGET}, under_noise),
    "efkmvc/noise-secure": Case("EFKMVC", many_rows, {"privacy": BUDGET, "secure": True}, under_noise),
    "efkmvc/units-chosen": Case("EFKMVC", plain, CHOSEN),
    "efkmvc/units-chosen-sparse": Case("EFKMVC", sparse, CHOSEN),
    "efkmvc/units-chosen-secure": Case("EFKMVC", sparse, CHOSEN | {"secure": True}),
    "efkmvc/tfidf": Case("EFKMVC", sparse, {"scaling": "tfidf"}),
    "efkmvc/cores": Case("EFKMVC", wide, {"protocol": "cores"}),
    "efkmvc/cores-secure": Case("EFKMVC", wide, {"protocol": "cores", "secure": True}),
    "efkmvc/cores-noise": Case("EFKMVC", many_rows, {"protocol": "cores", "privacy": BUDGET}, under_noise),
    "tucker/default": Case("FedHKTucker", wide),
    "tucker/narrow": Case("FedHKTucker", plain),
    "tucker/statistics": Case("FedHKTucker", wide, {"protocol": "statistics"}),
    "tucker/rank": Case("FedHKTucker", wide, {"rank": RANK}),
    "tucker/rank-double": Case("FedHKTucker", wide, {"rank": RANK, "precision": "double"}),
    "tucker/refresh": Case("FedHKTucker", wide, SIX_ROUNDS | {"rank": RANK, "refresh_every": 2, "precision": "double"}),
    "tucker/half": Case("FedHKTucker", wide, {"precision": "half"}),
    "tucker/cores-double": Case("FedHKTucker", wide, {"protocol": "cores", "precision": "double"}),
    "tucker/init-centers": Case("FedHKTucker", wide, {"init": centers(**WIDE)}),
    "tucker/factors-of-centers": Case("FedHKTucker", wide, FACTORS | {"aggregation": "centers"}),
    "tucker/factors-of-factors": Case("FedHKTucker", wide, FACTORS | {"aggregation": "factors"}),
    "tucker/factors-blend": Case("FedHKTucker", wide, FACTORS | {"personalization": 0.3, "precision": "single"}),
    "tucker/own-step": Case("FedHKTucker", wide, {"personalization_step": 0.5}),
    "parafac2/default": Case("FedHKParafac2", wide),
    "parafac2/rank": Case("FedHKParafac2", wide, {"rank": 2}),
    "parafac2/rank-double": Case("FedHKParafac2", wide, {"rank": 2, "precision": "double"}),
    "parafac2/factors": Case("FedHKParafac2", wide, FACTORS | {"rank": 2}),
    "person/shifted": Case("FedHKPerson", shifted),
    "person/moved-clusters": Case("FedHKPerson", moved_clusters),
    "person/alike": Case("FedHKPerson", alike),
    "person/missing": Case("FedHKPerson", with_gaps),
    "person/wide": Case("FedHKPerson", wide),
    "person/calibration-given": Case("FedHKPerson", plain, {"calibration": (1.0, 0.5)}),
    "person/calibration-none": Case("FedHKPerson", plain, {"calibration": None}),
    "person/share": Case("FedHKPerson", moved_clusters, {"personalization": 0.5}),
    "person/share-by-site": Case("FedHKPerson", moved_clusters, {"personalization": {"site-00": 0.3, "site-02": 1.0}}),
    "person/center-pull": Case("FedHKPerson", moved_clusters, {"center_pull": 20.0}),
    "person/view-share": Case(
        "FedHKPerson", moved_clusters, {"view_weights": "learned", "personalization": 0.4, "view_personalization": 0.6}
    ),
    "person/view-pull": Case("FedHKPerson", moved_clusters, {"view_weights": "learned", "view_pull": 30.0}),
    "person/tucker": Case("FedHKPerson", moved_clusters, {"decomposition": "tucker", "rank": RANK}),
    "person/factors": Case(
        "FedHKPerson",
        wide,
        FACTORS | {"decomposition": "tucker", "calibration": None, "personalization": 0.3},
    ),
    "person/average": Case("FedHKPerson", moved_clusters, AVERAGE | {"calibration": None, "client_weights": "quality"}),
    "person/secure": Case("FedHKPerson", plain, {"secure": True}),
    "person/resumed": Case("FedHKPerson", plain, {}, resumed),
    "person/command-line": Case("FedHKPerson", plain, run=by_command_line),
    "person/remote": Case("FedHKPerson", plain, run=by_transport),
    "person/units-chosen": Case("FedHKPerson", shifted, CHOSEN),
    "person/personalized": Case("FedHKPerson", moved_clusters, {"protocol": "personalized", "max_rounds": 6}),
    "person/noise": Case("FedHKPerson", many_rows, {"privacy": BUDGET, "secure": True}, under_noise),
    "diffusion/default": Case("FedHKDiffusion", plain),
    "diffusion/auto-clusters": Case("FedHKDiffusion", plain, {"n_clusters": "auto"}),
    "diffusion/missing": Case("FedHKDiffusion", without_views),
    "diffusion/calibration-none": Case("FedHKDiffusion", plain, {"calibration": None}),
    "diffusion/options": Case(
        "FedHKDiffusion", plain, {"n_anchors": 50, "neighbours": 5, "scale": 2.0, "joint_weight": 0.3}
    ),
    "diffusion/synthetic": Case("FedHKDiffusion", plain, {"diffusion": fedhk.Diffusion(anchors="synthetic")}),
    "diffusion/secure": Case("FedHKDiffusion", plain, {"secure": True}),
    "diffusion/remote": Case("FedHKDiffusion", plain, run=by_transport),
    "one-site/views": Case("HeatKernelMVC", one_site),
    "one-site/table": Case("HeatKernelMVC", one_table),
    "one-site/auto-clusters": Case("HeatKernelMVC", one_site, {"n_clusters": "auto", "n_init": 5}),
    "one-site/cp": Case("HeatKernelMVC", one_site, {"decomposition": "cp", "rank": 2}),
    "one-site/diffusion": Case(
        "HeatDiffusion", one_site, {"n_components": CLUSTERS, "n_anchors": 80, "neighbours": 6}, embedded
    ),
}


# ------------------------------------------------------------------------------------------------------------ a record


def make(path: Path, only: Sequence[str]) -> bool:
    """Run the cases and write what they give; whether all of them ran."""
    record: dict[str, Any] = {"made with": versions(), "cases": {}}
    began = time.perf_counter()
    for name in chosen(CASES, only):
        start = time.perf_counter()
        record["cases"][name] = result = attempted(CASES[name])
        print(f"{name:30} {time.perf_counter() - start:5.1f} s  {result.get('error', '')}", flush=True)
    path.write_text(as_text(record), "utf-8")
    failed = sum("error" in result for result in record["cases"].values())
    print(f"{len(record['cases'])} cases in {time.perf_counter() - began:.0f} s, {failed} failed: {path}")
    return not failed


def attempted(case: Case) -> Result:
    """What a case gives, or why it gives nothing; with one thread, so that sums are added in one order."""
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        try:
            return case.run(case, Path(folder))
        except Exception as error:  # one that is broken does not stop the others
            return {"error": f"{type(error).__name__}: {error}"}


def versions() -> dict[str, str]:
    """What numbers depend on, in their last digits."""
    packages = {module.__name__: module.__version__ for module in (fedhk, np, scipy, sklearn)}
    return packages | {"python": platform.python_version(), "machine": platform.machine()}


def chosen(names: Mapping[str, Any], only: Sequence[str]) -> list[str]:
    """Names that have one of some parts in them; all where no part is given."""
    found = [name for name in names if not only or any(part in name for part in only)]
    if not found:
        raise SystemExit(f"No case has {' or '.join(only)} in its name; there are {', '.join(names)}.")
    return found


def as_text(record: Mapping[str, Any]) -> str:
    """JSON with a line for every entry of a case, so that differences can be read."""
    parts = []
    for name, result in record["cases"].items():
        entries = ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items())
        parts.append(f"  {json.dumps(name)}: {{\n{entries}\n  }}")
    cases = ",\n".join(parts)
    return f'{{\n "made with": {json.dumps(record["made with"])},\n "cases": {{\n{cases}\n }}\n}}\n'


# -------------------------------------------------------------------------------------------------------- a comparison


@dataclass(frozen=True)
class Verdict:
    """How a case compares: what the table shows, and what speaks against it."""

    shown: tuple[str, ...]
    faults: tuple[str, ...] = ()


COLUMNS = ("case", "labels", "objective", "bytes up", "bytes down", "rounds", "other numbers")


def compare(old_path: Path, new_path: Path, only: Sequence[str]) -> bool:
    """Print how two records compare; whether nothing speaks against the new one."""
    old, new = (json.loads(path.read_text("utf-8")) for path in (old_path, new_path))
    names = chosen(old["cases"] | new["cases"], only)
    verdicts = {name: verdict(old["cases"].get(name), new["cases"].get(name)) for name in names}
    print("\n".join(grid(COLUMNS, [(name, *found.shown) for name, found in verdicts.items()])))
    if old["made with"] != new["made with"]:
        print(f"\nMade with {old['made with']}, and with {new['made with']}.")
    against = {name: found.faults for name, found in verdicts.items() if found.faults}
    print(f"\n{len(names) - len(against)} of {len(names)} cases hold.")
    for name, faults in against.items():
        print(f"{name}: {'; '.join(faults)}.")
    return not against


def verdict(old: Result | None, new: Result | None) -> Verdict:
    """One case of both records; a case that is new has nothing to be compared with, and is no fault."""
    blank = ("",) * (len(COLUMNS) - 2)
    if new is None:
        return Verdict(("missing in new", *blank), ("missing in the new record",))
    if old is None:
        return Verdict(("missing in old", *blank))
    errors = [f"{which}: {result['error']}" for which, result in (("old", old), ("new", new)) if "error" in result]
    if errors:
        return Verdict(("error", *blank), tuple(errors))
    faults = []
    different = differing(old, new)
    if different:
        faults.append(f"labels differ: {different}")
    objective = relative([old.get("objective")], [new.get("objective")])
    if not objective <= MOST_DIFFERENCE:
        faults.append(f"objective {old.get('objective')!r} became {new.get('objective')!r}")
    faults += [
        f"{name} rose from {old.get(name, 0)} to {new[name]}"
        for name in ("bytes_up", "bytes_down")
        if new.get(name, 0) > old.get(name, 0)
    ]
    shown = (
        different or ("equal" if "labels" in old else "-"),
        f"{objective:.1e}" if "objective" in old else "-",
        *(f"{new.get(name, 0) / old[name]:.4f}" if name in old else "-" for name in ("bytes_up", "bytes_down")),
        _rounds(old.get("rounds"), new.get("rounds")),
        _others(old.get("numbers", {}), new.get("numbers", {})),
    )
    return Verdict(shown, tuple(faults))


def differing(old: Result, new: Result) -> str:
    """How many rows have other labels, in words; nothing where all are equal."""
    for kind in ("labels", "global_labels"):
        before, after = (result.get(kind, result.get("labels", {})) for result in (old, new))
        if {site: len(text) for site, text in before.items()} != {site: len(text) for site, text in after.items()}:
            return f"{kind}: other sites or rows"
        pairs = [pair for site in before for pair in zip(before[site], after[site], strict=True)]
        count = sum(a != b for a, b in pairs)
        if count:
            return f"{kind}: {count} of {len(pairs)}"
    return ""


def relative(old: Any, new: Any) -> float:
    """The largest difference as a share of the largest number; infinite where there is nothing to compare with."""
    if old == new:
        return 0.0
    if None in (*old, *new) or len(old) != len(new):
        return float("inf")
    before, after = np.asarray(old), np.asarray(new)
    return float(np.max(np.abs(after - before)) / max(np.max(np.abs(before)), 1e-300))


def _rounds(old: int | None, new: int | None) -> str:
    return ("-" if old is None else str(old)) if old == new else f"{old} became {new}"


def _others(old: Mapping[str, list[float]], new: Mapping[str, list[float]]) -> str:
    """The largest difference among other numbers, and whose it is where it is more than of rounding."""
    if not old:
        return "-"
    differences = {name: relative(values, new.get(name, [])) for name, values in old.items()}
    worst = max(differences, key=lambda name: differences[name])
    return f"{differences[worst]:.1e}" + (f" ({worst})" if not differences[worst] <= MOST_DIFFERENCE else "")


def main(options: argparse.Namespace) -> None:
    if options.command == "make":
        fine = make(options.out, options.only)
    else:
        fine = compare(options.old, options.new, options.only)
    sys.exit(not fine)


if __name__ == "__main__":
    main(options)
