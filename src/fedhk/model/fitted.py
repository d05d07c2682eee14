"""A fitted model: parameters, and how rows are brought to model units. Estimators hold it, and files store it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.folds import Fold, FoldedView, fold_views
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns, Views, row_shape
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import localise
from fedhk.model.rows import Rows

# Digits after the point of what a digest is computed from, in model units, in which rows vary by about 1. That two
# numbers which differ by rounding, 1e-15, lie on both sides of a half is then as rare as 1e-9.
DIGEST_DIGITS = 6


@dataclass(frozen=True)
class FittedModel:
    """Everything that is needed to place new rows."""

    parameters: Parameters
    references: tuple[Reference, ...]  # how each view is brought to model units
    view_names: tuple[str, ...]
    columns: tuple[Columns, ...]  # names of a data frame's columns, the shape of a tensor's row, or None; per view
    folded: dict[str, FoldedView] = field(default_factory=dict)  # very wide views, whose rows are folded first

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view, before folding."""
        widths = {name: reference.width for name, reference in zip(self.view_names, self.references, strict=True)}
        widths |= {name: view.fold.n_columns for name, view in self.folded.items()}
        return tuple(widths.values())

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of a row per view, (d_h,) in a table."""
        return tuple(row_shape(columns, width) for columns, width in zip(self.columns, self.widths, strict=True))

    def digest(self) -> str:
        """Compute a digest by which a site and a server tell that they mean the same model.

        Numbers are rounded: two machines may differ in the last digits of what they compute from the same message.
        """
        parameters = self.parameters
        numbers = [*parameters.centers, parameters.view_weights, np.array([parameters.heat_time, parameters.fuzzifier])]
        rounded = [(np.round(part, DIGEST_DIGITS) + 0.0).astype(np.float64).tobytes() for part in numbers]  # no -0.0
        names = json.dumps([self.view_names, self.columns, self.widths, parameters.n_clusters])
        return sha256(b"".join([names.encode(), *rounded])).hexdigest()

    def centers(self) -> list[FloatArray]:
        """Centres in the units and the shape of the input, one (c, d_h) array per view, (c, p, q) for a tensor."""
        means = {name: view.means for name, view in self.folded.items()}
        found = dict(zip(self.view_names, self._table_centers(), strict=True)) | means
        return [values.reshape(-1, *shape) for values, shape in zip(found.values(), self.shapes, strict=True)]

    def _table_centers(self) -> list[FloatArray]:
        """Centres in the units of the input, of folded views in folded columns, all flat."""
        parts = zip(self.references, self.parameters.centers, strict=True)
        return [reference.to_input(values) for reference, values in parts]

    @property
    def in_views(self) -> FittedModel:
        """The model with its clusters as the views that came in show them."""
        return self

    @property
    def view_weights(self) -> FloatArray:
        """Weight of each view; they sum to 1."""
        return self.parameters.view_weights

    def rows(self, views: Views, sample_weight: FloatArray | None = None) -> Rows:
        """Return rows in model units; the views must be in the order of the model.

        Where coefficients ask for a site's own ranges or means, these rows count as those of one site.
        """
        return self._table_rows(self.fold(views), sample_weight)

    def fold(self, views: Views) -> Views:
        """Fold very wide views."""
        return fold_views(views, {name: view.fold for name, view in self.folded.items()}) if self.folded else views

    def unfold(
        self, folds: Mapping[str, Fold], means: Mapping[str, FloatArray], columns: Mapping[str, Columns]
    ) -> FittedModel:
        """Return the model for unfolded views, of one that was fitted on folded views."""
        if not folds:
            return self
        known = {name: FoldedView(fold, means[name]) for name, fold in folds.items()}
        named = dict(zip(self.view_names, self.columns, strict=True)) | dict(columns)
        return replace(self, folded=known, columns=tuple(named.values()))

    def with_references_of(self, own: FittedModel) -> FittedModel:
        """Return this model with the references of another one, such as a site's own, which may lack views."""
        known = dict(zip(own.view_names, own.references, strict=True))
        pairs = zip(self.view_names, self.references, strict=True)
        return replace(self, references=tuple(known.get(name, reference) for name, reference in pairs))

    def _table_rows(self, views: Views, sample_weight: FloatArray | None = None) -> Rows:
        """Return folded rows in model units."""
        return Rows(views, localise(self.references, views), sample_weight)

    def seen(self, own: FittedModel, views: Views) -> tuple[Rows, Parameters]:
        """Return rows, and the parameters of another model in the units of this one, so that objectives compare.

        The other model may lack views; `views` are in the order of this model.
        """
        centers = dict(zip(own.view_names, own._table_centers(), strict=True))
        inner = list(self.parameters.centers)
        for view, (name, reference) in enumerate(zip(self.view_names, self.references, strict=True)):
            if name in centers:
                inner[view] = np.where(np.isfinite(reference.scale), reference.to_model(centers[name]), 0.0)
        parameters = replace(self.parameters.free(), centers=tuple(inner), sizes=own.parameters.sizes)
        return self.rows(views), parameters
