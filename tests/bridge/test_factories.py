"""What a connection-factory element means, and what is said of one that cannot work. The broker of
this instance, STOMP and JMS brokers are real.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.threads import deferToThread
from twisted.logger import capturedLogs

from bridge.config.model import ConnectionFactory
from bridge.config.model import Destination as Configured
from bridge.connections.connections import ConnectionKind, Connections
from bridge.connections.factories import GROUP, Embedded, Factories, FactoryError, installed
from bridge.providers.amqp.provider import AmqpProvider
from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.failures import ClientMissing
from bridge.providers.jms.java_command import JavaOptions
from bridge.providers.jms.provider import JMSProvider
from bridge.providers.stomp.provider import StompProvider
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import AuthenticationFailed, MessagingError, ProviderUnavailable
from gateway.messaging.provider import Capabilities, Connection, Credentials
from tests.bridge.connections import GUEST, WRONG, Bench, benched, broker, clock, ignored
from tests.contract.backends.jms import CLASS_PATH
from tests.gateway_process import HOST, GatewayProcess, free_port
from tests.on_reactor import on_reactor
from tests.servers import activemq

BY_NAME = Configured("out", "accepted", Kind.QUEUE)
BY_JNDI = Configured("out", lookup_name="orders")
SECRET = "s3cr3t-of-theirs"


def factories(points: Mapping[str, Any] | None = None, class_path: str = "") -> Factories:
    """Factories of a bridge whose own broker is never asked."""
    nobody: Any = None
    given: Any = points or {}
    return Factories(clock, Embedded(nobody, GUEST), lambda: JavaOptions(class_path), lambda: given)


def refused(
    config: ConnectionFactory,
    where: str,
    *reasons: str,
    points: Mapping[str, Any] | None = None,
) -> str:
    """What is said of an element that cannot work, with its place and these reasons."""
    with pytest.raises(FactoryError) as raised:
        factories(points).get(config)
    error = raised.value
    assert isinstance(error, MessagingError)
    assert (error.ref_name, error.where) == (config.ref_name, where)
    assert str(error).startswith(f"connection-factory '{config.ref_name}'")
    assert [reason for reason in reasons if reason not in error.reason] == [], error.reason
    return str(error)


def warnings(config: ConnectionFactory) -> list[str]:
    """The properties that are warned of, with what is said to have been meant."""
    with capturedLogs() as events:
        factories().get(config)
    return [
        f"{event['name']}{event['meant']}"
        for event in events
        if event["log_level"].name == "warn" and "meant" in event
    ]


def of(ref_name: str = "f", lookup_name: str | None = None, **attributes: Any) -> ConnectionFactory:
    return ConnectionFactory(ref_name, lookup_name, **attributes)


# --- one for each element


def test_there_is_one_factory_for_each_ref_name_until_its_element_becomes_another() -> None:
    made = factories()
    first = made.get(of(idle_timeout_s=1))
    assert made.get(of(idle_timeout_s=1, line=7, description="moved")) is first
    assert made.get(of("other", idle_timeout_s=1)) is not first
    second = made.get(of(idle_timeout_s=2))
    assert second is not first
    assert second.config.idle_timeout_s == 2
    assert made.get(of(idle_timeout_s=2)) is second
    assert made.get(of(idle_timeout_s=2, properties={"imqDefaultPassword": "x"})) is not second, (
        "a password may change"
    )


@pytest.mark.process
def test_no_kind_of_provider_is_imported_before_it_is_used() -> None:
    # In a process of its own, as this one has imported all of them. Of stompest the bare name is
    # there in every process: it was installed as a namespace.
    code = """
import sys
from bridge.config.model import ConnectionFactory
from bridge.connections.connections import Connections
from bridge.connections.factories import Embedded, Factories
found = Factories(None, Embedded(None, None), None).get(ConnectionFactory("f"))
Connections(None).for_sending(found, False, None)
print(sorted(name for name in sys.modules if name.startswith(("stompest.", "bridge.providers"))))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "[]"


# --- the broker of this instance


@benched
async def test_without_look_up_name_it_is_the_broker_of_this_instance(bench: Bench) -> None:
    factory = bench.factory()
    assert factory.embedded
    assert factory.provider is bench.provider
    assert (factory.client_id, factory.client_id_known) == (None, True)
    assert factory.product == "embedded", "nothing has told a better name yet"
    connection = await factory.connect(None, ignored)
    assert connection.client_id is None
    assert factory.product == connection.product != "embedded"
    await connection.close()


@benched
async def test_its_client_identifier_is_configured_and_gives_way_to_a_links(bench: Bench) -> None:
    factory = bench.factory(client_id="configured")
    assert factory.client_id == "configured"
    first = await factory.connect(None, ignored)
    second = await factory.connect("links", ignored)
    assert (first.client_id, second.client_id) == ("configured", "links")
    await first.close()
    await second.close()


@pytest.mark.parametrize(
    ("attributes", "properties", "own"),
    [
        ({}, {}, GUEST),
        ({"username": "guest", "password": "guest"}, {}, WRONG),
        (
            {"username": "guest", "password": "guest"},
            {"imqDefaultUsername": "x", "imqDefaultPassword": "y"},
            WRONG,
        ),
        ({}, {"imqDefaultUsername": "guest", "imqDefaultPassword": "guest"}, WRONG),
        ({}, {"imqDefaultUsername": "guest"}, WRONG),
        ({}, {"imqDefaultPassword": "guest"}, WRONG),
    ],
)
@on_reactor
async def test_who_connects(
    attributes: dict[str, str], properties: dict[str, str], own: Credentials
) -> None:
    async with broker() as backend:
        made = Factories(clock, Embedded(backend.provider(), own), JavaOptions)
        factory = made.get(of(properties=properties, **attributes))
        await (await factory.connect(None, ignored)).close()
        if own is WRONG:
            with pytest.raises(AuthenticationFailed):
                await made.get(of("own")).connect(None, ignored)


@benched
async def test_a_loss_is_told(bench: Bench) -> None:
    losses: list[MessagingError] = []
    await bench.factory().connect(None, losses.append)
    await bench.lose()
    assert [type(error) for error in losses] == [ProviderUnavailable]


def test_properties_that_mean_nothing_are_warned_of_one_by_one_with_what_may_have_been_meant() -> (
    None
):
    properties = {
        "imqConfiguredClientId": "c1",
        "imqAddressList": "mq://x:7676",
        "imqDefaultUsername": "u",
        "imqDefaultPasword": SECRET,
        "java.naming.provider.url": "tcp://x",
    }
    with capturedLogs() as events:
        found = factories().get(of(properties=properties))
    assert found.client_id is None
    warned = {
        event["name"]: event["meant"] for event in events if event["log_level"].name == "warn"
    }
    assert warned == {
        "imqConfiguredClientId": "; was imqConfiguredClientID meant?",
        "imqAddressList": "",
        "imqDefaultPasword": "; was imqDefaultPassword meant?",
        "java.naming.provider.url": "",
    }
    assert SECRET not in str(events)


def test_known_properties_are_not_warned_of() -> None:
    properties = {
        "imqConfiguredClientID": "c1",
        "imqDefaultUsername": "u",
        "imqDefaultPassword": "p",
    }
    assert warnings(of(properties=properties)) == []


def test_a_blank_client_identifier_is_an_error() -> None:
    blank = of(properties={"imqConfiguredClientID": " "})
    refused(blank, "property 'imqConfiguredClientID'", "expected a client identifier")
    refused(of("s", "stomp://x", properties={"client-id": ""}), "property 'client-id'")


@benched
async def test_destinations_are_found_by_name_and_not_looked_up(bench: Bench) -> None:
    factory = bench.factory()
    assert await factory.destination(BY_NAME) == Queue("accepted")
    assert await factory.destination(Configured("t", "news", Kind.TOPIC)) == Topic("news")
    with pytest.raises(
        FactoryError,
        match=r"lookup-name of destination 'out': its provider looks nothing up: expected .* name and type",
    ):
        await factory.destination(BY_JNDI)


# --- STOMP


@pytest.mark.process
@on_reactor
async def test_a_stomp_broker(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "var")
    await deferToThread(gateway.start)
    try:
        properties = {"client-id": "c1", "stomp.dialect": "gateway"}
        address = f"stomp://{HOST}:{gateway.port}"
        factory = factories().get(
            of("there", address, username="guest", password="guest", properties=properties)
        )
        assert isinstance(factory.provider, StompProvider)
        assert not factory.embedded
        assert (factory.client_id, factory.client_id_known, factory.product) == (
            "c1",
            True,
            "stomp",
        )
        connections = Connections(clock)
        way = connections.for_sending(factory, False, None)
        assert way.kind is ConnectionKind.SHARED, "known from the configuration"
        one, two = way.borrow(ignored), way.borrow(ignored)
        lease, other = await one, await two
        assert lease.connection is other.connection
        assert lease.connection.client_id == "c1"
        assert factory.product == lease.connection.product != "stomp"
        assert await factory.destination(BY_NAME) == Queue("accepted")
        with pytest.raises(FactoryError, match="destination 'out'"):
            await factory.destination(BY_JNDI)
        await lease.give_back()
        await other.give_back()
        await connections.close()
        wrong = factories().get(of("there", address, username="guest", password=SECRET))
        with pytest.raises(AuthenticationFailed) as raised:
            await wrong.connect(None, ignored)
        assert SECRET not in f"{raised.value}{wrong!r}{raised.value!r}"
    finally:
        await deferToThread(gateway.kill)


@pytest.mark.process
@on_reactor
async def test_a_stomp_broker_that_is_not_there() -> None:
    factory = factories().get(of("there", f"stomp://{HOST}:{free_port()}"))
    with pytest.raises(ProviderUnavailable):
        await factory.connect(None, ignored)


@pytest.mark.parametrize(
    ("lookup_name", "reason"),
    [
        ("stomp://", "it has no host"),
        ("stomp:host", "it has no host"),
        ("STOMP://host:port", "Port could not be cast"),
        ("stomps://host", "the scheme is 'stomps'"),
        ("stomp+ssl://host", "the scheme is 'stomp+ssl'"),
        ("stomp://host:1/x?y=z", "it must end with the virtual host"),
    ],
)
def test_what_is_no_address_of_a_stomp_broker(lookup_name: str, reason: str) -> None:
    expected = "expected stomp://HOST:PORT or stomp+tls://HOST:PORT"
    refused(of("there", lookup_name), "lookup-name", reason, expected)


@pytest.mark.parametrize(
    "lookup_name", ["stomp://u:{}@h", "stomp://u:{}@h:bad", "stomp://h/v?passcode={}"]
)
def test_an_address_with_a_passcode_in_it_is_not_shown(lookup_name: str) -> None:
    assert SECRET not in refused(of("there", lookup_name.format(SECRET)), "lookup-name")


def test_unknown_properties_of_a_stomp_broker_are_errors() -> None:
    for name, value, *reasons in (
        ("stomp.conect-timeout", "5", "unknown property", "stomp.connect-timeout"),
        ("stomp.heart-beat-ms", "often", "'often': expected a number from 0"),
    ):
        refused(of("there", "stomp://h", properties={name: value}), f"property '{name}'", *reasons)


def test_other_properties_are_warned_of() -> None:
    assert warnings(
        of("there", "stomp://h", properties={"client_id": "c", "stomp.ca": "ca.pem"})
    ) == ["client_id; was client-id meant?"]


def test_certificates_without_tls_are_warned_of() -> None:
    for lookup_name, expected in (("stomp://h", 1), ("stomp+tls://h", 0)):
        with capturedLogs() as events:
            factories().get(of("there", lookup_name, properties={"stomp.ca": "ca.pem"}))
        assert sum("without TLS" in event["log_format"] for event in events) == expected


# --- AMQP 1.0


@pytest.mark.process
@on_reactor
async def test_an_amqp_broker() -> None:
    properties = {"client-id": "c1", "amqp.peer": "artemis", "amqp.idle-timeout": "0"}
    config = of("there", f"amqp://{HOST}:{free_port()}/v", properties=properties)
    factory = factories().get(config)
    assert isinstance(factory.provider, AmqpProvider)
    assert factory.provider.address.virtual_host == "v"
    assert (factory.client_id, factory.product, factory.provider.capabilities.transacted) == (
        "c1",
        "amqp",
        True,
    )
    with pytest.raises(ProviderUnavailable):
        await factory.connect(None, ignored)


@pytest.mark.parametrize(
    ("lookup_name", "properties", "reasons"),
    [
        ("amqp://", {}, ("lookup-name", "it has no host")),
        ("amqp+ssl://h", {}, ("lookup-name", "expected amqp://HOST:PORT or amqps://HOST:PORT")),
        ("amqps://h", {"amqp.peer": "x"}, ("property 'amqp.peer'", "expected one of artemis")),
        ("amqps://h", {"amqp.per": "x"}, ("property 'amqp.per'", "unknown property")),
    ],
)
def test_what_is_wrong_with_an_amqp_factory_is_said(
    lookup_name: str, properties: dict[str, str], reasons: tuple[str, ...]
) -> None:
    refused(of("there", lookup_name, properties=properties), *reasons)


def test_without_its_extra_an_amqp_factory_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bridge.providers.amqp.provider", None)
    refused(of("there", "amqp://h"), "lookup-name", "pip install stomp-gateway[amqp]")


# --- JMS


def jndi(port: int, **more: str) -> dict[str, str]:
    """The environment of ActiveMQ's JNDI.

    :param more: properties, with ``_`` for ``.``.
    """
    return {
        "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
        "java.naming.provider.url": f"tcp://{HOST}:{port}",
        "imq.jms.classpath": CLASS_PATH,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def test_properties_go_to_jndi_but_for_those_that_are_ours() -> None:
    ours = {
        "imq.jms.classpath": "/a.jar",
        "imq.jms.jvmOptions": " -Xmx1g  -Dkey=value ",
        "imq.jms.process": " apart ",
        "imq.jms.lookupTimeout": "1",
        "imq.jms.connectTimeout": "2.5",
        "imq.jms.sendTimeout": "3",
        "imq.jms.closeTimeout": "4",
        "imq.jms.individualAcknowledge": "101",
        "imq.jms.deadQueue": "DLQ",
    }
    theirs = {
        "java.naming.factory.initial": "com.example.Context",
        "java.naming.security.credentials": SECRET,
        "queue.a": "b",
    }
    factory = factories(class_path="/b.jar").get(of("there", "cf", properties={**ours, **theirs}))
    assert isinstance(factory.provider, JMSProvider)
    found = factory.provider.factory
    assert (found.lookup_name, found.environment, found.class_path) == ("cf", theirs, "/a.jar")
    assert (found.java_options, found.process) == (("-Xmx1g", "-Dkey=value"), "apart")
    assert (
        found.lookup_timeout_s,
        found.connect_timeout_s,
        found.send_timeout_s,
        found.close_timeout_s,
    ) == (1, 2.5, 3, 4)
    assert (found.individual_acknowledge, found.dead_queue) == (101, "DLQ")
    assert (factory.client_id, factory.client_id_known) == (None, False)
    assert factory.product == "com.example.Context"
    assert SECRET not in repr(factory)
    assert factories().get(of("there", "cf")).product == "jms"
    assert JMSFactory("cf").java_options is None, (
        "those of the setting, which an empty property is not"
    )
    empty = factories().get(of("there", "cf", properties={"imq.jms.jvmOptions": ""})).provider
    assert isinstance(empty, JMSProvider)
    assert empty.factory.java_options == ()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("imq.jms.classPath", "/a.jar", "was imq.jms.classpath meant?"),
        ("imq.jms.jvm", "/usr/bin/java", "there is no such property, but imq.jms.classpath, "),
        ("imq.jms.sendTimeout", "0", "'0' is no number of seconds above 0 and up to 86400"),
        ("imq.jms.sendTimeout", "nan", "'nan' is no number of seconds"),
        ("imq.jms.sendTimeout", "soon", "'soon' is no number of seconds"),
        (
            "imq.jms.individualAcknowledge",
            "-1",
            "'-1' is no acknowledge mode: expected a number from 0 to 2147483647",
        ),
        ("imq.jms.individualAcknowledge", "9" * 5000, "is no acknowledge mode"),
    ],
)
def test_what_our_properties_cannot_be(name: str, value: str, reason: str) -> None:
    refused(of("there", "cf", properties={name: value}), f"property '{name}'", reason)


@on_reactor
async def test_a_missing_jar_is_named() -> None:
    factory = factories().get(
        of("there", "cf", properties={"imq.jms.classpath": "/nowhere/client.jar"})
    )
    with pytest.raises(
        ClientMissing, match=r"/nowhere/client\.jar is on the class path and does not exist"
    ):
        await factory.connect(None, ignored)
    everywhere = factories(class_path="/nowhere/common.jar").get(of("there", "cf"))
    with pytest.raises(ClientMissing, match=r"/nowhere/common\.jar"):
        await everywhere.connect(None, ignored)


@pytest.mark.brokers
@on_reactor
async def test_a_jms_provider_looks_destinations_up_once() -> None:
    server = await deferToThread(activemq)
    factory = factories().get(
        of("there", "ConnectionFactory", properties=jndi(server.openwire_port))
    )
    environment = {
        name: value
        for name, value in jndi(server.openwire_port).items()
        if name.startswith("java.")
    }
    orders = Configured(
        "orders", lookup_name="orders", properties={**environment, "queue.orders": "shop.orders"}
    )
    prices = Configured(
        "prices", lookup_name="prices", properties={**environment, "topic.prices": "shop.prices"}
    )
    found = await factory.destination(orders)
    assert found == Queue("shop.orders")
    assert await factory.destination(prices) == Topic("shop.prices")
    assert await factory.destination(orders) is found
    assert await factory.destination(BY_NAME) == Queue("accepted")
    elsewhere = Configured(
        "orders", lookup_name="orders", properties={**environment, "queue.orders": "shop.others"}
    )
    assert await factory.destination(elsewhere) == Queue("shop.others"), (
        "each is looked up with its own properties"
    )
    with pytest.raises(ProviderUnavailable, match="looking up 'nothing' failed"):
        await factory.destination(
            Configured("nothing", lookup_name="nothing", properties=environment)
        )


@pytest.mark.brokers
@on_reactor
async def test_the_first_connection_of_a_jms_provider_tells_its_client_identifier() -> None:
    server = await deferToThread(activemq)
    properties = jndi(server.openwire_port)
    named = {
        **properties,
        "java.naming.provider.url": f"{properties['java.naming.provider.url']}?jms.clientID=theirs",
    }
    connections = Connections(clock)
    for ref_name, given, kind, client_id in (
        ("plain", properties, ConnectionKind.POOLED, None),
        ("named", named, ConnectionKind.SHARED, "theirs"),
    ):
        factory = factories().get(of(ref_name, "ConnectionFactory", properties=given))
        way = connections.for_sending(factory, False, None)
        assert way.kind is None
        one, two = way.borrow(ignored), way.borrow(ignored)
        leases = [await one, await two]
        assert way.kind is kind
        assert (leases[0].connection is leases[1].connection) is (kind is ConnectionKind.SHARED)
        assert (factory.client_id, factory.client_id_known) == (client_id, True)
        assert factory.product == "ActiveMQ"
        for lease in leases:
            await lease.give_back()
    assert [(status.factory, status.idle) for status in connections.pools()] == [("plain", 2)]
    assert [(status.factory, status.ref_count) for status in connections.shared()] == [("named", 0)]
    await connections.close()


# --- providers of other packages


class Theirs:
    """A provider that a package of somebody else brings."""

    capabilities = Capabilities()
    resource = "theirs"

    def __init__(self, config: ConnectionFactory, reactor: Any) -> None:
        self.config = config
        self.reactor = reactor
        self.found = 0
        self.connecting: Any = None

    def connect(
        self, credentials: Credentials, client_id: str | None, lost: Any
    ) -> Deferred[Connection]:
        self.credentials = credentials
        return self.connecting()  # type: ignore[no-any-return]

    def destination(self, destination: Configured) -> Any:
        self.found += 1
        if destination.properties.get("fail"):
            return fail(ValueError(f"no {destination.properties['password']}"))
        return succeed(
            Topic(f"{destination.lookup_name}!") if destination.lookup_name != "odd" else "odd"
        )


class NoProvider:
    """Has no method ``connect``."""

    def __init__(self, *given: object) -> None:
        pass


class NoResource(Theirs):
    resource: Any = None


class NoCapabilities(Theirs):
    capabilities: Any = "all"


class NoLookUp:
    """The least that a provider must have."""

    capabilities = Capabilities()
    resource = "least"

    def __init__(self, *given: object) -> None:
        pass

    def connect(
        self, credentials: Credentials, client_id: str | None, lost: Any
    ) -> Deferred[Connection]:
        return fail(ProviderUnavailable("it is never there"))


def raises(config: ConnectionFactory, reactor: Any) -> Any:
    raise ValueError(
        f"cannot log in with {config.password} nor {config.properties['api.password']}"
    )


not_callable = 7


def point(name: str) -> EntryPoint:
    """An entry point as it is installed.

    :param name: of what is in this module, with ``-`` for ``_``.
    """
    return EntryPoint(name, f"{__name__}:{name}", GROUP)


POINTS = {
    name: point(name)
    for name in (
        "Theirs",
        "NoProvider",
        "NoResource",
        "NoCapabilities",
        "NoLookUp",
        "raises",
        "not_callable",
        "absent",
    )
}


def theirs(**attributes: Any) -> ConnectionFactory:
    return of("theirs", properties={"provider": "Theirs"}, **attributes)


@on_reactor
async def test_a_provider_of_another_package() -> None:
    # The property decides, whatever the look-up name says.
    config = theirs(lookup_name="stomp://h:nonsense", username="u", password=SECRET)
    factory = factories(POINTS).get(config)
    provider: Any = factory.provider
    assert isinstance(provider, Theirs)
    assert (provider.config, provider.reactor) == (config, clock)
    assert (factory.client_id, factory.client_id_known, factory.embedded) == (None, False, False)
    assert factory.product == f"{__name__}.Theirs"
    provider.connecting = lambda: fail(ProviderUnavailable("away"))
    with pytest.raises(ProviderUnavailable, match="away"):
        await factory.connect(None, ignored)
    assert (provider.credentials.username, provider.credentials.passcode) == ("u", SECRET)
    assert SECRET not in repr(factory)


@on_reactor
async def test_it_may_look_destinations_up() -> None:
    factory = factories(POINTS).get(theirs())
    provider: Any = factory.provider
    assert await factory.destination(BY_NAME) == Queue("accepted")
    assert provider.found == 0
    assert [await factory.destination(BY_JNDI) for _ in range(2)] == [
        Destination(Kind.TOPIC, "orders!")
    ] * 2
    assert provider.found == 1, "what was found is known"
    with pytest.raises(
        FactoryError, match=r"destination 'out': its provider found a str: expected .*Destination"
    ):
        await factory.destination(Configured("out", lookup_name="odd"))
    failing = Configured("out", lookup_name="x", properties={"fail": "yes", "password": SECRET})
    with pytest.raises(
        ProviderUnavailable,
        match=r"destination 'out' of connection-factory 'theirs': ValueError: no \*\*\*",
    ):
        await factory.destination(failing)


@on_reactor
async def test_it_need_not_look_destinations_up() -> None:
    factory = factories(POINTS).get(of(properties={"provider": "NoLookUp"}))
    assert await factory.destination(BY_NAME) == Queue("accepted")
    with pytest.raises(FactoryError, match="looks nothing up"):
        await factory.destination(BY_JNDI)


@on_reactor
async def test_whatever_it_raises_is_a_provider_that_is_not_there() -> None:
    factory = factories(POINTS).get(theirs(username="u", password=SECRET))
    provider: Any = factory.provider

    def raised() -> Any:
        raise OSError(f"refused {SECRET}")

    for connecting in (raised, lambda: fail(OSError(f"refused {SECRET}"))):
        provider.connecting = connecting
        with (
            capturedLogs() as events,
            pytest.raises(ProviderUnavailable, match=r"'theirs': OSError: refused \*\*\*"),
        ):
            await factory.connect(None, ignored)
        assert [event["ref_name"] for event in events if event["log_level"].name == "error"] == [
            "theirs"
        ]
        assert SECRET not in str(events)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Their", "no provider 'Their' is installed in entry-point group stomp_gateway.providers"),
        ("Their", "was Theirs meant?"),
        (
            "absent",
            "provider 'absent' (tests.bridge.test_factories:absent) failed with AttributeError",
        ),
        ("not_callable", "failed with TypeError"),
        (
            "NoProvider",
            "returned tests.bridge.test_factories.NoProvider, which has no method 'connect': expected",
        ),
        ("NoResource", "which has no text in 'resource'"),
        ("NoCapabilities", "which has no Capabilities in 'capabilities'"),
        ("raises", "failed with ValueError: cannot log in with *** nor ***"),
    ],
)
def test_what_can_be_wrong_with_a_provider_of_another_package(name: str, reason: str) -> None:
    properties = {"provider": name, "api.password": f"{SECRET}2"}
    config = of("theirs", username="u", password=SECRET, properties=properties)
    listed = f"installed: {', '.join(sorted(POINTS))}"
    assert SECRET not in refused(config, "property 'provider'", reason, listed, points=POINTS)


def test_none_may_be_installed() -> None:
    refused(of(properties={"provider": "Theirs"}), "property 'provider'", "installed: none")


def test_what_is_installed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, module in (("first", "one"), ("second", "two")):
        info = tmp_path / folder / f"{module}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(
            f"[{GROUP}]\ntheirs = {module}:provider\n{module} = {module}:provider\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path / "second"))
    monkeypatch.syspath_prepend(str(tmp_path / "first"))
    found = installed()
    assert {name: found[name].value for name in ("theirs", "one", "two")} == {
        "theirs": "one:provider",
        "one": "one:provider",
        "two": "two:provider",
    }
