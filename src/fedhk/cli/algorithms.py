"""The algorithms that `fedhk fit` knows, and what a fit of any of them gives."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhk.data.named import NamedTable, named_views
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk._typing import FloatArray, IntArray
    from fedhk.data.folders import Federation


@dataclass(frozen=True)
class Algorithm:
    """One algorithm.

    Parameters
    ----------
    estimator : str
        Its class in `fedhk`.
    federated : bool
        Whether it takes several sites, in rounds that can be resumed.
    rounds : str
        The parameter of the estimator that the command line calls ``max_rounds``.
    """

    estimator: str
    federated: bool = True
    rounds: str = "max_rounds"

    def make(self, parameters: dict[str, Any]) -> Any:
        """Make an estimator from the parameters of a configuration."""
        from fedhk.cli.choices import make_option

        options = {name: make_option(name, value) for name, value in parameters.items()}
        return getattr(importlib.import_module("fedhk"), self.estimator)(**options)

    def defaults(self) -> dict[str, Any]:
        """List the parameters that decide what a run gives, with their defaults."""
        parameters: dict[str, Any] = self.make({}).get_params(deep=False)
        return {name: value for name, value in parameters.items() if name not in NOT_SETTINGS}


ALGORITHMS = {
    "e-fkmvc": Algorithm("EFKMVC"),
    "fedhk-tucker": Algorithm("FedHKTucker"),
    "fedhk-parafac2": Algorithm("FedHKParafac2"),
    "fedhk-person": Algorithm("FedHKPerson"),
    "fedhk-diffusion": Algorithm("FedHKDiffusion"),
    "heat-kernel-mvc": Algorithm("HeatKernelMVC", federated=False, rounds="max_iter"),
}

# Parameters that the command line sets itself: the seed stands beside them, the others change no result.
NOT_SETTINGS = ("random_state", "checkpoint", "engine", "verbose")

# What differs between two runs that are otherwise the same: a model file must not have it.
COSTS = ("seconds", "bytes_up", "bytes_down", "refused")


@dataclass(frozen=True)
class SiteFacts:
    """What is known of a site at the end of a run.

    Parameters
    ----------
    views : list of str
        The views that it has.
    rows, clusters : int or None
        How many rows it has, and in how many clusters they are; None where the site does not say.
    ids : array or None
        Whose the rows are.
    """

    views: list[str]
    rows: int | None = None
    clusters: int | None = None
    ids: Any = None


@dataclass
class Outcome:
    """What a fit gives.

    Parameters
    ----------
    model : estimator
        The global model.
    site_models : dict of str to estimator
        The own model of each site.
    labels, global_labels, certainty : dict of str to array
        Per site and row: cluster in its own model, cluster in the global one, and the largest membership.
    history : list of dict
        One record a round.
    sites : dict of str to SiteFacts
        What is known of the sites.
    """

    model: Any
    site_models: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, IntArray] = field(default_factory=dict)
    global_labels: dict[str, IntArray] = field(default_factory=dict)
    certainty: dict[str, FloatArray] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    sites: dict[str, SiteFacts] = field(default_factory=dict)


def run_algorithm(
    name: str,
    federation: Federation,
    parameters: dict[str, Any],
    *,
    seed: int,
    checkpoint: Path | None = None,
    resume: bool = False,
    verbose: bool = False,
) -> Outcome:
    """Fit an algorithm to the sites of a folder.

    Parameters
    ----------
    name : str
        A key of `ALGORITHMS`.
    federation : Federation
        The sites.
    parameters : dict
        Parameters of the estimator, as in a configuration.
    seed : int
        Its random state.
    checkpoint, resume
        Folder for the state of the run, and whether to go on with what is there; algorithms at one site have none.
    verbose : bool
        Whether to show progress on standard error.
    """
    algorithm, sites = ALGORITHMS[name], list_tables(federation)
    parameters = parameters | {"random_state": seed, "verbose": int(verbose)}
    if algorithm.federated:
        model = algorithm.make(parameters | {"checkpoint": checkpoint}).fit(sites, resume=resume)
        return collect_outcome(model, federation)
    if len(sites) > 1:
        raise DataError(
            f"Algorithm {name!r} clusters one site and pools nothing, but the folder has {len(sites)} sites. Use a "
            f"federated one ({', '.join(n for n, a in ALGORITHMS.items() if a.federated)}), or a folder with one."
        )
    return collect_outcome(algorithm.make(parameters).fit(next(iter(sites.values()))), federation)


def list_tables(federation: Federation) -> dict[str, dict[str, NamedTable | None]]:
    """List the tables of every site, with the names of their columns, as estimators take them."""
    return {site.name: named_views(site) for site in federation.sites.values()}


def collect_outcome(model: Any, federation: Federation) -> Outcome:
    """Collect what a fit of the sites of a folder gives; costs of the run stay out of the model."""
    if hasattr(model, "client_models_"):
        outcome = collect_models(model)
    else:
        (only,) = federation.sites
        labels, certainty = {only: model.labels_}, {only: model.memberships_.max(axis=1)}
        outcome = Outcome(model, {only: model}, labels, labels, certainty, model.history_)
    for name, site in federation.sites.items():
        views = [view for view, values in site.views.items() if values is not None]
        clusters = len(set(outcome.labels[name].tolist())) if name in outcome.labels else None  # it may have failed
        outcome.sites[name] = SiteFacts(views, site.n_rows, clusters, site.ids)
    return drop_costs(outcome)


def collect_models(model: Any) -> Outcome:
    """Collect the models and labels of a federated fit, of those sites only whose rows are here."""
    certainty = {site: memberships.max(axis=1) for site, memberships in model.memberships_.items()}
    return Outcome(model, model.client_models_, model.labels_, model.global_labels_, certainty, model.history_)


def drop_costs(outcome: Outcome) -> Outcome:
    """Remove from the model what differs between equal runs: time, traffic, engine and checkpoint."""
    model = outcome.model
    model.history_ = [{k: v for k, v in record.items() if k not in COSTS} for record in model.history_]
    known = model.get_params(deep=False)
    model.set_params(**{k: v for k, v in {"verbose": 0, "checkpoint": None, "engine": None}.items() if k in known})
    return outcome
