"""Questions after a fit at a site on another machine: which rows, columns and model they are answered with.

What a question may read is the site's own decision (`Policy`). Rows are placed in clusters by a model that the site
kept from a run, never by one that a message brings: with centres of its own choice a server could single out a row.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.folders import SiteData
from fedhk.data.further import align_tables, keep_columns, read_further
from fedhk.data.levels import base_name
from fedhk.data.named import SITES, NamedTable, named_views
from fedhk.data.outcomes import OUTCOMES, check_outcome
from fedhk.data.views import Views, check_views, fit_table, is_tensor
from fedhk.errors import DataError, MessageError, Rule
from fedhk.federation.board import Entry
from fedhk.federation.entries import QUESTIONS, Question, Terms
from fedhk.federation.placed import OTHER_CLUSTERS, PlacedSite
from fedhk.federation.remote.delivery import MODEL
from fedhk.federation.remote.policy import OTHER_COLUMN, Policy
from fedhk.model.fitted import FittedModel

LOG = logging.getLogger("fedhk.site")

# Refusals of a site: one constant text per rule.
OTHER_MODEL = Rule("this site has kept no run that ended with this model")
LOCAL_COEFFICIENTS = Rule("with noise, the clusters of rows may not depend on other rows, as those of this model do")
OTHER_OUTCOME = Rule("the question names no outcomes, or others than a time, an event and a value")

ReadModel = Callable[[Path], FittedModel]
"""Reads a model file."""


@dataclass(frozen=True)
class SiteSecret(Entry):
    """A secret from which a site draws parts of its rows; it keeps it in its memory while a question goes on."""

    secret: str


@dataclass(frozen=True)
class Questions:
    """What a site needs for questions beyond what it needs for a fit.

    Parameters
    ----------
    load_phases : callable
        Imports the phases of questions.
    read_model : callable
        Reads the models that the site kept from runs.
    also : Path or None
        Folder with further tables of the same rows, which no fit reads; None where there are none.
    """

    load_phases: Callable[[], None]
    read_model: ReadModel
    also: Path | None = None


@dataclass(frozen=True)
class QuestionRows:
    """The rows of one site as questions read them.

    Parameters
    ----------
    site : str
        Its name.
    policy : Policy
        What it allows.
    data : Path
        Folder with its tables that are clustered.
    results : Path
        Folder with the results of its last run; earlier ones are beside it.
    read_data : callable
        Reads its tables that are clustered, in the order that the terms of a run ask for.
    questions : Questions
        Its further tables, and what reads models.
    id_column : str or None
        Column that says whose a row is; None is the one that its data dictionary names, or "id".
    """

    site: str
    policy: Policy
    data: Path
    results: Path
    read_data: Callable[[Terms | None], SiteData]
    questions: Questions
    id_column: str | None = None

    def introduce(self) -> Views:
        """Return all views that questions may read, to name them and their columns."""
        data = self.read_data(None)
        return self._check(named_views(data), self._align(data))

    def place(self, site: PlacedSite, terms: Terms, question: Question, *, with_noise: bool) -> None:
        """Give a site the rows that a question may read, and the model that places them.

        With noise that is the global model: a site's own depends on all of its rows.
        """
        kind = QUESTIONS[question.kind]
        site.model = self._find_model(question.model, own=not with_noise, common_centers=kind.common_centers)
        data = self.read_data(terms)
        site.views, site.readable = self._check(named_views(data), {}), ()
        if kind.held_out:
            known = {view: table for view, table in self._align(data).items() if view in terms.columns}
            fitted = {view: _fit(table, terms.columns[view], view) for view, table in known.items()}
            site.views, site.readable = self._check(named_views(data), fitted), None
        if kind.outcomes:
            further = self._align(data)
            for name, column in question.outcomes.items():
                values = check_outcome(name, _find_column(further, column), self.site)
                site.views = site.views.with_view(OUTCOMES[name], (column,), values[:, None])
            site.readable = tuple(OUTCOMES[name] for name in question.outcomes)
        if kind.other:
            other = self._find_model(question.other, own=not with_noise)
            site.views = site.views.with_view(OTHER_CLUSTERS, ("cluster",), self._label_rows(site, terms, other))
            site.readable = (OTHER_CLUSTERS,)
        site.secret = _keep_secret(site)

    def _label_rows(self, site: PlacedSite, terms: Terms, model: FittedModel) -> FloatArray:
        """Return the clusters of another model as a column; it may have other views, and columns in another order."""
        columns = terms.columns | {
            view: None if names is None or is_tensor(names) else tuple(map(str, names))
            for view, names in zip(model.view_names, model.columns, strict=True)
        }
        views = self._check(named_views(self.read_data(replace(terms, columns=columns))), {})
        placed = PlacedSite(self.site, views, workers=site.workers, model=model)
        return placed.labels()[:, None].astype(np.float64)

    def _align(self, data: SiteData) -> dict[str, NamedTable]:
        """Read the further tables, with the columns that the policy allows, and rows in the order of the site's own."""
        folder = self.questions.also
        if folder is None or not self.policy.held_out:
            return {}
        found = keep_columns(read_further(folder, self.data, self.id_column), self.policy.held_out)
        self.policy.check_levels(found)
        return align_tables(self.site, data, found)

    def _check(self, own: Mapping[str, NamedTable | None], further: Mapping[str, NamedTable]) -> Views:
        present = {view for view, table in own.items() if table is not None}
        if both := sorted(present & further.keys()):
            raise DataError(f"site {self.site!r} has a view {both[0]!r} in both of its folders: rename one.")
        try:
            return check_views({**own, **further}, missing_views=True, min_rows=0)
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from error

    def _find_model(self, digest: str, *, own: bool, common_centers: bool = False) -> FittedModel:
        """Find the model with this digest among those that runs have ended with; `own` gives the site's own of it.

        With `common_centers` the centres are those of the global model all the same. Without `own`, as with noise, a
        model that makes the clusters of rows depend on other rows is refused.
        """
        earlier = (self.results.with_name(f"{self.results.name}-{number}") for number in count(1))
        for folder in (self.results, *reversed(list(takewhile(Path.is_dir, earlier)))):  # the last one first
            if (folder / MODEL).is_file():
                common = self.questions.read_model(folder / MODEL)
                if common.digest() == digest:
                    file = folder / SITES / f"{self.site}.safetensors"
                    found = self.questions.read_model(file) if own and file.is_file() else common
                    if not own and any(each.heat_coef not in ("uniform", "minmax") for each in found.references):
                        raise MessageError(LOCAL_COEFFICIENTS)
                    return common.with_references_of(found) if common_centers else found
        LOG.warning("site %r has no model with the digest %.64r in %s", self.site, digest, self.results)
        raise MessageError(OTHER_MODEL)


def check_outcomes(question: Question) -> None:
    """Refuse a question whose kind and outcomes do not fit together."""
    expected = QUESTIONS[question.kind].outcomes
    if bool(question.outcomes) != expected or not question.outcomes.keys() <= OUTCOMES.keys():
        raise MessageError(OTHER_OUTCOME)


def _keep_secret(site: PlacedSite) -> str:
    """Return a secret of the site, the same for all messages of a question."""
    kept = next(site.memory.find(SiteSecret), None)
    if kept is None:
        kept = SiteSecret(secrets.token_hex(16))
        site.keep(kept)
    return kept.secret


def _find_column(tables: Mapping[str, NamedTable], column: str) -> Any:
    """Find a column of the further tables; refuse one that is in none of them, or in several."""
    named = [(table, table.columns or ()) for table in tables.values()]
    found: list[Any] = [table.values[:, [names.index(column)]][:, 0] for table, names in named if column in names]
    if len(found) != 1:
        LOG.warning(
            "column %.100r is in %d of the further tables that the policy lets questions read", column, len(found)
        )
        raise MessageError(OTHER_COLUMN)
    return found[0]


def _fit(table: NamedTable, expected: tuple[str, ...] | None, view: str) -> NamedTable:
    """Bring a further table to the columns of the question, with all levels; refuse columns that it has not."""
    own = table.columns or ()
    if set(map(base_name, expected or ())) != set(map(base_name, own)):
        LOG.warning("view %r: the question names columns %s, the policy allows %s", view, expected, own)
        raise MessageError(OTHER_COLUMN)
    try:
        values, _ = fit_table(table.values, own, expected, f"view {view!r}")
    except ValueError as error:
        raise DataError(str(error)) from error
    return NamedTable(values, expected, table.inferred, table.dates)
