"""A message transformer: a MapMessage as text, ``name=value`` a line."""

from gateway.messaging.message import BodyType
from gateway.messaging.transformer import MessageTransformer


class SpelledOut(MessageTransformer):
    def transform(self, message, read_only, charset_name, source, target, properties):
        if target != self.STOMP or message.body_type is not BodyType.MAP:
            return message
        text = self.create_message(BodyType.TEXT)
        text.text = "".join(f"{name}={message.entries[name]}\n" for name in message.entries)
        return text
