"""Checks for parts that you write yourself: derive a test class, say how your part is made, and run pytest.

For example::

    from fedhk.testing.scalings import ScalingChecks

    class TestMine(ScalingChecks):
        def scaling(self):
            return Mine()

pytest collects all checks from a subclass whose name begins with Test. FedHK's own parts are checked in the same way.
"""
