"""Who may manage the broker by messages, and the reply to each request.

Owns the check of the user, which is made anew for each request. Those may ask who have a role in the
console: viewers read, operators act. All others get an ERROR, and nothing is done. The access rules
must let the user send to ``activemq.management``, too, and to where the reply goes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from gateway.admin.management.controls import Asking, Control, V, parameters, result_text
from gateway.admin.management.of_addresses import ADDRESSES, address_view
from gateway.admin.management.of_broker import BROKER
from gateway.admin.management.of_queues import DURABLES, QUEUES, durable_view, queue_view
from gateway.admin.service.requests import Refused, Routes, refusal
from gateway.admin.service.roles import Role
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.security.access import Operation
from gateway.broker.security.users import Principal
from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.instance.logs import Strangers
from gateway.instance.problems import printable
from gateway.messaging.errors import AccessDenied, ProviderUnavailable
from gateway.messaging.provider import Connection
from gateway.reactor.deferreds import deferred
from gateway.stomp.destinations import MANAGEMENT
from gateway.stomp.management import Asked, Reply

#: What names of queues and addresses may begin with, as clients write them.
_PREFIXES: Final = ("/queue/", "/topic/")


class MessageManagement:
    """Answers requests, once :meth:`serve` has said what they are about.

    :param clock: the reactor.
    :param role_of: the role of a user who is connected from an address, as it is now; None for none.
    :param log: gets the lines of the audit, and defects.
    """

    def __init__(
        self,
        clock: IReactorTime,
        role_of: Callable[[Principal, str], Role | None],
        log: Logger,
    ) -> None:
        self._role_of: Final = role_of
        self._log: Final = log
        self._strangers: Final = Strangers(clock, log)
        self._served: tuple[BrokerAdministration, EmbeddedProvider, Routes] | None = None

    def serve(
        self, broker: BrokerAdministration, provider: EmbeddedProvider, routes: Routes
    ) -> None:
        """Answer by these from now on.

        :param routes: the admin service's.
        """
        self._served = broker, provider, routes

    def ask(self, connection: Connection, asked: Asked) -> Deferred[Reply]:
        """Carry a request out, as :data:`gateway.stomp.management.Answer`.

        :param connection: the embedded broker's, behind the client's.
        :raises AccessDenied: the user may not manage it, or not have the reply sent there.
        :raises ProviderUnavailable: the broker is not open.
        """
        if self._served is None or not isinstance(connection, EmbeddedConnection):
            raise ProviderUnavailable("the broker cannot be managed by messages now")
        broker, provider, routes = self._served
        routing = connection.routing
        role = self._role_of(routing.principal, asked.address)
        try:
            if role is None:
                raise AccessDenied(connection.user, "manage", MANAGEMENT.name)
            routing.check_allowed(Operation.PRODUCE, MANAGEMENT)
            if asked.reply_to is not None:
                # Else it would be done, and the reply refused.
                if asked.elsewhere:
                    routing.check_allowed(Operation.PRODUCE, asked.reply_to)
                else:
                    routing.check_producible(asked.reply_to)
        except AccessDenied as denied:
            self._tell_denied(connection.user, asked, denied)
            raise
        asking = Asking(connection.user, asked.address, role, routes, broker, provider, self._log)
        answered = self._answered(asking, asked)

        def told(reply: Reply) -> Reply | Deferred[Reply]:
            # It may have ended itself, and hears of that at the end of this turn.
            return reply if routing.ended is None else Deferred()

        return answered.addCallback(told)

    def _tell_denied(self, user: str, asked: Asked, denied: AccessDenied) -> None:
        kind = "requests to manage the broker by users who may not"
        if self._strangers.may_log(kind, LogLevel.info, asked.address):
            self._log.info(
                "audit: {user} from {host} was refused by message: {request}: {text}",
                user=user,
                host=asked.address,
                request=printable(f"{asked.resource} {asked.operation or asked.attribute}")[:300],
                text=str(denied),
            )

    @deferred
    async def _answered(self, asking: Asking, asked: Asked) -> Reply:
        try:
            return Reply(True, result_text(await _result(asking, asked)))
        except Exception as error:  # noqa: BLE001
            refused = refusal(error)
            if refused is not None:
                return Reply(False, result_text(refused.text))
            incident = secrets.token_hex(4)
            self._log.failure(
                "incident {incident}: a request by message to {resource}",
                incident=incident,
                resource=printable(asked.resource),
            )
            text = f"internal error, incident {incident}; the server's log has it"
            return Reply(False, result_text(text))


async def _result(asking: Asking, asked: Asked) -> object:
    """Return what was asked for. :raises Exception: as it fails."""
    resource = asked.resource
    kind, _, name = resource.partition(".")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    values = parameters(asked.parameters) if asked.operation else []
    if resource == "broker":
        return await _of(BROKER, asking, asked, await asking.broker.broker(), values)
    if kind == "queue" and name:
        durable = durable_view(asking, name)
        if durable is not None:
            return await _of(DURABLES, asking, asked, durable, values)
        return await _of(QUEUES, asking, asked, await queue_view(asking, name), values)
    if kind == "address" and name:
        return await _of(ADDRESSES, asking, asked, await address_view(asking, name), values)
    raise Refused(
        f"there is no resource '{resource[:200]}' here: expected broker, queue.NAME or address.NAME",
        "unknown_resource",
        HTTPStatus.NOT_FOUND,
    )


async def _of(
    control: Control[V], asking: Asking, asked: Asked, view: V, values: Sequence[object]
) -> object:
    if asked.operation:
        return await control.invoke(asking, asked.resource, view, asked.operation, values)
    return await control.read(asking, asked.resource, view, asked.attribute)
