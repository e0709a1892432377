"""A gateway and an ActiveMQ, with a transacted link each way between them, of which either can be
killed at a named point and started again.

Owns both processes and the case: messages are produced, somebody dies, comes back, and everything
is counted.

Which cases there are, and which of them only the long run takes, is at the end.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.admin.cli.client import AdminError
from gateway.instance.crashpoints import HELD, HOLD, KILL, LINK_VARIABLE, ONCE_POINTS, ORDER
from tests.crash.client import PATIENCE
from tests.crash.once_account import ActiveMQsDoubt, account, collect, decided, embedded_doubt
from tests.crash.once_table import Row
from tests.crash.waiting import until
from tests.faults.links import BRIDGE, HERE, BridgedGateway, Factory, Link
from tests.faults.traffic import drain, produce
from tests.gateway_process import HOST
from tests.java_processes import kill_java
from tests.servers import ActiveMQ

BATCH: Final = 5
OUT: Final = "embedded → ActiveMQ"
BACK: Final = "ActiveMQ → embedded"
GATEWAY: Final = "gateway"
ACTIVEMQ: Final = "ActiveMQ"
BOTH: Final = "both"
JAVA: Final = "Java"

#: Where neither provider may have put a message.
_DEAD: Final = "/queue/imq.bridge.jms.dmq"
_DEAD_THERE: Final = "/queue/ActiveMQ.DLQ"


def nth_of(messages: int, *case: str) -> int:
    """At which time of passing its point somebody dies: in the middle of the work, another one in
    each case, the same one in each run.
    """
    transactions = messages // BATCH
    return random.Random(" ".join(case)).randrange(1, transactions - 1)


class Pair:
    """A gateway over many starts, and an ActiveMQ over many.

    :param ending: kills them.
    """

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.activemq = ActiveMQ(folder / "activemq")
        self.activemq.start()
        ending.callback(self.activemq.kill)
        self._doubt = ActiveMQsDoubt(self.activemq.openwire_port)
        ending.callback(self._doubt.close)
        there = xa_activemq("there", self.activemq.openwire_port)
        once = "ONCE_AND_ONLY_ONCE"
        self.links = {
            OUT: Link("out", HERE, there, BATCH, once),
            BACK: Link("back", there, HERE, BATCH, once),
        }
        self._orders = folder / "orders"
        self._orders.mkdir()
        environment = {**os.environ, LINK_VARIABLE: f"@{self._orders}"}
        self.gateway = BridgedGateway(
            folder / "gateway", list(self.links.values()), environment=environment
        )
        ending.callback(self.gateway.kill)
        self.gateway.start()
        self._number = 0
        #: By link: messages that were to be moved.
        self._sent: Counter[str] = Counter()

    # --- cases

    def gateway_dies(self, way: str, point: str, messages: int) -> Row:
        """The gateway is killed at the point, and started again."""
        nth = nth_of(messages, way, point, GATEWAY)
        with self._moving(way, f"{point}:{nth}", KILL, messages) as first:
            assert self.gateway.wait(PATIENCE) == -signal.SIGKILL, self.gateway.said
        self._withdraw()
        prepared = len(self._doubt.ask()) + len(embedded_doubt(self._store))
        began = time.monotonic()
        self.gateway.start()
        return self._over(way, point, GATEWAY, nth, first, messages, prepared, began)

    def activemq_dies(self, way: str, point: str, messages: int) -> Row:
        """ActiveMQ is killed while the gateway is held at the point, and started again over its
        data when the gateway has gone on.
        """
        nth = nth_of(messages, way, point, ACTIVEMQ)
        with self._moving(way, f"{point}:{nth}", HOLD, messages) as first:
            self._until_held()
            prepared = len(self._doubt.ask()) + len(embedded_doubt(self._store))
            self.activemq.kill()
            self._withdraw()
            began = time.monotonic()
            self.activemq.start()
        return self._over(way, point, ACTIVEMQ, nth, first, messages, prepared, began)

    def java_dies(self, way: str, point: str, messages: int) -> Row:
        """The gateway's Java process is killed while the gateway is held at the point."""
        nth = nth_of(messages, way, point, JAVA)
        # Otherwise it would have died in the case before, too, and be started anew only after a
        # pause.
        self.gateway.terminate()
        self.gateway.start()
        with self._moving(way, f"{point}:{nth}", HOLD, messages) as first:
            self._until_held()
            prepared = len(self._doubt.ask()) + len(embedded_doubt(self._store))
            kill_java(self.gateway.pid)
            self._withdraw()
            began = time.monotonic()
        return self._over(way, point, JAVA, nth, first, messages, prepared, began)

    def both_die(
        self,
        way: str,
        point: str,
        messages: int,
        gateway_first: bool,
        waits: Callable[[], object] | None,
    ) -> Row:
        """Both are killed at the point, the gateway while it is held there.

        :param gateway_first: who comes back first; the other one follows when the first is up.
        :param waits: where the gateway is first, what must hold before ActiveMQ may come.
        """
        nth = nth_of(messages, way, point, BOTH, str(gateway_first))
        with self._moving(way, f"{point}:{nth}", HOLD, messages) as first:
            self._until_held()
            prepared = len(self._doubt.ask()) + len(embedded_doubt(self._store))
            self.activemq.kill()
            self.gateway.kill()
            self._withdraw()
            (self._orders / HELD).unlink()
            began = time.monotonic()
            if gateway_first:
                self.gateway.start()
                self.gateway.until_link(self.links[way].name, lambda told: True, "an answer")
                if waits is not None:
                    until(
                        waits,
                        lambda: (
                            f"what waits was never told:\n{self.gateway.said}\n{self.gateway.log[-3000:]}"
                        ),
                    )
                # What is to be done on its own side it does without the other.
                until(
                    lambda: self._embedded_doubt() == 0,
                    lambda: f"a branch stays:\n{self.gateway.log[-3000:]}",
                )
                self.activemq.start()
            else:
                self.activemq.start()
                self.gateway.start()
        dies = f"both, {GATEWAY if gateway_first else ACTIVEMQ} back first"
        return self._over(way, point, dies, nth, first, messages, prepared, began)

    def waiting_is_told(self) -> bool:
        """Whether operators are shown a decided transaction that waits for ActiveMQ, which is in
        the log still.
        """
        shown = self.gateway.transactions()
        waiting = [
            branch["ref_name"]
            for each in shown
            if each["state"] == "WAITING"
            for branch in each["branches"]
        ]
        told = [
            cause["kind"]
            for link in self.links.values()
            for cause in self.gateway.why(link.name)["causes"]
        ]
        return (
            "there" in waiting
            and "PREPARED_TRANSACTION" in told
            and "wait for 'there'" in self.gateway.log
            and decided(self._txlog) > 0
        )

    # --- a case's parts

    @contextmanager
    def _moving(self, way: str, where: str, act: str, messages: int) -> Iterator[int]:
        """The link is to move these, and an order is given.

        :returns: the number of the first message.
        """
        link, gateway = self.links[way], self.gateway
        gateway.until_moving()
        self._stop(link)
        first = self._take(messages)
        produce(self._source(way), link.source_queue, first, first + messages - 1)
        order = self._orders / "given"
        order.write_text(f"{where} {act}")
        order.rename(self._orders / ORDER)

        def start() -> None:
            with suppress(AdminError, OSError):  # who is to answer may be dead or held by then
                gateway.operate("start", link.name)

        starting = threading.Thread(target=start)
        starting.start()
        try:
            yield first
        finally:
            self._withdraw()
            starting.join(PATIENCE)

    def _over(
        self,
        way: str,
        point: str,
        dies: str,
        nth: int,
        first: int,
        messages: int,
        prepared: int,
        began: float,
    ) -> Row:
        """Wait until all is moved, and count it."""
        link = self.links[way]
        last = self._take(1)
        end = self._take(1)
        produce(self._source(way), link.source_queue, last, last)
        seconds = 0.0

        def settled() -> None:
            nonlocal seconds
            seconds = time.monotonic() - began
            with suppress(AssertionError):  # then it is counted
                until(lambda: self._in_doubt() == 0, "something stays in doubt")

        try:
            given, held = collect(
                self._target(way),
                link.target_queue,
                range(first, last + 1),
                settled,
                lambda: way == BACK and self._free_held(link),
                end,
            )
        except AssertionError as failed:
            raise AssertionError(
                f"{failed}\n{self._standing(link)}\n{self.gateway.said}\n{self.gateway.log[-6000:]}"
            ) from None
        numbers = [*given, *held]
        found = account(numbers, first, last)
        # What ActiveMQ held back comes late, but nobody else may disorder anything.
        disordered = sum(account(part, first, last).disordered for part in (given, held))
        assert not found.strange, numbers
        if found.lost or found.doubled or disordered:
            print(
                f"messages {first} to {last} came so: {numbers}"
            )  # shown where the test fails, which it does
        left = self._left(way)
        self._compare(link, messages + 1)
        return Row(
            point,
            dies,
            way,
            nth,
            messages + 1,
            BATCH,
            found.lost,
            found.doubled,
            disordered,
            len(held),
            left,
            prepared,
            self._in_doubt(),
            round(seconds, 1),
        )

    def _compare(self, link: Link, messages: int) -> None:
        """The link's balance is exact, whichever process died."""
        self._sent[link.name] += messages
        sent = self._sent[link.name]
        told = self.gateway.until_link(
            link.name,
            lambda told: not told["balance"]["held"] and not told["balance"]["in_doubt"],
            "a balance with nothing under way",
        )
        balance = told["balance"]
        exact = (balance["taken"], balance["out"], balance["possibly_twice"]) == (sent, sent, 0)
        assert exact, f"{sent} were sent: {balance}"
        assert not told["difference"], told

    def _left(self, way: str) -> int:
        """How many messages are at the source, or dead."""
        link, gateway = self.links[way], self.gateway
        gateway.until_moving(link.name)
        # A link that is paused goes on having what ActiveMQ has handed to its client.
        self._stop(link)
        left = 0
        for port, queue in (
            (self._source(way), link.source_queue),
            (self.gateway.port, _DEAD),
            (self.activemq.port, _DEAD_THERE),
        ):
            end = self._take(1)
            produce(port, queue, end, end)
            left += len(drain(port, queue, end))
        gateway.operate("start", link.name)
        return left

    def _standing(self, link: Link) -> str:
        """Where everything stands, for the message of a failure."""
        told = self.gateway.until_link(link.name, lambda told: True, "an answer")
        there, here = self._doubt.ask(), embedded_doubt(self._store)
        return f"in doubt at ActiveMQ: {there}; here: {here}; decided: {decided(self._txlog)}; the link: {told}"

    def _free_held(self, link: Link) -> bool:
        """Have ActiveMQ give what it holds back, if nobody else can be holding it.

        ActiveMQ 5.17.2, when it was killed with a prepared branch of acknowledgements and is told
        that branch's outcome after its start, sometimes gives as many of the queue's last messages
        to nobody, whoever asks, and not after another start either. They are in its journal. Where
        its index is built anew from that, they come.
        """
        told = self.gateway.until_link(link.name, lambda told: True, "an answer")
        if (
            told["state"] != "STARTED"
            or told["doing"] != "receiving"
            or told["in_flight"]
            or self._in_doubt()
        ):
            return False
        self.activemq.kill()
        for index in ("db.data", "db.redo"):
            for file in self.activemq.folder.glob(f"data/*/KahaDB/{index}"):
                file.unlink()
        self.activemq.start()
        return True

    def _stop(self, link: Link) -> None:
        self.gateway.operate("stop", link.name)
        self.gateway.until_link(link.name, lambda told: told["state"] == "STOPPED", "STOPPED")

    def _in_doubt(self) -> int:
        """Branches that are prepared at either side, and transactions in the coordinator's log."""
        return len(self._doubt.ask()) + self._embedded_doubt() + decided(self._txlog)

    def _embedded_doubt(self) -> int:
        try:
            return len(embedded_doubt(self._store))
        except sqlite3.DatabaseError:
            return -1  # not known just now

    def _until_held(self) -> None:
        until(
            (self._orders / HELD).exists,
            lambda: f"the point was never passed:\n{self.gateway.said}\n{self.gateway.log[-3000:]}",
        )

    def _withdraw(self) -> None:
        (self._orders / ORDER).unlink(missing_ok=True)

    def _take(self, count: int) -> int:
        """The first of so many numbers that no message has."""
        first = self._number + 1
        self._number += count
        return first

    def _source(self, way: str) -> int:
        return self.gateway.port if way == OUT else self.activemq.port

    def _target(self, way: str) -> int:
        return self.activemq.port if way == OUT else self.gateway.port

    @property
    def _store(self) -> Path:
        return self.gateway.directory / "store" / "messages.db"

    @property
    def _txlog(self) -> Path:
        return self.gateway.directory / "bridges" / BRIDGE / f"txlog.{BRIDGE}"


def xa_activemq(ref: str, port: int) -> Factory:
    environment = {
        "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
        "java.naming.provider.url": f"tcp://{HOST}:{port}",
        "imq.jms.classpath": "/usr/share/activemq/lib/*",
    }
    return Factory(
        ref,
        {"lookup-name": "XAConnectionFactory", "connect-attempt-interval-in-seconds": "1"},
        environment,
    )


#: Has a case happen, with so many messages, and asserts that its row is clean.
Moves = Callable[[Callable[[Pair, int], Row]], None]


# --- the cases of the crash matrix


_WAYS: Final = (OUT, BACK)
#: Legible where a terminal shows no more than ASCII.
_NAMES: Final = {OUT: "out", BACK: "back"}


def _each(points: Sequence[str], first: int) -> Iterator[Any]:
    """Each point in both directions, of which the ordinary run takes one, in turns. :param first:
    which one at the first point.
    """
    for place, point in enumerate(points):
        for number, way in enumerate(_WAYS):
            ordinary = (place + first) % len(_WAYS) == number
            yield pytest.param(
                point, way, id=f"{point}-{_NAMES[way]}", marks=() if ordinary else pytest.mark.long
            )


GATEWAY_DIES: Final = list(_each(ONCE_POINTS, 0))
#: Where the one half has a direction, the other has the other one.
ACTIVEMQ_DIES: Final = list(_each(ONCE_POINTS, 1))
#: As for the gateway, whose process it is.
JAVA_DIES: Final = list(_each(ONCE_POINTS, 1))
#: Both die, and the gateway is back first; then ActiveMQ is.
GATEWAY_FIRST: Final = list(_each(("xa.after-prepare-2", "xa.after-decision"), 0))
ACTIVEMQ_FIRST: Final = list(_each(("xa.after-prepare-2", "xa.after-decision"), 1))
