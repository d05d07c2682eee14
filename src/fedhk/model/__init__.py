"""The mathematics of the model: pure functions on arrays, and passes over the rows."""
