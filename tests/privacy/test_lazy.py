"""Cryptography is loaded once, by whoever needs it first, while others wait."""

from __future__ import annotations

import subprocess
import sys

THREADS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from fedhk.privacy._lazy import primitives

together = Barrier(16)

def use(_):
    together.wait()
    return len(primitives.entropy(8))

with ThreadPoolExecutor(16) as pool:
    print(sum(pool.map(use, range(16))))
"""


def test_threads_that_need_it_at_the_same_time_all_get_all_of_it():
    """Sites of one process did not: a run of masks over threads ended with too few answers, mostly on busy machines."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stdout.strip() == "128", done.stderr
