"""A configuration in words: every value by a name, and no password."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.config.description import describe, differences
from bridge.config.model import Bridge, Dmq, QualityOfService
from tests.bridge.config.documents import FACTORIES, bridge, document, link

WRITTEN = document(
    link('max-batch-size="7"'),
    '<dmq name="d" connection-factory-ref="here" destination-ref="out"/>',
)


def what_differs(one: Bridge, other: Bridge) -> list[tuple[str, str, str]]:
    return differences(describe(one), describe(other))


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (WRITTEN.replace('size="7"', 'size="8"'), ('link "orders", max-batch-size', "7", "8")),
        (WRITTEN.replace('max-batch-size="7"', ""), ('link "orders", max-batch-size', "7", "")),
        (
            WRITTEN.replace('name="orders"/>', 'name="others"/>'),
            ('destination "in", name', "orders", "others"),
        ),
        (
            WRITTEN.replace(
                '<source connection-factory-ref="here"', '<source connection-factory-ref="there"'
            ),
            ('link "orders", source, connection-factory', "here", "there"),
        ),
        (
            WRITTEN.replace('lookup-name="Conn', 'lookup-name="XConn'),
            ('connection-factory "there", lookup-name', "ConnectionFactory", "XConnectionFactory"),
        ),
    ],
)
def test_what_differs_is_told_by_its_name(there: str, told: tuple[str, str, str]) -> None:
    assert what_differs(bridge(WRITTEN), bridge(there)) == [told]


def test_where_a_file_is_and_its_descriptions_make_no_difference() -> None:
    here = bridge(WRITTEN)
    described = WRITTEN.replace(
        '<destination ref-name="in" name="orders"/>',
        '\n\n<destination ref-name="in" name="orders"><description>x</description></destination>',
    )
    assert described != WRITTEN
    assert what_differs(here, replace(bridge(described), origin="/elsewhere.xml")) == []


def test_the_order_of_dead_message_queues_is_a_difference() -> None:
    dmqs = (Dmq("a"), Dmq("b"))
    one, other = Bridge("mq", dmqs=dmqs), Bridge("mq", dmqs=dmqs[::-1])
    assert what_differs(one, other) == [("order of dead message queues", "a, b", "b, a")]


def test_no_password_is_told() -> None:
    secret = document(
        link(),
        factories=FACTORIES.replace(
            'ref-name="there"', 'ref-name="there" username="me" password="pass-word"'
        ),
    )
    values = describe(bridge(secret))
    assert "pass-word" not in " ".join(values.values())
    assert values['connection-factory "there", username'] == "me"


def test_every_value_of_a_link_is_told() -> None:
    values = describe(bridge(WRITTEN))
    assert values['link "orders", quality-of-service'] == QualityOfService.ONCE_AND_ONLY_ONCE.value
    assert {'link "orders", loop-guard', 'link "orders", target, retain-replyto'} <= values.keys()
