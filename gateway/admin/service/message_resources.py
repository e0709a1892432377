"""Messages in queues as resources of the admin service.

Those that wait in a queue of this instance's broker, and those in the dead message queues of
bridges. Owns their form in JSON, and which dead message queue is meant. What is done to one,
:mod:`gateway.admin.service.dead` knows.

=====================================================================  =======================================================
``GET /v1/messages?name=N&selector=S&limit=N``                         the first that wait; ``more``: whether there are more
``GET /v1/message?name=N&id=ID``                                       one, by its JMSMessageID
``GET /v1/message/body?name=N&id=ID``                                  the beginning of its body, for operators
``GET /v1/dead?selector=S&limit=N``                                    what is in a dead message queue
``POST /v1/dead/replay`` ``{"selector", "to", "limit", "dry_run"}``    send again; ``to`` is ``queue:NAME`` or ``topic:NAME``
``POST /v1/dead/purge`` ``{"selector", "limit", "dry_run"}``           throw away
=====================================================================  =======================================================

The dead message queue is the built-in one, unless ``bridge`` and ``dmq`` name a bridge and one of
its dead message queues. Only replay and purge move messages. Of a dead message of a bridge, the body is that
of its original. A body has ``text``, which is hexadecimal where ``form`` is ``hex``, ``octets`` in
all, and ``shown``, how many of them the text is of.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from typing import Final, TypeVar

from twisted.internet.interfaces import IReactorTime

from bridge.config.model import BUILT_IN_DMQ_DESTINATION
from bridge.link.status import BridgeState
from bridge.manager import BridgeServiceManager
from gateway.admin.service.bridge_resources import as_jms
from gateway.admin.service.browsing import quoted, reader
from gateway.admin.service.dead import (
    LISTED,
    DeadMessages,
    Tally,
    destination_of,
    number_of,
    shown_value,
)
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.messaging import dead
from gateway.messaging.destination import Destination, Kind, Queue
from gateway.messaging.envelope import EnvelopeError, decode
from gateway.messaging.errors import InvalidSelector, ProviderUnavailable
from gateway.messaging.message import BodyType, Message, text_of_body
from gateway.messaging.provider import Credentials, Provider

T = TypeVar("T")

_MOST: Final = 10**9
_MOST_LISTED: Final = 10_000
#: Bytes of a body that are shown.
_BODY_SHOWN: Final = 32 * 1024


class QueueMessages:
    """The messages of queues as resources.

    :param clock: the reactor.
    :param credentials: as whom the broker is asked; asked for each time.
    :param exists: raises an error for the administrator where there is no queue of that name.
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
        routes.add("GET", "/v1/message/body", self._body)

    async def _list(self, request: AdminRequest) -> dict[str, object]:
        name, limit = request.needed("name"), request.number("limit", LISTED, 1, _MOST_LISTED)
        found = await self._browsed(name, request.text("selector"), limit + 1)
        return {
            "name": name,
            "messages": [self._json(each) for each in found[:limit]],
            "more": len(found) > limit,
        }

    async def _one(self, request: AdminRequest) -> dict[str, object]:
        return self._json(await self._found(request))

    async def _body(self, request: AdminRequest) -> dict[str, object]:
        return _body_json(await self._found(request))

    async def _found(self, request: AdminRequest) -> Message:
        name, wanted = request.needed("name"), request.needed("id")
        found = await self._browsed(name, f"JMSMessageID = {quoted(wanted)}", 1)
        if not found:
            text = f"no message {wanted} waits in queue '{name}': it is not there, or a consumer has it"
            raise Refused(text, "no_message", HTTPStatus.NOT_FOUND)
        return found[0]

    async def _browsed(self, name: str, selector: str, most: int) -> list[Message]:
        self._exists(name)
        try:
            async with reader(self._provider, self._credentials) as reading:
                return await reading.first(Queue(name), selector or None, most)
        except InvalidSelector as error:
            raise Refused(str(error), "selector") from None

    def _json(self, message: Message) -> dict[str, object]:
        headers, properties = message.headers, message.headers.properties
        died_ms = properties.get(dead.UNDELIVERED_TIMESTAMP)
        return {
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


def _body_json(message: Message) -> dict[str, object]:
    if message.headers.body_type is BodyType.BYTES:
        # What a bridge has given up is in an envelope.
        with suppress(EnvelopeError):
            message = decode(message.body)
    shown = message.body[:_BODY_SHOWN]
    # A character may be cut in two at the end.
    text = shown.decode(errors="replace").removesuffix("\ufffd")
    is_text = message.headers.body_type is BodyType.TEXT or text_of_body(message.body) is not None
    return {
        "message_id": message.message_id,
        "body_type": message.headers.body_type.name,
        "octets": len(message.body),
        "shown": len(shown),
        "form": "text" if is_text else "hex",
        "text": text if is_text else shown.hex(" ", 1),
    }


class DeadMessageResources:
    """The dead message queues as resources."""

    def __init__(self, messages: DeadMessages, bridges: BridgeServiceManager) -> None:
        self._messages = messages
        self._bridges = bridges

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/dead", self._list)
        routes.add("POST", "/v1/dead/replay", self._replay)
        routes.add("POST", "/v1/dead/purge", self._purge)

    async def _list(self, request: AdminRequest) -> dict[str, object]:
        queue = self._queue(request)
        limit = request.number("limit", LISTED, 1, _MOST_LISTED)
        messages, more = await _selected(
            self._messages.list(request.text("selector"), limit, queue=queue)
        )
        return {"queue": queue.name, "messages": messages, "more": more}

    async def _replay(self, request: AdminRequest) -> dict[str, object]:
        queue = self._queue(request)
        to, given = None, request.text("to")
        if given:
            to = destination_of(given)
            if to is None:
                raise Refused(
                    f"{given!r} is no destination; expected queue:NAME or topic:NAME", "bad_request"
                )
        selector, limit, dry_run = _parameters(request)
        return _tally_json(
            queue,
            await _selected(
                self._messages.replay(selector, to, limit, dry_run=dry_run, queue=queue)
            ),
            dry_run,
        )

    async def _purge(self, request: AdminRequest) -> dict[str, object]:
        queue = self._queue(request)
        selector, limit, dry_run = _parameters(request)
        return _tally_json(
            queue,
            await _selected(self._messages.purge(selector, limit, dry_run=dry_run, queue=queue)),
            dry_run,
        )

    def _queue(self, request: AdminRequest) -> Destination:
        """Return the queue that is meant.

        :raises Refused: no queue has that name, or it cannot be read from here.
        """
        name, bridge_name = request.text("dmq"), request.text("bridge")
        if not name and not bridge_name:
            return BUILT_IN_DMQ_DESTINATION
        if not name or not bridge_name:
            raise Refused(
                "a dead message queue is named by its bridge and its own name: give bridge and dmq",
                "bad_request",
            )
        bridge = self._bridges.find(bridge_name)
        jms = as_jms(bridge)
        dmqs = () if jms is None else jms.dmqs()
        found = next((each for each in dmqs if each.name == name), None)
        if found is None:
            known = f"; those that there are: {', '.join(each.name for each in dmqs) or 'none'}"
            if bridge.state is BridgeState.STOPPED:
                known = ": it is STOPPED, and its file is read when it starts"
            raise Refused(
                f"there is no dead message queue {name} in bridge {bridge_name}{known}",
                "no_dmq",
                HTTPStatus.NOT_FOUND,
            )
        what = f"dead message queue {name} of bridge {bridge_name} is {found.destination}"
        if not found.embedded:
            where = f"at the provider of connection-factory {found.connection_factory}"
            text = f"{what} {where}: only those at the broker of this instance can be looked into; ask that provider's own tools"
            raise Refused(text, "foreign_dmq", HTTPStatus.CONFLICT)
        queue = destination_of(found.destination)
        if queue is None or queue.kind is not Kind.QUEUE:
            raise Refused(
                f"{what}, and only a queue keeps what can be looked into",
                "not_a_queue",
                HTTPStatus.CONFLICT,
            )
        return queue


def _parameters(request: AdminRequest) -> tuple[str, int, bool]:
    return request.text("selector"), request.number("limit", 0, 0, _MOST), request.flag("dry_run")


async def _selected(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except InvalidSelector as error:
        raise Refused(str(error), "selector") from None
    except ProviderUnavailable as error:
        raise Refused(str(error), "unavailable", HTTPStatus.SERVICE_UNAVAILABLE) from None


def _tally_json(queue: Destination, tally: Tally, dry_run: bool) -> dict[str, object]:
    return {"queue": queue.name, "dry_run": dry_run, **asdict(tally)}
