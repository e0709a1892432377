"""Users of one gateway: STOMP clients, an operator, an XA coordinator.

The clients speak bytes. The operator and the coordinator use what the admin service and the bridges
use: ``BrokerAdministration``, and the seam in ``gateway.messaging.provider``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import succeed

from tests.twin.world import Transport, Turn, text

#: Messages that a coordinator may have at a time.
_CREDIT: Final = 5


class Client:
    """A STOMP client; remembers which messages it may acknowledge."""

    def __init__(
        self, name: str, version: str, connection: Any, transport: Transport, joins: bool
    ) -> None:
        self.name = name
        self.version = version
        self.connection = connection
        self.transport = transport
        self.inbound: deque[bytes] = deque()
        self.transaction = ""
        #: Acknowledgements of any subscription may be in a transaction.
        self._joins = joins
        #: By id: the mode of acknowledgement, and whether the subscription is transacted.
        self._subscriptions: dict[str, tuple[str, bool]] = {}
        self._deliveries: list[dict[str, str]] = []
        self._replies: list[str] = []
        self._unread = b""

    def hear(self, octets: bytes) -> None:
        """Note the MESSAGEs of what was written to this client."""
        self._unread += octets
        while self._unread:
            self._unread = self._unread.lstrip(b"\r\n")
            head, found, rest = self._unread.partition(b"\n\n")
            if not found:
                return
            lines = text(head).split("\n")
            headers = dict(line.split(":", 1) for line in reversed(lines[1:]))
            length = int(headers.get("content-length", rest.find(b"\0")))
            if length < 0 or len(rest) <= length:
                return
            self._unread = rest[length + 1 :]
            if lines[0] == "MESSAGE":
                self._note(headers)

    def _note(self, headers: dict[str, str]) -> None:
        if "reply-to" in headers:
            self._replies.append(headers["reply-to"])
        mode, _ = self._subscriptions.get(headers.get("subscription", ""), ("auto", False))
        if mode != "auto" and "browser" not in headers:
            self._deliveries.append(headers)

    def frame(self, command: str, given: dict[str, Any], body: str) -> bytes | None:
        """Return the bytes of a frame; None if it would be an error now.

        ``!`` among the headers sends it anyway. ``@`` names a delivery by its place among
        those that may be acknowledged, or a destination to reply to.
        """
        headers = dict(given)
        forced = headers.pop("!", False)
        place = headers.pop("@", None)
        if place is not None:
            named = (
                self._reply(place)
                if command == "SEND"
                else self._acknowledged(command, place, headers)
            )
            if named is None:
                return None
            headers |= named
        begin = b""
        if not forced:
            legal = self._legal(command, headers)
            if legal is None:
                return None
            begin = legal
        self._follow(command, headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        return begin + f"{command}\n{lines}\n".encode() + body.encode() + b"\0"

    def _reply(self, place: int) -> dict[str, str] | None:
        return {"destination": self._replies[place % len(self._replies)]} if self._replies else None

    def _acknowledged(
        self, command: str, place: int, headers: dict[str, Any]
    ) -> dict[str, str] | None:
        if not self._deliveries:
            return None
        chosen = self._deliveries[place % len(self._deliveries)]
        subscription = chosen.get("subscription", "")
        mode, transacted = self._subscriptions.get(subscription, ("client", False))
        if transacted and not self.transaction:
            return None
        if not transacted and not self._joins:
            headers.pop("transaction", None)
        settled = self._deliveries.index(chosen)
        self._deliveries = [
            each
            for index, each in enumerate(self._deliveries)
            if each is not chosen
            and not (
                mode == "client" and index < settled and each.get("subscription") == subscription
            )
        ]
        if self.version == "1.2":
            return {"id": chosen.get("ack", chosen["message-id"])}
        named = {"message-id": chosen["message-id"]}
        return named | ({"subscription": subscription} if self.version == "1.1" else {})

    def _legal(self, command: str, headers: dict[str, Any]) -> bytes | None:
        """Return what must be sent before the frame; None if it would be an error."""
        transaction, subscription = headers.get("transaction"), headers.get("id")
        if command == "BEGIN":
            return None if self.transaction else b""
        if command in ("COMMIT", "ABORT"):
            return b"" if transaction == self.transaction else None
        if command == "SUBSCRIBE" and subscription in self._subscriptions:
            return None
        if command == "UNSUBSCRIBE" and "durable-subscriber-name" not in headers:
            return b"" if subscription in self._subscriptions else None
        if transaction and transaction != self.transaction:
            if self.transaction:
                return None
            self.transaction = transaction
            return f"BEGIN\ntransaction:{transaction}\n\n\0".encode()
        return b""

    def _follow(self, command: str, headers: dict[str, Any]) -> None:
        subscription = headers.get("id", "")
        if command == "BEGIN":
            self.transaction = headers.get("transaction", "")
        elif command in ("COMMIT", "ABORT"):
            self.transaction = ""
        elif command == "SUBSCRIBE":
            mode = headers.get("ack", "auto")
            self._subscriptions[subscription] = (mode, "transaction" in headers)
        elif command == "UNSUBSCRIBE":
            self._subscriptions.pop(subscription, None)


class Everyone:
    """Lets every user in, in a group of the user's own name."""

    def __init__(self, principal: Any) -> None:
        self._principal = principal

    def authenticate(self, credentials: Any) -> Any:
        return succeed(self._principal(credentials.username, frozenset({credentials.username})))

    def readmit(self, principal: Any, address: str) -> Any:
        return principal


class Operator:
    """Does what ``imqcmd`` has done, and notes the answers."""

    def __init__(self, broker: Any, branches: Any, turn: Callable[[], Turn]) -> None:
        self._broker = broker
        self._branches = branches
        self._turn = turn

    def operate(self, verb: str, *arguments: Any) -> None:
        """Call a method of the administration of the broker."""
        noted(self._turn, f"operator {verb}", getattr(self._broker, verb), *arguments)

    def decide(self, verb: str, place: int) -> None:
        """``commit``, ``rollback`` or ``forget`` a listed branch."""
        listed = self._branches.branches()
        if listed:
            xid = listed[place % len(listed)].xid
            noted(self._turn, f"operator {verb}", getattr(self._branches, verb), xid)


class Coordinator:
    """A user of the seam whose work is in branches of XA transactions.

    :param seam: ``gateway.messaging.provider``.
    :param message: makes a message for the name of a queue.
    """

    def __init__(
        self,
        seam: Any,
        provider: Any,
        message: Callable[[str, bool], Any],
        queue: Callable[[str], Any],
        turn: Callable[[], Turn],
    ) -> None:
        self._seam = seam
        self._message = message
        self._turn = turn
        self._last: dict[Any, int] = {}
        made: list[Any] = []
        provider.connect(seam.Credentials("admin", "admin"), None, self._lost).addCallback(
            made.append
        )
        self._connection = made[0]
        self._session = self._connection.xa_session()
        self._resource = self._session.resource()
        # What it was called before.
        specification = getattr(seam, "ConsumerSpec", None) or seam.Subscription
        for name in ("q1", "q2"):
            noted(turn, f"consumer {name}", self._consume, specification(queue(name)))

    def _consume(self, subscription: Any) -> None:
        consumer = self._session.consumer(subscription, self._deliver, self._failed)
        consumer.grant(_CREDIT, 0)
        consumer.start()

    def _lost(self, error: Exception) -> None:
        self._turn().answers.append(f"coordinator lost: {described(error)}")

    def _failed(self, error: Exception) -> None:
        self._turn().answers.append(f"consumer failed: {described(error)}")

    def _deliver(
        self, consumer: Any, first: int, messages: Sequence[Any], attempts: Sequence[int] | None
    ) -> None:
        ids = [message.message_id for message in messages]
        tries = None if attempts is None else list(attempts)
        self._turn().answers.append(f"coordinator gets {first} {ids} {tries}")
        self._last[consumer] = first + len(messages) - 1

    def work(self, number: int, queues: Sequence[str], persistent: bool, acknowledge: bool) -> None:
        """Send and acknowledge in a branch, from its start to its end."""
        self.call("start", number, self._seam.Flags.NOFLAGS)
        if queues:
            messages = [self._message(name, persistent) for name in queues]
            noted(self._turn, "send", self._session.send, messages)
        for consumer, last in list(self._last.items()) if acknowledge else ():
            del self._last[consumer]
            noted(self._turn, "acknowledge", consumer.acknowledge_through, last)
            noted(self._turn, "grant", consumer.grant, _CREDIT, 0)
        self.call("end", number, self._seam.Flags.SUCCESS)

    def call(self, verb: str, number: int, *arguments: Any) -> None:
        """Call the resource for a branch."""
        xid = self._seam.Xid(7, b"global %d" % number, b"branch")
        noted(self._turn, f"{verb} {number}", getattr(self._resource, verb), xid, *arguments)

    def recover(self) -> None:
        """Ask which branches are prepared or were completed heuristically."""
        noted(self._turn, "recover", self._resource.recover)

    def close(self) -> None:
        """Close the connection."""
        noted(self._turn, "close", self._connection.close)


def noted(turn: Callable[[], Turn], what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Call, and note the answer or the error in the turn that brings it."""
    try:
        answer = call(*arguments)
    except Exception as error:  # noqa: BLE001
        # A refusal is an answer; the other tree must give the same.
        turn().answers.append(f"{what}: {described(error)}")
        return
    if not hasattr(answer, "addBoth"):
        turn().answers.append(f"{what}: {answer!r}")
        return
    answer.addCallbacks(
        lambda value: turn().answers.append(f"{what}: {value!r}"),
        lambda failure: turn().answers.append(f"{what}: {described(failure.value)}"),
    )


def described(error: Exception) -> str:
    """Name an error, and say its text after that."""
    return f"{type(error).__name__}: {error}"
