"""Message selectors: parsed once, asked often.

JMS 1.1, section 3.8; Jakarta Messaging 3.1, section 3.8.

The grammar is in :mod:`gateway.messaging.selector.grammar`, what operands and results mean in
:mod:`gateway.messaging.selector.evaluation`. No text is ever handed to Python's compiler. Of a LIKE
pattern a regular expression is made that cannot backtrack. Reading and matching take time in
proportion to what is read, the size of a selector is bounded, and its cost is known before it is
used.

A selector sees the properties of a message and its header fields JMSDeliveryMode, JMSPriority,
JMSMessageID, JMSTimestamp, JMSCorrelationID and JMSType, and JMSXUserID. How often a message was
delivered is no part of it, so JMSXDeliveryCount is null.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.messaging.errors import SelectorTooCostly
from gateway.messaging.selector.evaluation import Condition, condition, cost
from gateway.messaging.selector.grammar import prepare, read
from gateway.messaging.selector.names import is_property_name

if TYPE_CHECKING:
    from gateway.messaging.message import Message

__all__ = ["Selector", "is_property_name", "parse", "prepare"]

#: A selector that costs no more is cheap: its caller may look at the clock once for many
#: messages.
_CHEAP: Final = 20
#: How many messages a cheap selector may be asked about between two looks at the clock.
_MANY: Final = 32


class Selector:
    """A condition on messages, made by :func:`parse`.

    Never changed, equal to every other of the same text.
    """

    __slots__ = ("_condition", "cost", "stride", "text")

    def __init__(self, text: str, condition: Condition, cost: int) -> None:
        #: As it was given to :func:`parse`.
        self.text: Final = text
        #: Microseconds that a message with long properties may take, about.
        self.cost: Final = cost
        #: About how many messages it may be asked between two looks at the clock.
        self.stride: Final = _MANY if cost <= _CHEAP else 1
        self._condition: Final = condition

    def matches(self, message: Message) -> bool:
        """Whether the condition is true of this message. Never raises.

        False and unknown are both no.
        """
        return self._condition(message.headers.properties, message) is True

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Selector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


@lru_cache(maxsize=256)
def parse(text: str, most: int = -1, setting: str = "") -> Selector:
    """The selector that this text is; the last 256 are remembered.

    :param most: what it may cost; negative is no bound. :param setting: where that stands, for the
        error.
    :raises ~gateway.messaging.errors.InvalidSelector: the text is no selector, with the column and
        what was expected there; or, as :class:`~gateway.messaging.errors.SelectorTooCostly`, it
        costs too much. A blank text is invalid, too: no selector at all is said by not calling
        this.
    """
    tree = read(text)
    price = cost(tree)
    if 0 <= most < price:
        remedy = "write fewer conditions, and fewer LIKE patterns with _ between other characters, or have the operator raise that setting"
        raise SelectorTooCostly(text, price, setting, most, remedy)
    return Selector(text, condition(tree), price)
