"""The model's defaults are the DTD's; secrets stay out of texts; and what a change means."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from bridge.config.changes import Changes, changes
from bridge.config.document import declarations
from bridge.config.model import (
    BUILT_IN_DMQ,
    BUILT_IN_DMQ_DESTINATION,
    Bridge,
    ConnectionFactory,
    Destination,
    Dmq,
    Link,
    QualityOfService,
    Source,
    Target,
)
from bridge.config.secrets import secrets_in, usernames_in
from gateway.messaging.destination import Kind, Queue, Topic
from tests.bridge.config.documents import DESTINATIONS, bridge, document, link

FACTORY = ConnectionFactory("here")
PLACE = Destination("in", "orders", Kind.QUEUE)


def test_the_attributes_of_the_tables_and_their_defaults() -> None:
    defaults = {
        name: {key: attribute.default for key, attribute in declared.attributes.items()}
        for name, declared in declarations().items()
    }
    assert defaults == {
        "jmsbridge": {
            "name": None,
            "log-message-transfer": "true",
            "message-transfer-tag-bridge-name": "false",
        },
        "link": {
            "name": None,
            "enabled": "true",
            "transacted": "true",
            "quality-of-service": None,
            "max-batch-size": None,
            "max-batch-time": "100",
            "failure-retry-interval": None,
            "max-retries": None,
            "add-message-id-in-header": "false",
            "loop-guard": "false",
            "max-messages-per-second": None,
            "max-bytes-per-second": None,
        },
        "source": {
            "clientid": None,
            "connection-factory-ref": None,
            "destination-ref": None,
            "durable-sub": None,
            "selector": None,
        },
        "target": {
            "clientid": None,
            "connection-factory-ref": None,
            "consume-no-transfer-on-transform-error": "false",
            "destination-ref": None,
            "message-transformer-class": None,
            "retain-replyto": "false",
            "stay-connected": "true",
        },
        "rule": {"when": None, "drop": "false", "destination-ref": None, "last": "false"},
        "remove": {"name": None},
        "rename": {"name": None, "to": None},
        "set": {"name": None, "value": None, "from": None, "type": "string"},
        "dmq": {
            "client-id": None,
            "clientid": None,
            "connection-factory-ref": None,
            "destination-ref": None,
            "enabled": "true",
            "message-transformer-class": None,
            "name": None,
            "send-attempt-interval-in-seconds": "5",
            "send-attempts": "3",
            "stay-connected": "true",
            "time-to-live-in-millis": "0",
        },
        "connection-factory": {
            "connect-attempt-interval-in-seconds": "5",
            "connect-attempts": "-1",
            "idle-timeout-in-seconds": "1800",
            "lookup-name": None,
            "multi-rm": "false",
            "password": None,
            "ref-name": None,
            "username": None,
        },
        "destination": {"lookup-name": None, "name": None, "ref-name": None, "type": "queue"},
        "property": {"name": None, "value": None},
        "description": {},
    }


def test_what_is_not_written_is_the_models_default() -> None:
    found = bridge(
        document(
            link(target='<target connection-factory-ref="here" destination-ref="out"/>'),
            '<dmq name="dead" connection-factory-ref="here" destination-ref="out"/>',
            '<connection-factory ref-name="here"/>',
        )
    )
    out = Destination("out", "accepted", Kind.QUEUE)
    assert found == Bridge(
        "mq",
        links=(Link("orders", Source(FACTORY, PLACE), Target(FACTORY, out)),),
        dmqs=(Dmq("dead", FACTORY, out),),
        connection_factories=(FACTORY,),
        destinations=(PLACE, out, Destination("news", "news", Kind.TOPIC)),
    )
    assert found.built_in_dmq is BUILT_IN_DMQ


def test_the_built_in_dead_message_queue() -> None:
    assert (
        Dmq("built-in-dmq", send_attempts=3, send_attempt_interval_s=5, time_to_live_ms=0)
        == BUILT_IN_DMQ
    )
    assert BUILT_IN_DMQ.built_in
    assert not Dmq("dead").built_in
    assert Queue("imq.bridge.jms.dmq") == BUILT_IN_DMQ_DESTINATION


@pytest.mark.parametrize(
    ("quality", "transacted"),
    [
        (QualityOfService.AT_MOST_ONCE, False),
        (QualityOfService.DUPLICATES_OK, False),
        (QualityOfService.ONCE_AND_ONLY_ONCE, True),
    ],
)
def test_transacted(quality: QualityOfService, transacted: bool) -> None:
    assert (
        Link(
            "orders", Source(FACTORY, PLACE), Target(FACTORY), quality_of_service=quality
        ).transacted
        is transacted
    )


def test_a_destination_by_name_and_by_look_up() -> None:
    assert PLACE.by_name == Queue("orders")
    assert Destination("in", "news", Kind.TOPIC).by_name == Topic("news")
    assert Destination("in", lookup_name="jms/orders").by_name is None


def test_which_connection_factories_are_embedded() -> None:
    assert FACTORY.embedded
    assert not ConnectionFactory("there", lookup_name="x").embedded
    own = ConnectionFactory("own", properties={"provider": "mine"})
    assert own.provider == "mine"
    assert not own.embedded


def test_what_is_found_by_name() -> None:
    found = bridge(document(link()))
    assert found.destination("news") is found.destinations[2]
    assert found.destination("accepted") is None
    assert found.origin == "jmsbridge1.xml"


def test_secrets_are_known_and_not_shown() -> None:
    factory = ConnectionFactory(
        "there",
        lookup_name="x",
        username="bridge",
        password="pa55word",
        properties={
            "java.naming.security.credentials": "s3cret",
            "java.naming.provider.url": "tcp://host:1",
        },
    )
    found = Bridge(
        "mq",
        connection_factories=(factory, FACTORY),
        links=(
            Link(
                "l",
                Source(FACTORY, PLACE),
                Target(factory, properties={"keyStorePassword": "k3y", "empty.password": ""}),
            ),
        ),
        destinations=(Destination("in", lookup_name="in", properties={"my_pwd": "h1dden"}),),
        dmqs=(Dmq("dead", properties={"secret-word": "d3ad"}),),
    )
    assert found.secrets() == {"pa55word", "s3cret", "k3y", "h1dden", "d3ad"}
    assert not any(secret in repr(found) for secret in found.secrets())
    assert "bridge" in repr(found)


def test_a_model_stays_as_it_is() -> None:
    found = bridge(document(link()))
    with pytest.raises(FrozenInstanceError):
        found.links[0].enabled = False  # type: ignore[misc]
    assert hash(found) == hash(bridge(document(link())))


# --- secrets


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("java.naming.security.credentials", "hunter2", ["hunter2"]),
        ("java.naming.provider.url", "tcp://user:hunter2@host:61616", ["hunter2"]),
        (
            "java.naming.provider.url",
            "failover:(tcp://a:1,tcp://b:2)?jms.userName=u&jms.password=hunter2",
            ["hunter2"],
        ),
        (
            "java.naming.provider.url",
            "failover:(tcp://a:1?x.password=hunter2)?jms.password=hunter3",
            ["hunter2", "hunter3"],
        ),
        ("java.naming.provider.url", "tcp://host:61616?wireFormat.maxInactivityDuration=0", []),
        ("queue.orders", "orders", []),
    ],
)
def test_passwords_of_urls_are_secrets_too(name: str, value: str, secret: list[str]) -> None:
    assert secrets_in(name, value) == secret
    bridge = Bridge(
        "b",
        connection_factories=(ConnectionFactory("f", lookup_name="x", properties={name: value}),),
    )
    assert bridge.secrets() == frozenset(secret)


@pytest.mark.parametrize(
    ("name", "value", "names"),
    [
        ("imqDefaultUsername", "ann", ["ann"]),
        ("java.naming.security.principal", "cn=ann", ["cn=ann"]),
        ("java.naming.provider.url", "tcp://ann:hunter2@host:61616", ["ann"]),
        (
            "java.naming.provider.url",
            "failover:(tcp://a:1,tcp://b:2)?jms.userName=ann&jms.password=hunter2",
            ["ann"],
        ),
        ("java.naming.security.credentials", "hunter2", []),
        ("queue.orders", "orders", []),
    ],
)
def test_names_of_users_are_known_where_their_passwords_are(
    name: str, value: str, names: list[str]
) -> None:
    assert usernames_in(name, value) == names
    factory = ConnectionFactory(
        "f", lookup_name="x", username="bob", password="b", properties={name: value}
    )
    assert Bridge("b", connection_factories=(factory,)).usernames() == {"bob", *names}


# --- changes


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


def test_nothing_has_changed() -> None:
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


def test_any_factory_may_run_the_transformer_of_a_dead_message_queue() -> None:
    given = ('<dmq name="dead"', '<dmq message-transformer-class="java:com.acme.A" name="dead"')
    text = BEFORE.replace(*given)
    other = text.replace(
        '<connection-factory ref-name="there"',
        '<connection-factory idle-timeout-in-seconds="7" ref-name="there"',
    )
    assert text != other
    assert changes(bridge(text), bridge(other)).dmqs


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
