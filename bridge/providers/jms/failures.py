"""Java's failures as errors of the seam.

Owns the kinds of ``Failure.java`` and the error that each becomes, depending on what was asked.
Nothing above this module sees an exception of Java.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from gateway.messaging.destination import Destination
from gateway.messaging.errors import (
    AccessDenied,
    AuthenticationFailed,
    ClientIdInUse,
    DestinationError,
    DestinationFull,
    DurableInUse,
    InvalidDestination,
    InvalidSelector,
    MessagingError,
    NotSupported,
    OutcomeUnknown,
    ProviderUnavailable,
    UnknownSubscription,
)
from gateway.messaging.provider import ConsumerSpec, Credentials

#: Words of providers for a durable subscription that is in use. JMS has no exception for it.
_IN_USE: Final = re.compile(
    r"in use|already has|already (?:being )?used|active (?:consumer|subscriber)", re.IGNORECASE
)
#: The name of an exception's class, and what leads to it or sets it off from its message.
_CLASS: Final = re.compile(
    r"(?:; (?:caused by|linked to) )?(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error)(?=;|$)"
    r"|(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b(?:: *)?"
)
#: An exception about classes, with its message, which names them.
_OF_CLASSES: Final = re.compile(
    r"(?:java\.\w+\.)+(?:ClassNotFound|NoClassDefFound|ClassCast|InvalidClass)(?:Exception|Error)"
    r"(?:(?!; (?:caused by|linked to) ).)*",
    re.DOTALL,
)


class Kind(IntEnum):
    """The constants of ``Failure.java``."""

    OTHER = 0
    UNAVAILABLE = 1
    SECURITY = 2
    CLIENT_ID = 3
    DESTINATION = 4
    SELECTOR = 5
    RESOURCE = 6
    MESSAGE = 7
    ROLLED_BACK = 8
    STATE = 9
    NAMING = 10
    MISSING = 11
    OUTCOME_UNKNOWN = 12
    NOT_AUTHENTICATED = 13


class ClientMissing(ProviderUnavailable):
    """A JVM, jar or class is missing.

    Retrying does not help until it is installed.
    """


class JavaMissing(ClientMissing):
    """No Java is installed, so no JMS provider can be reached."""


class TransformerUnusable(MessagingError):
    """The class of a message transformer is there, and none can be made of it.

    :param name: of the class.
    :param reason: what is wrong.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the message transformer {name} cannot be used: {reason}")


class Refused(MessagingError):
    """The provider is reachable and refuses what was asked."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the provider refuses: {reason}")
        self.reason = reason

    @property
    def withheld(self) -> str:
        return _withheld(self.reason)

    def told(self, spell: Callable[[Destination], str]) -> str:
        return f"the provider refuses: {without_classes(self.reason)}"


class LoginRefused(AuthenticationFailed):
    """The provider refuses the user."""

    @property
    def withheld(self) -> str:
        return _withheld(self.reason)

    def told(self, spell: Callable[[Destination], str]) -> str:
        return AuthenticationFailed(self.username, without_classes(self.reason)).told(spell)


class NoXAFactory(NotSupported):
    """The configuration wants XA of a connection factory that has none.

    :param lookup_name: of the factory,
    :param class_name: and its class.
    """

    def __init__(self, lookup_name: str, class_name: str) -> None:
        self.capability = "xa"
        MessagingError.__init__(
            self,
            f"'{lookup_name}' is a {class_name}, not the XAConnectionFactory that a transacted link needs: look up an "
            'XAConnectionFactory, or set transacted="false" for the link',
        )


class XAFactoryOnly(NotSupported):
    """A connection factory has no sessions without XA, as configured.

    :param lookup_name: of the factory,
    :param class_name: and its class.
    """

    def __init__(self, lookup_name: str, class_name: str) -> None:
        self.capability = "sessions without XA"
        MessagingError.__init__(
            self,
            f"'{lookup_name}' is a {class_name}, an XAConnectionFactory with XA sessions only: look up a plain ConnectionFactory, or set "
            'transacted="true" for the link',
        )


class ProviderFull(DestinationFull):
    """A limit of the provider is reached.

    Its client threw ResourceAllocationException, which does not name the limit.
    """

    def __init__(self, destination: Destination, reason: str) -> None:
        DestinationError.__init__(self, "", destination, f" is full: {reason}")
        self.limit = reason
        self.value = 0


def without_classes(reason: str) -> str:
    """Return what a provider says without the names of Java's classes.

    Clients read it, to whom these say nothing.
    """
    known = _OF_CLASSES.sub("a class is missing there, or another than expected", reason)
    return _CLASS.sub("", known).strip() or "the provider does not say why"


def _withheld(reason: str) -> str:
    return "" if without_classes(reason) == reason else reason


def of_connecting(
    kind: int, reason: str, credentials: Credentials, client_id: str | None
) -> MessagingError:
    """Return the error for a failed look-up of a factory, or a failed connect."""
    if credentials.passcode:
        reason = reason.replace(credentials.passcode, "***")
    if kind in (Kind.NOT_AUTHENTICATED, Kind.SECURITY):
        return LoginRefused(credentials.username, reason)
    if kind == Kind.CLIENT_ID and client_id is not None:
        return ClientIdInUse(client_id)
    return missing_or_unavailable(kind, reason)


def missing_or_unavailable(kind: int, reason: str) -> MessagingError:
    """Return the error for a provider that was not reached."""
    return ClientMissing(reason) if kind == Kind.MISSING else ProviderUnavailable(reason)


def of_consuming(
    kind: int, reason: str, spec: ConsumerSpec, username: str, client_id: str | None
) -> MessagingError:
    """Return the error for a consumer that could not be opened, or has failed."""
    destination = spec.destination
    if (
        spec.durable_name is not None
        and kind in (Kind.OTHER, Kind.STATE, Kind.RESOURCE)
        and _IN_USE.search(reason)
    ):
        return DurableInUse(client_id or "", spec.durable_name)
    if kind == Kind.SECURITY:
        return AccessDenied(username, "browse" if spec.browse else "consume", destination)
    if kind == Kind.SELECTOR:
        return InvalidSelector(spec.selector or "", 0, without_classes(reason))
    return _general(kind, reason, destination)


def of_sending(
    kind: int, reason: str, destination: Destination | None, username: str
) -> MessagingError:
    """Return the error for a failed send, acknowledgement or commit.

    :param destination: of the refused message, None if no message was refused.
    """
    if kind == Kind.SECURITY:
        return AccessDenied(
            username, "produce", destination if destination is not None else "this provider"
        )
    return _general(kind, reason, destination)


def of_unsubscribing(kind: int, reason: str, client_id: str, name: str) -> MessagingError:
    """Return the error for a failed removal of a durable subscription."""
    if _IN_USE.search(reason):
        return DurableInUse(client_id, name)
    if kind == Kind.DESTINATION:
        return UnknownSubscription(client_id, name)
    return _general(kind, reason, None)


def _general(kind: int, reason: str, destination: Destination | None) -> MessagingError:
    if kind == Kind.DESTINATION and destination is not None:
        return InvalidDestination(destination, without_classes(reason))
    if kind == Kind.RESOURCE and destination is not None:
        return ProviderFull(destination, without_classes(reason))
    if kind == Kind.OUTCOME_UNKNOWN:
        return OutcomeUnknown(reason)
    if kind in (Kind.UNAVAILABLE, Kind.STATE, Kind.MISSING):
        return missing_or_unavailable(kind, reason)
    return Refused(reason)
