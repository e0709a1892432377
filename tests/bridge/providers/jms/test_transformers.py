"""Message transformers of links that are classes in Java.

A class as it was written for Open MQ lies in a jar, compiled here, and its link is between a broker
and the stub provider.
"""

from __future__ import annotations

import os
import shutil
import signal
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from twisted.internet.threads import deferToThread

from bridge.config.model import Destination as Configured
from bridge.config.model import QualityOfService, Rule, SetHeader
from bridge.connections.administered import AdministeredFactory
from bridge.jms_link import JMSLink
from bridge.link.status import LinkState, OnceBy
from bridge.providers.jms import build
from bridge.providers.jms.provider import JMSProvider
from bridge.providers.jms.transforming import TransformerSession
from bridge.transformers import NoTransformer, link_transformer
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.message import BodyType, Message
from gateway.messaging.provider import ConsumerSpec
from gateway.messaging.transformer import MessageTransformer
from tests.bridge.link_pair import SOURCE, TARGET, Rig, Side, in_state, until
from tests.bridge.providers.jms.branches import provider_at
from tests.bridge.providers.jms.stubs import (
    GUEST,
    compiled,
    not_lost,
    received,
    send,
    stub_provider,
)
from tests.crash.client import Client
from tests.gateway_process import GatewayProcess
from tests.on_reactor import on_reactor
from tests.servers import activemq

TOLERANT: Final = {"consume_no_transfer_on_transform_error": True}
ELSEWHERE: Final = Configured("elsewhere", "by.name", Kind.QUEUE)


@pytest.fixture(scope="module")
def classes() -> Path:
    return compiled("javax")


@pytest.fixture(scope="module")
def jars(classes: Path) -> Any:
    """The operator's folder."""
    with TemporaryDirectory(prefix="ext-") as folder:
        package(classes, "javax", Path(folder))
        yield Path(folder)


def package(classes: Path, namespace: str, folder: Path, words: str = "Renamed from ") -> None:
    """Compile the transformers, and put them and nothing else into a jar.

    :param words: what one of them says.
    """
    here = Path(__file__).parent / "acme"
    with TemporaryDirectory() as name:
        sources, made = Path(name) / "sources", Path(name) / "classes"
        build.write_transformer(sources, namespace)
        for path in here.rglob("*.java"):
            text = path.read_text(encoding="utf-8").replace("Renamed from ", words)
            if namespace != "javax":
                text = build.other_namespace(text)
            (sources / path.name).write_text(text, encoding="utf-8")
        build.compile_sources(sources, made, classes, build.JARS / build.JAR)
        with zipfile.ZipFile(folder / "acme.jar", "w") as jar:
            for path in (made / "com" / "acme").iterdir():
                jar.write(path, path.relative_to(made).as_posix())


def no_python(name: str, where: str) -> MessageTransformer:
    raise LookupError(f"{where}={name}: not in Python")


class Linked:
    """A link with a transformer from or to a queue of the stub provider."""

    def __init__(self, rig: Rig, provider: JMSProvider, at_source: bool) -> None:
        self.rig = rig
        self.provider = provider
        self.at_source = at_source
        #: The stub's queue, whose name no other test has.
        self.queue = Queue(f"transformers.{os.urandom(6).hex()}")
        #: Of sessions without XA.
        self.reader = provider
        side: Side = rig.source if at_source else rig.target
        side.factory = AdministeredFactory(
            side.config, provider, GUEST, "jms", find=provider.look_up_factory
        )

    def link(self, name: str, jars: Path | None, **more: Any) -> JMSLink:
        rig = self.rig
        ends = {"of": self.queue} if self.at_source else {"to": self.queue}
        made = link_transformer(
            name, "here", rig.source.factory, rig.target.factory, no_python, jars
        )
        more.setdefault("max_batch_size", 20)
        bridge = {"destinations": (ELSEWHERE,)}
        return rig.link(transformer=made, bridge=bridge, **{**ends, **more})  # type: ignore[arg-type]

    async def started(self, name: str, jars: Path | None, **more: Any) -> JMSLink:
        link = self.link(name, jars, **more)
        await link.start()
        in_state(link, LinkState.STARTED)
        return link

    async def send(self, *bodies: str, do: str | None = None, **properties: Any) -> None:
        if do is not None:
            properties["do"] = do
        if not self.at_source:
            await self.rig.source.send(*bodies, properties=properties)
            return
        connection = await self.reader.connect(GUEST, None, not_lost)
        octets = [body.encode() for body in bodies]
        await send(connection, self.queue, *octets, body_type=BodyType.TEXT, properties=properties)
        await connection.close()

    async def arrived(self, count: int = 1, of: Destination | None = None) -> list[Message]:
        if self.at_source:
            return await self.rig.target.arrived(count, of or TARGET)
        connection = await self.reader.connect(GUEST, None, not_lost)
        found = await received(connection, ConsumerSpec(of or self.queue), count)
        await connection.close()
        return [message for message, _ in found]


@pytest.fixture(params=["source", "target"])
def linked(brokers: Rig, classes: Path, request: pytest.FixtureRequest) -> Linked:
    """Both, and Java at either end."""
    return Linked(brokers, stub_provider(classes), request.param == "source")


@pytest.fixture
def from_java(brokers: Rig, classes: Path) -> Linked:
    return Linked(brokers, stub_provider(classes), True)


@on_reactor
async def test_messages_are_changed_and_made_anew(linked: Linked, jars: Path) -> None:
    link = await linked.started("com.acme.Changes", jars)
    await linked.send("as it is", colour="red")
    await linked.send("louder", do="upper", colour="red")
    await linked.send("gone", do="clear", colour="red")
    await linked.send("any", do="bytes")
    await linked.send("any", do="object")
    same, upper, cleared, octets, serialised = await linked.arrived(5)
    assert (same.text, same.headers.properties["colour"]) == ("as it is", "red")
    assert (upper.text, upper.headers.properties["was"]) == ("LOUDER", "upper")
    assert (cleared.text, cleared.headers.properties["was"]) == ("cleared", "clear")
    for changed in (upper, cleared):
        assert {"do", "colour"}.isdisjoint(changed.headers.properties)
    assert (octets.headers.body_type, octets.body) == (BodyType.BYTES, b"\x00\x01\xff")
    assert serialised.headers.body_type is BodyType.OBJECT
    assert b"serialised" in serialised.body
    await link.stop()


@on_reactor
async def test_it_is_told_all_that_open_mq_tells(linked: Linked, jars: Path) -> None:
    link = await linked.started(
        "java:com.acme.Changes", jars, target={"properties": {"colour": "red"}}
    )
    await linked.send("1", "2")
    await linked.send("3", do="tell")
    told = (await linked.arrived(3))[2].text.split("|")
    read_only, charset, source, target, properties, message_id, timestamp, priority, _, calls = told
    assert (read_only, charset) == ("true", "null")
    assert (source == "Stub", target == "Stub") == (linked.at_source, not linked.at_source)
    assert properties == "{JMS_SUN_JMSBRIDGE_NAME=bridge, colour=red}"
    assert message_id
    assert int(timestamp) > 0
    assert (priority, calls) == ("4", "3")
    await link.stop()


@on_reactor
async def test_messages_go_elsewhere_or_nowhere(linked: Linked, jars: Path) -> None:
    link = await linked.started("com.acme.Changes", jars)
    await linked.send("by name", do="name")
    await linked.send("by queue", do="queue")
    await linked.send("dropped", do="drop")
    await linked.send("usual")
    assert [one.text for one in await linked.arrived()] == ["usual"]
    assert [one.text for one in await linked.arrived(of=Queue("by.name"))] == ["by name"]
    [other] = await linked.arrived(of=Queue("by.queue"))
    assert (other.text, other.headers.reply_to) == ("by queue", Topic("answers"))
    await until(lambda: link.status().counters.acknowledged == 4)
    assert link.status().counters.not_transferred == 1
    await link.stop()


@on_reactor
async def test_rules_come_before_it_and_it_has_the_last_word(linked: Linked, jars: Path) -> None:
    rules = (
        Rule("colour = 'grey'", drop=True),
        Rule("colour = 'red'", sets=(SetHeader("do", "upper"),), destination=ELSEWHERE),
        Rule("colour = 'blue'", sets=(SetHeader("do", "queue"),), destination=ELSEWHERE),
    )
    link = await linked.started("com.acme.Changes", jars, target={"rules": rules})
    # On this the class would fail.
    await linked.send("never seen", do="throw", colour="grey")
    await linked.send("louder", colour="red")
    await linked.send("its own way", colour="blue")
    assert [one.text for one in await linked.arrived(of=Queue("by.name"))] == ["LOUDER"]
    assert [one.text for one in await linked.arrived(of=Queue("by.queue"))] == ["its own way"]
    await until(lambda: link.status().counters.acknowledged == 3)
    assert link.status().counters.not_transferred == 1
    await link.stop()


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("null", "it returned null, not a message"),
        ("throw", "it threw java.lang.IllegalArgumentException: not this one"),
        ("error", "it threw java.lang.NoClassDefFoundError: com/acme/Other"),
        ("property", "MessageNotWriteableException: setStringProperty: the message is read-only"),
        ("body", "MessageNotWriteableException: setText: the message is read-only"),
        ("number", "branchTo takes a Destination or the ref-name of one, not a java.lang.Integer"),
        ("unknown", "it branched to 'unknown', which is no ref-name"),
    ],
)
@on_reactor
async def test_what_fails_is_dead_and_the_others_go_on(
    from_java: Linked, jars: Path, what: str, told: str
) -> None:
    linked = from_java
    await linked.send("before")
    await linked.send("fails", do=what)
    await linked.send("behind")
    link = await linked.started("com.acme.Changes", jars, target=TOLERANT)
    assert [one.text for one in await linked.arrived(2)] == ["before", "behind"]
    await linked.rig.finishes(link, 3)
    [dead] = linked.rig.graves.dead
    assert (dead.reason, dead.message.text) == (BridgeDeadReason.TRANSFORM_FAILURE, "fails")
    assert "the message transformer com.acme.Changes failed on a message from" in dead.exception
    assert told in dead.exception


@on_reactor
async def test_a_failure_stops_a_link_that_is_told_to(from_java: Linked, jars: Path) -> None:
    linked = from_java
    link = await linked.started("com.acme.Changes", jars)
    await linked.send("before")
    await linked.send("fails", do="throw")
    await linked.rig.reaches(link, LinkState.FAILED)
    assert "not this one" in link.status().last_error
    assert linked.rig.graves.dead == []
    # Neither consumed nor sent.
    connection = await linked.provider.connect(GUEST, None, not_lost)
    left = await received(connection, ConsumerSpec(linked.queue), 1)
    await connection.close()
    assert [message.text for message, _ in left][-1] in ("fails", "before")


@on_reactor
async def test_there_is_one_object_however_often_the_link_connects(
    linked: Linked, jars: Path
) -> None:
    link = await linked.started("com.acme.Changes", jars)
    await linked.send("1", do="tell")
    first = await linked.arrived()
    await link.stop()
    await link.start()
    await linked.send("2", do="tell")
    again = await linked.arrived()
    assert [one.text.split("|")[-1] for one in (*first, *again)] == ["1", "2"]
    await link.stop()


@on_reactor
async def test_a_batch_is_asked_together(
    brokers: Rig, classes: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = Linked(brokers, stub_provider(classes), False)
    bodies = [str(number) for number in range(100)]
    await linked.send(*bodies, do="upper")
    link = linked.link("com.acme.Changes", jars, max_batch_size=100, max_batch_time_ms=1000)
    asked: list[int] = []
    before = TransformerSession._ask

    def ask(session: TransformerSession, question: bytes, *others: Any) -> Any:
        asked.append(len(question))
        return before(session, question, *others)

    monkeypatch.setattr(TransformerSession, "_ask", ask)
    await link.start()
    assert [one.text for one in await linked.arrived(100)] == bodies
    await link.stop()
    # One to make it, and one for each 32 messages.
    assert len(asked) == 5


# --- classes


@on_reactor
async def test_a_class_on_the_class_path_of_the_provider_comes_with_what_is_beside_it(
    brokers: Rig, classes: Path, jars: Path
) -> None:
    linked = Linked(brokers, stub_provider(Path(f"{classes}:{jars / 'acme.jar'}")), False)
    link = await linked.started("com.acme.Renamed", None)
    await linked.send("any")
    [message] = await linked.arrived()
    by = str(message.headers.properties["by"])
    assert by.startswith("Renamed from ")
    await link.stop()


@pytest.mark.long
@on_reactor
async def test_a_link_that_is_made_anew_takes_the_new_jar(
    brokers: Rig, classes: Path, tmp_path: Path
) -> None:
    linked = Linked(brokers, stub_provider(classes), False)
    for words in ("The first from ", "The second from "):
        package(classes, "javax", tmp_path, words)
        link = await linked.started("com.acme.Renamed", tmp_path)
        await linked.send("any")
        [message] = await linked.arrived()
        assert str(message.headers.properties["by"]).startswith(words)
        await link.stop()


@on_reactor
async def test_a_class_of_which_none_can_be_made_fails_the_link(
    from_java: Linked, jars: Path
) -> None:
    link = from_java.link("com.acme.Fails", jars)
    await link.start()
    await from_java.rig.reaches(link, LinkState.FAILED)
    error = link.status().last_error
    assert "the message transformer com.acme.Fails cannot be used: its constructor threw" in error
    assert f"no licence; it is in {jars / 'acme.jar'}" in error


@on_reactor
async def test_a_class_that_is_no_transformer_fails_the_link(from_java: Linked, jars: Path) -> None:
    link = from_java.link("stub.StubProvider", jars)
    await link.start()
    await from_java.rig.reaches(link, LinkState.FAILED)
    assert "stub.StubProvider extends neither com.sun" in link.status().last_error


def refusal(name: str, rig: Rig, jars: Path | None) -> str:
    with pytest.raises(NoTransformer) as refused:
        link_transformer(name, "here", rig.source.factory, rig.target.factory, no_python, jars)
    return str(refused.value)


@on_reactor
async def test_a_class_that_is_nowhere_is_refused_with_the_places(
    from_java: Linked, classes: Path, jars: Path
) -> None:
    places = f"there is no class com.acme.None in {classes} nor in {jars}/*.jar"
    said = refusal("com.acme.None", from_java.rig, jars)
    assert said == f"here=com.acme.None: not in Python; and in Java: {places}"
    said = refusal("java:com.acme.None", from_java.rig, jars)
    assert said == f"here=java:com.acme.None: {places}"
    # Of a module and a class it is clear that they are in Python.
    assert (
        refusal("com.acme:Changes", from_java.rig, jars) == "here=com.acme:Changes: not in Python"
    )


@on_reactor
async def test_without_a_jms_provider_no_class_is_in_java(brokers: Rig, jars: Path) -> None:
    assert refusal("com.acme.Changes", brokers, jars) == "here=com.acme.Changes: not in Python"
    assert "neither source nor target is one" in refusal("java:com.acme.Changes", brokers, jars)


@pytest.mark.long
@on_reactor
async def test_a_class_for_jakarta_jms_runs_likewise(brokers: Rig, tmp_path: Path) -> None:
    classes = compiled("jakarta")
    package(classes, "jakarta", tmp_path)
    linked = Linked(brokers, stub_provider(classes), True)
    link = await linked.started("com.acme.Changes", tmp_path)
    await linked.send("louder", do="upper")
    assert [one.text for one in await linked.arrived()] == ["LOUDER"]
    await link.stop()


# --- what goes wrong


async def kill(provider: JMSProvider) -> None:
    process = provider._supervisor.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: process.error is not None)


@pytest.mark.parametrize("at_source", [True, False])
@on_reactor
async def test_a_java_process_that_is_killed_in_a_transform_loses_nothing(
    brokers: Rig, classes: Path, jars: Path, tmp_path: Path, at_source: bool
) -> None:
    # A process of its own, as the stub's queues end with it, and it is started again at once.
    provider = stub_provider(classes, process=f"killed {at_source}")
    linked = Linked(brokers, provider, at_source)
    link = await linked.started("com.acme.Changes", jars)
    hanging = tmp_path / "hanging"
    hanging.touch()
    await linked.send("hangs", do="hang", file=str(hanging))
    await until(lambda: not hanging.exists())
    await kill(provider)
    await until(lambda: any("killed by SIGKILL" in line for line in brokers.warned))
    if not at_source:
        # The broker has it still.
        assert [one.text for one in await linked.arrived()] == ["hangs"]
        assert link.status().counters.sent == 1
    else:
        await brokers.reaches(link, LinkState.STARTED)
    assert brokers.graves.dead == []
    await link.stop()


@on_reactor
async def test_one_that_hangs_is_given_up_and_the_message_comes_again(
    brokers: Rig, classes: Path, jars: Path, tmp_path: Path
) -> None:
    provider = stub_provider(classes, process="hanging", send_timeout_s=1.0)
    linked = Linked(brokers, provider, True)
    link = await linked.started("com.acme.Changes", jars)
    hanging = tmp_path / "hanging"
    hanging.touch()
    await linked.send("hangs", do="hang", file=str(hanging))
    assert [one.text for one in await linked.arrived()] == ["hangs"]
    assert any("did not return within 1 s" in line for line in brokers.warned)
    assert brokers.graves.dead == []
    await link.stop()


@pytest.mark.long
@on_reactor
async def test_a_stop_does_not_wait_for_one_that_hangs(
    brokers: Rig, classes: Path, jars: Path, tmp_path: Path
) -> None:
    provider = stub_provider(classes, process="stopped", send_timeout_s=7.0)
    linked = Linked(brokers, provider, False)
    link = await linked.started("com.acme.Changes", jars)
    hanging = tmp_path / "hanging"
    hanging.touch()
    await linked.send("hangs", do="hang", file=str(hanging))
    await until(lambda: not hanging.exists())
    await link.stop()
    in_state(link, LinkState.STOPPED)
    assert await brokers.source.rest(SOURCE) == ["hangs"]


# --- in transactions

ONCE: Final = {"quality_of_service": QualityOfService.ONCE_AND_ONLY_ONCE}


def transacted(brokers: Rig, classes: Path, process: str = "") -> Linked:
    """From the broker to the stub's XA sessions, all in one transaction."""
    linked = Linked(brokers, stub_provider(classes, "xa", process=process), False)
    linked.reader = stub_provider(classes, process=process)
    return linked


@on_reactor
async def test_an_xa_link_transforms_within_its_transactions(
    brokers: Rig, classes: Path, jars: Path
) -> None:
    linked = transacted(brokers, classes)
    link = await linked.started("com.acme.Changes", jars, target=TOLERANT, **ONCE)
    await linked.send("louder", do="upper")
    await linked.send("fails", do="throw")
    await linked.send("dropped", do="drop")
    await linked.send("elsewhere", do="name")
    await linked.send("as it is")
    assert [one.text for one in await linked.arrived(2)] == ["LOUDER", "as it is"]
    assert [one.text for one in await linked.arrived(of=Queue("by.name"))] == ["elsewhere"]
    await linked.rig.acknowledges(link, 5)
    assert [dead.message.text for dead in brokers.graves.dead] == ["fails"]
    assert link.status().counters.not_transferred == 1
    assert link.status().once_by is OnceBy.XA
    await link.stop()


@on_reactor
async def test_a_java_process_that_is_killed_rolls_the_transaction_back(
    brokers: Rig, classes: Path, jars: Path, tmp_path: Path
) -> None:
    linked = transacted(brokers, classes, "killed in XA")
    link = await linked.started("com.acme.Changes", jars, max_batch_time_ms=50, **ONCE)
    hanging = tmp_path / "hanging"
    hanging.touch()
    await linked.send("1", "2", do="hang", file=str(hanging))
    await until(lambda: not hanging.exists())
    await kill(linked.provider)
    assert [one.text for one in await linked.arrived(2)] == ["1", "2"]
    await linked.rig.finishes(link, 2)
    assert link.status().counters.sent == 2


@pytest.mark.brokers
@pytest.mark.parametrize(
    ("lookup_name", "quality"),
    [
        ("ConnectionFactory", QualityOfService.DUPLICATES_OK),
        ("XAConnectionFactory", QualityOfService.ONCE_AND_ONLY_ONCE),
    ],
)
@on_reactor
async def test_messages_of_activemq(
    brokers: Rig, jars: Path, lookup_name: str, quality: QualityOfService
) -> None:
    server = await deferToThread(activemq)
    linked = Linked(brokers, provider_at(server.openwire_port, lookup_name), True)
    linked.reader = provider_at(server.openwire_port, "ConnectionFactory")
    link = await linked.started("com.acme.Changes", jars, quality_of_service=quality)
    await linked.send("as it is", colour="red")
    await linked.send("louder", do="upper")
    await linked.send("gone", do="clear", colour="red")
    await linked.send("any", do="bytes")
    await linked.send("any", do="object")
    await linked.send("dropped", do="drop")
    await linked.send("any", do="tell")
    same, upper, cleared, octets, serialised, told = await linked.arrived(6)
    assert (same.text, same.headers.properties["colour"]) == ("as it is", "red")
    assert [upper.text, cleared.text, octets.body] == ["LOUDER", "cleared", b"\x00\x01\xff"]
    assert cleared.headers.properties == {"was": "clear"}
    assert b"serialised" in serialised.body
    _, _, source, _, _, message_id, timestamp, priority, destination, calls = told.text.split("|")
    assert (source, priority, calls) == ("ActiveMQ", "4", "7")
    assert (message_id[:3], destination) == ("ID:", f"queue://{linked.queue.name}")
    assert int(timestamp) > 0
    await link.stop()
    assert brokers.graves.dead == []


# --- a whole gateway

#: The stub provider, with the classes of tests.
STUB: Final = """\
<connection-factory ref-name="stub" lookup-name="cf">
    <property name="java.naming.factory.initial" value="stub.StubProvider"/>
    <property name="java.naming.provider.url" value="stub:"/>
    <property name="imq.jms.classpath" value="{classes}"/>
    <property name="imq.jms.jvmOptions" value="-Xmx64m"/>
  </connection-factory>"""
FILE: Final = """\
<jmsbridge name="orders">
  <link name="there" transacted="false">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="stub" destination-ref="stub"/>
  </link>
  <link name="back" transacted="false">
    <source connection-factory-ref="stub" destination-ref="stub"/>
    <target connection-factory-ref="here" destination-ref="out" message-transformer-class="com.acme.Changes"/>
  </link>
  <connection-factory ref-name="here"/>
  {stub}
  <destination ref-name="in" name="IN" type="queue"/>
  <destination ref-name="out" name="OUT" type="queue"/>
  <destination ref-name="stub" name="STUB" type="queue"/>
  <destination ref-name="elsewhere" name="ELSEWHERE" type="queue"/>
</jmsbridge>
"""


@pytest.mark.process
def test_a_file_of_open_mq_and_a_jar_in_the_operator_s_folder_are_enough(
    tmp_path: Path, classes: Path, jars: Path
) -> None:
    gateway = GatewayProcess(
        tmp_path,
        settings={
            "imq.bridge.activelist": "stomp,orders",
            "imq.bridge.orders.type": "jms",
            "imq.bridge.orders.xmlurl": "orders.xml",
        },
    )
    file = gateway.directory / "etc" / "orders.xml"
    file.parent.mkdir(parents=True)
    file.write_text(FILE.format(stub=STUB.format(classes=classes)))
    ext = tmp_path / "lib" / "ext"
    ext.mkdir(parents=True)
    shutil.copy(jars / "acme.jar", ext)
    with gateway, Client(gateway.port) as client:
        gateway.wait_for_output("bridge orders STARTED: link there STARTED, link back STARTED")
        for number, queue in enumerate(("OUT", "ELSEWHERE", "by.queue")):
            client.ask("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": str(number)})
        client.send("/queue/IN", b"usual")
        assert client.message().headers["destination"] == "/queue/OUT"
        client.send("/queue/IN", b"by name", do="name")
        assert client.message().headers["destination"] == "/queue/ELSEWHERE"
        client.send("/queue/IN", b"by queue", do="queue")
        moved = client.message()
        assert (moved.headers["destination"], moved.body) == ("/queue/by.queue", b"by queue")
