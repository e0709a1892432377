"""A blocking STOMP connection, for Spark's Python workers.

Owns what the frames of a client say and wait for: CONNECT, SUBSCRIBE, ACK, RECEIPTs and ERRORs.
Knows nothing of sockets, rows, staging or Spark. It runs where the package is installed: on a
cluster that is every executor (``pip install 'stomp-gateway[pipeline]'`` in the environment of
``PYSPARK_PYTHON``, or an archive of it by ``spark-submit --archives``).

The passcode is read when a connection is made, and is in no attribute and in no error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from gateway.messaging.destination import Kind
from gateway.stomp.brokers import BROKERS, GENERIC, Dialect, recognise
from gateway.stomp.wire import Frame, Version, serialize
from pipeline.datasource.envelopes import ENVELOPE
from pipeline.datasource.errors import BrokerError, ConnectionLost, OptionError
from pipeline.datasource.options import Options
from pipeline.datasource.places import Place, kind_headers, spelled
from pipeline.datasource.transport import Transport

#: Pauses between attempts to connect, in seconds; the last again and again.
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0)
#: A broker that is not recognised, as errors name it.
_UNKNOWN: Final = replace(GENERIC, name="unknown")
_SUBSCRIPTION: Final = "1"
#: A broker's words for "try again later".
_PASSING: Final = (
    "in use",
    "already connected",
    "already exists",
    "client-id",
    "clientid",
    "client id",
    "durable",
)


class Client:
    """A connection; :meth:`open` makes it, ``with`` or :meth:`close` ends it.

    :param options: where, as whom, and how long to wait.
    :param receiving: it does little but :meth:`receive`, and so can promise heart-beats, by which a
        broker knows when the messages that it holds may go to another. Who waits for Spark between
        two calls cannot, and would be taken for dead.
    """

    def __init__(self, options: Options, receiving: bool = False) -> None:
        self._options: Final = options
        self._receiving: Final = receiving
        self._transport: Transport | None = None
        self._version = Version.V1_2
        self._receipts = 0
        #: Frames that were read and not handed over: of a run, and those that came before SUBSCRIBE
        #: was confirmed.
        self._waiting: list[Frame] = []
        self._early: list[Frame] = []
        self.dialect: Dialect = _UNKNOWN

    # --- the connection

    def open(self, patient: bool = True) -> Self:
        """Connect; if ``patient``, try again for ``timeoutSeconds``.

        :raises ConnectionLost: it could not be reached for so long.
        :raises BrokerError: it refuses the login, or the TLS handshake fails.
        :raises OptionError: the passcode or a certificate cannot be read here, or the broker is not
            what ``broker`` says.
        """
        until = time.monotonic() + self._options.timeout
        attempt = 0
        while True:
            try:
                self._connect()
                return self
            except ConnectionLost:
                self.close()
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                attempt += 1
                if not patient or time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
            except BaseException:
                self.close()
                raise

    def _connect(self) -> None:
        options = self._options
        passcode = options.passcode()
        self._transport = Transport(options)
        self._waiting, self._early = [], []
        wanted = round(options.heart_beat * 1000)
        promised = wanted if self._receiving else 0
        headers = [
            ("accept-version", "1.0,1.1,1.2"),
            ("host", "/"),
            ("heart-beat", f"{promised},{wanted}"),
        ]
        if options.login is not None:
            headers += [("login", options.login), ("passcode", passcode or "")]
        if options.client_id is not None:
            headers.append(("client-id", options.client_id))
        self._write(serialize("CONNECT", headers))
        self._connected()

    def _connected(self) -> None:
        options = self._options
        answer = self._next(time.monotonic() + options.timeout, "CONNECT")
        headers = answer.head.headers
        if answer.head.command == "ERROR":
            said = _said(answer)
            text = f"the STOMP broker at {options.address} refused the login {options.login or '(none)'}: {said}"
            passing = options.client_id is not None and any(
                word in said.lower() for word in _PASSING
            )
            raise ConnectionLost(text) if passing else BrokerError(text)
        if answer.head.command != "CONNECTED":
            raise BrokerError(
                f"{options.address} answered CONNECT by {answer.head.command}, expected CONNECTED"
            )
        self._version = {"1.2": Version.V1_2, "1.1": Version.V1_1}.get(
            headers.get("version", "1.0"), Version.V1_0
        )
        ours = round(options.heart_beat * 1000)
        theirs, wants = _beats(headers.get("heart-beat", "0,0"))
        beats = max(ours, wants) / 1000 / 2 if ours and wants and self._receiving else 0.0
        silence = max(ours, theirs) / 1000 * 2.5 if ours and theirs else 0.0
        self._living().agreed(self._version, beats, silence)
        server = headers.get("server", "")
        found = recognise(server)
        if options.broker is None:
            self.dialect = _UNKNOWN if found is GENERIC else found
        elif found in (GENERIC, BROKERS[options.broker]):
            self.dialect = BROKERS[options.broker]
        else:
            raise OptionError(
                "broker",
                f"is {options.broker!r}, and {options.address} is {found.name} by its own word ({server!r})",
            )

    def close(self) -> None:
        """Close the socket at once; the broker takes unacknowledged messages back."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def disconnect(self) -> None:
        """End the connection in order. Never raises.

        The broker has freed the subscription and the client id when this returns.
        """
        if self._transport is None:
            return
        try:
            self.confirm([("DISCONNECT", [], b"")])
        except BrokerError:
            pass
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.disconnect()
        else:
            self.close()

    # --- frames

    def subscribe(
        self, place: Place, prefetch: int, browse: bool = False, selector: str = ""
    ) -> None:
        """SUBSCRIBE; returns when the broker has agreed.

        :param prefetch: the messages that may be unsettled.
        :param browse: look only.
        :param selector: besides the option's; both must be true.
        :raises BrokerError: it refuses; the text names the destination.
        """
        options, dialect = self._options, self.dialect
        headers = [
            ("id", _SUBSCRIPTION),
            ("destination", spelled(dialect, place)),
            *kind_headers(dialect, place, "subscription-type"),
            *dialect.subscribe_headers,
        ]
        if browse:
            headers.append(("browser", "true"))
        else:
            headers.append(("ack", options.ack))
        selectors = [each for each in (options.selector, selector) if each]
        if selectors:
            both = len(selectors) > 1
            headers.append(
                ("selector", " AND ".join([f"({each})" if both else each for each in selectors]))
            )
        if self.enveloped:
            headers.append((ENVELOPE, "true"))
        if dialect.prefetch:
            headers.append((dialect.prefetch, str(min(prefetch, dialect.prefetch_limit))))
        if place.kind is Kind.TOPIC and options.subscription_name is not None:
            headers.append((dialect.durable_name, options.subscription_name))
            if dialect.durable_name == "x-queue-name":
                headers += kind_headers(dialect, Place(Kind.QUEUE, ""), "")
        receipt = self._receipt()
        self._write(serialize("SUBSCRIBE", [*headers, ("receipt", receipt)], version=self._version))
        # A broker may send messages before the RECEIPT; they wait in the list for receive().
        early: list[Frame] = []
        until = time.monotonic() + options.timeout
        while True:
            frame = self._next(until, f"SUBSCRIBE to {place}")
            if frame.head.command == "ERROR":
                text = f"the STOMP broker at {options.address} refused to {'show' if browse else 'deliver'} {place} to {options.login or 'this client'}: {_said(frame)}"
                passing = options.subscription_name is not None and any(
                    word in _said(frame).lower() for word in _PASSING
                )
                raise ConnectionLost(text) if passing else BrokerError(text)
            if frame.head.command == "RECEIPT":
                break
            early.append(frame)
        self._early = early

    def receive(self, until: float) -> list[Frame]:
        """Return the MESSAGEs that have come, at most some thousands.

        Waits for the first, and returns none when it is ``until``.

        :param until: by ``time.monotonic()``.
        :raises ConnectionLost: the connection is gone, or the broker ends it by an ERROR.
        :raises BrokerError: what comes is no STOMP.
        """
        if self._early:
            early, self._early = self._early, []
            return early
        while True:
            found = self._frames(until)
            if not found:
                return found
            if found[-1].head.command == "ERROR":
                # Nobody asked: the broker ends the connection, as it does when it stops.
                raise ConnectionLost(
                    f"the STOMP broker at {self._options.address} ended the connection: {_said(found[-1])}"
                )
            found = [frame for frame in found if frame.head.command == "MESSAGE"]
            if found:
                return found

    def underway(self, since: float) -> bool:
        """Whether part of a MESSAGE has come, some of it since ``since``.

        ``since`` is by ``time.monotonic()``.
        """
        return self._living().underway(since)

    def beating(self) -> AbstractContextManager[None]:
        """Send the promised heart-beats during a block that does something else."""
        return self._living().beating()

    def unsubscribe(self) -> None:
        """End the subscription of a browser, so that another can be made."""
        self.confirm([("UNSUBSCRIBE", [("id", _SUBSCRIPTION)], b"")])

    def acknowledge(self, frames: list[Frame], more: bool = False) -> None:
        """Acknowledge these deliveries; returns when the broker confirmed it.

        :param frames: all that were received, in order; with ``ack=client`` the last is enough, and
            the only one that is looked at.
        :param more: what comes meanwhile is received next; else it is dropped, and goes back.
        :raises BrokerError: the broker did not; it delivers them again, to any consumer.
        """
        asked: list[tuple[str, list[tuple[str, str]], bytes]] = []
        if self.dialect.acknowledges_after_unsubscribe and not more:
            # Else the broker would at once send as many again.
            asked.append(("UNSUBSCRIBE", [("id", _SUBSCRIPTION)], b""))
        for frame in frames if self.individual else frames[-1:]:
            headers = frame.head.headers
            if self._version is Version.V1_2:
                named = [("id", headers.get("ack", ""))]
            else:
                named = [
                    ("message-id", headers.get("message-id", "")),
                    ("subscription", headers.get("subscription", _SUBSCRIPTION)),
                ]
            asked.append(("ACK", named, b""))
        if self.dialect.syncs_acks_together:
            # The last alone: what it syncs has those before it, and each ACK in a transaction costs
            # more than the one before.
            _, named, body = asked.pop()
            transaction = [("transaction", "1")]
            asked += [
                ("BEGIN", transaction, b""),
                ("ACK", [*named, *transaction], body),
                ("COMMIT", transaction, b""),
            ]
        self.confirm(asked, self._early if more else None)

    def confirm(
        self,
        frames: list[tuple[str, list[tuple[str, str]], bytes]],
        meanwhile: list[Frame] | None = None,
    ) -> None:
        """Send frames, and wait for the RECEIPT of the last, and so of all.

        :param meanwhile: as for :meth:`wait_for`.
        """
        receipt = self._receipt()
        command, headers, body = frames[-1]
        octets = [serialize(*frame, version=self._version) for frame in frames[:-1]]
        octets.append(serialize(command, [*headers, ("receipt", receipt)], body, self._version))
        self._write(b"".join(octets))
        self.wait_for(receipt, command, meanwhile)

    def send(self, octets: bytes | bytearray) -> None:
        """Send frames without RECEIPTs, or whose RECEIPTs :meth:`wait_for` awaits."""
        self._write(octets)

    def receipt(self) -> str:
        """A ``receipt`` that no other frame of this connection has."""
        return self._receipt()

    @property
    def individual(self) -> bool:
        """Whether each delivery needs an ACK of its own."""
        return self._options.ack != "client"

    @property
    def enveloped(self) -> bool:
        """Whether each MESSAGE has the whole message as its body.

        That is asked for, and the broker can do it.
        """
        return self._options.envelope and self.dialect.envelopes

    @property
    def version(self) -> Version:
        """The version that is spoken."""
        return self._version

    def wait_for(self, receipt: str, what: str, meanwhile: list[Frame] | None = None) -> None:
        """Wait for a RECEIPT.

        :param what: the command or destination, for the sentence.
        :param meanwhile: gets the MESSAGEs that come before it; None: they are dropped.
        :raises BrokerError: an ERROR came instead, or nothing within ``timeoutSeconds``.
        """
        self.wait_for_all({receipt}, what, meanwhile)

    def wait_for_all(
        self, receipts: Iterable[str], what: str, meanwhile: list[Frame] | None = None
    ) -> None:
        """As :meth:`wait_for`, for several in any order."""
        missing = set(receipts)
        until = time.monotonic() + self._options.timeout
        while missing:
            frame = self._next(until, what)
            if frame.head.command == "ERROR":
                self._refused(frame, what)
            if frame.head.command == "RECEIPT":
                missing.discard(frame.head.headers.get("receipt-id", ""))
            elif meanwhile is not None and frame.head.command == "MESSAGE":
                meanwhile.append(frame)

    def _receipt(self) -> str:
        self._receipts += 1
        return str(self._receipts)

    def _refused(self, frame: Frame, what: str = "") -> None:
        about = f" {what}" if what else ""
        raise BrokerError(
            f"the STOMP broker at {self._options.address} refused{about}: {_said(frame)}"
        )

    # --- octets

    def _next(self, until: float, what: str) -> Frame:
        """One frame, whatever it is."""
        while not self._waiting:
            found = self._frames(until)
            if not found:
                raise ConnectionLost(
                    f"the STOMP broker at {self._options.address} did not answer {what} within {self._options.timeout:g} s"
                )
            self._waiting = found
        return self._waiting.pop(0)

    def _frames(self, until: float) -> list[Frame]:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            return waiting
        return self._living().frames(until)

    def _write(self, octets: bytes | bytearray) -> None:
        self._living().write(octets)

    def _living(self) -> Transport:
        if self._transport is None:
            raise ConnectionLost(
                f"the connection to the STOMP broker at {self._options.address} is closed"
            )
        return self._transport


def tells_end(frame: Frame) -> bool:
    """Whether this frame only tells a browser that it has seen everything.

    A real message may have that header, too, but it also has a ``timestamp``.
    """
    headers = frame.head.headers
    return headers.get("browser") == "end" and "timestamp" not in headers


def _beats(text: str) -> tuple[int, int]:
    first, _, second = text.partition(",")
    return (int(first) if first.strip().isdecimal() else 0), (
        int(second) if second.strip().isdecimal() else 0
    )


def _said(frame: Frame) -> str:
    """What an ERROR says, in one line."""
    text = frame.head.headers.get("message", "") or frame.body.decode("utf-8", "replace")
    line = " ".join(text.split())
    return line[:300] or "it gave no reason"
