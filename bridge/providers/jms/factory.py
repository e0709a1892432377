"""What is known of a JMS connection factory before anybody connects.

Owns what a bridge's configuration says of the factory, and the table of vendors. JNDI and
connections are the provider's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.messaging.destination import Destination, Queue


class Vendor(NamedTuple):
    """Facts about a provider that JMS has no words for.

    :param prefix: of the classes of its client. :param individual: its acknowledge mode for
        acknowledgement one by one.
    :param dead_queue: where it puts dead messages by default.
    """

    prefix: str
    individual: int
    dead_queue: str


#: The first prefix that fits counts.
VENDORS: Final = (
    Vendor("org.apache.activemq.artemis.", 101, "DLQ"),
    Vendor("org.apache.activemq.", 4, "ActiveMQ.DLQ"),
    Vendor("org.hornetq.", 101, "DLQ"),
)


def vendor_of(class_name: str) -> Vendor | None:
    """The vendor of a class of a JMS client; None if it is unknown."""
    return next((vendor for vendor in VENDORS if class_name.startswith(vendor.prefix)), None)


@dataclass(frozen=True, slots=True)
class JMSFactory:
    """A ``connection-factory`` of a bridge that has a ``lookup-name``.

    :param lookup_name: its name in JNDI.
    :param environment: its properties, JNDI's environment.
    :param class_path: its own, searched before that of ``imq.jms.classpath``.
    :param java_options: of its Java process, in place of those of ``imq.jms.jvmOptions``; None
        keeps those.
    :param process: factories with different names never share a Java process.
    :param individual_acknowledge: the provider's acknowledge mode for acknowledgement one by one;
        None is the vendor's.
    :param dead_queue: the name of the queue for dead messages; None is the vendor's, "" means no
        queue.
    :param lookup_timeout_s: seconds for starting Java and for looking up a name.
    :param connect_timeout_s: seconds for connecting.
    :param send_timeout_s: seconds for each thing that a session is asked.
    :param close_timeout_s: seconds for closing a connection.
    """

    lookup_name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    class_path: str = ""
    java_options: tuple[str, ...] | None = None
    process: str = ""
    individual_acknowledge: int | None = None
    dead_queue: str | None = None
    lookup_timeout_s: float = 30.0
    connect_timeout_s: float = 30.0
    send_timeout_s: float = 30.0
    close_timeout_s: float = 10.0

    def individual_mode(self, class_name: str) -> int | None:
        """The acknowledge mode for acknowledgement one by one, if there is one.

        :param class_name: of the connection factory.
        """
        if self.individual_acknowledge is not None:
            return self.individual_acknowledge
        vendor = vendor_of(class_name)
        return None if vendor is None else vendor.individual

    def dead_destination(self, class_name: str) -> Destination | None:
        """The queue for dead messages, if there is one.

        :param class_name: of the factory.
        """
        vendor, name = vendor_of(class_name), self.dead_queue
        if name is None and vendor is not None:
            name = vendor.dead_queue
        return Queue(name) if name else None
