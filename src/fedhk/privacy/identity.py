"""Long-term keys of sites: with them a server cannot put a site of its own making in the place of another.

Operators make a key each, send each other the public ones, and compare fingerprints by another way, such as the phone.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from fedhk._files import read_regular, write_secret
from fedhk.errors import DataError
from fedhk.privacy._lazy import primitives

__all__ = ["fingerprint", "load_identity", "make_identity", "save_identity"]

KEY_BYTES = 32


def make_identity() -> tuple[bytes, bytes]:
    """A new Ed25519 key pair: the private key, which never leaves its site, and the public key for the other sites."""
    private = primitives.entropy(KEY_BYTES)
    return private, primitives.identity_public(private)


def save_identity(path: str | os.PathLike[str], private: bytes) -> None:
    """Write a private key as a PEM file that only its owner can read; an existing file is never replaced.

    Raises
    ------
    DataError
        If there is a file already: a key that is lost cannot be made again.
    """
    try:
        write_secret(path, primitives.to_pem(private))
    except FileExistsError as error:
        raise DataError(f"{os.fspath(path)} is there already; move it away first") from error


def load_identity(path: str | os.PathLike[str]) -> tuple[bytes, bytes]:
    """The private and the public key of a file that `save_identity` wrote.

    Raises
    ------
    DataError
        If others can read the file, or it holds no such key.
    """
    file = Path(path)
    if os.name == "posix" and file.stat().st_mode & 0o077:
        raise DataError(f"{file} can be read by others than its owner; run: chmod 600 {file}")
    try:
        private = primitives.from_pem(read_regular(file))
    except ValueError:
        # without the cause, whose text may quote the file
        raise DataError(f"{file} is no Ed25519 private key in PEM form without a password") from None
    return private, primitives.identity_public(private)


def fingerprint(public: bytes) -> str:
    """A public key as eight groups of four letters and digits, to be compared aloud: half of its SHA-256 digest."""
    if len(public) != KEY_BYTES:
        raise ValueError(f"a public key has {KEY_BYTES} bytes, got {len(public)}")
    text = sha256(public).hexdigest()[:32]
    return " ".join(text[i : i + 4] for i in range(0, 32, 4))
