"""The owner of a broker dies while a transacted link of it moves messages.

The next owner has the decisions of the first in the database, and no file of it.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.broker.store.postgresql.connecting import Database
from gateway.instance.crashpoints import LINK_VARIABLE
from tests.crash.client import PATIENCE, Client, encode
from tests.crash.once_account import ActiveMQsDoubt
from tests.crash.once_pair import xa_activemq
from tests.crash.waiting import until
from tests.faults.links import BRIDGE, HERE, Link, written
from tests.faults.traffic import number_of, produce
from tests.servers import ActiveMQ
from tests.takeover.machines import BROKER, Machine
from tests.takeover.test_takeover import create_tables

MESSAGES: Final = 60


@pytest.mark.parametrize(
    "point", ["xa.after-prepare-2", "xa.before-decision", "xa.after-decision", "xa.after-commit-1"]
)
def test_the_next_owner_completes_what_was_in_doubt(
    point: str, postgresql_database: str, tmp_path: Path
) -> None:
    create_tables(postgresql_database)
    database = Database(
        {key: str(value) for key, value in conninfo_to_dict(postgresql_database).items()},
        "the test's",
        f"mq_{BROKER}",
    )
    with ExitStack() as ending:
        activemq = ActiveMQ(tmp_path / "activemq")
        activemq.start()
        ending.callback(activemq.kill)
        doubt = ActiveMQsDoubt(activemq.openwire_port)
        ending.callback(doubt.close)
        there = xa_activemq("there", activemq.openwire_port)
        link = Link("back", there, HERE, 5, "ONCE_AND_ONLY_ONCE")
        file = tmp_path / "bridge.xml"
        file.touch(mode=0o600)
        file.write_text(written([link]))
        settings = {
            "imq.bridge.activelist": f"stomp,{BRIDGE}",
            f"imq.bridge.{BRIDGE}.type": "jms",
            f"imq.bridge.{BRIDGE}.xmlurl": str(file),
        }
        produce(activemq.port, link.source_queue, 1, MESSAGES)
        first = Machine(
            tmp_path,
            "first",
            postgresql_database,
            settings,
            {**os.environ, LINK_VARIABLE: f"{point}:4"},
        )
        second = Machine(tmp_path, "second", postgresql_database, settings)
        ending.callback(first.kill)
        first.launch()
        until(lambda: "STOMP over TCP" in first.said, lambda: first.said)
        ending.callback(second.kill)
        second.launch()
        assert first.wait(PATIENCE) == -signal.SIGKILL, first.said
        until(lambda: second.ready, lambda: f"{second.said}\n{second.log}")

        with Client(second.port) as client:
            client.write(
                encode("SUBSCRIBE", {"destination": link.target_queue, "id": "1", "ack": "auto"})
            )
            numbers = [number_of(client.message()) for _ in range(MESSAGES)]
            assert sorted(numbers) == list(range(1, MESSAGES + 1))
            # Nothing comes twice.
            produce(activemq.port, link.source_queue, MESSAGES + 1, MESSAGES + 1)
            assert number_of(client.message()) == MESSAGES + 1
        with database.connect("the test") as session:
            until(
                lambda: not session.execute("SELECT 1 FROM branch").fetchall() and not doubt.ask(),
                lambda: f"something stays in doubt: {doubt.ask()}\n{second.log}",
            )
            logs = session.execute("SELECT bridge FROM decision_log").fetchall()
        assert logs == [(BRIDGE.encode(),)]
        assert not list(tmp_path.rglob("txlog*"))
