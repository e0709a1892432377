"""A gateway, its clients, and questions as an operator asks them."""

from __future__ import annotations

import io
import json
import shlex
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from gateway.admin.cli import imqbridgemgr, imqcmd
from gateway.admin.cli.client import AdminClient, find
from gateway.instance import passfile
from tests.conformance.client import Client
from tests.gateway_process import HOST, GatewayProcess

PROGRAMS = {"imqcmd": imqcmd, "imqbridgemgr": imqbridgemgr}


@dataclass
class Scene:
    """A gateway, and its administrator."""

    gateway: GatewayProcess

    def __post_init__(self) -> None:
        file = self.gateway.directory / "etc" / "passfile"
        password = passfile.read(file)["imq.imqcmd.password"]
        address = find(HOST, self.gateway.port_mapper_port)
        self.admin = AdminClient(address, "admin", password)
        self.options = [
            "-b",
            f"{HOST}:{self.gateway.port_mapper_port}",
            "-u",
            "admin",
            "-passfile",
            str(file),
            "-f",
        ]

    # --- clients

    @contextmanager
    def client(self, **headers: str) -> Iterator[Client]:
        """A client that is connected."""
        with closing(Client(self.gateway.port)) as client:
            client.connect(**headers)
            yield client

    def put(self, destination: str, *bodies: str, **headers: str) -> None:
        """Send texts, by a client that leaves then."""
        with self.client() as client:
            client.put(destination, *bodies, **headers)

    # --- the operator

    def run(self, line: str, code: int = 0) -> str:
        """Run a command line as it is typed. :returns: what it prints."""
        program, *arguments = shlex.split(line)
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            ended = PROGRAMS[program].run([*arguments, *self.options])
        assert ended == code, out.getvalue() + err.getvalue()
        return out.getvalue() + err.getvalue()

    def ask(self, what: str, **parameters: object) -> dict[str, Any]:
        """Ask why, over HTTP."""
        answer: dict[str, Any] = self.admin.get(f"/v1/why/{what}", **parameters)
        return answer

    def queue(self, name: str, kind: str) -> dict[str, Any]:
        """The cause of that kind of a queue, once it holds."""
        return self.cause(kind, "destination", type="q", name=name)

    def topic(self, name: str, kind: str) -> dict[str, Any]:
        return self.cause(kind, "destination", type="t", name=name)

    def message(self, id: str, kind: str) -> dict[str, Any]:
        return self.cause(kind, "message", id=id)

    def link(self, name: str, kind: str) -> dict[str, Any]:
        return self.cause(kind, "link", bridge="moves", link=name)

    def cause(self, kind: str, what: str, **parameters: object) -> dict[str, Any]:
        """Ask until the answer has a cause of that kind."""
        answer: dict[str, Any] = {}

        def found() -> list[dict[str, Any]]:
            answer.clear()
            answer.update(self.ask(what, **parameters))
            return [each for each in answer["causes"] if each["kind"] == kind]

        until(found, lambda: json.dumps(answer, indent=1))
        cause = found()[0]
        if cause["command"]:
            parsed(cause["command"])
        return cause

    def id_of(self, queue: str, body_at: int = 0) -> str:
        """The id of a message that waits in a queue."""
        answer = self.admin.get("/v1/messages", name=queue)
        return str(answer["messages"][body_at]["message_id"])

    def connection(self, client_id: str) -> int:
        """The number of the connection with that client-id."""
        found = self.admin.get("/v1/connections")["connections"]
        return int(next(each["id"] for each in found if each["client_id"] == client_id))


def name() -> str:
    """The name of a queue that no other scene uses."""
    return f"q.{uuid.uuid4().hex[:10]}"


def until(
    condition: Callable[[], object], describe: Callable[[], str] = str, patience: float = 20
) -> None:
    """Wait for a condition, as long as a busy machine may need."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, describe()
        time.sleep(0.05)


def parsed(line: str) -> None:
    """Check that a program takes a remedy, without running it."""
    program, *arguments = shlex.split(line)
    chosen = PROGRAMS[program]
    asked: list[object] = []

    def carry_out(command: object, common: object, options: object) -> int:
        asked.append(command)
        return 0

    before, chosen.carry_out = chosen.carry_out, carry_out  # type: ignore[attr-defined]
    try:
        code = chosen.run(arguments)
    finally:
        chosen.carry_out = before  # type: ignore[attr-defined]
    assert (code, len(asked)) == (0, 1), line
