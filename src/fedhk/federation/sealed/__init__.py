"""Sealed phases: nothing but a sum over all sites reaches the server, with noise, under masks, or both.

`Sealed(phase, terms)` wraps any phase whose answer is a sum over rows. A site makes the phase's vector, rounds it to
whole numbers, adds noise, writes that down in its ledger and puts masks on it. The server adds up, takes the masks
away, and gives the total to the phase. What one row can change is stated by the phase; everything else is here: the
wrapper (`phase`), noise and masks with both ends each (`noise`, `masks`), and what a site lets pass (`guard`).
"""

from fedhk.federation.sealed.guard import SealedGuard
from fedhk.federation.sealed.noise import Noise, SiteNoise, grid_step
from fedhk.federation.sealed.phase import Sealed, SealedTerms
from fedhk.federation.sealed.units import UNITS

__all__ = ["UNITS", "Noise", "Sealed", "SealedGuard", "SealedTerms", "SiteNoise", "grid_step"]
