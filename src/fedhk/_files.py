"""Files that are whole or not there."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: one process at a time must use what is locked there
    fcntl = None  # type: ignore[assignment]


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        _write_to_disk(handle, content)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_secret(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that only its owner can read, to disk before this returns; FileExistsError where there is one."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    _write_to_disk(handle, content)


def _write_to_disk(handle: int, content: bytes) -> None:
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_toml(path: Path, what: str, known: Collection[str], error_type: type[Exception]) -> dict[str, Any]:
    """The content of a TOML file with known keys; what is wrong is an error of this type.

    `what` says what the file is, for errors, such as "The policy".
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise error_type(f"{what} {str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise error_type(f"{what} {str(path)!r} is no TOML: {error}") from error
    if unknown := sorted(content.keys() - set(known)):
        raise error_type(f"{what} {str(path)!r} has unknown {unknown}; known are {', '.join(known)}.")
    return content


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` that takes its place, and that of all it held, once it is complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    draft, old = (out.with_name(f".{out.name}.{token}.{kind}") for kind in ("new", "old"))
    draft.mkdir()
    try:
        yield draft
        if out.exists():
            out.rename(old)
        try:
            draft.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Wait until no other process has the file of this name, and have it; the end of the process ends the lock."""
    with Path(path).open("wb") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
