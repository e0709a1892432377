r"""What a frame is made of: the grammar, its commands and its limits.

It also says where this gateway is stricter or milder than the grammar.

Parses nothing itself. The parser enforces the limits while octets arrive, not when a frame is whole.

The grammar of STOMP 1.2 ("Augmented BNF"), which 1.1 and 1.0 differ from in small ways only::

    frame-stream   = 1*frame
    frame          = command EOL *( header EOL ) EOL *OCTET NULL *( EOL )
    header         = header-name ":" header-value
    header-name    = 1*<any OCTET except CR or LF or ":">
    header-value   = *<any OCTET except CR or LF or ":">
    EOL            = [CR] LF

Milder, because clients in use need it:

- Between frames any CR, LF and NUL octets are skipped, in every version. LF and CR LF are heart-beats; stray NULs are skipped as RabbitMQ does.
- One CR directly before the LF of a line belongs to the end of the line in every version, not in 1.2 only (as in RabbitMQ); so a value cannot
  end in CR in 1.0 and 1.1. Any other raw CR is part of the text.
- A header is split at its first colon; raw colons in its value are kept.
- Header values of CONNECT, STOMP and CONNECTED are not unescaped (STOMP 1.2, "Value Encoding"; 1.1 clients rely on it as well).
- 1.0: spaces and tabs around names and values are removed (1.0 has no rule, its peers do so); any frame may have a body. A CONNECT is read before
  its version is known: it is trimmed only if its ``accept-version`` offers neither 1.1 nor 1.2, which forbid trimming.
- Ends of lines may stand between the blank line and the NUL of a frame that has no body, in every version: ActiveMQ's clients send one.
- Headers are UTF-8 in 1.0, too, which names no encoding.
- ``content-length`` may have leading zeros, up to 18 digits in all.

Stricter, because nothing good sends it:

- NUL in the command or in a header: the blank line is missing, and reading on would make one frame of two.
- A header without a name; bad UTF-8; in 1.1 and 1.2 a body on another frame than SEND, MESSAGE and ERROR ("Body").
- ``content-length`` that is no plain decimal number, and a body that is not followed by NUL where it says.
- The first of repeated headers counts (STOMP 1.2, "Repeated Header Entries"), the ``content-length`` included; the others must still be well formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Frames of clients, every version.
CLIENT_COMMANDS: Final = frozenset(
    (
        "ABORT",
        "ACK",
        "BEGIN",
        "COMMIT",
        "CONNECT",
        "DISCONNECT",
        "NACK",
        "SEND",
        "STOMP",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
    )
)
#: Frames of servers, every version.
SERVER_COMMANDS: Final = frozenset(("CONNECTED", "ERROR", "MESSAGE", "RECEIPT"))
#: Every command there is. Whether it may come from this side and in this version is the session's
#: to say.
COMMANDS: Final = CLIENT_COMMANDS | SERVER_COMMANDS
#: Frames that may have a body in 1.1 and 1.2.
BODY_COMMANDS: Final = frozenset(("SEND", "MESSAGE", "ERROR"))
#: Frames that settle the version. Their headers are never escaped, in any version.
CONNECTING_COMMANDS: Final = frozenset(("CONNECT", "STOMP", "CONNECTED"))
#: Carrying these out may take long, since they may have a selector to read.
LONG_COMMANDS: Final = frozenset(("SUBSCRIBE",))
#: What 1.0 takes from both ends of names and values.
PADDING: Final = " \t"
#: The longest command.
LONGEST_COMMAND: Final = max(len(command) for command in COMMANDS)

#: Fewer octets than these are no frame.
SHORTEST_FRAME: Final = len(b"ACK\n\n\0")

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest frame that is accepted, part by part.

    Exactly the limit is allowed; one more is a ``ProtocolError``.

    The defaults: header lines as ActiveMQ and Open MQ have them, command and header count as
    RabbitMQ has them, bodies as Open MQ's ``imq.message.max_size``.

    :param command_length: octets of the command line, without its end of line.
    :param header_line: octets of one header line as sent (escapes count as sent), without its end
        of line.
    :param header_count: headers of different names. Repeated ones are not counted here: they are
        dropped as they are read.
    :param header_lines: header lines, repeated ones included.
    :param header_block: octets of the command line, the header lines and the blank line after them,
        ends of lines included.
    :param body: octets of the body.
    :param frame: octets from the first of the command to the NUL that ends the frame, inclusive.
    :raises ValueError: a limit is below 1 (`body`, `header_count` and `header_lines`: below 0).
    """

    command_length: int = 32
    header_line: int = 10 * _KIB
    header_count: int = 100
    header_lines: int = 1000
    header_block: int = 64 * _KIB
    body: int = 70 * _MIB
    frame: int = 70 * _MIB + 64 * _KIB

    def __post_init__(self) -> None:
        for name, value, least in (
            ("command_length", self.command_length, 1),
            ("header_line", self.header_line, 1),
            ("header_count", self.header_count, 0),
            ("header_lines", self.header_lines, 0),
            ("header_block", self.header_block, 1),
            ("body", self.body, 0),
            ("frame", self.frame, 1),
        ):
            if value < least:
                raise ValueError(f"limit {name} is {value}, expected at least {least}")


@dataclass(frozen=True, slots=True)
class Leniency:
    """What some servers take that is no STOMP, for clients that rely on it.

    :param any_header: a header line without a colon is a header with an empty value.
    :param any_body: every frame may have a body, also in 1.1 and 1.2.
    :param counts_messages_only: ``content-length`` counts on SEND and MESSAGE only. Other frames
        end at their first NUL.
    :param drops_rest: what follows the bytes that ``content-length`` counts is dropped, up to NUL.
    :param any_escape: undefined escapes stay as they are, and values have escapes in 1.0, too.
    :param any_command: an unknown command makes a frame, which the session is to refuse.
    :param nul_in_command: NUL in a command line is an error once the headers behind it have ended.
    """

    any_header: bool = False
    any_body: bool = False
    counts_messages_only: bool = False
    drops_rest: bool = False
    any_escape: bool = False
    any_command: bool = False
    nul_in_command: bool = False


#: Nothing beyond what the head of this module says.
STRICT: Final = Leniency()
#: Frames whose ``content-length`` counts for servers that look at it only there.
COUNTED_COMMANDS: Final = frozenset(("SEND", "MESSAGE"))
