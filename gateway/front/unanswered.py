"""What a session has asked of its broker, and the broker has not answered.

Another connection is asked it again, in the same order, once the broker is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Done
from gateway.messaging.scheduled import DELAY, delay_left


class Asked:
    """A completion, a commit or a rollback.

    :param done: who is told; None: only this session wants to know.
    """

    __slots__ = ("answer", "done", "error", "judged", "what")

    def __init__(self, what: str, done: Done | None) -> None:
        self.what = what
        self.done = done
        #: What the broker has said: an error, or None for success; nothing yet.
        self.answer: tuple[MessagingError | None] | None = None
        #: It is known whether an answer was the beginning of a loss.
        self.judged = False
        #: What failed before it, and was told to this session alone.
        self.error: MessagingError | None = None


class Sent:
    """Messages that were sent.

    :param messages: none where the broker is not waited for: then only that there were some counts.
    :param at_s: when, in seconds of the session's clock.
    """

    __slots__ = ("_at_s", "_messages")

    def __init__(self, messages: Sequence[Message], at_s: float) -> None:
        self._messages = messages
        self._at_s = at_s

    def again(self, now_s: float) -> Sequence[Message]:
        """Return them for sending now.

        A message that is for later is due when it was to be: the time since it was sent counts.

        :param now_s: seconds of the same clock.
        """
        waited_ms = int((now_s - self._at_s) * 1000)
        for message in self._messages:
            if message.headers.scheduled:
                properties = message.headers.properties
                left_ms = delay_left(properties, waited_ms)
                if left_ms is not None:
                    properties = {**properties, DELAY: str(left_ms)}
                    message.headers = message.headers.replace(properties=properties)
        return self._messages


class Settled:
    """Deliveries were settled."""


SETTLED: Final = Settled()
Entry: TypeAlias = Sent | Asked | Settled
