"""A batch of changes, and those who wait for it or must undo something if it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gateway.broker.store.interface import Batch, StoreError
from gateway.messaging.message import Message

#: Told once when its batch is durable (None) or has failed.
Waiter: TypeAlias = Callable[[StoreError | None], None]


class Gathered:
    """What one commit is made of."""

    __slots__ = ("batch", "messages", "undo", "waiters")

    def __init__(self, number: int) -> None:
        self.batch = Batch(number)
        self.waiters: list[Waiter] = []
        #: The whole messages behind ``batch.inserts``, until they can be read from the store.
        self.messages: dict[int, Message] = {}
        #: Called with the batch if it fails, the last first, before its waiters are told.
        self.undo: list[Callable[[Batch, StoreError], None]] = []
