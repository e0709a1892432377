"""What a transacted link's queues hold after a crash, compared with what was sent; and what is in
doubt at either resource manager.

Owns the counting. A target that gets each message once and only once has first, first + 1 and so on
to the last, and nothing else.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bridge.xa.decision_log import Entry, Removed
from bridge.xa.log.records import read_changes, read_header
from tests.crash.client import PATIENCE, Client, Gone, encode
from tests.faults.traffic import number_of, produce
from tests.gateway_process import HOST


@dataclass(frozen=True)
class Account:
    """How many messages never came, came again, and came after a later one.

    :param strange: how many were never sent.
    """

    lost: int
    doubled: int
    disordered: int
    strange: int


class Collected(NamedTuple):
    """What came by itself, and what only after something was done about it; each in its order."""

    given: Sequence[int]
    held: Sequence[int]


def account(numbers: Sequence[int], first: int, last: int) -> Account:
    """Compare what came with messages ``first`` to ``last``."""
    sent = range(first, last + 1)
    seen: set[int] = set()
    highest = first - 1
    disordered = doubled = 0
    for number in numbers:
        if number in seen:
            doubled += 1
        elif number < highest:
            disordered += 1
        seen.add(number)
        highest = max(highest, number)
    return Account(len(set(sent) - seen), doubled, disordered, len(seen - set(sent)))


#: Seconds without a message after which it is asked whether any can still come by itself.
STALL_S: Final = 15.0


def collect(
    port: int,
    destination: str,
    wanted: range,
    settled: Callable[[], None],
    stalled: Callable[[], bool],
    end: int,
) -> Collected:
    """The numbers of a destination's messages in the order of their coming: all that came until
    those wanted had, and ``settled`` returned.

    :param settled: returns when nothing else can come.
    :param stalled: asked, until it says so, when nothing came for a while: whether it did something
        that makes the rest come.
    :param end: of a message that is sent to the destination when all have come, and is not among
        them.
    :raises AssertionError: the last one does not come.
    """
    numbers: list[int] = []
    missing = set(wanted)
    freed: int | None = None
    until = time.monotonic() + PATIENCE
    with Client(port, headers={"host": "/"}) as client:
        client.socket.settimeout(STALL_S)
        client.write(encode("SUBSCRIBE", {"destination": destination, "id": "1", "ack": "auto"}))
        try:
            while missing:
                try:
                    numbers.append(number_of(client.message()))
                    missing.discard(numbers[-1])
                    until = time.monotonic() + PATIENCE
                except TimeoutError:
                    if time.monotonic() > until:
                        if wanted[-1] in missing:
                            raise
                        break  # the others are lost
                    if freed is None and stalled():
                        freed = len(numbers)
                        until = time.monotonic() + PATIENCE
            settled()
            produce(port, destination, end, end)
            client.socket.settimeout(PATIENCE)
            while (number := number_of(client.message())) != end:
                numbers.append(number)
        except (TimeoutError, Gone) as error:
            raise AssertionError(
                f"{destination}: after {len(numbers)} messages, {numbers[-3:]} the last, no more came: {error!r}"
            ) from None
        # Its receipt says that none of them comes back after a crash.
        client.ask("DISCONNECT", {})
    at = len(numbers) if freed is None else freed
    return Collected(numbers[:at], numbers[at:])


class ActiveMQsDoubt:
    """Which branches are in doubt at an ActiveMQ, as its own client tells.

    :param port: for OpenWire.
    """

    def __init__(self, port: int) -> None:
        command = [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            "/usr/share/activemq/lib/*",
            "InDoubt.java",
            f"tcp://{HOST}:{port}",
        ]
        self._process = subprocess.Popen(
            command,
            cwd=Path(__file__).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self) -> list[str]:
        """Its branches, by their ids. :raises AssertionError: it cannot be asked."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n")
        stdin.flush()
        lines: list[str] = []
        while line := stdout.readline():
            if line == "\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"ActiveMQ does not tell what is in doubt: {lines}")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


_BRANCHES: Final = "SELECT hex(gtrid) || '.' || hex(bqual) FROM branch"


def embedded_doubt(store: Path) -> list[str]:
    """Which branches an embedded broker has stored, by their ids.

    The broker lets nobody else read its store, so a copy is read. While the broker is at work that
    may show what was a moment ago.

    :raises sqlite3.DatabaseError: it was being written in such a way that the copy is of no use.
    """
    with TemporaryDirectory() as folder:
        for file in (store, store.with_name(store.name + "-wal")):
            if file.exists():
                shutil.copy(file, folder)
        connection = sqlite3.connect(Path(folder) / store.name)
        try:
            return [row[0] for row in connection.execute(_BRANCHES)]
        finally:
            connection.close()


def decided(log: Path) -> int:
    data = log.read_bytes()
    header, end = read_header(data, str(log))
    changes, _ = read_changes(data, header, end, str(log))
    listed: set[bytes] = set()
    for change in changes:
        if isinstance(change, Entry):
            listed.add(change.gtrid)
        elif isinstance(change, Removed):
            listed.discard(change.gtrid)
    return len(listed)
