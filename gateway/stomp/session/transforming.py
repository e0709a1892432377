"""The operator's message transformer, as the STOMP bridge calls it.

Open MQ, "Message Transformation During Message Processing".
"""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.messaging.message import Message
from gateway.messaging.transformer import (
    BridgeType,
    MessageTransformer,
    TransformFailed,
    transformed,
)


class Transforming:
    """Both directions through one transformer; one for all connections."""

    _log = Logger()

    def __init__(self, transformer: MessageTransformer) -> None:
        self._transformer: Final = transformer

    def incoming(self, message: Message) -> Message:
        """Return what to send to the provider for a client's message.

        ``properties`` are its headers that are not JMS properties.

        :raises TransformFailed: the SEND fails.
        """
        return self._call(message, False, MessageTransformer.STOMP, MessageTransformer.SUN_MQ)

    def outgoing(self, message: Message) -> Message:
        """What to send to a client in place of a delivery.

        :raises TransformFailed: the delivery fails, and its connection with it.
        """
        return self._call(message, True, MessageTransformer.SUN_MQ, MessageTransformer.STOMP)

    def _call(self, message: Message, read_only: bool, source: str, target: str) -> Message:
        properties = (
            None if read_only or not message.headers.extras else dict(message.headers.extras)
        )
        try:
            result = transformed(
                self._transformer,
                BridgeType.STOMP,
                message,
                read_only=read_only,
                charset_name=None if read_only else "UTF-8",
                source=source,
                target=target,
                properties=properties,
            )
        except TransformFailed as failed:
            if failed.__cause__ is not None:
                self._log.failure(
                    "{failed}",
                    failure=Failure(failed.__cause__),  # type: ignore[no-untyped-call]
                    failed=failed,
                )
            raise
        return result.message
