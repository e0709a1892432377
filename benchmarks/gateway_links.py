"""The gateway as a mover: a bridge with a link for each route and size.

Links are started and stopped through its admin service as an operator does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from benchmarks.endpoint import Refused
from benchmarks.jms_bridge import OpenWireActiveMQ
from benchmarks.movers import (
    BATCHES,
    ONCE_BATCHES,
    ONCE_ROUTES,
    QUALITIES_TO_ACTIVEMQ,
    QUALITIES_WITHIN,
    QUALITY_BATCHES,
    ROUND,
    ROUTES,
    UNSAID,
    Mover,
    Route,
    Way,
)
from benchmarks.peers import Gateway, Peer
from gateway.admin.cli.client import AdminClient, AdminError, find

_HERE = '<connection-factory ref-name="here"/>'
# Each link is of a bridge of its own, so that it is started and stopped apart, and with it whatever
# it needs.
_ALL = [
    *((route, batch) for route in ROUTES for batch in BATCHES),
    (ROUND, max(BATCHES)),
    *((route, batch) for route in ONCE_ROUTES for batch in ONCE_BATCHES),
    *(
        (route, batch)
        for route in (*QUALITIES_WITHIN, *QUALITIES_TO_ACTIVEMQ)
        for batch in QUALITY_BATCHES
    ),
]


class GatewayWithLinks(Mover, Gateway):
    """The gateway with JMS bridges that do not start by themselves.

    Everything else of them is as it is by default.
    """

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self._admin: AdminClient | None = None

    def make(self, foreign: str, folder: Path) -> Peer:
        return Gateway(folder) if foreign == "gateway" else OpenWireActiveMQ(folder)

    def settings(self) -> dict[str, str]:
        names = [_bridge(route, batch) for route, batch in _ALL]
        settings = {**super().settings(), "imq.bridge.activelist": ",".join(["stomp", *names])}
        for name in names:
            settings[f"imq.bridge.{name}.type"] = "jms"
            settings[f"imq.bridge.{name}.autostart"] = "false"
            settings[f"imq.bridge.{name}.xmlurl"] = str(self._file(name))
        return settings

    def begin(self, route: Route, batch: int) -> None:
        name = _bridge(route, batch)
        file = self._file(name)
        file.touch(mode=0o600)
        file.write_text(self.configuration(route, batch))
        self._ask("POST", f"/v1/bridges/{name}/start")
        link = self._link(route, batch)
        if link["state"] != "STARTED":
            raise Refused(f"{self.name}: link {name} is {link['state']}: {link['last_error']}")

    def end(self, route: Route, batch: int) -> None:
        self._ask("POST", f"/v1/bridges/{_bridge(route, batch)}/stop")

    def moved(self, route: Route, batch: int) -> int | None:
        sent: int = self._link(route, batch)["counters"]["sent"]
        return sent

    def configuration(self, route: Route, batch: int) -> str:
        """The file of the bridge of one link."""
        source, target = self.queues(route, batch)
        there = "here" if route.way is Way.WITHIN else "there"
        ends = {Way.WITHIN: ("here", "here"), Way.OUT: ("here", there), Way.IN: (there, "here")}[
            route.way
        ]
        name = quoteattr(_bridge(route, batch))
        size = "" if batch == UNSAID else f' max-batch-size="{batch}"'
        lines = [
            f"<jmsbridge name={name}>",
            f'<link name={name} quality-of-service="{route.quality.value}"{size}>',
            f'<source connection-factory-ref="{ends[0]}" destination-ref="source"/>',
            f'<target connection-factory-ref="{ends[1]}" destination-ref="target"/>',
            "</link>",
            _HERE,
            *([] if route.way is Way.WITHIN else self._there(route)),
            f'<destination ref-name="source" name={quoteattr(source)} type="queue"/>',
            f'<destination ref-name="target" name={quoteattr(target)} type="queue"/>',
            "</jmsbridge>",
        ]
        return "\n".join(lines) + "\n"

    def _there(self, route: Route) -> list[str]:
        other = self.foreign(route)
        if route.protocol == "stomp":
            attributes = f'username="{other.login}" password="{other.passcode}"'
            return [
                f'<connection-factory ref-name="there" lookup-name="stomp://127.0.0.1:{other.port}" {attributes}/>'
            ]
        assert isinstance(other, OpenWireActiveMQ)
        properties = {
            "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
            "java.naming.provider.url": other.url,
            "imq.jms.classpath": "/usr/share/activemq/lib/*",
        }
        return [
            f'<connection-factory ref-name="there" lookup-name="{"XA" if route.quality.transacted else ""}ConnectionFactory">',
            *(
                f'<property name="{name}" value={quoteattr(value)}/>'
                for name, value in properties.items()
            ),
            "</connection-factory>",
        ]

    def _file(self, bridge: str) -> Path:
        return self.folder / f"{bridge}.xml"

    def _link(self, route: Route, batch: int) -> dict[str, Any]:
        name = _bridge(route, batch)
        found: dict[str, Any] = self._ask("GET", f"/v1/links/{name}/{name}")["links"][0]
        return found

    def _ask(self, method: str, path: str) -> Any:
        try:
            if self._admin is None:
                lines = (self.instance / "etc" / "passfile").read_text().splitlines()
                passwords = dict(line.partition("=")[::2] for line in lines)
                address = find("127.0.0.1", self.port_mapper_port)
                self._admin = AdminClient(address, "admin", passwords["imq.bridge.admin.password"])
            return self._admin.ask(method, path)
        except AdminError as error:
            raise Refused(f"{self.name}: {method} {path}: {error.text}") from error


class PureGatewayWithLinks(GatewayWithLinks):
    """The same, as installed; see :class:`benchmarks.peers.PureGateway`."""

    name = "pure"
    path = None


def _bridge(route: Route, batch: int) -> str:
    """The name of a route's bridge, and of its link."""
    return f"{route.name}-{batch}"
