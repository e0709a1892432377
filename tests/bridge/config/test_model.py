"""The model's defaults are the DTD's; secrets stay out of texts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

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
from gateway.messaging.destination import Kind, Queue, Topic
from tests.bridge.config.documents import bridge, document, link

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
