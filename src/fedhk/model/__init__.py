"""The mathematics: pure functions on arrays, and one read of the rows that gives everything they need."""
