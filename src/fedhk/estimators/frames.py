"""What a fitted model found, as pandas data frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedhk.data.frames import pandas
from fedhk.data.levels import base_name, is_level, level_name, ordered_levels
from fedhk.data.views import Columns, is_tensor


def make_labels_frame(labels: Mapping[str, Any], memberships: Mapping[str, Any], rows: Mapping[str, Any]) -> Any:
    """Make a frame with one line for each row of each site: site, row (or its index), cluster, certainty."""
    pd = pandas()
    parts = []
    for site, clusters in labels.items():
        index = rows.get(site)
        known = range(len(clusters)) if index is None else index
        certainty = np.asarray(memberships[site]).max(axis=1) if len(clusters) else np.zeros(0)
        parts.append(
            pd.DataFrame({"site": site, "row": list(known), "cluster": np.asarray(clusters), "certainty": certainty})
        )
    return pd.concat(parts, ignore_index=True)


def make_centers_frame(centers: Any, views: list[str], columns: tuple[Columns, ...]) -> Any:
    """Make a frame with one line for each cluster and column: cluster, view, column, level, center.

    Centres are in input units. A level's centre is the share of the cluster's rows that have it; other columns have no
    level, and the centre of an ordered column is a rank from 0 on.
    """
    lines = []
    for view, values, names in zip(views, centers, columns, strict=True):
        table = np.asarray(values).reshape(len(values), -1)
        named = [None] * table.shape[1] if names is None or is_tensor(names) else list(names)
        for place, name in enumerate(named):
            column: Any = place if name is None else name
            level = level_name(column) if is_level(column) else None
            if isinstance(column, str):
                column = ordered_levels(base_name(column))[0]
            for cluster, center in enumerate(table[:, place].tolist()):
                lines.append({"cluster": cluster, "view": view, "column": column, "level": level, "center": center})
    return pandas().DataFrame(lines).sort_values("cluster", kind="stable", ignore_index=True)
