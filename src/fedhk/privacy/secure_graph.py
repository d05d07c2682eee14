"""Who masks with whom: all sites with all while they are few, else a random graph (Bell et al. 2020, CCS).

With all pairs, work and bytes grow with the square of the number of sites. A site needs fewer partners: so many that it
keeps honest ones whoever colludes, and that enough of them answer to open the sum whoever drops out. That is of the
order of the logarithm of the number of sites.

The graph follows from the digest of the session's terms, names and public keys, so that every site makes it itself and
nobody hands it out. Rings through all sites in random order are laid over each other until every site has enough
partners. A server can still try: it may leave out sites, or let a site that works with it make another key, and look
which graph comes out. So the chance of a bad graph is bounded for `TRIES` graphs, not for one.

How many partners are enough
----------------------------
Let a site and its m partners be a neighbourhood, of which t must answer to open a secret: the same part of it as the
threshold is of all sites. With colluders and dropouts at random places of the graph, both of these have a chance of at
most `CHANCE`, over all sites:

- in any of `TRIES` graphs, t of the partners of a site collude, when `COLLUDERS` of all sites do (the server opens this
  site's numbers);
- in one sum, fewer than t of the partners of a site answer, when `DROPOUTS` of all sites do not (the sum is given up).

The tails are those of the hypergeometric distribution, in exact fractions. That a group of sites is cut off from the
others, by colluders and by sites that a lying server calls gone, is not bounded here: each of the group would need
nearly as many colluders around it as a single site, less its links within the group, which are few in a random graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import shake_256
from math import ceil, comb

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

__all__ = ["CHANCE", "COLLUDERS", "DROPOUTS", "TRIES", "PartnerGraph", "draw_graph", "fewest_partners", "shares_needed"]

Indices = NDArray[np.intp]

# What is stated: with so many sites that collude, and so many that are gone, something fails with this chance.
COLLUDERS, DROPOUTS = Fraction(1, 10), Fraction(1, 20)
CHANCE = Fraction(1, 2**40)

# Graphs that a server can look at before it takes one; nobody computes so many hashes.
TRIES = 2**80

# Up to so many sites all are partners, which leaves room for all dropouts that the threshold allows. With more sites,
# none has fewer partners than the least, though a few hundred sites could do with less for the shares above.
FEW_SITES, LEAST_PARTNERS = 100, 64

# With a threshold of nearly all sites no number of partners leaves room for the stated dropouts. More than these would
# only cost: a site must not be made to compute without end by a server that proposes such a threshold.
MOST_PARTNERS = 400

# A site may have some more partners than the fewest. Because of rounding, some larger numbers are a little worse than
# the one before them: so many in a row must be enough.
SPARE = 32


def upper_tail(total: int, marked: int, drawn: int, least: int) -> Fraction:
    """Chance that at least so many of the drawn are marked, drawing without putting back.

    Examples
    --------
    >>> upper_tail(4, marked=2, drawn=2, least=2)
    Fraction(1, 6)
    """
    first = max(least, 0, drawn + marked - total)
    if first > min(drawn, marked):
        return Fraction(0)
    term = ways = comb(marked, first) * comb(total - marked, drawn - first)
    for hit in range(first, min(drawn, marked)):
        term = term * (marked - hit) * (drawn - hit) // ((hit + 1) * (total - marked - drawn + hit + 1))
        ways += term
    return Fraction(ways, comb(total, drawn))


def shares_needed(threshold: int, n_sites: int, size: int) -> int:
    """How many of a neighbourhood open a secret: the part of it that the threshold is of all sites, rounded up."""
    return -(-threshold * size // n_sites)


def failure_chances(
    n_sites: int, partners: int, threshold: int, colluders: Fraction = COLLUDERS, dropouts: Fraction = DROPOUTS
) -> tuple[Fraction, Fraction]:
    """Bounds on the chance that partners of any site open its numbers in one graph, and that a sum cannot be opened."""
    needed = shares_needed(threshold, n_sites, partners + 1)
    others = n_sites - 1
    opened = upper_tail(others, ceil(colluders * n_sites), partners, needed)
    # of a site that is gone, all shares are with its partners
    lost = upper_tail(others, ceil(dropouts * n_sites), partners, partners - needed + 1)
    return n_sites * opened, n_sites * lost


@lru_cache(maxsize=64)
def fewest_partners(n_sites: int, threshold: int) -> int:
    """How many partners each site has at least; all others, or the most, where fewer are not enough.

    Examples
    --------
    >>> fewest_partners(100, 67), fewest_partners(1000, 667)
    (99, 76)
    """
    most, enough = min(n_sites - 1, MOST_PARTNERS), 0
    if n_sites <= FEW_SITES or threshold >= (1 - DROPOUTS) * n_sites:
        return most
    for partners in range(LEAST_PARTNERS, most):
        opened, lost = failure_chances(n_sites, partners, threshold)
        enough = enough + 1 if opened * TRIES <= CHANCE and lost <= CHANCE else 0
        if enough > SPARE:
            return partners - SPARE
    return most


@dataclass(frozen=True, eq=False)
class PartnerGraph:
    """Who masks with whom: site i has the places from `starts[i]` to `starts[i + 1]`, one for each that is near it.

    Parameters
    ----------
    threshold : int
        How many of all sites must answer.
    starts : int array of shape (n + 1,)
        Where the places of each site begin.
    members : int array of shape (places,)
        Who is there: the site itself and its partners, in their order.
    """

    threshold: int
    starts: Indices
    members: Indices

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return self.starts.size - 1

    def near(self, site: int) -> Indices:
        """Return the neighbourhood of a site: itself and its partners, sorted."""
        return self.members[self.places(site)]

    def places(self, site: int) -> slice:
        """The places of a site."""
        return slice(int(self.starts[site]), int(self.starts[site + 1]))

    @cached_property
    def owners(self) -> Indices:
        """Whose each place is."""
        return np.repeat(np.arange(self.n_sites), np.diff(self.starts))

    @cached_property
    def back(self) -> Indices:
        """For the place of j at i, the place of i at j."""
        codes = self.owners * self.n_sites + self.members
        return np.searchsorted(codes, self.members * self.n_sites + self.owners)

    @cached_property
    def needed(self) -> Indices:
        """How many of each neighbourhood open a secret."""
        return -(-self.threshold * np.diff(self.starts) // self.n_sites)

    @property
    def is_complete(self) -> bool:
        """Whether every site is a partner of every other."""
        return self.members.size == self.n_sites**2

    def present(self, there: NDArray[np.bool_]) -> Indices:
        """How many of each neighbourhood are there."""
        return np.add.reduceat(there[self.members].astype(np.intp), self.starts[:-1])

    def parts(self, there: NDArray[np.bool_]) -> int:
        """Count the connected parts of the graph among the sites that are there."""
        links = csr_array((there[self.members], self.members, self.starts), shape=(self.n_sites,) * 2)
        links = links[there][:, there]
        return int(connected_components(links, directed=False, return_labels=False))


@lru_cache(maxsize=8)
def draw_graph(n_sites: int, threshold: int, seed: str) -> PartnerGraph:
    """Draw the graph from a digest: the same at the server and at every site.

    Parameters
    ----------
    n_sites : int
        How many sites are in the list of keys.
    threshold : int
        How many of them must answer.
    seed : str
        Digest of the session's terms, names and keys.
    """
    wanted, sites = fewest_partners(n_sites, threshold), np.arange(n_sites)
    if wanted >= n_sites - 1:
        codes = np.arange(n_sites**2)
    else:
        codes, rings, more = sites * (n_sites + 1), 0, (wanted + 1) // 2
        while more > 0:
            codes = np.unique(np.concatenate([codes, *(_ring(n_sites, seed, rings + i) for i in range(more))]))
            # a ring adds two partners, or fewer where two rings have a pair in common
            rings, more = rings + more, (wanted + 2 - int(np.bincount(codes // n_sites).min())) // 2
    starts = np.searchsorted(codes, np.arange(n_sites + 1) * n_sites)
    return PartnerGraph(threshold, starts, codes % n_sites)


def _ring(n_sites: int, seed: str, number: int) -> Indices:
    """Pairs of neighbours on a ring through all sites, either way, as codes i n + j."""
    stream = shake_256(f"fedhk partners {seed} {number}".encode()).digest(8 * n_sites)
    order = np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
    after = np.roll(order, -1)
    return np.concatenate([order * n_sites + after, after * n_sites + order])
