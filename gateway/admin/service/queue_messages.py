"""What waits in a queue of this instance's broker, for operators: its messages in the order of
their delivery, left where they are.

Owns what is told of a message: never its body. The queue is browsed through the seam, as the
administrator whose rights hold.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime

from gateway.admin.service.dead_originals import number_of, shown_value
from gateway.admin.service.dead_reading import Browsing, Lost
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.messaging import dead
from gateway.messaging.destination import Queue
from gateway.messaging.errors import InvalidSelector
from gateway.messaging.message import Message
from gateway.messaging.provider import Credentials, Mode, Provider

#: Messages that are listed if nobody says how many, and at most.
LISTED: Final = 100
MOST_LISTED: Final = 10_000
#: Messages that are read at once.
_BATCH: Final = 100


class QueueMessages:
    """The resources.

    ================================================  ===============================================================
    ``GET /v1/messages?name=N&selector=S&limit=N``    ``messages``: the first that wait in a queue; ``more``: whether there are more
    ``GET /v1/message?name=N&id=ID``                  one, by its JMSMessageID
    ================================================  ===============================================================

    :param clock: the reactor. :param credentials: as whom the broker is asked; asked for each time.
    :param exists: tells whether there is a queue of that name: raises what an administrator is told
        where there is none.
    """

    def __init__(
        self,
        clock: IReactorTime,
        provider: Provider,
        credentials: Callable[[], Credentials],
        exists: Callable[[str], object],
    ) -> None:
        self._clock = clock
        self._provider = provider
        self._credentials = credentials
        self._exists = exists

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/messages", self._list)
        routes.add("GET", "/v1/message", self._one)

    async def _list(self, request: AdminRequest) -> dict[str, object]:
        name, limit = request.needed("name"), request.number("limit", LISTED, 1, MOST_LISTED)
        found = await self._browsed(name, request.text("selector"), limit + 1)
        return {
            "name": name,
            "messages": [self._told(each) for each in found[:limit]],
            "more": len(found) > limit,
        }

    async def _one(self, request: AdminRequest) -> dict[str, object]:
        name, wanted = request.needed("name"), request.needed("id")
        literal = "'" + wanted.replace("'", "''") + "'"
        found = await self._browsed(name, f"JMSMessageID = {literal}", 1)
        if not found:
            text = f"no message {wanted} waits in queue '{name}': it is not there, or a consumer has it"
            raise Refused(text, "no_message", HTTPStatus.NOT_FOUND)
        return self._told(found[0])

    async def _browsed(self, name: str, selector: str, most: int) -> list[Message]:
        self._exists(name)
        lost = Lost()
        connection = await self._provider.connect(self._credentials(), None, lost)
        found: list[Message] = []
        try:
            browsing = Browsing(connection.session(Mode.AUTO), Queue(name), selector or None, lost)
            while batch := await browsing.next(min(_BATCH, most - len(found))):
                found += batch
        except InvalidSelector as error:
            raise Refused(str(error), "selector") from None
        finally:
            await connection.close()
        return found

    def _told(self, message: Message) -> dict[str, object]:
        headers, properties = message.headers, message.headers.properties
        died_ms = properties.get(dead.UNDELIVERED_TIMESTAMP)
        told: dict[str, Any] = {
            "message_id": message.message_id,
            "timestamp_ms": message.timestamp,
            "age_ms": max(0, int(self._clock.seconds() * 1000) - message.timestamp)
            if message.timestamp
            else -1,
            "octets": len(message.body),
            "body_type": headers.body_type.name,
            "priority": headers.priority,
            "persistent": headers.persistent,
            "expires_ms": message.expires,
            "correlation_id": headers.correlation_id,
            "type": headers.type,
            "reason": properties.get(dead.UNDELIVERED_REASON) or properties.get(dead.BRIDGE_REASON),
            "comment": properties.get(dead.UNDELIVERED_COMMENT)
            or properties.get(dead.BRIDGE_EXCEPTION),
            "source": properties.get(dead.ORIGINAL_DESTINATION)
            or properties.get(dead.BRIDGE_SOURCE_DESTINATION),
            "dead_since_ms": died_ms
            if isinstance(died_ms, int)
            else number_of(properties.get(dead.BRIDGE_TIMESTAMP)),
            "properties": {name: shown_value(value) for name, value in properties.items()},
        }
        return told
