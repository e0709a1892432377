"""ActiveMQ's own client, for what no user of the seam can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from bridge.providers.jms import jvm
from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Destination, Kind

#: Octets that no body has: as a number it is of more octets than follow, as a type it is none, and it is not compressed.
DAMAGED: Final = b"\x7f\xff\xff\xf0\x99 no body"
#: How to make a message that cannot be read, by what is damaged: the method that makes it, and whether it says that it is compressed.
UNREADABLE: Final = {
    "map": ("createMapMessage", False),
    "stream": ("createStreamMessage", False),
    "object": ("createObjectMessage", True),
    "text": ("createTextMessage", True),
    "properties": ("createTextMessage", False),
}


def natively(there: JMSProvider, work: Callable[[Any], Any]) -> Any:
    """Do something with a session of ActiveMQ's own client, on a thread that may block; ``there`` has been connected."""
    native = there._found.getClass().getDeclaredField("factory")
    native.setAccessible(True)
    theirs = native.get(there._found).createConnection()
    theirs.start()
    try:
        return work(theirs.createSession(False, 1))
    finally:
        theirs.close()
        jvm.detach()


def send(there: JMSProvider, destination: Destination, bodies: Sequence[str]) -> list[str]:
    """Send a text message for each, and for a name of :data:`UNREADABLE` one that cannot be read. :returns: their ids. It may block."""

    def sending(session: Any) -> list[str]:
        create = session.createTopic if destination.kind is Kind.TOPIC else session.createQueue
        producer = session.createProducer(create(destination.name))
        ids = []
        for body in bodies:
            message = _damaged(session, body) if body in UNREADABLE else session.createTextMessage(body)
            producer.send(message)
            ids.append(str(message.getJMSMessageID()))
        return ids

    found: list[str] = natively(there, sending)
    return found


def _damaged(session: Any, kind: str) -> Any:
    import jpype

    make, compressed = UNREADABLE[kind]
    message = getattr(session, make)()
    message.setStringProperty("colour", "red")
    message.setJMSCorrelationID("c-1")
    loader = message.getClass().getClassLoader()
    sequence = jpype.JClass(loader.loadClass("org.apache.activemq.util.ByteSequence"))
    octets = sequence(jpype.JArray(jpype.JByte)(DAMAGED))
    if kind == "properties":
        message.clearProperties()
        message.setMarshalledProperties(octets)
    else:
        message.setContent(octets)
        message.setCompressed(compressed)
    return message
