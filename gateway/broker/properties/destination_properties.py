"""Properties of a destination: its limits, and what happens at them.

Owns names, defaults and text form of the properties (Open MQ's names); enforcing them is the
destination's business.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Final

from gateway.messaging.redelivery import RedeliveryPolicy

_DEFAULT_POLICY: Final = RedeliveryPolicy()


class LimitBehavior(Enum):
    """What a destination does with a message that would exceed a limit.

    The limits are ``maxNumMsgs`` and ``maxTotalMsgBytes``.
    """

    #: Take it, and hold the sender back until there is room.
    FLOW_CONTROL = "FLOW_CONTROL"
    #: Make room by giving up the oldest message.
    REMOVE_OLDEST = "REMOVE_OLDEST"
    #: Make room by giving up the oldest message of the lowest priority.
    REMOVE_LOW_PRIORITY = "REMOVE_LOW_PRIORITY"
    #: Refuse it.
    REJECT_NEWEST = "REJECT_NEWEST"


@dataclass(frozen=True, slots=True)
class DestinationProperties:
    """Properties of one destination; -1 is no limit.

    :param max_num_msgs: messages not yet acknowledged (``maxNumMsgs``). On a topic a message counts
        once for each subscription that has yet to take it.
    :param max_total_msg_bytes: octets of those, headers and bodies (``maxTotalMsgBytes``).
    :param max_bytes_per_msg: octets of one message (``maxBytesPerMsg``).
    :param limit_behavior: at the first two limits (``limitBehavior``).
    :param max_num_active_consumers: consumers of a queue at one time (``maxNumActiveConsumers``).
    :param use_dmq: whether dead messages go to the dead message queue (``useDMQ``).
    :param dead_letter_queue: the queue they go to (``deadLetterQueue``); "" is ``mq.sys.dmq``, and to
        one that ends with a dot the destination's name is added.
    :param is_dmq: it is a dead message queue itself: what dies in it is gone (``isDMQ``).
    :param address: of a queue: what is sent to the queue of this name comes to one of those that
        have this address, and they take turns (``address``); "" for none.
    :param last_value_key: of a queue: the property by whose value its messages have keys; of those that
        wait only the newest of each key is kept (``lastValueKey``); "" keeps all.
    :param redelivery: for deliveries that a consumer rejects.
    """

    max_num_msgs: int = -1
    max_total_msg_bytes: int = -1
    max_bytes_per_msg: int = -1
    limit_behavior: LimitBehavior = LimitBehavior.REJECT_NEWEST
    max_num_active_consumers: int = -1
    use_dmq: bool = True
    dead_letter_queue: str = ""
    is_dmq: bool = False
    address: str = ""
    last_value_key: str = ""
    redelivery: RedeliveryPolicy = _DEFAULT_POLICY

    @property
    def bounded(self) -> bool:
        """Whether the number or the octets of waiting messages are limited."""
        return self.max_num_msgs >= 0 or self.max_total_msg_bytes >= 0

    @property
    def bounds(self) -> str:
        """Those limits, for the log."""
        limits = (("maxNumMsgs", self.max_num_msgs), ("maxTotalMsgBytes", self.max_total_msg_bytes))
        return ", ".join(f"{name} is {value}" for name, value in limits if value >= 0)

    @property
    def own_text(self) -> str:
        """What the store keeps of these where use has made the destination.

        All else is as the settings have it for such ones.
        """
        return f"{_ADDRESS}{self.address}" if self.address else ""

    def to_text(self) -> str:
        """``name=value`` lines, for the store."""
        lines = []
        for name, attribute in _NAMES.items():
            value = getattr(self, attribute)
            if not value and attribute in _LATER:
                continue
            if isinstance(value, bool):
                value = str(value).lower()
            lines.append(f"{name}={value.value if isinstance(value, Enum) else value}")
        lines += [
            f"redelivery.{field.name}={getattr(self.redelivery, field.name)}"
            for field in fields(RedeliveryPolicy)
        ]
        return "\n".join(lines)

    @classmethod
    def from_text(cls, text: str) -> DestinationProperties:
        """The inverse of :meth:`to_text`; absent names keep their defaults.

        :raises ValueError: for a line that is no property.
        """
        default = cls()
        changes: dict[str, object] = {}
        policy: dict[str, object] = {}
        for line in text.splitlines():
            name, _, value = line.partition("=")
            try:
                if name in _NAMES:
                    changes[_NAMES[name]] = _parsed(getattr(default, _NAMES[name]), value)
                else:
                    attribute = _POLICY_NAMES[name]
                    policy[attribute] = _parsed(getattr(_DEFAULT_POLICY, attribute), value)
            except (KeyError, ValueError) as error:
                raise ValueError(f"'{line}' is no property of a destination") from error
        if policy:
            changes["redelivery"] = replace(RedeliveryPolicy(), **policy)  # type: ignore[arg-type]
        return replace(default, **changes)  # type: ignore[arg-type]


_NAMES = {
    "maxNumMsgs": "max_num_msgs",
    "maxTotalMsgBytes": "max_total_msg_bytes",
    "maxBytesPerMsg": "max_bytes_per_msg",
    "limitBehavior": "limit_behavior",
    "maxNumActiveConsumers": "max_num_active_consumers",
    "useDMQ": "use_dmq",
    "deadLetterQueue": "dead_letter_queue",
    "isDMQ": "is_dmq",
    "address": "address",
    "lastValueKey": "last_value_key",
}
#: Earlier versions do not know these: they are written only where they say something.
_LATER: Final = ("dead_letter_queue", "is_dmq", "address", "last_value_key")
_POLICY_NAMES = {f"redelivery.{field.name}": field.name for field in fields(RedeliveryPolicy)}
#: Begins the line of :attr:`DestinationProperties.own_text`. No other property has this name.
_ADDRESS: Final = "madeFor="
_BOOLEANS = {"true": True, "false": False}


def address_from(own_text: str) -> str:
    """Return the address in :attr:`DestinationProperties.own_text`.

    "" where the text is not of a destination that use has made, or has no address.
    """
    return own_text.removeprefix(_ADDRESS) if own_text.startswith(_ADDRESS) else ""


def _parsed(default: object, text: str) -> object:
    """Parse a value of the type that its default has."""
    return _BOOLEANS[text.lower()] if isinstance(default, bool) else type(default)(text)  # type: ignore[call-arg]
