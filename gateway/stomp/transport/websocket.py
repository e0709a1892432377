"""WebSocket below STOMP: what a connection that has it does besides.

Owns with which code and words it closes. The rules of WebSocket are
:mod:`gateway.stomp.websocket`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.messaging.errors import MessagingError
from gateway.stomp.connection_log import CLOSED_BY_CLIENT
from gateway.stomp.proxies import Proxies
from gateway.stomp.refusals import (
    BridgeStopped,
    CommandRefused,
    MemoryShort,
    TooManyConnections,
)
from gateway.stomp.transport.connection import Shared, StompConnection
from gateway.stomp.transport.deadlines import ABORT_MS, Pause, Stage
from gateway.stomp.websocket.codes import Code, WebSocketError
from gateway.stomp.websocket.endpoint import WebSocket
from gateway.stomp.websocket.upgrade import Agreed, UpgradeRefused
from gateway.stomp.wire import SHORTEST_FRAME, ProtocolError

#: Each with those that derive from it; the first that fits.
_CODES: Final[tuple[tuple[type[BaseException], Code], ...]] = (
    (BridgeStopped, Code.GOING_AWAY),
    (MemoryShort, Code.TRY_AGAIN_LATER),
    (TooManyConnections, Code.TRY_AGAIN_LATER),
    (ProtocolError, Code.PROTOCOL_ERROR),
    (CommandRefused, Code.POLICY),
    (MessagingError, Code.POLICY),
)
_NORMAL: Final = "the session has ended"


class FrameRefused(CommandRefused):
    """The client breaks a rule of WebSocket.

    :param code: with which it is closed.
    """

    def __init__(self, error: WebSocketError) -> None:
        super().__init__(f"WebSocket: {error}")
        self.code = error.code


class WebSocketConnection(StompConnection):
    """The protocol of one client that comes over WebSocket.

    What its messages carry is read as what comes over TCP. Pings and answers go out with the
    frames, so that they count where a client does not read.
    """

    def __init__(
        self,
        shared: Shared,
        address: str,
        port: int,
        service: str,
        websocket: WebSocket,
        proxies: Proxies,
    ) -> None:
        super().__init__(shared, address, port, service, websocket.sent)
        self._websocket: Final = websocket
        self._proxies: Final = proxies
        # Nobody begins with TLS here.
        self._began = True
        if address in proxies:
            self.known_address = ""
        self._began_session = False
        #: The client's Close frame is being answered.
        self._closing = False
        #: What the client is told at the end.
        self._last: tuple[BaseException | None, str] = (None, _NORMAL)

    def dataReceived(self, data: bytes) -> None:
        """Octets from the client."""
        websocket = self._websocket
        with self._turn:
            try:
                carried = websocket.receive(data, self._turn.timer_ms)
            except UpgradeRefused as refused:
                self._come_from(refused.headers)
                self.session.log.mismatched(str(refused))
                self.ending()
                self.finish()
                return
            except WebSocketError as error:
                self.session.fail(FrameRefused(error))
                return
            if not self._began_session and websocket.agreed is not None:
                self._begin_session(websocket.agreed)
            self._send_due()
            if carried:
                super().dataReceived(carried)
            if websocket.has_more:
                self._read_frames_later()
            self._look_for_close()

    def _read_frames_later(self) -> None:
        """Read on in the next turn.

        Frames that carry an octet each cost as much as long ones, and all others would wait.
        """
        if not self._pauses & Pause.FRAMES:
            self._pause(Pause.FRAMES)
            self._clock.callLater(0, self._read_more_frames)

    def _read_more_frames(self) -> None:
        if not self.is_gone:
            self._go_on(Pause.FRAMES)
            self.dataReceived(b"")

    def _begin_session(self, agreed: Agreed) -> None:
        self._began_session = True
        scheme, _, token = agreed.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token.count(".") == 2:
            # No passcode: those come with CONNECT.
            self.token = token
        log = self.session.log
        log.transport = f"WebSocket over {log.transport}"
        self._come_from(agreed.headers)
        if not self.known_address:
            try:
                self._shared.admission.moved(self, self.address)
            except TooManyConnections as refused:
                self.session.fail(refused)

    def _come_from(self, headers: Mapping[str, str]) -> None:
        """Take a proxy's word for who the client is."""
        if self.known_address:
            return
        client = self._proxies.client(headers.get("x-forwarded-for", ""), self.address)
        if client != self.address:
            self.address, self.port = client, 0
            self.session.log.come_from(client)

    def _read(self) -> None:
        super()._read()
        self._look_for_close()

    def _look_for_close(self) -> None:
        """See whether the client has closed, and all before that is carried out.

        Then what the client is owed goes out, and the answer to its Close frame.
        """
        if not self._websocket.closed_by_client or self.is_gone:
            return
        if self._stage is Stage.LINGERING:
            self._enter(Stage.CLOSING, ABORT_MS)
            self.transport.loseConnection()  # type: ignore[union-attr]
        elif self._closing or (self._pauses and self._parser.buffered >= SHORTEST_FRAME):
            return
        else:
            self._closing = True
            if not self.session.input_closed(CLOSED_BY_CLIENT, answered=True):
                self.ending()
                self.finish()

    def _flushed(self, octets: int, unsent: int) -> None:
        spoke = self.beats.spoke
        super()._flushed(octets, unsent)
        if not self._websocket.has_spoken:
            # An answer to a ping is no heart-beat: scripts do not see it.
            self.beats.spoke = spoke

    def ending(self, error: BaseException | None = None, text: str = _NORMAL) -> None:
        """As :meth:`gateway.stomp.session.peer.Peer.ending`."""
        self._last = error, text
        super().ending(error, text)

    def finish(self) -> None:
        """As :meth:`gateway.stomp.session.peer.Peer.finish`, behind a Close frame."""
        error, text = self._last
        self._websocket.close(close_code(error), text)
        self._send_due()
        super().finish()

    def _drained(self) -> None:
        super()._drained()
        self._send_due()

    def _send_due(self) -> None:
        # A client that does not read gets no further answers to pings until it does.
        if self._websocket.has_due and not (self.output.unsent and self._websocket.can_wait):
            # It goes before the next octets, of which there need not be any.
            self.output.add(b"")


def close_code(error: BaseException | None) -> Code:
    """Return with which code a WebSocket is closed.

    :param error: why; None: the session has ended as it should.
    """
    if error is None:
        return Code.NORMAL
    if isinstance(error, FrameRefused):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL_ERROR)
