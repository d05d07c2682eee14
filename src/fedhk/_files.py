"""Atomic writes: a file is complete or not there. Also TOML files and locks."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import shutil
import stat
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: one process at a time must use what is locked there
    fcntl = None  # type: ignore[assignment]


# Windows would change line ends without it.
BINARY = getattr(os, "O_BINARY", 0)

# Who may read a file: its owner alone, or everybody whom the user's umask lets read.
OWNER_ONLY, READABLE = 0o600, 0o644


def write_atomically(path: str | os.PathLike[str], content: bytes, mode: int = OWNER_ONLY) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    target = Path(path)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}")
    try:
        _write_to_disk(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode), content)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read a file; an OSError says at once if it is a folder, pipe or device, which are never waited for."""
    handle = os.open(path, os.O_RDONLY | BINARY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    with os.fdopen(handle, "rb") as file:
        return file.read()


def write_secret(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that only its owner can read, to disk before this returns; FileExistsError where there is one."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, OWNER_ONLY)
    _write_to_disk(handle, content)


def _write_to_disk(handle: int, content: bytes) -> None:
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_toml(path: Path, what: str, known: Collection[str], error_type: type[Exception]) -> dict[str, Any]:
    """Read a TOML file with known keys; raise an error of the given type for anything else.

    `what` says what the file is, for errors, such as "The policy".
    """
    try:
        content = tomllib.loads(read_regular(path).decode("utf-8"))
    except OSError as error:
        raise error_type(f"{what} {str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise error_type(f"{what} {str(path)!r} is no TOML: {error}") from error
    if unknown := sorted(content.keys() - set(known)):
        raise error_type(f"{what} {str(path)!r} has unknown {unknown}; known are {', '.join(known)}.")
    return content


def toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Write settings as lines of TOML, which has no None: those that are None are left out.

    Examples
    --------
    >>> from fedhk._files import toml_lines
    >>> toml_lines({"seed": 3, "site of Oslo": {"weights": [0.5, 1.0]}, "data": None})
    ['seed = 3', '"site of Oslo" = { weights = [0.5, 1.0] }']
    """
    return [f"{toml_key(name)} = {_toml_value(value)}" for name, value in values.items() if value is not None]


def toml_key(name: Any) -> str:
    """Write a name as a key of TOML; with other characters than letters, digits, - and _ it is quoted."""
    return str(name) if re.fullmatch(r"[A-Za-z0-9_-]+", str(name)) else _toml_value(str(name))


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(toml_lines(value))} }}"
    if isinstance(value, bool | date):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    raise ValueError(f"{value!r} has no place in a TOML file.")


@contextmanager
def replacing(out: Path, mode: int = 0o700) -> Iterator[Path]:
    """Yield a hidden folder beside `out` that replaces `out` once it is complete.

    By default nobody but its owner can look into it. Where `out` is a link, the folder that it leads to is replaced.
    """
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    draft, old = (out.with_name(f".{out.name}.{token}.{kind}") for kind in ("new", "old"))
    draft.mkdir(mode=mode)
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


def hold(path: str | os.PathLike[str]) -> bool:
    """Lock the file of this name until this process ends, also if another program takes its place.

    Return whether that was possible: False if another process holds it. On Windows nothing is locked.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | BINARY, OWNER_ONLY)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return False
    os.set_inheritable(handle, True)
    return True


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Lock the file of this name, after waiting for other processes; the lock ends with the process."""
    with Path(path).open("wb") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
