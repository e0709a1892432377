"""What an operator sees of bridges and links: states, counters, errors.

Owns these words and values. Who is in which state, and why, is known elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from gateway.messaging.dead import BridgeDeadReason


class BridgeState(Enum):
    """What a bridge is doing, in the words of ``imqbridgemgr list bridge``."""

    STOPPED = "STOPPED"
    STARTING = "STARTING"
    STARTED = "STARTED"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    RESUMING = "RESUMING"
    STOPPING = "STOPPING"


class LinkState(Enum):
    """What a link is doing; the words are those of ``imqbridgemgr list link``.

    The original has all but RETRYING, STALLED and FAILED, which in it look like STARTED and STOPPED.
    """

    #: Disabled in the bridge's file.
    UNINITIALIZED = "UNINITIALIZED"
    STOPPED = "STOPPED"
    #: It connects for the first time.
    STARTING = "STARTING"
    #: It moves messages.
    STARTED = "STARTED"
    #: Something waits, and it has moved nothing for a while, though it is or was connected.
    STALLED = "STALLED"
    #: It has lost a provider or never had it, and waits to try again or tries.
    RETRYING = "RETRYING"
    #: It will take no more messages, and settles those under way.
    PAUSING = "PAUSING"
    #: It takes no messages. It keeps its connections, if it had any.
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    #: It has stopped by itself, for the reason told, and waits for an operator.
    FAILED = "FAILED"


class Doing(Enum):
    """What the batch under way on a link waits for.

    So that a link which looks well and moves nothing can be recognised.
    """

    NOTHING = "nothing"
    RECEIVING = "receiving"
    TRANSFORMING = "transforming"
    SENDING = "sending"
    #: It may not take the next batch yet, by its max-messages-per-second or max-bytes-per-second.
    PACING = "waiting for its rate"
    BURYING = "sending to the dead message queues"
    ACKNOWLEDGING = "acknowledging"


class OnceBy(Enum):
    """What a link relies on to transfer each message once and only once."""

    #: One XA transaction of source and target.
    XA = "XA"
    #: The target keeps of several messages with one duplicate id only one.
    DUPLICATE_IDS = "DUPLICATE_IDS"


class WrongState(Exception):
    """What was asked cannot be done in this state.

    :param what: ``bridge NAME`` or ``link NAME``.
    :param operation: such as ``pause``.
    :param state: the state's word.
    :param remedy: what to do instead, "" for nothing.
    """

    def __init__(self, what: str, operation: str, state: str, remedy: str = "") -> None:
        super().__init__(f"cannot {operation} {what}, which is {state}{remedy and ': '}{remedy}")
        self.what = what
        self.operation = operation
        self.state = state


@dataclass(slots=True)
class LinkCounters:
    """What a link has done since it was made; they only grow.

    :param received: messages taken from the source, redelivered ones each time.
    :param sent: messages that the target has made its own.
    :param octets: of their bodies.
    :param acknowledged: messages that the source has been told are done with, and has confirmed.
    :param batches: rounds of sending and acknowledging.
    :param expired: messages that were too old.
    :param not_transferred: those that a rule or a transformer dropped.
    :param transform_failures: messages on which the transformer failed.
    :param refused: messages that the target refused.
    :param dead: messages that went to a dead message queue, by reason.
    :param reconnects: how often a provider was lost after it had been there.
    :param possible_duplicates: messages that were, or may have been, sent and that the source gives
        out again: the target may have them twice.
    """

    received: int = 0
    sent: int = 0
    octets: int = 0
    acknowledged: int = 0
    batches: int = 0
    expired: int = 0
    not_transferred: int = 0
    transform_failures: int = 0
    refused: int = 0
    dead: dict[BridgeDeadReason, int] = field(default_factory=dict)
    reconnects: int = 0
    possible_duplicates: int = 0


@dataclass(slots=True)
class BalanceTerms:
    """The terms of a link's balance, in messages.

    :mod:`bridge.link.balance` has their meaning.

    :param lost: of AT_MOST_ONCE: those that no dead message queue has taken; part of the difference.
    :param possibly_twice: messages that the target may have twice; 0 where each is transferred once.
    :param since_ms: when it was begun, epoch milliseconds.
    """

    taken: int = 0
    out: int = 0
    dead: int = 0
    not_transferred: int = 0
    in_doubt: int = 0
    held: int = 0
    lost: int = 0
    possibly_twice: int = 0
    since_ms: int = 0

    @property
    def difference(self) -> int:
        """Messages that were taken and are nowhere, less those that are twice."""
        return self.taken - (
            self.out + self.dead + self.not_transferred + self.in_doubt + self.held
        )


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """A link at one moment.

    :param source: ``CFREF:KIND:queue:NAME``; KIND is D, P or S, and empty until connected.
    :param target: the same, or ``CFREF:KIND:AS_SOURCE``.
    :param since_ms: when it entered its state, epoch milliseconds, as all that end in ``_ms``.
    :param connected: whether it has its connections. One that is STALLED may have lost them.
    :param last_error: the last failure's text, "" without one.
    :param last_error_ms: when that was, 0 for never.
    :param attempt: how many attempts in a row have failed.
    :param next_try_ms: when the next one is made, 0 if none is due.
    :param in_flight: messages received and not yet acknowledged.
    :param doing: what it waits for.
    :param doing_since_ms: since when.
    :param last_transfer_ms: when the last message was moved, 0 where none was since it was loaded.
    :param lag_ms: the age of the oldest message that waits at the source, by its JMSTimestamp, in
        milliseconds, messages under way included; 0 when none waits, -1 when unknown.
    :param waiting: how many messages wait at the source, those under way included; -1 when unknown.
    :param received_rate: messages a second over the last minute.
    :param sent_rate: likewise.
    :param max_rate: messages a second that its file allows, 0 for any number.
    :param max_bytes_rate: octets of bodies, likewise.
    :param paced: whether a rate holds back messages that wait: it waits for it, or did a moment ago.
    :param paced_s: seconds that it has waited for its rates since it was made.
    :param balance: what became of the messages that it took, beyond the process; and
    :param difference: those of which that is not known.
    :param loaded_ms: when it was made: when its bridge was started, or its file read again. Its
        counters and rates begin there, and its balance may be older.
    :param once_by: what a transacted link relies on; None until it has connected, and of other
        links.
    :param transaction: the id of the transaction under way, "" without one.
    :param transaction_state: a word of :class:`bridge.xa.status.TransactionState`, or "".
    """

    bridge: str
    name: str
    state: LinkState
    enabled: bool
    transacted: bool
    quality_of_service: str
    source: str
    target: str
    since_ms: int
    last_error: str
    last_error_ms: int
    attempt: int
    next_try_ms: int
    in_flight: int
    doing: Doing
    doing_since_ms: int
    last_transfer_ms: int
    lag_ms: int
    received_rate: float
    sent_rate: float
    counters: LinkCounters
    balance: BalanceTerms = field(default_factory=BalanceTerms)
    difference: int = 0
    once_by: OnceBy | None = None
    transaction: str = ""
    transaction_state: str = ""
    waiting: int = -1
    max_rate: int = 0
    max_bytes_rate: int = 0
    paced: bool = False
    paced_s: float = 0.0
    connected: bool = False
    loaded_ms: int = 0
