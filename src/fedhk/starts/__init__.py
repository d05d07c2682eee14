"""Where a fit starts: seeding, candidates of sites, compression and cells."""
