"""A gateway with a listener for each profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from uuid import uuid4

import pytest

from tests.conformance.client import Client
from tests.gateway_process import GatewayProcess, free_port

PROFILES = ("openmq", "standard", "activemq", "artemis", "rabbitmq")

#: Queues that take one message each.
FULL = [f"profiles.full.{profile}{version}" for profile in PROFILES for version in range(10, 14)]

#: Gives a client that is CONNECTED to the listener of a profile, in a version.
Join = Callable[..., Client]


#: A listener with Artemis' habits, and prefixes of addresses.
PREFIXED = "prefixed"
#: One with Artemis' habits, where a client may not be silent for long.
SHORT = "short"
#: One with RabbitMQ's habits, and virtual hosts.
HOSTED = "hosted"


@pytest.fixture(scope="package")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """The port of each profile's listener."""
    ports = {profile: free_port() for profile in (*PROFILES, PREFIXED, SHORT, HOSTED)}
    settings = {
        f"imq.bridge.stomp.listener.{profile}.{name}": value
        for profile, port in ports.items()
        for name, value in (("port", str(port)), ("profile", profile))
    }
    settings[f"imq.bridge.stomp.listener.{PREFIXED}.profile"] = "artemis"
    settings[f"imq.bridge.stomp.listener.{PREFIXED}.anycastPrefix"] = "jms.queue.,jms."
    settings[f"imq.bridge.stomp.listener.{PREFIXED}.multicastPrefix"] = "jms.topic."
    settings[f"imq.bridge.stomp.listener.{SHORT}.profile"] = "artemis"
    settings[f"imq.bridge.stomp.listener.{SHORT}.connectionTtl"] = "300"
    settings[f"imq.bridge.stomp.listener.{SHORT}.disableStompServerHeader"] = "true"
    settings[f"imq.bridge.stomp.listener.{HOSTED}.profile"] = "rabbitmq"
    settings[f"imq.bridge.stomp.listener.{HOSTED}.hosts"] = "/,orders"
    settings["imq.bridge.stomp.setJMSXUserID"] = "true"
    for full in FULL:
        settings[f"imq.destination.queue.{full}.maxNumMsgs"] = "1"
        settings[f"imq.destination.queue.{full}.limitBehavior"] = "REJECT_NEWEST"
    gateway = GatewayProcess(tmp_path_factory.mktemp("profiles"), settings=settings)
    # A new instance gives it to its user admin.
    etc = gateway.directory / "etc"
    etc.mkdir(parents=True)
    (etc / "passfile").write_text("imq.imqcmd.password=admin\n")
    (etc / "passfile").chmod(0o600)
    with gateway:
        yield ports


@pytest.fixture
def dial(ports: dict[str, int]) -> Iterator[Callable[[str], Client]]:
    """Open a socket to the listener of a profile, and send nothing."""
    with ExitStack() as opened:

        def dialled(profile: str) -> Client:
            client = opened.enter_context(closing(Client(ports[profile])))
            client.counted = profile != "activemq"
            return client

        yield dialled


@pytest.fixture
def join(dial: Callable[[str], Client]) -> Join:
    def joined(profile: str, version: str = "1.2", **headers: str) -> Client:
        client = dial(profile)
        client.connect(version, **headers)
        return client

    return joined


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"profiles.{uuid4().hex}"
