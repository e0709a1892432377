"""From a subscription to a staged file, acknowledged: what a task that consumes does, for streams and batches alike.

Owns the order, which is what keeps messages: receive, stage and sync, acknowledge on the connection that received, and only then give rows away.
A task that dies anywhere leaves either nothing, and the broker delivers again, or a file, and whoever comes next reads that.

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

from gateway.stomp.wire import Frame
from pipeline.datasource.client import Client
from pipeline.datasource.dialect import Dialect, Place
from pipeline.datasource.errors import BrokerError, ConnectionLost
from pipeline.datasource.options import Options
from pipeline.datasource.rows import record_batch
from pipeline.datasource.staging import End, Staged, Staging

_log: Final = logging.getLogger("pipeline.datasource")

#: Rows of an Arrow record batch, and octets of bodies after which one is made of fewer.
ROWS: Final = 4096
_OCTETS: Final = 8 << 20
#: Octets of bodies that one task takes, whatever the batch size: they are in memory until they are staged.
_MOST_OCTETS: Final = 96 << 20


@dataclass(frozen=True)
class Task:
    """What one task is to receive. It travels from the driver to the worker.

    :param batch: number of the micro-batch. :param partition: which of its partitions. :param epoch: of the run; None for batch reads.
    :param most: messages. :param first: seconds that it waits for the first. :param quiet: seconds without a message after which it thinks that
        there are no more; None: it waits for the whole time.
    :param seconds: that it receives at most; None for no bound. :param rate: messages a second; None for no bound.
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


def read(options: Options, staging: Staging, task: Task, reached: Callable[[str], None]) -> Iterator[pa.RecordBatch]:
    """The rows of a task: those that are staged, else those that it receives, stages and acknowledges now.

    :param reached: told where it has come to: ``received``, ``staged``, ``acknowledged``, ``yielded``.
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


def _receive_and_stage(options: Options, staging: Staging, task: Task, reached: Callable[[str], None]) -> Staged:
    until: float | None = None
    while True:
        client = Client(options, receiving=True).open()
        try:
            return _once(client, options, staging, task, reached)
        except ConnectionLost as error:
            # Nothing was staged, so it begins anew, until it has been lost for too long: a task may have received for longer than that before.
            if until is None:
                until = time.monotonic() + options.timeout
            elif time.monotonic() > until:
                raise
            _log.warning("%s; trying again", error)
            time.sleep(0.2)


def _once(client: Client, options: Options, staging: Staging, task: Task, reached: Callable[[str], None]) -> Staged:
    place = options.destination
    assert place is not None
    with client:
        received, frames = _receive_quickly(client, place, task)
        reached("received")
        # A broker that thinks it dead delivers again, and if the disk is slow each time, for ever.
        with client.beating():
            staged = staging.publish(task.batch, task.partition, task.epoch, received, client.dialect.stable_ids)
        reached("staged")
        if not staged.mine:
            # Another task was first; what came here goes back.
            client.close()
        elif frames:
            try:
                client.acknowledge(frames)
            except BrokerError as error:
                # It is staged, and will be known when it comes again.
                _log.warning("%s; the messages are staged, and will be dropped when they are delivered again", error)
                client.close()
            else:
                staging.settled(task.batch, task.partition)
        else:
            staging.settled(task.batch, task.partition)
        reached("acknowledged")
    return staged


def _receive_quickly(client: Client, place: Place, task: Task) -> tuple[Staged, list[Frame]]:
    """As :func:`_receive`, without the search for cycles, which frames do not make: there are so many that it would take a third of the time."""
    searched = gc.isenabled()
    gc.disable()
    try:
        return _receive(client, place, task)
    finally:
        if searched:
            gc.enable()


def _receive(client: Client, place: Place, task: Task) -> tuple[Staged, list[Frame]]:
    """What comes, and those of its deliveries that are needed to acknowledge it."""
    dialect = client.dialect
    # More than that it does not send before some are acknowledged, and would seem to have no more.
    most = min(task.most, dialect.most)
    if task.rate is not None:
        most = min(most, math.ceil(task.rate))
    client.subscribe(place, most)
    rows = Rows(dialect, client.enveloped)
    frames: list[Frame] = []
    count = octets = 0
    began = time.monotonic()
    end = math.inf if task.seconds is None else began + task.seconds
    wait, ended = task.first, End.FULL
    while count < most and octets < _MOST_OCTETS:
        until = min(end, time.monotonic() + wait)
        run = client.receive(until)
        if not run:
            # Where nobody knows how much a broker sends unacknowledged, its silence says little once there was something.
            ended = End.QUIET if not count or (until < end and dialect.prefetch) else End.TIME
            break
        del run[most - count :]
        count += len(run)
        octets += sum([len(frame.body) for frame in run])
        rows.add(run)
        if client.individual:
            frames += run
        else:
            frames = run[-1:]
        if task.quiet is not None:
            wait = task.quiet
        if count < most and time.monotonic() >= end:
            ended = End.TIME
            break
    return Staged(rows.finish(), count, ended), frames
