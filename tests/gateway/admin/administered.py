"""A broker, admin service, port mapper and STOMP bridge in this process, administered by ``imqcmd``.

All of it is on real sockets; the command runs on a thread.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet import reactor as global_reactor
from twisted.internet.threads import deferToThread

from gateway import __version__
from gateway.admin.cli import imqcmd
from gateway.admin.service.broker_resources import BrokerResources
from gateway.admin.service.message_resources import QueueMessages
from gateway.admin.service.order_resources import MessageOrders
from gateway.admin.service.service import AdminService
from gateway.admin.service.settings import AdminOptions
from gateway.admin.service.subscription_resources import SubscriptionResources
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.operator.xa_administration import BranchAdministration
from gateway.broker.properties.settings import BrokerOptions
from gateway.instance.listening import server_endpoint
from gateway.instance.portmapper import PortMapper
from gateway.journal.journal import JournalStanding
from gateway.messaging.provider import Credentials
from gateway.stomp.service import StompService
from gateway.stomp.settings import SessionOptions, StompOptions, TransportOptions
from tests.gateway.admin.asking import ADMIN
from tests.gateway.broker.brokers import Deployment

reactor = cast(Any, global_reactor)
HOST = "127.0.0.1"
JOURNAL = {"journal": asdict(JournalStanding("links", 12, 3456, 2, True))}


@dataclass
class Live:
    """A broker that is administered."""

    deployment: Deployment
    stomp: StompService
    service: AdminService
    port: int
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def options(self) -> list[str]:
        return [
            "-b",
            f"{HOST}:{self.port}",
            "-u",
            ADMIN[0],
            "-passfile",
            str(self.folder / "passfile"),
        ]

    @property
    def broker_table(self) -> str:
        return f"-------------------------\nHost         Primary Port\n-------------------------\n127.0.0.1    {self.port}\n\n"

    async def __call__(self, *arguments: str, code: int = 0, err: str = "") -> str:
        """What it prints; it must end with that code, and say no more than ``err`` on the standard
        error if it is 0.
        """
        self.capsys.readouterr()
        ended = await deferToThread(imqcmd.run, [*arguments, *self.options])
        out, said = self.capsys.readouterr()
        assert (ended, said if not code else err) == (code, err), out + said
        return said if code else out

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self(*arguments, "--json"))


@asynccontextmanager
async def running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: BrokerOptions | None = None
) -> AsyncIterator[Live]:
    (tmp_path / "passfile").write_text(f"imq.imqcmd.password={ADMIN[1]}\n")
    (tmp_path / "passfile").chmod(0o600)
    deployment = Deployment(reactor, tmp_path, "sqlite", options or BrokerOptions(reap_time=0))
    stomp = StompService(
        reactor,
        deployment.turn,
        deployment.provider,
        StompOptions(
            hostname=HOST,
            tcp_port=0,
            tls_enabled=False,
            session=SessionOptions(),
            transport=TransportOptions(),
        ),
    )
    mapper = PortMapper(reactor, "test", __version__)
    listening: Any = await mapper.listen(server_endpoint(reactor, HOST, 0))

    def holders() -> dict[int, str]:
        return {
            id(each): "bridge shop, link one, source"
            for each in deployment.provider.connections
            if each.user == "link"
        }

    administration = BrokerAdministration(
        deployment.provider, lambda: stomp.clients, holders=holders, varhome="/var/imq"
    )
    service = AdminService(
        reactor,
        AdminOptions(user=ADMIN[0], password=ADMIN[1]),
        [
            BrokerResources(
                administration, BranchAdministration(deployment.provider), lambda: JOURNAL
            ),
            QueueMessages(
                reactor,
                deployment.provider,
                lambda: Credentials(*ADMIN),
                partial(administration.destination, "queue"),
            ),
            MessageOrders(reactor, administration.messages, deployment.provider.resource),
            SubscriptionResources(deployment.provider, lambda: stomp.sessions),
        ],
        register_port=mapper.register,
    )
    await stomp.start()
    await service.start()
    try:
        yield Live(deployment, stomp, service, listening.getHost().port, tmp_path, capsys)
    finally:
        await stomp.stop()
        await service.stop()
        await listening.stopListening()
        mapper.close_connections()
        await deployment.close()
