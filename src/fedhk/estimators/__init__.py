"""The named estimators; each is thin, the mathematics is in `fedhk.model`."""
