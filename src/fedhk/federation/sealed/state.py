"""What the server of a sealed run keeps between exchanges, beside what it keeps in every run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.federation.payloads import Arrays, Values
from fedhk.privacy.secure_server import SecureServer
from fedhk.starts.cells import Grid


@dataclass(frozen=True, eq=False)
class Sealed:
    """Everything here is public: made of what was released.

    Parameters
    ----------
    run : str
        A name that no other run has, by which sites know what they released in it.
    sites : tuple of str
        The sites that described themselves.
    low, high : array of shape (d,)
        Bounds of all features, in input units.
    full : tuple of bool
        Views whose weights are sent per feature, because cells are missing or coefficients are not uniform.
    grid : Grid or None
        The cells of the start.
    points : array of shape (k, d) or None
        What rows are grouped by on the way to anchors, where they are embedded.
    passes : int
        Passes on that way so far.
    releases : tuple of float
        Noise multipliers of what was released so far, answers that did not arrive included.
    trail : tuple of array of shape (c, d)
        Centres of the last noisy rounds; their mean has less noise.
    noise : float
        How far off the noise leaves a typical centre, as a share of the distance between centres.
    secure : SecureServer or None
        The session of masks that is under way.
    interrupted : bool
        Of a checkpoint: sites may have answered a sum that did not arrive, because masks were agreed on for it.
    """

    run: str
    sites: tuple[str, ...] = ()
    low: FloatArray | None = None
    high: FloatArray | None = None
    full: tuple[bool, ...] = ()
    grid: Grid | None = None
    points: FloatArray | None = None
    passes: int = 0
    releases: tuple[float, ...] = ()
    trail: tuple[FloatArray, ...] = ()
    noise: float = 0.0
    secure: SecureServer | None = field(default=None, repr=False)
    interrupted: bool = False


def pack_sealed(sealed: Sealed) -> tuple[Arrays, Values]:
    """For checkpoints; a session of masks ends with the process."""
    arrays: Arrays = {"sealed.releases": np.array(sealed.releases)}
    if sealed.low is not None and sealed.high is not None:
        arrays["sealed.bounds"] = np.stack([sealed.low, sealed.high])
    if sealed.trail:
        arrays["sealed.trail"] = np.stack(sealed.trail)
    if sealed.grid is not None:
        arrays["sealed.axes"] = np.column_stack([sealed.grid.mean, sealed.grid.axes])
        arrays["sealed.deviations"] = sealed.grid.deviations
    if sealed.points is not None:
        arrays["sealed.points"] = sealed.points
    bins = 0 if sealed.grid is None else sealed.grid.bins
    return arrays, {
        "run": sealed.run,
        "sites": list(sealed.sites),
        "full": list(sealed.full),
        "bins": bins,
        "passes": sealed.passes,
        "noise": sealed.noise,
        "interrupted": sealed.secure is not None and _may_be_answered(sealed.secure),
    }


def unpack_sealed(arrays: Arrays, values: dict[str, Any]) -> Sealed:
    """What `pack_sealed` packed."""
    bounds, axes, trail = (arrays.get(f"sealed.{name}") for name in ("bounds", "axes", "trail"))
    grid = None
    if axes is not None:
        grid = Grid(axes[:, 0], axes[:, 1:], arrays["sealed.deviations"], int(values["bins"]))
    return Sealed(
        run=str(values["run"]),
        sites=tuple(values["sites"]),
        low=None if bounds is None else bounds[0],
        high=None if bounds is None else bounds[1],
        full=tuple(bool(flag) for flag in values["full"]),
        grid=grid,
        points=arrays.get("sealed.points"),
        passes=int(values["passes"]),
        releases=tuple(arrays["sealed.releases"].tolist()),
        trail=() if trail is None else tuple(trail),
        noise=float(values["noise"]),
        interrupted=bool(values["interrupted"]),
    )


def _may_be_answered(session: SecureServer) -> bool:
    """Whether sites may have put in numbers when a process ends before its next checkpoint, or have already."""
    more = session.number + 1 < session.terms.sums
    return session.step == "unmask" or (session.step == "ready" and more)
