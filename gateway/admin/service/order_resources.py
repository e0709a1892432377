"""Orders about messages that wait, as resources.

==================================================================================  ==========================================
``POST /v1/message/move`` ``{"name", "id", "selector", "limit", "to", "dry_run"}``  move to the queue ``to``
``POST /v1/message/copy`` with the same                                             send copies there
``POST /v1/message/delete`` with the same but ``to``                                throw away
``POST /v1/message/replay`` with the same, and an edit                              send dead messages to where they came from
``GET /v1/message/original?name=N&id=ID&to=TO``                                     a dead message as a replay sends it
==================================================================================  ==========================================

``name`` is the queue, ``id`` a JMSMessageID; one of ``id``, ``selector`` and ``limit`` is needed. A
replay's ``to`` is ``queue:NAME`` or ``topic:NAME``, in the place of where each came from. What is
replayed may be edited, to the same for each message: other ``properties``, texts by name, null removes
one; ``priority``, 0 to 9; ``type``, the JMSType, "" for none; and ``expires``, a time in ISO 8601 that
is yet to come, in UTC if it does not say, or ``never``. With an ``id`` it may have another body,
``text``, too.
With ``"dry_run": true`` the answer is what would be done. It has the fields of
:class:`~gateway.broker.operator.message_administration.Outcome`, and of one edited message, by its
``id``, ``difference``, the lines that differ.

``original`` has the destination ``to``; ``priority``; ``type``, "" for none; ``expires_ms``, 0 for
never; ``properties``, each with ``name``, ``value`` as a text and ``editable``; ``octets`` of the body, and ``text``, null where it cannot be edited. As it has a body,
it is for operators.

A message and what takes its place are never both gone, and never both there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from gateway.admin.service.dead import NotAnEnvelope, destination_of, original_of
from gateway.admin.service.edited import Edit, difference, edit_of, is_editable
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.broker.operator.message_administration import (
    Chosen,
    LeftAlone,
    MessageAdministration,
    Outcome,
    relocated,
)
from gateway.messaging import dead
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.errors import InvalidSelector
from gateway.messaging.message import Message, text_of_body
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import text_of
from gateway.reactor.clocks import wall_ms

_MOST: Final = 10**9
#: What the names of properties begin with that say why a message died.
_DEAD: Final = "JMS_SUN_DMQ_"


class MessageOrders:
    """The orders as resources.

    :param clock: the reactor.
    :param here: the resource manager that the broker of this instance is.
    """

    def __init__(self, clock: IReactorTime, messages: MessageAdministration, here: str) -> None:
        self._clock = clock
        self._messages = messages
        self._here = here

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        for word, answer in (
            ("move", self._move),
            ("copy", self._copy),
            ("delete", self._delete),
            ("replay", self._replay),
        ):
            routes.add("POST", f"/v1/message/{word}", answer)
        routes.add("GET", "/v1/message/original", self._original)

    async def _move(self, request: AdminRequest) -> dict[str, object]:
        name, chosen, dry_run = _which(request)
        to = _queue(request.needed("to"))
        return await self._answer(request, self._messages.move(name, chosen, to, dry_run=dry_run))

    async def _copy(self, request: AdminRequest) -> dict[str, object]:
        name, chosen, dry_run = _which(request)
        to = _queue(request.needed("to"))
        return await self._answer(request, self._messages.copy(name, chosen, to, dry_run=dry_run))

    async def _delete(self, request: AdminRequest) -> dict[str, object]:
        name, chosen, dry_run = _which(request)
        return await self._answer(request, self._messages.delete(name, chosen, dry_run=dry_run))

    async def _replay(self, request: AdminRequest) -> dict[str, object]:
        name, chosen, dry_run = _which(request)
        edit = edit_of(request.body)
        if not chosen.message_id:
            edit.check_several(wall_ms(self._clock))
        replay = self._replay_of(name, request, edit)
        answer = await self._answer(
            request,
            self._messages.replace(name, chosen, replay.replacement, dry_run=dry_run),
        )
        return {**answer, "difference": replay.difference() if chosen.message_id else ()}

    def _replay_of(self, name: str, request: AdminRequest, edit: Edit) -> _Replay:
        given = request.text("to")
        to = destination_of(given) if given else None
        if given and to is None:
            raise Refused(
                f"{given!r} is no destination; expected queue:NAME or topic:NAME", "bad_request"
            )
        return _Replay(Queue(name), self._here, to, wall_ms(self._clock), edit)

    async def _original(self, request: AdminRequest) -> dict[str, object]:
        name, id = request.needed("name"), request.needed("id")
        replay = self._replay_of(name, request, Edit())
        outcome = await self._messages.replace(name, Chosen(id), replay.replacement, dry_run=True)
        original = replay.original
        if original is None:
            reasons = "; ".join(outcome.reasons)
            raise Refused(
                f"message {id} cannot be replayed: {reasons}", "not_dead", HTTPStatus.CONFLICT
            )
        return {
            "name": name,
            "id": id,
            "to": str(original.headers.destination),
            "priority": original.headers.priority,
            "type": original.headers.type or "",
            "expires_ms": original.expires,
            "octets": len(original.body),
            "text": text_of_body(original.body) if is_editable(original) else None,
            "properties": [
                {"name": name, "value": text_of(value), "editable": is_property_name(name)}
                for name, value in sorted(original.headers.properties.items())
            ],
        }

    @staticmethod
    async def _answer(request: AdminRequest, order: Deferred[Outcome]) -> dict[str, object]:
        try:
            outcome = await order
        except InvalidSelector as error:
            raise Refused(str(error), "selector") from None
        return {
            "name": request.text("name"),
            "dry_run": request.flag("dry_run"),
            **asdict(outcome),
        }


class _Replay:
    """Makes of dead messages those that are sent.

    :ivar original: the last one before it was edited, and
    :ivar edited: after that; None where nothing is edited.
    """

    def __init__(
        self, queue: Destination, here: str, to: Destination | None, now_ms: int, edit: Edit
    ) -> None:
        self._queue = queue
        self._here = here
        self._to = to
        self._now_ms = now_ms
        self._edit = edit
        self.original: Message | None = None
        self.edited: Message | None = None

    def replacement(self, message: Message) -> Message:
        """Return the message to send. :raises LeftAlone: it stays, and why."""
        original = self._original(message)
        original.user = message.user
        self.original = original
        if not self._edit:
            return original
        try:
            edited = self._edit.of(original, self._now_ms)
        except Refused as refused:
            raise LeftAlone(refused.text) from None
        edited.user = message.user
        self.edited = edited
        return edited

    def difference(self) -> Sequence[str]:
        """Return the lines that the edit changes of the last one."""
        if self.original is None or self.edited is None:
            return ()
        return difference(self.original, self.edited)

    def _original(self, message: Message) -> Message:
        said = message.headers.properties
        if dead.BRIDGE_REASON in said:
            try:
                return original_of(message, self._queue, self._here, self._to, self._now_ms)
            except NotAnEnvelope as error:
                raise LeftAlone(str(error)) from None
        if dead.UNDELIVERED_REASON not in said:
            raise LeftAlone("they are not dead: move them")
        if said.get(dead.BODY_TRUNCATED) in (True, "true"):
            raise LeftAlone("their bodies were cut when they died")
        to = self._to or destination_of(str(said.get(dead.ORIGINAL_DESTINATION, "")))
        if to is None or to.temporary:
            raise LeftAlone("it is not known where they came from: name a destination")
        return relocated(
            message,
            to,
            {name: value for name, value in said.items() if not name.startswith(_DEAD)},
        )


def _queue(to: str) -> str:
    """:raises Refused: it means a topic."""
    if to.startswith("topic:"):
        raise Refused(
            f"{to!r} is a topic, and messages are moved and copied to queues; 'queue:{to}' is the queue of that name",
            "bad_request",
        )
    return to.removeprefix("queue:")


def _which(request: AdminRequest) -> tuple[str, Chosen, bool]:
    chosen = Chosen(
        request.text("id"), request.text("selector"), request.number("limit", 0, 0, _MOST)
    )
    if not (chosen.message_id or chosen.selector.strip() or chosen.limit):
        raise Refused(
            "which messages is not said: give id, selector or limit; 'purge dst' empties a queue",
            "bad_request",
        )
    return request.needed("name"), chosen, request.flag("dry_run")
