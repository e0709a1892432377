"""A bridge's dead message queues on a real embedded broker, whose clock stands still and whose disk
commits when told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.logger import formatEvent

from bridge.config import model
from bridge.config.model import BUILT_IN_DMQ, BUILT_IN_DMQ_DESTINATION, Bridge, Dmq
from bridge.connections.connections import Connections
from bridge.connections.factories import Embedded, Factories
from bridge.dead.chain import DeadMessage, DeadMessageQueues
from bridge.providers.jms.java_command import JavaOptions
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination, Kind, Queue
from gateway.messaging.errors import ClientIdInUse, MessagingError
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import Credentials, Mode
from gateway.messaging.transformer import MessageTransformer
from gateway.messaging.values import Short
from tests.gateway.broker.stepped_broker import Stepped
from tests.logged import recording

BUILT_IN = BUILT_IN_DMQ_DESTINATION
FACTORY = model.ConnectionFactory("cf")


def dmq(name: str, **changes: Any) -> Dmq:
    """A dead message queue of that name, on the queue of that name."""
    return Dmq(name, FACTORY, model.Destination(name, name, Kind.QUEUE), **changes)


def original(**changes: Any) -> Message:
    """A message of the kind that dies: every header, typed properties, octets as its body."""
    given: dict[str, Any] = {
        "body_type": BodyType.BYTES,
        "persistent": True,
        "priority": 7,
        "reply_to": Queue("answers"),
        "correlation_id": "c-1",
        "type": "order",
        "properties": {"colour": "red", "weight": Short(12)},
        "extras": (("content-type", "image/png"), ("x-hop", "1")),
    }
    given.update(changes)
    return Message(
        Headers(Queue("source"), **given),
        b"\0\xff",
        timestamp=1_600_000_000_000,
        message_id="ID:there:1",
    )


def died(message: Message | None = None, **changes: Any) -> DeadMessage:
    given: dict[str, Any] = {
        "message": original() if message is None else message,
        "reason": BridgeDeadReason.SEND_FAILURE,
        "exception": "the target does not take it",
        "link": "orders",
        "source_destination": Queue("source"),
        "source_provider": "ActiveMQ",
        "target_destination": Queue("target"),
        "target_provider": "stomp-gateway",
    }
    given.update(changes)
    return DeadMessage(**given)


def _no_jvm() -> JavaOptions:
    raise AssertionError("nothing here is JMS")


class Doing:
    def __init__(self, work: Awaitable[object]) -> None:
        #: True for success, or what was raised.
        self.results: list[BaseException | bool] = []
        self.deferred = ensureDeferred(_awaiting(work))
        self.deferred.addCallbacks(
            lambda _: self.results.append(True), lambda failure: self.results.append(failure.value)
        )

    @property
    def error(self) -> BaseException:
        (result,) = self.results
        assert isinstance(result, BaseException)
        return result


async def _awaiting(work: Awaitable[object]) -> None:
    await work


class Graveyard:
    """The queues, the broker that they are on, and the bridge's log.

    :param full: queues that refuse every message.
    :param denied: queues to which the access rules let no user send.
    """

    def __init__(
        self,
        folder: Path,
        *dmqs: Dmq,
        built_in: Dmq = BUILT_IN_DMQ,
        full: Sequence[Destination] = (),
        denied: Sequence[Destination] = (),
        destinations: Sequence[tuple[Destination, DestinationProperties]] = (),
        load: Callable[[str, str], MessageTransformer] | None = None,
        entry_points: Mapping[str, EntryPoint] | None = None,
    ) -> None:
        limited = [(destination, DestinationProperties(max_num_msgs=0)) for destination in full]
        options = BrokerOptions(reap_time=0, destinations=(*limited, *destinations))
        rules = "".join(f"queue.{destination.name}.produce.deny.user=*\n" for destination in denied)
        self.stepped = Stepped(folder, options, rules=rules)
        self.clock = self.stepped.clock
        log, self.events = recording("bridge.test")
        embedded = Embedded(self.stepped.provider, Credentials("admin", "secret"))
        self.factories = Factories(self.clock, embedded, _no_jvm, lambda: entry_points or {})
        self.connections = Connections(self.clock)
        bridge = Bridge("test", built_in_dmq=built_in, dmqs=dmqs)
        self.queues = DeadMessageQueues(
            self.clock,
            bridge,
            self.factories,
            self.connections,
            lambda name, setting, _: (load or _none_known)(name, setting),
            log,
        )

    def burying(self, dead: DeadMessage | None = None) -> Doing:
        return Doing(self.queues.bury(died() if dead is None else dead))

    def bury(self, dead: DeadMessage | None = None) -> Doing:
        """Begin, and do what is due now."""
        burying = self.burying(dead)
        self.stepped.run_until_idle()
        return burying

    def start(self) -> None:
        starting = Doing(self.queues.start())
        self.stepped.run_until_idle()
        assert starting.results == [True]

    def stop(self) -> None:
        stopping = Doing(self.queues.stop())
        self.stepped.run_until_idle()
        assert stopping.results == [True]

    def has(self, client_id: str) -> bool:
        """Whether a connection has this client identifier; if not, one has it from now on."""
        losses: list[MessagingError] = []
        connecting = Doing(
            self.stepped.provider.connect(Credentials("guest", "guest"), client_id, losses.append)
        )
        return isinstance(connecting.results[0], ClientIdInUse)

    def later(self, seconds: float) -> None:
        self.stepped.later(seconds)

    def messages(self, destination: Destination = BUILT_IN) -> list[Message]:
        """What is in a queue; it is taken out."""
        session = self.stepped.session(Mode.CLIENT)
        inbox = self.stepped.consume(session, destination)
        self.stepped.run_until_idle()
        if inbox.numbers:
            inbox.consumer.acknowledge_through(inbox.numbers[-1])
        inbox.consumer.close()
        self.stepped.run_until_idle()
        return inbox.messages

    def lines(self, level: str = "") -> list[str]:
        """The log, or what it has of one level."""
        return [
            formatEvent(event) for event in self.events if level in ("", event["log_level"].name)
        ]


def _none_known(name: str, setting: str) -> MessageTransformer:
    raise AssertionError(f"{setting} names {name}")
