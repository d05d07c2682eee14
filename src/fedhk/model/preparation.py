"""Brings tables to model units: moments, references, and the heat energy, which moments cannot give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments, view_moments
from fedhk.data.row_forms import RowForm, count_documents
from fedhk.data.scaling import POOLED_COEFS, HeatCoef, Reference, Scaling, check_cells, make_reference, make_scaling
from fedhk.data.views import Columns, Views
from fedhk.model.rows import Rows

# A feature that varies by less than this cannot be squared without vanishing.
SMALLEST_SPREAD = 1e-140


def site_moments(
    views: Views,
    widths: Sequence[int],
    *,
    unit_rows: bool = False,
    forms: Sequence[RowForm] | None = None,
    sample_weight: FloatArray | None = None,
) -> tuple[Moments, ...]:
    """Compute the moments of every view of one site, of rows of length 1 (`unit_rows`) or in a form per view."""
    return tuple(
        view_moments(
            views,
            view,
            unit_rows=unit_rows,
            form=None if forms is None else forms[view],
            sample_weight=sample_weight,
            width=width,
        )
        for view, width in enumerate(widths)
    )


def check_spreads(moments: Sequence[Moments], names: Sequence[str]) -> None:
    """Refuse features that vary by so little that their squares vanish; without ranges, the sites check it."""
    for name, view in zip(names, moments, strict=True):
        spread = np.where(view.weight > 0, view.high - view.low, 0.0)
        small = (spread > 0) & (spread < SMALLEST_SPREAD)
        if small.any():
            column = int(np.argmax(small))
            raise ValueError(
                f"View {name!r}, column {column}: values differ by {spread[column]:.3g} at most, below "
                f"{SMALLEST_SPREAD:.0e}, and their squares vanish. Rescale the column."
            )


def references_from_moments(
    moments: Sequence[Moments],
    names: Sequence[str],
    scaling: Scaling | Sequence[Scaling],
    heat_coef: HeatCoef,
    forms: Sequence[RowForm] | None = None,
    *,
    columns: Sequence[Columns] | None = None,
) -> tuple[Reference, ...]:
    """Compute the references of all views from the moments of all rows; refuse what cannot be scaled.

    One scaling is for all views, several are one per view; so are the forms in which the rows were, and the columns.
    """
    for name, view in zip(names, moments, strict=True):
        if not view.rows > 0:
            raise ValueError(f"View {name!r} has no observed value in any row: leave the view out.")
    check_spreads(moments, names)
    scalings = [scaling] * len(moments) if isinstance(scaling, Scaling) else scaling
    given = [None] * len(moments) if forms is None else forms
    named = [None] * len(moments) if columns is None else columns
    parts = zip(moments, scalings, given, named, strict=True)
    return tuple(make_reference(view, own, heat_coef, form, names) for view, own, form, names in parts)


def localise(references: tuple[Reference, ...], views: Views) -> tuple[Reference, ...]:
    """Return the references for the rows of one site, with its own ranges or means if the coefficients need them."""
    if not any(reference.heat_coef in POOLED_COEFS for reference in references):
        return references
    forms = [reference.form for reference in references]
    moments = site_moments(views, [reference.width for reference in references], forms=forms)
    return tuple(reference.localise(view) for reference, view in zip(references, moments, strict=True))


def heat_energy(rows: Rows) -> FloatArray:
    """Sum, per view, the heat-weighted squared distances of rows to the grand mean, shape (s,)."""
    blocks = rows.blocks(1)
    energy = np.zeros(len(rows.references))
    for view, reader in enumerate(rows.readers(blocks[0].stop if blocks else 0)):
        reader.use(np.zeros((1, rows.widths[view])), 1.0)
        for block in blocks:
            out = np.empty((1, block.stop - block.start), rows.dtype)
            reader.load(block).write(out)
            weight = 1.0 if rows.sample_weight is None else rows.sample_weight[block]
            energy[view] -= float(np.sum(weight * out, dtype=np.float64))
    return energy


def count_observed(views: Views) -> FloatArray:
    """Count, per view, the rows with at least one observed cell, shape (s,)."""
    counts = [0 if table is None else views.n_rows for table in views.tables]
    for view, table in enumerate(views.tables):
        if table is not None and views.missing[view] and not sp.issparse(table):
            counts[view] = int(np.any(~np.isnan(table), axis=1).sum())
    return np.array(counts, np.float64)


def balance(
    references: Sequence[Reference], energy: FloatArray, observed_rows: Sequence[float]
) -> tuple[Reference, ...]:
    """Rescale references so that the mean heat-weighted squared distance to the grand mean is 1 in every view."""
    return tuple(
        reference.balance(total / count) if total > 0 and count > 0 else reference
        for reference, total, count in zip(references, energy, observed_rows, strict=True)
    )


def prepare(
    views: Views, scaling: str | Scaling | Sequence[Scaling], heat_coef: HeatCoef, sample_weight: FloatArray | None
) -> tuple[Reference, ...]:
    """Compute references for one site alone; `scaling` may be one of the short forms, or one scaling per view.

    Its own ranges and means are then those of all rows.
    """
    heat_coef = POOLED_COEFS.get(heat_coef, heat_coef)
    widths = [int(table.shape[1]) for table in views.tables]
    scalings = [make_scaling(scaling)] * len(widths) if isinstance(scaling, str | Scaling) else list(scaling)
    forms = []
    for own, table, name in zip(scalings, views.tables, views.names, strict=True):
        check_cells(own, table, name)
        documents = count_documents(table, sample_weight) if own.weighs_words else np.zeros(0)
        forms.append(own.form(documents, float(views.n_rows if sample_weight is None else np.sum(sample_weight))))
    moments = site_moments(views, widths, forms=forms, sample_weight=sample_weight)
    references = references_from_moments(moments, views.names, scalings, heat_coef, forms, columns=views.columns)
    if heat_coef == "uniform":
        return references
    energy = heat_energy(Rows(views, references, sample_weight))
    return balance(references, energy, [view.rows for view in moments])
