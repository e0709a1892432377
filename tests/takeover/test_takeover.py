"""The owner of a broker dies, hangs, is cut off or gives up.

Every message is accounted for: no confirmed message is lost, none that was acknowledged comes back, and each producer's order is
kept.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.broker.store.postgresql import ownership
from gateway.broker.store.postgresql.connecting import Database
from tests.crash.client import Client
from tests.crash.waiting import until
from tests.documented_blocks import shown
from tests.faults.proxy import Proxy
from tests.gateway_process import HOST, ROOT
from tests.pages import printed
from tests.postgresql import Cluster, at
from tests.takeover import table
from tests.takeover.machines import BROKER, Machine, Machines

Record = Callable[[str, object], None]

#: Seconds within which another process serves, as the documentation promises it.
KILLED: Final = 3.0
VANISHED: Final = 10.0
ASKED: Final = 1.0
#: What a busy machine of tests may add to them.
STARVED: Final = 30.0


def create_tables(url: str, schema: str = f"mq_{BROKER}") -> None:
    keywords = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    database = Database(keywords, "the test's", schema)
    session = database.connect("the test")
    ownership.create(database, session, "store")
    session.close()


@pytest.fixture
def machines(tmp_path: Path, postgresql_database: str) -> Iterator[Machines]:
    """Two processes of a broker; the first owns it."""
    create_tables(postgresql_database)
    with Machines(tmp_path, postgresql_database, "first", "second") as machines:
        yield machines


def imqcmd(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    passfile = machine.directory / "etc" / "passfile"
    password = passfile.read_text().split("imq.bridge.admin.password=")[1].splitlines()[0]
    given = machine.varhome / "imqcmd"
    given.write_text(f"imq.imqcmd.password={password}\n")
    given.chmod(0o600)
    command = "from gateway.admin.cli.imqcmd import main; main()"
    return subprocess.run(
        [
            *(sys.executable, "-c", command, *words, "-f"),
            *("-b", f"{HOST}:{machine.port_mapper_port}", "-u", "admin", "-passfile", str(given)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# --- what happens to an owner; each returns what it is called in the table


def is_killed(machines: Machines, owner: Machine) -> str:
    owner.kill()
    return "is killed"


def ends(machines: Machines, owner: Machine) -> str:
    owner.signal(signal.SIGTERM)
    return "ends in order"


def hangs(machines: Machines, owner: Machine) -> str:
    owner.signal(signal.SIGSTOP)
    return "hangs (SIGSTOP)"


def is_replaced(machines: Machines, owner: Machine) -> str:
    (other,) = machines.standbys(owner)
    done = imqcmd(other, "takeover", "bkr", "-n", BROKER)
    assert done.returncode == 0, done
    return "is asked to give up (takeover bkr)"


def quiesces(machines: Machines, owner: Machine) -> str:
    done = imqcmd(owner, "quiesce", "bkr")
    assert done.returncode == 0, done
    return "gives up (quiesce bkr)"


def shuts_down(machines: Machines, owner: Machine) -> str:
    done = imqcmd(owner, "shutdown", "bkr")
    assert done.returncode == 0, done
    return "ends (shutdown bkr)"


Happening = Callable[[Machines, Machine], str]
LIMITS: Final[dict[Happening, float]] = {
    is_killed: KILLED,
    hangs: VANISHED,
    ends: ASKED,
    is_replaced: ASKED,
    quiesces: ASKED,
    shuts_down: ASKED,
}


def take_over(
    machines: Machines, happen: Happening, receipts: int, seed: int, record: Record
) -> None:
    """Have something happen to the owner, and account for everything.

    What it was stands by afterwards.
    """
    owner = machines.owner
    load = machines.load(seed)
    load.wait_for_receipts(receipts)
    what = happen(machines, owner)
    successor, seconds = machines.until_taken_over(owner)
    if happen is hangs:
        # It goes on where it was, and must not confirm anything any more.
        owner.signal(signal.SIGCONT)
        assert owner.wait() == 3, machines.told()
        assert f"{successor.name} owns this broker" in owner.log
    elif happen is not is_killed:
        assert owner.wait() == 0, machines.told()
    found = machines.account(load, successor)
    record(table.PROPERTY, table.recorded(what, seconds, found))
    assert seconds < LIMITS[happen] + STARVED
    owner.begin()
    assert "standing by: " in owner.said


@pytest.mark.parametrize("happen", [is_killed, hangs, is_replaced])
def test_another_process_takes_over(
    happen: Happening, machines: Machines, record_property: Record
) -> None:
    take_over(machines, happen, 300, 1, record_property)
    assert machines.found > 0, "nothing was ever there, so nothing was proved"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 600, 100))
def test_again_and_again(seed: int, machines: Machines, record_property: Record) -> None:
    chosen = random.Random(seed)
    for turn in range(10):
        happen = chosen.choice(list(LIMITS))
        take_over(machines, happen, chosen.randrange(1, 700), seed + turn, record_property)
    assert machines.found > 0


@pytest.mark.parametrize("happen", [quiesces, shuts_down, ends])
def test_one_that_gives_up_without_clients_is_replaced(
    happen: Happening, machines: Machines, record_property: Record
) -> None:
    owner = machines.owner
    with Client(owner.port) as client:
        client.store("/queue/q", b"kept")
    what = happen(machines, owner)
    successor, seconds = machines.until_taken_over(owner)
    record_property(table.PROPERTY, table.recorded(what, seconds, 1))
    assert owner.wait() == 0
    assert seconds < ASKED + STARVED
    with Client(successor.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/q", "id": "1"})
        assert client.message().body == b"kept"


def test_what_is_paused_or_to_be_delivered_later_is_taken_over(machines: Machines) -> None:
    owner = machines.owner
    with Client(owner.port) as client:
        client.store("/queue/paused", b"kept")
        for delay in ("0", "1", "2000000", "100"):
            headers = {"destination": "/queue/later", "AMQ_SCHEDULED_DELAY": delay}
            client.ask("SEND", headers, delay.encode())
    paused = imqcmd(owner, "pause", "dst", "-t", "q", "-n", "paused", "-pst", "CONSUMERS")
    assert paused.returncode == 0, paused
    owner.kill()
    successor, _ = machines.until_taken_over(owner)
    with Client(successor.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/paused", "id": "1"})
        client.ask("SUBSCRIBE", {"destination": "/queue/later", "id": "2"})
        assert [client.message().body for _ in range(3)] == [b"0", b"1", b"100"]
        resumed = imqcmd(successor, "resume", "dst", "-t", "q", "-n", "paused")
        assert resumed.returncode == 0, resumed
        assert client.message().body == b"kept"
    listed = imqcmd(successor, "list", "scheduled", "-t", "q", "-n", "later").stdout
    assert "DELAY=2000000" in listed


@pytest.mark.long
def test_a_last_value_queue_has_one_message_for_each_key_after_it(machines: Machines) -> None:
    owner, queue = machines.owner, {"destination": "/queue/quotes"}
    made = imqcmd(owner, "create", "dst", "-t", "q", "-n", "quotes", "-o", "lastValueKey=symbol")
    assert made.returncode == 0, made
    with Client(owner.port) as client:
        for number in range(30):
            client.ask("SEND", {**queue, "symbol": f"{number % 3}"}, b"%d" % number)
        # A consumer has the oldest when it dies, and newer ones come.
        with Client(owner.port) as other:
            ask = {**queue, "id": "1", "ack": "client", "prefetch-count": "1"}
            other.ask("SUBSCRIBE", ask)
            assert other.message().body == b"27"
            client.ask("SEND", {**queue, "symbol": "0"}, b"30")
            owner.kill()
    successor, _ = machines.until_taken_over(owner)
    with Client(successor.port) as client:
        client.ask("SEND", {**queue, "symbol": "1"}, b"31")
        client.ask("SUBSCRIBE", {**queue, "id": "1"})
        assert [client.message().body for _ in range(3)] == [b"29", b"30", b"31"]
        client.send("/queue/quotes", b"last", symbol="3")
        assert client.message().body == b"last"
    queried = imqcmd(successor, "query", "dst", "-t", "q", "-n", "quotes").stdout
    assert "symbol" in queried, queried


def test_what_processes_say_of_themselves(machines: Machines) -> None:
    owner = machines.owner
    (standby,) = machines.standbys(owner)
    assert owner.health("live") == (200, {"live": True, "state": "owner"})
    assert owner.health() == (200, {"ready": True, "state": "owner", "reasons": []})
    assert standby.health("live") == (200, {"live": True, "state": "standby"})
    status, answer = standby.health()
    assert (status, answer["ready"], answer["state"]) == (503, False, "standby")
    assert "first owns broker orders since" in answer["reasons"][0]
    assert printed.has(
        standby.said.replace("first", "east"), shown("high_availability", "standing by")
    )
    typed, answered = shown("high_availability", "$ curl").splitlines()
    url = f"http://{HOST}:{standby.health_port}/ready"
    assert typed == "$ curl -s http://west:7680/ready"
    curl = subprocess.run(["curl", "-s", url], capture_output=True, text=True, check=True)
    assert printed.has(curl.stdout.replace("first", "east"), answered), curl.stdout
    assert not standby.mapped_ports(), "it does not listen for STOMP"
    for asked, marked in ((owner, "first *"), (standby, "second *")):
        listed = imqcmd(asked, "list", "bkr").stdout
        assert marked in listed, listed
        page = shown("high_availability", "Broker ID").replace("east *", "east")
        there = listed.replace(" *", "").replace("first", "east").replace("second", "west")
        assert printed.has(there, page), listed
        rows = [line.replace(" *", "").split()[:4] for line in listed.splitlines()]
        assert [BROKER, "-", "first", "OWNER"] in rows
        assert [BROKER, "-", "second", "STANDBY"] in rows
    for words, machine, why in (
        (("takeover", "bkr", "-n", "other"), standby, "stands by for broker orders"),
        (("takeover", "bkr", "-n", BROKER), owner, "owns its broker already"),
        (("quiesce", "bkr"), standby, "does not own its broker"),
    ):
        refused = imqcmd(machine, *words)
        assert (refused.returncode, why in refused.stderr) == (1, True), refused
    for question in ("dst -t q -n orders", "msg -id ID-x-1", "cxn -id 1"):
        told = imqcmd(standby, "why", *question.split())
        assert "STANDBY" in told.stdout, told
        assert "first owns the broker since" in told.stdout, told
        assert f"imqcmd takeover bkr -n {BROKER}" in told.stdout, told
    assert "STANDBY" not in imqcmd(owner, "why", "dst", "-t", "q", "-n", "orders").stdout
    for machine in (owner, standby):
        examined = imqcmd(machine, "doctor")
        assert "ok  certificates: " in examined.stdout, examined
    assert "ok  journal: " not in examined.stdout
    happened = imqcmd(standby, "events", "-kind", "owner").stdout
    assert "standing by: first owns broker orders since" in happened
    standby.kill()
    refused = imqcmd(owner, "quiesce", "bkr")
    assert "no process stands by" in refused.stderr


def test_a_standby_that_dies_or_hangs_does_not_matter(machines: Machines) -> None:
    owner = machines.owner
    (standby,) = machines.standbys(owner)
    load = machines.load(5)
    load.wait_for_receipts(100)
    standby.signal(signal.SIGSTOP)
    load.wait_for_receipts(300)
    standby.signal(signal.SIGCONT)
    standby.kill()
    load.wait_for_receipts(500)
    owner.kill()
    standby.begin()
    until(lambda: standby.ready, machines.told)
    machines.account(load, standby)


def test_one_that_is_cut_off_from_the_database_is_replaced(
    tmp_path: Path, postgresql_database: str, postgresql: Cluster, record_property: Record
) -> None:
    create_tables(postgresql_database)
    with Proxy(postgresql.port) as proxy:
        machines = Machines(tmp_path, postgresql_database, "second")
        cut_off = Machine(tmp_path, "first", at(postgresql_database, proxy.port))
        machines.all.insert(0, cut_off)
        with machines:
            load = machines.load(6)
            load.wait_for_receipts(300)
            proxy.cut()
            successor, seconds = machines.until_taken_over(cut_off)
            assert successor.name == "second"
            with Client(cut_off.port, connect=False) as client:
                # It may accept the connection, and says nothing.
                client.socket.settimeout(0.5)
                client.write(
                    b"CONNECT\naccept-version:1.2\nhost:x\nlogin:guest\npasscode:guest\n\n\0"
                )
                with pytest.raises(TimeoutError):
                    pytest.fail(f"{client.frame()}\n{cut_off.log}")
            proxy.heal()
            assert cut_off.wait(90) == 3, machines.told()
            found = machines.account(load, successor)
        record_property(
            table.PROPERTY, table.recorded("is cut off from the database", seconds, found)
        )
        assert seconds < VANISHED + STARVED


def test_the_database_fails_over_and_the_owner_goes_on(
    tmp_path: Path, postgresql_cluster: Cluster
) -> None:
    url = postgresql_cluster.database()
    create_tables(url)
    secondary = postgresql_cluster.standby()
    both = at(url, postgresql_cluster.port, secondary.port)
    with Machines(tmp_path, both, "first", "second") as machines:
        owner = machines.owner
        load = machines.load(7)
        load.wait_for_receipts(300)
        postgresql_cluster.kill()
        until(lambda: owner.health()[1].get("reasons"), machines.told)
        secondary.promote()
        load.wait_for_receipts(700)
        assert machines.owner is owner
        owner.kill()
        successor, _ = machines.until_taken_over(owner)
        machines.account(load, successor)
