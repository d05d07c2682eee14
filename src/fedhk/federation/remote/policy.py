"""The policy of a site's operator: what any run must fulfil, whatever the coordinator asks for."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from fedhk._files import read_toml
from fedhk.data.dictionary import read_dictionary
from fedhk.data.folders import SiteData
from fedhk.errors import DataError, MessageError, Rule
from fedhk.federation.entries import QUESTIONS, Terms
from fedhk.federation.gate import MalformedError
from fedhk.federation.phases.base import Phase
from fedhk.privacy.accounting import epsilon_of
from fedhk.privacy.identity import load_identity
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import FEWEST_SITES, DifferentialPrivacy
from fedhk.privacy.plan import PrivacyPlan
from fedhk.privacy.secure_site import SecureSite
from fedhk.privacy.sensitivity import Neighbours

LOG = logging.getLogger("fedhk.site")

# Refusals of a site: one constant text per rule; its log has the numbers.
MASKED_ONLY = Rule("this site gives masked sums only; the run must use secure=True")
NOISE_ONLY = Rule("this site gives sums with noise only; the run must have a privacy budget")
WEAKER_DELTA = Rule("the run's delta is larger than this site allows")
OTHER_NEIGHBOURS = Rule("the run's neighbours protect less than this site demands: use neighbours='replace'")
OTHER_BOUNDS = Rule("the run's bounds are not those that this site agreed to")
TOO_MANY_ROUNDS = Rule("the run's budget is for more rounds than this site allows")
FEW_COLLUDERS = Rule("the run allows for fewer colluding sites than this site demands")
UNKNOWN_SHARERS = Rule(
    "this site knows no keys of the other sites, so it adds all of the noise itself: the run must use "
    "secure=SecureSummation(shared_noise=False), or the site's operator lists keys under [known]"
)
OVER_BUDGET = Rule("the run's budget, with what was spent before, is above what this site allows")
OTHER_PHASE = Rule("this site takes no part in such an exchange")
NO_QUESTION = Rule("this site does not answer such questions after a fit: its policy does not list them")
SEALED_QUESTIONS = Rule("this site answers questions after a fit with masks or noise only")
OTHER_COLUMN = Rule("the question reads a column that this site does not have, or that its policy does not let out")

# Text that a coordinator gets for an error whose details stay at the site.
MALFORMED = Rule("the message is not well formed")
UNANSWERED = Rule("the site cannot answer this; its log says more")


@dataclass(frozen=True)
class Policy:
    """What a site demands of any run.

    Parameters
    ----------
    epsilon : float or None
        Most that all runs together may spend of privacy, from the site's ledger on. None lets runs without noise in.
    years : int or None
        With it, `epsilon` is what may be spent in each of so many years from the first release on; then nothing more.
    delta : float
        At which `epsilon` is meant, and the largest that a run may have. Below 1 over the number of rows.
    neighbours : {"replace", "add-remove"}
        For which neighbours `epsilon` is meant. With "replace", runs for "add-remove" are refused.
    bounds : pair, list of pairs, or None
        The bounds that a run with noise must have; None accepts any: they size no noise. In a file, the name of a data
        dictionary (``"dictionary.toml"``) stands for its ranges.
    rounds : int
        Most noisy rounds that a run may have.
    colluders : int
        Fewest sites that a run must suppose to tell the server their noise.
    secure : bool
        Whether only masked sums may leave.
    threshold : int or None
        Fewest sites over which a masked sum may be opened. None asks for more than half of the sites under
        `known`, and for 3 at least.
    identity : str or None
        File with the site's long-term key, which signs its masks.
    known : dict of str to str
        Public long-term keys of the other sites, in hexadecimal; where there are some, nobody else may take part.
    least_rows : int
        Fewest rows of a site, and fewest values of a column, that a run in the open reads: the moments of fewer nearly
        tell the rows. A column with fewer is read as empty.
    least_group : int
        Fewest rows of a group whose mean leaves in the open, as a candidate for the start.
    phases : list of str
        Exchanges beyond those of FedHK itself in which the site takes part.
    questions : list of {"profile", "outcomes", "stability", "compare", "limits"}
        Questions after a fit that the site answers; by default none. "stability" refits models, so that the coordinator
        sends centres and gets sums as in a fit.
    held_out : list of str
        Columns of its further tables, which clustering did not see, that questions may read; by default none.
    open_questions : bool
        Whether questions are also answered in the open, where the coordinator sees sums and counts of this site alone,
        down to single rows in a bin. Clusters with fewer than `least_rows` rows here, and columns with fewer values
        in a cluster, are then left out.
    """

    epsilon: float | None = None
    years: int | None = None
    delta: float = 1e-6
    neighbours: Neighbours = "replace"
    bounds: Any = None
    rounds: int = 100
    colluders: int = 0
    secure: bool = False
    threshold: int | None = None
    identity: str | None = None
    known: dict[str, str] = field(default_factory=dict)
    least_rows: int = 5
    least_group: int = 2
    phases: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    open_questions: bool = False

    def __post_init__(self) -> None:
        if self.epsilon is not None and not (_is_number(self.epsilon) and 0 < self.epsilon < math.inf):
            raise DataError(f"policy: epsilon={self.epsilon!r} must be a finite number above 0.")
        if not (_is_number(self.delta) and 0 < self.delta < 1):
            raise DataError(f"policy: delta={self.delta!r} must be between 0 and 1.")
        if self.neighbours not in get_args(Neighbours):
            raise DataError(f"policy: neighbours={self.neighbours!r} must be one of {get_args(Neighbours)}.")
        for name in ("secure", "open_questions"):
            if type(getattr(self, name)) is not bool:
                raise DataError(f"policy: {name}={getattr(self, name)!r} must be true or false.")
        if self.years is not None and self.epsilon is None:
            raise DataError("policy: years goes with epsilon, which is then what may be spent in each of them.")
        for name, least in (
            ("threshold", 2),
            ("years", 1),
            ("rounds", 1),
            ("colluders", 0),
            ("least_rows", 1),
            ("least_group", 2),
        ):
            value = getattr(self, name)
            if (type(value) is not int or value < least) and (name, value) not in (
                ("threshold", None),
                ("years", None),
            ):
                raise DataError(f"policy: {name}={value!r} must be a whole number from {least} on.")
        _check_keys(self.known)
        self._check_lists()
        object.__setattr__(self, "bounds", _read_bounds(self.bounds))

    def _check_lists(self) -> None:
        for name in ("phases", "questions", "held_out"):
            listed = getattr(self, name)
            if not isinstance(listed, list | tuple) or not all(isinstance(each, str) for each in listed):
                raise DataError(f"policy: {name}={listed!r} must be a list of names.")
        if unknown := sorted(set(self.questions) - set(QUESTIONS)):
            raise DataError(f"policy: questions has {unknown[0]!r}; it may have {', '.join(map(repr, QUESTIONS))}.")

    @property
    def is_sealed(self) -> bool:
        """Whether the site sends sums with noise or masks only."""
        return self.secure or self.epsilon is not None

    def give_reason(self, error: MessageError) -> str:
        """Return the reason that the coordinator is told: in full for runs in the open, else the text of a rule."""
        if not self.is_sealed or isinstance(error.reason, Rule):
            return error.reason
        return MALFORMED if isinstance(error, MalformedError) else UNANSWERED

    @contextmanager
    def hide_failures(self, text: str) -> Iterator[None]:
        """Log errors. Where the site sends no sums in the open, the coordinator is not told: rows may be the cause."""
        try:
            yield
        except Exception:
            if not self.is_sealed:
                raise
            LOG.exception(text)

    def check_levels(self, data: SiteData) -> None:
        """Refuse categories without a dictionary, where the site sends no sums in the open."""
        for columns in data.inferred.values() if self.is_sealed else ():
            raise DataError(
                f"the levels of column {columns[0]!r} were read off rows, and the policy lets nothing leave in the "
                "open: a level may give a row away. Name the levels in a data dictionary, in the file dictionary.toml."
            )

    def check_rows(self, n_rows: int) -> None:
        """Refuse a delta at which `epsilon` means nothing for so many rows: it could give one of them away."""
        if self.epsilon is not None and n_rows and self.delta >= 1.0 / n_rows:
            raise DataError(
                f"policy: delta={self.delta:g} must be below 1 over the {n_rows} rows of the site: use at most "
                f"{0.1 / n_rows:.1g}."
            )

    def describe(self) -> str:
        """Say in words what any run must fulfil."""
        kinds = []
        if self.secure:
            kinds.append("masked sums")
        if self.epsilon is not None:
            each = f" in each of {self.years} years" if self.years is not None else ""
            kinds.append(f"noise, of epsilon {self.epsilon:g} at delta {self.delta:g}{each} for all runs together")
        demands = f"demands {' and '.join(kinds)}" if kinds else "lets runs without masks and noise in"
        asked = f"answers the questions {', '.join(self.questions)}" if self.questions else "answers no question"
        return f"Its policy {demands}; it {asked}."

    def check(self, terms: Terms, privacy: DifferentialPrivacy | None, *, question: bool = False) -> None:
        """Refuse a run that asks for less protection than this site demands; `privacy` is the budget of the terms.

        The bounds of a `question` are those of the columns that it reads, and not those of a fit.
        """
        if self.secure and not terms.secure:
            raise MessageError(MASKED_ONLY)
        if privacy is None:
            if self.epsilon is not None:
                raise MessageError(NOISE_ONLY)
            return
        for broken, rule in (
            (self.epsilon is not None and privacy.delta > self.delta, WEAKER_DELTA),
            (self.neighbours == "replace" and privacy.neighbours != "replace", OTHER_NEIGHBOURS),
            (self.bounds is not None and privacy.bounds != self.bounds and not question, OTHER_BOUNDS),
            (privacy.rounds > self.rounds, TOO_MANY_ROUNDS),
            (terms.secure and privacy.colluders < self.colluders, FEW_COLLUDERS),
            (terms.secure and terms.shared_noise and not self.known, UNKNOWN_SHARERS),
        ):
            if broken:
                raise MessageError(rule)

    def check_phase(self, phase: type) -> None:
        """Refuse a phase that is neither of FedHK itself nor named in this policy."""
        if not phase.__module__.startswith("fedhk.") and getattr(phase, "name", "") not in self.phases:
            raise MessageError(OTHER_PHASE)

    def check_question(self, phase: type[Phase[Any, Any]], kind: str, *, is_open: bool) -> None:
        """Refuse a question that this policy does not list, or a phase that is no part of it."""
        if kind not in self.questions:
            raise MessageError(NO_QUESTION)
        if kind not in phase.questions:
            raise MessageError(OTHER_PHASE)
        if is_open and not self.open_questions:
            raise MessageError(SEALED_QUESTIONS)

    def check_budget(self, privacy: DifferentialPrivacy, ledger: Ledger, run: str) -> None:
        """Refuse a run whose budget, with what other runs have spent, is above what this site allows."""
        if self.epsilon is None:
            return
        others = [release for release in ledger.releases() if release.run != run]
        if self.years is not None:
            plan = PrivacyPlan(self.epsilon, self.years, self.delta, self.neighbours)
            if why := plan.refuse(others, privacy):
                LOG.warning("site %r: %s", ledger.site, why)
                raise MessageError(OVER_BUDGET)
            return
        before = sum(release.multiplier_for(self.neighbours) ** -2 for release in others)
        total = epsilon_of(self.delta, math.sqrt(before + privacy.budget))
        if total > self.epsilon * (1 + 1e-6):
            LOG.warning(
                "the run's epsilon=%g would bring site %r to %.3g of the %g that it allows at delta=%g; %.3g is spent",
                *(privacy.epsilon, ledger.site, total, self.epsilon, self.delta),
                epsilon_of(self.delta, math.sqrt(before)) if before else 0.0,
            )
            raise MessageError(OVER_BUDGET)

    def make_secure_site(self, name: str) -> SecureSite:
        """Make the site's part in masked sums, with its long-term key and those of others."""
        private = None if self.identity is None else load_identity(self.identity)[0]
        known = {site: bytes.fromhex(key) for site, key in self.known.items()}
        # the server chooses who is asked for keys: that the threshold is above two thirds of these does not bind it
        least = max(FEWEST_SITES, len({name, *known}) // 2 + 1)
        return SecureSite(name, least if self.threshold is None else self.threshold, private, known)


def read_policy(path: Path) -> Policy:
    """Read a policy from a TOML file; key file and data dictionary are meant from where the policy is.

    Raises
    ------
    DataError
        If the file is not there, is no TOML, or has what a policy has not.
    """
    content = read_toml(path, "The policy", [entry.name for entry in fields(Policy)], DataError)
    if isinstance(content.get("identity"), str):
        key = path.parent / content["identity"]
        if not key.is_file():
            raise DataError(f"The policy {str(path)!r} names {str(key)!r}, from its own folder: it is not there.")
        content["identity"] = str(key)
    if str(content.get("bounds")).endswith(".toml"):
        dictionary = path.parent / content["bounds"]
        if not dictionary.is_file():
            raise DataError(
                f"The policy {str(path)!r} names {str(dictionary)!r}, from its own folder: it is not there."
            )
        content["bounds"] = read_dictionary(dictionary).bounds()
    return Policy(**content)


def _read_bounds(bounds: Any) -> Any:
    """Convert bounds to the form that a run has them in, to compare the two; None stays None."""
    try:
        return None if bounds is None else DifferentialPrivacy(1.0, 0.5, bounds).bounds
    except (TypeError, ValueError) as error:
        raise DataError(f"policy: {error}") from error


def _check_keys(known: Any) -> None:
    for site, key in known.items() if isinstance(known, dict) else [("", "")]:
        if not isinstance(key, str) or len(key) != 64 or not set(key) <= set("0123456789abcdef"):
            raise DataError(f"policy: known[{site!r}] must be a public key of 64 hexadecimal digits.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
