"""A file larger than memory: the most memory that `fedhk fit` takes with one large parquet file at a site.

    python benchmarks/large.py FOLDER [--gigabytes 10]

FOLDER gets the file, which repeats one piece of 65,536 rows and 256 columns again and again and so is small on disk; as
numbers it has as many bytes as is said. Numbers that are read lie in a temporary file of that size (TMPDIR). Memory is
what only this process has (RssAnon); pages of the temporary file that the system keeps as long as it has room do not
count, as it takes them back when somebody needs them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the file and the run are written")
    parser.add_argument("--gigabytes", type=float, default=10, help="size of the rows as numbers")
    options = parser.parse_args()

import os
import subprocess
import sys
import time

import numpy as np
import polars as pl

from data import RESULTS

ROWS, COLUMNS = 65_536, 256


def make_folder(folder: Path, gigabytes: float) -> int:
    """Write two sites, one of them large; gives the number of rows of that."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, COLUMNS))
    values = centers[rng.integers(4, size=ROWS)] + rng.normal(size=(ROWS, COLUMNS)).round(1)
    piece = pl.DataFrame(values, schema=[f"x{i}" for i in range(COLUMNS)], orient="row")
    count = round(gigabytes * 1e9 / (8 * ROWS * COLUMNS))
    for site, pieces in (("large", count), ("small", 1)):
        (folder / site).mkdir(parents=True)
        part = folder / "piece.parquet"
        piece.write_parquet(part)
        pl.scan_parquet([part] * pieces).sink_parquet(folder / site / "lab.parquet", row_group_size=ROWS)
        part.unlink()
    return count * ROWS


def watch(command: list[str]) -> tuple[int, float, float]:
    """Run a command; its exit code, seconds, and the most megabytes that only it had."""
    started, most = time.perf_counter(), 0.0
    process = subprocess.Popen(command)  # noqa: S603
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        found = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
        most = max(most, float(found[0]) / 1024 if found else 0.0)
        time.sleep(0.05)
    return process.wait(), time.perf_counter() - started, most


def main(options: argparse.Namespace) -> None:
    data, out = options.folder / "data", options.folder / "run"
    rows = make_folder(data, options.gigabytes)
    fit = ["fit", str(data), "--clusters", "4", "--seed", "0", "--out", str(out)]
    code, seconds, memory = watch([sys.executable, "-c", "from fedhk.cli import main; main()", *fit])
    text = (
        f"{rows:,} rows of {COLUMNS} columns, {rows * COLUMNS * 8 / 1e9:.1f} GB as numbers: `fedhk fit` ended with "
        f"code {code} after {seconds:,.0f} s on {os.cpu_count()} processors, with at most {memory:,.0f} MB of memory.\n"
    )
    print(text)
    (RESULTS / "large.md").write_text(f"# A file larger than memory\n\n{(__doc__ or '').strip()}\n\n{text}")


if __name__ == "__main__":
    main(options)
