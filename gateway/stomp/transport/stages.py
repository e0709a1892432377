"""Where a connection is between its opening and its end, for how long, and why it is not read."""

from __future__ import annotations

from enum import Enum, IntFlag
from typing import Final

#: Milliseconds for an ending to have its say, for the client to close then, and for the kernel to
#: do so.
ENDING_MS: Final = 5000
LINGER_MS: Final = 2000
ABORT_MS: Final = 1000


class Pause(IntFlag):
    """Why nothing is given to the session, and so nothing is read."""

    #: The session asked for it.
    SESSION = 1
    #: This turn has read enough.
    SLICE = 2
    #: The credentials are being checked.
    CONNECTING = 4
    #: There is no memory for more.
    MEMORY = 8


class Stage(Enum):
    """Where a connection is between its opening and its end; each but ``RUNNING`` has a time
    limit.
    """

    OPENED = "opened"
    RUNNING = "running"
    #: The session has its last words under way.
    ENDING = "ending"
    #: All has been said, and is not yet in the kernel.
    FINISHING = "finishing"
    #: Nothing more is sent; what the client still sends is read and dropped.
    LINGERING = "lingering"
    #: Closed, as far as it is for this side to do.
    CLOSING = "closing"
