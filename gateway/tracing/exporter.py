"""The export of spans: they wait, and go to the collector in batches.

Owns the bound of what waits, the pauses while the collector is away, and what the log is told.
Spans come from the journal's thread, requests leave on the reactor's, and nothing waits for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer

from gateway.journal.tracer import Context, TracingStanding
from gateway.messaging.message import Message
from gateway.reactor.bodies import BodyTooLong, read_body
from gateway.reactor.rates import TokenBucket
from gateway.tracing.contexts import contexts
from gateway.tracing.otlp import rejected_by, request_of
from gateway.tracing.settings import TracingOptions
from gateway.tracing.spans import Span, SpanMaker

#: Spans of one request.
_BATCH: Final = 512
#: Seconds between two looks at what waits.
_INTERVAL: Final = 1.0
#: Seconds that the collector has for an answer, and those at the end of the gateway.
_TIMEOUT: Final = 10.0
_LAST_TIMEOUT: Final = 1.0
#: The longest pause after requests that failed, in seconds; the first is the interval.
_LONGEST_PAUSE: Final = 60.0
#: Octets of an answer that are read: it says at most how many spans are refused, and why.
_LONGEST_ANSWER: Final = 1 << 16
#: What a collector answers that wants the same once more, later.
_AGAIN: Final = frozenset({429, 502, 503, 504})


@implementer(IBodyProducer)
class _Body:
    """The body of a request, written at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """All is written."""

    def resumeProducing(self) -> None:
        """All is written."""

    def stopProducing(self) -> None:
        """All is written."""


class _Failed(Exception):
    """The collector has not taken a request, and may take it later."""


class Tracing:
    """Makes spans of the journal's lines and exports them.

    :param instance: the gateway's.
    """

    _log: ClassVar = Logger(namespace="gateway.tracing")

    def __init__(self, reactor: Any, options: TracingOptions, instance: str) -> None:
        self._reactor: Final = reactor
        self._options: Final = options
        self._instance: Final = instance
        self._maker: Final = SpanMaker(self._add)
        #: Traces that begin here.
        self._roots: Final = TokenBucket(reactor.seconds, options.most_per_second, 1.0)
        self._waiting: deque[Span] = deque()
        #: Each is changed by one thread only: spans for which there was no room, and others.
        self._crowded = 0
        self._dropped = 0
        self._exported = 0
        self._failures = 0
        #: Spans of the request under way.
        self._batch: Sequence[Span] = ()
        self._defective = False
        #: What it answers that takes nothing; 0 where it has taken something since.
        self._refused_by = 0
        self._pool: Final = HTTPConnectionPool(reactor)  # type: ignore[no-untyped-call]
        self._agent: Final = Agent(reactor, connectTimeout=_TIMEOUT, pool=self._pool)  # type: ignore[no-untyped-call]
        self._pause: Deferred[None] | None = None
        self._request: Deferred[tuple[int, bytes]] | None = None
        #: When the gateway ends; None before.
        self._deadline: float | None = None
        self._running: Final = Deferred.fromCoroutine(self._run())

    # --- for the journal

    def contexts(self, messages: Sequence[Message], roots: bool) -> dict[str, Context]:
        """See :class:`gateway.journal.tracer.Tracer`."""
        return contexts(messages, self._options.one_in if roots else 0, self._roots)

    def read(self, lines: Sequence[Mapping[str, object]]) -> None:
        """See :class:`gateway.journal.tracer.Tracer`."""
        for fields in self._maker.telling(lines):
            try:
                self._maker.read(fields)
            except Exception:  # noqa: BLE001
                # A defect must not end the journal's thread. One such line says enough.
                if not self._defective:
                    self._defective = True
                    self._log.failure("a line of the journal could not become spans")

    def standing(self) -> TracingStanding:
        """How the export stands."""
        waiting = len(self._waiting) + len(self._batch)
        dropped = self._crowded + self._dropped
        return TracingStanding(self._exported, dropped, waiting, self._failures)

    def _add(self, span: Span) -> None:
        if len(self._waiting) >= self._options.most:
            self._crowded += 1
        else:
            self._waiting.append(span)

    # --- on the reactor's thread

    async def stop(self) -> None:
        """Send what waits, for a second at most; drop the rest."""
        if self._deadline is not None:
            return
        self._deadline = self._reactor.seconds() + _LAST_TIMEOUT
        if self._pause is not None:
            self._pause.cancel()
        if self._request is not None:
            self._request.addTimeout(_LAST_TIMEOUT, self._reactor)
        await self._running
        self._dropped += len(self._waiting) + len(self._batch)
        self._waiting.clear()
        self._batch = ()
        await self._pool.closeCachedConnections()  # type: ignore[no-untyped-call]

    async def _run(self) -> None:
        pause = _INTERVAL
        while self._deadline is None:
            await self._sleep(pause)
            pause = await self._export(pause)

    async def _export(self, pause: float) -> float:
        """Send what waits. :returns: seconds until the next look."""
        due = len(self._waiting)
        while (self._batch or self._is_due(due)) and self._left() > 0:
            if not self._batch:
                many = min(_BATCH, len(self._waiting))
                self._batch = [self._waiting.popleft() for _ in range(many)]
                due -= many
            try:
                await self._send(self._batch)
            except _Failed as failed:
                self._failures += 1
                if pause == _INTERVAL:
                    self._log.warn(
                        "the collector {endpoint} takes no spans, and is asked again: {error}",
                        endpoint=self._options.endpoint,
                        error=failed,
                    )
                return min(2 * pause, _LONGEST_PAUSE)
            except Exception:  # noqa: BLE001
                # A defect of ours, which would be met again.
                self._dropped += len(self._batch)
                self._log.failure("spans could not be exported")
            self._batch = ()
            if pause != _INTERVAL:
                pause = _INTERVAL
                self._log.info(
                    "the collector {endpoint} takes spans again", endpoint=self._options.endpoint
                )
        return _INTERVAL

    def _is_due(self, due: int) -> bool:
        """Whether there is a request to be made before the next look.

        What came while others were sent waits for it, unless it fills a request or is the last:
        a request costs as much as many spans.

        :param due: spans that waited at this look, and wait still.
        """
        waiting = len(self._waiting)
        ends = self._deadline is not None
        return waiting > 0 and (due > 0 or ends or waiting >= _BATCH)

    def _left(self) -> float:
        """Seconds that a request may take."""
        if self._deadline is None:
            return _TIMEOUT
        return self._deadline - float(self._reactor.seconds())

    async def _send(self, spans: Sequence[Span]) -> None:
        """:raises _Failed: the collector does not take them now."""
        body = await deferToThreadPool(
            self._reactor, self._reactor.getThreadPool(), request_of, spans, self._instance
        )
        request = self._request = Deferred.fromCoroutine(self._posted(body))
        request.addTimeout(max(0.0, self._left()), self._reactor)
        try:
            code, answer = await request
        except Exception as error:
            reasons = [reason.value for reason in getattr(error, "reasons", ())] or [error]
            late = any(isinstance(each, CancelledError | TimeoutError) for each in reasons)
            why = "; ".join(str(each) or repr(each) for each in reasons)
            raise _Failed("it does not answer in time" if late else why) from error
        finally:
            self._request = None
        if code in _AGAIN:
            raise _Failed(f"it answers {code}")
        if 200 <= code < 300:
            rejected = min(rejected_by(answer), len(spans))
            self._refused_by = 0
        else:
            # It would not take them later, either.
            rejected = len(spans)
            self._failures += 1
            if self._refused_by != code:
                # It goes on like that, and metrics count.
                self._refused_by = code
                self._log.warn(
                    "the collector {endpoint} refuses {count} spans: it answers {code}; the next are counted only",
                    endpoint=self._options.endpoint,
                    count=len(spans),
                    code=code,
                )
        self._dropped += rejected
        self._exported += len(spans) - rejected

    async def _posted(self, body: bytes) -> tuple[int, bytes]:
        response = await self._agent.request(
            b"POST",
            self._options.endpoint.encode("ascii"),
            Headers({b"content-type": [b"application/json"], b"user-agent": [b"stomp-gateway"]}),
            _Body(body),
        )
        try:
            return response.code, await read_body(response, _LONGEST_ANSWER)
        except BodyTooLong:
            return response.code, b""

    async def _sleep(self, seconds: float) -> None:
        pause: Deferred[None] = Deferred()
        self._pause = pause
        call = self._reactor.callLater(seconds, pause.callback, None)
        try:
            await pause
        except CancelledError:
            call.cancel()
        finally:
            self._pause = None
