"""A broker behind the gateway that is away is seen by all who look."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.cli.client import AdminClient, find
from gateway.instance import passfile
from tests.conformance.client import Client
from tests.gateway.front import behind
from tests.gateway_process import HOST, GatewayProcess, free_port

pytestmark = pytest.mark.process

AWAY = "the broker 'there' cannot be reached"


class Watched:
    """A gateway in front, as its operators see it."""

    def __init__(self, gateway: GatewayProcess, health_port: int) -> None:
        self._gateway = gateway
        self._health = f"http://{HOST}:{health_port}/ready"
        password = passfile.read(gateway.directory / "etc/passfile")["imq.imqcmd.password"]
        address = find(HOST, gateway.port_mapper_port)
        self._admin = AdminClient(address, "admin", password)
        login = b64encode(f"admin:{password}".encode()).decode()
        self._metrics = urllib.request.Request(
            f"http://{HOST}:{address.port}/metrics", headers={"Authorization": f"Basic {login}"}
        )

    def ready(self) -> list[str]:
        """Why it is not, for load balancers."""
        try:
            with urllib.request.urlopen(self._health, timeout=30) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as refused:
            found = json.load(refused)
        assert found["ready"] is (not found["reasons"])
        return list(found["reasons"])

    def doctor(self) -> list[str]:
        found = self._admin.get("/v1/doctor")["findings"]
        return [each["text"] for each in found if each["check"] == "service"]

    def connections(self) -> list[dict[str, Any]]:
        return list(self._admin.get("/v1/connections", service="stomp")["connections"])

    def end(self, number: int) -> None:
        self._admin.ask("DELETE", "/v1/connection", {"id": number})

    def why(self, queue: str) -> list[dict[str, Any]]:
        answer = self._admin.get("/v1/why/destination", type="queue", name=queue)
        return list(answer["causes"])

    def why_connection(self, number: int) -> list[dict[str, Any]]:
        return list(self._admin.get("/v1/why/connection", id=number)["causes"])

    def up(self) -> list[str]:
        with urllib.request.urlopen(self._metrics, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return [line for line in lines if line.startswith("stomp_gateway_provider_up")]

    def events(self) -> list[str]:
        found: list[dict[str, Any]] = self._admin.get("/v1/events", kind="provider")["events"]
        return [each["kind"] for each in found]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("credentials", ["factory", "client"])
def test_a_broker_that_is_away_is_seen(tmp_path: Path, credentials: str) -> None:
    port = free_port()
    with GatewayProcess(tmp_path / "there") as there:
        settings = behind.settings_for(
            tmp_path, behind.gateway_by_stomp(there.port), main="there", credentials=credentials
        )
        with GatewayProcess(
            tmp_path / "front", settings={**settings, "imq.health.port": str(port)}
        ) as front:
            watched = Watched(front, port)
            assert watched.ready() == []
            assert watched.up() == ['stomp_gateway_provider_up{provider="there"} 1.0']
            there.kill()
            with closing(Client(front.port)) as client:
                client.send("CONNECT", {"login": "guest", "passcode": "guest", "host": "there"})
                client.error(AWAY)
            until(watched.ready)
            assert watched.ready() == [AWAY]
            (text,) = watched.doctor()
            assert text.startswith(f"{AWAY} since 20")
            assert watched.up() == ['stomp_gateway_provider_up{provider="there"} 0.0']
            there.start()
            if credentials == "client":
                # Nobody but a client can tell. That one comes is the load balancer's doing, which
                # sends clients again after some seconds.
                until(lambda: not watched.ready())
                with closing(Client(front.port)) as client:
                    client.connect("1.2")
            until(lambda: not watched.ready())
            assert watched.doctor() == ["clients are served"]
            assert watched.up() == ['stomp_gateway_provider_up{provider="there"} 1.0']
            assert watched.events() == ["provider.away", "provider.back"]


def test_the_connections_of_clients_are_those_of_their_service(tmp_path: Path) -> None:
    with (
        GatewayProcess(tmp_path / "there") as there,
        behind.in_front_of(tmp_path, behind.gateway_by_stomp(there.port)) as front,
        closing(Client(front.port)) as client,
    ):
        client.connect("1.2")
        client.subscribe("/queue/q")
        watched = Watched(front, 0)
        (found,) = watched.connections()
        assert (found["service"], found["protocol"]) == ("stomp", "STOMP 1.2")
        (cause,) = watched.why_connection(found["id"])
        assert "has 1 subscription at another broker behind this gateway" in cause["sentence"]
        watched.end(found["id"])
        error = client.error("an administrator has ended the connection")
        assert error["message"] == "an administrator has ended the connection"


def test_a_broker_of_some_destinations_does_not_stop_the_others(tmp_path: Path) -> None:
    port, nowhere = free_port(), free_port()
    settings = behind.settings_for(
        tmp_path,
        behind.gateway_by_stomp(nowhere),
        main="embedded",
        there__destinations="/queue/erp.>",
    )
    with GatewayProcess(
        tmp_path / "front", settings={**settings, "imq.health.port": str(port)}
    ) as front:
        watched = Watched(front, port)
        with closing(Client(front.port)) as client:
            client.connect("1.2")
            client.send("SEND", {"destination": "/queue/erp.orders", "receipt": "r"}, "a")
            client.error(AWAY)
        (text,) = watched.doctor()
        assert text.startswith(f"{AWAY} since 20")
        assert watched.ready() == []
        (cause,) = watched.why("erp.orders")
        assert (cause["kind"], cause["command"]) == ("BROKER_BEHIND", "imqcmd doctor")
        assert f"at the broker 'there' behind this gateway, and {AWAY} since" in cause["sentence"]
        assert [each["kind"] for each in watched.why("orders")] == ["NO_DESTINATION"]
        assert watched.up() == ['stomp_gateway_provider_up{provider="there"} 0.0']
