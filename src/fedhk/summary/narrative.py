"""A run in a few numbers and sentences, for those who read nothing else."""

from __future__ import annotations

import math

import numpy as np

from fedhk.summary.facts import Facts, TriedNumber
from fedhk.summary.html import Markup, join, tag
from fedhk.summary.words import brief, join_names, number, number_above, percent, plural, seconds, size, two_digits

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


def headline(facts: Facts) -> Markup:
    """Write the numbers that people ask for first, and the summary in words."""
    numbers = (tag("div", tag("b", value), tag("span", what)) for value, what in _list_numbers(facts) if value)
    texts = (join(tag("dt", about), tag("dd", text)) for about, text in paragraphs(facts) if text)
    return join(tag("div", *numbers, class_="tiles"), tag("dl", *texts, class_="summary"))


def paragraphs(facts: Facts) -> list[tuple[str, str]]:
    """Write the summary: what each paragraph is about, and its text, which may be empty. It is not escaped."""
    return [
        ("Found", _tell_clusters(facts)),
        ("How sure", " ".join(filter(None, [*(one.verdict for one in facts.after), _tell_certainty(facts)]))),
        ("Cost", _tell_cost(facts)),
        ("Privacy", tell_privacy(facts) + _tell_run_with_noise(facts)),
        ("Own models", _tell_own_models(facts)),
    ]


def _list_numbers(facts: Facts) -> list[tuple[str, str]]:
    """List numbers, and what each is; the text of one that is not known is empty."""
    separation = _mean_separation(facts)
    return [
        (f"{facts.n_clusters:,}", "cluster" if facts.n_clusters == 1 else "clusters"),
        (f"{facts.n_rows:,}" if facts.n_rows else "", "rows"),
        (f"{facts.n_sites:,}" if facts.n_sites > 1 else "", "sites"),
        (f"{len(facts.views):,}", "view" if len(facts.views) == 1 else "views"),
        ("" if separation is None else two_digits(separation), "separation (0–1)"),
        (f"{len(facts.rounds):,}" if facts.rounds else "", f"{facts.step_name}s"),
        (size(sum(facts.traffic)) if facts.traffic else "", "sent, both ways"),
        (_epsilon_of(facts), "privacy spent"),
        (_epsilon_of(facts.private), "second run"),
    ]


def _epsilon_of(run: Facts | None) -> str:
    return f"ε {brief(run.privacy[0])}" if run and run.privacy else ""


def banner(facts: Facts) -> str:
    """Say who may see the page."""
    if facts.released_only:
        kept = "only what the sites released under noise" if facts.privacy else "only sums over all sites"
        found = " --own STATE/NAME/run --data DATA" if facts.elsewhere else ""
        where = "makes, there, the page of a site from what it got" if facts.elsewhere else "makes the page of a site"
        return (
            f"Coordinator's page. It shows {kept}: no rows, no labels, no models of single sites. "
            f"`fedhk report RUN --site NAME{found}` {where}, which stays there."
        )
    if facts.own_page_of is not None:
        return f"Page of site {facts.own_page_of}. It shows rows of this site and none of others: keep it at the site."
    if facts.has_rows and facts.n_sites > 1:
        return "This page shows single rows of all sites. Share it only with people who may see these rows."
    return ""


def _tell_clusters(facts: Facts) -> str:
    where = f" at {plural(facts.n_sites, 'site')}" if facts.n_sites > 1 else ""
    views = f"described by {plural(len(facts.views), 'view')} ({join_names([view.name for view in facts.views])})"
    rows = f"{facts.n_rows:,} rows" if facts.n_rows else ""
    if facts.own_page_of is not None:
        text = f"{plural(facts.n_clusters, 'cluster')} that mean the same{where}, {views}. This page shows {rows}."
    else:
        text = f"{plural(facts.n_clusters, 'cluster')}{' among ' if rows else ''}{rows}{where}, {views}."
    text += "".join(f" {tell_number(one)}" for one in facts.selection if one.taken)
    sizes = facts.total_sizes
    if sizes.any() and len(sizes) > 1:
        largest, smallest = np.argmax(sizes), np.argmin(np.where(sizes > 0, sizes, sizes.max()))
        total = sizes.sum()
        text += (
            f" The largest, cluster {largest}, has {percent(sizes[largest] / total)} of the rows; the smallest, "
            f"cluster {smallest}, has {percent(sizes[smallest] / total)}."
        )
        empty = int(np.sum(sizes == 0))
        if empty:
            text += f" {plural(empty, 'cluster')} {'has' if empty == 1 else 'have'} no row."
    return text


def tell_number(chosen: TriedNumber) -> str:
    """Say that the number of clusters was found, and how clear it is."""
    return f"The number was found, not given; {chosen.note}."


def _tell_certainty(facts: Facts) -> str:
    if facts.released_only:
        return (
            "Not known here: certainty is computed from rows, at the sites. Noise moves centres; the page of a site "
            "says how well they fit there."
        )
    parts = [a.certainty for a in facts.assigned.values()]
    if not sum(map(len, parts)):
        return ""
    certainty = np.concatenate(parts)
    text = (
        f"The mean certainty of a row is {_round_certainty(float(certainty.mean()))} of 1; "
        f"{percent(float(np.mean(certainty < UNSURE)))} of the rows are between clusters (below {UNSURE}). Certainty "
        "says how much nearer the cluster of a row is than the next one, not how likely it is right or real"
    )
    text += "." if any(one.verdict for one in facts.after) else ": for that, ask how stable clusters are."
    separation = _mean_separation(facts)
    if separation is not None:
        levels = {0.5: "well apart", 0.25: "apart, with rows between them"}
        apart = next((words for least, words in levels.items() if separation >= least), "hardly apart")
        text += (
            f" Separation is {two_digits(separation)} (simplified silhouette; 1: rows lie on the means of "
            f"their clusters, 0: between two): by their means, clusters are {apart}."
        )
    return text


def _round_certainty(value: float) -> str:
    """Write a mean certainty with two digits; none is so sure that it is 1."""
    return "over 0.99" if 0.995 <= value < 1.0 else two_digits(value)


def _mean_separation(facts: Facts) -> float | None:
    """Average the separation over all rows that were read; None where there are none."""
    pairs = [(facts.sites[s].separation, len(a.labels)) for s, a in facts.assigned.items()]
    known = [(value, rows) for value, rows in pairs if math.isfinite(value)]
    total = sum(rows for _, rows in known)
    return sum(value * rows for value, rows in known) / total if total else None


def _tell_cost(facts: Facts) -> str:
    if not facts.rounds:
        return ""
    total = sum(record.seconds for record in facts.rounds)
    text = plural(len(facts.rounds), facts.step_name) + (f", {seconds(total)}." if total > 0 else ".")
    if facts.traffic:
        sent, received = map(size, facts.traffic)
        text += f" Sites sent {sent} and received {received}. No row left its site."
    refused = sorted({site for record in facts.rounds for site in record.refused})
    if refused:
        text += f" Answers of {join_names(refused)} were refused at least once."
    if facts.converged:
        text += " The run converged."
    elif facts.converged is False and not facts.privacy:  # with a budget, the number of rounds is set before
        text += " The run did not converge."
    return f"{text} {facts.stop_reason}".strip()


def tell_privacy(facts: Facts) -> str:
    """Say what was promised about single rows, who added the noise, and what that means; nothing at one site."""
    masks = "The server saw sums over all sites only (secure sums). " if facts.secure else ""
    if facts.privacy is None:
        if facts.n_sites < 2:
            return ""
        return (
            f"{masks}No noise was added. Sums and means over rows left the sites. They tell something about single "
            "rows: a cluster with one row at a site gives this row away."
        )
    epsilon, delta = facts.privacy
    odds = f"{number_above(math.exp(epsilon))} times" if epsilon < 12 else "any factor"
    weak = " That is a weak promise." if epsilon >= 3.5 else ""
    counted = "the whole run" if facts.update is None else "this update and the runs that it goes on from"
    shared = "the sites shared one noise" if facts.secure else "every site added the whole noise to its own numbers"
    return (
        f"{masks}Noise was added to all that left the sites ({shared}): epsilon {brief(epsilon)} at delta "
        f"{brief(delta)} for one row in {counted}. Whatever the model is used for, nobody's odds of guessing right "
        f"about a row grow by more than {odds}, but for a probability of {brief(delta)}.{weak}"
    )


def _tell_run_with_noise(facts: Facts) -> str:
    """Say what the run with noise spent, where the page has one."""
    if facts.private is None or facts.private.privacy is None:
        return ""
    epsilon, delta = facts.private.privacy
    return f" A second run with noise spent epsilon {brief(epsilon)} at delta {brief(delta)}: see below."


def _tell_own_models(facts: Facts) -> str:
    if facts.released_only or facts.n_sites < 2 or not facts.assigned:
        return ""
    if not facts.personal and not facts.n_moved:
        return f"{'The site uses' if facts.own_page_of is not None else 'All sites use'} the global model as it is."
    moved = ""
    if facts.n_rows:
        moved = f" {percent(facts.n_moved / facts.n_rows)} of the rows are in another cluster than in the global model."
    pairs = [(g.objectives.get("global", math.nan), g.objectives.get("personal", math.nan)) for g in facts.gains]
    pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
    if not pairs:
        return f"Sites have models of their own.{moved}"
    before, after = (float(np.mean(values)) for values in zip(*pairs, strict=True))
    side = "lower" if after < before else "higher"
    change = f"{percent(abs(after - before) / before)} {side}" if before > 0 else "the same"
    where = "rows that no model saw" if facts.held_out else "the rows they were fitted to (which favours them)"
    return (
        f"Own models are better at {sum(own < common for common, own in pairs)} of {plural(len(pairs), 'site')}, on "
        f"{where}: the objective per row is {number(after, 3)} against {number(before, 3)} with the global model, "
        f"{change}.{moved}{_tell_models_alone(facts, after)}"
    )


def _tell_models_alone(facts: Facts, own: float) -> str:
    """Compare with models that sites make alone, where those fit closer than own models."""
    alone = [g.objectives["alone"] for g in facts.gains if math.isfinite(g.objectives.get("alone", math.nan))]
    if not alone or float(np.mean(alone)) >= own:
        return ""
    return (
        f" Models that sites make alone reach {number(float(np.mean(alone)))}: they fit closer, but their clusters "
        "mean nothing at other sites."
    )
