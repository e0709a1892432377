"""Counts of the STOMP bridge, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the start of the process.

    ``connections`` alone is how many there are now.

    :ivar connections_total: connections accepted. :ivar frames_in: frames of clients. :ivar
        frames_out: frames to them.
    :ivar messages_in: messages of SEND frames. :ivar messages_out: MESSAGE frames. :ivar octets_in:
        octets read. :ivar octets_out: octets written. :ivar errors: ERROR frames. :ivar dropped:
        connections ended because the client was silent, or did not read. :ivar rate_waits: times
        that a connection was not read because its user had sent as much as it may. :ivar
        delivery_waits: times that nothing was delivered because its user had got as much as it may.
    """

    connections: int = 0
    connections_total: int = 0
    frames_in: int = 0
    frames_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    octets_in: int = 0
    octets_out: int = 0
    errors: int = 0
    dropped: int = 0
    rate_waits: int = 0
    delivery_waits: int = 0
