"""JMS bridges of a cluster: each has one owner, and can get another."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.admin.cli.client import AdminClient, AdminError, find
from gateway.admin.cli.imqbridgemgr import run as imqbridgemgr
from gateway.broker.store.postgresql import ownership
from gateway.broker.store.postgresql.connecting import Database
from gateway.instance.crashpoints import LINK_VARIABLE
from tests.crash.client import PATIENCE, Client, encode
from tests.crash.once_account import ActiveMQsDoubt
from tests.crash.once_pair import xa_activemq
from tests.crash.waiting import until
from tests.documented_blocks import shown
from tests.faults.links import BRIDGE, HERE, Link, stomp, written
from tests.faults.traffic import drain, produce
from tests.gateway_process import HOST, GatewayProcess
from tests.pages import printed
from tests.servers import ActiveMQ
from tests.takeover.machines import Machine
from tests.takeover.test_takeover import create_tables

CLUSTER: Final = "prod"
SETTINGS: Final = {
    "imq.cluster.clusterid": CLUSTER,
    "imq.cluster.heartbeat.interval": "1",
    "imq.bridge.admin.user": "guest",
}
#: Of brokers that take the bridge when its own is dead.
STANDBY: Final = {"imq.bridge.standbylist": BRIDGE, "imq.bridge.takeover.after": "2"}
_PAGE: Final = dict(
    line.split("=") for line in shown("high_availability", "imq.bridge.standbylist").splitlines()
)
assert set(_PAGE) == set(STANDBY), "what the page has is what the tests have"


class Broker(Machine):
    """A broker of the cluster, of one process.

    :param listed: its bridges, besides stomp; each has the same file.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        url: str,
        file: Path,
        *listed: str,
        bridges: tuple[str, ...] = (BRIDGE,),
        environment: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        settings = {**SETTINGS, "imq.bridge.activelist": ",".join(("stomp", *listed))}
        for bridge in bridges:
            settings[f"imq.bridge.{bridge}.type"] = "jms"
            settings[f"imq.bridge.{bridge}.xmlurl"] = str(file.with_name(f"{bridge}.xml"))
        super().__init__(folder, name, url, settings | dict(more or {}), environment, broker=name)

    def until_said(self, text: str) -> None:
        until(
            lambda: text in self.said, lambda: f"{text!r} was never said:\n{self.said}\n{self.log}"
        )

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return (
            self._admin().ask(method, path, body) if body is not None else self._admin().get(path)
        )

    def transfer(self, to: str, bridge: str = BRIDGE) -> Any:
        return self.ask("POST", f"/v1/bridges/{bridge}/transfer", {"to": to})

    @property
    def bridges(self) -> dict[str, tuple[str, str]]:
        """Owner and state of each bridge, as this broker shows them."""
        found = self.ask("GET", "/v1/bridges")["bridges"]
        return {each["name"]: (each["owner"], each["state"]) for each in found}

    def until_bridge(self, owner: str, state: str, bridge: str = BRIDGE) -> None:
        until(
            lambda: self.bridges.get(bridge) == (owner, state),
            lambda: f"{bridge} is {self.bridges.get(bridge)}\n{self.said}\n{self.log}",
        )

    def _admin(self) -> AdminClient:
        address = find(HOST, self.port_mapper_port)
        return AdminClient(address, "admin", self.password, timeout_s=60.0)

    @property
    def password(self) -> str:
        """The administrator's."""
        lines = (self.directory / "etc" / "passfile").read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines)["imq.bridge.admin.password"]


def write(file: Path, *links: Link) -> Path:
    file.touch(mode=0o600)
    file.write_text(written(links).replace(f'name="{BRIDGE}"', f'name="{file.stem}"'))
    return file


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as ending:
        yield ending


@pytest.fixture
def url(postgresql_database: str) -> str:
    for broker in ("east", "west"):
        create_tables(postgresql_database, f"mqc_{CLUSTER}_{broker}")
    return postgresql_database


@pytest.fixture
def foreign(tmp_path: Path, ending: ExitStack) -> Link:
    """A link between two brokers of others."""
    there = [GatewayProcess(tmp_path / name) for name in ("source", "target")]
    for server in there:
        ending.callback(server.kill)
        server.start()
    source, target = (stomp(server.varhome.name, server.port) for server in there)
    return Link("over", source, target)


class Pair:
    """Two ActiveMQs, and a transacted link from the first to the second."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.servers = [ActiveMQ(folder / name) for name in ("source", "target")]
        self._doubts: list[ActiveMQsDoubt] = []
        for server in self.servers:
            server.start()
            ending.callback(server.kill)
        for server in self.servers:
            doubt = ActiveMQsDoubt(server.openwire_port)
            ending.callback(doubt.close)
            self._doubts.append(doubt)
        source, target = (
            xa_activemq(name, server.openwire_port)
            for name, server in zip("ab", self.servers, strict=True)
        )
        self.link = Link("over", source, target, 5, "ONCE_AND_ONLY_ONCE")

    def produce(self, first: int, last: int) -> None:
        produce(self.servers[0].port, self.link.source_queue, first, last)

    def drain(self, last: int) -> list[int]:
        return drain(self.servers[1].port, self.link.target_queue, last)

    @property
    def in_doubt(self) -> list[str]:
        return [branch for doubt in self._doubts for branch in doubt.ask()]


def begun(ending: ExitStack, *brokers: Broker) -> None:
    for broker in brokers:
        ending.callback(broker.kill)
        broker.launch()
    for broker in brokers:
        broker.until_said("is ready")


# --- the table of owners, and the list of a broker


def test_the_table_of_owners_changes_the_list_at_start(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    names = ("one", "two")
    for name in names:
        file = write(tmp_path / f"{name}.xml", foreign)
    east = Broker(tmp_path, "east", url, file, "one", bridges=names)
    begun(ending, east)
    east.until_bridge("east", "STARTED", "one")
    # It is not in the table: it is added as this broker's. One that is another's is removed.
    west = Broker(tmp_path, "west", url, file, "one", "two", bridges=names)
    begun(ending, west)
    west.until_said(
        "bridge one is removed from imq.bridge.activelist: broker east owns it in cluster prod since"
    )
    owned = {"one": ("east", "STARTED"), "two": ("west", "STARTED")}
    for broker in (east, west):
        for name, (owner, state) in owned.items():
            broker.until_bridge(owner, state, name)
    with pytest.raises(AdminError, match="broker west owns bridge two: ask it there"):
        east.ask("POST", "/v1/bridges/two/stop", {})
    [cause] = east.ask("GET", "/v1/why/link?bridge=two&link=over")["causes"]
    assert cause["kind"] == "OWNED_ELSEWHERE"
    assert "Broker 'west' of the cluster owns bridge 'two' (STARTED)" in cause["sentence"]
    assert cause["command"] == "imqbridgemgr list bridge"
    [unknown] = east.ask("GET", "/v1/why/destination?type=q&name=mq.sys.dmq")["unknown"]
    assert "whether a link of it takes part is known there" in unknown
    # It is in the table as this broker's: it is added to the list.
    assert east.terminate() == 0
    east.settings["imq.bridge.activelist"] = "stomp"
    begun(ending, east)
    east.until_said(
        "bridge one is added to imq.bridge.activelist: this broker, east, owns it in cluster prod"
    )
    east.until_bridge("east", "STARTED", "one")


def test_of_two_that_start_at_once_one_owns_the_bridge(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    file = write(tmp_path / f"{BRIDGE}.xml", foreign)
    both = [Broker(tmp_path, name, url, file, BRIDGE) for name in ("east", "west")]
    begun(ending, *both)
    [owner] = {broker.bridges[BRIDGE][0] for broker in both}
    for broker in both:
        broker.until_bridge(owner, "STARTED")


def test_a_bridge_that_is_configured_otherwise_elsewhere_is_refused(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    (tmp_path / "here").mkdir()
    file = write(tmp_path / f"{BRIDGE}.xml", foreign)
    other = write(tmp_path / "here" / f"{BRIDGE}.xml", foreign)
    east = Broker(tmp_path, "east", url, file)
    begun(ending, east)
    other.write_text(file.read_text().replace('max-batch-size="1"', 'max-batch-size="7"'))
    west = Broker(tmp_path, "west", url, other, BRIDGE)
    begun(ending, west)
    told = (
        f"expected what broker east of cluster {CLUSTER} has for bridge {BRIDGE}: "
        "link \"over\", max-batch-size is '7' here and '1' there"
    )
    west.until_said(told)
    page = shown("high_availability", "bridge to_erp").replace("/etc/mq/to_erp.xml", str(other))
    told = page.replace("to_erp", BRIDGE).replace('"orders"', '"over"')
    assert printed.has(west.said, f"...{told}..."), west.said
    assert west.bridges[BRIDGE] == ("west", "STOPPED")
    # Also one that only a setting makes different, and once the others' file is read again.
    file.write_text(other.read_text())
    west.ask("POST", f"/v1/bridges/{BRIDGE}/start", {})
    west.until_bridge("west", "STARTED")


def test_a_setting_that_may_not_differ_ends_the_start(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    file = write(tmp_path / f"{BRIDGE}.xml", foreign)
    east = Broker(tmp_path, "east", url, file, more={"imq.bridge.enabled": "false"})
    begun(ending, east)
    west = Broker(tmp_path, "west", url, file, BRIDGE)
    ending.callback(west.kill)
    west.launch()
    assert west.wait() == 2
    assert (
        f"imq.bridge.enabled is true here, and false at broker east of cluster {CLUSTER}"
        in west.said
    )
    # It may not run, and so it owns nothing.
    with psycopg.connect(url) as session:
        assert session.execute("SELECT name FROM mqcluster_prod.bridge").fetchall() == []


def test_no_bridge_of_the_table_runs_where_bridges_are_switched_off(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    file = write(tmp_path / f"{BRIDGE}.xml", foreign)
    east = Broker(tmp_path, "east", url, file, BRIDGE)
    begun(ending, east)
    east.until_bridge("east", "STARTED")
    assert east.terminate() == 0
    east.settings["imq.bridge.enabled"] = "false"
    begun(ending, east)
    assert BRIDGE not in east.bridges
    east.terminate()
    assert east.said.count(f"bridge {BRIDGE} STARTED") == 0


# --- another owner


def test_a_bridge_goes_to_another_broker_without_a_message_lost_or_doubled(
    url: str, tmp_path: Path, ending: ExitStack
) -> None:
    pair = Pair(tmp_path, ending)
    file = write(tmp_path / f"{BRIDGE}.xml", pair.link)
    east = Broker(tmp_path, "east", url, file, BRIDGE)
    west = Broker(tmp_path, "west", url, file)
    begun(ending, east, west)
    messages, goes = 3000, threading.Event()
    numbers: list[int] = []

    def take() -> None:
        numbers.extend(pair.drain(messages))

    pair.produce(1, 2000)
    taking = threading.Thread(target=take)
    taking.start()
    owner, other, moves = east, west, 0
    until(lambda: _moved(owner) > 50, "nothing moves")
    while taking.is_alive() and moves < 6:
        assert owner.transfer(other.name)["owner"] == other.name
        moves += 1
        owner, other = other, owner
        owner.until_bridge(owner.name, "STARTED")
        if moves == 4:
            # Before that the last one cannot have been taken.
            pair.produce(2001, messages)
            goes.set()
    taking.join(PATIENCE)
    assert not taking.is_alive()
    assert numbers == list(range(1, messages))
    assert goes.is_set()
    assert moves >= 4
    until(lambda: not pair.in_doubt, lambda: f"in doubt: {pair.in_doubt}")


def silent_for(url: str, broker: str) -> float:
    """Seconds since a broker's last sign of life, as the database has it."""
    keywords = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    database = Database(keywords, "the test's", f"mqc_{CLUSTER}_{broker}")
    with database.connect("the test") as session:
        return ownership.look(session).silent


def _moved(broker: Broker) -> int:
    [link] = broker.ask("GET", f"/v1/links/{BRIDGE}")["links"]
    moved: int = link["counters"]["sent"]
    return moved


def test_a_bridge_that_goes_away_cannot_be_started(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    file = write(tmp_path / f"{BRIDGE}.xml", foreign)
    east = Broker(tmp_path, "east", url, file, BRIDGE)
    west = Broker(tmp_path, "west", url, file)
    begun(ending, east, west)
    east.until_bridge("east", "STARTED")
    over = threading.Event()

    def start() -> None:
        while not over.wait(0.01):
            with suppress(AdminError):
                east.ask("POST", f"/v1/bridges/{BRIDGE}/start", {})

    starting = [threading.Thread(target=start) for _ in range(4)]
    for thread in starting:
        thread.start()
    try:
        for _ in range(4):
            east.transfer("west")
            west.transfer("east")
        east.transfer("west")
    finally:
        over.set()
        for thread in starting:
            thread.join()
    west.until_bridge("west", "STARTED")
    source = int(foreign.source.attributes["lookup-name"].rpartition(":")[2])

    def connected() -> bool:
        return any(
            one.raddr and one.raddr.port == source
            for one in psutil.Process(east.pid).net_connections()
        )

    until(lambda: not connected(), "it runs at both")


def test_a_bridge_with_a_side_in_the_broker_stays(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    file = write(tmp_path / f"{BRIDGE}.xml", Link("in", foreign.source, HERE))
    east = Broker(tmp_path, "east", url, file, BRIDGE)
    west = Broker(tmp_path, "west", url, file)
    begun(ending, east, west)
    east.until_bridge("east", "STARTED")
    for to, words in (
        ("west", "stays here: the target of link in is in this broker, east"),
        ("east", "this broker, east, owns bridge"),
        ("north", "there is no broker north in the cluster; the others that have been here: west"),
    ):
        with pytest.raises(AdminError, match=words):
            east.transfer(to)
    with pytest.raises(AdminError, match="broker east owns bridge"):
        west.transfer("west")
    # Nor does one go whose decisions are in a file.
    left = east.directory / "bridges" / BRIDGE / f"txlog.{BRIDGE}"
    left.touch()
    with pytest.raises(AdminError, match=f"its transaction log is still {left}"):
        east.transfer("west")
    assert east.bridges[BRIDGE] == ("east", "STARTED")


def test_a_bridge_of_a_dead_broker_is_taken_with_what_is_in_doubt(
    url: str, tmp_path: Path, ending: ExitStack
) -> None:
    pair = Pair(tmp_path, ending)
    file = write(tmp_path / f"{BRIDGE}.xml", pair.link)
    west = Broker(tmp_path, "west", url, file, more=STANDBY)
    begun(ending, west)
    pair.produce(1, 100)
    east = Broker(
        tmp_path,
        "east",
        url,
        file,
        BRIDGE,
        environment={**os.environ, LINK_VARIABLE: "xa.after-decision:4"},
        more=STANDBY,
    )
    ending.callback(east.kill)
    east.launch()
    assert east.wait(PATIENCE) == -signal.SIGKILL, east.said
    now = time.monotonic()
    last_sign = now - silent_for(url, "east")
    west.until_said(f"bridge {BRIDGE} was taken from broker east")
    assert time.monotonic() - last_sign >= 2
    assert pair.drain(100) == list(range(1, 100))
    until(lambda: not pair.in_doubt, lambda: f"in doubt: {pair.in_doubt}\n{west.log}")
    # It comes back, and does not have it.
    east = Broker(tmp_path, "east", url, file, BRIDGE, more=STANDBY)
    begun(ending, east)
    east.until_said("is removed from imq.bridge.activelist: broker west owns it")
    assert east.bridges[BRIDGE] == ("west", "STARTED")


def test_one_that_was_taken_for_dead_lets_its_bridge_go(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    file = write(tmp_path / f"{BRIDGE}.xml", foreign)
    east = Broker(tmp_path, "east", url, file, BRIDGE, more=STANDBY)
    west = Broker(tmp_path, "west", url, file, more=STANDBY)
    begun(ending, east, west)
    east.until_bridge("east", "STARTED")
    east.signal(signal.SIGSTOP)
    west.until_bridge("west", "STARTED")
    east.signal(signal.SIGCONT)
    east.until_said(f"bridge {BRIDGE} is broker west's now, and was stopped here")
    # It serves its clients on, once it has proven to the database that it still owns its broker.
    until(lambda: east.ready, lambda: f"{east.health()}\n{east.log}")
    east.until_bridge("west", "STARTED")


def test_the_command_shows_owners_and_transfers(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / f"{BRIDGE}.xml", foreign)
    east = Broker(tmp_path, "east", url, file, BRIDGE)
    west = Broker(tmp_path, "west", url, file)
    begun(ending, east, west)
    west.until_bridge("east", "STARTED")
    passfile = tmp_path / "command.passfile"
    passfile.touch(mode=0o600)

    def command(broker: Broker, *words: str) -> str:
        passfile.write_text(f"imq.imqbridgemgr.password={broker.password}\n")
        where = f"-b {HOST}:{broker.port_mapper_port} -u admin -passfile {passfile}".split()
        assert imqbridgemgr([*words, "-f", *where]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    page = shown("high_availability", "Bridge Name").replace("to_erp", BRIDGE).splitlines()
    listed = "\n".join([line for line in page if "to_archive" not in line])
    assert printed.has(command(east, "list", "bridge"), listed)
    assert [
        line.split() for line in command(west, "list", "bridge").splitlines() if BRIDGE in line
    ] == [[BRIDGE, "JMS", "STARTED", "east"]]
    typed = shown("high_availability", "imqbridgemgr transfer").replace("to_erp", BRIDGE)
    said = command(east, *typed.split()[1:])
    assert "Successfully transferred the bridge." in said
    assert [BRIDGE, "JMS", "STARTED", "west"] in [line.split() for line in said.splitlines()]
    assert "Owner: broker west" in command(west, "list", "bridge", "-bn", BRIDGE)
    # One that is paused arrives so, and one that is stopped.
    command(west, "pause", "bridge", "-bn", BRIDGE)
    assert west.transfer("east")["state"] == "PAUSED"
    command(east, "stop", "bridge", "-bn", BRIDGE)
    assert east.transfer("west")["state"] == "STOPPED"


# --- what an operator has paused or stopped


def test_what_an_operator_paused_or_stopped_stays_so(
    url: str, tmp_path: Path, foreign: Link, ending: ExitStack
) -> None:
    paused, stopped = replace(foreign, name="paused"), replace(foreign, name="stopped")
    file = write(tmp_path / f"{BRIDGE}.xml", foreign, paused, stopped)
    source = int(foreign.source.attributes["lookup-name"].rpartition(":")[2])
    target = int(foreign.target.attributes["lookup-name"].rpartition(":")[2])
    east = Broker(tmp_path, "east", url, file, BRIDGE)
    west = Broker(tmp_path, "west", url, file)
    begun(ending, east, west)
    east.until_bridge("east", "STARTED")
    for operation, link in (("pause", paused), ("stop", stopped)):
        east.ask("POST", f"/v1/links/{BRIDGE}/{operation}", {"link": link.name})
    for link in (foreign, paused, stopped):
        produce(source, link.source_queue, 1, 10)

    def states(broker: Broker) -> dict[str, str]:
        return {
            link["name"]: link["state"]
            for link in broker.ask("GET", f"/v1/links/{BRIDGE}")["links"]
        }

    def stay(broker: Broker) -> None:
        wanted = {"over": "STARTED", "paused": "PAUSED", "stopped": "STOPPED"}
        broker.until_bridge(broker.name, "STARTED")
        until(lambda: states(broker) == wanted, lambda: f"{states(broker)}\n{broker.log}")

    stay(east)
    # The next process of the broker has it from the database: its files are its own.
    east.kill()
    (tmp_path / "again").mkdir()
    again = Broker(tmp_path / "again", "east", url, file, BRIDGE)
    again.join(east)
    begun(ending, again)
    stay(again)
    # And so has the next broker.
    again.transfer("west")
    stay(west)
    # One that was on its way when the process was killed may come twice.
    assert set(drain(target, foreign.target_queue, 10)) == set(range(1, 10))
    for link in (paused, stopped):
        with Client(target) as client:
            client.ask("SEND", {"destination": link.target_queue}, b"the first that is there")
            client.write(
                encode("SUBSCRIBE", {"destination": link.target_queue, "id": "1", "ack": "client"})
            )
            assert client.message().body == b"the first that is there"
            client.ask("DISCONNECT", {})
    west.ask("POST", f"/v1/links/{BRIDGE}/resume", {"link": "paused"})
    west.ask("POST", f"/v1/links/{BRIDGE}/start", {"link": "stopped"})
    for link in (paused, stopped):
        with Client(target) as client:
            client.write(
                encode("SUBSCRIBE", {"destination": link.target_queue, "id": "1", "ack": "auto"})
            )
            bodies = [client.message().body for _ in range(11)]
            assert sorted(bodies)[-1] == b"the first that is there"
    # A bridge that was stopped stays stopped, and to start it starts all.
    west.ask("POST", f"/v1/links/{BRIDGE}/pause", {"link": "paused"})
    west.ask("POST", f"/v1/bridges/{BRIDGE}/stop", {})
    assert west.terminate() == 0
    begun(ending, west)
    west.until_said(f"bridge {BRIDGE} is added")
    assert west.bridges[BRIDGE] == ("west", "STOPPED")
    west.ask("POST", f"/v1/bridges/{BRIDGE}/start", {})
    until(lambda: set(states(west).values()) == {"STARTED"}, lambda: str(states(west)))
    west.ask("POST", f"/v1/bridges/{BRIDGE}/pause", {})
    west.kill()
    begun(ending, west)
    west.until_bridge("west", "PAUSED")
    west.ask("POST", f"/v1/bridges/{BRIDGE}/resume", {})
    until(lambda: set(states(west).values()) == {"STARTED"}, lambda: str(states(west)))
