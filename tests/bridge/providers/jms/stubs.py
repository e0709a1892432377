"""A provider made of stub classes, compiled by the JDK for either namespace; and what tests of this
package share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from bridge.providers.jms import build
from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection, Consumer, ConsumerSpec, Credentials, Done, Mode

clock: Any = reactor
GUEST: Final = Credentials("guest", "secret")
SMALL: Final = ("-Xmx64m",)
_SOURCE: Final = Path(__file__).parent / "stub"


def compiled(namespace: str) -> Path:
    """The stub provider and the API it implements, as a folder of classes: all tests of a process
    share it, and so one Java process.

    Its queues are there as long as that process; so each test has names of its own, or takes what
    it has sent.

    :param namespace: ``javax`` or ``jakarta``.
    """
    return Path(_compiled(namespace).name) / "classes"


@cache
def _compiled(namespace: str) -> TemporaryDirectory[str]:
    """Once for all tests of a process, as it takes seconds; gone with the process."""
    folder = TemporaryDirectory(prefix="stub-")
    sources = Path(folder.name) / "sources"
    build.write_api(sources, namespace)
    text = (_SOURCE / "stub" / "StubProvider.java").read_text(encoding="utf-8")
    (sources / "StubProvider.java").write_text(
        text if namespace == "javax" else build.other_namespace(text), encoding="utf-8"
    )
    build.compile_sources(sources, Path(folder.name) / "classes")
    return folder


def stub_provider(classes: Path, lookup_name: str = "cf", **options: Any) -> JMSProvider:
    """A provider of the stubs.

    All Java processes together have so much memory, so theirs is small.
    """
    environment = {
        "java.naming.factory.initial": "stub.StubProvider",
        "java.naming.provider.url": "stub:",
    }
    return JMSProvider(
        clock,
        JMSFactory(lookup_name, environment, str(classes), **{"java_options": SMALL, **options}),
        name=f"stub {lookup_name}",
    )


async def control(classes: Path, what: str, **options: Any) -> None:
    """Have the stubs do something: ``release`` lets go of what hangs.

    :param options: those of the provider whose process it is.
    """
    provider = stub_provider(classes, **options)
    await provider.look_up(f"control:{what}", provider.factory.environment)


def not_lost(error: Exception) -> None:
    raise AssertionError(f"the connection was lost: {error}")


def told(ask: Callable[[Done], None]) -> Deferred[MessagingError | None]:
    """What a completion says."""
    answer: Deferred[MessagingError | None] = Deferred()
    ask(answer.callback)
    return answer


async def unavailable(provider: JMSProvider, match: str, client_id: str | None = None) -> None:
    """Connecting fails, and says why."""
    with pytest.raises(ProviderUnavailable, match=match):
        await provider.connect(GUEST, client_id, not_lost)


async def send(
    connection: Connection, destination: Destination, *bodies: bytes, **headers: Any
) -> Sequence[Message]:
    """Send messages in a session of their own, and wait until they are."""
    session = connection.session(Mode.AUTO)
    messages = [Message(Headers(destination, **headers), body) for body in bodies]
    session.send(messages)
    assert await told(session.completion) is None
    session.close()
    return messages


async def texts(connection: Connection, destination: Destination, count: int) -> list[str]:
    """Receive that many messages."""
    found = await received(connection, ConsumerSpec(destination), count)
    return [message.text for message, _ in found]


async def received(
    connection: Connection, spec: ConsumerSpec, count: int, mode: Mode = Mode.AUTO
) -> list[tuple[Message, int]]:
    """So many messages, with their attempts, from a session of their own that is then closed;
    automatic ones are settled.
    """
    found: list[tuple[Message, int]] = []
    enough: Deferred[None] = Deferred()

    def deliver(consumer: Consumer, first: int, messages: Any, attempts: Any, /) -> None:
        found.extend(zip(messages, attempts or [1] * len(messages), strict=True))
        if len(found) == count:
            enough.callback(None)

    session = connection.session(mode)
    consumer = session.consumer(spec, deliver, enough.errback)
    consumer.grant(count)
    consumer.start()
    await enough
    assert await told(session.completion) is None
    session.close()
    return found
