"""The stream read: micro-batches of a queue or of a durable subscription.

Owns what Spark is told about progress. An offset is the number of a micro-batch, and says nothing
of messages: which ones a micro-batch has is settled by the tasks that receive them, when they
publish them in the staging folder. So planning costs nothing, and a micro-batch that is run again
finds its files.

An idle query must not make micro-batches without end. After one that received nothing, the driver
looks into the queue, by browsing, and plans the next only when something is there; where that
cannot be done, as for topics, the tasks wait for a message for up to ``maxSeconds`` instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from gateway.messaging.destination import Kind
from pipeline.datasource.client import Client, tells_end
from pipeline.datasource.errors import BrokerError, ConnectionLost
from pipeline.datasource.options import READ_BATCH, STREAM_SECONDS, Options
from pipeline.datasource.receiving import Task, read
from pipeline.datasource.staged import End, Staged
from pipeline.datasource.staging import Staging

#: Seconds without a message after which a task ends, once it has some; and, to be surer, where the
#: query ends with it.
_QUIET: Final = 0.2
_SURELY_QUIET: Final = 1.5
#: Seconds that a task waits for its first message where there were some a moment ago.
_FIRST: Final = 1.0
#: Seconds that the driver looks for messages before it answers Spark, and between two looks.
_LOOK: Final = 1.0
_LOOK_EVERY: Final = 0.25


class TaskPartition(InputPartition):
    """One consumer's part of a micro-batch."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class StompStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader: one object for the driver, unpickled ones for tasks.

    :param options: of a stream read.
    """

    def __init__(self, options: Options) -> None:
        self._options: Final = options
        self._epoch = 0
        #: When a query that ends with what is available was begun, in milliseconds since 1970.
        self._available: int | None = None
        #: The last micro-batch that this run has told Spark of.
        self._offered = 0
        #: The last micro-batch received nothing.
        self._idle = False
        self._look: Look | None = None

    # --- on the driver

    def initialOffset(self) -> dict[str, Any]:
        """A query without a checkpoint goes on where the staging folder is."""
        return {"batch": self._staging().state().committed}

    def prepareForTriggerAvailableNow(self) -> None:
        self._available = time.time_ns() // 1_000_000

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        batch = int(start["batch"])
        staging = self._staging()
        parts = staging.counts(batch)
        if self._available is not None:
            if (
                batch == self._offered
                and parts
                and (_drained(parts) or staging.younger(batch, self._available * 1000))
            ):
                return start
        elif parts:
            self._idle = not any(part.received for part in parts)
        if self._idle and self._available is None and self._sees_nothing():
            return start
        self._idle = False
        self._offered = batch + 1
        return {"batch": self._offered}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        batch, last = int(start["batch"]), int(end["batch"])
        if batch == last:
            return []
        staging = self._staging()
        if not self._epoch:
            self._epoch = staging.begin().epoch
        return [
            TaskPartition(self._task(last, number))
            for number in range(staging.plan(self._epoch, last, self._options.partitions))
        ]

    def _task(self, batch: int, partition: int) -> Task:
        options = self._options
        seconds = options.max_seconds or STREAM_SECONDS
        if self._available is not None:
            first = quiet = _SURELY_QUIET
        else:
            first, quiet = (_FIRST if self._can_look() else seconds), _QUIET
        rate = None if options.rate is None else options.rate / options.partitions
        return Task(
            batch,
            partition,
            self._epoch,
            options.batch or READ_BATCH,
            min(first, seconds),
            quiet,
            seconds,
            rate,
        )

    def commit(self, end: dict[str, Any]) -> None:
        self._staging().commit(int(end["batch"]))

    def stop(self) -> None:
        if self._look is not None:
            self._look.close()

    def _can_look(self) -> bool:
        """Whether the driver can see that a queue is empty. True until it tries."""
        place = self._options.destination
        assert place is not None
        return place.kind is Kind.QUEUE and (self._look is None or self._look.possible)

    def _sees_nothing(self) -> bool:
        if not self._can_look():
            return False
        if self._look is None:
            self._look = Look(self._options)
        return self._look.empty(_LOOK, _LOOK_EVERY)

    # --- in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, self._staging(), partition.value, self.reached)

    def reached(self, point: str) -> None:
        """Note the step of a task. Does nothing; tests end the process here.

        The steps are those of :func:`pipeline.datasource.receiving.read`.
        """

    def _staging(self) -> Staging:
        return staging_of(self._options)


def _drained(parts: Sequence[Staged]) -> bool:
    """Whether a micro-batch has left nothing, as far as its tasks could see."""
    return all(part.ended is End.QUIET for part in parts)


class Look:
    """Whether a queue has messages, asked again and again on one connection.

    :param options: of the stream.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client: Client | None = None
        #: False once the broker is known to be one that cannot browse, or that does not let this
        #: user.
        self.possible = True

    def empty(self, seconds: float, every: float) -> bool:
        """Whether no message was there for that time.

        False as soon as one is, and where the broker cannot say.
        """
        until = time.monotonic() + seconds
        while self._is_empty():
            if time.monotonic() + every > until:
                return True
            time.sleep(every)
        return False

    def _is_empty(self) -> bool:
        for _ in range(2):
            try:
                return self._ask()
            except ConnectionLost:
                # Spark may have let it wait for longer than the broker does.
                self.close()
            except BrokerError:
                # Whoever may not browse there may consume still: if not, the task will tell.
                self.possible = False
                break
        # The task will try longer.
        self.close()
        return False

    def _ask(self) -> bool:
        place = self._options.destination
        assert place is not None
        if self._client is None:
            self._client = Client(self._options).open()
        client = self._client
        if not client.dialect.browse:
            self.possible = False
            self.close()
            return False
        client.subscribe(place, 1, browse=True)
        run = client.receive(time.monotonic() + self._options.timeout)
        if run and tells_end(run[0]):
            client.unsubscribe()
            return True
        # The rest of what would be shown is of no interest.
        self.close()
        return False

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def staging_of(options: Options) -> Staging:
    """The staging folder of a read that consumes."""
    assert options.staging_path is not None
    assert options.destination is not None
    source = str(options.destination)
    if options.browse is False:
        # Both would begin with the same file names.
        source += " by a batch read"
    if options.subscription_name is not None:
        source += f" subscription {options.subscription_name} of {options.client_id}"
    return Staging(Path(options.staging_path), source)
