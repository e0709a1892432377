"""One STOMP connection: which frame is legal, and who carries it out.

Owns the state and the order of things: what gathers is given to the provider before another command
is carried out, and an ending takes its steps one by one. Knows no sockets: octets come in as frames
and leave through :class:`~gateway.stomp.output.Output`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection, Provider
from gateway.reactor.turn import Turn
from gateway.stomp.connection_log import ConnectionLog
from gateway.stomp.counters import Counters
from gateway.stomp.destinations import Temporaries
from gateway.stomp.management import Manage
from gateway.stomp.message_encoder import MessageEncoder
from gateway.stomp.output import Output
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.send_plan import SendPlan, headers_of, is_text
from gateway.stomp.session import handshake
from gateway.stomp.session.connecting import connect
from gateway.stomp.session.peer import Peer
from gateway.stomp.session.receipts import Receipts, Ticket, forget, nothing
from gateway.stomp.session.refusing import Refusing, with_withheld
from gateway.stomp.session.renewing import Renewing
from gateway.stomp.session.sending import Held, Sending
from gateway.stomp.session.settlement import Settlement
from gateway.stomp.session.states import COMMANDS, TRANSITIONS, Command, State, refused, unknown
from gateway.stomp.session.subscriptions import Subscriptions
from gateway.stomp.session.transactions import Transactions
from gateway.stomp.session.transforming import Transforming
from gateway.stomp.settings import SessionOptions
from gateway.stomp.wire import Frame, Head, ShapedHead, Version

_OPEN: Final = frozenset((State.CONNECTED, State.IN_TRANSACTION))
#: What the log is told of at FINE; never what there is one of for each message.
_LOGGED: Final = frozenset(
    (
        Command.SUBSCRIBE,
        Command.UNSUBSCRIBE,
        Command.BEGIN,
        Command.COMMIT,
        Command.ABORT,
        Command.DISCONNECT,
    )
)


class Session:
    """What the frames of one client mean.

    :param identifier: for the ``session`` header and for incident numbers; unique.
    :param encoders: by version, shared by all sessions.
    :param log: is told who connects, and how it ends.
    :param manage: makes what takes requests to manage the broker; None where nothing does.
    """

    # Named, because Logger finds no frame to take its name from where this is compiled.
    _log: ClassVar = Logger(namespace="gateway.stomp.session.session")

    def __init__(
        self,
        identifier: str,
        peer: Peer,
        output: Output,
        provider: Provider,
        turn: Turn,
        options: SessionOptions,
        encoders: Mapping[Version, MessageEncoder],
        transforming: Transforming | None,
        counters: Counters,
        log: ConnectionLog,
        manage: Manage | None = None,
    ) -> None:
        self.identifier: Final = identifier
        self._manage: Manage | None = manage
        self.log: Final = log
        self._peer: Final = peer
        self._output: Final = output
        self._provider: Final = provider
        self._turn: Final = turn
        self._options: Final = options
        self._profile: Final = options.profile
        self._encoders: Final = encoders
        self._transforming: Final = transforming
        self._counters: Final = counters
        self._receipts: Final = Receipts(output, self.fail, self._relieved, counters)
        self._refusing: Final = Refusing(identifier, self._receipts, log, counters, self._profile)
        self.state = State.OPENED
        self.version = Version.V1_0
        #: The provider's connection behind it, while it has one.
        self.connection: Connection | None = None
        self._connecting: Deferred[Connection] | None = None
        self._renewing: Final = Renewing(
            turn, self._receipts, lambda: self.state in _OPEN, self.fail
        )
        self._sending: Sending
        self.subscriptions: Final = Subscriptions(
            peer,
            output,
            self._receipts,
            options,
            None if transforming is None else transforming.outgoing,
            self.fail,
            self._refuse,
            turn.refresh_timer,
            counters,
        )
        self._settlement: Settlement
        self._transactions: Transactions
        #: Frames that wait until the provider takes messages again.
        self.held: Final = Held(options.input_hold)
        #: It has been CONNECTED, and so has what carries frames out.
        self._was_connected = False

    # Input.

    @property
    def is_reading(self) -> bool:
        """Whether frames are wanted just now."""
        return self.state in _OPEN or self.state is State.OPENED

    def receive(self, frames: Iterable[Frame]) -> None:
        """Carry frames out, in order, up to one that ends the connection.

        The caller calls :meth:`input_ended` before its turn ends.
        """
        rest = iter(frames)
        while self._carry_out(rest):
            pass

    def _carry_out(self, frames: Iterator[Frame]) -> bool:
        """Carry frames out.

        :returns: True if one was refused, and the client goes on with those behind it.
        """
        head: Head | None = None
        try:
            if self.state not in _OPEN:
                for head, body in frames:
                    if self.is_reading:
                        self._command(head, body)
                return False
            sending = self._sending
            settlement = self._settlement
            # What comes again, octet by octet, with what is to be done to it: nothing but to send.
            again: Head | None = None
            headers: object = None
            checked = False
            for frame in frames:
                head, body = frame
                if head is again and (not checked or body.isascii() or is_text(body)):
                    assert isinstance(headers, Headers)
                    sending.pending.append(Message(headers, body))
                    continue
                if isinstance(head, ShapedHead) and sending.direct and not sending.blocked:
                    meaning = head.meaning
                    plan = meaning.plan
                    if (
                        meaning.shape.is_bare
                        and isinstance(plan, SendPlan)
                        and plan.plain
                        and (not plan.text or body.isascii() or is_text(body))
                    ):
                        headers = head.made
                        if not isinstance(headers, Headers):
                            headers = head.made = headers_of(head, plan)
                        sending.pending.append(Message(headers, body))
                        again = head
                        checked = plan.text
                        continue
                again = None
                if sending.blocked:
                    self._hold(frame)
                    if self.state not in _OPEN:
                        return False
                elif head.command == "ACK" and "receipt" not in head.headers:
                    settlement.ack(head)
                else:
                    self._command(head, body)
                    if self.state not in _OPEN:
                        return False
        except Exception as error:  # noqa: BLE001
            return self._meet(error, head)
        return False

    def _meet(self, error: Exception, head: Head | None) -> bool:
        """Answer a frame with an ERROR, after the RECEIPTs that are due.

        :returns: whether the connection goes on.
        """
        receipt = None if head is None else head.headers.get("receipt")
        if self._survives(error):
            self.state = State.IN_TRANSACTION if len(self._transactions) else State.CONNECTED
            self._guarded(self._flush)
        return self._refuse(error, receipt)

    def _refuse(
        self, error: BaseException, receipt: str | None, ticket: Ticket | None = None
    ) -> bool:
        """Answer with an ERROR. :returns: whether the connection goes on."""
        if self._survives(error):
            self._refusing.answer(error, self.version, receipt, ticket)
            return True
        self.fail(error, receipt)
        return False

    def _survives(self, error: BaseException) -> bool:
        return (
            self._was_connected
            and self.connection is not None
            and self.state in _OPEN
            and self._refusing.survives(error, self.version)
            # Then input does not pause for those that do not read their ERRORs.
            and not (self._sending.blocked and self._receipts.is_crowded)
        )

    def input_ended(self) -> None:
        """No more frames in this turn: give the provider what has gathered."""
        if self.state in _OPEN:
            self._guarded(self._flush)

    def _flush(self) -> None:
        self._settlement.flush()
        if self._sending.flush() and self._receipts.is_crowded and not self._sending.blocked:
            # While a destination holds the sends back, the ACKs that make room in it must go on
            # being read.
            self._peer.pause_input()

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def _command(self, head: Head, body: bytes) -> None:
        command = COMMANDS.get(head.command)
        if command is None:
            raise unknown(head.command)
        following = TRANSITIONS[self.state].get(command)
        if following is None:
            # Only BEGIN inside a transaction may be legal in spite of the table.
            several = self._profile.several_transactions and self.state is State.IN_TRANSACTION
            if command is not Command.BEGIN or not several:
                raise refused(self.state, command)
            following = self.state
        if command is Command.SEND:
            if handshake.is_renewal(head):
                self._renew(head, body)
            elif not self._sending.add(head, body, self._turn.now_ms) and self._sending.kept:
                self._hold(Frame(head, body))
            return
        if self.state in _OPEN:
            self._settlement.flush()
            if not self._sending.flush():
                return
            if self._sending.kept and command is not Command.ACK and command is not Command.NACK:
                # It must not overtake what was sent before it.
                self._hold(Frame(head, body))
                return
        if self.log.fine and command in _LOGGED:
            self.log.asked(head)
        # First, because CONNECT may be answered from inside its own call.
        self.state = following
        match command:
            case Command.ACK:
                self._settlement.ack(head)
            case Command.NACK:
                self._settlement.nack(head)
            case Command.SUBSCRIBE:
                self.subscriptions.subscribe(head, self._transactions)
            case Command.UNSUBSCRIBE:
                self.subscriptions.unsubscribe(head, self._transactions.joined)
            case Command.BEGIN:
                self._transactions.begin(head)
            case Command.COMMIT | Command.ABORT:
                self._transactions.end(head, commit=command is Command.COMMIT)
                if self.state is State.CONNECTED and len(self._transactions):
                    self.state = State.IN_TRANSACTION
            case Command.DISCONNECT:
                self._disconnect(head)
            case _:
                self._connect(head)

    # Flow control: SENDs and what must not overtake them wait; ACK and NACK do not.

    def _hold(self, frame: Frame) -> None:
        head = frame.head
        if (
            head.command in ("ACK", "NACK")
            and not self.held.has_boundary
            and "transaction" not in head.headers
        ):
            self._command(head, frame.body)
        elif head.command == "SEND" and handshake.is_renewal(head):
            # It would come too late.
            self._renew(head, frame.body)
        elif self.held.add(frame):
            self._peer.pause_input()

    def _resumed(self) -> None:
        """The provider takes messages again."""
        was_full = self.held.is_full
        held = self.held.take()
        with self._turn:
            self.input_ended()
            while held and self.state in _OPEN and not self._sending.blocked:
                # One at a time, and given on at once, since any of them may fill the destination
                # again.
                self.receive([self.held.next(held)])
                self.input_ended()
            for frame in self.held.put_back(held) if self.state in _OPEN else ():
                if self.state in _OPEN:
                    try:
                        self._hold(frame)
                    except Exception as error:  # noqa: BLE001
                        self._meet(error, frame.head)
        self._peer.held_fewer()
        if was_full:
            self._relieved()

    def _relieved(self) -> None:
        """There may be room for input again."""
        if self.state in _OPEN and not self.held.is_full and not self._receipts.is_crowded:
            self._peer.resume_input()

    # CONNECT.

    def _connect(self, head: Head) -> None:
        options = self._options
        self.version = self._receipts.version = handshake.negotiate(head)
        least = options.heartbeat_send_ms, options.heartbeat_receive_ms
        handshake.check_host(head, self._profile.hosts)
        profile = self._profile
        beats = handshake.heartbeat(head, *least, profile.wanted_beats, profile.lifetime)
        certificate = self._peer.certificate if options.certificate_login else None
        who = handshake.credentials(
            head,
            self._peer.address,
            certificate,
            self._peer.token,
            options.certificate_groups,
            self._profile.default_user,
        )
        self.log.user = who.username
        client_id = head.headers.get("client-id") or None
        receipt = head.headers.get("receipt")

        def failed(failure: Failure) -> None:
            assert failure.value is not None
            self.fail(failure.value, receipt)

        connecting = connect(
            self._provider, who, client_id, self._lost_provider, self._profile.shares_client_ids
        )
        self._connecting = connecting
        connected = connecting.addCallback(
            lambda connection: self._connected(connection, head, who.username, client_id, beats)
        )
        connected.addErrback(failed)

    def _connected(
        self,
        connection: Connection,
        head: Head,
        username: str,
        client_id: str | None,
        beats: handshake.Heartbeat,
    ) -> None:
        self._connecting = None
        self.connection = connection
        user = connection.user or username
        self.log.user = user
        self._peer.claim_user(user)
        profile = self._profile
        most = self._options.max_temporaries
        replies = self.subscriptions.await_reply
        temporaries = Temporaries(connection, profile.naming, most, replies)
        self.subscriptions.connected(
            connection,
            self._encoders[self.version],
            client_id,
            temporaries.resolve,
            profile.session_of(self.identifier),
            temporaries.texts,
        )
        self._transactions = Transactions(
            connection,
            self._receipts,
            self.subscriptions.transacted,
            self._peer.transaction_holds,
            profile.several_transactions,
            profile.repeats_nacked,
        )
        self._settlement = Settlement(
            self.subscriptions, self._transactions, self._receipts, profile, self.version
        )
        self._sending = Sending(
            connection,
            self._transactions,
            self._receipts,
            temporaries.resolve,
            self._transforming,
            self.fail,
            self._refuse,
            self._resumed,
            profile,
            self.held,
            self._counters,
            None if self._manage is None else self._manage(connection, lambda: self.state in _OPEN),
        )
        self._was_connected = True
        self._counters.frames_out += 1
        self._output.add(
            handshake.connected_frame(self.version, self.identifier, profile, beats, head.headers)
        )
        self.state = State.CONNECTED
        pause_ms = profile.pause_of(beats.send)
        self._peer.accepted(self.version, pause_ms, beats.receive, beats.silence)
        self.log.connected(self.version, client_id)

    def _renew(self, head: Head, body: bytes) -> None:
        who = handshake.renewed(head, body, self._peer.address)
        if self._sending.flush() and self.connection is not None:  # by the former token
            self._renewing.renew(self.connection, who, head.headers.get("receipt"))

    def _stop_connecting(self) -> None:
        """Stop verifying the passcode, or a newer token."""
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
        self._renewing.stop()

    def _lost_provider(self, error: MessagingError) -> None:
        self.connection = None
        # What a broker that is connected to late cannot do, it says of the transaction as a whole.
        self.fail(error, self._transactions.latest_asked if self._was_connected else None)

    # Endings. What the client is told comes last, and the socket closes after it.

    def _disconnect(self, head: Head) -> None:
        """Make everything asked before durable, close the provider, RECEIPT.

        What was sent is read before the provider's connection closes.
        """
        receipt = head.headers.get("receipt")
        self.subscriptions.end()
        self._peer.ending()
        ticket = self._receipts.open(
            None,
            lambda: self._output.when_drained(
                lambda: self._close_provider(lambda: self._bye(receipt))
            ),
        )
        self._sending.session.completion(self._receipts.completing(ticket, receipt))

    def _bye(self, receipt: str | None) -> None:
        self._receipts.release(self._receipts.open(receipt, self._finish))

    def fail(self, error: BaseException, receipt: str | None = None) -> None:
        """End the connection with an ERROR, after the RECEIPTs that are due.

        :param receipt: the ``receipt`` header of the frame that failed.
        """
        if self.state is State.CLOSED:
            forget(error, receipt)
            return
        was_open = self.state in _OPEN
        # Before CONNECTED the client does not know a version, and could not unescape.
        version = Version.V1_0 if self.state in (State.OPENED, State.CONNECTING) else self.version
        self.state = State.CLOSED
        if was_open and self.connection is not None:
            try:
                self._flush()  # the frames before the one that failed were good
            except (MessagingError, CommandRefused) as also:
                self._log.info(
                    "{session}: what came before an ERROR failed, too: {error}",
                    session=self.identifier,
                    error=also,
                )
        self.held.clear()
        self._stop_connecting()
        text, octets = self._refusing.frame(error, version, receipt)
        self._peer.ending(error, text)
        self.subscriptions.end()
        self.log.failed(error, with_withheld(error, text))
        ticket = self._receipts.open_frame(
            octets, lambda: self._output.when_drained(lambda: self._close_provider(self._finish))
        )
        self._receipts.release(ticket)
        forget(error, receipt)

    def hurry(self) -> None:
        """The time limit of an ending has passed: say what can be said, and close."""
        self.state = State.CLOSED
        self._receipts.abandon()
        self._close_provider(self._finish)

    def input_closed(self, how: str, *, answered: bool = False) -> bool:
        """The client sends no more, and may still read.

        End as after a DISCONNECT, once the RECEIPTs that are due are on their way.

        :param how: for the log.
        :param answered: the client waits for an answer to that.
        :returns: whether the client is still to be told something; the session then finishes by
            itself.
        """
        if answered and self.state in (State.OPENED, State.CONNECTING):
            self.log.ended(how)
            self.state = State.CLOSED
            self._stop_connecting()
            return False
        if self.state not in _OPEN:
            return self.state is State.DISCONNECTING or self.state is State.CLOSED
        self.input_ended()
        if self.state not in _OPEN:
            return True
        if not answered and not len(self._receipts) and not self._receipts.unread:
            return False
        self.log.ended(how)
        self.state = State.DISCONNECTING
        self.held.clear()
        self.subscriptions.end()
        self._peer.ending()
        ticket = self._receipts.open(
            None, lambda: self._output.when_drained(lambda: self._close_provider(self._finish))
        )
        self._receipts.release(ticket)
        return True

    def lost(self, how: str) -> None:
        """The socket is gone: give back and roll back.

        :param how: for the log, where the client has not asked for it.
        """
        self.log.ended("DISCONNECT" if self.state is State.DISCONNECTING else how)
        self.state = State.CLOSED
        self.held.clear()
        self._stop_connecting()
        self._receipts.clear()
        self.subscriptions.end()
        if self._was_connected:
            self._sending.close()
        self._close_provider(nothing)
        self.subscriptions.clear()

    def _finish(self) -> None:
        self.log.ended("DISCONNECT")
        self.state = State.CLOSED
        self._peer.finish()

    def _close_provider(self, then: Callable[[], None]) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            then()
            return
        self._peer.transaction_holds(0)
        closing = connection.close().addErrback(self._close_failed)
        closing.addCallback(lambda _: then())

    def _close_failed(self, failure: Failure) -> None:
        self._log.failure(
            "{session}: closing the provider's connection failed",
            failure=failure,
            session=self.identifier,
        )

    # Output, time and the operator.

    def flushed(self, unsent: int) -> None:
        """The output is being written.

        :param unsent: octets that are not yet in the kernel, these included.
        """
        self.subscriptions.flushed()
        if unsent > 4 * self._options.output_window:
            self.subscriptions.choke()

    def drained(self) -> None:
        """All that was written is in the kernel."""
        if self._receipts.unread:
            self._receipts.drained()
        if self.connection is not None:
            self._guarded(self.subscriptions.drained)

    def tick(self, now_ms: int) -> None:
        """The time that :meth:`Peer.wake` asked for has come."""
        if self.connection is not None:
            self.subscriptions.tick(now_ms)
