"""How a task consumes: from a subscription to a staged file, acknowledged.

Streams and batches share it.

Owns the order, which is what keeps messages: receive, stage and sync, acknowledge on the connection
that received, and only then give rows away. A task that dies anywhere leaves either nothing, and
the broker delivers again, or a file, which the next task reads.

A broker that keeps its window sends what a task is to have before anything is acknowledged. Another
falls silent when it likes; then what has come is staged and acknowledged as a piece, and the task
goes on. So silence with nothing in hand says of any broker that it has no more.

Knows Spark no more than that rows are yielded.
"""

from __future__ import annotations

import gc
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from gateway.stomp.brokers import Dialect
from gateway.stomp.wire import Frame
from pipeline.datasource.client import Client
from pipeline.datasource.errors import BrokerError, ConnectionLost
from pipeline.datasource.options import Options
from pipeline.datasource.pause import Pause
from pipeline.datasource.places import Place
from pipeline.datasource.rows import record_batch
from pipeline.datasource.staged import End, Staged, whole
from pipeline.datasource.staging import Staging

_log: Final = logging.getLogger("pipeline.datasource")

#: Rows of an Arrow record batch, and octets of bodies after which one is made of fewer.
ROWS: Final = 4096
_OCTETS: Final = 8 << 20
#: Octets of bodies that one task takes, whatever the batch size: they are in memory until they are
#: staged.
_MOST_OCTETS: Final = 96 << 20
#: Seconds that a broker must be silent at most before what has come is acknowledged.
_LONGEST_PAUSE: Final = 1.0


@dataclass(frozen=True)
class Task:
    """What one task receives. It travels from the driver to the worker.

    :param batch: number of the micro-batch.
    :param partition: which of its partitions.
    :param epoch: of the run; None for batch reads.
    :param most: messages.
    :param first: seconds that it waits for the first.
    :param quiet: seconds without a message after which it takes the queue for empty; None: it waits
        for the whole time.
    :param seconds: that it receives at most; None for no bound.
    :param rate: messages a second; None for no bound.
    """

    batch: int
    partition: int
    epoch: int | None
    most: int
    first: float
    quiet: float | None
    seconds: float | None
    rate: float | None = None


class Rows:
    """MESSAGEs that have come, made into record batches while more come.

    :param enveloped: as :attr:`pipeline.datasource.client.Client.enveloped`.
    """

    def __init__(self, dialect: Dialect, enveloped: bool) -> None:
        self._dialect = dialect
        self._enveloped = enveloped
        self._frames: list[Frame] = []
        self._octets = 0
        self.batches: list[pa.RecordBatch] = []

    def add(self, frames: list[Frame]) -> None:
        self._frames += frames
        self._octets += sum([len(frame.body) for frame in frames])
        if len(self._frames) >= ROWS or self._octets >= _OCTETS:
            self.finish()

    def finish(self) -> list[pa.RecordBatch]:
        """All batches, the last of what has come since included."""
        if self._frames:
            self.batches.append(record_batch(self._frames, self._dialect, self._enveloped))
            self._frames, self._octets = [], 0
        return self.batches


def read(
    options: Options, staging: Staging, task: Task, reached: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """Yield a task's rows: those already staged, else receive them now.

    What is received is staged and acknowledged before it is yielded.

    :param reached: told where it has come to: ``received``, ``staged``, ``acknowledged``,
        ``yielded``.
    :raises PipelineError: the broker or the folder cannot be used; nothing is lost.
    """
    found = staging.find(task.batch, task.partition)
    if found is None:
        began = time.monotonic()
        found = _receive_and_stage(options, staging, task, reached)
        if task.rate is not None:
            time.sleep(max(0.0, began + found.received / task.rate - time.monotonic()))
    yield from found.batches
    reached("yielded")


def _receive_and_stage(
    options: Options, staging: Staging, task: Task, reached: Callable[[str], None]
) -> Staged:
    until: float | None = None
    while True:
        client = Client(options, receiving=True).open()
        try:
            with client:
                return _all(client, options, staging, task, reached)
        except ConnectionLost as error:
            # What was staged is what it is. Else it begins anew, until it has been lost for too
            # long: a task may have received for longer than that before.
            found = staging.find(task.batch, task.partition)
            if found is not None:
                _log.warning("%s; the micro-batch has what was staged before", error)
                return found
            if until is None:
                until = time.monotonic() + options.timeout
            elif time.monotonic() > until:
                raise
            _log.warning("%s; trying again", error)
            time.sleep(0.2)


def _all(
    client: Client, options: Options, staging: Staging, task: Task, reached: Callable[[str], None]
) -> Staged:
    """Every piece, each staged and acknowledged before the next is received."""
    place = options.destination
    assert place is not None
    reception = Reception(client, place, task)
    pieces: list[Staged] = []
    while not pieces or pieces[-1].ended is End.MORE:
        received, frames = reception.piece()
        reached("received")
        # A broker that thinks it dead delivers again, and if the disk is slow each time, for ever.
        with client.beating():
            piece = staging.publish(
                task.batch,
                task.partition,
                len(pieces),
                task.epoch,
                received,
                client.dialect.stable_ids,
            )
        reached("staged")
        if not piece.mine:
            # Another task was first, or has ended it; what came here goes back.
            client.close()
            return piece
        pieces.append(piece)
        if frames:
            try:
                client.acknowledge(frames, more=piece.ended is End.MORE)
            except BrokerError as error:
                # It is staged, and will be known when it comes again.
                _log.warning(
                    "%s; the messages are staged, and will be dropped when they are delivered again",
                    error,
                )
                client.close()
                return staging.find(task.batch, task.partition) or whole(pieces)
        staging.settled(task.batch, task.partition, len(pieces) - 1)
        reached("acknowledged")
    return whole(pieces)


class Reception:
    """What a task receives on one connection, in pieces.

    :param place: to which it subscribes.
    """

    def __init__(self, client: Client, place: Place, task: Task) -> None:
        self._client: Final = client
        self._task: Final = task
        dialect = client.dialect
        self._most = task.most
        if dialect.keeps_window:
            # More than that it does not send before some are acknowledged, and would seem to have
            # no more.
            self._most = min(self._most, dialect.prefetch_limit)
        if task.rate is not None:
            self._most = min(self._most, math.ceil(task.rate))
        self._octets = _MOST_OCTETS
        client.subscribe(place, self._most)
        self._end: Final = math.inf if task.seconds is None else time.monotonic() + task.seconds
        #: Seconds that it waits for a message now.
        self._wait = task.first
        # In a stream a piece must end before the task would take the queue for empty.
        self._pause: Final = Pause(_LONGEST_PAUSE if task.quiet is None else task.quiet / 2)
        self._came = False

    def piece(self) -> tuple[Staged, list[Frame]]:
        """Return the next messages, and the deliveries that acknowledge them.

        :raises ConnectionLost: the connection is gone.
        :raises BrokerError: what comes is no STOMP.
        """
        # Frames make no cycles, and a search among this number of them would take a third of
        # the time.
        searched = gc.isenabled()
        gc.disable()
        try:
            return self._piece()
        finally:
            if searched:
                gc.enable()

    def _piece(self) -> tuple[Staged, list[Frame]]:
        client, task = self._client, self._task
        rows = Rows(client.dialect, client.enveloped)
        frames: list[Frame] = []
        count, ended, underway = 0, End.FULL, False
        self._pause.acknowledged(time.monotonic())
        while self._most > 0 and self._octets > 0:
            pausing = count > 0 and not client.dialect.keeps_window
            began = time.monotonic()
            # A first message that is on its way when the time is over would be so each time.
            end = math.inf if underway and not self._came else self._end
            run = client.receive(min(end, began + (self._pause.seconds if pausing else self._wait)))
            if not run:
                underway = client.underway(began)
                if underway and (time.monotonic() < self._end or not self._came):
                    continue
                ended = self._silent(pausing)
                break
            del run[self._most :]
            self._octets -= sum([len(frame.body) for frame in run])
            while self._octets + len(run[-1].body) <= 0:
                # There are many, as when they have come while an ACK was confirmed. The last goes
                # back.
                self._octets += len(run.pop().body)
            self._pause.came(time.monotonic(), len(run))
            count += len(run)
            self._came = True
            self._most -= len(run)
            rows.add(run)
            if client.individual:
                frames += run
            else:
                frames = run[-1:]
            if task.quiet is not None:
                self._wait = task.quiet
            if self._most > 0 and time.monotonic() >= self._end:
                ended = End.TIME
                break
        return Staged(rows.finish(), count, ended), frames

    def _silent(self, pausing: bool) -> End:
        """Why nothing came."""
        if time.monotonic() >= self._end:
            return End.TIME if self._came else End.QUIET
        return End.MORE if pausing else End.QUIET
