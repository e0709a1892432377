"""The batch reads: one that browses, and one that consumes.

Owns what an action gets. A browse looks anew each time an action runs, also when Spark runs a task
again: what is there at that moment. A read that consumes does so once for its ``stagingPath``: the
first task that finishes settles which messages they are, and every further attempt, action and
DataFrame with the same ``stagingPath`` reads these from there. So ``count()`` followed by ``write``
counts and writes the same messages, and takes them from the broker once. To consume more, name
another folder; the messages stay in this one until it is removed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from gateway.stomp.brokers import Dialect
from pipeline.datasource.client import Client, tells_end
from pipeline.datasource.errors import BrokerError, OptionError
from pipeline.datasource.options import READ_BATCH, Options
from pipeline.datasource.places import Place
from pipeline.datasource.pushdown import selector as selector_of
from pipeline.datasource.pushdown import stands_alone
from pipeline.datasource.receiving import Rows, Task, read
from pipeline.datasource.rows import with_properties
from pipeline.datasource.staged import End
from pipeline.datasource.stream_reader import staging_of

#: Messages of a browse on their way.
_PREFETCH: Final = 10_000
_ALL: Final = 1_000_000_000


class StompBrowser(DataSourceReader):
    """Reads what waits in a queue, and leaves it there.

    :param options: of a batch read that browses.
    """

    def __init__(self, options: Options) -> None:
        self._options: Final = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return with_properties(self._messages(), self._options.properties)

    def selector(self, dialect: Dialect) -> str:
        """What the broker is asked for besides the option ``selector``."""
        return ""

    def _messages(self) -> Iterator[pa.RecordBatch]:
        options = self._options
        place = options.destination
        assert place is not None
        most = options.max_messages or _ALL
        began = time.monotonic()
        end = math.inf if options.max_seconds is None else began + options.max_seconds
        with Client(options).open() as client:
            if not client.dialect.browse:
                name = client.dialect.name
                raise OptionError(
                    "browse",
                    f"the broker at {options.address} is {name}, which cannot browse over STOMP; expected browse=false, and a stagingPath, to consume",
                )
            self._subscribe(client, place, min(most, _PREFETCH))
            rows = Rows(client.dialect, client.enveloped)
            shown, over = 0, False
            while not over and shown < most:
                asked = time.monotonic()
                run = client.receive(min(end, asked + options.timeout))
                if not run:
                    if time.monotonic() >= end:
                        break
                    if client.underway(asked):
                        continue
                    raise BrokerError(
                        f"the broker at {options.address} did not tell the end of {place} within {options.timeout:g} s"
                    )
                over = tells_end(run[-1])
                if over:
                    run.pop()
                del run[most - shown :]
                shown += len(run)
                rows.add(run)
                if options.rate is not None:
                    time.sleep(max(0.0, began + shown / options.rate - time.monotonic()))
                if rows.batches:
                    yield from rows.batches
                    rows.batches = []
            yield from rows.finish()
            # There may be more on the way, which is not waited for.
            client.close()

    def _subscribe(self, client: Client, place: Place, prefetch: int) -> None:
        selector = self.selector(client.dialect)
        try:
            client.subscribe(place, prefetch, browse=True, selector=selector)
        except BrokerError:
            if not selector:
                raise
            # It may bound what a selector costs. Spark filters the rows in any case.
            client.close()
            client.open().subscribe(place, prefetch, browse=True)


class FilteringBrowser(StompBrowser):
    """One that has the broker leave out what Spark would not keep.

    Spark refuses a reader with :meth:`pushFilters` where its own setting is off, so this is another
    class than one without.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._filters: Sequence[Filter] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters; all are Spark's to apply, too.

        With ``maxMessages`` none is kept, as that counts messages before they are filtered; nor
        beside a selector that the broker is to refuse.
        """
        if self._options.max_messages is None and stands_alone(self._options.selector or ""):
            self._filters = tuple(filters)
        return filters

    def selector(self, dialect: Dialect) -> str:
        return selector_of(self._filters, self._options.properties, dialect)


class StompConsumer(DataSourceReader):
    """Reads and consumes, up to a number of messages or for a time.

    The module says what a second action gets.

    :param options: of a batch read that consumes.
    """

    def __init__(self, options: Options) -> None:
        self._options: Final = options

    def partitions(self) -> list[InputPartition]:
        staging_of(self._options).begin()
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return with_properties(self._messages(), self._options.properties)

    def _messages(self) -> Iterator[pa.RecordBatch]:
        options = self._options
        staging = staging_of(options)
        left = options.max_messages or _ALL
        end = None if options.max_seconds is None else time.monotonic() + options.max_seconds
        for batch in count(1):
            seconds = None if end is None else max(0.0, end - time.monotonic())
            # Without maxSeconds it ends when nothing has come for long.
            first = options.timeout if seconds is None else seconds
            task = Task(batch, 0, None, min(left, READ_BATCH), first, None, seconds, options.rate)
            yield from read(options, staging, task, self.reached)
            # What there is of it is settled now, by whichever task.
            found = staging.counts(batch)[0]
            left -= found.received
            if left <= 0 or found.ended not in (End.FULL, End.LEFT):
                return

    def reached(self, point: str) -> None:
        """As :meth:`pipeline.datasource.stream_reader.StompStreamReader.reached`."""
