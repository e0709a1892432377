"""The writes: a DataFrame, or the micro-batches of a stream, as messages.

Owns transactions, RECEIPTs and pace. A task has sent its rows when all of its transactions are
confirmed; where a broker has none that deserve the name, each SEND has a RECEIPT of its own. What
makes a repetition harmless are the duplicate ids of :mod:`pipeline.datasource.sending`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pipeline.datasource.client import Client
from pipeline.datasource.errors import OptionError
from pipeline.datasource.options import WRITE_BATCH, Options
from pipeline.datasource.sending import Sending, check_columns
from pipeline.errors import PipelineError

#: Transactions, or runs of RECEIPTs, that may be unconfirmed while the next is sent.
_AHEAD: Final = 2


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What a task has sent."""

    messages: int


class StompWriter(DataSourceArrowWriter):
    """``df.write.format("stomp").mode("append").save()``.

    :param options: of a write.
    :param schema: of the rows.
    :raises PipelineError: the rows cannot be sent, or are to replace what is there.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        _check(options, schema, overwrite)
        self._options: Final = options
        # Made on the driver, so that all attempts of all tasks have the same, and the next save()
        # has another.
        self._run: Final = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send(self._options, iterator, self._run)


class StompStreamWriter(DataSourceStreamArrowWriter):
    """``stream.writeStream.format("stomp")``; as :class:`StompWriter`."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        _check(options, schema, overwrite)
        self._options: Final = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise PipelineError(
                "Spark does not tell the query and the micro-batch of this task, so that a repetition could not be told from it"
            )
        return send(self._options, iterator, f"{query}.{batch}")


def _check(options: Options, schema: StructType, overwrite: bool) -> None:
    check_columns(schema, options)
    if overwrite:
        raise PipelineError(
            "messages are added and replace nothing; expected mode('append'), or outputMode('append') or ('update') of a stream"
        )


def send(options: Options, rows: Iterator[pa.RecordBatch], run: str) -> Sent:
    """Send the rows of one task; returns when the broker has confirmed all.

    :param run: the same for each attempt of a task, and for no other run.
    :raises PipelineError: the broker cannot be reached or refuses; what is confirmed by then stays
        sent.
    """
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    most = options.batch or WRITE_BATCH
    if options.rate is not None:
        # No more than those of a second at once.
        most = min(most, math.ceil(options.rate))
    count = 0
    began = time.monotonic()
    client: Client | None = None
    try:
        for batch in rows:
            if not batch.num_rows:
                continue
            if client is None:
                client = Client(options).open()
                if options.id_column is not None and not client.dialect.duplicate_id:
                    raise OptionError(
                        "idColumn",
                        f"the broker at {options.address} is {client.dialect.name}, which keeps no duplicate ids",
                    )
                sending = Sending(options, client.dialect, client.version, run, partition)
                flow = Flow(client)
            for start in range(0, batch.num_rows, most):
                part = batch.slice(start, most)
                flow.send(sending, part)
                count += part.num_rows
                if options.rate is not None:
                    flow.finish()
                    time.sleep(max(0.0, began + count / options.rate - time.monotonic()))
        if client is not None:
            flow.finish()
            client.disconnect()
    finally:
        if client is not None:
            client.close()
    return Sent(count)


class Flow:
    """One connection's transactions, sent ahead of their confirmations."""

    def __init__(self, client: Client) -> None:
        self._client: Final = client
        self._open: list[tuple[str, ...]] = []
        self._number = 0

    def send(self, sending: Sending, rows: pa.RecordBatch) -> None:
        """Send rows, together or not at all where the broker can."""
        client = self._client
        self._number += 1
        if client.dialect.transacted_sends:
            name, receipt = f"tx-{self._number}", client.receipt()
            frames = [
                control("BEGIN", name),
                *sending.frames(rows, (("transaction", name),)),
                control("COMMIT", name, receipt),
            ]
            receipts: tuple[str, ...] = (receipt,)
        else:
            receipts = tuple([client.receipt() for _ in range(rows.num_rows)])
            frames = [
                frame
                for number, receipt in enumerate(receipts)
                for frame in sending.frames(rows.slice(number, 1), (("receipt", receipt),))
            ]
        client.send(b"".join(frames))
        self._open.append(receipts)
        while len(self._open) > _AHEAD:
            self._wait()

    def finish(self) -> None:
        """Wait until all that was sent is confirmed."""
        while self._open:
            self._wait()

    def _wait(self) -> None:
        self._client.wait_for_all(self._open.pop(0), "what was sent")


def control(command: str, transaction: str, receipt: str = "") -> bytes:
    """BEGIN or COMMIT."""
    lines = f"{command}\ntransaction:{transaction}\n" + (f"receipt:{receipt}\n" if receipt else "")
    return lines.encode() + b"\n\0"
