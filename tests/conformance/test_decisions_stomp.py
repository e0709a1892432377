"""What was decided where the specifications leave a choice: STOMP.

As a client sees it; where the guide leaves one, too.

Names of tests begin with the topic. What other modules of this package prove already is not here.
"""

from __future__ import annotations

import re
import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conformance import rewriting
from tests.conformance.client import Client, Closed, Frame
from tests.conformance.conftest import Connect
from tests.gateway_process import Certificates, GatewayProcess

DMQ = "/queue/mq.sys.dmq"
AT_ONCE = {
    "activemq.initialRedeliveryDelay": "0",
    "activemq.redeliveryDelay": "0",
    "activemq.useExponentialBackOff": "false",
}


@pytest.fixture(scope="module")
def set_up(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[GatewayProcess]:
    """A gateway with everything set that these tests are about."""
    varhome = tmp_path_factory.mktemp("decisions")
    extensions = varhome / "lib" / "ext"
    extensions.mkdir(parents=True)
    shutil.copy(rewriting.__file__, extensions / "conformance_rewriting.py")
    settings = {
        "imq.bridge.stomp.ack.transaction": "join",
        "imq.bridge.stomp.consumerFlowLimit": "5",
        "imq.bridge.stomp.messageTransformer": "conformance_rewriting:Rewriting",
        "imq.bridge.stomp.server": "OpenMQ/99",
        "imq.bridge.stomp.setJMSXUserID": "true",
        "imq.bridge.stomp.tls.certificateLogin": "true",
        **{
            f"imq.destination.queue.patient{number}.{name}": value
            for number in range(len(POLICIES))
            for name, value in (
                ("initialRedeliveryDelay", HOUR_MS),
                ("redeliveryDelay", HOUR_MS),
                ("maximumRedeliveryDelay", "-1"),
            )
        },
        "imq.destination.queue.impatient.maximumRedeliveries": "2",
        "imq.destination.queue.impatient.initialRedeliveryDelay": "0",
        "imq.destination.queue.unsendable.maximumRedeliveries": "2",
        "imq.destination.queue.unsendable.initialRedeliveryDelay": "0",
        "imq.destination.queue.unsendable.useExponentialBackOff": "false",
        "imq.destination.queue.unsendable.redeliveryDelay": "0",
    }
    with GatewayProcess(varhome, tls=certificates, settings=settings) as gateway:
        yield gateway


@pytest.fixture
def connect_there(connect: Connect, set_up: GatewayProcess) -> Connect:
    """As ``connect``, to the gateway that is set up."""

    def connected(version: str | None = "1.2", **headers: str) -> Client:
        return connect(version, to=set_up, **headers)

    return connected


def bodies(messages: list[Frame]) -> list[str]:
    return [message.text for message in messages]


def trust(certificates: Certificates, *, show: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if show:
        context.load_cert_chain(certificates.client_certificate, certificates.client_key)
    return context


# Certificate login.


@pytest.fixture
def over_tls(set_up: GatewayProcess, certificates: Certificates) -> Iterator[Callable[..., Client]]:
    opened: list[Client] = []

    def dialled(*, show: bool) -> Client:
        opened.append(Client(set_up.tls_port, tls=trust(certificates, show=show)))
        return opened[-1]

    yield dialled
    for client in opened:
        client.close()


def test_certificate_login_stands_in_for_login_and_passcode_where_switched_on(
    over_tls: Callable[..., Client], queue: str
) -> None:
    client = over_tls(show=True)
    client.send("CONNECT", {"accept-version": "1.2", "host": "localhost"})
    assert client.expect("CONNECTED")["version"] == "1.2"
    client.version = "1.2"
    client.subscribe(queue)
    client.send("SEND", {"destination": queue})
    assert client.message()["JMSXUserID"] == "guest"


def test_certificate_login_leaves_login_and_passcode_as_they_are(
    over_tls: Callable[..., Client],
) -> None:
    """Who gives a passcode must give the right one, certificate or not."""
    client = over_tls(show=True)
    client.send(
        "CONNECT",
        {"accept-version": "1.2", "host": "localhost", "login": "guest", "passcode": "wrong"},
    )
    client.error()
    over_tls(show=True).connect()
    over_tls(show=False).connect()


def test_certificate_login_without_a_certificate_is_refused(
    over_tls: Callable[..., Client],
) -> None:
    client = over_tls(show=False)
    client.send("CONNECT", {"accept-version": "1.2", "host": "localhost"})
    client.error("login")


def test_certificate_login_is_off_by_default(
    start_gateway: Callable[..., GatewayProcess], certificates: Certificates, queue: str
) -> None:
    """With ``requireClientAuth`` a certificate opens the connection and is still no login; without
    one there is no connection.
    """
    gateway = start_gateway(tls=certificates, require_client_certificate=True)
    client = Client(gateway.tls_port, tls=trust(certificates, show=True))
    client.send("CONNECT", {"accept-version": "1.2", "host": "localhost"})
    client.error("login")
    with pytest.raises((ssl.SSLError, Closed, ConnectionError)):
        Client(gateway.tls_port, tls=trust(certificates, show=False)).connect()


# server.


def test_server_is_the_gateway_and_its_version(connect: Connect) -> None:
    connected = connect().connected
    assert connected is not None
    assert re.fullmatch(r"stomp-gateway/\d+\.\d+.*", connected["server"])


def test_server_is_what_the_operator_says(connect_there: Connect) -> None:
    connected = connect_there().connected
    assert connected is not None
    assert connected["server"] == "OpenMQ/99"


# ack and message-id values are accepted for each other.


@pytest.mark.parametrize("name", ["id", "message-id", "ack"])
@pytest.mark.parametrize("value", ["ack", "message-id"])
@pytest.mark.parametrize("subscription", [True, False])
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_ack_takes_either_value_in_either_header(
    connect: Connect, queue: str, version: str, name: str, value: str, subscription: bool, mode: str
) -> None:
    client = connect(version)
    client.put(queue, "1")
    client.subscribe(queue, ack=mode)
    headers = {name: client.message()[value]} | ({"subscription": "s"} if subscription else {})
    assert client.ask("ACK", headers) == []


def test_ack_of_a_1_0_client_that_escapes_is_understood(connect: Connect, queue: str) -> None:
    client = connect("1.0")
    client.put(queue, "1")
    assert client.ask("SUBSCRIBE", destination=queue, ack="client") == []
    message = client.message()
    value = message["message-id"].replace(":", "\\c")
    assert client.ask("ACK", {"message-id": value}) == []


def test_ack_ends_an_older_delivery(connect: Connect, queue: str) -> None:
    """An ``ack`` value is one delivery's: after a redelivery the first value is void."""
    client = connect("1.2")
    client.put(queue, "1")
    assert (
        client.ask(
            "SUBSCRIBE", {"destination": queue, "ack": "client-individual", **AT_ONCE}, id="s"
        )
        == []
    )
    first = client.message()
    client.nack(first)
    second = client.message()
    assert first["ack"] != second["ack"]
    client.ack(first)
    client.error()


# ACK within a transaction for a subscription that is not transacted: join.


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_joined_ack_counts_at_commit(
    connect_there: Connect, queue: str, version: str, mode: str
) -> None:
    client = connect_there(version)
    held = client.hold(queue, "1", "2", "3", ack=mode)
    client.send("BEGIN", transaction="t")
    client.ack(held[1], transaction="t")
    assert client.ask("COMMIT", transaction="t") == []
    assert client.left(queue) == (["3"] if mode == "client" else ["1", "3"])


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_joined_ack_is_undone_by_abort_and_may_be_made_again(
    connect_there: Connect, queue: str, version: str, mode: str
) -> None:
    client = connect_there(version)
    [held] = client.hold(queue, "1", ack=mode)
    client.send("BEGIN", transaction="t")
    client.ack(held, transaction="t")
    assert client.ask("ABORT", transaction="t") == []
    client.ack(held)
    assert client.left(queue) == []


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_joined_ack_is_undone_when_the_socket_is_lost(
    connect_there: Connect, queue: str, version: str, mode: str
) -> None:
    client = connect_there(version)
    [held] = client.hold(queue, "1", ack=mode)
    client.send("BEGIN", transaction="t")
    client.ack(held, transaction="t", receipt="r")
    client.expect("RECEIPT")
    client.close()
    other = connect_there(version)
    other.subscribe(queue)
    assert other.message()["redelivered"] == "true"


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_joined_acks_make_room_for_more_than_the_prefetch(
    connect_there: Connect, queue: str, version: str, mode: str
) -> None:
    client = connect_there(version)
    client.put(queue, *map(str, range(10)))
    client.subscribe(queue, ack=mode, **{"prefetch-count": "1"})
    client.send("BEGIN", transaction="t")
    for number in range(10):
        message = client.message()
        assert message.text == str(number)
        client.ack(message, transaction="t")
    assert client.ask("COMMIT", transaction="t") == []
    assert client.left(queue) == []


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_joined_acks_for_more_than_the_prefetch_are_undone_by_abort(
    connect_there: Connect, queue: str, version: str, mode: str
) -> None:
    client = connect_there(version)
    client.put(queue, "1", "2", "3")
    client.subscribe(queue, ack=mode, **{"prefetch-count": "1"})
    client.send("BEGIN", transaction="t")
    for _ in range(2):
        client.ack(client.message(), transaction="t")
    client.message()
    assert client.ask("ABORT", transaction="t") == []
    assert client.left(queue) == ["1", "2", "3"]


def test_joined_ack_of_what_a_later_one_has_covered(
    connect_there: Connect, queue: str, version: str
) -> None:
    client = connect_there(version)
    held = client.hold(queue, "1", "2", "3", ack="client")
    client.send("BEGIN", transaction="t")
    for message in (held[1], held[0], held[1], held[2]):
        client.ack(message, transaction="t")
    assert client.ask("COMMIT", transaction="t") == []
    assert client.left(queue) == []


def test_joined_ack_and_unsubscribe_before_commit(connect_there: Connect, queue: str) -> None:
    client = connect_there()
    [held] = client.hold(queue, "1", ack="client-individual")
    client.send("BEGIN", transaction="t")
    client.ack(held, transaction="t")
    assert client.ask("UNSUBSCRIBE", id="s") == []
    assert client.ask("COMMIT", transaction="t") == []
    client.put(queue, "marker")
    client.subscribe(queue)
    assert client.message().text == "marker"


# NACK and the redelivery policy.


#: A pause that no test waits for.
HOUR_MS = "3600000"
POLICIES: list[tuple[dict[str, str], list[float]]] = [
    ({"initialRedeliveryDelay": "300"}, [0.3, 0.6]),
    ({"initialRedeliveryDelay": "100", "backOffMultiplier": "5"}, [0.1, 0.5]),
    (
        {
            "initialRedeliveryDelay": "50",
            "useExponentialBackOff": "False",
            "redeliveryDelay": "300",
        },
        [0.05, 0.3, 0.3],
    ),
    (
        {
            "initialRedeliveryDelay": "100",
            "backOffMultiplier": "100",
            "maximumRedeliveryDelay": "300",
        },
        [0.1, 0.3, 0.3],
    ),
    (
        {
            "initialRedeliveryDelay": "0",
            "useExponentialBackOff": "false",
            "redeliveryDelay": "0",
        },
        [0, 0, 0, 0, 0],
    ),
]


def test_nack_redelivers_after_1_s_and_then_2_s(connect: Connect, queue: str) -> None:
    """Never too early, and before a message that has a longer pause.

    A busy machine delays both.
    """
    client = connect()
    later = {
        "activemq.initialRedeliveryDelay": "1500",
        "activemq.useExponentialBackOff": "false",
        "activemq.redeliveryDelay": "2800",
    }
    client.subscribe(queue, ack="client-individual")
    client.subscribe(f"{queue}.later", "later", ack="client-individual", **later)
    for destination in (queue, f"{queue}.later"):
        client.send("SEND", {"destination": destination})
    both = client.messages(2)
    for pause in (1, 2):
        refused = time.monotonic()
        for message in both:
            client.nack(message)
        both = client.messages(2)
        assert [message["subscription"] for message in both] == ["s", "later"]
        assert both[0].came - refused > pause - 0.06


@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_nack_follows_the_policy_of_the_subscribe(connect_there: Connect, number: int) -> None:
    """It comes after the pause, and not after that of the destination."""
    policy, pauses = POLICIES[number]
    client = connect_there()
    client.put(f"/queue/patient{number}", "1")
    headers = {f"activemq.{name}": value for name, value in policy.items()}
    client.subscribe(f"/queue/patient{number}", ack="client-individual", **headers)
    message = client.message()
    for pause in pauses:
        refused = time.monotonic()
        client.nack(message)
        message = client.message()
        assert message.came - refused > pause - 0.06
    client.ack(message)
    assert client.sync() == []


@pytest.mark.parametrize(("most", "attempts"), [(None, 6), ("0", 1), ("2", 3), ("9", 10)])
def test_nack_is_death_after_the_last_attempt(
    connect: Connect, queue: str, most: str | None, attempts: int
) -> None:
    """Six attempts in all, or as the SUBSCRIBE says; then the dead message queue has it with its
    reason.
    """
    client = connect()
    client.put(queue, "poison")
    headers = dict(AT_ONCE) | ({} if most is None else {"activemq.maximumRedeliveries": most})
    assert (
        client.ask(
            "SUBSCRIBE", {"destination": queue, "ack": "client-individual", **headers}, id="s"
        )
        == []
    )
    for attempt in range(1, attempts + 1):
        message = client.message()
        assert message.headers.get("JMSXDeliveryCount", "1") == str(attempt)
        assert message["redelivered"] == ("false" if attempt == 1 else "true")
        client.nack(message)
    assert client.sync() == []
    client.subscribe(
        DMQ, "dead", selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{queue.removeprefix('/queue/')}'"
    )
    dead = client.message()
    assert (dead.text, dead["JMS_SUN_DMQ_UNDELIVERED_REASON"]) == ("poison", "UNDELIVERABLE")
    assert dead["JMS_SUN_DMQ_DELIVERY_COUNT"] == str(attempts)


def test_nack_has_no_limit_where_the_policy_has_none(connect: Connect, queue: str) -> None:
    client = connect()
    client.put(queue, "1")
    headers = {**AT_ONCE, "activemq.maximumRedeliveries": "-1"}
    assert (
        client.ask(
            "SUBSCRIBE", {"destination": queue, "ack": "client-individual", **headers}, id="s"
        )
        == []
    )
    for _ in range(30):
        client.nack(client.message())
    assert client.message()["JMSXDeliveryCount"] == "31"


def test_nack_follows_the_policy_of_the_destination(connect_there: Connect) -> None:
    """As far as the SUBSCRIBE names nothing else: a pause does not change the number, nor the
    number the pause.
    """
    client = connect_there()
    for headers, attempts in ((AT_ONCE, 3), ({"activemq.maximumRedeliveries": "1"}, 2), ({}, 3)):
        client.put("/queue/impatient", "poison")
        client.subscribe("/queue/impatient", ack="client-individual", **headers)
        for attempt in range(1, attempts + 1):
            message = client.message()
            assert message.headers.get("JMSXDeliveryCount", "1") == str(attempt)
            client.nack(message)
        assert client.sync() == []
        client.ask("UNSUBSCRIBE", id="s")
    client.subscribe(DMQ, "dead", selector="JMS_SUN_DMQ_DESTINATION = 'queue:impatient'")
    assert [message["JMS_SUN_DMQ_DELIVERY_COUNT"] for message in client.messages(3)] == [
        "3",
        "2",
        "3",
    ]


@pytest.mark.parametrize("value", ["false", "False", "FALSE"])
def test_nack_with_requeue_false_is_death_at_once(connect: Connect, queue: str, value: str) -> None:
    client = connect()
    client.put(queue, "poison", "good")
    client.subscribe(queue, ack="client-individual")
    poison, good = client.messages(2)
    client.nack(poison, requeue=value)
    client.ack(good)
    client.subscribe(
        DMQ, "dead", selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{queue.removeprefix('/queue/')}'"
    )
    assert client.message()["message-id"] == poison["message-id"]


def test_nack_in_a_transaction_counts_at_commit(connect: Connect, queue: str) -> None:
    client = connect()
    client.put(queue, "poison")
    client.send("BEGIN", transaction="t")
    client.subscribe(queue, transaction="t")
    client.nack(client.message(), requeue="false")
    client.send("ABORT", transaction="t")
    client.send("BEGIN", transaction="t")
    client.nack(client.message(), requeue="false")
    client.send("COMMIT", transaction="t")
    client.subscribe(
        DMQ, "dead", selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{queue.removeprefix('/queue/')}'"
    )
    assert client.message().text == "poison"


@pytest.mark.parametrize(
    "header",
    [
        "activemq.maximumRedeliveries:-2",
        "activemq.initialRedeliveryDelay:-1",
        "activemq.redeliveryDelay:soon",
        "activemq.backOffMultiplier:0.5",
        "activemq.maximumRedeliveryDelay:x",
    ],
)
def test_nack_policy_that_is_none_is_an_error_that_names_it(
    connect: Connect, queue: str, header: str
) -> None:
    name, _, value = header.partition(":")
    client = connect()
    client.send("SUBSCRIBE", {"destination": queue, name: value}, id="1")
    client.error(name)


# ABORT, disconnect: at once, in order, marked, counted, without limit.


@pytest.mark.parametrize("orderly", [True, False])
def test_given_back_is_redelivered_at_once_in_order_and_without_limit(
    connect: Connect, queue: str, orderly: bool
) -> None:
    client = connect()
    client.put(queue, "1", "2", "3")
    start = time.monotonic()
    for attempt in range(1, 9):
        client.subscribe(queue, ack="client-individual")
        held = client.messages(3)
        assert bodies(held) == ["1", "2", "3"]
        assert [message.headers.get("JMSXDeliveryCount", "1") for message in held] == [
            str(attempt)
        ] * 3
        if orderly:
            client.disconnect()
        else:
            client.close()
        client = connect()
    assert time.monotonic() - start < 100, "as many refusals would have taken more than two minutes"


def test_given_back_too_often_is_dead_where_the_operator_says_so(
    start_gateway: Callable[..., GatewayProcess], connect: Connect
) -> None:
    """``imq.transaction.message.maxConsecutiveRollbacks``."""
    gateway = start_gateway(
        store="memory", settings={"imq.transaction.message.maxConsecutiveRollbacks": "3"}
    )
    client = connect(to=gateway)
    client.put("/queue/q", "poison")
    client.send("BEGIN", transaction="t")
    client.subscribe("/queue/q", transaction="t")
    for attempt in range(1, 4):
        message = client.message()
        assert message.headers.get("JMSXDeliveryCount", "1") == str(attempt)
        client.ack(message)
        client.send("ABORT", transaction="t")
        client.send("BEGIN", transaction="t")
    client.subscribe(DMQ, "dead")
    dead = client.message()
    assert (dead["subscription"], dead["JMS_SUN_DMQ_UNDELIVERED_REASON"]) == (
        "dead",
        "UNDELIVERABLE",
    )


# Body types that STOMP cannot carry.


@pytest.mark.parametrize("queue", [DMQ, "/queue/browsed"])
def test_unsendable_does_not_end_a_browser(connect_there: Connect, queue: str) -> None:
    """It is shown in an envelope; one that the transformer fails on is shown without contents."""
    sender, client = connect_there(), connect_there()
    which = uuid4().hex
    for body, wish in (("1", "none"), ("2", "map"), ("3", "refuse out"), ("4", "none")):
        sender.put(queue, body, wish=wish, which=which)
    # What the transformer has made has no property but the wish.
    client.subscribe(queue, "b", browser="true", selector=f"which = '{which}' OR wish = 'map'")
    messages = []
    while (message := client.message()).headers.get("browser") != "end":
        messages.append(message)
    assert [message.text for message in messages if "which" in message] == ["1", "4"]
    [shown] = [message for message in messages if "envelope" in message]
    assert "MAP" in shown["transformation-error"]
    assert (shown["envelope"], shown["content-type"]) == (
        "true",
        "application/vnd.stomp-gateway.envelope",
    )
    assert shown.body
    [hidden] = [message for message in messages if "wish" not in message]
    assert (hidden.body, hidden["destination"]) == (b"", queue)
    assert "failed" in hidden["transformation-error"]
    assert "secret" not in hidden["transformation-error"]
    # The connection is as good as before.
    client.send("UNSUBSCRIBE", id="b")
    assert client.sync() == []


def test_unsendable_cannot_be_claimed_by_a_sender(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "transformation-error": "forged"})
    assert "transformation-error" not in client.message()


def test_unsendable_closes_the_connection_and_dies_of_it(connect_there: Connect) -> None:
    """The connection is closed; the message counts an attempt each time, so it cannot stop
    reconnecting clients for ever.
    """
    sender = connect_there()
    sender.put("/queue/unsendable", "x", wish="map")
    sender.put("/queue/unsendable", "marker")
    for _ in range(3):
        client = connect_there()
        client.send("SUBSCRIBE", destination="/queue/unsendable", id="s", ack="client")
        client.error("MAP")
    client = connect_there()
    client.subscribe("/queue/unsendable", ack="client")
    assert client.message().text == "marker"


# Transformer class from <varhome>/lib/ext, in both directions, and its failures.


def test_transformer_makes_text_of_what_stomp_cannot_carry(
    connect_there: Connect, queue: str, version: str
) -> None:
    client = connect_there(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "wish": "spell"}, "x")
    assert client.message().text == "answer=42"


def test_transformer_changes_what_comes_in(connect_there: Connect, queue: str) -> None:
    client = connect_there()
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "wish": "change"}, "small")
    assert client.message().text == "SMALL"


def test_transformer_copies_what_goes_out(connect_there: Connect, queue: str) -> None:
    client = connect_there()
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "wish": "copy", "colour": "red"}, "text")
    message = client.message()
    assert (message.text, message["seen"], message["colour"]) == ("text, copied", "yes", "red")


def test_transformer_is_told_what_the_guide_says(connect_there: Connect, queue: str) -> None:
    client = connect_there()
    client.subscribe(queue)
    client.send(
        "SEND", {"destination": queue, "wish": "tell", "x-foo": "bar", "colour": "red"}, "t"
    )
    assert client.message()["told"] == "False UTF-8 STOMP SUN_MQ [('x-foo', 'bar')] TEXT"
    client.send("SEND", {"destination": queue, "wish": "tell", "content-length": "1"}, "b")
    assert client.message()["told"] == "False UTF-8 STOMP SUN_MQ None BYTES"
    client.send("SEND", {"destination": queue, "wish": "tell out"}, "t")
    assert client.message().text == "True None SUN_MQ STOMP None"


@pytest.mark.parametrize("wish", ["refuse in", "nothing in"])
def test_transformer_that_fails_on_a_send_is_an_error_without_its_secrets(
    connect_there: Connect, queue: str, wish: str
) -> None:
    client = connect_there()
    client.put(queue, "before")
    client.send("SEND", {"destination": queue, "wish": wish}, "x", receipt="r")
    error = client.error()
    assert "Rewriting" in error["message"]
    assert "secret" not in error.text
    assert error["receipt-id"] == "r"
    other = connect_there()
    other.put(queue, "marker")
    other.subscribe(queue)
    assert bodies(other.messages(2)) == ["before", "marker"]


# Selectors on user headers.


@pytest.mark.parametrize(
    "selector",
    [
        "urgent = true",
        "urgent",
        "urgent <> FALSE",
        "NOT calm",
        "urgent AND size > 4",
        "(size = 5) = urgent",
        "shout = TRUE",
    ],
)
def test_a_header_that_reads_as_what_is_needed_counts_as_that(
    connect: Connect, queue: str, selector: str
) -> None:
    client = connect()
    client.put(queue, "no", urgent="false", calm="true", size="5", shout="maybe")
    client.put(queue, "neither", urgent="perhaps", calm="perhaps", size="five", shout="")
    client.put(queue, "yes", urgent="true", calm="false", size="5", shout="TRUE")
    client.subscribe(queue, selector=selector)
    assert client.message().text == "yes"


@pytest.mark.parametrize("wish", ["refuse out", "write"])
def test_transformer_that_fails_on_a_delivery_ends_the_connection_and_keeps_the_message(
    connect_there: Connect, queue: str, wish: str
) -> None:
    """``write`` changes a read-only message in place, which is refused."""
    client = connect_there()
    client.put(queue, "1", wish=wish)
    client.send("SUBSCRIBE", destination=queue, id="s", ack="client")
    error = client.error()
    assert "Rewriting" in error["message"]
    assert "secret" not in error.text
    browser = connect_there()
    browser.put(queue, "marker")
    browser.subscribe(queue, selector="wish IS NULL")
    assert browser.message().text == "marker"


def test_transformer_leaves_other_messages_alone(
    connect_there: Connect, queue: str, version: str
) -> None:
    client = connect_there(version)
    client.subscribe(queue)
    client.send(
        "SEND", {"destination": queue, "content-length": "3", "x-foo": "bar"}, b"\xff\0\xfe"
    )
    message = client.message()
    assert (message.body, message["x-foo"]) == (b"\xff\0\xfe", "bar")


def test_transformer_spelt_with_a_dot_is_the_same(
    start_gateway: Callable[..., GatewayProcess], tmp_path: Path, connect: Connect
) -> None:
    package = tmp_path / "var" / "lib" / "ext" / "conformance_package"
    package.mkdir(parents=True)
    shutil.copy(rewriting.__file__, package / "__init__.py")
    gateway = start_gateway(
        store="memory",
        settings={"imq.bridge.stomp.messageTransformer": "conformance_package.Rewriting"},
    )
    client = connect(to=gateway)
    client.subscribe("/queue/q")
    client.send("SEND", {"destination": "/queue/q", "wish": "change"}, "small")
    assert client.message().text == "SMALL"


# consumerFlowLimit.


@pytest.mark.parametrize("prefetch", [None, "3", "100"])
def test_consumer_flow_limit_is_a_hard_cap_of_a_transacted_subscription(
    connect_there: Connect, queue: str, version: str, prefetch: str | None
) -> None:
    most = min(int(prefetch or 5), 5)
    client = connect_there(version)
    client.put(queue, *map(str, range(20)))
    client.send("BEGIN", transaction="t")
    client.subscribe(
        queue, transaction="t", **({} if prefetch is None else {"prefetch-count": prefetch})
    )
    held = client.messages(most)
    assert client.sync() == []
    client.ack(held[1])
    assert client.sync() == [], "acknowledged in a transaction is not yet consumed"
    client.send("COMMIT", transaction="t")
    assert client.sync() == []
    client.send("BEGIN", transaction="t")
    assert bodies(client.messages(2)) == [str(most), str(most + 1)]
    assert client.sync() == []


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_consumer_flow_limit_is_the_default_credit_of_others(
    connect_there: Connect, queue: str, version: str, ack: str
) -> None:
    client = connect_there(version)
    client.put(queue, *map(str, range(20)))
    client.subscribe(queue, ack=ack)
    held = client.messages(5)
    assert client.sync() == []
    client.ack(held[0])
    assert client.message().text == "5"
    assert client.sync() == []
    assert client.ask("UNSUBSCRIBE", id="s") == []
    client.subscribe(queue, "more", ack=ack, **{"prefetch-count": "10"})
    assert len(client.messages(10)) == 10


def test_consumer_flow_limit_does_not_bind_ack_auto(connect_there: Connect, queue: str) -> None:
    client = connect_there()
    client.put(queue, *map(str, range(50)))
    client.subscribe(queue)
    assert bodies(client.messages(50)) == [*map(str, range(50))]


# Temporary destinations.


def test_temporary_names_are_random_with_128_bits(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    names = []
    for number in range(20):
        client.send("SEND", {"destination": queue, "reply-to": f"/temp-queue/{number}"})
        names.append(
            client.message()["reply-to"].removeprefix("/temp-queue/temporary_destination://queue/")
        )
    assert len(set(names)) == 20
    assert all(re.fullmatch(r"[0-9a-f]{32}", name) for name in names), names
    for earlier, later in pairwise(names):
        assert bin(int(earlier, 16) ^ int(later, 16)).count("1") > 20


# What an operator's stop looks like to clients.


def test_stopping_tells_each_client_rolls_back_and_leaves_the_port_mapper(
    start_gateway: Callable[..., GatewayProcess], certificates: Certificates, connect: Connect
) -> None:
    gateway = start_gateway(tls=certificates)
    assert gateway.mapped_ports() == {gateway.port, gateway.tls_port}
    client, idle = connect(to=gateway), connect(to=gateway)
    client.put("/queue/q", "1")
    client.send("BEGIN", transaction="t")
    client.subscribe("/queue/q", transaction="t")
    client.ack(client.message())
    assert client.ask("SEND", {"destination": "/queue/q", "transaction": "t"}, "never") == []
    assert gateway.terminate() == 0
    for late in ("it did not go when the bridge stopped", "has not done in"):
        assert late not in gateway.log
    for each in (client, idle):
        each.error("stop")
    assert gateway.mapped_ports() == set()
    gateway.start()
    again = connect(to=gateway)
    again.put("/queue/q", "marker")
    again.subscribe("/queue/q")
    assert [(message.text, message["redelivered"]) for message in again.messages(2)] == [
        ("1", "true"),
        ("marker", "false"),
    ]
