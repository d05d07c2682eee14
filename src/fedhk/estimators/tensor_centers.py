"""FedHK-PARAFAC2 and FedHK-Tucker, Algorithms 2 and 3: centres of low rank, and messages in a common basis."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from fedhk.data.views import Views
from fedhk.estimators.choices import RANK_CONSTRAINT
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.federation.precision import PRECISIONS
from fedhk.federation.state import Plan

# Rounds after which a basis is made anew where no candidates could give one.
REFRESH_GIVEN = 5


@dataclass(eq=False, repr=False)
class TensorCenters(EFKMVC):
    """What both estimators share; a subclass names its decomposition."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = EFKMVC._parameter_constraints | {
        "protocol": [StrOptions({"auto", "cores", "factors", "statistics"})],
        "rank": RANK_CONSTRAINT,
        "precision": [StrOptions({"auto", *PRECISIONS})],
        "refresh_every": [None, Interval(Integral, 0, None, closed="left")],
        "aggregation": [StrOptions({"centers", "factors"})],
        "personalization": [Interval(Real, 0, 1, closed="both")],
    }

    _: KW_ONLY
    protocol: str = "auto"
    rank: Any = "auto"
    precision: str = "auto"
    refresh_every: int | None = None
    aggregation: str = "centers"
    personalization: float = 0.0

    def _plan(self, clients: dict[str, Views]) -> Plan:
        refresh = self.refresh_every
        if refresh is None:
            refresh = 0 if isinstance(self.init, str) else REFRESH_GIVEN
        return replace(
            super()._plan(clients),
            precision=self.precision,
            refresh_every=int(refresh),
            aggregation=self.aggregation,
            blend=self._blend(),
        )

    def _blend(self) -> float:
        """Share of a site's own factors in its start of a round."""
        return float(self.personalization)


@dataclass(eq=False, repr=False)
class FedHKTucker(TensorCenters):
    """Federated multi-view clustering with centres in Tucker form (FedHK-Tucker, Algorithm 3).

    The centres of all views, A^h = P (G x_3 R_h) Q_h^T, have few parameters: P for clusters, R for views, Q_h for the
    features of each view, a small core G. They keep this form during the whole fit, and the objective never rises.
    Sites get a basis of the features once, and in every round say and hear only numbers in that basis.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    protocol : {"auto", "cores", "factors", "statistics"}, default="auto"
        What a round sends. "cores": sums in a basis of few directions that is sent once. "statistics": sums in all
        features, as `EFKMVC`. "factors": each site's own factors after `local_passes` passes, as the paper has it.
        "auto" is "cores" where views are wide for the number of clusters, else "statistics": on narrow data a basis
        saves nothing. It is "statistics" too where `rank` is given and constrains nothing.
    rank : "auto", float, int or (int, int, int), default="auto"
        Ranks of clusters, features and views. A fraction is the smallest rank that keeps so much of the energy of the
        centres at the start; "auto" weighs size and loss. One number is the rank of each mode, held to what it allows.
    precision : {"auto", "double", "single", "half", "byte"}, default="auto"
        What numbers are rounded to on the wire. "byte" has 127 steps to either side for what is sent once (candidates,
        the basis) and for how sites want centres to move, where rounding shrinks with the moves; centres themselves go
        in half precision. "auto" is "byte" with "cores", else "double".
    refresh_every : int or None, default=None
        With "cores": rounds after which sites send full sums once and the server makes a new basis; 0 is never. None
        is never where the start was chosen on the sites' candidates, which span the basis, and 5 where `init` gives
        centres, which do not.
    aggregation : {"centers", "factors"}, default="centers"
        With "factors": the server averages the centres that the factors stand for and decomposes the average, whatever
        the gauge of each site's factors; or averages the factors after turning them to one gauge.
    personalization : float, default=0.0
        With "factors": lambda, the share of a site's own factors of the round before in its start (phase 1 of
        Algorithms 2 and 3).
    max_rounds, local_passes, client_weights, quality_temperature, personalization_step, fraction, min_sites, timeout
        As in `EFKMVC`, and so are all other parameters.

    Attributes
    ----------
    rank_ : tuple of int
        The rank that was used.
    core_, cluster_factor_, feature_factors_, view_factor_ : arrays
        G, P, Q_h and R of the centres in model units.
    reconstruction_error_ : float
        Share of the squared size of unconstrained centres that the form loses.
    labels_, memberships_, cluster_centers_, view_weights_, client_models_, history_, ...
        As in `EFKMVC`.

    Examples
    --------
    >>> from fedhk import FedHKTucker
    >>> from fedhk.datasets import make_sites
    >>> data = make_sites(3, 60, n_clusters=3, n_features=(40, 30), random_state=0)
    >>> model = FedHKTucker(n_clusters=3, rank=(3, 2, 2), random_state=0).fit(data.sites)
    >>> model.rank_
    (3, 2, 2)
    """

    decomposition: ClassVar[str] = "tucker"


@dataclass(eq=False, repr=False)
class FedHKParafac2(TensorCenters):
    """Federated multi-view clustering with centres in PARAFAC2 form (FedHK-PARAFAC2, Algorithm 2).

    The centres, A^h = P diag(R_h) (B_h Q)^T with orthonormal B_h, are a few components that all views share, each view
    with its own width and no padding. The rank is at most the width of the narrowest view.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    rank : "auto", float or int, default="auto"
        Number of components. A fraction is the smallest number that keeps so much of the energy of the centres at the
        start; "auto" weighs size and loss.
    protocol, precision, refresh_every, aggregation, personalization
        As in `FedHKTucker`.
    max_rounds, local_passes, client_weights, quality_temperature, personalization_step, fraction, min_sites, timeout
        As in `EFKMVC`, and so are all other parameters.

    Attributes
    ----------
    rank_ : tuple of int
        The rank that was used.
    core_, cluster_factor_, feature_factors_, view_factor_ : arrays
        Q, P, B_h Q and R of the centres in model units.
    reconstruction_error_ : float
        Share of the squared size of unconstrained centres that the form loses.
    labels_, memberships_, cluster_centers_, view_weights_, client_models_, history_, ...
        As in `EFKMVC`.

    Examples
    --------
    >>> from fedhk import FedHKParafac2
    >>> from fedhk.datasets import make_sites
    >>> data = make_sites(3, 60, n_clusters=3, n_features=(40, 30), random_state=0)
    >>> model = FedHKParafac2(n_clusters=3, rank=2, random_state=0).fit(data.sites)
    >>> [part.shape for part in model.feature_factors_]
    [(40, 2), (30, 2)]
    """

    decomposition: ClassVar[str] = "parafac2"
