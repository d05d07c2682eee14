"""Runs in which nothing but sums over sites reaches the server: with noise, under masks, or both.

Every exchange after the description of the views is one vector of whole numbers per site, which the server adds. A
phase says what the vector is, how much one row can change it, and what the server makes of the sum; noise, ledger and
masks are the same for all phases.
"""

from fedhk.federation.sealed.state import Sealed

__all__ = ["Sealed"]
