"""What a site's operator demands of any run, whatever the coordinator asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedhk._files import read_toml
from fedhk.errors import DataError, MessageError
from fedhk.federation.entries import Terms
from fedhk.privacy.accounting import epsilon_of
from fedhk.privacy.identity import load_identity
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.secure_site import SecureSite


@dataclass(frozen=True)
class Policy:
    """What a site demands.

    Parameters
    ----------
    epsilon : float or None
        Most that all runs together may spend of privacy, from the site's ledger on. None lets runs without noise in.
    delta : float
        At which `epsilon` is meant.
    secure : bool
        Whether only masked sums may leave.
    threshold : int
        Fewest sites over which a masked sum may be opened.
    identity : str or None
        File with the site's long-term key, which signs its masks.
    known : dict of str to str
        Public long-term keys of the other sites, in hexadecimal; where there are some, nobody else may take part.
    """

    epsilon: float | None = None
    delta: float = 1e-6
    secure: bool = False
    threshold: int = 2
    identity: str | None = None
    known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.epsilon is not None and not (_is_number(self.epsilon) and 0 < self.epsilon < math.inf):
            raise DataError(f"policy: epsilon={self.epsilon!r} must be a finite number above 0.")
        if not (_is_number(self.delta) and 0 < self.delta < 1):
            raise DataError(f"policy: delta={self.delta!r} must be between 0 and 1.")
        if type(self.secure) is not bool:
            raise DataError(f"policy: secure={self.secure!r} must be true or false.")
        if type(self.threshold) is not int or self.threshold < 2:
            raise DataError(f"policy: threshold={self.threshold!r} must be a whole number from 2 on.")
        for site, key in self.known.items() if isinstance(self.known, dict) else [("", "")]:
            if not isinstance(key, str) or len(key) != 64 or not set(key) <= set("0123456789abcdef"):
                raise DataError(f"policy: known[{site!r}] must be a public key of 64 hexadecimal digits.")

    def check(self, terms: Terms) -> None:
        """Refuse a run that asks for less protection than this site demands."""
        if self.secure and not terms.secure:
            raise MessageError("this site gives masked sums only; the run must use secure=True")
        if self.epsilon is not None and terms.privacy is None:
            raise MessageError("this site gives sums with noise only; the run must have a privacy budget")

    def check_budget(self, privacy: DifferentialPrivacy, ledger: Ledger, run: str) -> None:
        """Refuse a run whose budget, with what other runs have spent, is above what this site allows."""
        if self.epsilon is None:
            return
        before = sum(release.multiplier**-2 for release in ledger.releases() if release.run != run)
        total = epsilon_of(self.delta, math.sqrt(before + privacy.budget))
        if total > self.epsilon * (1 + 1e-6):
            spent = epsilon_of(self.delta, math.sqrt(before)) if before else 0.0
            raise MessageError(
                f"the run's epsilon={privacy.epsilon:g} would bring this site to {total:.3g} of the {self.epsilon:g} "
                f"that it allows at delta={self.delta:g}; {spent:.3g} is spent already"
            )

    def make_secure_site(self, name: str) -> SecureSite:
        """Make the site's part in masked sums, with its long-term key and those of others."""
        private = None if self.identity is None else load_identity(self.identity)[0]
        known = {site: bytes.fromhex(key) for site, key in self.known.items()}
        return SecureSite(name, least=self.threshold, identity=private, known=known)


def read_policy(path: Path) -> Policy:
    """Read a policy from a TOML file; a relative key file is meant from where the policy is.

    Raises
    ------
    DataError
        If the file is not there, is no TOML, or has what a policy has not.
    """
    content = read_toml(path, "The policy", [entry.name for entry in fields(Policy)], DataError)
    if isinstance(content.get("identity"), str):
        content["identity"] = str(path.parent / content["identity"])
    return Policy(**content)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
