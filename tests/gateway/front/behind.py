"""Gateways with another broker behind them, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote
from xml.sax.saxutils import quoteattr

from gateway.broker.security.access import DEFAULT_RULES
from tests.bridge.providers.jms.stubs import compiled
from tests.conformance.client import Client, Frame
from tests.gateway_process import HOST, GatewayProcess, free_port
from tests.servers import activemq, rabbitmq

#: In these, a SEND without ``persistent`` is not persistent.
PROFILES: Final = ("activemq", "artemis", "rabbitmq")
#: Connects to a gateway with listeners for profiles: by its own port, or that of a profile.
Connect: TypeAlias = Callable[..., Client]

_CLASS_PATH = "/usr/share/activemq/lib/*"


@dataclass
class Factory:
    """A ``connection-factory`` element.

    :param login: user and password of the connections; empty for none.
    """

    ref_name: str
    lookup_name: str
    login: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        user = f' username="{self.login}" password="{self.login}"' if self.login else ""
        named = "".join(
            f"<property name={quoteattr(name)} value={quoteattr(value)}/>"
            for name, value in self.properties.items()
        )
        return f'<connection-factory ref-name="{self.ref_name}" lookup-name="{self.lookup_name}"{user}>{named}</connection-factory>'


def activemq_by_jms(name: str = "there", port: int | None = None) -> Factory:
    port = port or activemq().openwire_port
    return Factory(
        name,
        "ConnectionFactory",
        properties={
            "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
            "java.naming.provider.url": f"tcp://{HOST}:{port}",
            "imq.jms.classpath": _CLASS_PATH,
        },
    )


def activemq_by_stomp(name: str = "there", port: int | None = None) -> Factory:
    return Factory(name, f"stomp://{HOST}:{port or activemq().port}")


def rabbitmq_by_stomp(name: str = "there") -> Factory:
    return Factory(name, f"stomp://{HOST}:{rabbitmq().port}", "guest")


def rabbitmq_by_amqp(name: str = "there", port: int | None = None) -> Factory:
    return Factory(name, f"amqp://{HOST}:{port or rabbitmq().amqp_port}", "guest")


def gateway_by_stomp(port: int, name: str = "there") -> Factory:
    return Factory(name, f"stomp://{HOST}:{port}", "guest")


def stub_by_jms(name: str = "there") -> Factory:
    return Factory(
        name,
        "cf",
        properties={
            "java.naming.factory.initial": "stub.StubProvider",
            "java.naming.provider.url": "stub:",
            "imq.jms.classpath": str(compiled("javax")),
            "imq.jms.jvmOptions": "-Xmx64m",
        },
    )


@contextmanager
def in_front_of(
    folder: Path, *factories: Factory, main: str = "there", **settings: str
) -> Iterator[GatewayProcess]:
    """Run a gateway in front of other brokers.

    :param main: the ``ref-name`` of the one for all that is no other's, or ``embedded``.
    :param settings: more of ``imq.bridge.stomp.provider.``; ``__`` stands for a dot.
    """
    with GatewayProcess(
        folder, settings=settings_for(folder, *factories, main=main, **settings)
    ) as gateway:
        yield gateway


def settings_for(
    folder: Path, *factories: Factory, main: str = "there", **settings: str
) -> dict[str, str]:
    """Write the file, and return the settings."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "brokers.xml"
    file.write_text(f'<jmsbridge name="stomp">{"".join(map(str, factories))}</jmsbridge>')
    file.chmod(0o600)
    common = "imq.bridge.stomp.provider"
    return {
        common: main,
        f"{common}.xmlurl": str(file),
        **{f"{common}.{name.replace('__', '.')}": value for name, value in settings.items()},
    }


def with_profiles(
    folder: Path, factory: Factory, rules: str = "", **settings: str
) -> GatewayProcess:
    """Return a gateway with a listener for each profile besides.

    :param rules: of access, besides those of a new instance.
    :param settings: as for :func:`in_front_of`.
    """
    given = settings_for(folder, factory, **settings)
    for profile in PROFILES:
        listener = f"imq.bridge.stomp.listener.{profile}"
        given |= {f"{listener}.port": str(free_port()), f"{listener}.profile": profile}
    gateway = GatewayProcess(folder, settings=given)
    file = gateway.directory / "etc" / "accesscontrol.properties"
    file.parent.mkdir(parents=True)
    file.write_text(DEFAULT_RULES + rules)
    file.chmod(0o600)
    # A new instance gives it to its user admin.
    (file.parent / "passfile").write_text("imq.imqcmd.password=admin\n")
    (file.parent / "passfile").chmod(0o600)
    return gateway


def of_this_test(client: Client, text: str) -> Frame:
    """The next message with this text, as other tests send, too."""
    while (message := client.message()).text != text:
        pass
    return message


def check_exchange(
    there: str, text: str, client: Client, own: Client, senders: Iterable[Client]
) -> None:
    """Check that RabbitMQ's own clients and a gateway's name it alike.

    As a destination and in reply-to, whichever sends.
    """
    client.subscribe(there)
    own.subscribe(there)
    for each in senders:
        each.put(there, text, reply_to=there)
        for receiver in (own, client):
            message = of_this_test(receiver, text)
            # RabbitMQ writes what is not ASCII by numbers; a reply destination stays as it was sent.
            named = unquote(message["destination"])
            assert (named, unquote(message["reply-to"])) == (unquote(there), unquote(there))
            assert message["subscription"] == "s"
    client.send("SEND", {"destination": message["reply-to"]}, f"{text} replied")
    for receiver in (own, client):
        assert of_this_test(receiver, f"{text} replied").text == f"{text} replied"
