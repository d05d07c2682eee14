"""What a run promises about single rows, in words that everybody can follow."""

from __future__ import annotations

import math

from fedhk.summary.facts import Facts
from fedhk.summary.words import brief, number


def privacy_tiles(facts: Facts) -> list[tuple[str, str]]:
    """List what the run, and the one with noise beside it, spent; empty texts where nothing was."""
    runs = {"privacy spent": facts, "privacy, with noise": facts.private}
    spent = {what: None if run is None else run.privacy for what, run in runs.items()}
    return [(f"ε {brief(budget[0])}" if budget else "", what) for what, budget in spent.items()]


def tell_privacy(facts: Facts) -> str:
    """Say what was promised about single rows, who added the noise, and what that means; nothing at one site."""
    if facts.n_sites < 2 and facts.privacy is None:
        return ""
    masks = "The server saw sums over all sites only (secure sums). " if facts.secure else ""
    if facts.privacy is None:
        return (
            f"{masks}No noise was added. What left the sites are sums and means over rows. They say something about "
            "rows, and a cluster that has only one row at a site can give it away."
        )
    epsilon, delta = facts.privacy
    odds = f"{number(math.exp(epsilon), 2)} times" if epsilon < 12 else "any factor"
    weak = " That is a weak promise." if epsilon >= 3.5 else ""
    shared = "the sites shared one noise" if facts.secure else "every site added the whole noise to its own numbers"
    return (
        f"{masks}Noise was added to all that left the sites ({shared}): epsilon {brief(epsilon)} at delta {delta:g} "
        f"for one row in the whole run. Whatever the model is used for, nobody's odds of guessing right about a row "
        f"grow by more than {odds}, but for a probability of {delta:g}.{weak}"
    )


def tell_run_with_noise(facts: Facts) -> str:
    """Say what the run with noise spent, where the page has one."""
    if facts.private is None or facts.private.privacy is None:
        return ""
    epsilon, delta = facts.private.privacy
    return f" Once more with noise, the sites spent epsilon {brief(epsilon)} at delta {delta:g}: see below."
