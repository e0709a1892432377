"""What clients are told of brokers behind the gateway.

Owns the sentences, which hold no host and no class: what a broker says itself is for the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.messaging.destination import Destination
from gateway.messaging.errors import (
    AccessDenied,
    AuthenticationFailed,
    ClosedOverRefusal,
    MessageRejected,
    MessageUnreadable,
    MessagingError,
    NotSupported,
    OutcomeUnknown,
    ProviderUnavailable,
)
from gateway.messaging.message import Message, Unreadable

#: A transacted subscription is Open MQ's: to other profiles, SUBSCRIBE is in no transaction.
_TRANSACTED: Final = "SUBSCRIBE in it, as the profile openmq has it, or ACK outside of it"
#: What a client may do instead of what its broker cannot, by what providers call it.
_REMEDIES: Final[Mapping[str, tuple[str, str]]] = {
    "transacted": ("transactions", "SEND and ACK outside of transactions"),
    "individual": ("acknowledgement one by one", "SUBSCRIBE with ack:client"),
    "acknowledgement one by one": ("", "SUBSCRIBE with ack:client, and ACK"),
    "joined": (
        "acknowledgement in a transaction for a subscription outside of it",
        _TRANSACTED,
    ),
    "acknowledging within another session": (
        "acknowledgement in a transaction for a subscription outside of it",
        _TRANSACTED,
    ),
    "temporary": ("temporary destinations", "have replies sent to a queue"),
    "browse": ("browsing", "look with the tools of the broker"),
    "durable": ("durable subscriptions", "SUBSCRIBE to a queue that the topic is routed to"),
    "exclusive": (
        "exclusive consumers",
        "SUBSCRIBE without exclusive-consumer, or set it for the queue at the broker",
    ),
    "shared": (
        "shared subscriptions",
        "SUBSCRIBE to a queue that the topic is routed to",
    ),
    "addresses": ("addresses of several queues", "name the queue without its address"),
    "exchanges": ("exchanges other than amq.topic", "use /topic/KEY or /queue/NAME"),
    "queues": (
        "queues of subscriptions by x-queue-name and other headers",
        "SUBSCRIBE without them, or to a queue that the topic is routed to",
    ),
    "selectors": ("selectors", "SUBSCRIBE without a selector"),
    "rejection": ("NACK", "DISCONNECT, and the message comes again"),
    "dead messages": ("NACK with requeue:false", "NACK without it"),
    "groups": ("message groups", "SEND without JMSXGroupID"),
    "delayed": ("delivery at a later time", "SEND the message when it is due"),
    "recurring": ("delivery again and again", "SEND the message each time"),
    "scheduler": (
        "delivery at a later time as it is set up",
        "set schedulerSupport in its configuration",
    ),
    "no-local on a connection that it shares": (
        "no-local for a client without client-id",
        "CONNECT with a client-id",
    ),
}


class Unsupported(NotSupported):
    """A broker behind the gateway cannot do what a client asks.

    :param broker: its name, and what it calls itself.
    :param capability: as the provider calls it.
    """

    def __init__(self, broker: str, capability: str) -> None:
        super().__init__(capability)
        named, remedy = _REMEDIES.get(capability, ("", ""))
        text = f"the broker {broker} does not support {named or capability}"
        self.args = (f"{text}; {remedy}" if remedy else text,)


class _OfBroker(MessagingError):
    """An error of a broker's. Its own words are for the log.

    They name hosts and classes.
    """

    #: What its provider says.
    error: MessagingError

    @property
    def withheld(self) -> str:
        return str(self.error)


class BrokerAway(_OfBroker, ProviderUnavailable):
    """A broker behind the gateway cannot be reached.

    :param broker: its name.
    :param error: what its provider says.
    """

    def __init__(self, broker: str, error: MessagingError) -> None:
        super().__init__(f"the broker '{broker}' cannot be reached")
        self.error = error


class ClosedByBroker(BrokerAway):
    """A broker has closed the connection over what it refused."""

    def __init__(self, broker: str, error: MessagingError) -> None:
        super().__init__(broker, error)
        self.args = (f"the broker '{broker}' has closed the connection over what it refused",)


class CommitUnknown(_OfBroker, OutcomeUnknown):
    """As :class:`BrokerAway`, while a transaction was being committed."""

    def __init__(self, broker: str, error: MessagingError) -> None:
        super().__init__(f"the broker '{broker}' went away")
        self.error = error


class LoginRefused(BrokerAway):
    """A broker behind the gateway refuses the gateway's own login.

    Whose that is, is for the log.
    """

    def __init__(self, broker: str, error: MessagingError) -> None:
        super().__init__(broker, error)
        self.args = (
            f"the broker '{broker}' refuses the login of its connection factory, which is not the client's",
        )


class DeniedByBroker(_OfBroker, AccessDenied):
    """A broker behind the gateway does not let a user do something.

    Whom the broker knows the client as is for the log.
    """

    def __init__(self, broker: str, error: AccessDenied) -> None:
        super().__init__(error.username, error.operation, error.destination)
        self._around = f"the broker '{broker}' denies the right to {error.operation} on ", ""
        self.args = (f"{self._around[0]}{error.destination}",)
        self.error = error


def of_broker(broker: str, error: MessagingError, *, own_login: bool = False) -> MessagingError:
    """Return what a client is told of an error of a broker's.

    :param broker: its name.
    :param own_login: the gateway has logged in there by itself.
    """
    if isinstance(error, BrokerAway | CommitUnknown | Unsupported | DeniedByBroker):
        return error
    if isinstance(error, MessageRejected) and isinstance(error.cause, NotSupported | AccessDenied):
        error = error.cause
    if isinstance(error, NotSupported):
        return Unsupported(f"'{broker}'", error.capability)
    if isinstance(error, AccessDenied) and isinstance(error.destination, Destination):
        return DeniedByBroker(broker, error)
    if own_login and isinstance(error, AuthenticationFailed):
        return LoginRefused(broker, error)
    if isinstance(error, ClosedOverRefusal):
        return ClosedByBroker(broker, error)
    if isinstance(error, ProviderUnavailable):
        return BrokerAway(broker, error)
    return CommitUnknown(broker, error) if isinstance(error, OutcomeUnknown) else error


def unreadable(destination: Destination, messages: Sequence[Message]) -> tuple[int, MessagingError]:
    """Return how many can be read, and what is told of the one behind.

    A client would take what is delivered in place of that for the message, and acknowledge it. So its
    consumer ends, and the broker gets the message back.

    :param messages: one of them is an :class:`~gateway.messaging.message.Unreadable`.
    """
    for count, message in enumerate(messages):
        if isinstance(message, Unreadable):
            error = MessageUnreadable(
                destination, message.message_id, message.reason, message.public
            )
            return count, error
    raise AssertionError("all messages can be read")


def of_sending(broker: str, rejected: MessageRejected) -> MessageRejected:
    """Return what a client is told of a message that a broker does not take.

    :param broker: its name, and what it calls itself.
    """
    cause = rejected.cause
    if isinstance(cause, NotSupported) and not isinstance(cause, Unsupported):
        return MessageRejected(rejected.index, Unsupported(broker, cause.capability))
    return rejected


class GoneBack(MessagingError):
    """A delivery was settled that a broker had taken back when it went away."""

    def __init__(self) -> None:
        super().__init__(
            "the message had gone back when its broker went away, so it comes again in spite of this acknowledgement"
        )


class RolledBack(_OfBroker):
    """A transaction was rolled back, as the broker went away meanwhile."""

    def __init__(self, error: MessagingError) -> None:
        super().__init__("the transaction was rolled back, as the broker went away meanwhile")
        self.error = error


def check_open(error: MessagingError | None) -> None:
    """Check that a connection is open.

    :param error: why it is not.
    :raises ProviderUnavailable: it is closed or lost.
    """
    if error is not None:
        raise ProviderUnavailable(getattr(error, "reason", None) or "the connection is closed")
