"""How much one frame may be. Owns the numbers; the parser enforces them while octets arrive, not
when a frame is whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest frame that is accepted, part by part. Exactly the limit is allowed; one more is a
    ``ProtocolError``.

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


#: What a peer that has not yet logged in may send: 64 KiB a frame in all.
BEFORE_CONNECT: Final = Limits(header_block=64 * _KIB, body=64 * _KIB, frame=64 * _KIB)
