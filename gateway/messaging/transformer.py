"""Message transformers: the operator's classes, called for each message.

Owns what users subclass, and the one way in which both bridges call it. Finding a class by its
name, and what a link does when a transformer fails, sends a message elsewhere or drops it, belong
to others.

An author ports a Java class by these names:

================================================== =====================================================
``com.sun.messaging.bridge``                       here
================================================== =====================================================
``transform(message, readOnly, charsetName, …)``   :meth:`MessageTransformer.transform`
``createJMSMessage(type)``                         :meth:`MessageTransformer.create_message`
``createQueue(name)``, ``createTopic(name)``       :meth:`MessageTransformer.create_queue`, ``create_topic``
``branchTo(destination)``                          :meth:`MessageTransformer.branch_to`
``noTransfer()``                                   :meth:`MessageTransformer.no_transfer`
``init(session, bridgeType)``                      :meth:`MessageTransformer.init`
``getBranchTo()``, ``isNoTransfer()``              :meth:`MessageTransformer.get_branch_to`, ``is_no_transfer``
``SUN_MQ``, ``STOMP``                              the same
================================================== =====================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import MessagingError
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.message import BodyType, Message


class BridgeType(Enum):
    """Which kind of bridge calls a transformer."""

    STOMP = "STOMP"
    JMS = "JMS"


class UnsupportedOperation(MessagingError):
    """What the bridge does not have (``UnsupportedOperationException``).

    :param operation: the method that was called.
    """

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"{operation} can be called only by a transformer of a JMS bridge, and from its transform()"
        )
        self.operation = operation


class TransformFailed(MessagingError):
    """A transformer raised, or did not return a message.

    Its ``__cause__`` is what it raised, if it did; that is for the log.

    :param transformer: the name of its class.
    :param source: where the message came from.
    :param target: where it was going.
    :param reason: what the transformer did, without the text of what it raised.
    """

    def __init__(self, transformer: str, source: str, target: str, reason: str) -> None:
        super().__init__(
            f"the message transformer {transformer} failed on a message from {source} to {target}: {reason}"
        )
        self.transformer = transformer
        self.source = source
        self.target = target
        self.reason = reason


class MessageTransformer(ABC):
    """What users subclass: implement :meth:`transform`.

    The constructor takes no arguments.

    There is one instance for each bridge, link target or dead message queue that names the class.
    It is called on the thread that serves all connections, so it computes and returns: it must not
    wait for anything.
    """

    #: As ``source`` or ``target``: a STOMP client.
    STOMP: Final = "STOMP"
    #: As ``source`` or ``target``: the broker behind the gateway.
    SUN_MQ: Final = "SUN_MQ"

    # Of the class, so that a subclass's constructor need not call this one's.
    _bridge_type: BridgeType | None = None
    _branch_to: Destination | str | None = None
    _no_transfer: bool = False

    @abstractmethod
    def transform(
        self,
        message: JMSMessage,
        read_only: bool,
        charset_name: str | None,
        source: str,
        target: str,
        properties: Mapping[str, str] | None,
    ) -> JMSMessage | None:
        """Give the message to use in place of ``message``.

        It may be ``message`` itself.

        :param message: the message on its way. If ``read_only``, change a ``copy()`` of it or a
            message of :meth:`create_message`.
        :param read_only: False only for a message from a STOMP client.
        :param charset_name: ``UTF-8`` for a message from a STOMP client, else None.
        :param source: :attr:`STOMP` for a client's SEND, :attr:`SUN_MQ` for a delivery to a STOMP
            client; on a link and at a dead message queue the name of the provider the message comes
            from.
        :param target: the other side, likewise.
        :param properties: for a client's SEND its headers that are not JMS properties, None if
            there are none; on a link the ``property`` elements of its target or of the dead message
            queue, and on a link ``JMS_SUN_JMSBRIDGE_NAME``; else None.
        :returns: the message to send. None is a failure, as is anything raised.

        Unlike in Java, it makes no difference whether the message returned can still be written.
        """

    def create_message(self, body_type: BodyType) -> JMSMessage:
        """A new, empty message that can be written (``createJMSMessage``).

        :param body_type: ``BodyType.MESSAGE``, ``TEXT``, ``BYTES``, ``MAP``, ``STREAM`` or
            ``OBJECT``.
        """
        return JMSMessage(body_type)

    def create_queue(self, name: str) -> Destination:
        """The queue of that name at the target (``createQueue``).

        :meth:`branch_to` and ``reply_to`` take it.
        """
        return Queue(name)

    def create_topic(self, name: str) -> Destination:
        """The topic of that name at the target (``createTopic``)."""
        return Topic(name)

    def branch_to(self, destination: Destination | str) -> None:
        """Send this message there, not to the target's own (``branchTo``).

        :param destination: a destination, or the ``ref-name`` of a ``destination`` element in the
            bridge's XML file.
        :raises UnsupportedOperation: the bridge is no JMS bridge.
        :raises TypeError: it is neither.
        """
        if self._bridge_type is not BridgeType.JMS:
            raise UnsupportedOperation("branch_to")
        if not isinstance(destination, Destination | str) or not destination:
            raise TypeError(
                f"branch_to takes a destination or the ref-name of one, not {destination!r}"
            )
        self._branch_to = destination

    def no_transfer(self) -> None:
        """Consume this message and send it nowhere (``noTransfer``).

        :meth:`transform` must return a message anyway.

        :raises UnsupportedOperation: the bridge is no JMS bridge.
        """
        if self._bridge_type is not BridgeType.JMS:
            raise UnsupportedOperation("no_transfer")
        self._no_transfer = True

    def init(self, bridge_type: BridgeType) -> None:
        """Called by the bridge before each message.

        Forgets what was asked for the one before.
        """
        self._bridge_type = bridge_type
        self._branch_to = None
        self._no_transfer = False

    def get_branch_to(self) -> Destination | str | None:
        """What :meth:`branch_to` was given for this message (``getBranchTo``).

        None when it was not called.
        """
        return self._branch_to

    def is_no_transfer(self) -> bool:
        """Whether :meth:`no_transfer` was called for it (``isNoTransfer``)."""
        return self._no_transfer


class Transformed(NamedTuple):
    """What a transformer made of a message.

    :param message: the message to send; the one given, if the transformer did not change it.
    :param branch_to: where to instead of the target's destination; a ``str`` is a ``ref-name``.
    :param no_transfer: send it nowhere and consume it.
    """

    message: Message
    branch_to: Destination | str | None = None
    no_transfer: bool = False


def transformed(
    transformer: MessageTransformer,
    bridge_type: BridgeType,
    message: Message,
    *,
    read_only: bool,
    charset_name: str | None,
    source: str,
    target: str,
    properties: Mapping[str, str] | None,
) -> Transformed:
    """Call a transformer for a message.

    The arguments are those of :meth:`MessageTransformer.transform`.

    ``message`` itself is never changed, whatever the transformer does.

    :raises TransformFailed: whatever was raised is its ``__cause__``.
    """
    name = f"{type(transformer).__module__}.{type(transformer).__qualname__}"
    try:
        transformer.init(bridge_type)
        given = None if properties is None else dict(properties)
        result = transformer.transform(
            JMSMessage.of(message, read_only=read_only),
            read_only,
            charset_name,
            source,
            target,
            given,
        )
        if isinstance(result, JMSMessage):
            return Transformed(
                result.to_message(message),
                transformer.get_branch_to(),
                transformer.is_no_transfer(),
            )
    except Exception as error:
        # The class is the operator's own: it may raise anything, and whatever it is must not harm
        # the bridge.
        raise TransformFailed(name, source, target, f"it raised {type(error).__name__}") from error
    raise TransformFailed(
        name,
        source,
        target,
        f"it returned {'None' if result is None else type(result).__name__}, not a message",
    )
