"""Message selectors (JMS 1.1, section 3.8; Jakarta Messaging 3.1, section 3.8): parsed once, asked often.

The grammar is in :mod:`gateway.messaging.selector_grammar`, what operands and results mean in :mod:`gateway.messaging.selector_evaluation`.
No text is ever handed to Python's compiler or made into a regular expression, reading and matching take time in proportion to
what is read, and the size of a selector is bounded.

A selector sees the properties of a message and its header fields JMSDeliveryMode, JMSPriority, JMSMessageID, JMSTimestamp, JMSCorrelationID
and JMSType, and JMSXUserID. How often a message was delivered is no part of it, so JMSXDeliveryCount is null.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.messaging.selector_evaluation import Condition, condition
from gateway.messaging.selector_grammar import prepare, read
from gateway.messaging.selector_names import is_property_name

if TYPE_CHECKING:
    from gateway.messaging.message import Message

__all__ = ["Selector", "is_property_name", "parse", "prepare"]


class Selector:
    """A condition on messages; made by :func:`parse`, never changed, equal to every other of the same text."""

    __slots__ = ("_condition", "text")

    def __init__(self, text: str, condition: Condition) -> None:
        #: As it was given to :func:`parse`.
        self.text: Final = text
        self._condition: Final = condition

    def matches(self, message: Message) -> bool:
        """Whether the condition is true of this message; false and unknown are both no. Never raises."""
        return self._condition(message.headers.properties, message) is True

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Selector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


@lru_cache(maxsize=256)
def parse(text: str) -> Selector:
    """The selector that this text is; the last 256 are remembered.

    :raises ~gateway.messaging.errors.InvalidSelector: the text is no selector, with the column and what was expected there. A blank text
        is none either: whoever has one means that there is no selector, and does not call this.
    """
    return Selector(text, condition(read(text)))
