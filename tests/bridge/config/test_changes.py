"""Which links a reload must start anew."""

from __future__ import annotations

import pytest

from bridge.config.changes import Changes, changes
from bridge.config.model import Bridge
from tests.bridge.config.documents import DESTINATIONS, bridge, document, link

TRANSFORMED = (
    '<target connection-factory-ref="here" destination-ref="out" message-transformer-class="a.B"/>'
)
NEWS = '<source connection-factory-ref="there" destination-ref="news"/>'
BEFORE = document(
    link(name="a")
    + link(name="b", source=NEWS, target=TRANSFORMED)
    + link(name="c", target=TRANSFORMED.replace("message-", 'clientid="x" message-')),
    '<dmq name="dead" connection-factory-ref="here" destination-ref="out"/>',
)


def after(*replaced: tuple[str, str]) -> Changes:
    text = BEFORE
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return changes(bridge(BEFORE), bridge(text))


def test_nothing() -> None:
    found = after()
    assert found == Changes(unchanged=("a", "b", "c"))
    assert not found


def test_descriptions_and_order_make_no_difference() -> None:
    described = after(
        ("<source", "<description>new</description>\n\n<source"), ("<jmsbridge", "\n<jmsbridge")
    )
    assert described == Changes(unchanged=("a", "b", "c"))
    turned = document(link(name="b") + link(name="a"))
    assert changes(bridge(document(link(name="a") + link(name="b"))), bridge(turned)) == Changes(
        unchanged=("b", "a")
    )


def test_links_that_come_and_go() -> None:
    found = after(('name="b"', 'name="d"'))
    assert found == Changes(added=("d",), removed=("b",), unchanged=("a", "c"))
    assert found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('<link name="b"', '<link name="b" enabled="false"'),
        ('<link name="b"', '<link name="b" max-batch-size="2"'),
        (NEWS, NEWS.replace("/>", ' selector="x"/>')),
    ],
)
def test_an_attribute_of_a_link(old: str, new: str) -> None:
    assert after((old, new)) == Changes(changed=("b",), unchanged=("a", "c"))


def test_a_transformers_properties() -> None:
    found = after(
        (
            'clientid="x" message-transformer-class="a.B"/>',
            'clientid="x" message-transformer-class="a.B"><property name="a" value="b"/></target>',
        )
    )
    assert found == Changes(changed=("c",), unchanged=("a", "b"))


def test_a_connection_factory_changes_the_links_that_use_it() -> None:
    found = after(
        (
            'lookup-name="ConnectionFactory"',
            'lookup-name="ConnectionFactory" username="u" password="p"',
        )
    )
    assert found == Changes(changed=("a", "b"), unchanged=("c",), connection_factories=("there",))


def test_a_destination_changes_the_links_that_use_it_or_could_by_their_transformer() -> None:
    found = after(('name="orders"', 'name="orders.new"'))
    assert found == Changes(changed=("a", "b", "c"), destinations=("in",))
    plain = document(link(name="a"))
    other = plain.replace(
        DESTINATIONS,
        DESTINATIONS.replace('name="news" type', 'name="new" type')
        + '<destination ref-name="x" name="x"/>',
    )
    assert changes(bridge(plain), bridge(other)) == Changes(
        unchanged=("a",), destinations=("news", "x")
    )
    assert changes(bridge(other), bridge(plain)) == Changes(
        unchanged=("a",), destinations=("news", "x")
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('<dmq name="dead"', '<dmq send-attempts="1" name="dead"'),
        ("<dmq", '<dmq name="built-in-dmq" send-attempts="1"/><dmq'),
        ('<dmq name="dead"', '<dmq name="dead2"'),
    ],
)
def test_dead_message_queues(old: str, new: str) -> None:
    assert after((old, new)) == Changes(unchanged=("a", "b", "c"), dmqs=True)


def test_attributes_of_the_bridge() -> None:
    assert after(
        ('<jmsbridge name="mq"', '<jmsbridge name="mq" log-message-transfer="false"')
    ) == Changes(unchanged=("a", "b", "c"), log_message_transfer=True)
    assert after(
        ('<jmsbridge name="mq"', '<jmsbridge name="mq" message-transfer-tag-bridge-name="true"')
    ) == Changes(unchanged=("a", "b", "c"), message_transfer_tag_bridge_name=True)


def test_two_bridges_are_not_compared() -> None:
    with pytest.raises(ValueError, match="the bridges a and b cannot be compared"):
        changes(Bridge("a"), Bridge("b"))
