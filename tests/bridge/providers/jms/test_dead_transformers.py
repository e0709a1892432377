"""Message transformers of dead message queues that are classes in Java.

A real gateway has a bridge whose link can transfer nothing: each message is dead.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from gateway.messaging.envelope import decode
from gateway.messaging.message import Message
from tests.bridge.providers.jms.stubs import compiled
from tests.bridge.providers.jms.test_transformers import STUB, package
from tests.conformance.client import Client
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.process

BUILT_IN: Final = "imq.bridge.jms.dmq"
FILE: Final = """\
<jmsbridge name="orders">
  <link name="refused" transacted="false" failure-retry-interval="100">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="stub" destination-ref="stub" message-transformer-class="com.acme.Refuses" consume-no-transfer-on-transform-error="true"/>
  </link>
  {dmqs}
  <connection-factory ref-name="here"/>
  {stub}
  <destination ref-name="in" name="IN" type="queue"/>
  <destination ref-name="stub" name="STUB" type="queue"/>
  <destination ref-name="second" name="SECOND" type="queue"/>
</jmsbridge>
"""
BOTH: Final = """\
  <dmq name="built-in-dmq" message-transformer-class="com.acme.Changes">
    <property name="shop" value="Bonn"/>
  </dmq>
  <dmq name="second" connection-factory-ref="here" destination-ref="second" message-transformer-class="java:com.acme.Renamed"/>
"""


@pytest.fixture(scope="module")
def classes() -> Path:
    return compiled("javax")


def gateway_with(folder: Path, classes: Path, dmqs: str) -> GatewayProcess:
    gateway = GatewayProcess(
        folder,
        settings={
            "imq.bridge.activelist": "stomp,orders",
            "imq.bridge.orders.type": "jms",
            "imq.bridge.orders.xmlurl": "orders.xml",
        },
    )
    file = gateway.directory / "etc" / "orders.xml"
    file.parent.mkdir(parents=True)
    file.write_text(FILE.format(stub=STUB.format(classes=classes), dmqs=dmqs))
    ext = folder / "lib" / "ext"
    ext.mkdir(parents=True)
    package(classes, "javax", ext)
    return gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, classes: Path) -> Iterator[GatewayProcess]:
    with gateway_with(tmp_path_factory.mktemp("dead"), classes, BOTH) as running:
        running.wait_for_output("bridge orders STARTED: link refused STARTED")
        yield running


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[Client]:
    with closing(Client(gateway.port)) as client:
        client.connect()
        client.ask("SUBSCRIBE", {"destination": f"/queue/{BUILT_IN}", "id": "0"})
        client.ask("SUBSCRIBE", {"destination": "/queue/SECOND", "id": "1"})
        yield client


def put(client: Client, text: str, **properties: str) -> None:
    """Send a TextMessage that the link cannot transfer."""
    client.send("SEND", {"destination": "/queue/IN", **properties}, text)


def dead(client: Client) -> tuple[Message, Message]:
    """What is in the envelopes in the built-in queue and the other."""
    first, second = sorted(
        (client.message(), client.message()), key=lambda frame: frame.headers["subscription"]
    )
    assert first.headers["JMS_SUN_JMSBRIDGE_DMQ_REASON"] == "TRANSFORM_FAILURE"
    assert "not one of ours" in first.headers["JMS_SUN_JMSBRIDGE_DMQ_EXCEPTION"]
    return decode(first.body), decode(second.body)


def test_each_queue_has_what_its_own_class_makes_of_the_message(client: Client) -> None:
    put(client, "quiet", do="upper")
    built_in, second = dead(client)
    assert (built_in.text, built_in.headers.properties["was"]) == ("QUIET", "upper")
    # The provider of the source is this instance's broker.
    assert second.text == "quiet"
    assert second.headers.properties == {"by": "Renamed from stomp-gateway"}


def test_it_is_told_the_properties_of_the_queue(client: Client) -> None:
    put(client, "", do="tell")
    first = dead(client)[0].text
    put(client, "", do="tell")
    again = dead(client)[0].text
    read_only, charset, source, target, properties = first.split("|")[:5]
    assert (read_only, charset, source, target) == (
        "true",
        "null",
        "stomp-gateway",
        "stomp-gateway",
    )
    assert properties == "{shop=Bonn}"
    # There is one object for the queue.
    assert int(again.rpartition("|")[2]) == int(first.rpartition("|")[2]) + 1


@pytest.mark.parametrize("what", ["throw", "null", "error"])
def test_one_that_fails_leaves_the_message_as_it_was(
    gateway: GatewayProcess, client: Client, what: str
) -> None:
    put(client, "kept", do=what)
    assert dead(client)[0].text == "kept"
    logs = (gateway.directory / "bridges" / "orders").glob("*.log*")
    assert any("com.acme.Changes" in log.read_text() for log in logs)


@pytest.mark.parametrize("what", ["drop", "queue"])
def test_what_is_dead_goes_to_its_queue_wherever_the_class_wants_it(
    client: Client, what: str
) -> None:
    put(client, "kept", do=what)
    assert dead(client)[0].text == "kept"


def test_a_java_process_that_is_killed_in_it_loses_no_dead_message(
    gateway: GatewayProcess, client: Client, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    begun.touch()
    put(client, "kept", do="hang", file=str(begun))
    while begun.exists():
        os.sched_yield()
    kill_java(gateway)
    assert dead(client)[0].text == "kept"
    put(client, "again", do="upper")
    assert dead(client)[0].text == "AGAIN"


def kill_java(gateway: GatewayProcess) -> None:
    """Kill the Java processes that are children of the gateway."""
    children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
    for pid in map(int, children):
        if "java" in Path(f"/proc/{pid}/comm").read_text():
            os.kill(pid, signal.SIGKILL)


def test_without_its_class_the_bridge_does_not_start(tmp_path: Path, classes: Path) -> None:
    missing = '<dmq name="built-in-dmq" message-transformer-class="com.acme.Missing"/>'
    with gateway_with(tmp_path, classes, missing) as gateway:
        gateway.wait_for_output("is ready")
        gateway.wait_for_output("there is no class com.acme.Missing in")
