"""What can go wrong at the seam, as values.

Each error carries what was wrong as attributes and makes its own sentence from them, so that a log,
an ERROR frame and a test can each take what they need. The sentence is fit for a client: no path,
no stack, nothing of another user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.messaging.destination import Destination


_QUOTED: Final = 100


class MessagingError(Exception):
    """The root of them all; never raised itself."""

    @property
    def withheld(self) -> str:
        """What :meth:`told` leaves out, for the operator's log; "" for nothing."""
        return ""

    def told(self, spell: Callable[[Destination], str]) -> str:
        """Return the sentence, with destinations as its reader spells them.

        :param spell: the spelling, such as STOMP's ``/queue/NAME``; ``str`` of the error has
            ``queue:NAME``.
        """
        return str(self)


class DestinationError(MessagingError):
    """One that is about a destination; never raised itself.

    :param before: the sentence up to the destination.
    :param destination: a text where it is not a Destination.
    :param after: the rest.
    """

    def __init__(self, before: str, destination: Destination | str, after: str) -> None:
        super().__init__(f"{before}{destination}{after}")
        self.destination = destination
        self._around = before, after

    def told(self, spell: Callable[[Destination], str]) -> str:
        before, after = self._around
        return f"{before}{self.destination if isinstance(self.destination, str) else spell(self.destination)}{after}"


class AuthenticationFailed(MessagingError):
    """The credentials are not an active user's, or not from this address."""

    def __init__(self, username: str, reason: str = "unknown user or wrong passcode") -> None:
        super().__init__(f"user '{username}' is refused: {reason}")
        self.username = username
        self.reason = reason


class CredentialsEnded(MessagingError):
    """What the user has shown when it connected holds no longer."""

    def __init__(self, username: str) -> None:
        super().__init__(f"the token of user '{username}' has ended")
        self.username = username


class AccessDenied(DestinationError):
    """The access control file does not allow this user this operation there."""

    def __init__(self, username: str, operation: str, destination: Destination | str) -> None:
        super().__init__(f"user '{username}' may not {operation} on ", destination, "")
        self.username = username
        self.operation = operation


class InvalidDestination(DestinationError):
    """No such destination, or not one that this can be done with."""

    def __init__(self, destination: Destination | str, reason: str) -> None:
        super().__init__("", destination, f": {reason}")
        self.reason = reason


class UnknownExchange(InvalidDestination):
    """A broker does not have the exchange that the destination stands for.

    :param sentence: the broker's.
    """

    def __init__(self, destination: Destination, sentence: str) -> None:
        super().__init__(destination, sentence)
        self.sentence = sentence


class DestinationStopped(DestinationError):
    """The store holds a damaged message of the destination.

    Nothing is delivered from it or taken for it until an operator has dealt with that.
    """

    def __init__(self, destination: Destination) -> None:
        super().__init__(
            "",
            destination,
            " is stopped: its messages in the store are damaged. The gateway's log says where",
        )


class ProducersPaused(DestinationError):
    """An administrator has paused the destination for producers.

    The sender is held back: it sends the same again once it may.
    """

    def __init__(self, destination: Destination) -> None:
        super().__init__("", destination, " is paused for producers by an administrator")


class DestinationFull(DestinationError):
    """A limit of the destination, or the disk's, refuses the message.

    :param limit: its name, or what a provider says of it.
    :param value: its value; negative where that is not known.
    """

    def __init__(self, destination: Destination, limit: str, value: int) -> None:
        super().__init__(
            "", destination, f" is full: {limit}" if value < 0 else f" is full: {limit} is {value}"
        )
        self.limit = limit
        self.value = value


class MessageUnreadable(DestinationError):
    """The provider has a message there and cannot read it.

    It is left there.

    :param public: what clients are told of the reason; None for all of it.
    """

    def __init__(
        self, destination: Destination, message_id: str, reason: str, public: str | None = None
    ) -> None:
        named = f"message '{message_id}'" if message_id else "a message"
        after = " cannot be read, and is left there: {}. Take it off with the tools of the broker"
        super().__init__(f"{named} of ", destination, after.format(reason))
        self.message_id = message_id
        self.reason = reason
        self.public = reason if public is None else public
        self._around = f"{named} of ", after.format(self.public)

    @property
    def withheld(self) -> str:
        return "" if self.reason == self.public else self.reason


class MessageTooLarge(DestinationError):
    """The message is above a limit of size; waiting would not help."""

    def __init__(self, destination: Destination, size: int, limit: str, value: int) -> None:
        super().__init__(
            f"a message of {size} octets is too large for ", destination, f": {limit} is {value}"
        )
        self.size = size
        self.limit = limit
        self.value = value


class MessageRejected(MessagingError):
    """One message of a run cannot be taken, so none was.

    :param index: its place in the run.
    :param cause: why, as another of these errors.
    """

    def __init__(self, index: int, cause: MessagingError) -> None:
        super().__init__(str(cause))
        self.index = index
        self.cause = cause

    @property
    def withheld(self) -> str:
        return self.cause.withheld

    def told(self, spell: Callable[[Destination], str]) -> str:
        return self.cause.told(spell)


class InvalidSelector(MessagingError):
    """The selector is not a JMS selector.

    The sentence quotes no more of it than 100 characters around the place.

    :param column: where reading failed, from 1; 0 when the whole is meant.
    """

    _verdict = "is invalid"

    def __init__(self, selector: str, column: int, reason: str) -> None:
        where = f" at column {column}" if column else ""
        start = max(0, min(column - 1 - _QUOTED // 2, len(selector) - _QUOTED))
        end = start + _QUOTED
        quoted = (
            f"{'...' if start else ''}{selector[start:end]}{'...' if end < len(selector) else ''}"
        )
        super().__init__(f"selector {quoted!r} {self._verdict}{where}: {reason}")
        self.selector = selector
        self.column = column
        self.reason = reason


class SelectorTooCostly(InvalidSelector):
    """The selector asks for more work per message than a setting allows.

    :param cost: of the selector, or of all selectors of the connection with it.
    :param limit: the setting.
    :param value: what it allows.
    """

    _verdict = "is refused"

    def __init__(self, selector: str, cost: int, limit: str, value: int, remedy: str) -> None:
        super().__init__(selector, 0, f"the cost is {cost}, and {limit} is {value}; {remedy}")
        self.cost = cost
        self.limit = limit
        self.value = value


class ClientIdInUse(MessagingError):
    """Another connection has this client identifier now."""

    def __init__(self, client_id: str) -> None:
        super().__init__(f"client-id '{client_id}' is in use by another connection")
        self.client_id = client_id


class ClientIdRequired(MessagingError):
    """A durable subscription on a connection without client identifier."""

    def __init__(self, durable_name: str) -> None:
        super().__init__(
            f"durable subscription '{durable_name}' needs a client-id on CONNECT, and this connection has none"
        )
        self.durable_name = durable_name


class DurableInUse(MessagingError):
    """The durable subscription has an active consumer."""

    def __init__(self, client_id: str, durable_name: str) -> None:
        super().__init__(
            f"durable subscription '{durable_name}' of client-id '{client_id}' has an active consumer"
        )
        self.client_id = client_id
        self.durable_name = durable_name


class SubscriptionDiffers(DestinationError):
    """A shared subscription of that name receives something else."""

    def __init__(self, name: str, destination: Destination, difference: str) -> None:
        super().__init__(
            f"subscription '{name}' is shared, and is to ", destination, f" {difference}"
        )
        self.name = name


class UnknownSubscription(MessagingError):
    """There is no durable subscription of that name."""

    def __init__(self, client_id: str, durable_name: str) -> None:
        super().__init__(f"client-id '{client_id}' has no durable subscription '{durable_name}'")
        self.client_id = client_id
        self.durable_name = durable_name


class UnknownDelivery(MessagingError):
    """The delivery is not outstanding.

    It was settled before, given back, or never made.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"delivery {number} is not outstanding")
        self.number = number


class TooManyConsumers(DestinationError):
    """The destination's ``maxNumActiveConsumers`` is reached.

    :param value: negative where that is another broker's limit, and not known.
    """

    def __init__(self, destination: Destination, value: int) -> None:
        limit = "" if value < 0 else f": maxNumActiveConsumers is {value}"
        super().__init__("", destination, f" has all the consumers it may have{limit}")
        self.value = value


class NoRoom(DestinationError):
    """There is no memory for more destinations, subscriptions and consumers.

    :param what: what was to be made: "destination", "subscription" or "consumer".
    :param used: bytes that those take which there are.
    """

    def __init__(self, destination: Destination, what: str, used: int, most: int) -> None:
        super().__init__(
            f"no room for a {what} of ",
            destination,
            f": destinations, subscriptions and consumers take {used} bytes of memory, and clients may make more up to {most}, half of imq.memory.waiting; "
            "use fewer of them, or have the operator raise imq.memory.budget",
        )
        self.what = what
        self.used = used
        self.most = most


class TransactionTooLarge(MessagingError):
    """A transaction holds more than a limit allows.

    It can only be rolled back.
    """

    def __init__(self, limit: str, value: int) -> None:
        super().__init__(f"the transaction is too large: {limit} is {value}")
        self.limit = limit
        self.value = value


class StorageFailed(MessagingError):
    """What was asked could not be made durable.

    :param reason: what the store said; it may name files. ``str`` of the error has it, and clients
        are not told it.
    :param public: what clients are told of the reason.
    """

    def __init__(self, reason: str, public: str = "") -> None:
        super().__init__(f"the message store could not write: {reason}")
        self.reason = reason
        self.public = public

    @property
    def withheld(self) -> str:
        return "" if self.reason == self.public else self.reason

    def told(self, spell: Callable[[Destination], str]) -> str:
        return (
            f"the message store could not write: {self.public}"
            if self.public
            else "the message store could not write"
        )


class ProviderUnavailable(MessagingError):
    """The provider cannot be reached, or the connection is closed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the provider is unavailable: {reason}")
        self.reason = reason


class ClosedOverRefusal(ProviderUnavailable):
    """The provider has refused something, and closed the connection over it.

    It is there for other connections.
    """


class ConnectionEnded(ProviderUnavailable):
    """An administrator has ended the connection."""

    def __init__(self) -> None:
        reason = "an administrator has ended the connection"
        super().__init__(reason)
        self.args = (reason,)


class OutcomeUnknown(MessagingError):
    """The connection was lost while a commit was under way.

    It may or may not have happened.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the outcome of the commit is unknown: {reason}")
        self.reason = reason


class NotSupported(MessagingError):
    """The provider does not have this capability.

    It says so in its ``capabilities``.
    """

    def __init__(self, capability: str) -> None:
        super().__init__(f"the provider does not support {capability}")
        self.capability = capability


class InvalidDuplicateId(MessagingError):
    """A message names itself for duplicate detection by an impossible name."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the duplicate id is invalid: {reason}")
        self.reason = reason


class InvalidSchedule(MessagingError):
    """A message asks in an impossible way to be delivered later.

    :param name: the property.
    """

    def __init__(self, name: str, value: str, reason: str) -> None:
        super().__init__(f"{name} '{value[:_QUOTED]}' is invalid: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


class DuplicateInDoubt(MessagingError):
    """Another message with the same duplicate id is in doubt.

    It is in a transaction branch that is prepared, so whether this is a repetition is not decided
    yet.
    """

    def __init__(self) -> None:
        super().__init__(
            "another message with the same duplicate id is in a transaction that is prepared, and whose outcome is not known yet"
        )


class XAError(MessagingError):
    """An XA call failed; the codes are X/Open CAE's, section 3.2."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"XA error {code}: {reason}")
        self.code = code
        self.reason = reason
