"""Links between real brokers: a bridge's file and a gateway that runs it.

Owns how the file is written and what of a link's state is asked. Tests say which links, from where
to where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from gateway.admin.cli.client import AdminClient, AdminError, find
from tests.crash.waiting import until
from tests.gateway_process import HOST, GatewayProcess

BRIDGE: Final = "proof"
#: Milliseconds after which a link tries to connect again.
RETRY_MS: Final = 100

AT_MOST_ONCE: Final = "AT_MOST_ONCE"
DUPLICATES_OK: Final = "DUPLICATES_OK"


@dataclass(frozen=True)
class Factory:
    """A connection factory: the element's attributes and properties."""

    ref: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


#: The broker of the gateway that runs the bridge.
HERE: Final = Factory("here")


def stomp(ref: str, port: int, **properties: str) -> Factory:
    """A STOMP broker on the loopback, for guest.

    :param properties: with underscores for hyphens, and without ``stomp.``
    """
    named = {f"stomp.{name.replace('_', '-')}": value for name, value in properties.items()}
    return Factory(
        ref,
        {"lookup-name": f"stomp://{HOST}:{port}", "username": "guest", "password": "guest"},
        named,
    )


def amqp(ref: str, port: int, **properties: str) -> Factory:
    """An AMQP 1.0 broker on the loopback, for guest.

    :param properties: with underscores for hyphens, and without ``amqp.``
    """
    named = {f"amqp.{name.replace('_', '-')}": value for name, value in properties.items()}
    return Factory(
        ref,
        {"lookup-name": f"amqp://{HOST}:{port}", "username": "guest", "password": "guest"},
        named,
    )


def activemq(ref: str, port: int) -> Factory:
    """An ActiveMQ by its JMS client."""
    environment = {
        "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
        "java.naming.provider.url": f"tcp://{HOST}:{port}",
        "imq.jms.classpath": "/usr/share/activemq/lib/*",
    }
    return Factory(ref, {"lookup-name": "ConnectionFactory"}, environment)


@dataclass(frozen=True)
class Link:
    """A link from ``NAME.in`` to ``NAME.out``.

    :param source: and ``target``: where these queues are.
    :param batch: its ``max-batch-size``.
    :param target_attributes: more of ``target``; its properties are ``target_properties``.
    :param source_kind: ``queue`` or ``topic``.
    :param source_attributes: more of ``source``.
    """

    name: str
    source: Factory
    target: Factory
    batch: int = 1
    quality: str = DUPLICATES_OK
    attributes: Mapping[str, str] = field(default_factory=dict)
    target_attributes: Mapping[str, str] = field(default_factory=dict)
    target_properties: Mapping[str, str] = field(default_factory=dict)
    source_kind: str = "queue"
    source_attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def source_queue(self) -> str:
        return f"/queue/{self.name}.in"

    @property
    def target_queue(self) -> str:
        return f"/queue/{self.name}.out"


def written(links: Sequence[Link]) -> str:
    """The file of a bridge with these links, their factories and their destinations."""
    factories = {factory.ref: factory for link in links for factory in (link.source, link.target)}
    lines = [f'<jmsbridge name="{BRIDGE}" log-message-transfer="false">']
    for link in links:
        attributes = {
            "name": link.name,
            "quality-of-service": link.quality,
            "max-batch-size": str(link.batch),
            "max-batch-time": "20",
            "failure-retry-interval": str(RETRY_MS),
            **link.attributes,
        }
        source = {
            "connection-factory-ref": link.source.ref,
            "destination-ref": f"{link.name}.in",
            **link.source_attributes,
        }
        target = {
            "connection-factory-ref": link.target.ref,
            "destination-ref": f"{link.name}.out",
            **link.target_attributes,
        }
        lines += [
            f"<link {_attributes(attributes)}>",
            f"  <source {_attributes(source)}/>",
            f"  <target {_attributes(target)}>",
            *_properties(link.target_properties),
            "  </target>",
            "</link>",
        ]
    for factory in factories.values():
        lines.append(
            f"<connection-factory {_attributes({'ref-name': factory.ref, **factory.attributes})}>"
        )
        lines += _properties(factory.properties)
        lines.append("</connection-factory>")
    for link in links:
        for end, kind in (("in", link.source_kind), ("out", "queue")):
            lines.append(
                f'<destination ref-name="{link.name}.{end}" name="{link.name}.{end}" type="{kind}"/>'
            )
    return "\n".join([*lines, "</jmsbridge>", ""])


def _properties(values: Mapping[str, str]) -> list[str]:
    return [
        f"  <property {_attributes({'name': name, 'value': value})}/>"
        for name, value in values.items()
    ]


def _attributes(values: Mapping[str, str]) -> str:
    return " ".join(f"{name}={quoteattr(value)}" for name, value in values.items())


class BridgedGateway(GatewayProcess):
    """A gateway with one JMS bridge.

    :param options: of :class:`GatewayProcess`.
    """

    def __init__(self, varhome: Path, links: Sequence[Link], **options: Any) -> None:
        self.links = {link.name: link for link in links}
        varhome.mkdir(parents=True, exist_ok=True)
        file = varhome / f"{BRIDGE}.xml"
        file.touch(mode=0o600)
        file.write_text(written(links))
        settings = {
            "imq.bridge.activelist": f"stomp,{BRIDGE}",
            f"imq.bridge.{BRIDGE}.type": "jms",
            f"imq.bridge.{BRIDGE}.xmlurl": str(file),
            **options.pop("settings", {}),
        }
        super().__init__(varhome, settings=settings, **options)
        self._admin: AdminClient | None = None

    def start(self) -> None:
        """Start it, and return once its bridges have been started, or have failed."""
        super().start()
        self.wait_for_output("is ready")

    def query(self, link: str) -> dict[str, Any]:
        """What the admin service tells of a link, which is what ``imqbridgemgr query link`` shows.

        :raises AdminError: it does not answer yet.
        """
        return self._link(lambda admin: admin.get(f"/v1/links/{BRIDGE}/{link}"))

    def why(self, link: str) -> dict[str, Any]:
        """What ``imqcmd why link`` shows.

        :raises AdminError: it does not answer yet.
        """
        found: dict[str, Any] = self._client().get("/v1/why/link", bridge=BRIDGE, link=link)
        return found

    def operate(self, operation: str, link: str) -> None:
        """Start, stop, pause or resume a link, as ``imqbridgemgr`` does."""
        self._link(
            lambda admin: admin.ask("POST", f"/v1/links/{BRIDGE}/{operation}", {"link": link})
        )

    def transactions(self) -> list[dict[str, Any]]:
        """The bridge's transactions, as ``imqbridgemgr list transactions`` shows them. :raises
        AdminError: it does not answer yet.
        """
        found: list[dict[str, Any]] = self._client().get(f"/v1/transactions/{BRIDGE}")[
            "transactions"
        ]
        return found

    def _link(self, ask: Callable[[AdminClient], Any]) -> dict[str, Any]:
        found: dict[str, Any] = ask(self._client())["links"][0]
        return found

    def _client(self) -> AdminClient:
        if self._admin is None:
            lines = (self.directory / "etc" / "passfile").read_text().splitlines()
            passwords = dict(line.partition("=")[::2] for line in lines)
            address = find(HOST, self.port_mapper_port)
            self._admin = AdminClient(address, "admin", passwords["imq.bridge.admin.password"])
        return self._admin

    def until_link(
        self, link: str, condition: Callable[[dict[str, Any]], object], what: str
    ) -> dict[str, Any]:
        """Wait until this holds of what is told of a link.

        :param what: for the failure.
        :returns: what is told then.
        """
        found: list[dict[str, Any]] = [{}]

        def holds() -> object:
            try:
                found[0] = self.query(link)
            except AdminError:
                self._admin = None  # it is being started
                return False
            return condition(found[0])

        until(
            holds,
            lambda: (
                f"link {link}: it never came to this: {what}. It is: {found[0]}\n{self.said}\n{self.log[-3000:]}"
            ),
        )
        return found[0]

    def until_moving(self, *links: str) -> None:
        """Wait until these links, or all, are STARTED."""
        for link in links or self.links:
            self.until_link(link, lambda told: told["state"] == "STARTED", "STARTED")
