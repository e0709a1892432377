"""What a transacted link's queues hold after a crash, compared with what was sent; and what is in doubt at either resource manager.

Owns the counting. A target that gets each message once and only once has first, first + 1 and so on to the last, and nothing else.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bridge.xa.log_records import live, read_changes, read_header
from tests.crash.client import Client, Gone, encode
from tests.faults.traffic import number_of, produce
from tests.gateway_process import HOST


@dataclass(frozen=True)
class Account:
    """How many messages never came, came again, and came after a later one. :param strange: how many nobody sent."""

    lost: int
    doubled: int
    disordered: int
    strange: int


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


def collect(port: int, destination: str, last: int, settled: Callable[[], None], end: int) -> list[int]:
    """The numbers of a destination's messages in the order of their coming: all that came until ``last`` had, and ``settled`` returned.

    :param settled: returns when nothing else can come. :param end: of a message that is sent to the destination then, and is not among them.
    :raises AssertionError: ``last`` does not come.
    """
    numbers: list[int] = []
    with Client(port, headers={"host": "/"}) as client:
        client.write(encode("SUBSCRIBE", {"destination": destination, "id": "1", "ack": "auto"}))
        try:
            while last not in numbers:
                numbers.append(number_of(client.message()))
            settled()
            produce(port, destination, end, end)
            while (number := number_of(client.message())) != end:
                numbers.append(number)
        except (TimeoutError, Gone) as error:
            raise AssertionError(
                f"{destination}: after {len(numbers)} messages, {numbers[-3:]} the last, no more came: {error!r}"
            ) from None
        # Its receipt says that none of them comes back after a crash.
        client.ask("DISCONNECT", {})
    return numbers


class ActiveMQsDoubt:
    """Which branches are in doubt at an ActiveMQ, as its own client tells. :param port: for OpenWire."""

    def __init__(self, port: int) -> None:
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/activemq/lib/*", "InDoubt.java", f"tcp://{HOST}:{port}"]
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

    The broker lets nobody else read its store, so a copy is read. While the broker is at work that may show what was a moment ago.

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
    """How many transactions a coordinator's log holds."""
    data = log.read_bytes()
    header, end = read_header(data, str(log))
    changes, _ = read_changes(data, header, end, str(log))
    return len(list(live(changes)))
