"""Tests for what others write: subclass a class of checks in a test file, say what is to be checked, and run pytest."""
