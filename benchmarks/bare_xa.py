"""What a provider does by itself of a transacted link's work, in a plain loop: one JPype session that sends, or receives, in XA transactions of two phases.

``python -m benchmarks.bare_xa URL QUEUE send|receive MESSAGES AT-ONCE OCTETS`` prints messages a second. Each transaction is start, so many messages, end,
prepare, commit; each call is made of the JMS client's own objects, and the next when it has returned. So many messages again come before those that are
timed, since the JVM compiles what it runs often. Bodies are read and written; they end in numbers, as those of :mod:`benchmarks.wire` do.

Knows nothing of the gateway: this is what no link can do without. Who runs it is :mod:`benchmarks.bare`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from benchmarks.wire import DIGITS

_LIBRARY = "/usr/share/activemq/lib/*"
# How long one message may stay away, in milliseconds.
_PATIENCE = 20_000


def main(arguments: list[str]) -> None:
    """Run the command. :raises RuntimeError: a message stayed away or is another than was expected, or a transaction was not prepared."""
    import jpype
    import jpype.config

    url, queue, what = arguments[:3]
    messages, at_once, octets = map(int, arguments[3:])
    # The process ends when this has failed, whatever threads the JMS client has.
    jpype.config.onexit = False
    # As the gateway starts its own.
    jpype.startJVM("-Xrs", "-Xmx256m", classpath=[_LIBRARY], convertStrings=True)
    connection = jpype.JClass("org.apache.activemq.ActiveMQXAConnectionFactory")(url).createXAConnection()
    connection.start()
    session = connection.createXASession()
    destination = session.createQueue(queue)
    work = _sender(session, destination, octets) if what == "send" else _receiver(session, destination, octets)
    _run(session.getXAResource(), work, 0, messages, at_once)
    began = perf_counter()
    _run(session.getXAResource(), work, messages, 2 * messages, at_once)
    seconds = perf_counter() - began
    connection.close()
    print(messages / seconds, flush=True)
    # Without a word more: threads of Java that come back into an interpreter that is ending say FATAL.
    os._exit(0)


def _run(resource: Any, work: Callable[[int], None], first: int, end: int, at_once: int) -> None:
    """Messages ``first`` to ``end - 1``, so many in a transaction; the last has what is left."""
    import jpype

    # The provider's own: one of Python's would be asked by Java for its parts, again and again.
    make = jpype.JClass("org.apache.activemq.command.XATransactionId")
    flags = jpype.JClass("javax.transaction.xa.XAResource")
    for begin in range(first, end, at_once):
        xid = make()
        xid.setFormatId(1)
        xid.setGlobalTransactionId(b"%d.%d" % (os.getpid(), begin))
        xid.setBranchQualifier(b"\1")
        resource.start(xid, flags.TMNOFLAGS)
        for number in range(begin, min(end, begin + at_once)):
            work(number)
        resource.end(xid, flags.TMSUCCESS)
        vote = resource.prepare(xid)
        if vote != flags.XA_OK:
            raise RuntimeError(f"the transaction of message {begin} was to be prepared; the provider's vote is {vote}")
        resource.commit(xid, False)


def _sender(session: Any, destination: Any, octets: int) -> Callable[[int], None]:
    producer = session.createProducer(destination)
    filling = b"x" * (octets - DIGITS)

    def send(number: int) -> None:
        message = session.createBytesMessage()
        message.writeBytes(filling + b"%0*d" % (DIGITS, number))
        producer.send(message)

    return send


def _receiver(session: Any, destination: Any, octets: int) -> Callable[[int], None]:
    import jpype

    consumer = session.createConsumer(destination)
    body = jpype.JByte[octets]

    def receive(number: int) -> None:
        message = consumer.receive(_PATIENCE)
        if message is None:
            raise RuntimeError(f"message {number} did not come within {_PATIENCE / 1000:g} s")
        length = message.getBodyLength()
        message.readBytes(body)
        if length != octets or int(bytes(body)[-DIGITS:]) != number:
            raise RuntimeError(f"message {number} of {octets} octets was expected, and {length} came: {bytes(body)[-DIGITS:]!r}")

    return receive


if __name__ == "__main__":
    main(sys.argv[1:])
