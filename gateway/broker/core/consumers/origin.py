"""Who a consumer or sender is, in the words of journal and log."""

from __future__ import annotations


class Origin:
    """The connection of a step, as journal and log name it; its traffic.

    :param address: the client's; "" for a user inside this process.
    """

    __slots__ = ("address", "delivered", "number", "sent", "user")

    def __init__(self, number: int, user: str, address: str) -> None:
        self.number = number
        self.user = user
        self.address = address
        #: Messages the connection has sent, and those delivered to it.
        self.sent = 0
        self.delivered = 0
