"""A STOMP client in the page, to try things out.

Owns which listeners it is offered, and by which addresses a browser reaches them. The client itself
is a script: it speaks to a listener, and nothing of that passes the console.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Final

from gateway.admin.console.view import View
from gateway.admin.service.requests import AdminRequest
from gateway.admin.service.roles import Role
from gateway.admin.service.settings import is_loopback
from gateway.stomp.listeners import PORT, WEBSOCKET, Listener
from gateway.stomp.open_listeners import ListenerView
from gateway.stomp.websocket.upgrade import ANY_ORIGIN

Listeners = Callable[[], Sequence[tuple[Listener, ListenerView]]]

#: What listens on every address.
_EVERY: Final = ("", "0.0.0.0", "::")
#: How a browser and settings call the own machine.
_LOCAL: Final = frozenset(("localhost", "127.0.0.1", "::1"))
#: What a Content-Security-Policy can name. It knows no IPv6 addresses.
_NAMEABLE: Final = re.compile(r"[a-z0-9_.-]+")


@dataclass(frozen=True)
class Offered:
    """A listener that a browser can connect to.

    :param origin: such as ``ws://broker.example.com:7674``.
    :param settings: how the names of its settings begin.
    :param admits: its own setting lets in pages of every host.
    """

    service: str
    origin: str
    path: str
    settings: str
    admits: bool


@dataclass(frozen=True)
class Missing:
    """A listener that cannot be offered.

    :param why: how a sentence about it goes on.
    """

    service: str
    why: str


def trying_views(listeners: Listeners) -> Sequence[View]:
    """Return the view with the client."""
    look = partial(_look, listeners)
    # Messages are read and taken there, which is more than a viewer does.
    return [View("try", "Try it", "try.html", look, 0, Role.OPERATOR, connects=True)]


async def _look(listeners: Listeners, asked: AdminRequest) -> Mapping[str, object]:
    found = [_reached(listener, view, asked.host) for listener, view in listeners()]
    offered = [each for each in found if isinstance(each, Offered)]
    return {
        "offered": offered,
        "missing": [each for each in found if isinstance(each, Missing)],
        "reached": [each.origin for each in offered],
        "wanted": (PORT.name, WEBSOCKET.name),
        "destination": asked.text("destination"),
    }


def _reached(listener: Listener, view: ListenerView, host: str) -> Offered | Missing:
    """Return how a page reaches a listener.

    :param host: of the page's address.
    """
    if view.state != "RUNNING":
        return Missing(view.service, f"is {view.state}")
    rules = listener.websocket
    assert rules is not None
    at = _host(view.address.lower(), host)
    if is_loopback(at) and not is_loopback(host):
        # The browser would ask its own machine.
        return Missing(view.service, f"listens on {view.address}, for its own machine only")
    if not _NAMEABLE.fullmatch(at):
        return Missing(
            view.service,
            "has no address that the security policy of a page can name: open the console by a name or an IPv4 address",
        )
    return Offered(
        view.service,
        f"{'wss' if listener.tls else 'ws'}://{at}:{view.port}",
        rules.path,
        f"{PORT.name.partition('NAME')[0]}{listener.name}",
        ANY_ORIGIN in rules.origins,
    )


def _host(address: str, host: str) -> str:
    """Return by which host a page reaches a listener.

    It is that of the page where that can be: the listener takes such a page by itself, and a
    certificate is made for a name.

    :param address: that the listener listens on.
    :param host: of the page's address.
    """
    if address in _EVERY or {address, host} <= _LOCAL:
        return host
    return address if host in _LOCAL or _is_ip(host) else host


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
