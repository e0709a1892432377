"""Asking a gateway that runs as a process of its own by ``imqbridgemgr``, and messages to and from
it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.cli import imqbridgemgr
from tests.conformance.client import Client
from tests.gateway_process import HOST, GatewayProcess


@dataclass
class Live:
    """A gateway, and what ``imqbridgemgr`` prints of it.

    :param folder: where the XML files of its bridges are.
    """

    gateway: GatewayProcess
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def broker(self) -> str:
        return f"{HOST}:{self.gateway.port_mapper_port}"

    @property
    def options(self) -> list[str]:
        return [
            "-b",
            self.broker,
            "-u",
            "admin",
            "-passfile",
            str(self.gateway.directory / "etc" / "passfile"),
        ]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it prints; it must end with that code, and say nothing on the standard error if it
        is 0.
        """
        self.capsys.readouterr()
        ended = imqbridgemgr.run([*arguments, *self.options])
        out, err = self.capsys.readouterr()
        assert (ended, err if not code else "") == (code, ""), out + err
        return err if code else out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def state(self, bridge: str, link: str = "") -> str:
        found: str = (
            self.json("list", "link", "-bn", bridge, "-ln", link)["links"][0]["state"]
            if link
            else self.json("list", "bridge", "-bn", bridge)["state"]
        )
        return found

    @property
    def broker_table(self) -> str:
        return (
            "-------------------------\n"
            "Host         Primary Port\n"
            "-------------------------\n"
            f"127.0.0.1    {self.gateway.port_mapper_port}\n"
            "\n"
        )


def send(live: Live, queue: str, body: str, **headers: str) -> None:
    client = Client(live.gateway.port)
    client.connect()
    client.put(f"/queue/{queue}", body, **headers)


def take(live: Live, queue: str, count: int = 1) -> list[str]:
    """So many messages, taken out of a queue."""
    client = Client(live.gateway.port)
    client.connect()
    client.subscribe(f"/queue/{queue}", ack="client")
    messages = client.messages(count)
    client.ack(messages[-1])
    client.ask("DISCONNECT")
    return [message.text for message in messages]


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
