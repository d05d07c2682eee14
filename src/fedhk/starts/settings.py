"""The settings of a model, and the parameters made from them before any row is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import HeatCoef, Reference, Scaling
from fedhk.errors import DataError
from fedhk.model.parameters import CenterForm, Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows, take
from fedhk.model.statistics import Statistics
from fedhk.starts.seeding import LEAST_POWER, SEEDERS, Judge, best_starts


@dataclass(frozen=True)
class Settings:
    """The choices that define the objective and the start; the same at one site and at many."""

    n_clusters: int  # c
    heat_coef: HeatCoef  # rule for the heat-kernel coefficients
    scaling: Scaling  # what features are divided by
    heat_time: float  # bandwidth t
    fuzzifier: float | None  # m; None chooses it by how far apart the clusters of the start are
    # "auto" (chosen by how clear a view's clusters are), "uniform", "learned" (`eqn:diff_V_EFKMVFC`), or given
    view_weights: str | tuple[float, ...]
    view_exponent: float  # alpha
    init: str | tuple[FloatArray, ...]  # how starts are drawn, or centres in input units
    n_init: int  # starts to compare
    form: CenterForm = field(default_factory=CenterForm)  # what the centres are constrained to

    @property
    def learn_weights(self) -> bool:
        """Whether view weights are updated in every iteration."""
        return self.view_weights == "learned"

    @property
    def needs_ranges(self) -> bool:
        """Whether the smallest and largest value of each feature are needed, which are values of single rows."""
        return self.scaling.needs_ranges or self.heat_coef == "minmax"

    def template(self, references: Sequence[Reference]) -> Parameters:
        """Return the parameters before a start is chosen; centres are zero, or those that were given.

        With given centres nothing is drawn, so that what "auto" would choose from a start is the plain value: equal
        view weights, and the fuzzifier of well separated clusters.
        """
        shares = np.ones(len(references))
        if self.learn_weights:  # only learned weights must know that a view is rare
            shares = np.array([reference.share for reference in references])
        weights = np.ones(len(references)) if isinstance(self.view_weights, str) else np.array(self.view_weights)
        centers: list[FloatArray]
        if isinstance(self.init, str):
            centers = [np.zeros((self.n_clusters, reference.width)) for reference in references]
        else:
            centers = [r.to_model(values) for r, values in zip(references, self.init, strict=True)]
        return Parameters(
            centers=tuple(centers),
            view_weights=weights / weights.sum(),
            heat_time=self.heat_time,
            fuzzifier=1.0 + 1.0 / LEAST_POWER if self.fuzzifier is None else self.fuzzifier,
            view_exponent=self.view_exponent,
            view_shares=shares,
        )

    def given_start(self, references: Sequence[Reference], names: Sequence[str]) -> Parameters:
        """Return the start from given centres; refuse centres that do not fit the views."""
        widths = [centers.shape[1] for centers in self.init if not isinstance(centers, str)]
        if widths != [reference.width for reference in references]:
            raise DataError(
                f"init has centres with {widths} features, the views of the sites {list(names)} have "
                f"{[reference.width for reference in references]}."
            )
        return self.form.constrain(self.template(references), names)

    def start(
        self,
        rows: Rows,
        random_state: np.random.RandomState,
        workers: int,
        *,
        n_init: int | None = None,
        judge: Judge | None = None,
        halves: bool = True,
    ) -> Parameters:
        """Choose the parameters of the first iteration, on a site's rows or on the candidates that sites sent.

        `halves` says that one half of the rows can be held out from the other, to see what form of the centres helps.
        """
        if not isinstance(self.init, str):
            return self.given_start(rows.references, rows.views.names)
        n_init = self.n_init if n_init is None else n_init
        start = self.list_starts(rows, random_state, workers, n_init=n_init, judge=judge)[0]
        return self.constrain(start, rows, workers, halves=halves)

    def list_starts(
        self,
        rows: Rows,
        random_state: np.random.RandomState,
        workers: int,
        *,
        n_init: int,
        judge: Judge | None = None,
        most: int | None = None,
    ) -> list[Parameters]:
        """Return the best starts, the best first, with free centres; `most` of them, or as many as find the best."""
        return best_starts(
            rows,
            self.template(rows.references),
            SEEDERS[str(self.init)],
            n_init=n_init,
            choose_weights=self.view_weights == "auto",
            choose_fuzzifier=self.fuzzifier is None,
            random_state=random_state,
            workers=workers,
            judge=judge,
            most=most,
        )

    def constrain(self, start: Parameters, rows: Rows, workers: int, *, halves: bool = True) -> Parameters:
        """Return a start whose centres have the form, fitted to the rows; `halves` as in `start`."""
        parts = 2 if halves else 1
        return self.form.constrain(start, rows.views.names, lambda: collect_parts(rows, start, parts, workers))


def collect_parts(rows: Rows, parameters: Parameters, n_parts: int, workers: int) -> list[Statistics]:
    """Compute the statistics of rows in `n_parts` interleaved parts."""
    found = []
    for first in range(n_parts):
        with Passes(take(rows, slice(first, None, n_parts)), parameters.n_clusters, workers) as scan:
            found.append(scan.statistics(parameters))
    return found
