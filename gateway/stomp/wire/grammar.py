r"""What a frame is made of: the grammar, its commands, and where this gateway is stricter or milder than it. Parses nothing itself.

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
- Headers are UTF-8 in 1.0, too, which names no encoding.
- ``content-length`` may have leading zeros, up to 18 digits in all.

Stricter, because nothing good sends it:

- NUL in the command or in a header: the blank line is missing, and reading on would make one frame of two.
- A header without a name; bad UTF-8; in 1.1 and 1.2 a body on another frame than SEND, MESSAGE and ERROR ("Body").
- ``content-length`` that is no plain decimal number, and a body that is not followed by NUL where it says.
- The first of repeated headers counts (STOMP 1.2, "Repeated Header Entries"), the ``content-length`` included; the others must still be well formed.
"""

from __future__ import annotations

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
