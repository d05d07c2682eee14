"""Starts of a fit: seeding, candidates of sites, compression and cells."""
