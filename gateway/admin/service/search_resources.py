"""Messages that are searched for, and what is known of one, as resources.

==============================================================================  ============================
``GET /v1/messages/search?destination=D&selector=S&from=T&to=T&after=A&limit``  messages that wait
``GET /v1/message/journey?id=ID&seconds=S``                                     where one is, and its steps
==============================================================================  ============================

``destination`` is ``queue:NAME`` or ``topic:NAME``; without one, all queues and durable subscriptions
are searched, and what is to be delivered later. Of a topic, that is what waits in durable
subscriptions, and what the topic is to deliver later. Each message has its ``state``: ``waiting``;
``paused``, where an administrator keeps it from consumers; ``pausing``, before it is delivered again;
or ``scheduled``, with ``due_ms``. ``from`` and ``to`` are times
in ISO 8601, in UTC if they do not say, and bound when the messages were sent. A search takes
``seconds`` at most, such as 0.5, 2 by default. The answer has ``messages``, ``looked_at``, and ``next``: the
``after`` of a request that goes on, "" where all was looked at. ``unread`` names the places that the
store did not read in time.

A journey has ``places`` where the message is now, ``dead`` copies, ``steps`` that the journal tells,
and ``why``, as ``/v1/why/message`` has it, with ``unknown``: sentences about what cannot be known. A
message is looked for during ``seconds`` at most, 6 by default. Neither has a body.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from gateway.admin.service.dead import destination_of
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.admin.why.explain import LOOKED_FOR_S, Explanations
from gateway.admin.why.journeys import StepTold
from gateway.admin.why.whereabouts import Found
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.operator.searching import FoundMessage, MessageSearch, WantedMessages, place_key
from gateway.messaging import dead
from gateway.messaging.errors import InvalidSelector
from gateway.messaging.message import Message

_MOST: Final = 1000
_MOST_SECONDS: Final = 10
#: Fields of the journal that steps show; others may have headers and bodies.
_TOLD: Final = (
    "destination",
    "provider",
    "link",
    "connection",
    "subscription",
    "user",
    "reason",
    "comment",
    "selector",
)


class SearchResources:
    """The search and the journeys as resources."""

    def __init__(self, search: MessageSearch, explanations: Explanations) -> None:
        self._search: Final = search
        self._explanations: Final = explanations

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/messages/search", self._found)
        routes.add("GET", "/v1/message/journey", self._journey)

    async def _found(self, request: AdminRequest) -> dict[str, object]:
        given = request.text("destination")
        destination = destination_of(given if ":" in given else f"queue:{given}") if given else None
        if given and destination is None:
            raise Refused(
                f"destination is {given!r}; expected queue:NAME or topic:NAME", "bad_request"
            )
        wanted = WantedMessages(
            destination,
            request.text("selector"),
            moment_of(request, "from"),
            moment_of(request, "to"),
            request.text("after"),
            request.number("limit", 50, 1, _MOST),
            _seconds(request, 2.0),
        )
        try:
            found = await self._search.find(wanted)
        except InvalidSelector as error:
            raise Refused(str(error), "selector") from None
        return {
            "messages": [_message_json(each) for each in found.messages],
            "looked_at": found.looked_at,
            "next": found.next,
            "unread": found.unread,
        }

    async def _journey(self, request: AdminRequest) -> dict[str, object]:
        id = request.needed("id")
        seconds = _seconds(request, LOOKED_FOR_S)
        found = await self._explanations.message(id, seconds, whole=True)
        journey = found.journey
        return {
            "id": id,
            "places": [_place_json(each) for each in found.places],
            "dead": [
                {
                    "queue": queue.name,
                    "message_id": copy.message_id,
                    "reason": _reason(copy),
                }
                for queue, copy in found.copies
            ],
            "steps": [_step_json(each) for each in journey.steps],
            "segments": journey.segments,
            "read": journey.read,
            "why": found.why,
        }


def moment_of(request: AdminRequest, name: str) -> int:
    """Return a time in epoch milliseconds; 0 where it is not given.

    :raises Refused: it is no time in ISO 8601.
    """
    text = request.text(name).strip()
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Refused(
            f"{name} is {text!r}; expected a time such as 2026-01-31T12:00:00Z", "bad_request"
        ) from None


def _seconds(request: AdminRequest, usual: float) -> float:
    """:raises Refused: it is no number of seconds that a search may take."""
    text = request.text("seconds") or str(usual)
    # No sign, exponent or word such as nan.
    seconds = float(text) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", text) else math.inf
    if seconds > _MOST_SECONDS:
        raise Refused(
            f"seconds is {text!r}; expected a number from 0 to {_MOST_SECONDS}", "bad_request"
        )
    return seconds


def _queue_of(place: object) -> str:
    return place.destination.name if isinstance(place, PhysicalQueue) else ""


def _reason(message: Message) -> object:
    properties = message.headers.properties
    return properties.get(dead.UNDELIVERED_REASON) or properties.get(dead.BRIDGE_REASON)


def _message_json(found: FoundMessage) -> Mapping[str, object]:
    message, headers = found.message, found.message.headers
    return {
        "message_id": message.message_id,
        "place": place_key(found.place),
        "queue": _queue_of(found.place),
        "state": found.state,
        "due_ms": found.due_ms,
        "timestamp_ms": message.timestamp,
        "octets": len(message.body),
        "body_type": headers.body_type.name,
        "priority": headers.priority,
        "correlation_id": headers.correlation_id,
        "reason": _reason(message),
    }


def _place_json(found: Found) -> Mapping[str, object]:
    return {
        "place": found.name,
        "queue": _queue_of(found.place),
        "state": found.state,
        "ahead": found.ahead,
        "connection": 0 if found.consumer is None else found.consumer.origin.number,
        "transaction": found.xid,
        "due_ms": found.due_ms,
        "job": found.job,
    }


def _step_json(told: StepTold) -> Mapping[str, object]:
    return {
        "step": told.step,
        "time_ms": told.time_ms,
        "target_id": told.target_id,
        **{name: told.line[name] for name in _TOLD if name in told.line},
    }
