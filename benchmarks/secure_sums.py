"""Seconds and bytes of masked sums against the number of sites, with 5 % of the sites absent from every sum.

    python benchmarks/secure_sums.py            # 30, 100, 300 and 1,000 sites; a quarter of an hour at most
    python benchmarks/secure_sums.py 10000      # other numbers of sites, printed only

`EFKMVC(secure=True)` with 8 clusters on sites of 20 rows with two views of five features, all in one process and one
thread. Each line has the same fit in the open beside it, made in the same run. Bars: 1,000 sites in under 90 seconds on
two cores, and at most four times the bytes a site of 100 sites.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
import time
import warnings
from typing import Any

import numpy as np

from data import RESULTS
from fedhk import EFKMVC
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.privacy.secure_graph import fewest_partners
from fedhk.privacy.secure_sum import default_threshold
from scale import make_sites
from tables import table

ABSENT, ROWS = 0.05, 20

NOTE = (
    "One thread, 5 % of the sites absent from every sum. CPU seconds are those of the fit alone; "
    "seconds on the clock also count what else the machine did."
)


class Meter:
    """Counts bytes, and keeps 5 % of the sites from answering: others in every sum, the same through all its steps."""

    def __init__(self, absent: float) -> None:
        self.rng, self.absent = np.random.default_rng(1), absent
        self.away: set[str] = set()
        self.bytes = self.sums = 0

    def watch(self) -> Any:
        """The method of an engine that goes through this meter."""

        def exchange(engine: InProcessEngine, requests: dict[str, bytes]) -> dict[str, Any]:
            return self.exchange(engine, requests)

        return exchange

    def exchange(self, engine: InProcessEngine, requests: dict[str, bytes]) -> dict[str, Any]:
        """What the sites that are there answer."""
        if b"InputRequest" in next(iter(requests.values()))[:100_000]:
            self.away = set(self.rng.choice(list(requests), int(self.absent * len(requests)), replace=False))
            self.sums += 1
        asked = {site: request for site, request in requests.items() if site not in self.away}
        answers = EXCHANGE(engine, asked)
        sent = {
            id(answer): len(answer) for answer in answers.values() if isinstance(answer, bytes)
        }  # some answer as one
        self.bytes += sum(map(len, requests.values())) + sum(sent.values())
        return answers | {site: TimeoutError("absent") for site in self.away & requests.keys()}


EXCHANGE = InProcessEngine.exchange


def measure(n_sites: int, secure: bool) -> tuple[float, float, float, int]:
    """Seconds of work, seconds on the clock, kilobytes a site and sums of one fit."""
    meter, sites = Meter(ABSENT if secure else 0.0), make_sites(n_sites, ROWS)
    InProcessEngine.exchange = meter.watch()  # type: ignore[method-assign]
    worked, began = time.process_time(), time.perf_counter()
    try:
        EFKMVC(8, secure=secure, random_state=0, max_rounds=10).fit(sites)
    finally:
        InProcessEngine.exchange = EXCHANGE  # type: ignore[method-assign]
    seconds = time.process_time() - worked, time.perf_counter() - began
    return *seconds, meter.bytes / n_sites / 1e3, meter.sums


def main() -> None:
    warnings.simplefilter("ignore")
    counts = [int(text) for text in sys.argv[1:]] or [30, 100, 300, 1_000]
    rows, base = [], None
    for n_sites in counts:
        plain = measure(n_sites, secure=False)
        work, clock, size, sums = measure(n_sites, secure=True)
        base = base or (size if n_sites == 100 else None)
        ratio = f"{size / base:.2f}" if base else ""
        partners = fewest_partners(n_sites, default_threshold(n_sites))
        rows.append(
            (
                f"{n_sites:,}",
                partners,
                sums,
                f"{work:.1f}",
                f"{clock:.1f}",
                f"{work / plain[0]:.1f}",
                f"{1e3 * work / n_sites / sums:.1f}",
                f"{size:,.0f}",
                ratio,
                f"{plain[2]:,.0f}",
            )
        )
        print(rows[-1], flush=True)
    names = (
        "sites",
        "partners at least",
        "sums",
        "CPU seconds",
        "seconds on the clock",
        "CPU, times the open fit",
        "ms a site and sum",
        "kB a site",
        "times 100 sites",
        "kB a site in the open",
    )
    lines = table("Masked sums against the number of sites", names, rows)
    report = "\n".join([*lines, NOTE, ""])
    print(report)
    if len(sys.argv) == 1:
        (RESULTS / "secure-sums.md").write_text(report)


if __name__ == "__main__":
    main()
