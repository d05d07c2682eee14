"""The frame of rows that are to be embedded: whether a site's own mean and spread are taken out, and how much of them.

The verdict is that of `calibration_choice.choose`. What it chooses beside is for round clusters, which rows need not be
in before they are embedded: offsets that follow centres, and the whole of a mean.
"""

from __future__ import annotations

from fedhk.model.rows import Rows
from fedhk.personal.calibration import Calibration
from fedhk.personal.calibration_choice import Frames, choose, in_frame, takes_much
from fedhk.starts.candidates import candidate_rows
from fedhk.starts.settings import Settings

# Shares of a site's own mean and spread that are taken out, where sites measure differently.
FRAME_SHARES = (0.75, 0.75)


def choose_frame(
    known: Frames, settings: Settings, wanted: tuple[float, float] | None, seed: int, workers: int
) -> tuple[Calibration | None, Rows]:
    """How sites bring their rows to one frame, or None where they measure alike; and the candidates in it.

    Parameters
    ----------
    known : Frames
        What sites sent.
    settings : Settings
        The model that judges whether clusters become clearer.
    wanted : (float, float) or None
        Shares of mean and spread that were given; None chooses.
    seed : int
        Seed of the starts.
    workers : int
        Threads.
    """
    shift, spread = _chosen(known, settings, seed, workers) if wanted is None else wanted
    if settings.scaling != "standard":  # units are not those of a spread
        spread = 0.0
    if shift == spread == 0:
        return None, candidate_rows(known.candidates, known.references, known.names)
    rows, factors = in_frame(known, (shift, spread))
    return Calibration(shift, spread, tuple(factors.tolist()), offsets=False), rows


def _chosen(known: Frames, settings: Settings, seed: int, workers: int) -> tuple[float, float]:
    found = choose(known, settings, None, seed, workers)[0]
    different = found.shift > 0 or found.spread > 0 or (found.offsets and takes_much(found.factors))
    return FRAME_SHARES if different else (0.0, 0.0)
