"""A site's tables with the names of their columns, as estimators take them; and what is written of its rows."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhk._files import write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedhk._typing import FloatArray
    from fedhk.data.folders import SiteData

# Where a run folder has the models of sites, and the clusters of their rows.
SITES, LABELS = "sites", "labels"

# What a line about all sites together has in place of the name of a site.
ALL_SITES = "all sites"


@dataclass
class NamedTable:
    """An array with names for its columns: what `fit` takes for a data frame, without a copy."""

    values: FloatArray
    columns: tuple[str, ...] | None
    inferred: tuple[str, ...] = ()  # names of categorical columns whose levels were read off the rows
    dates: tuple[str, ...] = ()  # names of columns that are days since 1970

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.values.shape

    def to_numpy(self) -> NDArray[Any]:
        """The array."""
        return self.values


def named_views(site: SiteData) -> dict[str, NamedTable | None]:
    """Return a site's views as `fit` and `predict` take them, with the names of their columns."""
    return {view: None if values is None else name_table(site, view, values) for view, values in site.views.items()}


def name_table(site: SiteData, view: str, values: FloatArray) -> NamedTable:
    """Give the rows of a view the names of its columns, and what is known of them."""
    dates = tuple(column for column, kind in site.kinds.get(view, {}).items() if kind == "date")
    return NamedTable(values, site.columns[view], site.inferred.get(view, ()), dates)


def write_labels(
    path: Path, ids: NDArray[Any] | None, labels: NDArray[Any], certainty: NDArray[Any], global_labels: NDArray[Any]
) -> None:
    """Write one site's clusters as parquet, or as CSV where the name ends so, readable for their owner alone.

    The columns are id (or row number), cluster, certainty, and the cluster by the global model.
    """
    import polars as pl  # noqa: PLC0415 - only where files are written

    who = pl.Series("row", range(len(labels)), pl.Int64) if ids is None else pl.Series("id", ids)
    columns = {"cluster": labels, "certainty": certainty, "global_cluster": global_labels}
    table = pl.DataFrame([who, *(pl.Series(name, values) for name, values in columns.items())])
    write_atomically(path, table.write_csv().encode() if path.suffix == ".csv" else to_parquet(table))


def to_parquet(table: Any) -> bytes:
    """Convert a data frame to the content of a parquet file."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()
