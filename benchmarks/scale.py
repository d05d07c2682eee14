"""Seconds, bytes and memory of a run in the open against the number of sites, and what they say of more sites.

    python benchmarks/scale.py             # 1,000, 10,000 and 100,000 sites of ten rows; five minutes or more
    python benchmarks/scale.py 1000 5000   # other numbers of sites, printed only

`EFKMVC` with 8 clusters and ten rounds on sites of ten rows with two views of five features, all in one process and one
thread; every number of sites has a process of its own, so that its memory is its own. The first line also has the same
rounds with every site answering by itself. Seconds are of the processor, not of the clock. Bars: 0.3 ms per site and
round, and 2 GB, at 100,000 sites.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data import RESULTS
from fedhk import EFKMVC
from fedhk.federation import run
from fedhk.federation.engines import inprocess
from tables import table

COUNTS, ROUNDS = (1_000, 10_000, 100_000), 10
ALONE = "alone"

NOTE = (
    "One thread; seconds of the processor. *Predicted* is what the first line says of so many sites: the server does "
    "the same for each site, but for candidates and neighbours, for which at most 2,000 are asked."
)


def make_sites(n_sites: int, n_rows: int = 10) -> dict[str, list[np.ndarray]]:
    """Sites of so many rows from 8 clusters, in two views of five features."""
    rng = np.random.default_rng(0)
    centers = [4 * rng.normal(size=(8, 5)) for _ in range(2)]
    labels = rng.integers(0, 8, (n_sites, n_rows))
    return {f"site-{i:06d}": [c[own] + rng.normal(size=(n_rows, 5)) for c in centers] for i, own in enumerate(labels)}


def watch(record: list[dict[str, Any]]) -> Any:
    """One exchange as the run makes it, with what its two ends cost written down."""
    exchange = run._exchange

    def watched(phase: Any, engine: Any, *others: Any, **options: Any) -> Any:
        found: dict[str, Any] = {"phase": phase.name, "asked": 0, "up": 0, "down": 0, "sites": 0.0}
        carry = engine.exchange

        def carried(requests: Mapping[str, bytes]) -> Any:
            began = time.process_time()
            answers = carry(requests)
            distinct = {id(answer): answer for answer in answers.values() if isinstance(answer, bytes)}
            found.update(asked=len(requests), sites=time.process_time() - began)
            found.update(up=sum(map(len, distinct.values())), down=sum(map(len, requests.values())))
            return answers

        engine.exchange, began = carried, time.process_time()
        try:
            return exchange(phase, engine, *others, **options)
        finally:
            engine.exchange = carry
            found["server"] = time.process_time() - began - found["sites"]
            record.append(found)

    return watched


def measure(n_sites: int, alone: bool) -> dict[str, Any]:
    """What one fit costs."""
    sites, record = make_sites(n_sites), []
    run._exchange = watch(record)  # type: ignore[assignment]
    if alone:
        inprocess.MANY_SITES = 10**9
    warnings.simplefilter("ignore")
    began = time.process_time()
    EFKMVC(8, random_state=0, max_rounds=ROUNDS, tol=0.0).fit(sites)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"sites": n_sites, "seconds": seconds, "MB": peak, "exchanges": record}


def measure_apart(n_sites: int, *options: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", str(n_sites), *options]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603
    print(f"{n_sites:,} sites {' '.join(options)}: {found['seconds']:.0f} s, {found['MB']:.0f} MB", flush=True)
    return found


def round_cost(found: Mapping[str, Any]) -> float:
    """Milliseconds per site and round, both ends, the middle of all rounds."""
    rounds = [e["sites"] + e["server"] for e in found["exchanges"] if e["phase"] == "round"]
    return 1e3 * float(np.median(rounds)) / float(found["sites"])


def total(found: Mapping[str, Any], field: str) -> float:
    """A cost over all exchanges."""
    return float(sum(e[field] for e in found["exchanges"]))


def predict(base: Mapping[str, Any], n_sites: int, field: str) -> float:
    """What the exchanges of one run say of so many sites."""
    most = [min(n_sites, 2_000) if e["phase"] in ("neighbours", "candidates") else n_sites for e in base["exchanges"]]
    return float(sum(e[field] / e["asked"] * count for e, count in zip(base["exchanges"], most, strict=True)))


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(json.dumps(measure(int(sys.argv[2]), ALONE in sys.argv)))
        return
    counts = [int(text) for text in sys.argv[1:]] or list(COUNTS)
    alone, found = measure_apart(counts[0], ALONE), [measure_apart(n_sites) for n_sites in counts]
    base, rows, parts = found[0], [], []
    for one in found:
        n = one["sites"]
        rows.append(
            (
                f"{n:,}",
                f"{round_cost(one):.3f}",
                f"{1e3 * one['seconds'] / n / ROUNDS:.2f}",
                f"{one['seconds']:.0f}",
                f"{total(one, 'server'):.1f}",
                f"{predict(base, n, 'server'):.1f}",
                f"{total(one, 'up') / n / 1e3:.2f}",
                f"{predict(base, n, 'up') / n / 1e3:.2f}",
                f"{total(one, 'down') / n / 1e3:.2f}",
                f"{one['MB']:,.0f}",
            )
        )
    last = found[-1]
    for exchange in last["exchanges"][:4] + last["exchanges"][-1:]:
        asked = exchange["asked"]
        parts.append(
            (
                exchange["phase"],
                f"{asked:,}",
                f"{1e3 * exchange['sites'] / asked:.3f}",
                f"{1e3 * exchange['server'] / asked:.3f}",
                f"{exchange['up'] / asked:,.0f}",
                f"{exchange['down'] / asked:,.0f}",
            )
        )
    names = (
        "sites",
        "ms per site and round",
        "whole fit, ms per site and round",
        "whole fit, s",
        "server, s",
        "predicted",
        "kB up a site",
        "predicted",
        "kB down a site",
        "MB",
    )
    lines = table("A run in the open against the number of sites", names, rows)
    by_itself = f"{round_cost(alone):.3f} ms per site and round at {counts[0]:,} sites"
    lines += [f"With every site answering by itself: {by_itself}.", "", NOTE, ""]
    names = ("exchange", "sites asked", "ms a site, sites", "ms a site, server", "bytes up", "bytes down")
    lines += table(f"Its exchanges at {last['sites']:,} sites", names, parts)
    report = "\n".join(lines)
    print(report)
    if len(sys.argv) == 1:
        Path(RESULTS / "scale.md").write_text(report)


if __name__ == "__main__":
    main()
