"""The public keys of a session: what sites sign, what they refuse, and the digest that binds them to one list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedhk.errors import MessageError
from fedhk.privacy._lazy import primitives
from fedhk.privacy.secure_terms import ByteArray, Parcel, Terms, parcel_digest, take_array, take_names

__all__ = ["KEY_BYTES", "SIGNATURE_BYTES", "Roster", "advert_text"]

KEY_BYTES = 32
SIGNATURE_BYTES = 64


@dataclass(frozen=True, eq=False)
class Roster:
    """The public keys of a session, in the order of the sites' names.

    Parameters
    ----------
    names : tuple of str
        The sites; site i holds the shares of the point i + 1.
    cipher_keys : uint8 array of shape (n, 32)
        For the envelopes.
    mask_keys : uint8 array of shape (n, sums, 32)
        One for each sum.
    signatures : uint8 array of shape (n, 64)
        Zeros where a site has no long-term key.
    """

    names: tuple[str, ...]
    cipher_keys: ByteArray
    mask_keys: ByteArray
    signatures: ByteArray

    @classmethod
    def of(cls, parcel: Parcel, sums: int, site: str) -> Roster:
        """The list of keys in a request of the step "shares"."""
        names = take_names(parcel, "names", site)
        cipher_keys = take_array(parcel, "cipher_keys", np.uint8, (len(names), KEY_BYTES), site)
        mask_keys = take_array(parcel, "mask_keys", np.uint8, (len(names), sums, KEY_BYTES), site)
        signatures = take_array(parcel, "signatures", np.uint8, (len(names), SIGNATURE_BYTES), site)
        return cls(names, cipher_keys, mask_keys, signatures)

    def parcel(self) -> Parcel:
        return {
            "names": list(self.names),
            "cipher_keys": self.cipher_keys,
            "mask_keys": self.mask_keys,
            "signatures": self.signatures,
        }

    def cipher_key(self, site: str) -> bytes:
        return bytes(self.cipher_keys[self.names.index(site)])

    def mask_key(self, site: str, number: int) -> bytes:
        return bytes(self.mask_keys[self.names.index(site), number])

    def context(self, terms: Terms, participants: tuple[str, ...] = ()) -> str:
        """Digest of all that sites must see alike: terms, keys and, once it is known, who takes part."""
        return parcel_digest(self.parcel() | terms.values() | {"participants": list(participants)})

    def check(self, terms: Terms, own: str, advert: Parcel, known: Mapping[str, bytes]) -> None:
        """Refuse, at a site, a list in which a site could stand twice or be somebody else, or that is too short.

        Parameters
        ----------
        terms : Terms
            What was agreed.
        own : str
            The site that looks.
        advert : dict
            The keys that it sent.
        known : mapping of str to bytes
            Public long-term keys of the other sites; nobody's signature is looked at where it is empty.
        """
        try:
            terms.check_sites(len(self.names))
        except ValueError as error:
            raise MessageError(f"the list of keys cannot be used: {error}", own) from error
        if own not in self.names:
            raise MessageError("the list of keys lacks this site", own)
        row = self.names.index(own)
        mine, listed = (advert["cipher_key"], advert["mask_keys"]), (self.cipher_keys[row], self.mask_keys[row])
        if not all(np.array_equal(sent, found) for sent, found in zip(mine, listed, strict=True)):
            raise MessageError("the list of keys has other keys for this site than it made", own)
        self._check_different()
        for name in self.names if known else ():
            if name != own:
                self._check_signature(terms, name, own, known)

    def _check_different(self) -> None:
        """Refuse a key that stands twice: two masks, or a mask and an envelope, would hang on one secret."""
        owners: dict[bytes, str] = {}
        for row, name in enumerate(self.names):
            for key in (self.cipher_keys[row], *self.mask_keys[row]):
                if bytes(key) in owners:
                    raise MessageError(f"its key in the list is also a key of site {owners[bytes(key)]!r}", name)
                owners[bytes(key)] = name

    def _check_signature(self, terms: Terms, name: str, own: str, known: Mapping[str, bytes]) -> None:
        if name not in known:
            raise MessageError(f"its long-term key is not known to site {own!r}", name)
        row = self.names.index(name)
        text = advert_text(terms, name, self.cipher_keys[row], self.mask_keys[row])
        if not primitives.signed_by(known[name], bytes(self.signatures[row]), text):
            raise MessageError("its keys are not signed by the long-term key that its operator gave", name)


def advert_text(terms: Terms, site: str, cipher_key: ByteArray, mask_keys: ByteArray) -> bytes:
    """What a site signs: its keys for this session, and on what terms."""
    content = {"site": site, "cipher_key": cipher_key, "mask_keys": mask_keys} | terms.values()
    return b"fedhk secure sum keys 1 " + parcel_digest(content).encode()
