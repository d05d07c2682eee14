"""Phases: one exchange between the server and its sites each, both ends in one file."""
