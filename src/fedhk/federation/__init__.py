"""The federation: a run is a list of phases over a board, carried by an engine."""
