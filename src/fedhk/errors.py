"""What FedHK raises when what it is given cannot be used."""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "DataError",
    "FedHKError",
    "MessageError",
    "MissingPackageError",
    "ModelFileError",
    "QuorumError",
    "Rule",
]


class FedHKError(Exception):
    """Any error that FedHK raises on purpose and that a caller may want to handle."""


class Rule(str):
    """A reason of a refusal that is one text for all messages that break a rule.

    It has no number, no name and nothing of the rows in it, so a site says it to anybody. All other reasons of a site
    that answers with noise or masks only stay in its log.
    """

    __slots__ = ()


class MessageError(FedHKError, ValueError):
    """A message that is damaged, of another version, or not what its receiver expects.

    Parameters
    ----------
    reason : str
        What is wrong with it, what is allowed, and what to do.
    site : str, optional
        The site at the other end, where it is known.
    """

    def __init__(self, reason: str, site: str | None = None) -> None:
        super().__init__(reason if site is None else f"site {site!r}: {reason}")
        self.reason = reason
        self.site = site


class UnknownClassError(MessageError):
    """A name of a class that this process does not know, because its module was not imported or there is none.

    Parameters
    ----------
    kind : str
        Name of the class that it should be derived from.
    name : str
        Its own name.
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} called {name[:100]!r}")
        self.name = name[:100]


class DataError(FedHKError, ValueError):
    """Files that do not make a federation: the text names the site, the file and what is allowed."""


class MissingPackageError(FedHKError, ImportError):
    """A package of an extra is not installed."""


class CheckpointError(FedHKError, ValueError):
    """A checkpoint that is damaged, or of another run."""


class ModelFileError(FedHKError, ValueError):
    """A file that holds no model that can be used: damaged, of another version, or never written by FedHK."""


class QuorumError(FedHKError, RuntimeError):
    """Too few sites answered for an exchange to count. A run with a checkpoint can be resumed when they are back."""
