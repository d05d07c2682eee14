"""E-FKMVC, Algorithm 1: the heat-kernel multi-view model over sites that keep their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedhk.estimators.federated import FederatedModel, RunChoices
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.candidates import ChooseStart, GivenStart
from fedhk.federation.phases.deliver import Deliver
from fedhk.federation.phases.describe import Describe, Energy
from fedhk.federation.phases.finish import Finish
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.phases.together import Together
from fedhk.federation.protocols.base import RoundContext


@dataclass(eq=False, repr=False)
class EFKMVC(FederatedModel):
    """Federated heat-kernel multi-view clustering (E-FKMVC, Algorithm 1).

    Sites send sums over their rows (`protocol="statistics"`); the server adds them and updates the centres. Any split
    of the rows over sites gives the model that the pooled rows give. What leaves a site: the moments of its features
    once, means of groups of at least two rows once, and one set of sums per round.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    heat_coef, heat_time, fuzzifier, view_weights, view_exponent, scaling, init, n_init, tol, random_state
        As in `HeatKernelMVC`. `init="k-means++"` (the default) lets sites cluster themselves, send weighted means, and
        starts from those (k-FED); "random" draws among those means.
    max_rounds : int, default=100
        Most rounds.
    protocol : {"statistics", "auto", "cores", "centers"} or Protocol, default="statistics"
        What a round sends. "statistics": sums in all features, exact, and the default because it loses nothing.
        "cores": sums in a basis of few directions that sites get once, in few bytes. "auto": "cores" where views are
        wide for the number of clusters, else "statistics". "centers": each site's own centres after some passes,
        averaged. An object of `fedhk.protocols` has options.
    participation : fedhk.Participation or None, default=None
        Share of the sites asked in a round, fewest answers for a round to count, and how long to wait; None asks all
        sites, is content with one answer and waits.
    personalization : float, default=0.0
        beta in [0, 1]: how far each site's own model goes from the global one along its own descent (phase 4 of
        Algorithm 1). 0 gives every site the global model.
    checkpoint : path or None, default=None
        Folder that holds the state of the run after every exchange; `fit(sites, resume=True)` goes on from there. The
        result is that of a run without a stop, but for offsets of sites in this process (`FedHKPerson`), which begin
        anew.
    privacy : fedhk.privacy.DifferentialPrivacy or None, default=None
        A privacy budget for the whole run: sites add noise to all that they send.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only. With `privacy`, sites then share one noise.
    aggregator : {"sum", "robust", "median", "trimmed"} or Aggregator, default="sum"
        How the statistics of sites are brought together. "robust" holds against sites that lie, if they are fewer than
        a quarter; "sum" is exact, and the default because it loses nothing where sites are honest.
    engine : fedhk.federation.engines.RemoteEngine or None, default=None
        The way to sites that are elsewhere, such as `fedhk.flower.FlowerEngine`: then `fit()` takes no rows, and labels
        and own models stay at the sites. None runs all sites in this process.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    labels_, memberships_ : dict of str to array
        Per site, of its own model. `global_labels_` are those of the global model.
    cluster_centers_, view_weights_, objective_, n_iter_, converged_, stop_reason_, n_features_in_
        As in `HeatKernelMVC`, of the global model.
    client_models_ : dict of str to HeatKernelMVC
        Each site's own model.
    history_ : list of dict
        One record a round: round, objective, clients (usable answers), bytes_up, bytes_down, seconds, refused (why, by
        site). Set-up is counted in the first record, the finish in the last. It shows itself as a table.
    privacy_spent_ : (float, float) or None
        (epsilon, delta) of all that left the sites; None where no noise was added, which is no privacy in this sense.

    Examples
    --------
    >>> from fedhk import EFKMVC
    >>> from fedhk.datasets import make_sites
    >>> data = make_sites(3, 60, n_clusters=3, random_state=0)
    >>> model = EFKMVC(n_clusters=3, random_state=0).fit(data.sites)
    >>> sorted(model.labels_) == sorted(data.sites)
    True
    """

    def phases(self, run: RunChoices) -> list[Phase[Any, Any]]:
        return [
            *describe_phases(run),
            self.start_phase(run),
            Rounds(run.protocol, RoundContext(run.settings, run.aggregator), int(self.max_rounds), float(self.tol)),
            *finish_phases(run),
        ]

    def start_phase(self, run: RunChoices) -> Phase[Any, Any]:
        """How the start of the rounds is found: from candidates of the sites, or from centres that were given."""
        if not isinstance(run.settings.init, str):
            return GivenStart(run.settings, run.protocol)
        return ChooseStart(run.settings, run.protocol, run.aggregator, run.seed, run.workers)


def finish_phases(run: RunChoices) -> list[Phase[Any, Any]]:
    """Finish and deliver in one exchange, or one after the other where own models need the summary of all sites."""
    finish = Finish(summary=run.personal.uses_summary)
    deliver = Deliver(run.personal, run.settings.learn_weights)
    return [finish, deliver] if run.personal.uses_summary else [Together((finish, deliver))]


def describe_phases(run: RunChoices) -> list[Phase[Any, Any]]:
    """How all sites come to the same units; coefficients that are not uniform need one more sum."""
    described = Describe(run.settings)
    return [described] if run.settings.heat_coef == "uniform" else [described, Energy()]
