"""The command line."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import StandardScaler

from fedhk import HeatKernelMVC, __version__
from fedhk.datasets import load_multiview_digits
from fedhk.metrics import matched_accuracy

app = typer.Typer(
    help="Personalized federated multi-view clustering.", no_args_is_help=True, pretty_exceptions_show_locals=False
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"fedhk {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Personalized federated multi-view clustering."""


@app.command()
def demo(seed: int = typer.Option(0, help="Seed of all random choices.")) -> None:
    """Cluster handwritten digits described by four views, and compare with k-means.

    Example: fedhk demo --seed 1
    """
    console = Console()
    data = load_multiview_digits()
    widths = ", ".join(f"{name} ({v.shape[1]})" for name, v in zip(data.view_names, data.views, strict=True))
    console.print(f"[bold]{len(data.labels):,} handwritten digits[/bold] in {len(data.views)} views: {widths}\n")
    named = dict(zip(data.view_names, data.views, strict=True))
    table = Table("method", "accuracy", "NMI", "ARI", "seconds", title="10 clusters found without labels")
    began = time.perf_counter()
    model = HeatKernelMVC(10, random_state=seed).fit(named)
    _add_result(table, "FedHK, all views", data.labels, model.labels_, time.perf_counter() - began)
    table.add_section()
    for name, view in named.items():
        began = time.perf_counter()
        labels = HeatKernelMVC(10, random_state=seed).fit_predict([view])
        _add_result(table, f"FedHK, {name} alone", data.labels, labels, time.perf_counter() - began)
    table.add_section()
    began = time.perf_counter()
    joint = np.hstack([StandardScaler().fit_transform(view) / np.sqrt(view.shape[1]) for view in data.views])
    labels = KMeans(10, n_init=10, random_state=seed).fit_predict(joint)
    _add_result(table, "balanced k-means, all views", data.labels, labels, time.perf_counter() - began)
    console.print(table)
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(named, model.view_weights_, strict=True))
    console.print(f"\nView weights: {weights}.")
    console.print(f"{model.stop_reason_} Objective {model.objective_:.4g}.")


def _add_result(table: Table, method: str, truth: Any, labels: Any, seconds: float) -> None:
    table.add_row(
        method,
        f"{matched_accuracy(truth, labels):.3f}",
        f"{normalized_mutual_info_score(truth, labels):.3f}",
        f"{adjusted_rand_score(truth, labels):.3f}",
        f"{seconds:.2f}",
    )
