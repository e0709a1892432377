"""``imqcmd`` as a process against a gateway as a process: what an administrator did is there after
SIGKILL, and clients notice it at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client import Client
from tests.gateway_process import HOST, ROOT, GatewayProcess, free_port

pytestmark = pytest.mark.process


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path) as running:
        yield running


def imqcmd(gateway: GatewayProcess, *arguments: str, code: int = 0) -> Any:
    """What the command answers in JSON, or its error."""
    done = told(gateway, *arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stderr if code else done.stdout)


def told(gateway: GatewayProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the command prints, and how it ends."""
    options = [
        "-b",
        f"{HOST}:{gateway.port_mapper_port}",
        "-u",
        "admin",
        "-passfile",
        str(gateway.directory / "etc" / "passfile"),
    ]
    command = [
        sys.executable,
        "-c",
        "from gateway.admin.cli.imqcmd import main; main()",
        *arguments,
        "-f",
        *options,
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


def test_services_come_and_go(gateway: GatewayProcess) -> None:
    file = gateway.directory / "etc" / "gateway.properties"
    kept, port = file.read_text(), free_port()
    web = f"imq.bridge.stomp.listener.web.port={port}\nimq.bridge.stomp.listener.web.ws=true\n"
    [tcp] = imqcmd(gateway, "list", "svc")["services"]
    client = Client(gateway.port)
    client.connect()
    file.write_text(kept + web)
    assert imqcmd(gateway, "reload", "svc")["services"] == [
        {**tcp, "connections": 1},
        {
            "service": "stomp-web",
            "port": port,
            "chosen": False,
            "address": HOST,
            "protocol": "stomp[WS]",
            "state": "RUNNING",
            "problem": "",
            "connections": 0,
        },
    ]
    assert gateway.mapped_ports() == {gateway.port, port}
    # One is paused by itself, and the client that came by it stays.
    assert imqcmd(gateway, "pause", "svc", "-n", "stomp")["state"] == "PAUSED"
    with pytest.raises(ConnectionRefusedError):
        Client(gateway.port)
    client.put("/queue/orders", "still here")
    assert imqcmd(gateway, "query", "svc", "-n", "stomp")["connections"] == 1
    assert imqcmd(gateway, "resume", "svc", "-n", "stomp")["state"] == "RUNNING"
    Client(gateway.port).connect()
    # Settings that are wrong change nothing, and the command says which.
    file.write_text(f"{kept}{web}imq.bridge.stomp.listener.web.path=stomp\n")
    refused = imqcmd(gateway, "reload", "svc", code=1)["error"]
    assert (refused["code"], "listener.web.path" in refused["text"]) == ("configuration", True)
    file.write_text(kept)
    assert [each["service"] for each in imqcmd(gateway, "reload", "svc")["services"]] == ["stomp"]
    for order in ("query", "pause", "resume"):
        refused = imqcmd(gateway, order, "svc", "-n", "stomp-web", code=1)["error"]
        assert "there is no service stomp-web" in refused["text"]


def test_what_was_done_survives_a_kill(gateway: GatewayProcess) -> None:
    imqcmd(gateway, "create", "dst", "-t", "q", "-n", "orders", "-o", "maxNumMsgs=1")
    imqcmd(gateway, "create", "dst", "-t", "t", "-n", "quotes")
    imqcmd(gateway, "update", "dst", "-t", "q", "-n", "orders", "-o", "maxNumMsgs=2")
    client = Client(gateway.port)
    client.connect()
    client.put("/queue/orders", "1", "2")
    (connection,) = imqcmd(gateway, "list", "cxn")["connections"]
    assert (connection["service"], connection["user"], connection["sent"]) == ("stomp", "guest", 2)
    client.send("SEND", {"destination": "/queue/orders", "receipt": "full"}, "3")
    assert "maxNumMsgs" in client.error()["message"]
    gateway.restart(crash=True)
    found = imqcmd(gateway, "query", "dst", "-t", "q", "-n", "orders")
    assert (found["messages"], found["properties"]["maxNumMsgs"], found["origin"]) == (
        2,
        2,
        "administrator",
    )
    assert imqcmd(gateway, "purge", "dst", "-t", "q", "-n", "orders")["purged"] == 2
    gateway.restart(crash=True)
    broker = imqcmd(gateway, "query", "bkr")
    assert broker["messages"] == 0
    assert broker["journal"] == {
        "level": "links",
        "lines": 0,
        "octets": 0,
        "lost": 0,
        "stopped": False,
    }
    imqcmd(gateway, "destroy", "dst", "-t", "q", "-n", "orders")
    gateway.restart(crash=True)
    listed = imqcmd(gateway, "list", "dst")["destinations"]
    assert [each["name"] for each in listed] == ["mq.sys.dmq", "quotes"]
    assert (
        imqcmd(gateway, "query", "dst", "-t", "q", "-n", "orders", code=1)["error"]["text"]
        == "there is no queue 'orders'"
    )


def test_clients_are_told_when_they_are_ended(gateway: GatewayProcess) -> None:
    first = Client(gateway.port)
    first.connect()
    first.subscribe("/queue/orders")
    (connection,) = imqcmd(gateway, "list", "cxn")["connections"]
    imqcmd(gateway, "destroy", "cxn", "-n", str(connection["id"]))
    assert "an administrator has ended the connection" in first.error()["message"]
    second = Client(gateway.port)
    second.connect()
    second.subscribe("/queue/orders")
    imqcmd(gateway, "destroy", "dst", "-t", "q", "-n", "orders")
    assert "the destination was removed" in second.error()["message"]
