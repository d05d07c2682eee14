"""The few calls into the package `cryptography`, on plain bytes; `fedhk.privacy._lazy` loads it when it is needed."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Iterator
from hashlib import shake_256

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


def entropy(count: int) -> bytes:
    """Random bytes of the operating system: the one source of every secret of a sum."""
    return secrets.token_bytes(count)


def public_key(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, publics: Iterable[bytes]) -> Iterator[bytes]:
    """What both ends of X25519 agreements get; ValueError at a public key that makes it the same for everybody."""
    own = X25519PrivateKey.from_private_bytes(private)
    for public in publics:
        yield own.exchange(X25519PublicKey.from_public_bytes(public))


def derive(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 without salt (RFC 5869): a key of 32 bytes for one purpose."""
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), info + b"\x01", "sha256")


def expand(secret: bytes, info: bytes, count: int) -> bytes:
    """SHAKE-256: as many bytes as asked, for one purpose, of a secret of 16 or 32 random bytes."""
    return shake_256(secret + info).digest(count)


def keystream(key: bytes, count: int) -> bytes:
    """The first bytes of ChaCha20 under a key that is used for nothing else, which is why the nonce may be zero."""
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(count))


def seal(key: bytes, plain: bytes, bound: bytes) -> bytes:
    """ChaCha20-Poly1305 with a random nonce in front; `bound` is not sent, but must be the same at the other end."""
    nonce = entropy(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plain, bound)


def unseal(key: bytes, sealed: bytes, bound: bytes) -> bytes | None:
    """What `seal` was given, or None where it was not this or not under this key."""
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:12], sealed[12:], bound)
    except InvalidTag:
        return None


def identity_public(private: bytes) -> bytes:
    """The Ed25519 public key of 32 private bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, text: bytes) -> bytes:
    """An Ed25519 signature, 64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(text)


def signed_by(public: bytes, signature: bytes, text: bytes) -> bool:
    """Whether the owner of a public key signed this text."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def to_pem(private: bytes) -> bytes:
    """An Ed25519 private key as PKCS 8 text, which other tools read too."""
    key = Ed25519PrivateKey.from_private_bytes(private)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def from_pem(text: bytes) -> bytes:
    """What `to_pem` was given; ValueError where the text is no unencrypted Ed25519 key."""
    try:
        key = load_pem_private_key(text, password=None)
    except TypeError as error:  # a password is needed
        raise ValueError(str(error)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the key is not an Ed25519 key")  # noqa: TRY004 - the caller gave a file, not a type
    return key.private_bytes_raw()
