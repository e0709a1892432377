"""What a session asks of the connection that it lives on.

Implemented by :mod:`gateway.stomp.transport`. What the session sends goes to its
:class:`~gateway.stomp.output.Output`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from gateway.stomp.wire import Version


class Subject(NamedTuple):
    """Whom a certificate is for.

    :param name: its common name.
    :param units: its organizational units.
    """

    name: str
    units: frozenset[str]


class Peer(Protocol):
    """The client's side, as a session sees it. All on the reactor thread."""

    @property
    def address(self) -> str:
        """The client's IP address, for access rules and limits."""

    @property
    def certificate(self) -> Subject | None:
        """Whom the client's verified certificate is for.

        None without TLS, or without a certificate that has a common name.
        """

    @property
    def token(self) -> str | None:
        """A token that came before the first frame; None without one."""

    def accepted(self, version: Version, pause_ms: int, receive_ms: int, silence_ms: int) -> None:
        """The client is CONNECTED: limits and time-outs change.

        :param pause_ms: octets go to the client after so long a silence; 0 for never.
        :param receive_ms: the client promised octets at least so often; 0 for none.
        :param silence_ms: after so long a silence it is ended with an ERROR; 0: it is dropped when its
            promise is broken.
        """

    def claim_user(self, username: str) -> None:
        """Count the connection for that user.

        :raises CommandRefused: the user has all the connections that one may have.
        """

    def pause_input(self) -> None:
        """Read nothing more until :meth:`resume_input`.

        What was read may still come, if the session asks for it.
        """

    def resume_input(self) -> None:
        """Read on, beginning with what was read already."""

    def transaction_holds(self, octets: int) -> None:
        """The open transaction holds this many bytes of messages.

        0 when it is over. Where memory is short, reading may pause.

        :raises CommandRefused: there is not so much memory for all transactions.
        """

    def held_fewer(self) -> None:
        """Frames that waited until the provider takes messages wait no longer."""

    def finish(self) -> None:
        """Close once the output is out. The session hears of it by ``lost``."""

    def ending(self, error: BaseException | None = None, text: str = "") -> None:
        """An ERROR or a last RECEIPT is under way.

        Nothing more is read, and a time limit runs, after which ``hurry`` is called.

        :param error: why; None: the client has asked for it.
        :param text: what it may be told of that.
        """

    def wake(self, at_ms: int) -> None:
        """Call the session's ``tick`` at that time, or soon after.

        The time is in milliseconds of the clock of timers.
        """
