"""Real instances that are copied from a file to a database and back."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from gateway import dbmgr
from gateway.admin.cli.client import AdminError
from gateway.broker.properties.jdbc import PASSWORD
from gateway.instance import passfile
from gateway.instance.crashpoints import KILL, LINK_VARIABLE, ORDER
from gateway.instance.layout import Layout
from tests.crash.client import PATIENCE, Client
from tests.crash.once_account import ActiveMQsDoubt
from tests.crash.once_pair import xa_activemq
from tests.crash.waiting import until
from tests.faults.links import BRIDGE, HERE, BridgedGateway, Link
from tests.faults.traffic import drain, produce
from tests.gateway_process import INSTANCE, GatewayProcess
from tests.servers import ActiveMQ

BATCH: Final = 5
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


def in_database(layout: Layout, url: str) -> dict[str, str]:
    """Give the instance the password of a database; return the settings that name it."""
    parts = urlsplit(url)
    passfile.update(layout.passfile, {PASSWORD.name: unquote(parts.password or "")})
    return {
        "imq.persist.store": "jdbc",
        "imq.persist.jdbc.postgresql.opendburl": f"postgresql://{parts.hostname}:{parts.port}{parts.path}",
        "imq.persist.jdbc.postgresql.user": parts.username or "",
        "imq.passfile.enabled": "true",
        "imq.cluster.heartbeat.interval": "1",
        "imq.cluster.heartbeat.threshold": "2",
    }


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
    gateway = GatewayProcess(tmp_path / "var")
    gateway.start()
    news(gateway.port).close()
    with Client(gateway.port) as client:
        for number in range(30):
            client.store(QUEUE, b"order %d" % number)
        client.store("/topic/news", b"headline")
    (gateway.kill if killed else gateway.terminate)()

    layout = Layout(gateway.varhome, INSTANCE)
    file = gateway.settings
    gateway.settings = {**file, **in_database(layout, postgresql_database)}
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


# --- with transacted links


class Moving:
    """A gateway with a transacted link to an ActiveMQ.

    :param ending: ends both.
    """

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.activemq = ActiveMQ(folder / "activemq")
        self.activemq.start()
        ending.callback(self.activemq.kill)
        self._doubt = ActiveMQsDoubt(self.activemq.openwire_port)
        ending.callback(self._doubt.close)
        there = xa_activemq("there", self.activemq.openwire_port)
        self.link = Link("out", HERE, there, BATCH, "ONCE_AND_ONLY_ONCE")
        self._orders = folder / "orders"
        self._orders.mkdir()
        environment = {**os.environ, LINK_VARIABLE: f"@{self._orders}"}
        self.gateway = BridgedGateway(folder / "gateway", [self.link], environment=environment)
        ending.callback(self.gateway.kill)

    def die_at(self, point: str, first: int, last: int) -> None:
        """Have the link move messages, and the gateway killed in the second batch."""
        gateway, link = self.gateway, self.link
        gateway.until_moving()
        gateway.operate("stop", link.name)
        gateway.until_link(link.name, lambda told: told["state"] == "STOPPED", "STOPPED")
        produce(gateway.port, link.source_queue, first, last)
        # Whole at once, as it may be read at any moment.
        order = self._orders / "given"
        order.write_text(f"{point}:2 {KILL}")
        order.rename(self._orders / ORDER)

        def start() -> None:
            with suppress(AdminError, OSError):  # the gateway that is to answer may be dead by then
                gateway.operate("start", link.name)

        starting = Thread(target=start)
        starting.start()
        assert gateway.wait(PATIENCE) == -signal.SIGKILL, gateway.said
        starting.join(PATIENCE)
        (self._orders / ORDER).unlink()
        assert self._doubt.ask(), "nothing was prepared"

    def until_settled(self) -> None:
        """Have the link run, and wait until nothing is in doubt any more."""
        # The order to start it may have been lost with the process, and the one to stop it was kept.
        self.gateway.until_link(self.link.name, lambda told: True, "an answer")
        self.gateway.operate("start", self.link.name)
        self.gateway.until_moving()
        until(
            lambda: not self._doubt.ask() and not self._unfinished(),
            lambda: (
                f"something stays in doubt: {self._doubt.ask()}, {self._unfinished()}\n{self.gateway.log[-3000:]}"
            ),
        )

    def _unfinished(self) -> list[str]:
        states = [each["state"] for each in self.gateway.transactions()]
        # In an ACTIVE one the link waits for messages.
        return [state for state in states if state != "ACTIVE"]


@pytest.mark.parametrize("point", ["xa.after-prepare-2", "xa.after-decision"])
def test_what_a_link_had_begun_is_completed_at_the_other_store(
    postgresql_database: str, tmp_path: Path, point: str
) -> None:
    with ExitStack() as ending:
        moving = Moving(tmp_path, ending)
        gateway, link = moving.gateway, moving.link
        gateway.start()
        moving.die_at(point, 1, 20)

        layout = Layout(gateway.varhome, INSTANCE)
        file = gateway.settings
        gateway.settings = {**file, **in_database(layout, postgresql_database)}
        said = imqdbmgr(gateway, "restore", "tbl", "-dir", str(layout.store))
        assert f"The transaction logs of these bridges go on there: {BRIDGE}" in said
        assert not layout.transaction_log(BRIDGE).exists()
        layout.store.rename(tmp_path / "former")
        gateway.start()
        moving.until_settled()
        moving.die_at(point, 21, 40)

        said = imqdbmgr(gateway, "backup", "tbl", "-dir", str(layout.store))
        assert f"the transaction logs of the bridges: {BRIDGE}" in said
        if point == "xa.after-decision":
            assert f"{BRIDGE} (1 unfinished)" in said
        gateway.settings = file
        gateway.start()
        moving.until_settled()
        assert layout.transaction_log(BRIDGE).exists()
        produce(gateway.port, link.source_queue, 41, 41)
        assert drain(moving.activemq.port, link.target_queue, 41) == [*range(1, 41)]
        moving.until_settled()
        assert gateway.terminate() == 0

        # And to the database again, over what that still has.
        gateway.settings = {**file, **in_database(layout, postgresql_database)}
        said = imqdbmgr(gateway, "restore", "tbl", "-f", "-dir", str(layout.store))
        assert f"The transaction logs of these bridges go on there: {BRIDGE}" in said
        gateway.start()
        moving.until_settled()
        produce(gateway.port, link.source_queue, 42, 43)
        assert drain(moving.activemq.port, link.target_queue, 43) == [42]
        assert not layout.transaction_log(BRIDGE).exists()
        assert gateway.terminate() == 0
