"""A provider made of stub classes, compiled by the JDK for either namespace; and what tests of this package share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from bridge.providers.jms import build
from bridge.providers.jms.provider import JMSFactory, JMSProvider
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Consumer, Credentials, Done, Mode, Subscription

clock: Any = reactor
GUEST: Final = Credentials("guest", "secret")
_SOURCE: Final = Path(__file__).parent / "stub"


def compiled(folder: Path, namespace: str) -> Path:
    """The stub provider and the API it implements, as a folder of classes below this one, where no other provider has its classes from.

    :param namespace: ``javax`` or ``jakarta``.
    """
    return Path(shutil.copytree(Path(_compiled(namespace).name) / "classes", folder / f"{namespace}-classes"))


@cache
def _compiled(namespace: str) -> TemporaryDirectory[str]:
    """Once for all tests of a process, as it takes seconds; gone with the process."""
    folder = TemporaryDirectory(prefix="stub-")
    sources = Path(folder.name) / "sources"
    build.write_api(sources, namespace)
    text = (_SOURCE / "stub" / "StubProvider.java").read_text(encoding="utf-8")
    (sources / "StubProvider.java").write_text(text if namespace == "javax" else build.other_namespace(text), encoding="utf-8")
    build.compile_sources(sources, Path(folder.name) / "classes")
    return folder


def stub_provider(classes: Path, lookup_name: str = "cf", **options: Any) -> JMSProvider:
    """A provider of the stubs."""
    environment = {"java.naming.factory.initial": "stub.StubProvider", "java.naming.provider.url": "stub:"}
    return JMSProvider(clock, JMSFactory(lookup_name, environment, str(classes), **options), name=f"stub {lookup_name}")


def told(ask: Callable[[Done], None]) -> Deferred[MessagingError | None]:
    """What a completion says."""
    answer: Deferred[MessagingError | None] = Deferred()
    ask(answer.callback)
    return answer


async def received(connection: Connection, spec: Subscription, count: int, mode: Mode = Mode.AUTO) -> list[tuple[Message, int]]:
    """So many messages, with their attempts, from a session of their own that is then closed; automatic ones are settled."""
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
