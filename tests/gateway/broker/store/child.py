"""A process that has a store open and does what it is told, so that it can be killed, or have its
disk fail.

Started as ``python -m tests.gateway.broker.store.child PLACE OPTIONS``, of which the place is a path
or the URL of a database with tables; reads one JSON command a
line and answers each with a line, but ``stream``, which writes batches of a
:class:`~tests.gateway.broker.store.harness.History` and prints each number once it is reported
durable.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from gateway.broker.store.interface import Batch, Row, Store, StoreError
from gateway.broker.store.sqlite import SqliteStore
from gateway.instance import crashpoints
from tests.gateway.broker.store.databases import database_at, postgresql_store
from tests.gateway.broker.store.harness import History, QueueReactor, insert, row

#: Batches of a stream that are on their way at a time.
IN_FLIGHT = 3


def opened_at(place: str, reactor: QueueReactor, options: dict[str, Any]) -> Store:
    """The store in a file or, for a URL, in a database; not opened.

    :param options: the store's.
    """
    if "://" in place:
        return postgresql_store(database_at(place), reactor.reactor, **options)
    return SqliteStore(place, reactor.reactor, **options)


class Child:
    """The store and what is known about it.

    :param options: ``kill``: a crash point and how often it is passed before the process kills
        itself there; the others are the store's.
    """

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.reactor = QueueReactor()
        kill = options.pop("kill", None)
        self.left: dict[str, int] = {kill[0]: kill[1]} if kill else {}
        if kill:
            crashpoints.arm(crashpoints.STORE_POINTS, self.passed)
        self.store = opened_at(path, self.reactor, options)
        self.number = 0
        self.full = False
        self.store.on_full = self.told_full

    def told_full(self, full: bool) -> None:
        self.full = full

    def passed(self, point: str) -> None:
        if point in self.left:
            self.left[point] -= 1
            if not self.left[point]:
                os.kill(os.getpid(), signal.SIGKILL)

    def open(self) -> dict[str, Any]:
        recovered = self.store.open()
        self.full = bool(recovered.full)
        return {
            "next_seq": recovered.next_seq,
            "notes": list(recovered.notes),
            "full": recovered.full,
            "full_now": self.full,
        }

    def outcome(self, batch: Batch) -> dict[str, Any]:
        error = self.reactor.commit(self.store, batch)
        return {
            "error": error and type(error).__name__,
            "text": str(error),
            "full_now": self.full,
        }

    def insert(self, seqs: list[int], octets: int) -> dict[str, Any]:
        self.number += 1
        return self.outcome(
            insert(Batch(self.number), *(row(seq, body=os.urandom(octets)) for seq in seqs))
        )

    def delete(self, seqs: list[int]) -> dict[str, Any]:
        self.number += 1
        batch = Batch(self.number)
        batch.deletes.update(dict.fromkeys(seqs))
        return self.outcome(batch)

    def fetch(self, seqs: list[int]) -> dict[str, Any]:
        found = self.reactor.fetch(self.store, seqs)
        if isinstance(found, StoreError):
            return {"error": type(found).__name__}
        rows: list[Row] = list(found)
        return {"error": None, "seqs": [each.seq for each in rows]}

    def until_room(self) -> dict[str, Any]:
        self.reactor.until(lambda: not self.full)
        return {"full_now": self.full}

    def stream(self, seed: int) -> None:
        history = History(seed)

        def committed(error: StoreError | None) -> None:
            assert error is None, error
            self.number += 1
            # One system call, so that a number is read whole or not at all.
            os.write(1, b"%d\n" % self.number)
            self.store.submit(history.next(), committed)

        for _ in range(IN_FLIGHT):
            self.store.submit(history.next(), committed)
        self.reactor.until(lambda: False)

    def close(self) -> dict[str, Any]:
        self.reactor.close(self.store)
        return {}


def main() -> None:
    child = Child(sys.argv[1], json.loads(sys.argv[2]))
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(child, command.pop("do"))(**command)
        except StoreError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
