"""Checks for parts that you write yourself: derive a test class, say how your part is made, and run pytest."""
