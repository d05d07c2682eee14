"""Kill a run at random moments and resume it, again and again: its model must be that of an undisturbed run.

    python benchmarks/kills.py          # 100 kills, about a minute
    python benchmarks/kills.py 20

A process that has imported everything forks one child per attempt, so that kills fall into the run and not into its
imports. The death of a child is a real SIGKILL: nothing is cleaned up, no buffer is flushed.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedhk import EFKMVC, datasets

ROUNDS = 60


def fit_once(folder: str) -> None:
    """Fit in a folder, going on with what is there, and save the model."""
    os.chdir(folder)
    data = datasets.make_sites(4, 40, n_clusters=3, n_features=(3, 5), missing_views=0.2, random_state=0)
    model = EFKMVC(
        3,
        heat_coef="absdev",
        view_weights="learned",
        n_init=3,
        max_rounds=ROUNDS,
        tol=0,
        checkpoint="run",
        personalization=0.5,
        random_state=0,
    ).fit(data.sites, resume=True)
    for record in model.history_:  # a clock runs on, and resumed sites are told the references again
        del record["seconds"], record["bytes_down"]
    model.save("model.safetensors")
    for site, own in model.client_models_.items():
        own.save(f"{site}.safetensors")


def nursery() -> None:
    """Fork a child for every line "seconds folder" on standard input, kill it then, and say how it ended."""
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, folder = line.rstrip("\n").split(" ", 1)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                fit_once(folder)
                status = 0
            finally:
                os._exit(status)
        if float(seconds) >= 0:
            time.sleep(float(seconds))
            os.kill(child, signal.SIGKILL)  # it is our own child until we wait for it, dead or alive
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


class Nursery:
    """The forking process, as a context."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, __file__, "nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, folder: Path, kill_after: float = -1.0) -> bool:
        """Fit in a folder; whether it was killed. A negative time lets it live."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kill_after} {folder}\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        if status not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the run in {folder} failed with status {status}")
        return status != 0


def models(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}


def kill_and_resume(folder: Path, kills: int, seed: int, per_run: int = 10) -> tuple[int, int, int]:
    """Runs that are killed at random moments until so many kills are done.

    Returns
    -------
    kills, runs, same : int
        Kills that hit, runs that were finished after kills, and those whose models are those of an undisturbed run.
    """
    rng = random.Random(seed)  # noqa: S311
    done = runs = same = 0
    with Nursery() as nest:
        (folder / "undisturbed").mkdir()
        began = time.perf_counter()
        nest.run(folder / "undisturbed")
        typical = time.perf_counter() - began
        expected = models(folder / "undisturbed")
        while done < kills:
            own = folder / f"run-{runs}"
            own.mkdir()
            alive = True
            while alive and done < kills:
                alive = nest.run(own, rng.uniform(0, 2 * typical / per_run))
                done += alive
            if alive:
                nest.run(own)
            runs += 1
            same += models(own) == expected and len(expected) > 1
    return done, runs, same


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        done, runs, same = kill_and_resume(Path(folder), kills, seed=0)
    print(f"Killed {done} times in {runs} run(s), of which {same} ended with the bytes of an undisturbed run.")
    sys.exit(same != runs)


if __name__ == "__main__":
    nursery() if sys.argv[1:] == ["nursery"] else main()
