"""An instance that is copied from a file to a database, and back, with real gateways."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from gateway import dbmgr
from gateway.broker.properties.jdbc import PASSWORD
from gateway.instance import passfile
from gateway.instance.layout import Layout
from tests.crash.client import Client
from tests.gateway_process import INSTANCE, GatewayProcess

QUEUE: Final = "/queue/orders"
SUBSCRIBED: Final = {
    "destination": "/topic/news",
    "id": "news",
    "ack": "client-individual",
    "durable": "true",
    "durable-subscription-name": "reader",
}


def imqdbmgr(gateway: GatewayProcess, *words: str) -> str:
    """Run the command on a gateway's instance; return what it says."""
    override = [f"-D{name}={value}" for name, value in gateway.settings.items()]
    place = ["-varhome", str(gateway.varhome), "-i", INSTANCE]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = dbmgr.run([*words, *place, *override])
    assert (code, err.getvalue()) == (0, "")
    return out.getvalue()


def received(port: int, count: int) -> list[bytes]:
    """Take and acknowledge messages of the queue in order."""
    with Client(port) as client:
        client.write(b"SUBSCRIBE\ndestination:/queue/orders\nid:1\nack:client-individual\n\n\0")
        messages = [client.message() for _ in range(count)]
        for message in messages:
            client.ask("ACK", {"id": message.headers["ack"]})
        return [message.body for message in messages]


def news(port: int) -> Client:
    """A connection with the durable subscription."""
    client = Client(port, headers={"client-id": "reader"})
    client.ask("SUBSCRIBE", SUBSCRIBED)
    return client


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_an_instance_moves_to_a_database_and_back(
    postgresql_database: str, tmp_path: Path, killed: bool
) -> None:
    url = urlsplit(postgresql_database)
    gateway = GatewayProcess(tmp_path / "var")
    gateway.start()
    news(gateway.port).close()
    with Client(gateway.port) as client:
        for number in range(30):
            client.store(QUEUE, b"order %d" % number)
        client.store("/topic/news", b"headline")
    (gateway.kill if killed else gateway.terminate)()

    layout = Layout(gateway.varhome, INSTANCE)
    passfile.update(layout.passfile, {PASSWORD.name: unquote(url.password or "")})
    file = gateway.settings
    gateway.settings = {
        **file,
        "imq.persist.store": "jdbc",
        "imq.persist.jdbc.postgresql.opendburl": f"postgresql://{url.hostname}:{url.port}{url.path}",
        "imq.persist.jdbc.postgresql.user": url.username or "",
        "imq.passfile.enabled": "true",
    }
    said = imqdbmgr(gateway, "restore", "tbl", "-dir", str(layout.store))
    assert ": 31 messages." in said
    layout.store.rename(tmp_path / "former")
    gateway.start()
    assert received(gateway.port, 10) == [b"order %d" % number for number in range(10)]
    with Client(gateway.port) as client:
        client.store(QUEUE, b"order 30")
    assert "is whole: 22 messages." in imqdbmgr(gateway, "check", "tbl")
    (gateway.kill if killed else gateway.terminate)()

    assert ": 22 messages." in imqdbmgr(gateway, "backup", "tbl", "-dir", str(layout.store))
    gateway.settings = file
    assert "is whole: 22 messages." in imqdbmgr(gateway, "check")
    gateway.start()
    assert received(gateway.port, 21) == [b"order %d" % number for number in range(10, 31)]
    with news(gateway.port) as client:
        assert client.message().body == b"headline"
    assert gateway.terminate() == 0
