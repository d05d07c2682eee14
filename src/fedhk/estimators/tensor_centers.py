"""FedHK-PARAFAC2 and FedHK-Tucker, Algorithms 2 and 3: centres of low rank, and messages in a common basis."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from sklearn.utils._param_validation import StrOptions

from fedhk.estimators.base import LowRankAttributes
from fedhk.estimators.choices import RANK_CONSTRAINT
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.federation.protocols import PROTOCOLS
from fedhk.federation.protocols.base import Protocol


@dataclass(eq=False, repr=False)
class LowRankCenters(LowRankAttributes, EFKMVC):
    """What both estimators share; a subclass names its decomposition."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = EFKMVC._parameter_constraints | {
        "protocol": [StrOptions(set(PROTOCOLS)), Protocol],
        "rank": RANK_CONSTRAINT,
    }

    _: KW_ONLY
    protocol: str | Protocol = "auto"
    rank: Any = "auto"


@dataclass(eq=False, repr=False)
class FedHKTucker(LowRankCenters):
    """Federated multi-view clustering with centres in Tucker form (FedHK-Tucker, Algorithm 3).

    The centres of all views, A^h = P (G x_3 R_h) Q_h^T, have few parameters: P for clusters, R for views, Q_h for the
    features of each view, a small core G. They keep this form during the whole fit. With exact sums
    (`protocol="statistics"`) the objective never rises; rounding, and the averages of "factors", can raise it.
    With "cores" sites get a basis of the features once, and in every round say and hear only numbers in that basis.

    Parameters
    ----------
    n_clusters : int, "auto", (int, int) or str, default=8
        Number of clusters, or numbers among which it is found; as in `EFKMVC`.
    protocol : {"auto", "cores", "factors", "statistics"} or Protocol, default="auto"
        What a round sends, as in `EFKMVC`. "auto" is "cores" where the rank constrains the centres, or views are wide
        for the number of clusters, else "statistics": on narrow data a basis saves nothing. It is "statistics" too
        where `rank` is given and constrains nothing. "factors": each site's own factors after some passes, as the paper
        has it (`fedhk.protocols.FactorAveraging`).
    rank : "auto", float, int or (int, int, int), default="auto"
        Ranks of clusters, features and views. A fraction is the smallest rank that keeps so much of the energy of the
        centres at the start. "auto" is the rank with which half of the candidates best predict the other half, if that
        is surely better than with free centres; else the full rank, which constrains nothing. One number is the rank of
        each mode, held to what it allows.
    max_rounds, participation, personalization, ...
        As in `EFKMVC`, and so are all other parameters.

    Attributes
    ----------
    rank_ : tuple of int
        The rank that was used.
    core_, cluster_factor_, feature_factors_, view_factor_ : arrays
        G, P, Q_h and R of the centres in model units, which are the units after scaling.
    factors_ : fedhk.tensors.TuckerFactors
        All of these in one object.
    reconstruction_error_ : float
        Share of what tells free centres apart that the form loses, from 0 to 1.
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
class FedHKParafac2(LowRankCenters):
    """Federated multi-view clustering with centres in PARAFAC2 form (FedHK-PARAFAC2, Algorithm 2).

    The centres, A^h = P diag(R_h) (B_h Q)^T with orthonormal B_h, are a few components that all views share, each view
    with its own width and no padding. A view with fewer features than components sees a projection of them.

    Parameters
    ----------
    n_clusters : int, "auto", (int, int) or str, default=8
        Number of clusters, or numbers among which it is found; as in `EFKMVC`.
    rank : "auto", float or int, default="auto"
        Number of components. A fraction is the smallest number that keeps so much of the energy of the centres at the
        start; "auto" is as in `FedHKTucker`.
    protocol
        As in `FedHKTucker`.
    max_rounds, participation, personalization, ...
        As in `EFKMVC`, and so are all other parameters.

    Attributes
    ----------
    rank_ : tuple of int
        The rank that was used.
    core_, cluster_factor_, feature_factors_, view_factor_ : arrays
        Q, P, B_h Q and R of the centres in model units, which are the units after scaling.
    factors_ : fedhk.tensors.Parafac2Factors
        All of these in one object.
    reconstruction_error_ : float
        Share of what tells free centres apart that the form loses, from 0 to 1.
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
