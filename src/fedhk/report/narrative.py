"""A run in sentences, for those who read nothing else."""

from __future__ import annotations

import math

import numpy as np

from fedhk.report.facts import Facts
from fedhk.report.words import counted, listed, number, percent, seconds, short, size

ALGORITHMS = {
    "e-fkmvc": "Federated heat-kernel multi-view clustering (E-FKMVC)",
    "fedhk-tucker": "Federated multi-view clustering with Tucker centres (FedHK-Tucker)",
    "fedhk-parafac2": "Federated multi-view clustering with PARAFAC2 centres (FedHK-PARAFAC2)",
    "fedhk-person": "Personalized federated multi-view clustering (FedHK-Person)",
    "fedhk-diffusion": "Federated multi-view clustering of rows embedded by heat diffusion (FedHK-Diffusion)",
    "heat-kernel-mvc": "Heat-kernel multi-view clustering at one site",
}

# A row whose largest membership is below this is closer to a second cluster than is comfortable.
UNSURE = 0.6


def paragraphs(facts: Facts) -> list[tuple[str, str]]:
    """The summary: what each paragraph is about, and its text. Plain text, not escaped."""
    told = [
        ("Found", _found(facts)),
        ("How sure", _how_sure(facts)),
        ("Cost", _cost(facts)),
        ("Privacy", privacy_words(facts) + _once_more(facts)),
        ("Own models", _own_models(facts)),
    ]
    return [(about, text) for about, text in told if text]


def banner(facts: Facts) -> str:
    """Who may see the page."""
    if facts.released_only:
        kept = "only what the sites released under noise" if facts.privacy else "only sums over all sites"
        return (
            f"Coordinator's page. It shows {kept}: no rows, no labels, no models of single sites. "
            "`fedhk report RUN --site NAME` makes the page of a site, which stays there."
        )
    if facts.own_page_of is not None:
        return f"Page of site {facts.own_page_of}. It shows rows of this site and none of others: keep it at the site."
    if facts.measured is not None and facts.n_sites > 1:
        return "Made where the rows of all sites can be read: maps show single rows. Share it as you would share them."
    return ""


def _found(facts: Facts) -> str:
    where = f" at {counted(facts.n_sites, 'site')}" if facts.n_sites > 1 else ""
    views = f"described by {counted(len(facts.views), 'view')} ({listed([view.name for view in facts.views])})"
    rows = f"{facts.n_rows:,} rows" if facts.n_rows else ""
    if facts.own_page_of is not None:
        text = f"{counted(facts.n_clusters, 'cluster')} that mean the same{where}, {views}. This page shows {rows}."
    else:
        text = f"{counted(facts.n_clusters, 'cluster')}{' among ' if rows else ''}{rows}{where}, {views}."
    sizes = np.sum(list(facts.sizes.values()), axis=0) if facts.sizes else None
    if sizes is not None and sizes.sum():
        filled = np.where(sizes > 0, sizes, sizes.max())
        largest, smallest, total = int(np.argmax(sizes)), int(np.argmin(filled)), int(sizes.sum())
        text += (
            f" The largest, cluster {largest}, has {percent(sizes[largest] / total)} of the rows; the smallest, "
            f"cluster {smallest}, has {percent(sizes[smallest] / total)}."
        )
        empty = int(np.sum(sizes == 0))
        if empty:
            text += f" {counted(empty, 'cluster')} {'has' if empty == 1 else 'have'} no row."
    return text


def _how_sure(facts: Facts) -> str:
    if facts.released_only:
        return (
            "Not known here: certainty is computed from rows, at the sites. Noise moves centres; the page of a site "
            "says how well they fit there."
        )
    parts = [a.certainty for a in facts.assigned.values()]
    if not parts or not sum(map(len, parts)):
        return ""
    certainty = np.concatenate(parts)
    text = (
        f"The mean certainty of a row is {number(float(certainty.mean()), 2)} of 1; "
        f"{percent(float(np.mean(certainty < UNSURE)))} of the rows are between clusters (below {UNSURE})."
    )
    separation = mean_separation(facts)
    if separation is not None:
        judged = (
            "well apart"
            if separation >= 0.5
            else "apart, with rows between them"
            if separation >= 0.25
            else "hardly apart"
        )
        text += (
            f" Separation is {number(separation, 2)} (1: rows lie on their centres, 0: between two): clusters are "
            f"{judged}."
        )
    if facts.fuzzifier < 1.2:
        text += (
            f" With a fuzzifier of {number(facts.fuzzifier)} memberships are nearly all-or-nothing, so that certainty "
            "says which centre is nearest, not how likely the cluster is real."
        )
    return text


def mean_separation(facts: Facts) -> float | None:
    """Separation of all rows that were read; None where there are none."""
    if facts.measured is None:
        return None
    pairs = [
        (value, len(facts.assigned[s].labels))
        for s, value in facts.measured.separation.items()
        if math.isfinite(value) and s in facts.assigned
    ]
    total = sum(rows for _, rows in pairs)
    return sum(value * rows for value, rows in pairs) / total if total else None


def _cost(facts: Facts) -> str:
    if not facts.rounds:
        return ""
    spent = sum(record.seconds for record in facts.rounds)
    time = f", {seconds(spent)}" if spent > 0 else ""
    federated = any(record.bytes_up is not None for record in facts.rounds)
    text = f"{counted(len(facts.rounds), 'round' if federated or facts.n_sites > 1 else 'iteration')}{time}."
    if federated:
        text += f" Sites sent {size(facts.bytes_up)} and received {size(facts.bytes_down)}. No row left its site."
    ended = (
        " The run converged." if facts.converged else " The run did not converge." if facts.converged is False else ""
    )
    if facts.privacy and facts.converged is False:
        ended = ""  # with a budget, the number of rounds is set before
    refused = sorted({site for record in facts.rounds for site in record.refused})
    if refused:
        text += f" Answers of {listed(refused)} were refused at least once."
    return f"{text}{ended} {facts.stop_reason}".strip()


def privacy_words(facts: Facts) -> str:
    """What was promised about single rows, who added the noise, and what that means; nothing at one site."""
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
        f"{masks}Noise was added to all that left the sites ({shared}): epsilon {short(epsilon)} at delta {delta:g} "
        f"for one row in the whole run. Whatever the model is used for, nobody's odds of guessing right about a row "
        f"grow by more than {odds}, but for a probability of {delta:g}.{weak}"
    )


def _once_more(facts: Facts) -> str:
    """What the run with noise spent, where the page has one."""
    if facts.private is None or facts.private.privacy is None:
        return ""
    epsilon, delta = facts.private.privacy
    return f" Once more with noise, the sites spent epsilon {short(epsilon)} at delta {delta:g}: see below."


def _own_models(facts: Facts) -> str:
    if facts.released_only or facts.n_sites < 2 or not facts.assigned:
        return ""
    who = "The site uses" if facts.own_page_of is not None else "All sites use"
    moved = sum(int(np.sum(a.labels != a.global_labels)) for a in facts.assigned.values())
    if not facts.personal and not moved:
        return f"{who} the global model as it is."
    pairs = [
        (g.objectives["global"], g.objectives["personal"])
        for g in facts.gains
        if {"global", "personal"} <= g.objectives.keys()
    ]
    pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
    share = (
        f" {percent(moved / facts.n_rows)} of the rows are in another cluster than in the global model."
        if facts.n_rows
        else ""
    )
    if not pairs:
        return f"Sites have models of their own.{share}"
    before, after = (float(np.mean(values)) for values in zip(*pairs, strict=True))
    better = sum(own < common for common, own in pairs)
    where = "rows that no model saw" if facts.held_out else "the rows they were fitted to (which favours them)"
    change = (
        f"{percent(abs(after - before) / before)} {'lower' if after < before else 'higher'}"
        if before > 0
        else "the same"
    )
    alone = [g.objectives["alone"] for g in facts.gains if math.isfinite(g.objectives.get("alone", math.nan))]
    if alone and (lone := float(np.mean(alone))) < after:
        share += (
            f" Models that sites make alone reach {number(lone)}: they fit closer, but their clusters mean nothing at "
            "other sites."
        )
    return (
        f"Own models are better at {better} of {counted(len(pairs), 'site')}, on {where}: the objective per row is "
        f"{number(after, 3)} against {number(before, 3)} with the global model, {change}.{share}"
    )
