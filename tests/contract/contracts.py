"""Contract tests, and what stands in for them where a provider denies what they are about.

Owns the decorator :func:`contract`. What the denial of each capability means is here and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Final

import pytest

from gateway.messaging.destination import Kind
from gateway.messaging.errors import NotSupported
from gateway.messaging.provider import DUPLICATE_ID, Consumer, ConsumerSpec, Mode
from tests.contract.driving import Client, Seam
from tests.contract.waiting import bounded
from tests.on_reactor import on_reactor

#: Where a test has the names of what its backend must arrange.
ARRANGED: Final = "arranged"

Test = Callable[..., Coroutine[Any, Any, None]]


def contract(*capabilities: str, arranged: tuple[str, ...] = ()) -> Callable[[Test], Test]:
    """Make a coroutine a contract test.

    :param capabilities: fields of Capabilities that it is about. Where the provider has one of them
        not, the test is instead that asking for it raises NotSupported.
    :param arranged: what the backend must be able to arrange; the test is made for those that can.
    """

    def decorate(test: Test) -> Test:
        own = signature(test)
        asked = "seam" in own.parameters

        @wraps(test)
        async def run(*, seam: Seam, **given: Any) -> None:
            missing = [name for name in capabilities if not getattr(seam.capabilities, name)]
            if asked:
                given["seam"] = seam
            await (refuses(seam, missing[0]) if missing else test(**given))

        setattr(run, ARRANGED, arranged)
        if not asked:
            ours = Parameter("seam", Parameter.KEYWORD_ONLY)
            run.__signature__ = own.replace(  # type: ignore[attr-defined]
                parameters=[*own.parameters.values(), ours]
            )
        return on_reactor(run)

    return decorate


async def refuses(seam: Seam, capability: str) -> None:
    """What the capabilities deny raises NotSupported when asked."""
    client = await seam.connect(seam.identifier() if capability == "durable" else None)
    connection = client.connection
    asked: dict[str, Callable[[], object]] = {
        "transacted": lambda: connection.session(Mode.TRANSACTED),
        "individual": lambda: connection.session(Mode.INDIVIDUAL),
        "xa": connection.xa_session,
        "temporary": lambda: connection.temporary(Kind.QUEUE),
        "durable": lambda: _consumer(client, ConsumerSpec(seam.topic(), durable_name="d")),
        "selectors": lambda: _consumer(client, ConsumerSpec(seam.queue(), selector="a = 1")),
        "shared": lambda: _consumer(client, ConsumerSpec(seam.topic(), shared_name="s")),
        "browse": lambda: _consumer(client, ConsumerSpec(seam.queue(), browse=True)),
        "exclusive": lambda: _consumer(client, ConsumerSpec(seam.queue(), exclusive=True)),
    }
    if capability in asked:
        with pytest.raises(NotSupported):
            asked[capability]()
    elif capability == "queue_patterns":
        # The name is the broker's to understand, wildcards or not.
        pass
    elif capability == "groups":
        # A group is a property like any other then, and no message is refused for it.
        pass
    elif capability == "joined":
        await _refuses_to_join(seam)
    elif capability == "duplicate_ids":
        await _takes_the_property(seam, client)
    else:
        raise AssertionError(f"nobody can ask for {capability}")
    if capability == "durable":
        with pytest.raises(NotSupported):
            await bounded(connection.unsubscribe("d"))
    if capability == "individual":
        await _refuses_single_settlements(seam)


async def _refuses_to_join(seam: Seam) -> None:
    if not seam.capabilities.transacted:
        await refuses(seam, "transacted")
        return
    client, _, inbox = await seam.holding(["1"])
    transacted = client.session(Mode.TRANSACTED)
    with pytest.raises(NotSupported):
        inbox.consumer.acknowledge_through(1, within=transacted)
    assert inbox.consumer.acknowledge_through(1) == 1, "nothing changed"


async def _takes_the_property(seam: Seam, client: Client) -> None:
    """Nobody is refused for a duplicate id; it promises nothing, and is a property like any
    other.
    """
    queue = seam.queue()
    inbox = await client.consumer(queue)
    await client.send(queue, ["1"], properties={DUPLICATE_ID: "a"})
    await inbox.count(1)
    assert inbox.messages[0].headers.properties[DUPLICATE_ID] == "a"


async def _refuses_single_settlements(seam: Seam) -> None:
    _, _, inbox = await seam.holding(["1"])
    with pytest.raises(NotSupported):
        inbox.consumer.acknowledge([1])
    with pytest.raises(NotSupported):
        inbox.consumer.reject([1])
    assert inbox.consumer.acknowledge_through(1) == 1, "nothing changed"


def _consumer(client: Client, spec: ConsumerSpec) -> Consumer:
    return client.session().consumer(spec, lambda *delivery: None, lambda error: None)
