"""The console of the broker's owner, made from its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.logger import Logger

from bridge.manager import BridgeServiceManager
from gateway.admin.console.actions import ACTIONS
from gateway.admin.console.administration import administration_actions, administration_views
from gateway.admin.console.bridges import bridge_views
from gateway.admin.console.connections import connection_views
from gateway.admin.console.destinations import destination_views
from gateway.admin.console.explained import Explained
from gateway.admin.console.journeys import journey_views
from gateway.admin.console.message_actions import MESSAGE_ACTIONS
from gateway.admin.console.messages import message_views
from gateway.admin.console.overview import Overview, overview_views
from gateway.admin.console.sessions import Sessions
from gateway.admin.console.site import Console
from gateway.admin.console.traces import TRACE_ACTIONS, trace_views
from gateway.admin.console.transactions import TRANSACTION_ACTIONS, transaction_views
from gateway.admin.console.trying import trying_views
from gateway.admin.service.requests import Routes
from gateway.admin.service.service import Identify, MakePages
from gateway.admin.service.settings import SESSION_IDLE, SESSION_LIFE, TLS_ENABLED
from gateway.broker.operator.paging import Paging
from gateway.broker.operator.views import BrokerView, Totals
from gateway.instance.layout import Layout
from gateway.instance.settings import Settings
from gateway.reactor.clocks import wall_ms
from gateway.stomp.listeners import Listener
from gateway.stomp.open_listeners import ListenerView


def console(
    reactor: Any,
    settings: Settings,
    layout: Layout,
    bridges: BridgeServiceManager,
    broker: Callable[[Totals], BrokerView],
    paging: Paging,
    troubles: Callable[[], Sequence[str]],
    websockets: Callable[[], Sequence[tuple[Listener, ListenerView]]],
) -> MakePages:
    """Return what makes the console once its routes are there.

    :param broker: the broker as a whole, given what its destinations have together.
    :param troubles: why clients cannot be served, sentences.
    :param websockets: the listeners that take STOMP over WebSocket, open or not.
    """
    now_ms = partial(wall_ms, reactor)

    def made(routes: Routes, identify: Identify) -> Console:
        explained = Explained(routes, reactor.seconds)
        overview = Overview(routes, explained, broker, paging, bridges, troubles, now_ms)
        return Console(
            reactor,
            routes,
            identify,
            Sessions(reactor.seconds, settings[SESSION_LIFE], settings[SESSION_IDLE]),
            [
                *overview_views(overview),
                *destination_views(paging, explained, now_ms),
                *message_views(routes, explained, paging.dead_queues, now_ms),
                *journey_views(routes, now_ms),
                *bridge_views(routes, explained, bridges, now_ms),
                *connection_views(paging, routes, explained, now_ms),
                *transaction_views(routes, now_ms),
                *trace_views(routes, now_ms),
                *trying_views(websockets),
                *administration_views(routes),
            ],
            {
                **ACTIONS,
                **MESSAGE_ACTIONS,
                **TRANSACTION_ACTIONS,
                **TRACE_ACTIONS,
                **administration_actions(layout.varhome, layout.instance),
            },
            settings[TLS_ENABLED],
            Logger(namespace="gateway.admin"),
        )

    return made
