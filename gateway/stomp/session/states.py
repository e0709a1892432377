"""Which command is legal when.

The session obeys this table, the documentation shows it, and the tests walk it.

Everything that decides legality by state stands here. What a legal command needs besides (a known
subscription, the right transaction identifier) is its own business.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from gateway.stomp.refusals import CommandRefused, Refusal


class State(Enum):
    """What a connection is doing."""

    #: Nothing but CONNECT or STOMP is taken.
    OPENED = "opened"
    #: The credentials are being checked; frames that follow wait unread.
    CONNECTING = "connecting"
    #: Connected, and no transaction is open.
    CONNECTED = "connected"
    #: Connected, and a transaction is open.
    IN_TRANSACTION = "in transaction"
    #: DISCONNECT was taken; its RECEIPT is under way.
    DISCONNECTING = "disconnecting"
    #: Over: by DISCONNECT, by an ERROR, or because the socket is gone. Nothing is read any more.
    CLOSED = "closed"

    # It is looked for in a set at each read; that of Enum is in Python, and hashes a text.
    __hash__ = object.__hash__


class Command(Enum):
    """The commands of clients (STOMP 1.2, "Augmented BNF")."""

    CONNECT = "CONNECT"
    STOMP = "STOMP"
    SEND = "SEND"
    SUBSCRIBE = "SUBSCRIBE"
    UNSUBSCRIBE = "UNSUBSCRIBE"
    ACK = "ACK"
    NACK = "NACK"
    BEGIN = "BEGIN"
    COMMIT = "COMMIT"
    ABORT = "ABORT"
    DISCONNECT = "DISCONNECT"


_ANYWHERE: Final = (Command.SEND, Command.SUBSCRIBE, Command.UNSUBSCRIBE, Command.ACK, Command.NACK)

#: ``TRANSITIONS[state][command]`` is the state after the command was carried out; what is missing
#: is an ERROR, and then CLOSED.
TRANSITIONS: Final[Mapping[State, Mapping[Command, State]]] = {
    State.OPENED: {Command.CONNECT: State.CONNECTING, Command.STOMP: State.CONNECTING},
    State.CONNECTING: {},
    State.CONNECTED: {
        **dict.fromkeys(_ANYWHERE, State.CONNECTED),
        Command.BEGIN: State.IN_TRANSACTION,
        Command.DISCONNECT: State.DISCONNECTING,
    },
    State.IN_TRANSACTION: {
        **dict.fromkeys(_ANYWHERE, State.IN_TRANSACTION),
        Command.COMMIT: State.CONNECTED,
        Command.ABORT: State.CONNECTED,
        Command.DISCONNECT: State.DISCONNECTING,
    },
    State.DISCONNECTING: {},
    State.CLOSED: {},
}

#: What happens to a connection without a command of its client.
EVENTS: Final[Mapping[str, tuple[frozenset[State], State]]] = {
    "accepted by the provider": (frozenset({State.CONNECTING}), State.CONNECTED),
    "last RECEIPT written": (frozenset({State.DISCONNECTING}), State.CLOSED),
    "ERROR sent": (frozenset(State) - {State.CLOSED}, State.CLOSED),
    "socket lost": (frozenset(State), State.CLOSED),
}

#: By their names. Clients have no MESSAGE, and no ``sends``.
COMMANDS: Final = {command.value: command for command in Command}


def unknown(name: str) -> CommandRefused:
    """Return why a command that STOMP does not have is refused."""
    short = name[:40]
    return CommandRefused(
        f"unknown command '{short}'", refusal=Refusal.UNKNOWN_COMMAND, subject=short
    )


def refused(state: State, command: Command) -> CommandRefused:
    """Return why ``command`` is refused in ``state``."""
    refusal = None
    if state is State.OPENED:
        refusal = Refusal.NOT_CONNECTED
    elif command in (Command.CONNECT, Command.STOMP):
        refusal = Refusal.CONNECTED
    return CommandRefused(illegal(state, command), refusal=refusal)


def illegal(state: State, command: Command) -> str:
    """Say, for an ERROR, why ``command`` is not legal in ``state``."""
    name = command.value
    if state is State.OPENED:
        return f"{name} before CONNECT: the first frame must be CONNECT or STOMP"
    if command in (Command.CONNECT, Command.STOMP):
        return f"{name} on a connection that is already connected"
    if command is Command.BEGIN:
        return "BEGIN inside a transaction: one at a time, nested transactions are not supported"
    if command in (Command.COMMIT, Command.ABORT):
        return f"{name} without a transaction: none is open on this connection"
    return f"{name} on a connection that is {state.value}"
