"""Temporary destinations as dynamic nodes (section 3.5.4).

Owns the nodes that the broker makes and names for a connection, and which name of ours stands for
which name of its. A user has a name at once, and the broker gives its own later: what is sent to the
node, what has it as ``reply-to``, and who receives from it wait until then.

A node is made by a link with a dynamic target, as JMS clients make it, which never sends. With its
lifetime policy ``delete-on-close`` it goes with the link, and so with the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import uuid4

import proton

from bridge.providers.amqp.links import Channel, Link
from bridge.providers.amqp.refusals import Refusal
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.message import Message

#: What the names begin with that stand for a node until the broker has named it.
PREFIX: Final = "stompgateway-"
#: ``delete-on-close``, a lifetime policy (section 3.5.10).
_DELETE_ON_CLOSE: Final = 0x2B


def capability(destination: Destination) -> str:
    """What tells the kind of a node, of a source's or a target's capabilities."""
    kind = "queue" if destination.kind is Kind.QUEUE else "topic"
    return f"temporary-{kind}" if destination.temporary else kind


class Temporaries:
    """The temporary destinations of all connections of one provider.

    Any of them may send to one, and knows it by the same name.
    """

    def __init__(self) -> None:
        #: The broker's name of each; "" until it has told it.
        self._names: dict[Destination, str] = {}
        self._ours: dict[str, Destination] = {}
        #: What is called when the broker has named a node, or it is gone. The same is called once.
        self._waiting: dict[Destination, dict[Callable[[], None], None]] = {}
        #: Why the broker has made none.
        self._refused: dict[Destination, str] = {}

    def make(self, kind: Kind) -> Destination:
        """Return a name for a node that the broker is asked for."""
        destination = Destination(kind, PREFIX + uuid4().hex, True)
        self._names[destination] = ""
        return destination

    def named(self, destination: Destination, name: str) -> None:
        """The broker has made the node."""
        self._names[destination] = name
        self._ours[name] = destination
        self._tell(destination)

    def refused(self, destination: Destination, told: Refusal) -> None:
        """The broker makes no such node, or has deleted it."""
        self._refused[destination] = f"the broker refuses to keep it: {told}"
        self._ours.pop(self._names.pop(destination, ""), None)
        self._tell(destination)

    def forget(self, destination: Destination) -> None:
        """Its connection has ended, or drops it."""
        self._refused.pop(destination, None)
        self._ours.pop(self._names.pop(destination, ""), None)
        self._tell(destination)

    def _tell(self, destination: Destination) -> None:
        for call in self._waiting.pop(destination, {}):
            call()

    def wait(self, message: Message, call: Callable[[], None]) -> bool:
        """Whether the broker has not yet named what the message mentions.

        :param call: called once when it has, or when that is gone.
        """
        headers = message.headers
        return any(self.wait_for(each, call) for each in (headers.destination, headers.reply_to))

    def wait_for(self, destination: Destination | None, call: Callable[[], None]) -> bool:
        """Whether the broker has not yet named a destination; see :meth:`wait`."""
        if destination is None or self._names.get(destination) != "":
            return False
        self._waiting.setdefault(destination, {})[call] = None
        return True

    def there(self, destination: Destination) -> Destination:
        """Return the destination by the broker's name; any other as it is.

        One that has no name yet is returned as it is, too.

        :raises InvalidDestination: it was made here, and is no longer there.
        """
        if not destination.temporary:
            return destination
        name = self._names.get(destination)
        if name is None and destination.name.startswith(PREFIX):
            reason = self._refused.get(destination, "the temporary destination is gone")
            raise InvalidDestination(destination, reason)
        return destination._replace(name=name) if name else destination

    def sent(self, message: Message) -> Message:
        """Return a message with the broker's names.

        :raises InvalidDestination: it is for a temporary destination that is no longer there. One
            whose ``reply-to`` is gone still goes.
        """
        headers = message.headers
        destination, reply_to = self.there(headers.destination), headers.reply_to
        if reply_to is not None:
            try:
                reply_to = self.there(reply_to)
            except InvalidDestination:
                # As with any reply-to of which the queue is deleted: who replies is told.
                reply_to = headers.reply_to
        if destination is headers.destination and reply_to is headers.reply_to:
            return message
        return message.replaced(headers.replace(destination=destination, reply_to=reply_to))

    def received(self, message: Message) -> Message:
        """Return a message with our names, for its user."""
        headers = message.headers
        if not self._ours:
            return message
        destination, reply_to = self._here(headers.destination), headers.reply_to
        if reply_to is not None:
            reply_to = self._here(reply_to)
        if destination is headers.destination and reply_to is headers.reply_to:
            return message
        return message.replaced(headers.replace(destination=destination, reply_to=reply_to))

    def _here(self, destination: Destination) -> Destination:
        ours = self._ours.get(destination.name)
        return destination if ours is None or ours.kind is not destination.kind else ours


class TemporaryNode(Link):
    """The link that a node was made by, and goes with.

    :param destination: what stands for it.
    """

    def __init__(self, channel: Channel, destination: Destination, known: Temporaries) -> None:
        # What was asked before goes first.
        channel.wire.produce()
        super().__init__(channel, channel.engine.sender(destination.name))
        self._destination = destination
        self._known = known
        self.engine.source.address = destination.name
        target = self.engine.target
        target.dynamic = True
        target.expiry_policy = proton.Terminus.EXPIRE_WITH_LINK
        lifetime = proton.Described(proton.ulong(_DELETE_ON_CLOSE), [])
        target.properties.put_object({proton.symbol("lifetime-policy"): lifetime})
        target.capabilities.put_object(proton.symbol(capability(destination)))
        self.attach()

    def _without_terminus(self) -> bool:
        return bool(self.engine.remote_target.type == proton.Terminus.UNSPECIFIED)

    def accepted(self) -> None:
        name = str(self.engine.remote_target.address or "")
        if name:
            self._known.named(self._destination, name)
        else:
            # Then it closes the link with the reason (section 2.6.3).
            self._attaching = self.wire.ask()

    def refused(self, told: Refusal) -> None:
        self._known.refused(self._destination, told)
