"""Who owns the broker, as resources of the admin service.

Owns their form in JSON. What an operation does, the port :class:`Ownership` knows.

=================================================  ===============================================
``GET /v1/brokers``                                ``brokers``: every process of this broker
``POST /v1/broker/takeover`` ``{"broker"}``        at one that stands by: have the owner give it up
``POST /v1/broker/quiesce``                        at the owner: give it to one that stands by
``POST /v1/broker/shutdown``                       end this process in order
=================================================  ===============================================

Each operation answers before it is done, for it ends the service that was asked. Fields of a
process are those of :class:`Member`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.admin.service.requests import AdminRequest, Routes


@dataclass(frozen=True)
class Member:
    """A process of a broker.

    :param broker: the broker's id.
    :param cluster: the id of its cluster, "" for none.
    :param node: what the process is called.
    :param state: ``OWNER``, ``STANDBY``, or ``ENDED`` for the last owner of a broker that has none.
    :param since: when it became the owner, as text; "" for one that stands by.
    :param here: whether it is the process that was asked.
    """

    broker: str
    cluster: str
    node: str
    state: str
    since: str
    here: bool


class Ownership(Protocol):
    """The ownership of a broker, as one of its processes has it."""

    async def members(self) -> Sequence[Member]:
        """Return every process of the broker, the owner first.

        :raises Refused: the database cannot be asked.
        """

    async def take_over(self, broker: str) -> None:
        """Begin to take the broker over from its owner.

        :raises Refused: this process is the owner, or stands by for another broker.
        """

    async def quiesce(self) -> None:
        """Begin to give the broker to a process that stands by, and end.

        :raises Refused: there is no such process, or this process is not the owner.
        """

    async def shut_down(self) -> None:
        """Begin to end this process."""


class OwnershipResources:
    """The processes of the broker as resources."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/brokers", self._members)
        routes.add("POST", "/v1/broker/takeover", self._take_over)
        routes.add("POST", "/v1/broker/quiesce", self._quiesce)
        routes.add("POST", "/v1/broker/shutdown", self._shut_down)

    async def _members(self, request: AdminRequest) -> object:
        return {"brokers": list(await self._ownership.members())}

    async def _take_over(self, request: AdminRequest) -> object:
        broker = request.needed("broker")
        await self._ownership.take_over(broker)
        return {"broker": broker}

    async def _quiesce(self, request: AdminRequest) -> object:
        await self._ownership.quiesce()
        return {}

    async def _shut_down(self, request: AdminRequest) -> object:
        await self._ownership.shut_down()
        return {}
