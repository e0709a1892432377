"""What those whom the admin service lets in may do.

Owns the roles, and which request needs which.

Viewers see what there is, but no body of a message. Operators read bodies, too, and act on
destinations, messages, connections, bridges, links and transactions. All else is for
administrators: users, rules, definitions, and the process itself. So is a request that this module
does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class Role(IntEnum):
    """What somebody may do; each may do what those before may."""

    VIEWER = 1
    OPERATOR = 2
    ADMINISTRATOR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Identity:
    """Somebody whom the service has let in.

    :param now: their role as it is now; None where they are let in no more.
    """

    user: str
    role: Role
    now: Callable[[], Role | None] = field(default=lambda: Role.ADMINISTRATOR, compare=False)


#: What those see who only look, and where operators may make changes.
_OPERATED: Final = (
    "/v1/branches",
    "/v1/bridges",
    "/v1/connection",
    "/v1/dead",
    "/v1/destination",
    "/v1/durable",
    "/v1/links",
    "/v1/message",
    "/v1/services",
    "/v1/traces",
    "/v1/transactions",
)
#: What those see who only look, and only administrators change.
_SEEN: Final = ("/v1/broker", "/v1/events", "/v1/why/", "/metrics")
#: What says what this is.
_ABOUT: Final = "/v1"
#: The bodies of messages.
_BODIES: Final = ("/v1/message/body", "/v1/message/original")


def needed(method: str, path: str) -> Role:
    """Return the role that a request needs.

    :param path: the route's, or the request's.
    """
    if path.startswith(_OPERATED):
        looks = method == "GET" and not path.startswith(_BODIES)
        return Role.VIEWER if looks else Role.OPERATOR
    if method == "GET" and (path == _ABOUT or path.startswith(_SEEN)):
        return Role.VIEWER
    return Role.ADMINISTRATOR
