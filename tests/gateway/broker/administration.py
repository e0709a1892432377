"""An administrator of a stepped broker."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.operator.views import ConnectionView, DestinationView
from gateway.broker.properties.settings import BrokerOptions
from tests.gateway.broker.stepped_broker import Stepped

T = TypeVar("T")


def with_messages(where: str, folder: Path) -> Stepped:
    """A broker of which most of what waits is ``in memory``, or ``in the store`` only."""
    memory = (
        Memory(total=40 * OVERHEAD, share=10 * OVERHEAD, least=2 * OVERHEAD)
        if where == "in the store"
        else None
    )
    return Stepped(folder, BrokerOptions(reap_time=0), memory=memory)


def administration(stepped: Stepped) -> BrokerAdministration:
    return BrokerAdministration(stepped.provider, lambda: ())


def destinations(
    admin: BrokerAdministration, type: str = "", temporary: bool = False
) -> list[DestinationView]:
    """The destinations, where they are few enough for one turn."""
    found: list[DestinationView] = []
    assert admin.list_destinations(found.append, type, temporary).called
    return found


def connections(
    stepped: Stepped, admin: BrokerAdministration, service: str = ""
) -> list[ConnectionView]:
    """The connections."""
    found: list[ConnectionView] = []
    outcome(stepped, admin.list_connections(found.append, service))
    return found


def outcome(stepped: Stepped, asked: Deferred[T]) -> T:
    """What comes of it once reactor and disk have done all there is; raises what it fails with."""
    results: list[T | Failure] = []
    asked.addBoth(results.append)
    stepped.run_until_idle()
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    assert not isinstance(result, Failure)
    return result
