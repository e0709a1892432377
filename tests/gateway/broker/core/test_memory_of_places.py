"""Destinations, subscriptions and consumers in the memory budget: what they count for, and who is
refused when there is no room.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.core.waiting.memory import Memory, of_consumer, of_destination, of_subscription
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Kind, Queue, Topic
from gateway.messaging.errors import MessageRejected, NoRoom
from gateway.messaging.provider import Connection, ConsumerSpec, Credentials, Mode
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.logged import logged_lines


class Rig(Stepped):
    """A broker whose clients may make places of so many octets."""

    def __init__(self, folder: Path, most: int) -> None:
        self.window = Memory()
        super().__init__(folder, BrokerOptions(reap_time=60), self.window)
        self.before = self.window.object_octets
        self.window.most_object_octets = self.before + most

    def client(self, user: str = "guest", address: str = "192.0.2.1") -> Connection:
        made: list[Connection] = []
        self.provider.connect(
            Credentials(user, "guest", address), None, self.losses.append
        ).addCallback(made.append)
        return made[0]

    @property
    def octets(self) -> int:
        return self.window.object_octets - self.before


def test_each_counts_while_it_is_there(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 1_000_000)
    connection = rig.client()
    session = connection.session(Mode.CLIENT)
    queue = of_destination("q") + of_consumer("a = 'b'")
    consumer = session.consumer(
        ConsumerSpec(Queue("q"), selector="a = 'b'"), lambda *given: None, lambda error: None
    )
    assert rig.octets == queue
    consumer.close()
    assert rig.octets == of_destination("q")
    topic = session.consumer(
        ConsumerSpec(Topic("t"), selector="a = 'b'"), lambda *given: None, lambda error: None
    )
    assert rig.octets == of_destination("q") + of_destination("t") + of_subscription(
        "a = 'b'"
    ) + of_consumer("a = 'b'")
    topic.close()
    topic.close()
    temporary = connection.temporary(Kind.QUEUE)
    session.consumer(ConsumerSpec(temporary), lambda *given: None, lambda error: None)
    assert rig.octets == of_destination("q") + of_destination("t") + of_destination(
        temporary.name
    ) + of_consumer("")
    assert rig.window.octets == rig.window.object_octets
    connection.close()
    assert rig.octets == of_destination("q") + of_destination("t")
    rig.later(200)
    assert rig.octets == 0, "nobody uses them any more"


def test_a_durable_subscription_counts_until_it_is_removed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 1_000_000)
    connection = rig.connect("c")
    session = connection.session(Mode.CLIENT)
    wanted = ConsumerSpec(Topic("t"), durable_name="d")
    session.consumer(wanted, lambda *given: None, lambda error: None).close()
    assert rig.octets == of_destination("t") + of_subscription("")
    session.consumer(
        ConsumerSpec(Topic("t"), durable_name="d", selector="a = 'b'"),
        lambda *given: None,
        lambda error: None,
    ).close()
    rig.run_until_idle()
    assert rig.octets == of_destination("t") + of_subscription("a = 'b'"), "it was redefined"
    connection.unsubscribe("d")
    rig.run_until_idle()
    assert rig.octets == of_destination("t")


def test_a_client_without_room_is_refused_and_what_there_is_goes_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path, of_destination("q") + of_consumer("") + 100)
    connection = rig.client()
    session = connection.session(Mode.CLIENT)
    session.consumer(ConsumerSpec(Queue("q")), lambda *given: None, lambda error: None)
    with pytest.raises(
        NoRoom,
        match=r"no room for a consumer of queue:q: .*half of imq.memory.waiting.*imq.memory.budget",
    ):
        session.consumer(ConsumerSpec(Queue("q")), lambda *given: None, lambda error: None)
    with pytest.raises(NoRoom, match="no room for a destination of queue:0"):
        connection.temporary(Kind.QUEUE)
    with pytest.raises(MessageRejected) as refused:
        session.send(texts(Queue("other"), ["x"]))
    assert isinstance(refused.value.cause, NoRoom)
    session.send(texts(Queue("q"), ["x"]))
    assert rig.broker.find(Queue("other")) is None
    assert rig.octets == of_destination("q") + of_consumer("")


@pytest.mark.parametrize(
    ("user", "address"), [("admin", "192.0.2.1"), ("guest", "")], ids=["administrator", "link"]
)
def test_administrators_and_links_are_not_refused(tmp_path: Path, user: str, address: str) -> None:
    rig = Rig(tmp_path, 0)
    connection = rig.client(user, address)
    session = connection.session(Mode.CLIENT)
    session.consumer(ConsumerSpec(Queue("q")), lambda *given: None, lambda error: None)
    session.send(texts(Queue("other"), ["x"]))
    connection.temporary(Kind.QUEUE)
    assert rig.octets > 0


def test_the_log_says_so_once_a_minute(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 0)
    connection = rig.client()
    with logged_lines() as said:
        for _ in range(3):
            with pytest.raises(NoRoom):
                connection.temporary(Kind.QUEUE)
        assert len(said) == 1
        assert said[0].startswith("no memory for more destinations")
        rig.later(61)
    assert (
        said[-1]
        == "2 more destinations, subscriptions and consumers were refused in a minute, for lack of memory"
    )


def test_messages_get_what_places_leave() -> None:
    memory = Memory.within(1000)
    assert memory.most_object_octets == 500
    memory.count_object(400)
    assert (memory.most, memory.octets) == (600, 400)
    memory.count_object(-400)
    assert (memory.most, memory.octets) == (1000, 0)


def test_a_message_counts_with_its_headers_and_gives_back_the_same(tmp_path: Path) -> None:
    """In all places: waiting, unacknowledged and in a transaction."""
    rig = Rig(tmp_path, 1_000_000)
    headers = {f"h{number}": "vvvvv" for number in range(500)}
    message = texts(Queue("q"), ["x"], properties=headers)[0]
    plain = texts(Queue("q"), ["x"])[0]
    assert plain.weight < 1000
    assert 60_000 < message.weight < 120_000, "as measured: 67 to 82 KB"
    session = rig.session()
    session.send([message, plain])
    rig.run_until_idle()
    assert message.size < 6000, "limits count what they did"
    assert rig.window.used == message.weight + plain.weight
    transacted = rig.session(Mode.TRANSACTED)
    inbox = rig.consume(transacted, Queue("q"))
    rig.run_until_idle()
    assert (rig.window.used, rig.window.unacknowledged) == (0, message.weight + plain.weight)
    inbox.consumer.acknowledge_through(2)
    assert (rig.window.unacknowledged, rig.window.transactions) == (
        0,
        message.weight + plain.weight,
    )
    transacted.commit(lambda error: None)
    rig.run_until_idle()
    assert rig.window.transactions == 0
