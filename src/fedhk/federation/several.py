"""Sites that answer as one: a relay, or a process with many small sites, sends the sum of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fedhk._typing import FloatArray
from fedhk.errors import MessageError, Rule
from fedhk.federation.messages import Message

# Addressee of a request: each site, or sites whose replies may come added up.
EACH, AS_ONE = "*", "+"

# Prefix of the kind of a message that has the sum of several replies.
SUM_OF = "sum of "

# Refusal of a relay that is asked to add replies of a phase that does not add.
NOT_ADDED = Rule("answers of this phase are not added up")


class Several(str):
    """The name of several sites that answer as one."""

    __slots__ = ("sites",)

    sites: tuple[str, ...]

    def __new__(cls, sites: Sequence[str]) -> Several:
        """Name sorted sites by the first of them."""
        name = super().__new__(cls, f"{sites[0]} and {len(sites) - 1} more")
        name.sites = tuple(sites)
        return name


def list_sites(names: Iterable[str]) -> list[str]:
    """Return the sites of these names, sorted; `Several` stands for each of its sites."""
    return sorted([site for name in names for site in (name.sites if isinstance(name, Several) else (name,))])


def sum_type(reply_type: Any) -> Any:
    """Return the type of a sum of replies, for the codec: the sites in it, and the sum."""
    return tuple[tuple[str, ...], reply_type]


def read_sum(message: Message, reply_type: Any, sites: Sequence[str]) -> Any:
    """Read the sum of the replies of these sites, sorted; refuse a sum over other sites."""
    listed, reply = message.read(sum_type(reply_type))
    if list(listed) != list(sites):
        raise MessageError(f"a sum over {len(listed)} sites, which are not the {len(sites)} that it came from")
    return reply


def check_addable(vectors: Sequence[FloatArray]) -> None:
    """Refuse vectors of different types or shapes."""
    forms = {(vector.dtype, vector.shape) for vector in vectors}
    if len(forms) > 1:
        raise MessageError("answers of different shapes or types, which do not add")
