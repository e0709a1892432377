"""RECEIPTs, in the order in which they were asked for.

Each is sent when what it tells of is durable.

Owns the frames and how many bytes of them may wait. An ERROR stands in the same line, so that it
does not overtake the RECEIPTs of what went well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from gateway.messaging.completions import Completions, Pending
from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import Done
from gateway.stomp.counters import Counters
from gateway.stomp.output import Output
from gateway.stomp.wire import Version, escape_header

Fail: TypeAlias = Callable[[BaseException, str | None], None]


#: The line is crowded when its frames, and those sent and not read, have more bytes than this.
#: Clients choose how long a receipt is.
_MOST: Final = 1024 * 1024


class Ticket(Pending):
    """A frame in the line.

    :ivar octets: the frame.
    :ivar then: called once the frame is on its way.
    """

    __slots__ = ("_receipts", "octets", "then")

    def __init__(self, receipts: Receipts, octets: bytes, then: Callable[[], None] | None) -> None:
        super().__init__()
        self._receipts = receipts
        self.octets = octets
        self.then = then

    def complete(self) -> None:
        self._receipts.send(self)


def forget(error: BaseException, receipt: str | None) -> None:
    """Forget where an error was raised that needs no more telling.

    Its traceback and the frames of the stack refer to each other, and hold the messages of the
    client.
    """
    cause: BaseException | None = error
    while cause is not None and cause.__traceback__ is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__


def nothing() -> None:
    """What is called of those that are gone."""


def receipt_frame(receipt: str, version: Version) -> bytes:
    """The RECEIPT for the ``receipt`` header of that value."""
    return b"RECEIPT\nreceipt-id:%s\n\n\0\n" % escape_header(receipt, version).encode(
        "utf-8", "replace"
    )


class Receipts:
    """The line of one connection.

    :param fail: ends the connection with an ERROR for what failed, and the ``receipt`` header of
        the frame that asked for it.
    :param relieved: called when the line was crowded and is no longer.
    """

    def __init__(
        self, output: Output, fail: Fail, relieved: Callable[[], None], counters: Counters
    ) -> None:
        self._output = output
        self._counters = counters
        self._fail: Fail = fail
        self._relieved: Callable[[], None] = relieved
        self._line: Final = Completions()
        self._octets = 0
        #: Bytes of those sent that are not yet in the kernel.
        self.unread = 0
        #: Read no more input until this is False.
        self.is_crowded = False
        self.version = Version.V1_0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def open(self, receipt: str | None, then: Callable[[], None] | None = None) -> Ticket:
        """Take a place for a RECEIPT.

        Without a receipt nothing is sent, but ``then`` is called in order.
        """
        return self.open_frame(
            b"" if receipt is None else receipt_frame(receipt, self.version), then
        )

    def open_frame(self, octets: bytes, then: Callable[[], None] | None = None) -> Ticket:
        """Take a place for any frame."""
        ticket = Ticket(self, octets, then)
        self._line.add(ticket)
        self._octets += len(octets)
        if self._octets > _MOST:
            self.is_crowded = True
        return ticket

    def release(self, ticket: Ticket) -> None:
        """What the ticket stands for is done: send its frame in its turn."""
        self._line.finish(ticket)
        self._look()

    def drained(self) -> None:
        """All that was sent is in the kernel."""
        self._octets -= self.unread
        self.unread = 0
        self._look()

    def _look(self) -> None:
        if self.is_crowded and self._octets <= _MOST // 2:
            self.is_crowded = False
            self._relieved()

    def completing(self, ticket: Ticket, receipt: str | None) -> Done:
        """Return what a provider calls to release or to fail the ticket."""

        def done(error: MessagingError | None) -> None:
            if error is None:
                self.release(ticket)
            else:
                self._fail(error, receipt)
                self.drop(ticket)

        return done

    def replace(self, ticket: Ticket, octets: bytes) -> None:
        """What the ticket stands for failed: send another frame in its place."""
        self._octets += len(octets) - len(ticket.octets)
        ticket.octets, ticket.then = octets, None
        if self._octets > _MOST:
            self.is_crowded = True
        self.release(ticket)

    def drop(self, ticket: Ticket) -> None:
        """What the ticket stands for failed: send nothing for it.

        Those behind it need not wait.
        """
        self._octets -= len(ticket.octets)
        ticket.octets, ticket.then = b"", None
        self.release(ticket)

    def abandon(self) -> None:
        """Send what is done and drop the rest: waiting has lasted too long."""
        self._line.abandon()
        self._octets = self.unread

    def clear(self) -> None:
        """Drop all that waits, without notice: the client is gone.

        What the provider has yet to answer must not keep the session.
        """
        self._fail, self._relieved = forget, nothing
        self._line.clear()
        self._octets = self.unread = 0

    def send(self, ticket: Ticket) -> None:
        """Send the frame of the first ticket in the line."""
        if ticket.octets:
            self.unread += len(ticket.octets)
            self._counters.frames_out += 1
            self._output.add(ticket.octets)
        if ticket.then is not None:
            ticket.then()
