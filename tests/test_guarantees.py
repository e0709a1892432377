"""The table of the documentation, which pairs of providers transfer exactly once and by what, is
what a link decides for each of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.config import model
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections
from bridge.link.delivery.guarantee import new_pump
from bridge.link.errors import NotOnce
from bridge.link.status import LinkCounters, OnceBy
from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.java_command import JavaOptions
from bridge.providers.jms.provider import JMSProvider
from bridge.providers.stomp.options import DIALECTS, capabilities_of
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.messaging.destination import Kind
from gateway.messaging.provider import Capabilities, Credentials

PAGE: Final = Path(__file__).parents[1] / "docs" / "exactly_once.rst"
REFUSED: Final = "refused"
#: What the table has for what a link relies on.
WORDS: Final = {OnceBy.XA: "XA", OnceBy.DUPLICATE_IDS: "ids", None: REFUSED}


@dataclass(frozen=True)
class Kindred:
    """A provider of which only that is known which matters here."""

    capabilities: Capabilities
    resource: str


def jms(xa: bool) -> Capabilities:
    """What a provider by JMS says once its factory was looked up."""
    clock: Any = Clock()
    provider = JMSProvider(clock, JMSFactory("factory", {}), JavaOptions(), "jms")
    provider._xa = xa
    return provider.capabilities


def capabilities() -> dict[str, tuple[str, Capabilities]]:
    """By the table's words, the kind of a factory and what its provider can do."""
    return {
        "embedded": ("embedded", EmbeddedProvider.capabilities),
        "JMS, XA": ("jms", jms(True)),
        "JMS": ("jms", jms(False)),
        **{name: ("stomp", capabilities_of(dialect)) for name, dialect in DIALECTS.items()},
    }


def factory(ref_name: str, name: str) -> AdministeredFactory:
    kind, can = capabilities()[name]
    config = model.ConnectionFactory(
        ref_name, lookup_name=None if kind == "embedded" else f"{kind}:{name}"
    )
    return AdministeredFactory(
        config,
        Kindred(can, f"{ref_name}:{name}"),  # type: ignore[arg-type]
        Credentials("", ""),
        kind,
    )


def decided(source: str, target: str) -> tuple[str, str]:
    """What a link between the two relies on when both are connected, in the table's words; and why
    it is refused.
    """
    factories = factory("from", source), factory("to", target)
    destination = model.Destination("q", "q", Kind.QUEUE)
    link = model.Link(
        "orders",
        model.Source(factories[0].config, destination),
        model.Target(factories[1].config, destination),
    )
    transfer: Any = SimpleNamespace(marks_duplicates=False)
    nobody: Any = None
    coordination: Any = SimpleNamespace(
        open=lambda: succeed(nobody),
        coordinator=lambda: nobody,
        unfinished=lambda *_: SimpleNamespace(undecided=nobody),
    )
    log = Logger()
    make = partial(
        new_pump,
        Clock(),
        link,
        *factories,
        Connections(Clock(), log),
        coordination,
        transfer,
        nobody,
        LinkCounters(),
        nobody,
        log,
        nobody,
        nobody,
        lambda lost: None,
        nobody,
        nobody,
    )
    try:
        made: list[Any] = []
        Deferred.fromCoroutine(make()).addBoth(made.append)
        if isinstance(made[0], Failure):
            made[0].raiseException()
        delivery = made[0].delivery
        if delivery.once_by is OnceBy.DUPLICATE_IDS:
            assert transfer.marks_duplicates
            refused: list[Any] = []
            Deferred.fromCoroutine(delivery.connected(None)).addErrback(
                lambda failure: refused.append(failure.value)
            )
            if refused:
                raise refused[0]
    except NotOnce as error:
        return REFUSED, str(error)
    return WORDS[delivery.once_by], ""


def table() -> dict[tuple[str, str], str]:
    """The table's cells by source and target."""
    bar, head, *rest = re.findall(
        r"^(?:=+  +=[= ]*|.+)$", PAGE.read_text().split(".. _guarantees:")[1], re.MULTILINE
    )
    lines = [bar, head, *rest]
    bars = [number for number, line in enumerate(lines) if re.fullmatch(r"=+(  +=+)+", line)]
    columns = [(found.start(), found.end()) for found in re.finditer("=+", lines[bars[0]])]

    def cells(line: str) -> list[str]:
        return [line[begin:end].strip() for begin, end in columns]

    targets = cells(lines[bars[0] + 1])[1:]
    rows = [cells(line) for line in lines[bars[1] + 1 : bars[2]]]
    return {
        (source.removeprefix("STOMP: "), target): cell
        for source, *found in rows
        for target, cell in zip(targets, found, strict=True)
    }


def test_the_table_has_every_pair() -> None:
    assert set(table()) == {
        (source, target) for source in capabilities() for target in capabilities()
    }


@pytest.mark.parametrize("source", capabilities())
def test_the_table_says_what_a_link_decides(source: str) -> None:
    told = {target: cell for (each, target), cell in table().items() if each == source}
    assert told == {target: decided(source, target)[0] for target in capabilities()}


@pytest.mark.parametrize(
    ("source", "target", "lacks"),
    [
        (
            "embedded",
            "rabbitmq",
            "its target, connection-factory 'to' (stomp), neither takes part in XA transactions nor remembers duplicate ids.",
        ),
        (
            "JMS",
            "JMS, XA",
            "its target, connection-factory 'to' (jms), neither takes part in XA transactions nor remembers duplicate ids.",
        ),
        (
            "rabbitmq",
            "embedded",
            "its source, connection-factory 'from' (stomp), neither takes part in XA transactions nor gives a message the same id each time.",
        ),
        (
            "generic",
            "generic",
            "its target, connection-factory 'to' (stomp), neither takes part in XA transactions nor remembers duplicate ids; "
            "its source, connection-factory 'from' (stomp), neither takes part in XA transactions nor gives a message the same id each time.",
        ),
    ],
)
def test_a_refusal_says_what_either_side_lacks(source: str, target: str, lacks: str) -> None:
    word, reason = decided(source, target)
    remedy = (
        "Expected XA on both sides (for JMS: a lookup-name that finds an XAConnectionFactory), or a target that remembers, "
        'or else quality-of-service="DUPLICATES_OK"'
    )
    assert (word, reason) == (
        REFUSED,
        f"link orders is transacted, and cannot be: {lacks} {remedy}",
    )
