"""A broker that does what a test tells it to.

It is the server's side of the engine on a real socket of the loopback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import proton
from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from bridge.providers.amqp.mapping import from_bytes, to_bytes
from bridge.providers.amqp.options import AmqpAddress, AmqpOptions
from bridge.providers.amqp.peers import ARTEMIS
from bridge.providers.amqp.provider import AmqpProvider
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection, Consumer, Credentials, Done

clock: Any = reactor
QUEUE = Queue("q")
WELL = object()
DECLARED, TRANSACTIONAL = 0x33, 0x34


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; the test's own time limit ends it."""
    while not condition():
        await deferLater(clock, 0.002)


async def a_while(seconds: float = 0.05) -> None:
    """Let what could happen happen."""
    await deferLater(clock, seconds)


class Attached(NamedTuple):
    """A link that was asked for, as it was."""

    link: Any
    name: str
    sends: bool
    address: str | None
    capabilities: Any
    filters: Any
    durability: int
    expiry: int
    copies: bool
    coordinator: bool
    dynamic: bool
    properties: Any


class _Served(Protocol):
    """One connection to the peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.collector: Any = proton.Collector()
        self.connection: Any = proton.Connection()
        self.connection.collect(self.collector)
        self.engine: Any = proton.Transport(proton.Transport.SERVER)
        self.engine.idle_timeout = 0
        sasl = self.engine.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        self.engine.bind(self.connection)

    def connectionMade(self) -> None:
        self.peer.sockets.append(self)
        if not self.peer.deaf:
            self.write()

    def dataReceived(self, data: bytes) -> None:
        if self.peer.deaf:
            return
        position = 0
        while position < len(data):
            capacity = self.engine.capacity()
            if capacity < 0:
                return
            self.engine.push(data[position : position + capacity])
            position += capacity
            self.events()
        self.write()

    def events(self) -> None:
        while (event := self.collector.peek()) is not None:
            self.peer.happened(self, event)
            self.collector.pop()

    def write(self) -> None:
        transport: Any = self.transport
        while (size := self.engine.pending()) > 0:
            transport.write(bytes(self.engine.peek(size)))
            self.engine.pop(size)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.peer.lost += 1


class Peer:
    """A broker on a free port.

    :param product: what its open frame calls it; None leaves open unanswered.
    :param credit: what it grants for sending.
    :param port: where it listens; 0 for any.
    """

    def __init__(
        self, product: str | None = "apache-activemq-artemis", *, credit: int = 1000, port: int = 0
    ) -> None:
        self.product = product
        self.credit = credit
        self.sockets: list[_Served] = []
        self.links: list[Attached] = []
        self.lost = 0
        #: What comes is not looked at.
        self.deaf = False
        #: Bodies that were sent to it, with the transaction of each.
        self.sent: list[tuple[str, bytes | None]] = []
        #: What became of its own deliveries: tag, state, transaction.
        self.outcomes: list[tuple[str, Any, bytes | None]] = []
        #: Discharges: transaction, and whether it fails.
        self.discharged: list[tuple[bytes, bool]] = []
        self.detached: list[tuple[str, bool]] = []
        self.flows: list[tuple[int, bool]] = []
        #: In place of the usual answer, by what happens.
        self.on_attach: Callable[[Attached], bool] = lambda attached: False
        self.on_sent: Callable[[Any, str], bool] = lambda delivery, body: False
        self.on_discharge: Callable[[Any, bool], bool] = lambda delivery, fails: False
        self.on_outcome: Callable[[Any], bool] = lambda delivery: False
        self._transactions = 0
        self._nodes = 0
        factory = Factory.forProtocol(Protocol)
        factory.buildProtocol = lambda addr: _Served(self)  # type: ignore[method-assign]
        self._listener: Any = clock.listenTCP(port, factory, interface="127.0.0.1")

    @property
    def address(self) -> AmqpAddress:
        at: IPv4Address = self._listener.getHost()
        return AmqpAddress("127.0.0.1", at.port)

    # --- what happens

    def happened(self, served: _Served, event: Any) -> None:
        kind = event.type
        if kind is proton.Event.CONNECTION_REMOTE_OPEN and self.product is not None:
            event.connection.properties = {proton.symbol("product"): self.product}
            event.connection.open()
        elif kind is proton.Event.CONNECTION_REMOTE_CLOSE:
            event.connection.close()
        elif kind is proton.Event.SESSION_REMOTE_OPEN:
            event.session.incoming_capacity = 1 << 20
            event.session.open()
        elif kind is proton.Event.SESSION_REMOTE_CLOSE:
            event.session.close()
        elif kind is proton.Event.LINK_REMOTE_OPEN:
            self._attach(event.link)
        elif kind is proton.Event.LINK_FLOW:
            if event.link.is_sender:
                self.flows.append((event.link.credit, bool(event.link.drain_mode)))
                if event.link.drain_mode and not self.keeps_credit:
                    event.link.drained()
        elif kind in (proton.Event.LINK_REMOTE_CLOSE, proton.Event.LINK_REMOTE_DETACH):
            closed = kind is proton.Event.LINK_REMOTE_CLOSE
            self.detached.append((event.link.name, closed))
            if closed:
                event.link.close()
            else:
                event.link.detach()
        elif kind is proton.Event.DELIVERY:
            if event.link.is_receiver:
                self._received(event.delivery)
            else:
                self._settled(event.delivery)

    #: Drain is not answered.
    keeps_credit = False

    def _attach(self, link: Any) -> None:
        coordinator = link.remote_target.type == proton.Terminus.COORDINATOR
        node = link.remote_target if link.is_receiver else link.remote_source
        attached = Attached(
            link,
            link.name,
            link.is_receiver,
            node.address,
            None if coordinator else _of(node.capabilities),
            _of(node.filter),
            node.durability,
            node.expiry_policy,
            node.distribution_mode == proton.Terminus.DIST_MODE_COPY,
            coordinator,
            not coordinator and node.dynamic,
            None if coordinator else _of(node.properties),
        )
        self.links.append(attached)
        if self.on_attach(attached):
            return
        link.source.copy(link.remote_source)
        if coordinator:
            link.target.type = proton.Terminus.COORDINATOR
        else:
            link.target.copy(link.remote_target)
            if attached.dynamic:
                link.target.address = self.name_of_next_node()
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.open()
        if link.is_receiver:
            link.flow(self.credit)

    def name_of_next_node(self) -> str:
        """As a broker names a dynamic node."""
        self._nodes += 1
        return f"node-{self._nodes}"

    def refuse(self, attached: Attached, condition: str, text: str = "no") -> bool:
        """Attach a link without a terminus, and close it; for ``on_attach``."""
        link = attached.link
        link.open()
        link.condition = proton.Condition(condition, text)
        link.close()
        return True

    def _received(self, delivery: Any) -> None:
        link = delivery.link
        if delivery.partial:
            return
        data = bytes(link.recv(delivery.pending) or b"") if delivery.pending else b""
        link.advance()
        if link.remote_target.type == proton.Terminus.COORDINATOR:
            self._coordinate(delivery, data)
            return
        body = from_bytes(data, ARTEMIS, QUEUE).message.body.decode()
        told = delivery.remote.data
        transaction = bytes(told[0]) if delivery.remote_state == TRANSACTIONAL else None
        self.sent.append((body, transaction))
        if self.on_sent(delivery, body):
            return
        if transaction is not None:
            delivery.local.data = [
                transaction,
                proton.Described(proton.ulong(int(proton.Delivery.ACCEPTED)), []),
            ]
            delivery.update(TRANSACTIONAL)
        else:
            delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()

    def _coordinate(self, delivery: Any, data: bytes) -> None:
        message = proton.Message()
        message.decode(data)
        asked: Any = message.body
        if asked.descriptor == "amqp:declare:list":
            self._transactions += 1
            delivery.local.data = [f"t{self._transactions}".encode()]
            delivery.update(DECLARED)
        else:
            transaction, fails = asked.value
            self.discharged.append((bytes(transaction), fails))
            if self.on_discharge(delivery, fails):
                return
            delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()

    def _settled(self, delivery: Any) -> None:
        state = delivery.remote_state
        told = delivery.remote.data
        transaction = bytes(told[0]) if state == TRANSACTIONAL else None
        if transaction is not None:
            state = told[1].descriptor
        if state:
            self.outcomes.append((delivery.tag, int(state), transaction))
        if self.on_outcome(delivery):
            return
        if state and transaction is None:
            delivery.settle()

    # --- what it does

    def drive(self, act: Callable[[], object]) -> None:
        """Have the engine do something, and write it."""
        act()
        for socket in self.sockets:
            socket.write()

    def deliver(self, body: str, tag: str, count: int = 0, link: int = -1) -> None:
        """Send a message on a link that receives; the last, unless told otherwise."""
        receiving = [each.link for each in self.links if not each.sends][link]
        data = to_bytes(text(body), ARTEMIS, 0)
        if count:
            data = (
                b"\x00\x53\x70\xc0\x08\x05\x41\x50\x04\x40\x40\x52"
                + bytes((count,))
                + data[data.index(b"\x00\x53\x72") :]
            )

        def send() -> None:
            receiving.delivery(tag.encode())
            receiving.stream(data)
            receiving.advance()

        self.drive(send)

    def octets(self, octets: bytes) -> None:
        transport: Any = self.sockets[-1].transport
        transport.write(octets)

    def drop(self) -> None:
        for socket in self.sockets:
            transport: Any = socket.transport
            transport.abortConnection()

    def receiving(self) -> list[Attached]:
        return [each for each in self.links if not each.sends]

    async def close(self) -> None:
        self.drop()
        await maybeDeferred(self._listener.stopListening)


def _of(data: Any) -> Any:
    """What a part of a terminus holds."""
    data.rewind()
    return data.get_object() if data.next() is not None else None


class Client:
    """A connection to a peer, and what it was told."""

    def __init__(self, peer: Peer, **options: Any) -> None:
        self.provider = AmqpProvider(peer.address, AmqpOptions(**options), clock)
        self.losses: list[MessagingError] = []
        self.told: list[object] = []
        self.runs: list[tuple[int, list[str], list[int] | None]] = []
        self.messages: list[Message] = []
        self.failures: list[MessagingError] = []

    def connecting(self, client_id: str | None = None) -> Deferred[Connection]:
        return self.provider.connect(Credentials("", ""), client_id, self.losses.append)

    async def connect(self, client_id: str | None = None) -> Connection:
        return await self.connecting(client_id)

    def done(self, error: MessagingError | None) -> None:
        """A Done; what is well is told as WELL."""
        self.told.append(WELL if error is None else error)

    async def answered(self, ask: Callable[[Done], None]) -> Any:
        """Ask, wait until that is answered, and return the answer."""
        count = len(self.told)
        ask(self.done)
        await until(lambda: len(self.told) > count)
        return self.told[-1]

    def deliver(self, consumer: Consumer, first: int, messages: Any, attempts: Any, /) -> None:
        self.messages += messages
        self.runs.append((first, [message.body.decode() for message in messages], attempts))

    @property
    def texts(self) -> list[str]:
        return [body for _, bodies, _ in self.runs for body in bodies]


#: Makes a peer and a client of it, from the arguments of both.
Meet = Callable[..., tuple[Peer, Client]]


def text(body: str, destination: Destination = QUEUE, **headers: Any) -> Message:
    return Message(Headers(destination, **headers), body.encode())
