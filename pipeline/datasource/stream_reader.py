"""The stream read: micro-batches of a queue or of a durable subscription.

Owns what Spark is told about progress: offsets, and what waits. An offset is the number of a
micro-batch, and says nothing of messages: which ones a micro-batch has is settled by the tasks that
receive them, when they publish them in the staging folder. So planning costs nothing, and a
micro-batch that is run again finds its files.

An idle query must not make micro-batches without end. After one that received nothing, the driver
looks into the queue, by browsing, and plans the next only when something is there; where that
cannot be done, as for topics, the tasks wait for a message for up to ``maxSeconds`` instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from gateway.messaging.destination import Kind
from pipeline.datasource.looking import Look, Waiting
from pipeline.datasource.options import READ_BATCH, STREAM_SECONDS, Options
from pipeline.datasource.receiving import Task, read
from pipeline.datasource.rows import with_properties
from pipeline.datasource.staged import End, Staged
from pipeline.datasource.staging import Staging

_log: Final = logging.getLogger("pipeline.datasource")

#: Seconds without a message after which a task ends, once it has some; and, to be surer, where the
#: query ends with it.
_QUIET: Final = 0.2
_SURELY_QUIET: Final = 1.5
#: Seconds that a task waits for its first message where there were some a moment ago.
_FIRST: Final = 1.0
#: Seconds that the driver looks for messages before it answers Spark, and between two looks.
_LOOK: Final = 1.0
_LOOK_EVERY: Final = 0.25
#: Seconds for which a count of what waits is told again.
_COUNT_EVERY: Final = 5.0


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
        #: The last micro-batch that this run has planned, and the last of those that another run
        #: had received.
        self._planned = 0
        self._found = 0
        #: The last micro-batch received nothing.
        self._idle = False
        self._look: Look | None = None
        #: What waits, as was seen last, and when, by time.monotonic().
        self._waiting: Waiting | None = None
        self._counted = -_COUNT_EVERY
        #: When the micro-batch that was offered last began, and what the one before has received.
        self._began = 0.0
        self._rates: dict[str, int] = {}

    # --- on the driver

    def initialOffset(self) -> dict[str, Any]:
        """A query without a checkpoint goes on where the staging folder is."""
        return {"batch": self._staging().state().committed}

    def prepareForTriggerAvailableNow(self) -> None:
        self._available = time.time_ns() // 1_000_000

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        batch = int(start["batch"])
        staging = self._staging_at(batch)
        self._measure(staging, batch)
        if not self._options.fail_on_data_loss:
            committed = staging.state().committed
            if batch < committed:
                return {"batch": committed}
        parts = staging.counts(batch)
        if self._available is not None:
            if (
                batch == self._offered
                # What an earlier run has received says nothing of the queue as it is now.
                and batch != self._found
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
        self._began = time.monotonic()
        return {"batch": self._offered}

    def reportLatestOffset(self) -> dict[str, Any]:
        """What the progress of a query shows as ``latestOffset``.

        Whole numbers, as Spark wants them. What is not known is left out. Spark asks before each
        micro-batch, when no task holds messages.
        """
        now = time.monotonic()
        if self._can_look() and now - self._counted >= _COUNT_EVERY:
            self._waiting, self._counted = self._looking().waiting(), now
        found: dict[str, Any] = {"batch": self._offered, **self._rates}
        if (waiting := self._waiting) is not None:
            found |= {"waiting": waiting.messages, "waitingAtLeast": not waiting.all_seen}
            if waiting.oldest is not None:
                found["oldestMillis"] = max(0, time.time_ns() // 1_000_000 - waiting.oldest)
        return found

    def _measure(self, staging: Staging, batch: int) -> None:
        """Note the rates of the micro-batch that was offered last, once."""
        if batch != self._offered or not self._began:
            return
        received = sum([part.received for part in staging.counts(batch)])
        seconds = time.monotonic() - self._began
        self._began = 0.0
        self._rates = {
            "rowsPerSecond": round(received / seconds),
            "octetsPerSecond": round(staging.octets(batch) / seconds),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        batch, last = int(start["batch"]), int(end["batch"])
        if batch == last:
            return []
        options = self._options
        staging = self._staging_at(batch)
        if not self._epoch:
            self._epoch = staging.begin().epoch
        if not options.fail_on_data_loss and last <= staging.state().committed:
            _log.warning(
                "stagingPath %s has no messages of micro-batch %d any more; they are skipped, as failOnDataLoss is false",
                staging.folder,
                last,
            )
            return []
        if last != self._planned:
            self._planned = last
            if staging.counts(last):
                self._found = last
        # Each is to take one message at least.
        wanted = min(options.partitions, options.max_per_trigger or options.partitions)
        count = staging.plan(self._epoch, last, wanted)
        return [TaskPartition(self._task(last, number, count)) for number in range(count)]

    def _task(self, batch: int, partition: int, partitions: int) -> Task:
        options = self._options
        most = options.batch or READ_BATCH
        if options.max_per_trigger is not None:
            # The first ones have one more where it cannot be divided.
            share = (options.max_per_trigger + partitions - 1 - partition) // partitions
            most = min(most, max(1, share))
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
            most,
            min(first, seconds),
            quiet,
            seconds,
            rate,
        )

    def commit(self, end: dict[str, Any]) -> None:
        batch = int(end["batch"])
        self._staging_at(batch).commit(batch)

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
        nothing = self._looking().empty(_LOOK, _LOOK_EVERY)
        if nothing:
            self._waiting, self._counted = Waiting(0, all_seen=True), time.monotonic()
        return nothing

    def _looking(self) -> Look:
        if self._look is None:
            self._look = Look(self._options)
        return self._look

    # --- in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = read(self._options, self._staging(), partition.value, self.reached)
        return with_properties(rows, self._options.properties)

    def reached(self, point: str) -> None:
        """Note the step of a task. Does nothing; tests end the process here.

        The steps are those of :func:`pipeline.datasource.receiving.read`.
        """

    def _staging(self) -> Staging:
        return staging_of(self._options)

    def _staging_at(self, batch: int) -> Staging:
        """The folder, when the checkpoint is at this micro-batch."""
        staging = self._staging()
        if not self._options.fail_on_data_loss:
            staging.skip(batch)
        return staging


def _drained(parts: Sequence[Staged]) -> bool:
    """Whether a micro-batch has left nothing, as far as its tasks could see."""
    return all(part.ended is End.QUIET for part in parts)


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
