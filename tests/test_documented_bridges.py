"""What the pages about JMS bridges show is right: their tables name what there is, their XML is
read, their examples work.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from bridge.config.document import declarations
from bridge.config.model import ConnectionFactory
from bridge.config.reader import read
from bridge.connections.factories import GROUP, JMS_PREFIX, JMS_PROPERTIES, Embedded, Factories
from bridge.link.states import Events
from bridge.providers.amqp import options as amqp
from bridge.providers.amqp.peers import Peer
from bridge.providers.jms.java_command import JavaOptions
from bridge.providers.stomp.options import DIALECTS, StompOptions, capabilities_of
from gateway.messaging.dead import BRIDGE_PROPERTIES, BridgeDeadReason
from gateway.messaging.destination import Queue
from gateway.messaging.errors import MessageRejected, MessagingError
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import Credentials, Mode
from gateway.messaging.transformer import BridgeType, transformed
from gateway.transformer_loading import load_transformer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ("jmsbridge", "from_openmq", "from_hornetq")


def page(name: str) -> str:
    return (DOCS / f"{name}.rst").read_text()


def rows(text: str) -> Iterator[list[str]]:
    """The rows of the list tables in a text, each cell as one line."""
    for row in re.split(r"^   \* - ", text, flags=re.MULTILINE)[1:]:
        yield [
            " ".join(cell.split()) for cell in re.split(r"^     -(?: |$)", row, flags=re.MULTILINE)
        ]


def attributes_table(element: str) -> dict[str, tuple[str, str]]:
    """What the page says of an element: type and default by attribute."""
    section = page("jmsbridge").split(f".. _{element}-attributes:\n")[1].split("\n.. _")[0]
    return {
        cells[0].strip("`"): (cells[1], cells[2].strip("`"))
        for cells in rows(section)
        if cells[0] != "Attribute"
    }


@pytest.mark.parametrize(
    "element",
    ["jmsbridge", "link", "source", "target", "rule", "dmq", "connection-factory", "destination"],
)
def test_each_attribute_is_there_with_its_default(element: str) -> None:
    declared = declarations()[element].attributes
    shown = attributes_table(element)
    assert set(shown) == set(declared)
    for name, attribute in declared.items():
        kind, default = shown[name]
        assert default == ("required" if attribute.required else attribute.default or "none"), name
        if set(attribute.choices) == {"true", "false"}:
            assert kind == "Boolean", name
        else:
            assert kind == (
                "Choice"
                if attribute.choices
                else "Integer"
                if (attribute.default or "x").lstrip("-").isdigit()
                else kind
            )


@pytest.mark.parametrize(
    ("name", "options"),
    [("jmsbridge", StompOptions), ("amqp", amqp.AmqpOptions)],
    ids=["stomp", "amqp"],
)
def test_the_options_of_brokers_are_there_with_their_defaults(name: str, options: Any) -> None:
    prefix = options.PREFIX
    shown = {
        cells[0].strip("`"): cells[1].strip("`")
        for cells in rows(page(name))
        if cells[0].startswith(f"``{prefix}")
    }
    declared = {prefix + field.name.replace("_", "-"): field.default for field in fields(options)}
    assert set(shown) == set(declared)
    for name, default in declared.items():
        if isinstance(default, int | float):
            assert float(shown[name]) == default, name


def test_what_each_stomp_broker_can_do_is_as_the_table_says() -> None:
    said = {}
    for line in page("jmsbridge").splitlines():
        found = re.fullmatch(r"``(\w+)`` +(yes|no) +(yes|no) +(yes|no)\b.*", line)
        if found is not None:
            said[found[1]] = tuple(word == "yes" for word in found.groups()[1:])
    can = {name: capabilities_of(dialect) for name, dialect in DIALECTS.items()}
    assert said == {name: (one.durable, one.selectors, one.transacted) for name, one in can.items()}


def test_what_each_amqp_peer_can_do_is_as_the_table_says() -> None:
    table = page("amqp").split("\n* No broker has XA")[0]
    said = {cells[0].strip("`"): cells[2:] for cells in rows(table) if len(cells) == 8}
    said.pop("amqp.peer")

    def can(peer: Peer) -> list[str]:
        able = peer.capabilities
        asked = (
            able.transacted,
            able.durable,
            able.temporary,
            able.selectors,
            able.browse,
            able.duplicate_ids,
        )
        return ["yes" if each else "no" for each in asked]

    assert said == {name: can(peer) for name, peer in amqp.DECLARABLE.items()}


def test_the_properties_of_jms_factories_are_there() -> None:
    shown = {
        cells[0].strip("`")
        for cells in rows(page("jmsbridge"))
        if cells[0].startswith(f"``{JMS_PREFIX}")
    }
    assert set(JMS_PROPERTIES) <= shown


def test_the_properties_of_dead_messages_are_there() -> None:
    shown = {
        cells[0].strip("`"): cells
        for cells in rows(page("jmsbridge"))
        if cells[0].startswith("``JMS_SUN_JMSBRIDGE_")
    }
    assert set(shown) == BRIDGE_PROPERTIES
    for reason in BridgeDeadReason:
        assert f"``{reason.value}``" in shown["JMS_SUN_JMSBRIDGE_DMQ_REASON"][2]


def test_each_command_in_each_state_has_a_cell() -> None:
    from bridge.link.status import LinkState

    table = (
        page("jmsbridge")
        .split("What a command does in each of them:")[1]
        .split("A command waits")[0]
    )
    assert re.findall(r"^``(\w+)``", table, flags=re.MULTILINE) == [
        *(
            "UNINITIALIZED",
            "STOPPED",
            "STARTING",
            "STARTED",
            "RETRYING",
            "STALLED",
            "PAUSING",
            "PAUSED",
            "STOPPING",
            "FAILED",
        )
    ]
    assert {state.value for state in LinkState} == set(
        re.findall(r"^``(\w+)``", table, flags=re.MULTILINE)
    )
    assert all(
        callable(getattr(Events, command)) for command in table.split("State", 1)[1].split()[:4]
    )


def documents() -> list[Any]:
    found = []
    for name in PAGES:
        blocks = re.split(r"^\.\. code-block:: xml\n", page(name), flags=re.MULTILINE)[1:]
        for number, block in enumerate(blocks, 1):
            text = dedent(re.split(r"\n(?=\S)", block, maxsplit=1)[0])
            if "<jmsbridge" in text:
                found.append(pytest.param(text, id=f"{name} {number}"))
    readme = dedent(
        re.findall(
            r"^ +<jmsbridge.*?</jmsbridge>",
            (ROOT / "README.rst").read_text(),
            re.MULTILINE | re.DOTALL,
        )[0]
    )
    return [*found, pytest.param(readme, id="README")]


@pytest.mark.parametrize("document", documents())
def test_the_configurations_are_read_without_a_warning(document: str) -> None:
    bridge, warnings = read(
        document.strip().encode(), "page", passwords={"rabbit": "secret", "activemq": "secret"}
    )
    assert (warnings, [link.name for link in bridge.links if link.transacted]) == ([], [])
    assert bridge.links


def test_the_error_message_is_as_it_is_shown() -> None:
    shown = next(
        line.strip()
        for line in page("jmsbridge").splitlines()
        if line.startswith("    shop.xml:4:")
    )
    document: str = next(case.values[0] for case in documents() if case.id == "jmsbridge 1").strip()
    wrong = document.replace('destination-ref="incoming"', 'destination-ref="incomming"').replace(
        "\n    <source", "<source"
    )
    from bridge.config.problems import ConfigurationError

    with pytest.raises(ConfigurationError) as refused:
        read(wrong.encode(), "shop.xml", passwords={"rabbit": "secret"})
    assert [str(problem) for problem in refused.value.problems] == [shown]


def test_the_transformer_sends_by_country() -> None:
    transformer = load_transformer("by_country.ByCountry", "message-transformer-class", DOCS)

    def after(**properties: Any) -> Any:
        message = Message(
            Headers(Queue("orders"), body_type=BodyType.TEXT, properties=properties), b"one"
        )
        return transformed(
            transformer,
            BridgeType.JMS,
            message,
            read_only=True,
            charset_name=None,
            source="a",
            target="b",
            properties={"prefix": "orders-", "JMS_SUN_JMSBRIDGE_NAME": "shop"},
        )

    sent = after(country="FR", weight="12")
    assert (sent.branch_to, dict(sent.message.headers.properties), sent.no_transfer) == (
        "orders-fr",
        {"weight": "12"},
        False,
    )
    assert after(test=True).no_transfer
    assert (after().branch_to, after().no_transfer) == (None, False)


def factories(name: str) -> Factories:
    point = EntryPoint(name, f"{name}:provider", GROUP)
    nobody: Any = None
    return Factories(
        reactor, Embedded(nobody, Credentials("", "")), JavaOptions, lambda: {name: point}
    )


@pytest_twisted.ensureDeferred
async def test_the_provider_writes_what_it_is_sent_into_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    factory = factories("written_down").get(
        ConnectionFactory(
            "archive", properties={"provider": "written_down", "directory": str(tmp_path)}
        )
    )
    connection = await factory.connect(None, lambda error: None)
    session = connection.session(Mode.AUTO)
    messages = [
        Message(Headers(Queue("orders"), body_type=BodyType.TEXT), body)
        for body in (b"one", b"two\nlines")
    ]
    session.send(messages)
    done: Deferred[MessagingError | None] = Deferred()
    session.completion(done.callback)
    assert not done.called
    assert await done is None
    assert (tmp_path / "orders").read_bytes() == b"one\ntwo\\nlines\n"
    assert all(message.message_id and message.timestamp for message in messages)
    with pytest.raises(MessageRejected):
        session.send([Message(Headers(Queue("../orders"), body_type=BodyType.TEXT), b"")])
    (tmp_path / "orders").unlink()
    tmp_path.rmdir()
    failing: Deferred[MessagingError | None] = Deferred()
    session.send([Message(Headers(Queue("orders"), body_type=BodyType.TEXT), b"")])
    session.completion(failing.callback)
    assert isinstance(await failing, MessagingError)
    await connection.close()
    sys.modules.pop("written_down")


def test_the_provider_of_a_broker_that_moves_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.setenv("BROKER", "stomp://mq.example.org:61613")
    properties = {"provider": "moving_broker", "variable": "BROKER", "stomp.dialect": "rabbitmq"}
    factory = factories("moving_broker").get(ConnectionFactory("moving", properties=properties))
    assert factory.provider.resource == "stomp://mq.example.org:61613"
    assert factory.provider.capabilities == capabilities_of(DIALECTS["rabbitmq"])
    sys.modules.pop("moving_broker")
