"""The state of a site between messages, in one file: a process that ends after every answer loses nothing.

The file is a message like those on the wire, with the same digest, so that damage is seen. What the server told once
stands in it as the server told it, and is heard again. Rows are never in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhk._files import write_atomically
from fedhk.federation.diffusion.site import told_again
from fedhk.federation.messages import Message, decode, encode, expect
from fedhk.federation.payloads import pack_references, pack_text, unpack_text
from fedhk.federation.remote.secure_file import pack_session, unpack_session
from fedhk.federation.site import SiteState, informed

KIND = "site"
MAX_STATE_BYTES = 2**32


@dataclass(frozen=True)
class Join:
    """What a run asks of a site before the first exchange.

    Parameters
    ----------
    run : str
        The name of the run.
    columns : dict of str to tuple of str, or None
        The views of the federation, each with the names of its columns.
    privacy : dict or None
        The budget, as `DifferentialPrivacy.describe` gives it.
    secure : bool
        Whether sums are masked.
    """

    run: str
    columns: dict[str, tuple[str, ...] | None]
    privacy: dict[str, Any] | None = None
    secure: bool = False

    def to_json(self) -> list[Any]:
        """As lists, for messages and files."""
        return [self.run, self.columns, self.privacy, self.secure]

    @classmethod
    def from_json(cls, told: Any) -> Join:
        """What `to_json` gave; ValueError for anything else."""
        match told:
            case [str(run), dict(columns), dict() | None as privacy, bool(secure)] if run:
                named = {view: None if names is None else tuple(map(str, names)) for view, names in columns.items()}
                return cls(run, named, privacy, secure)
        raise ValueError("what the run asks of the site is not well formed")


@dataclass(frozen=True)
class Kept:
    """What a site has kept of a run.

    Parameters
    ----------
    join : Join
        What the run asks of it.
    answered : str
        Digest of the last request.
    reply : bytes
        What was answered: the same request again gets the same answer.
    message : Message or None
        Everything else, to be heard again; None before the first answer.
    """

    join: Join
    answered: str = ""
    reply: bytes = b""
    message: Message | None = None


def save_site(path: Path, kept: Kept, state: SiteState) -> None:
    """Write what a site must know at the next message; only its owner can read the file."""
    arrays: dict[str, Any] = {"join": pack_text(kept.join.to_json()), "reply": np.frombuffer(kept.reply, np.uint8)}
    values: dict[str, Any] = {"answered": kept.answered, "run": state.run}
    if state.rows is not None:
        views = state.rows.views
        packed, described = pack_references(state.references, views.names, views.columns)
        arrays |= packed
        values |= described
    if state.calibration is not None:
        values["calibration"] = state.calibration.to_list()
    arrays |= {f"offset.{view}": array for view, array in enumerate(state.offset)}
    arrays |= {f"basis.{view}": array for view, array in enumerate(state.basis)}
    if state.stage is not None:
        told, numbers = told_again(state.stage)
        arrays |= told
        values |= numbers
    if state.form is not None:
        values["form"], factors = state.form.to_arrays()
        arrays |= factors
    if state.secure is not None and state.secure.session is not None:
        packed, values["session"] = pack_session(state.secure.session)
        arrays |= {f"session.{name}": array for name, array in packed.items()}
    write_atomically(path, encode(Message(KIND, state.name, 0, arrays, values)))


def load_site(path: Path, site: str) -> Kept | None:
    """What is in the file of a site, or None where there is none.

    Raises
    ------
    MessageError
        If the file is damaged or another site's.
    """
    if not path.exists():
        return None
    message = decode(path.read_bytes(), site=site, max_bytes=MAX_STATE_BYTES)
    expect(message, kind=KIND, site=site)
    arrays = dict(message.arrays)
    join = Join.from_json(unpack_text(arrays.pop("join", None), site))
    reply = arrays.pop("reply").tobytes()
    return Kept(join, str(message.values["answered"]), reply, replace(message, arrays=arrays))


def restored(state: SiteState, message: Message) -> SiteState:
    """A site with its rows, as it was when the file was written.

    Parameters
    ----------
    state : SiteState
        The site before a run.
    message : Message
        What `load_site` gave.
    """
    arrays, values = message.arrays, message.values
    state = replace(informed(state, message), run=str(values["run"]))
    state = replace(state, offset=_numbered(arrays, "offset"), basis=_numbered(arrays, "basis"))
    if "form" in values:
        from fedhk.tensors.low_rank import LowRank  # noqa: PLC0415 - tensor algebra takes a second to import

        state = replace(state, form=LowRank.from_arrays(values["form"], dict(arrays)))
    if state.secure is not None and "session" in values:
        start = "session."
        of_session = {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
        session = unpack_session(of_session, values["session"], state.name)
        state = replace(state, secure=replace(state.secure, session=session))
    return state


def _numbered(arrays: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    return tuple(arrays[f"{name}.{view}"] for view in range(sum(key.startswith(f"{name}.") for key in arrays)))
