"""Privacy and trust: noise with a budget, sums that are secret, sites that may lie."""

from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation

__all__ = ["DifferentialPrivacy", "SecureSummation"]
