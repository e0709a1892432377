"""The operator's message transformer of these tests.

It does to a message what its ``wish`` property says. Copied to ``<varhome>/lib/ext``.

Knows nothing of the tests; the gateway's process imports it.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.message import BodyType
from gateway.messaging.transformer import MessageTransformer


class Rewriting(MessageTransformer):
    """Acts on messages that have a ``wish``, and passes others on."""

    def transform(
        self,
        message: JMSMessage,
        read_only: bool,
        charset_name: str | None,
        source: str,
        target: str,
        properties: Mapping[str, str] | None,
    ) -> JMSMessage | None:
        if "wish" not in message.properties:
            return message
        direction = "in" if source == self.STOMP else "out"
        match message.properties["wish"], direction:
            case "refuse in", "in":
                raise ValueError("a secret of the operator's")
            case "refuse out", "out":
                raise ValueError("a secret of the operator's")
            case "nothing in", "in":
                return None
            case "map" | "spell", "in":
                made = self.create_message(BodyType.MAP)
                made.entries["answer"] = 42
                made.properties["wish"] = message.properties["wish"]
                return made
            case "spell", "out":
                text = self.create_message(BodyType.TEXT)
                text.text = f"answer={message.entries['answer']!r}"
                return text
            case "change", "in":
                message.text = message.text.upper()
            case "write", "out":
                message.text = "changed in place"
            case "copy", "out":
                copy = message.copy()
                copy.text = f"{message.text}, copied"
                copy.properties["seen"] = "yes"
                return copy
            case "tell", "in":
                given = None if properties is None else sorted(properties.items())
                message.properties["told"] = (
                    f"{read_only} {charset_name} {source} {target} {given} {message.body_type.name}"
                )
            case "tell out", "out":
                copy = message.copy()
                copy.text = f"{read_only} {charset_name} {source} {target} {properties}"
                return copy
        return message
